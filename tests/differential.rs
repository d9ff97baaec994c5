//! The real switch and the naive one ([`ModelSwitch`]) must agree: on every frame that leaves, byte for byte, and on
//! every drop counter.

use std::num::NonZeroU8;

use lockgate_dataplane::buffer::PoolSize;
use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::frame::vlan::VlanId;
use lockgate_dataplane::id::{ClassId, Direction, GroupId, PortId, WorkerId};
use lockgate_dataplane::state::security::{Admin, Decision, LinkLocal, Security, StormLimits};
use lockgate_dataplane::state::{
    BeyondLimit, Class, ClassTable, FdbSettings, ForwardingState, PortState, Service, SourcePolicy, VlanMode,
};
use lockgate_dataplane::time::{Instant, Nanos};
use lockgate_dataplane::verdict::DropReason;
use lockgate_tests::frames::{self, station};
use lockgate_tests::model::ModelSwitch;
use lockgate_tests::rig::{Rig, ids, open_port};
use proptest::prelude::*;
use proptest::sample::select;

const MTU: u16 = 1500;
const AGE: Nanos = Nanos::from_secs(300);
/// Plenty: this is about where frames go, not about what happens when there is no room.
const POOL: PoolSize = PoolSize { small: 512, large: 64 };
/// Addresses that a port of a given policy has for itself; senders use each other's too.
const STATIONS_PER_PORT: u8 = 3;
/// A round looks at 16 table entries for ageing; more than this times 16 never exist here.
const ROUNDS_TO_AGE: usize = 12;

#[derive(Clone, Debug)]
struct Topology {
    ports: Vec<PortState>,
    /// Learned entries of the whole table.
    capacity: usize,
}

#[derive(Clone, Debug)]
enum Step {
    /// Frames that arrive together.
    Send {
        port: usize,
        frames: Vec<Vec<u8>>,
    },
    Wait(Nanos),
    Detach(usize),
    Attach(usize),
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_worker_agrees_with_the_model(
        topology in topology(1),
        steps in proptest::collection::vec(step(any_wait()), 1..80),
    ) {
        run(&topology, &steps);
    }

    #[test]
    fn two_workers_agree_with_the_model(
        topology in topology(2),
        steps in proptest::collection::vec(step(wait_for_two_workers()), 1..80),
    ) {
        run(&topology, &steps);
    }
}

fn run(topology: &Topology, steps: &[Step]) {
    let fdb = FdbSettings { capacity: topology.capacity, age: AGE };
    let mut model = ModelSwitch::new(&topology.ports, fdb, MTU.into());
    let mut rig = Rig::new(ForwardingState::new(topology.ports.clone(), classes(), fdb), POOL, MTU.into());
    let ports: Vec<PortId> = ids(rig.state()).collect();
    let port = |index: usize| ports[index % ports.len()];
    let mut is_up = vec![true; ports.len()];
    let mut now = Instant::ZERO;
    let mut drops = Drops::default();
    for (at, step) in steps.iter().enumerate() {
        let mut sent = Vec::new();
        match step {
            Step::Wait(span) => {
                now += *span;
                rig.rounds(now, ROUNDS_TO_AGE);
            }
            Step::Detach(index) => {
                is_up[port(*index).index()] = false;
                model.port_down(port(*index));
                rig.detach(port(*index));
            }
            Step::Attach(index) if is_up[port(*index).index()] => {}
            Step::Attach(index) => {
                is_up[port(*index).index()] = true;
                model.port_up(port(*index));
                rig.attach(port(*index));
            }
            Step::Send { port: index, .. } if !is_up[port(*index).index()] => {}
            Step::Send { port: index, frames } => {
                for frame in frames {
                    let outcome = model.receive(now, port(*index), frame);
                    sent.extend(outcome.sent);
                    outcome.dropped.iter().for_each(|drop| *drops.0.entry(*drop).or_default() += 1);
                    rig.send(port(*index), frame.clone());
                }
            }
        }
        rig.settle(now);
        let mut left: Vec<_> = ports
            .iter()
            .flat_map(|port| rig.take_all(*port).into_iter().map(|packet| (*port, packet.bytes)))
            .collect();
        // Classes overtake each other and workers take turns, so only what leaves is compared, not the order.
        left.sort();
        sent.sort();
        assert_eq!(left, sent, "frames that left in step {at}, {step:?}");
        assert_eq!(Drops::of(&rig), drops, "drop counters after step {at}, {step:?}");
    }
    assert_eq!(rig.drain(now), 0, "buffers that did not come home");
}

