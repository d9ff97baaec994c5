//! The whole pipeline, two workers, every way a frame can take: after warm-up nothing of it asks the heap for memory.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use lockgate_benches::allocations::{self, CountingAllocator};
use lockgate_benches::frames::{tagged, tcp_super_frame, udp};
use lockgate_benches::replay::Template;
use lockgate_benches::rig::{ReplayRig, shaping, station, workload_port};
use lockgate_dataplane::buffer::PoolSize;
use lockgate_dataplane::counters::{Cast, FdbCounters, FlowCounters, WorkerCounters};
use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::frame::vlan::VlanId;
use lockgate_dataplane::id::{Direction, PortId, WorkerId};
use lockgate_dataplane::state::{
    BeyondLimit, ClassTable, FdbSettings, ForwardingState, PortState, SourcePolicy, VlanMode,
};
use lockgate_dataplane::time::Nanos;
use lockgate_dataplane::verdict::DropReason;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const PLAIN: PortId = PortId(0);
const PEER: PortId = PortId(1);
const SLOW: PortId = PortId(2);
const TRUNK: PortId = PortId(3);
const LEARNING: PortId = PortId(4);
const FIRST_SEEN: PortId = PortId(5);
const SUPER: PortId = PortId(6);
const GONE: PortId = PortId(7);

const FDB: FdbSettings = FdbSettings { capacity: 400, age: Nanos::from_millis(300) };
const WARM_UP_ROUNDS: usize = 300;
const ROUNDS: usize = 3000;
const ROUND: Nanos = Nanos::from_micros(500);

fn vlan(number: u16) -> VlanId {
    VlanId::try_from(number).expect("a VLAN")
}

fn ports() -> Vec<PortState> {
    let port = |number: u16| PortState { worker: WorkerId((number % 2) as u8), ..workload_port(number) };
    let learn = |limit| SourcePolicy::Learn { limit, beyond: BeyondLimit::Drop };
    vec![
        port(0),
        port(1),
        PortState { ingress: Some(shaping(10_000_000)), egress: Some(shaping(10_000_000)), ..port(2) },
        PortState {
            vlan: VlanMode::Trunk { allowed: [vlan(10), vlan(20)].into_iter().collect(), native: None },
            sources: learn(100),
            ..port(3)
        },
        PortState { takes_unknown_unicast: true, sources: learn(200), ..port(4) },
        PortState { sources: SourcePolicy::FirstSeen, ..port(5) },
        port(6),
        port(7),
    ]
}

/// What each port plays.
fn templates() -> Vec<Vec<Template>> {
    let nobody = MacAddr([0x52, 0x54, 0, 0xff, 0, 1]);
    let control = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0]);
    let to = |from: u16, to: MacAddr, length| Template::plain(udp(to, station(from), 0, length));
    vec![
        vec![
            to(0, station(1), 60),
            to(0, station(2), 1514),
            to(0, MacAddr::BROADCAST, 60),
            to(0, nobody, 60),
            to(0, station(0), 60),
            to(0, station(7), 60),
            to(0, control, 60),
            to(9, station(1), 60),
            to(0, station(3), 1514),
            Template::plain(vec![0; 13]),
        ],
        vec![to(1, station(0), 60), to(1, station(4), 9014), to(1, station(2), 60)],
        vec![to(2, station(0), 1514), to(2, station(1), 1514)],
        vec![
            Template::plain(tagged(udp(station(0), station(3), 0, 60), 10)),
            Template::plain(tagged(udp(MacAddr::BROADCAST, station(3), 0, 60), 20)),
            Template::plain(tagged(udp(station(0), station(3), 0, 60), 30)),
        ],
        vec![to(4, station(1), 60), to(4, MacAddr::BROADCAST, 60)],
        vec![to(5, station(1), 60)],
        vec![
            tcp_super_frame(station(1), station(6), 60_000, 1448),
            tcp_super_frame(station(2), station(6), 20_000, 1448),
        ],
        vec![],
    ]
}

#[test]
fn no_frame_allocates_whichever_way_it_takes() {
    allocations::assert_counts();
    let state = ForwardingState::new(ports(), ClassTable::default(), FDB);
    let pool = PoolSize { small: 2000, large: 200 };
    let mut rig = ReplayRig::new(state, pool, templates(), 8);
    rig.controls(SUPER).per_call.store(1, Relaxed);
    rig.controls(FIRST_SEEN).per_call.store(0, Relaxed);
    rig.detach(GONE);
    (0..WARM_UP_ROUNDS).for_each(|_| rig.round(ROUND));

    // What only happens once happens now: an address is pinned, others are learned until the port's limit, and age.
    rig.controls(FIRST_SEEN).per_call.store(8, Relaxed);
    rig.controls(LEARNING).new_sources.store(1, Relaxed);
    let ((), allocated) = allocations::count(|| {
        for _ in 0..ROUNDS / 2 {
            rig.round(ROUND);
        }
        rig.controls(LEARNING).per_call.store(0, Relaxed);
        for _ in 0..ROUNDS / 2 {
            rig.round(ROUND);
        }
    });
    assert_eq!(allocated, 0, "allocations in {ROUNDS} rounds");

    // It was every way: else the test shows less than it says.
    let drops = |port: PortId, direction, reason| {
        let of = |counters: &Arc<WorkerCounters>| counters.port(port).direction(direction).drops(reason);
        rig.counters().iter().map(of).sum::<u64>()
    };
    for (port, direction, reason) in [
        (PLAIN, Direction::Ingress, DropReason::Malformed),
        (PLAIN, Direction::Ingress, DropReason::ForgedSource),
        (PLAIN, Direction::Ingress, DropReason::LinkLocalControl),
        (PLAIN, Direction::Ingress, DropReason::SamePort),
        (GONE, Direction::Egress, DropReason::PortDown),
        (TRUNK, Direction::Ingress, DropReason::VlanNotAllowed),
        (LEARNING, Direction::Ingress, DropReason::LearnLimit),
        (SLOW, Direction::Ingress, DropReason::ShaperQueueFull),
        (SLOW, Direction::Egress, DropReason::ShaperQueueFull),
    ] {
        assert!(drops(port, direction, reason) > 0, "no {reason:?} at port {}", port.0);
    }
    let passed = |port: PortId| {
        let of = |cast| {
            let frames = |counters: &Arc<WorkerCounters>| {
                counters.port(port).direction(Direction::Ingress).frames(cast)
            };
            rig.counters().iter().map(frames).sum::<u64>()
        };
        Cast::ALL.map(of).iter().sum::<u64>()
    };
    assert!(passed(FIRST_SEEN) > 0, "the first source of a port was pinned, and frames passed");
    let flow = |value: fn(&FlowCounters) -> u64| {
        rig.counters().iter().map(|counters| value(&counters.flow)).sum::<u64>()
    };
    assert!(flow(|flow| flow.copied.total()) > 0 && flow(|flow| flow.handed_over.total()) > 0);
    assert!(flow(|flow| flow.replaced.total()) > 0, "super-frames were cut up");
    assert_eq!(flow(|flow| flow.accounting_error.value().unsigned_abs()), 0);
    let fdb = |value: fn(&FdbCounters) -> u64| {
        rig.counters().iter().map(|counters| value(&counters.fdb)).sum::<u64>()
    };
    assert!(fdb(|fdb| fdb.aged.total()) > 0, "addresses aged");
    for port in [PEER, SLOW, TRUNK, LEARNING] {
        assert!(rig.controls(port).sent.load(Relaxed) > 0, "frames left port {}", port.0);
    }
    assert_eq!(rig.drain(), 0, "buffers that did not come home");
}
