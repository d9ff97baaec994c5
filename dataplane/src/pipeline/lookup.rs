//! Learn where the source is, find where the destination is (IEEE 802.1Q-2018 clauses 8.7 and 8.8).
//!
//! A unicast frame whose destination is in the table of its VLAN goes to that port. It is dropped if that is the port
//! it came from, or if the two are isolated from each other. An unknown unicast destination goes to the ports that take
//! such frames; by default workload ports do not, their addresses being pinned, so nobody overhears a conversation
//! because a table entry aged out. A group frame goes to every port that carries the VLAN. Never to its port of origin.

use crate::frame::Frame;
use crate::frame::mac::MacAddr;
use crate::id::PortId;
use crate::state::{BeyondLimit, ForwardingState, PortState, SourcePolicy};
use crate::table::fdb::{Fdb, Learned};
use crate::time::Instant;
use crate::verdict::DropReason;

use super::ingress_policy::{self, OwnAddress, Source};

/// Most addresses that a port has learned because its list of further addresses allows them.
pub const ALLOWED_LIMIT: usize = 64;

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To one port.
    Port(PortId),
    /// To every port of the ingress port's flood list that carries the VLAN and, if the destination is a station, takes
    /// unknown unicast.
    Flood {
        /// The destination is a station nobody knows.
        unknown_unicast: bool,
    },
    /// Nowhere.
    Drop(DropReason),
}

/// What the other workers should be told about a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announce {
    /// Nothing: they know.
    Nothing,
    /// The address is behind the frame's ingress port.
    Learned,
    /// The address is pinned to the frame's ingress port.
    Pinned,
    /// The address is pinned to the frame's ingress port in place of another one.
    Changed {
        /// The other one.
        former: MacAddr,
    },
    /// Nothing: it was not learned for want of room in the table.
    TableFull,
}

/// Enters the frame's source into the table as its port's policy says. The first source of a port without known
/// addresses is pinned here and not earlier: only the table knows whether the address is another port's. So is the one
/// that a port changed to.
pub fn learn(
    now: Instant,
    frame: &Frame,
    policy: &PortState,
    own: &mut OwnAddress,
    fdb: &mut Fdb,
) -> Result<Announce, DropReason> {
    let (vlan, source, port) = (frame.vlan, frame.source(), frame.ingress);
    match ingress_policy::source(now, source, policy, *own) {
        Source::Listed => Ok(Announce::Nothing),
        Source::Learned => {
            let SourcePolicy::Learn { limit, beyond } = policy.sources else { return Ok(Announce::Nothing) };
            learn_within(now, frame, limit, beyond, fdb)
        }
        Source::Allowed => learn_within(now, frame, ALLOWED_LIMIT, BeyondLimit::Drop, fdb),
        Source::Shown if fdb.lookup(vlan, source) == Some(port) => Ok(Announce::Nothing),
        Source::Shown if fdb.pin(vlan, source, port) => Ok(Announce::Pinned),
        Source::First | Source::Changed if fdb.pin(vlan, source, port) => {
            Ok(own.change(now, source).map_or(Announce::Pinned, |former| Announce::Changed { former }))
        }
        // Another source may have been pinned while this frame waited at the ingress shaper.
        Source::Shown | Source::First | Source::Changed | Source::Foreign => {
            match policy.security.forged_transmits.accepts() {
                true => Ok(Announce::Nothing),
                false => Err(DropReason::ForgedSource),
            }
        }
    }
}

fn learn_within(
    now: Instant,
    frame: &Frame,
    limit: usize,
    beyond: BeyondLimit,
    fdb: &mut Fdb,
) -> Result<Announce, DropReason> {
    match fdb.learn(now, frame.vlan, frame.source(), frame.ingress, limit) {
        Learned::Refreshed { announce: false } => Ok(Announce::Nothing),
        Learned::New | Learned::Moved { .. } | Learned::Refreshed { announce: true } => Ok(Announce::Learned),
        // The address of a pinned port is nobody else's.
        Learned::StaticElsewhere(_) => Err(DropReason::ForgedSource),
        Learned::TableFull => Ok(Announce::TableFull),
        Learned::Flapping => Ok(Announce::Nothing),
        Learned::PortLimit => match beyond {
            BeyondLimit::Forward => Ok(Announce::Nothing),
            BeyondLimit::Drop => Err(DropReason::LearnLimit),
        },
    }
}

