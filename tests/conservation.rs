//! No frame and no buffer is ever lost: every frame that came in went out, was dropped for a reason, or waits. [`Rig`]
//! checks each worker's own balance after every round; this checks the sums, the per-port counters and the pools.

use lockgate_dataplane::buffer::PoolSize;
use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::id::{Direction, PortId, WorkerId};
use lockgate_dataplane::state::{ClassTable, FdbSettings, ForwardingState, PortState, Shaping};
use lockgate_dataplane::time::{Instant, Nanos};
use lockgate_dataplane::units::{BitsPerSecond, Bytes};
use lockgate_dataplane::verdict::DropReason;
use lockgate_tests::frames::{self, station};
use lockgate_tests::rig::{Rig, ids, open_port};
use proptest::prelude::*;

const MTU: u32 = 9000;
const FDB: FdbSettings = FdbSettings { capacity: 1000, age: Nanos::from_secs(300) };

#[derive(Clone, Debug)]
enum Step {
    Send {
        port: usize,
        frames: Vec<Vec<u8>>,
    },
    /// One worker takes a turn while the other sleeps.
    Turn(usize),
    Wait(Nanos),
    /// The device of the port takes this many frames from now on.
    Room {
        port: usize,
        frames: usize,
    },
    Detach(usize),
    Attach(usize),
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_frame_is_accounted_for(
        ports in proptest::collection::vec(port(), 2..=5),
        workers in 1_u8..=2,
        small in 1_usize..60,
        large in 0_usize..5,
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let ports = (0_u8..).zip(ports).map(|(at, port)| PortState { worker: WorkerId(at % workers), ..port });
        let state = ForwardingState::new(ports.collect(), ClassTable::default(), FDB);
        run(Rig::new(state, PoolSize { small, large }, MTU), &steps);
    }
}

#[test]
fn a_ring_that_overflows_loses_nothing_silently() {
    let ports = [0, 1].map(|worker| PortState { worker: WorkerId(worker), ..open_port() });
    let state = ForwardingState::new(ports.into(), ClassTable::default(), FDB);
    let mut rig = Rig::new(state, PoolSize { small: 8192, large: 0 }, MTU);
    let (fast, asleep) = (PortId(0), PortId(1));
    let frame = frames::ipv4_udp(station(2), station(1), 0, frames::SHORTEST);
    (0..5000).for_each(|_| rig.send(fast, frame.clone()));
    while rig.round_of(0, Instant::ZERO) {}

    let refused = rig.drops(asleep, Direction::Egress, DropReason::WorkerRingFull);
    assert!((1..5000).contains(&refused), "{refused} frames refused");
    rig.settle(Instant::ZERO);
    assert_eq!(rig.take_all(asleep).len() as u64, 5000 - refused);
    rig.stop_and_add_up(Instant::ZERO, 5000 - refused);
    rig.add_up_ports();
}

#[test]
fn a_stuck_port_leaves_buffers_for_the_others() {
    let state = ForwardingState::new(vec![open_port(); 3], ClassTable::default(), FDB);
    let mut rig = Rig::new(state, PoolSize { small: 300, large: 0 }, MTU);
    let (stuck, healthy, sender) = (PortId(0), PortId(1), PortId(2));
    for (port, number) in [(stuck, 1), (healthy, 2), (sender, 3)] {
        rig.send(port, frames::gratuitous_arp(station(number)));
    }
    rig.settle(Instant::ZERO);
    ids(rig.state()).for_each(|port| drop(rig.take_all(port)));

    rig.peer(stuck).set_room(0);
    let frame_to = |number| frames::ipv4_udp(station(number), station(3), 0, frames::SHORTEST);
    for _ in 0..1000 {
        rig.send(sender, frame_to(1));
        rig.send(sender, frame_to(2));
        rig.settle(Instant::ZERO);
    }
    assert_eq!(rig.take_all(healthy).len(), 1000, "no frame of the healthy port is lost");
    assert!(
        rig.drops(stuck, Direction::Egress, DropReason::BufferQuota) > 0,
        "the stuck one's are, and counted"
    );
    assert_eq!(rig.drain(Instant::ZERO), 0);
}