#[derive(Debug, Default, PartialEq)]
struct Drops(std::collections::BTreeMap<(PortId, Direction, DropReason), u64>);

impl Drops {
    fn of(rig: &Rig) -> Self {
        let keys = ids(rig.state()).flat_map(|port| {
            let reasons = DropReason::ALL.iter();
            reasons.flat_map(move |reason| Direction::ALL.map(|direction| (port, direction, *reason)))
        });
        let counted = keys
            .map(|(port, direction, reason)| ((port, direction, reason), rig.drops(port, direction, reason)));
        Self(counted.filter(|(_, frames)| *frames > 0).collect())
    }
}

/// Three classes, so that frames of a batch overtake each other.
fn classes() -> ClassTable {
    let class = |service| Class { service };
    let mut table = ClassTable {
        classes: Box::new([
            class(Service::Strict),
            class(Service::Weighted { weight: NonZeroU8::new(3).unwrap() }),
            class(Service::Weighted { weight: NonZeroU8::MIN }),
        ]),
        default: ClassId(2),
        ..ClassTable::default()
    };
    table.by_dscp[usize::from(frames::EF)] = Some(ClassId(0));
    table.by_pcp[3] = Some(ClassId(1));
    table
}

fn topology(workers: u8) -> impl Strategy<Value = Topology> {
    let capacity = prop_oneof![3 => Just(1000_usize), 1 => 0_usize..6];
    (proptest::collection::vec(port(), 2..=6), capacity).prop_map(move |(mut ports, capacity)| {
        for (index, port) in (0_u8..).zip(&mut ports) {
            port.worker = WorkerId(index % workers);
            if let SourcePolicy::Pinned(macs) = &mut port.sources {
                macs.iter_mut().zip(stations_of(index)).for_each(|(mac, own)| *mac = own);
            }
        }
        Topology { ports, capacity }
    })
}

fn port() -> impl Strategy<Value = PortState> {
    let sources = prop_oneof![
        (1_usize..=2).prop_map(|count| SourcePolicy::Pinned(vec![MacAddr::default(); count].into())),
        Just(SourcePolicy::FirstSeen),
        (0_usize..5, select(vec![BeyondLimit::Drop, BeyondLimit::Forward]))
            .prop_map(|(limit, beyond)| SourcePolicy::Learn { limit, beyond }),
        Just(open_port().sources),
    ];
    let flags = (any::<bool>(), any::<bool>());
    (vlan_mode(), sources, 0_u16..2, flags, security()).prop_map(
        |(vlan, sources, group, (isolated, takes_unknown_unicast), security)| PortState {
            security,
            group: GroupId(group),
            vlan,
            sources,
            isolated,
            takes_unknown_unicast,
            ..open_port()
        },
    )
}

/// Mostly strict; storm limits have tests of their own, in virtual time.
fn security() -> impl Strategy<Value = Security> {
    let decision = || prop_oneof![3 => Just(Decision::Reject), 1 => Just(Decision::Accept)];
    let allowed = prop_oneof![3 => Just(None), 1 => (1_u8..=6).prop_map(Some)];
    let link_local =
        select(vec![LinkLocal::default(), LinkLocal::STP.with(LinkLocal::LLDP), LinkLocal::LACP]);
    let admin = prop_oneof![12 => Just(Admin::Up), 1 => Just(Admin::Down)];
    let flags = (prop_oneof![3 => Just(false), 1 => Just(true)], admin);
    (decision(), decision(), decision(), allowed, link_local, flags).prop_map(
        |(promiscuous, mac_changes, forged_transmits, allowed, link_local, (bpdu_guard, admin))| Security {
            promiscuous,
            mac_changes,
            forged_transmits,
            allowed: allowed.map(|number| station(number).to_string().parse().unwrap()).into_iter().collect(),
            link_local,
            bpdu_guard,
            storm: StormLimits::default(),
            admin,
        },
    )
}

fn vlan_mode() -> impl Strategy<Value = VlanMode> {
    let vlan = || (1_u16..=3).prop_map(|id| VlanId::try_from(id).unwrap());
    let trunk = (proptest::collection::vec(vlan(), 1..=3), proptest::option::of(vlan()));
    prop_oneof![
        Just(VlanMode::Access(VlanId::UNTAGGED)),
        vlan().prop_map(VlanMode::Access),
        trunk.prop_map(|(allowed, native)| VlanMode::Trunk {
            allowed: allowed.into_iter().chain(native).collect(),
            native
        }),
    ]
}

