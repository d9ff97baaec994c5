//! May this frame enter at all? Link-local control frames and forged sources may not.
//!
//! The default of a workload port is VMware's strict setting: it sends from its own addresses only. Which those are is
//! the port's [`SourcePolicy`]; a port that learns is checked at [`super::lookup`], where the table is.

use crate::frame::Frame;
use crate::frame::mac::MacAddr;
use crate::state::SourcePolicy;
use crate::verdict::DropReason;

/// The address a [`SourcePolicy::FirstSeen`] port is pinned to; [`super::lookup::learn`] sets it.
pub type FirstSeen = Option<MacAddr>;

/// Admits the frame or says why not.
pub fn admit(frame: &Frame, policy: &SourcePolicy, first_seen: FirstSeen) -> Result<(), DropReason> {
    if frame.destination().is_link_local_control() {
        return Err(DropReason::LinkLocalControl);
    }
    let source = frame.source();
    if !source.is_station() {
        return Err(DropReason::InvalidSource);
    }
    let known = match policy {
        SourcePolicy::Pinned(macs) => macs.contains(&source),
        SourcePolicy::FirstSeen => first_seen.is_none_or(|first| first == source),
        SourcePolicy::Learn { .. } => true,
    };
    if known { Ok(()) } else { Err(DropReason::ForgedSource) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{BufferPool, PoolSize};
    use crate::id::{PortId, WorkerId};
    use crate::state::BeyondLimit;

    const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
    const LEARN: SourcePolicy = SourcePolicy::Learn { limit: 0, beyond: BeyondLimit::Drop };

    fn admitted(
        to: MacAddr,
        from: MacAddr,
        policy: &SourcePolicy,
        seen: FirstSeen,
    ) -> Result<(), DropReason> {
        let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 1, large: 0 });
        let bytes = [&to.0[..], &from.0, &[0x88, 0xb5]].concat();
        admit(&Frame::copy_from(&bytes, PortId(0), &mut pool).unwrap(), policy, seen)
    }

    #[test]
    fn only_a_station_sends_and_the_bridge_s_own_groups_stay_here() {
        let from = |source| admitted(OTHER, source, &LEARN, None);
        assert_eq!(from(OWN), Ok(()));
        assert_eq!(from(MacAddr::BROADCAST), Err(DropReason::InvalidSource));
        assert_eq!(from(MacAddr([0; 6])), Err(DropReason::InvalidSource));
        for (last, wanted) in [
            (0x00, Err(DropReason::LinkLocalControl)),
            (0x0f, Err(DropReason::LinkLocalControl)),
            (0x10, Ok(())),
        ] {
            assert_eq!(admitted(MacAddr([0x01, 0x80, 0xc2, 0, 0, last]), OWN, &LEARN, None), wanted);
        }
    }

    #[test]
    fn a_pinned_port_sends_from_its_own_addresses() {
        let policy = SourcePolicy::Pinned([OWN].into());
        assert_eq!(admitted(OTHER, OWN, &policy, None), Ok(()));
        assert_eq!(admitted(OWN, OTHER, &policy, None), Err(DropReason::ForgedSource));
    }

    #[test]
    fn the_first_source_seen_is_the_only_one_from_then_on() {
        let from = |source, seen| admitted(MacAddr::BROADCAST, source, &SourcePolicy::FirstSeen, seen);
        assert_eq!(from(MacAddr([0; 6]), None), Err(DropReason::InvalidSource));
        assert_eq!(from(OWN, None), Ok(()));
        assert_eq!(from(OTHER, Some(OWN)), Err(DropReason::ForgedSource));
        assert_eq!(from(OWN, Some(OWN)), Ok(()));
    }
}
