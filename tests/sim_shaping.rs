//! How exactly the switch holds ports to their bandwidth, as tables of numbers that virtual time makes reproducible.

use std::fmt::Write;

use insta::assert_snapshot;
use lockgate_dataplane::buffer::PoolSize;
use lockgate_dataplane::id::{Direction, PortId};
use lockgate_dataplane::state::{ClassTable, FdbSettings, ForwardingState, Shaping};
use lockgate_dataplane::time::{Instant, Nanos};
use lockgate_dataplane::units::{BitsPerSecond, Bytes};
use lockgate_tests::frames::FULL;
use lockgate_tests::rig::Rig;
use lockgate_tests::sim::{Flow, Pace, Sim, host_ports};

const SENDER: PortId = PortId(0);
const RECEIVER: PortId = PortId(1);
const POOL: PoolSize = PoolSize { small: 8192, large: 256 };
const FDB: FdbSettings = FdbSettings { capacity: 1024, age: Nanos::from_secs(300) };
const GIGABIT: u64 = 1_000_000_000;

/// Caps and the time that is measured after the burst: some ten thousand frames, or five thousand at the slow end.
const CAPS: [(u64, Nanos); 7] = [
    (64_000, Nanos::from_secs(1000)),
    (10_000_000, Nanos::from_secs(10)),
    (50_000_000, Nanos::from_secs(2)),
    (200_000_000, Nanos::from_secs(1)),
    (GIGABIT, Nanos::from_millis(200)),
    (10 * GIGABIT, Nanos::from_millis(20)),
    (100 * GIGABIT, Nanos::from_millis(5)),
];

#[test]
fn udp_at_twice_the_cap() {
    let mut table = String::from("direction                 cap          error     max delay     dropped\n");
    for direction in Direction::ALL {
        for (cap, measured) in CAPS {
            let run = flood(default_shaping(cap), direction, 1, Nanos::ZERO, measured);
            writeln!(table, "{:<25} {:<12} {}", direction.to_string(), rate(cap).to_string(), run.row())
                .unwrap();
        }
    }
    assert_snapshot!(table);
}

#[test]
fn udp_super_frames_at_twice_the_cap() {
    let mut table = String::from("segments  cap          error     max delay     dropped\n");
    for segments in [2, 10, 43] {
        for (cap, measured) in [(10_000_000, 10_000), (GIGABIT, 200), (100 * GIGABIT, 20)] {
            let measured = Nanos::from_millis(measured);
            let run = flood(default_shaping(cap), Direction::Egress, segments, Nanos::ZERO, measured);
            writeln!(table, "{segments:<9} {:<12} {}", rate(cap).to_string(), run.row()).unwrap();
        }
    }
    assert_snapshot!(table);
}

/// With the 24 bytes of checksum, preamble and gap charged, the cap is what an Ethernet of that rate would carry.
#[test]
fn udp_with_overhead() {
    let mut table = String::from("overhead  segments  cap          of the cap\n");
    for (overhead, segments) in [(0, 1), (24, 1), (24, 43)] {
        let cap = 100_000_000;
        let shaping = Shaping { overhead: Bytes::new(overhead), ..default_shaping(cap) };
        let run = flood(shaping, Direction::Egress, segments, Nanos::ZERO, Nanos::from_secs(2));
        writeln!(table, "{overhead:<9} {segments:<9} {:<12} {}", rate(cap).to_string(), run.share()).unwrap();
    }
    writeln!(table, "expected with 24: {}", permille(FULL as u64 * 100_000 / (FULL as u64 + 24))).unwrap();
    assert_snapshot!(table);
}