fn step(wait: impl Strategy<Value = Nanos>) -> impl Strategy<Value = Step> {
    let frames = || proptest::collection::vec(frame(), 1..6);
    prop_oneof![
        12 => (0_usize..6, frames()).prop_map(|(port, frames)| Step::Send { port, frames }),
        2 => wait.prop_map(Step::Wait),
        1 => (0_usize..6).prop_map(Step::Detach),
        1 => (0_usize..6).prop_map(Step::Attach),
    ]
}

fn any_wait() -> impl Strategy<Value = Nanos> {
    prop_oneof![0..=AGE.get() / 2, Just(AGE.get() - 1), Just(AGE.get()), AGE.get()..AGE.get() * 2]
        .prop_map(Nanos::new)
}

/// The other worker's copy of a table entry may age up to a quarter of the age earlier, which the model does not have: so
/// either less than that passes in a whole run, or all entries age.
fn wait_for_two_workers() -> impl Strategy<Value = Nanos> {
    prop_oneof![0..AGE.get() / 400, AGE.get() * 2..AGE.get() * 3].prop_map(Nanos::new)
}

fn stations_of(port: u8) -> impl Iterator<Item = MacAddr> {
    (0..STATIONS_PER_PORT).map(move |number| station(port * STATIONS_PER_PORT + number + 1))
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let anyone = || (1_u8..=6 * STATIONS_PER_PORT).prop_map(station);
    let from = prop_oneof![
        20 => anyone(),
        1 => Just(MacAddr::default()),
        1 => Just(MacAddr([0x01, 0, 0x5e, 0, 0, 1])),
    ];
    let to = prop_oneof![
        16 => anyone(),
        2 => Just(MacAddr::BROADCAST),
        1 => Just(MacAddr([0x01, 0, 0x5e, 0, 0, 1])),
        1 => (0_u8..=0x10).prop_map(|last| MacAddr([0x01, 0x80, 0xc2, 0, 0, last])),
        1 => Just(MacAddr::default()),
    ];
    let length = prop_oneof![
        8 => 60_usize..200,
        1 => 42_usize..60,
        1 => 1510_usize..1525,
        1 => Just(frames::JUMBO),
    ];
    let dscp = prop_oneof![Just(0), Just(frames::EF)];
    let form = prop_oneof![
        6 => Just(Form::Untagged),
        6 => (0_u8..8, 0_u16..5).prop_map(|(pcp, vlan)| Form::Tagged { pcp, vlan }),
        1 => (0_u8..8).prop_map(|pcp| Form::Tagged { pcp, vlan: 0x1000 }),
        1 => Just(Form::Tagged { pcp: 0, vlan: 4095 }),
        1 => (0_u16..5, 0_u16..5).prop_map(|(outer, inner)| Form::DoubleTagged { outer, inner }),
        1 => (0_u16..5).prop_map(|service| Form::ServiceTagged { service }),
        1 => (0_usize..18).prop_map(Form::CutTo),
    ];
    (from, to, length, dscp, form, any::<u32>()).prop_map(|(from, to, length, dscp, form, mark)| {
        let mut bytes = frames::ipv4_udp(to, from, dscp, length);
        // Frames of a run differ, so that none can stand for another.
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(&mark.to_be_bytes());
        match form {
            Form::Untagged => bytes,
            Form::Tagged { pcp, vlan } => frames::tagged(pcp, vlan, &bytes),
            Form::DoubleTagged { outer, inner } => {
                frames::tagged(0, outer, &frames::tagged(0, inner, &bytes))
            }
            Form::ServiceTagged { service } => frames::qinq(service, 1, &bytes),
            Form::CutTo(length) => frames::tagged(0, 1, &bytes)[..length].to_vec(),
        }
    })
}

#[derive(Clone, Debug)]
enum Form {
    Untagged,
    /// `vlan` may carry the drop eligible bit above its twelve.
    Tagged {
        pcp: u8,
        vlan: u16,
    },
    DoubleTagged {
        outer: u16,
        inner: u16,
    },
    ServiceTagged {
        service: u16,
    },
    /// Tagged, and ends there.
    CutTo(usize),
}