fn run(mut rig: Rig, steps: &[Step]) {
    let ports: Vec<PortId> = ids(rig.state()).collect();
    let port = |index: usize| ports[index % ports.len()];
    let workers = usize::from(rig.state().ports.iter().map(|port| port.worker.0 + 1).max().unwrap_or(1));
    let mut is_up = vec![true; ports.len()];
    let mut now = Instant::ZERO;
    let mut left = 0;
    for step in steps {
        match step {
            Step::Send { port: index, frames } => {
                frames.iter().for_each(|frame| rig.send(port(*index), frame.clone()));
            }
            Step::Turn(worker) => _ = rig.round_of(worker % workers, now),
            Step::Wait(span) => {
                now += *span;
                rig.round(now);
            }
            Step::Room { port: index, frames } => rig.peer(port(*index)).set_room(*frames),
            Step::Detach(index) => {
                is_up[port(*index).index()] = false;
                rig.detach(port(*index));
            }
            Step::Attach(index) if is_up[port(*index).index()] => {}
            Step::Attach(index) => {
                is_up[port(*index).index()] = true;
                rig.attach(port(*index));
            }
        }
        left += ports.iter().map(|port| rig.take_all(*port).len() as u64).sum::<u64>();
    }
    // What waits for credit or for a full device leaves, some is dropped with the ports.
    for _ in 0..50 {
        now += Nanos::from_millis(1);
        rig.round(now);
        left += ports.iter().map(|port| rig.take_all(*port).len() as u64).sum::<u64>();
    }
    rig.stop_and_add_up(now, left);
    rig.add_up_ports();
}

fn port() -> impl Strategy<Value = PortState> {
    let shaping = || proptest::option::of(shaping());
    (shaping(), shaping()).prop_map(|(ingress, egress)| PortState { ingress, egress, ..open_port() })
}

fn shaping() -> impl Strategy<Value = Shaping> {
    let megabits = 1_u64..1000;
    (megabits, proptest::option::of(1_u64..4), 1000_u64..20_000, 0_u64..20).prop_map(
        |(megabits, peak, burst, max_delay)| {
            let rate = |factor| BitsPerSecond::new(megabits * 1_000_000 * factor).unwrap();
            Shaping {
                average: rate(1),
                peak: peak.map(rate),
                burst: Bytes::new(burst),
                max_delay: Nanos::from_millis(max_delay),
                overhead: Bytes::new(0),
            }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_usize..5, proptest::collection::vec(frame(), 1..20))
            .prop_map(|(port, frames)| Step::Send { port, frames }),
        6 => (0_usize..2).prop_map(Step::Turn),
        3 => (0..2_000_000_u64).prop_map(|nanos| Step::Wait(Nanos::new(nanos))),
        2 => (0_usize..5, prop_oneof![0_usize..10, Just(usize::MAX)])
            .prop_map(|(port, frames)| Step::Room { port, frames }),
        1 => (0_usize..5).prop_map(Step::Detach),
        1 => (0_usize..5).prop_map(Step::Attach),
    ]
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let to = prop_oneof![4 => (1_u8..8).prop_map(station), 1 => Just(MacAddr::BROADCAST)];
    let from = prop_oneof![20 => (1_u8..8).prop_map(station), 1 => Just(MacAddr::default())];
    // The last one is longer than the devices take.
    let length = proptest::sample::select(vec![60, 590, 1514, 4000, 9014, 9100]);
    prop_oneof![
        20 => (to, from, length).prop_map(|(to, from, length)| frames::ipv4_udp(to, from, 0, length)),
        1 => Just(frames::runt()),
    ]
}