/// The switch sees everything up to a millisecond late, arrivals and deadlines: what was earned meanwhile is not lost.
#[test]
fn udp_with_late_wake_ups() {
    let mut table = String::from("peak         cap          error     max delay     dropped\n");
    for (cap, measured) in &CAPS[..6] {
        for peak in [None, Some(cap * 11 / 10), Some(cap * 2)] {
            let shaping = Shaping { peak: peak.map(rate), ..default_shaping(*cap) };
            let run = flood(shaping, Direction::Egress, 1, Nanos::from_millis(1), *measured);
            let peak = peak.map_or("none".into(), |peak| rate(peak).to_string());
            writeln!(table, "{peak:<12} {:<12} {}", rate(*cap).to_string(), run.row()).unwrap();
        }
    }
    assert_snapshot!(table);
}

/// The cap is reached by a transfer that backs off on loss, with the default burst and delay.
#[test]
fn tcp() {
    let mut table = String::from(
        "direction                 cap          segments  round trip  of the cap  max queue delay  lost\n",
    );
    let mut transfer = |cap: u64, direction: Direction, segments, round_trip, seconds| {
        let row = transfer(cap, direction, segments, Nanos::from_millis(round_trip), seconds);
        writeln!(table, "{:<25} {:<12} {row}", direction.to_string(), rate(cap).to_string()).unwrap();
    };
    for (cap, seconds) in
        [(1_000_000, 100), (10_000_000, 40), (50_000_000, 10), (200_000_000, 4), (GIGABIT, 4)]
    {
        transfer(cap, Direction::Ingress, 1, 1, seconds);
        for (segments, round_trip) in [(1, 1), (1, 20), (10, 1)] {
            transfer(cap, Direction::Egress, segments, round_trip, seconds);
        }
    }
    assert_snapshot!(table);
}

/// A full burst leaves at the peak for `8B / (p − r)`, then the average holds.
#[test]
fn average_peak_and_burst() {
    let mut table = String::from(
        "average      peak         burst      expected T   bytes in T         expected     then\n",
    );
    for (average, peak, burst) in [
        (1_000_000, 2_000_000, Bytes::from_kib(64)),
        (10_000_000, 20_000_000, Bytes::from_kib(1024)),
        (10_000_000, 100_000_000, Bytes::from_kib(1024)),
        (100_000_000, 200_000_000, Bytes::from_kib(1024)),
        (GIGABIT, 4 * GIGABIT, Bytes::from_kib(4096)),
    ] {
        let shaping = Shaping { peak: Some(rate(peak)), burst, ..default_shaping(average) };
        let mut sim = sim(Some(shaping), Direction::Egress, Nanos::ZERO);
        let id = sim.start(udp(2 * peak, 1));
        let duration = Nanos::new(burst.get() * 8_000_000_000 / (peak - average));
        let end = Instant::ZERO + duration;
        let after = end + Nanos::new(duration.get() * 10);
        sim.run_until(after);
        let record = sim.record(id);
        let error = error(record.bits_per_second(end, after), average);
        writeln!(
            table,
            "{:<12} {:<12} {:<10} {:>7} µs   {:<18} {:<12} {error} %",
            rate(average).to_string(),
            rate(peak).to_string(),
            burst.to_string(),
            duration.get() / 1000,
            record.bytes_between(Instant::ZERO, end),
            rate(peak).bytes_in(duration).get(),
        )
        .unwrap();
        assert_eq!(sim.stop(), 0);
    }
    assert_snapshot!(table);
}

/// What a run showed after the burst.
struct Run {
    cap: u64,
    bits_per_second: u64,
    delay: Nanos,
    dropped: u64,
    sent: u64,
}

impl Run {
    fn row(&self) -> String {
        let error = format!("{} %", error(self.bits_per_second, self.cap));
        format!("{error:<9} {:<13} {}", micros(self.delay), permille(self.dropped * 100_000 / self.sent))
    }

    fn share(&self) -> String {
        permille(self.bits_per_second * 1000 / (self.cap / 100))
    }
}