/// Finds where the frame goes.
pub fn lookup(frame: &Frame, state: &ForwardingState, fdb: &Fdb) -> Destination {
    let destination = frame.destination();
    if destination.is_group() {
        return Destination::Flood { unknown_unicast: false };
    }
    match fdb.lookup(frame.vlan, destination) {
        None => Destination::Flood { unknown_unicast: true },
        Some(port) if port == frame.ingress => Destination::Drop(DropReason::SamePort),
        Some(port) if !state.may_exchange(frame.ingress, port) => Destination::Drop(DropReason::Isolated),
        Some(port) => Destination::Port(port),
    }
}

/// Whether `egress`, a port of the ingress port's flood list, takes a copy of the frame.
pub fn takes_copy(frame: &Frame, unknown_unicast: bool, egress: PortId, state: &ForwardingState) -> bool {
    let port = state.port(egress);
    let takes_unknown = || port.takes_unknown_unicast || port.security.promiscuous.accepts();
    port.vlan.carries(frame.vlan) && (!unknown_unicast || takes_unknown())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{BufferPool, PoolSize};
    use crate::frame::vlan::VlanId;
    use crate::id::{GroupId, WorkerId};
    use crate::state::security::{Decision, Security};
    use crate::state::{ClassTable, FdbSettings, VlanMode};
    use crate::time::Nanos;

    const SETTINGS: FdbSettings = FdbSettings { capacity: 3, age: Nanos::from_secs(300) };

    fn station(number: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, number])
    }

    fn frame(ingress: u16, from: MacAddr, to: MacAddr) -> Frame {
        let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 1, large: 0 });
        let bytes = [&to.0[..], &from.0, &[0x88, 0xb5]].concat();
        Frame::copy_from(&bytes, PortId(ingress), &mut pool).unwrap()
    }

    fn learned(fdb: &mut Fdb, port: u16, from: u8, policy: &SourcePolicy) -> Result<Announce, DropReason> {
        let frame = frame(port, station(from), MacAddr::BROADCAST);
        learn(Instant::ZERO, &frame, &with(policy.clone()), &mut OwnAddress::default(), fdb)
    }

    fn with(sources: SourcePolicy) -> PortState {
        PortState {
            group: GroupId(0),
            worker: WorkerId(0),
            vlan: VlanMode::Access(VlanId::UNTAGGED),
            isolated: false,
            sources,
            security: Security::default(),
            takes_unknown_unicast: false,
            ingress: None,
            egress: None,
        }
    }

    fn up_to(limit: usize, beyond: BeyondLimit) -> SourcePolicy {
        SourcePolicy::Learn { limit, beyond }
    }

    #[test]
    fn what_is_new_is_announced_once() {
        let mut fdb = Fdb::new(SETTINGS, 4);
        let policy = up_to(2, BeyondLimit::Drop);
        assert_eq!(learned(&mut fdb, 0, 1, &policy), Ok(Announce::Learned));
        assert_eq!(learned(&mut fdb, 0, 1, &policy), Ok(Announce::Nothing));
        assert_eq!(learned(&mut fdb, 1, 1, &policy), Ok(Announce::Learned), "moved");
        let mut own = OwnAddress::default();
        for announced in [Announce::Pinned, Announce::Nothing] {
            let (frame, policy) = (frame(2, station(2), MacAddr::BROADCAST), with(SourcePolicy::FirstSeen));
            assert_eq!(learn(Instant::ZERO, &frame, &policy, &mut own, &mut fdb), Ok(announced));
        }
        assert_eq!(
            learned(&mut fdb, 3, 3, &SourcePolicy::Pinned([station(3)].into())),
            Ok(Announce::Nothing),
            "known from the start"
        );
    }

    #[test]
    fn beyond_its_limit_a_port_is_cut_off_or_passes_unlearned() {
        let mut fdb = Fdb::new(SETTINGS, 2);
        learned(&mut fdb, 0, 1, &up_to(1, BeyondLimit::Drop)).unwrap();
        assert_eq!(learned(&mut fdb, 0, 2, &up_to(1, BeyondLimit::Drop)), Err(DropReason::LearnLimit));
        assert_eq!(learned(&mut fdb, 0, 2, &up_to(1, BeyondLimit::Forward)), Ok(Announce::Nothing));
        assert_eq!(fdb.lookup(VlanId::UNTAGGED, station(2)), None);
        // A full table is nobody's fault.
        for number in 3..9 {
            learned(&mut fdb, 1, number, &up_to(100, BeyondLimit::Drop)).unwrap();
        }
        assert_eq!(fdb.len(), SETTINGS.capacity);
    }

    #[test]
    fn an_address_of_another_port_is_not_pinned() {
        let mut fdb = Fdb::new(SETTINGS, 2);
        fdb.insert_static(VlanId::UNTAGGED, station(1), PortId(0));
        let mut seen = OwnAddress::default();
        let mut from = |number| {
            let frame = frame(1, station(number), MacAddr::BROADCAST);
            learn(Instant::ZERO, &frame, &with(SourcePolicy::FirstSeen), &mut seen, &mut fdb)
        };
        assert_eq!(from(1), Err(DropReason::ForgedSource));
        assert_eq!(from(2), Ok(Announce::Pinned), "its own address still can be");
        assert_eq!(from(3), Err(DropReason::ForgedSource), "and no second one");
    }

    #[test]
    fn a_static_address_is_nobody_else_s() {
        let mut fdb = Fdb::new(SETTINGS, 3);
        fdb.insert_static(VlanId::UNTAGGED, station(1), PortId(0));
        for policy in [SourcePolicy::FirstSeen, up_to(9, BeyondLimit::Forward)] {
            assert_eq!(learned(&mut fdb, 1, 1, &policy), Err(DropReason::ForgedSource));
        }
        assert_eq!(fdb.lookup(VlanId::UNTAGGED, station(1)), Some(PortId(0)));
    }

    #[test]
    fn a_changed_address_takes_the_place_of_the_former_one() {
        let mut fdb = Fdb::new(SETTINGS, 2);
        fdb.insert_static(VlanId::UNTAGGED, station(9), PortId(0));
        let security = Security { mac_changes: Decision::Accept, ..Security::default() };
        let policy = PortState { security, ..with(SourcePolicy::FirstSeen) };
        let mut own = OwnAddress::default();
        let mut from = |seconds, number| {
            let frame = frame(1, station(number), MacAddr::BROADCAST);
            let now = Instant::ZERO + Nanos::from_secs(seconds);
            learn(now, &frame, &policy, &mut own, &mut fdb)
        };
        assert_eq!(from(0, 1), Ok(Announce::Pinned));
        assert_eq!(from(1, 2), Ok(Announce::Changed { former: station(1) }));
        assert_eq!(from(1, 3), Err(DropReason::ForgedSource), "twice in a second");
        assert_eq!(from(2, 9), Err(DropReason::ForgedSource), "another port's");
        assert_eq!(from(2, 2), Ok(Announce::Nothing));
        assert_eq!(own.mac(), Some(station(2)));
    }

    #[test]
    fn forged_sources_pass_unlearned_where_they_are_accepted() {
        let mut fdb = Fdb::new(SETTINGS, 2);
        fdb.insert_static(VlanId::UNTAGGED, station(9), PortId(0));
        let security = Security { forged_transmits: Decision::Accept, ..Security::default() };
        let policy = PortState { security, ..with(SourcePolicy::Pinned([station(1)].into())) };
        for number in [2, 9] {
            let frame = frame(1, station(number), MacAddr::BROADCAST);
            let learned = learn(Instant::ZERO, &frame, &policy, &mut OwnAddress::default(), &mut fdb);
            assert_eq!(learned, Ok(Announce::Nothing));
        }
        assert_eq!(fdb.lookup(VlanId::UNTAGGED, station(2)), None);
        assert_eq!(fdb.lookup(VlanId::UNTAGGED, station(9)), Some(PortId(0)));
    }

    #[test]
    fn a_frame_goes_where_its_destination_is_and_never_back() {
        let port = |isolated, takes_unknown_unicast| PortState {
            isolated,
            takes_unknown_unicast,
            ..with(SourcePolicy::FirstSeen)
        };
        let ports = vec![port(true, false), port(true, true), port(false, true)];
        let state = ForwardingState::new(ports, ClassTable::default(), SETTINGS);
        let mut fdb = Fdb::new(SETTINGS, 3);
        (0..3).for_each(|port| _ = fdb.insert_static(VlanId::UNTAGGED, station(port), PortId(port.into())));

        let from_port_0 = |to| lookup(&frame(0, station(0), to), &state, &fdb);
        assert_eq!(from_port_0(station(2)), Destination::Port(PortId(2)));
        assert_eq!(from_port_0(station(0)), Destination::Drop(DropReason::SamePort));
        assert_eq!(from_port_0(station(1)), Destination::Drop(DropReason::Isolated));
        assert_eq!(from_port_0(MacAddr::BROADCAST), Destination::Flood { unknown_unicast: false });
        assert_eq!(from_port_0(station(9)), Destination::Flood { unknown_unicast: true });

        let mut from_port_2 = frame(2, station(2), station(9));
        let takes =
            |frame: &Frame, unknown| [0, 1].map(|port| takes_copy(frame, unknown, PortId(port), &state));
        assert_eq!(takes(&from_port_2, true), [false, true]);
        assert_eq!(takes(&from_port_2, false), [true, true]);
        from_port_2.vlan = VlanId::try_from(2).unwrap();
        assert_eq!(takes(&from_port_2, false), [false, false]);
    }
}
