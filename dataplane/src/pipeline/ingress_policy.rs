//! May this frame enter at all? Link-local control frames and forged sources may not.
//!
//! The default of a workload port is VMware's strict setting: it sends from its own addresses only. Which those are is
//! the port's [`SourcePolicy`]; a port that learns is checked at [`super::lookup`], where the table is.

use crate::frame::Frame;
use crate::frame::mac::MacAddr;
use crate::state::SourcePolicy;
use crate::verdict::DropReason;

/// The address a [`SourcePolicy::FirstSeen`] port has been pinned to.
pub type FirstSeen = Option<MacAddr>;

/// Admits the frame or says why not. Pins the first source of a port that has none yet.
pub fn admit(frame: &Frame, policy: &SourcePolicy, first_seen: &mut FirstSeen) -> Result<(), DropReason> {
    if frame.destination().is_link_local_control() {
        return Err(DropReason::LinkLocalControl);
    }
    let source = frame.source();
    if !source.is_station() {
        return Err(DropReason::InvalidSource);
    }
    let known = match policy {
        SourcePolicy::Pinned(macs) => macs.contains(&source),
        SourcePolicy::FirstSeen => *first_seen.get_or_insert(source) == source,
        SourcePolicy::Learn { .. } => true,
    };
    if known { Ok(()) } else { Err(DropReason::ForgedSource) }
}