/// Offers twice the cap until the burst is spent, and on for `measured`.
fn flood(shaping: Shaping, direction: Direction, segments: usize, late: Nanos, measured: Nanos) -> Run {
    let cap = shaping.average.get();
    let mut sim = sim(Some(shaping), direction, Nanos::ZERO);
    sim.set_late(late);
    let id = sim.start(udp(2 * cap, segments));
    // Twice the cap takes away one cap of credit; a peak below that takes longer.
    let gain = shaping.peak.map_or(cap, |peak| (peak.get() - cap).min(cap));
    let from = Instant::ZERO + Nanos::new(shaping.burst.get() * 8_800_000_000 / gain);
    let to = from + measured;
    sim.run_until(to);
    let (record, shaped) = (sim.record(id), shaped_port(direction));
    let run = Run {
        cap,
        bits_per_second: record.bits_per_second(from, to),
        delay: record.longest_delay(from, to),
        dropped: sim.rig().all_drops(shaped, direction),
        sent: record.sent,
    };
    assert_eq!(sim.stop(), 0);
    run
}

fn transfer(cap: u64, direction: Direction, segments: usize, round_trip: Nanos, seconds: u64) -> String {
    // To the switch, to the other host, and back.
    let link_delay = Nanos::new(round_trip.get() / 4);
    let mut sim = sim(Some(default_shaping(cap)), direction, link_delay);
    let pace = Pace::Tcp(rate(10 * GIGABIT));
    let id = sim.start(Flow { pace, ..udp(cap, segments) });
    let end = Instant::ZERO + Nanos::from_secs(seconds);
    let from = Instant::ZERO + Nanos::from_secs(seconds / 2);
    sim.run_until(end);
    let record = sim.record(id);
    let share = permille(record.bits_per_second(from, end) * 1000 / (cap / 100));
    let queue_delay = Nanos::new(record.longest_delay(from, end).get() - round_trip.get() / 2);
    let lost = permille(sim.rig().all_drops(shaped_port(direction), direction) * 100_000 / record.sent);
    assert_eq!(sim.stop(), 0);
    format!("{segments:<9} {:<11} {share:<11} {:<16} {lost}", round_trip.to_string(), micros(queue_delay))
}

fn sim(shaping: Option<Shaping>, direction: Direction, link_delay: Nanos) -> Sim {
    let mut ports = host_ports(2);
    match direction {
        Direction::Ingress => ports[SENDER.index()].ingress = shaping,
        Direction::Egress => ports[RECEIVER.index()].egress = shaping,
    }
    Sim::new(Rig::new(ForwardingState::new(ports, ClassTable::default(), FDB), POOL, 1500), link_delay)
}

/// As the configuration fills it in: 10 ms of burst but at least 64 KiB, 20 ms of delay.
fn default_shaping(average: u64) -> Shaping {
    let average = rate(average);
    let burst = average.bytes_in(Nanos::from_millis(10)).max(Bytes::from_kib(64));
    Shaping { average, peak: None, burst, max_delay: Nanos::from_millis(20), overhead: Bytes::new(0) }
}

fn udp(bits: u64, segments: usize) -> Flow {
    Flow { from: SENDER, to: RECEIVER, dscp: 0, length: FULL, segments, pace: Pace::Constant(rate(bits)) }
}

fn shaped_port(direction: Direction) -> PortId {
    match direction {
        Direction::Ingress => SENDER,
        Direction::Egress => RECEIVER,
    }
}

fn rate(bits: u64) -> BitsPerSecond {
    BitsPerSecond::new(bits).expect("a rate the switch takes")
}

/// Deviation in percent with two decimals.
fn error(measured: u64, wanted: u64) -> String {
    let hundredths = (i128::from(measured) - i128::from(wanted)) * 10_000 / i128::from(wanted);
    let sign = if hundredths < 0 { "-" } else { "+" };
    format!("{sign}{}.{:02}", hundredths.abs() / 100, hundredths.abs() % 100)
}

/// A share in hundred-thousandths as percent with one decimal.
fn permille(share: u64) -> String {
    format!("{}.{} %", share / 1000, share % 1000 / 100)
}

fn micros(span: Nanos) -> String {
    format!("{} µs", span.get() / 1000)
}
