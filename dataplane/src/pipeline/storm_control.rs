//! How many frames to many receivers a port may send: to everyone and to groups before they are shaped, to stations
//! nobody knows once the table was asked. Frames beyond are dropped, for a storm is not worth a queue.
//!
//! A loop through two ports of one workload is what this is for: it multiplies such frames and nothing else, and the limit
//! bounds what each round trip brings back.

use crate::counters::Cast;
use crate::frame::Frame;
use crate::state::security::StormLimits;
use crate::table::frame_bucket::FrameBucket;
use crate::time::Instant;
use crate::units::FramesPerSecond;
use crate::verdict::DropReason;

/// The limits of one port and what is left of them.
#[derive(Debug)]
pub struct StormControl {
    broadcast: Option<FrameBucket>,
    multicast: Option<FrameBucket>,
    unknown_unicast: Option<FrameBucket>,
}

impl StormControl {
    /// With full credit.
    pub fn new(limits: StormLimits, now: Instant) -> Self {
        let bucket = |limit: Option<FramesPerSecond>| limit.map(|rate| FrameBucket::new(rate, now));
        Self {
            broadcast: bucket(limits.broadcast),
            multicast: bucket(limits.multicast),
            unknown_unicast: bucket(limits.unknown_unicast),
        }
    }

    /// Admits a frame by its destination address alone.
    pub fn admit(&mut self, now: Instant, frame: &Frame) -> Result<(), DropReason> {
        match Cast::of(frame.destination()) {
            Cast::Unicast => Ok(()),
            Cast::Broadcast => take(&mut self.broadcast, now, frame, DropReason::StormBroadcast),
            Cast::Multicast => take(&mut self.multicast, now, frame, DropReason::StormMulticast),
        }
    }

    /// Admits a frame to a station nobody knows.
    pub fn admit_unknown(&mut self, now: Instant, frame: &Frame) -> Result<(), DropReason> {
        take(&mut self.unknown_unicast, now, frame, DropReason::StormUnknownUnicast)
    }
}

fn take(
    bucket: &mut Option<FrameBucket>,
    now: Instant,
    frame: &Frame,
    reason: DropReason,
) -> Result<(), DropReason> {
    let conforms = bucket.as_mut().is_none_or(|bucket| bucket.try_take(now, frame.wire_frames()));
    if conforms { Ok(()) } else { Err(reason) }
}
