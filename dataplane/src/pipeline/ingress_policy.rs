//! May this frame enter at all? Link-local control frames and forged sources may not.
//!
//! The default of a workload port is VMware's strict setting: it sends from its own addresses only. Which those are is
//! the port's [`SourcePolicy`] and what its [`Security`](crate::state::security::Security) allows beside them; a port that
//! learns is checked at [`super::lookup`], where the table is.

use crate::frame::Frame;
use crate::frame::mac::MacAddr;
use crate::state::{PortState, SourcePolicy};
use crate::time::{Instant, Nanos};
use crate::verdict::DropReason;

/// A port that may change its address does so at most this often.
const CHANGE_EVERY: Nanos = Nanos::from_secs(1);

/// The address that a port showed by sending from it: the first source of a [`SourcePolicy::FirstSeen`] port, or what a
/// port that may change its address changed to. [`super::lookup::learn`] sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnAddress {
    mac: Option<MacAddr>,
    changed: Option<Instant>,
}

/// What a source address is to its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// One of the addresses the topology gives it: in the table from the start.
    Listed,
    /// The address it showed before.
    Shown,
    /// The first one of a port that takes just one.
    First,
    /// On the list of further addresses: learned.
    Allowed,
    /// A changed address.
    Changed,
    /// One among those it learns.
    Learned,
    /// None of these.
    Foreign,
}

impl OwnAddress {
    /// The address.
    pub const fn mac(self) -> Option<MacAddr> {
        self.mac
    }

    /// Takes `mac` in place of the former one, which is returned.
    pub fn change(&mut self, now: Instant, mac: MacAddr) -> Option<MacAddr> {
        self.changed = Some(now);
        self.mac.replace(mac)
    }

    fn may_change(self, now: Instant) -> bool {
        self.changed.is_none_or(|changed| now.saturating_since(changed) >= CHANGE_EVERY)
    }
}

/// What `source` is to `port` at `now`.
pub fn source(now: Instant, source: MacAddr, port: &PortState, own: OwnAddress) -> Source {
    let security = &port.security;
    match &port.sources {
        SourcePolicy::Learn { .. } => Source::Learned,
        SourcePolicy::Pinned(macs) if macs.contains(&source) => Source::Listed,
        _ if own.mac == Some(source) => Source::Shown,
        _ if security.allowed.iter().any(|allowed| allowed.matches(source)) => Source::Allowed,
        SourcePolicy::FirstSeen if own.mac.is_none() => Source::First,
        _ if security.mac_changes.accepts() && own.may_change(now) => Source::Changed,
        _ => Source::Foreign,
    }
}

/// Admits the frame or says why not.
pub fn admit(now: Instant, frame: &Frame, port: &PortState, own: OwnAddress) -> Result<(), DropReason> {
    let destination = frame.destination();
    if port.security.bpdu_guard && destination.is_spanning_tree() {
        return Err(DropReason::BpduGuard);
    }
    if destination.is_link_local_control() && !port.security.link_local.contains(destination) {
        return Err(DropReason::LinkLocalControl);
    }
    if !frame.source().is_station() {
        return Err(DropReason::InvalidSource);
    }
    match source(now, frame.source(), port, own) {
        Source::Foreign if !port.security.forged_transmits.accepts() => Err(DropReason::ForgedSource),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{BufferPool, PoolSize};
    use crate::frame::vlan::VlanId;
    use crate::id::GroupId;
    use crate::id::{PortId, WorkerId};
    use crate::state::security::{Decision, LinkLocal, Security};
    use crate::state::{BeyondLimit, VlanMode};

    const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
    const LEARN: SourcePolicy = SourcePolicy::Learn { limit: 0, beyond: BeyondLimit::Drop };

    fn port(sources: SourcePolicy, security: Security) -> PortState {
        PortState {
            group: GroupId(0),
            worker: WorkerId(0),
            vlan: VlanMode::Access(VlanId::UNTAGGED),
            isolated: false,
            sources,
            security,
            takes_unknown_unicast: false,
            ingress: None,
            egress: None,
        }
    }

    fn admit_frame(to: MacAddr, from: MacAddr, port: &PortState, own: OwnAddress) -> Result<(), DropReason> {
        let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 1, large: 0 });
        let bytes = [&to.0[..], &from.0, &[0x88, 0xb5]].concat();
        admit(Instant::ZERO, &Frame::copy_from(&bytes, PortId(0), &mut pool).unwrap(), port, own)
    }

    fn shown(mac: Option<MacAddr>) -> OwnAddress {
        OwnAddress { mac, changed: None }
    }

    fn admitted(
        to: MacAddr,
        from: MacAddr,
        policy: &SourcePolicy,
        seen: Option<MacAddr>,
    ) -> Result<(), DropReason> {
        admit_frame(to, from, &port(policy.clone(), Security::default()), shown(seen))
    }

    #[test]
    fn a_group_may_forward_chosen_control_frames() {
        let security = Security { link_local: LinkLocal::LLDP.with(LinkLocal::STP), ..Security::default() };
        let port = port(LEARN, security);
        let to = |last| admit_frame(MacAddr([1, 0x80, 0xc2, 0, 0, last]), OWN, &port, shown(None));
        let refused = Err(DropReason::LinkLocalControl);
        assert_eq!([0, 1, 2, 0xe].map(to), [Ok(()), refused, refused, Ok(())]);
    }

    #[test]
    fn the_guard_knows_both_kinds_of_spanning_tree_frames() {
        let guarded = port(LEARN, Security { bpdu_guard: true, ..Security::default() });
        for (to, wanted) in [
            ("01:80:c2:00:00:00", Err(DropReason::BpduGuard)),
            ("01:00:0c:cc:cc:cd", Err(DropReason::BpduGuard)),
            ("01:00:0c:cc:cc:cc", Ok(())),
        ] {
            assert_eq!(admit_frame(to.parse().unwrap(), OWN, &guarded, shown(None)), wanted, "{to}");
        }
    }

    #[test]
    fn what_a_source_is_to_its_port() {
        let pinned = || SourcePolicy::Pinned([OWN].into());
        let virtual_router: MacAddr = "00:00:5e:00:01:0a".parse().unwrap();
        let allowed = Box::new(["00:00:5e:00:01:xx".parse().unwrap()]);
        let security = Security { allowed, mac_changes: Decision::Accept, ..Security::default() };
        let port = port(pinned(), security);
        let kind = |mac, own| source(Instant::ZERO, mac, &port, own);
        assert_eq!(kind(OWN, shown(None)), Source::Listed);
        assert_eq!(kind(virtual_router, shown(None)), Source::Allowed);
        assert_eq!(kind(OTHER, shown(None)), Source::Changed);
        assert_eq!(kind(OTHER, shown(Some(OTHER))), Source::Shown);
        let mut own = shown(None);
        assert_eq!(own.change(Instant::ZERO, OTHER), None);
        let third = MacAddr([2, 0, 0, 0, 0, 3]);
        assert_eq!(kind(third, own), Source::Foreign, "twice in a second");
        assert_eq!(source(Instant::ZERO + CHANGE_EVERY, third, &port, own), Source::Changed);
    }

    #[test]
    fn forged_transmits_pass_where_they_are_accepted() {
        for (forged_transmits, wanted) in
            [(Decision::Reject, Err(DropReason::ForgedSource)), (Decision::Accept, Ok(()))]
        {
            let security = Security { forged_transmits, ..Security::default() };
            let port = port(SourcePolicy::Pinned([OWN].into()), security);
            assert_eq!(admit_frame(MacAddr::BROADCAST, OTHER, &port, shown(None)), wanted);
        }
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
