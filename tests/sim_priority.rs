//! What classes do for a port that is asked to carry more than it may: delay, loss and shares, in both directions.

use std::fmt::Write;
use std::num::NonZeroU8;

use insta::assert_snapshot;
use lockgate_dataplane::buffer::PoolSize;
use lockgate_dataplane::id::{ClassId, Direction, PortId, WorkerId};
use lockgate_dataplane::state::{Class, ClassTable, FdbSettings, ForwardingState, Service, Shaping};
use lockgate_dataplane::time::{Instant, Nanos};
use lockgate_dataplane::units::{BitsPerSecond, Bytes};
use lockgate_tests::frames::{EF, FULL};
use lockgate_tests::rig::Rig;
use lockgate_tests::sim::{Flow, FlowId, Pace, Sim, host_ports};

const GOLD: u8 = 10;
const SILVER: u8 = 18;
const BRONZE: u8 = 26;
/// Frames of a 64 kbit/s telephone call every 20 ms, and many of them.
const VOICE_FRAME: usize = 214;

#[test]
fn strict_voice_beside_saturated_best_effort() {
    let mut table = String::from(
        "direction                 cap          classes  best effort        voice: max delay  lost     best effort got\n",
    );
    for direction in Direction::ALL {
        for (cap, segments) in [(10, 1), (100, 1), (1000, 1), (10, 10)] {
            for with_classes in [false, true] {
                let classes = if with_classes { voice_and_weighted() } else { ClassTable::default() };
                let mut scene = Scene::new(mbit(cap), direction, classes);
                let voice = scene.start(0, EF, VOICE_FRAME, 1, Pace::Constant(mbit(1)));
                let bulk = scene.start(1, 0, FULL, segments, Pace::Constant(mbit(2 * cap)));
                scene.run();
                writeln!(
                    table,
                    "{:<25} {:<12} {:<8} {:<18} {:<17} {:<8} {}",
                    direction.to_string(),
                    mbit(cap).to_string(),
                    if with_classes { "yes" } else { "no" },
                    format!("{segments} at once"),
                    scene.delay(voice),
                    scene.lost(voice),
                    scene.rate(bulk),
                )
                .unwrap();
                scene.stop();
            }
        }
    }
    assert_snapshot!(table);
}

/// Shares are of bytes, whatever the size of the frames, and what one leaves the others take in proportion.
#[test]
fn weights_4_2_1() {
    let mut table =
        String::from("direction                 frames               gold         silver       bronze\n");
    let offered = Pace::Constant(mbit(100));
    for direction in Direction::ALL {
        for lengths in [[FULL, FULL, FULL], [FULL, 590, 100], [100, 590, FULL]] {
            let mut scene = Scene::new(mbit(70), direction, voice_and_weighted());
            let flows: Vec<_> = (0..)
                .zip([GOLD, SILVER, BRONZE])
                .zip(lengths)
                .map(|((host, dscp), length)| scene.start(host, dscp, length, 1, offered))
                .collect();
            scene.run();
            let rates: Vec<_> = flows.iter().map(|flow| scene.rate(*flow)).collect();
            let lengths = format!("{lengths:?}");
            writeln!(
                table,
                "{:<25} {lengths:<20} {:<12} {:<12} {}",
                direction.to_string(),
                rates[0],
                rates[1],
                rates[2]
            )
            .unwrap();
            scene.stop();
        }
        for absent in [GOLD, SILVER, BRONZE] {
            let mut scene = Scene::new(mbit(70), direction, voice_and_weighted());
            let flows: Vec<_> = (0..)
                .zip([GOLD, SILVER, BRONZE])
                .map(|(host, dscp)| (dscp != absent).then(|| scene.start(host, dscp, FULL, 1, offered)))
                .collect();
            scene.run();
            let rates: Vec<_> =
                flows.iter().map(|flow| flow.map_or("absent".into(), |flow| scene.rate(flow))).collect();
            writeln!(
                table,
                "{:<25} {:<20} {:<12} {:<12} {}",
                direction.to_string(),
                "",
                rates[0],
                rates[1],
                rates[2]
            )
            .unwrap();
            scene.stop();
        }
    }
    assert_snapshot!(table);
}

/// A strict class takes all it asks for: one that must not starve the others needs a rate of its own.
#[test]
fn strict_before_weights_before_nothing() {
    let mut table = String::from("voice offers  voice got    gold got     bronze got\n");
    for offered in [10, 50, 70, 100] {
        let mut scene = Scene::new(mbit(70), Direction::Egress, voice_and_weighted());
        let voice = scene.start(0, EF, VOICE_FRAME, 1, Pace::Constant(mbit(offered)));
        let gold = scene.start(1, GOLD, FULL, 1, Pace::Constant(mbit(100)));
        let bronze = scene.start(2, BRONZE, FULL, 1, Pace::Constant(mbit(100)));
        scene.run();
        let [voice, gold, bronze] = [voice, gold, bronze].map(|flow| scene.rate(flow));
        writeln!(table, "{:<13} {voice:<12} {gold:<12} {bronze}", mbit(offered).to_string()).unwrap();
        scene.stop();
    }
    assert_snapshot!(table);
}

