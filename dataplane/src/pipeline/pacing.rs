//! A super-frame that would keep a slow port busy for long is cut into the frames of the wire before it waits.
//!
//! At 10 Mbit/s a super-frame of 64 KiB takes 52 ms: whoever waits behind it waits that long, and a queue bounded to
//! `max_delay` takes one or none. On fast ports super-frames stay whole, which is what makes them fast.

use crate::frame::Frame;
use crate::state::Shaping;
use crate::time::Nanos;

/// The longest that one frame may take a port, unless a single frame of the wire takes longer.
const LONGEST: Nanos = Nanos::from_millis(1);

/// Longest super-frame, in bytes as the wire would carry them, that stays whole on a port with this rate.
pub fn longest_whole(shaping: Option<&Shaping>) -> u64 {
    shaping.map_or(u64::MAX, |shaping| shaping.average.bytes_in(LONGEST).get())
}

/// Whether `frame` is to be cut up on a port where super-frames of up to `longest` bytes stay whole.
pub fn is_too_long(frame: &Frame, longest: u64) -> bool {
    frame.gso.is_some() && frame.wire_len() > longest
}