/// Two transfers in classes of weight 4 and 1 and a bursty one beside them: what a class does not use is not lost.
#[test]
fn tcp_in_weighted_classes() {
    let mut table = String::from("cap          gold got     bronze got   bursty silver: max delay  lost\n");
    for cap in [20, 100, 500] {
        let mut scene = Scene::new(mbit(cap), Direction::Egress, voice_and_weighted());
        let gold = scene.start(0, GOLD, FULL, 1, Pace::Tcp(mbit(10_000)));
        let bronze = scene.start(1, BRONZE, FULL, 1, Pace::Tcp(mbit(10_000)));
        let (on, off) = (Nanos::from_millis(5), Nanos::from_millis(45));
        let silver = scene.start(2, SILVER, FULL, 1, Pace::Bursty { rate: mbit(cap / 4), on, off });
        scene.run();
        let [gold, bronze] = [gold, bronze].map(|flow| scene.rate(flow));
        let (delay, lost) = (scene.delay(silver), scene.lost(silver));
        writeln!(table, "{:<12} {gold:<12} {bronze:<12} {delay:<25} {lost}", mbit(cap).to_string()).unwrap();
        scene.stop();
    }
    assert_snapshot!(table);
}

/// One shaped port and hosts that send through it: to it on egress, by it on ingress. Every other port is of another
/// worker.
struct Scene {
    sim: Sim,
    direction: Direction,
}

impl Scene {
    const SHAPED: PortId = PortId(0);
    const WARM_UP: Nanos = Nanos::from_millis(500);
    const END: Nanos = Nanos::from_secs(2);

    fn new(cap: BitsPerSecond, direction: Direction, classes: ClassTable) -> Self {
        let mut ports = host_ports(4);
        for (worker, port) in (0..).zip(&mut ports) {
            port.worker = WorkerId(worker % 2);
        }
        let shaping = Shaping {
            average: cap,
            peak: None,
            burst: cap.bytes_in(Nanos::from_millis(10)).max(Bytes::from_kib(64)),
            max_delay: Nanos::from_millis(20),
            overhead: Bytes::new(0),
        };
        match direction {
            Direction::Ingress => ports[Self::SHAPED.index()].ingress = Some(shaping),
            Direction::Egress => ports[Self::SHAPED.index()].egress = Some(shaping),
        }
        let fdb = FdbSettings { capacity: 64, age: Nanos::from_secs(300) };
        let state = ForwardingState::new(ports, classes, fdb);
        let rig = Rig::new(state, PoolSize { small: 8192, large: 256 }, 1500);
        Self { sim: Sim::new(rig, Nanos::ZERO), direction }
    }

    fn start(&mut self, host: u16, dscp: u8, length: usize, segments: usize, pace: Pace) -> FlowId {
        let other = PortId(host + 1);
        let (from, to) = match self.direction {
            Direction::Ingress => (Self::SHAPED, other),
            Direction::Egress => (other, Self::SHAPED),
        };
        self.sim.start(Flow { from, to, dscp, length, segments, pace })
    }

    fn run(&mut self) {
        self.sim.run_until(Instant::ZERO + Self::END);
    }

    fn delay(&self, flow: FlowId) -> String {
        let (from, to) = Self::measured();
        format!("{} µs", self.sim.record(flow).longest_delay(from, to).get() / 1000)
    }

    fn rate(&self, flow: FlowId) -> String {
        let (from, to) = Self::measured();
        let tenths = (self.sim.record(flow).bits_per_second(from, to) + 50_000) / 100_000;
        format!("{}.{} Mbit/s", tenths / 10, tenths % 10)
    }

    fn lost(&self, flow: FlowId) -> String {
        let record = self.sim.record(flow);
        let share = record.missing() * 1000 / record.sent;
        format!("{}.{} %", share / 10, share % 10)
    }

    fn measured() -> (Instant, Instant) {
        (Instant::ZERO + Self::WARM_UP, Instant::ZERO + Self::END)
    }

    fn stop(self) {
        assert_eq!(self.sim.stop(), 0, "buffers that did not come home");
    }
}

/// Strict voice, then gold, silver and bronze 4 : 2 : 1; best effort is bronze.
fn voice_and_weighted() -> ClassTable {
    let weighted = |weight| Class { service: Service::Weighted { weight: NonZeroU8::new(weight).unwrap() } };
    let mut table = ClassTable {
        classes: Box::new([Class { service: Service::Strict }, weighted(4), weighted(2), weighted(1)]),
        default: ClassId(3),
        ..ClassTable::default()
    };
    for (class, dscp) in (0..).zip([EF, GOLD, SILVER, BRONZE]) {
        table.by_dscp[usize::from(dscp)] = Some(ClassId(class));
    }
    table
}

fn mbit(rate: u64) -> BitsPerSecond {
    BitsPerSecond::new(rate * 1_000_000).expect("a rate the switch takes")
}
