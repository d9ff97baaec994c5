//! Faults of other switches' limiters, tried on ours in virtual time: units, rounding, wrapping, freezing, bursts that are
//! too small or too large, policing that ruins TCP, priorities that starve or do nothing.

use lockgate_control::config;
use lockgate_control::topology::Topology;
use lockgate_dataplane::buffer::PoolSize;
use lockgate_dataplane::id::{ClassId, Direction, PortId};
use lockgate_dataplane::state::{
    Class, ClassTable, FdbSettings, ForwardingState, PortState, Service, Shaping,
};
use lockgate_dataplane::table::shaper::Shaper;
use lockgate_dataplane::time::{Instant, Nanos};
use lockgate_dataplane::units::{BitsPerSecond, Bytes};
use lockgate_tests::frames::{self, EF, FULL, JUMBO, station};
use lockgate_tests::rig::Rig;
use lockgate_tests::sim::{Flow, FlowId, Pace, Sim, host_ports};

const A: PortId = PortId(0);
const B: PortId = PortId(1);
const POOL: PoolSize = PoolSize { small: 8192, large: 256 };
const SECOND: u64 = 1_000_000_000;
const YEAR: u64 = 365 * 86_400 * SECOND;

/// Rates at which 32 or 64 bits, whole nanoseconds or whole bytes have gone wrong elsewhere, in bits per second.
const RATES: [u64; 19] = [
    64_000,
    999_983,
    10_000_000,
    300_000_000,
    940_000_000,
    1_000_000_007,
    2_500_000_000,
    3_000_000_000,
    4_294_967_295,
    4_294_967_296,
    5_000_000_000,
    10_000_000_000,
    18_446_744_073,
    25_000_000_000,
    34_359_738_368,
    34_400_000_000,
    40_960_000_000,
    100_000_000_000,
    400_000_000_000,
];
const LENGTHS: [u64; 4] = [64, 1500, 9014, 65_549];

fn rate(bits: u64) -> BitsPerSecond {
    BitsPerSecond::new(bits).expect("a rate the switch takes")
}

/// As the configuration fills it in.
fn shaping(bits: u64) -> Shaping {
    let average = rate(bits);
    let burst = average.bytes_in(Nanos::from_millis(10)).max(Bytes::from_kib(64));
    Shaping { average, peak: None, burst, max_delay: Nanos::from_millis(20), overhead: Bytes::new(0) }
}

#[track_caller]
fn assert_rate(what: &str, bytes: u64, elapsed: Nanos, wanted: u64, tolerance: f64) {
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    let error = bytes as f64 * 8e9 / elapsed.get() as f64 / wanted as f64 - 1.0;
    assert!(error.abs() <= tolerance, "{what}: {:+.3} % of {wanted} bit/s", error * 100.0);
}

/// Bytes that leave and the time they take, frame after frame, once the burst is spent.
fn saturate(shaper: &mut Shaper, start: Instant, length: u64, frames: u64) -> (u64, Nanos) {
    let length = Bytes::new(length);
    let mut now = start;
    while shaper.try_take(now, length) {}
    let from = now;
    for _ in 0..frames {
        now = shaper.next_conforming(now, length);
        assert!(shaper.try_take(now, length), "the told instant is enough");
    }
    (frames * length.get(), now.saturating_since(from))
}

#[test]
fn every_rate_holds_with_every_length_also_after_a_year() {
    for bits in RATES {
        for length in LENGTHS {
            for start in [0, YEAR, 100 * YEAR] {
                let start = Instant::from_nanos(start);
                let mut shaper = Shaper::new(&shaping(bits), Bytes::new(FULL as u64), start);
                let (bytes, elapsed) = saturate(&mut shaper, start, length, 20_000);
                assert_rate(&format!("{length} B from {start:?}"), bytes, elapsed, bits, 0.001);
            }
        }
    }
}

/// Asking far more often than a byte is earned, or only now and then, loses nothing.
#[test]
fn a_slow_or_odd_rate_survives_any_rhythm_of_asking() {
    for bits in [64_000, 99_991, 1_000_003, 999_999_937] {
        for step in [100, 9_973, 1_000_000, 10_000_000] {
            let mut shaper = Shaper::new(&shaping(bits), Bytes::new(FULL as u64), Instant::ZERO);
            let frame = Bytes::new(if bits > 1_000_000_000 / 20 { 1514 } else { 60 });
            let mut now = Instant::ZERO;
            while shaper.try_take(now, frame) {}
            let (mut bytes, asked) = (0, 1_000_000.min(20 * SECOND / step));
            for _ in 0..asked {
                now += Nanos::new(step);
                // A step may earn many frames.
                while shaper.try_take(now, frame) {
                    bytes += frame.get();
                }
            }
            let wanted = rate(bits).bytes_in(Nanos::new(step * asked)).get();
            assert!(
                bytes.abs_diff(wanted) <= frame.get() + wanted / 1000,
                "{bits} every {step} ns: {bytes} of {wanted}"
            );
        }
    }
}

#[test]
fn a_clock_that_jumps_gives_at_most_a_burst_and_takes_nothing() {
    let settings = shaping(10_000_000);
    let frame = Bytes::new(FULL as u64);
    let hour = Nanos::from_secs(3600);
    let start = Instant::from_nanos(YEAR);
    let mut shaper = Shaper::new(&settings, frame, start);
    let spend = |shaper: &mut Shaper, now| {
        let mut bytes = 0;
        while shaper.try_take(now, frame) {
            bytes += frame.get();
        }
        bytes
    };
    spend(&mut shaper, start);
    let burst = settings.burst.get();
    let after_jump = spend(&mut shaper, start + hour);
    assert!((burst - frame.get()..=burst + frame.get()).contains(&after_jump), "{after_jump} of {burst}");
    // An hour back: nothing is earned, and nothing owed beyond what it takes to get there again.
    assert_eq!(spend(&mut shaper, start), 0);
    let back = start + hour;
    let (bytes, elapsed) = saturate(&mut shaper, back, frame.get(), 1000);
    assert_rate("after the jump back", bytes, elapsed, 10_000_000, 0.01);
}

/// What waits leaves by its own deadline, without another frame to push it.
#[test]
fn a_waiting_frame_leaves_without_new_traffic() {
    let mut ports = host_ports(2);
    ports[B.index()].egress = Some(Shaping { burst: Bytes::new(1514), ..shaping(64_000) });
    let mut rig = rig(ports, ClassTable::default(), 1500);
    let mut now = Instant::ZERO;
    let mut received = 0;
    for second in 0..300 {
        now = now.max(Instant::from_nanos(second * SECOND));
        rig.send(A, frames::ipv4_udp(station(2), station(1), 0, FULL));
        rig.settle(now);
        while let Some(deadline) =
            rig.next_deadline().filter(|at| *at < Instant::from_nanos((second + 1) * SECOND))
        {
            // Polls of the table's age are no deadline of a frame.
            now = now.max(deadline);
            rig.settle(now);
            if rig.peer(B).waiting() > 0 {
                break;
            }
        }
        received += rig.take_all(B).len();
    }
    // 64 kbit/s carry five full frames a second.
    assert_eq!(received, 300);
}

#[test]
fn a_unit_means_what_it_says_and_what_others_read_differently_is_refused() {
    let text = |average: &str, burst: &str| {
        format!(
            "version: 1\nport_groups:\n  web: {{ shaping: {{ port: {{ ingress: {{ average: {average}, burst: {burst} }} }} }} }}\n\
             ports:\n  a: {{ group: web, netdev: x }}\n"
        )
    };
    let read = |average: &str, burst: &str| {
        let topology: Topology = config::parse("units.yaml", &text(average, burst)).unwrap().topology;
        let shaping = topology.ports[0].ingress.unwrap().shaping;
        (shaping.average.get(), shaping.burst.get())
    };
    for average in [
        "100 Mbit/s",
        "100Mbit/s",
        "100000 kbit/s",
        "100000000 bit/s",
        "0.1 Gbit/s",
        "12.5 MB/s",
        "12500 kB/s",
        "12500000 B/s",
    ] {
        assert_eq!(read(average, "1 MiB"), (100_000_000, 1 << 20), "{average}");
    }
    for (burst, bytes) in
        [("1 MB", 1_000_000), ("1024 KiB", 1 << 20), ("1000 kB", 1_000_000), ("1048576 B", 1 << 20)]
    {
        assert_eq!(read("100 Mbit/s", burst), (100_000_000, bytes), "{burst}");
    }
    let refusal = |text: &str| {
        let report = config::parse("units.yaml", text).err().unwrap_or_else(|| panic!("it loads: {text}"));
        let diagnostic = &report.diagnostics()[0];
        format!("{} {}", diagnostic.message, diagnostic.help.clone().unwrap_or_default())
    };
    for average in [
        "100000000",
        "100M",
        "100Mi",
        "100Mbit",
        "100MB",
        "100 m",
        "100mbit/s",
        "100 Mibit/s",
        "100 MiB/s",
        "100 Mbps",
        "100 mbit",
    ] {
        let words = refusal(&text(average, "1 MiB"));
        assert!(words.contains("Mbit/s"), "{average}: the allowed units are named: {words}");
    }
    for burst in ["1000000", "1M", "1Mi", "1 mb", "8 Mbit", "1 Mb", "1000 K"] {
        let words = refusal(&text("100 Mbit/s", burst));
        assert!(words.contains("KiB"), "{burst}: the allowed units are named: {words}");
    }
}

/// One and four streams through a limit on the way in, close by and far away.
#[test]
fn tcp_reaches_its_limit_where_a_policer_would_ruin_it() {
    const CAP: u64 = 15_000_000;
    for streams in [1, 4] {
        for round_trip in [0, 20] {
            let mut ports = host_ports(2);
            ports[A.index()].ingress = Some(shaping(CAP));
            let mut sim =
                Sim::new(rig(ports, ClassTable::default(), 1500), Nanos::new(round_trip * 1_000_000 / 4));
            let flows: Vec<_> =
                (0..streams).map(|_| sim.start(flow(A, B, Pace::Tcp(rate(10 * SECOND))))).collect();
            let (from, to) = (Instant::from_nanos(5 * SECOND), Instant::from_nanos(30 * SECOND));
            sim.run_until(to);
            let bytes = flows.iter().map(|flow| sim.record(*flow).bytes_between(from, to)).sum();
            let what = format!("{streams} streams, {round_trip} ms");
            assert_rate(&what, bytes, to.saturating_since(from), CAP, 0.1);
            let delay = flows.iter().map(|flow| sim.record(*flow).longest_delay(from, to)).max().unwrap();
            let queueing = delay.get() - round_trip * 1_000_000 / 2;
            assert!(queueing < 100_000_000, "{what}: {delay}");
            assert_eq!(sim.stop(), 0);
        }
    }
}

/// In one class a flood takes what it wants; a class of its own is what protects a stream from it.
#[test]
fn udp_over_the_limit_leaves_tcp_of_another_class_its_share() {
    const CAP: u64 = 15_000_000;
    let half = Class { service: Service::Weighted { weight: 1.try_into().unwrap() } };
    let mut classes =
        ClassTable { classes: Box::new([half, half]), default: ClassId(1), ..ClassTable::default() };
    classes.by_dscp[usize::from(EF)] = Some(ClassId(0));
    for direction in Direction::ALL {
        let mut ports = host_ports(3);
        let (shaped, tcp, udp) = match direction {
            Direction::Ingress => (A, (A, B), (A, PortId(2))),
            Direction::Egress => (B, (A, B), (PortId(2), B)),
        };
        match direction {
            Direction::Ingress => ports[shaped.index()].ingress = Some(shaping(CAP)),
            Direction::Egress => ports[shaped.index()].egress = Some(shaping(CAP)),
        }
        let mut sim = Sim::new(rig(ports, classes.clone(), 1500), Nanos::ZERO);
        let tcp = sim.start(Flow { dscp: EF, ..flow(tcp.0, tcp.1, Pace::Tcp(rate(10 * SECOND))) });
        sim.start(flow(udp.0, udp.1, Pace::Constant(rate(2 * CAP))));
        let (from, to) = (Instant::from_nanos(5 * SECOND), Instant::from_nanos(20 * SECOND));
        sim.run_until(to);
        let bytes = sim.record(tcp).bytes_between(from, to);
        assert_rate(&direction.to_string(), bytes, to.saturating_since(from), CAP / 2, 0.05);
        assert_eq!(sim.stop(), 0);
    }
}

/// A burst of exactly the largest frame, and of less than a super-frame, passes everything at the full rate.
#[test]
fn a_frame_as_long_as_the_burst_passes_and_a_longer_one_never_blocks() {
    const CAP: u64 = 10_000_000;
    for (burst, mtu, length, segments) in
        [(FULL, 1500, FULL, 1), (JUMBO, 9000, JUMBO, 1), (2000, 1500, FULL, 1), (FULL, 1500, FULL, 10)]
    {
        for direction in Direction::ALL {
            let mut ports = host_ports(2);
            let tight = Shaping { burst: Bytes::new(burst as u64), ..shaping(CAP) };
            match direction {
                Direction::Ingress => ports[A.index()].ingress = Some(tight),
                Direction::Egress => ports[B.index()].egress = Some(tight),
            }
            let mut sim = Sim::new(rig(ports, ClassTable::default(), mtu), Nanos::ZERO);
            let bulk = Flow { length, segments, ..flow(A, B, Pace::Tcp(rate(SECOND))) };
            let id = sim.start(bulk);
            let (from, to) = (Instant::from_nanos(2 * SECOND), Instant::from_nanos(12 * SECOND));
            sim.run_until(to);
            let bytes = sim.record(id).bytes_between(from, to);
            let what = format!("{direction}, burst {burst}, frames of {length}, {segments} at once");
            assert_rate(&what, bytes, to.saturating_since(from), CAP, 0.1);
            assert_eq!(sim.stop(), 0);
        }
    }
    for burst in ["0 B", "1000 B", "1500 B", "1513 B"] {
        let text = format!(
            "version: 1\nport_groups:\n  web: {{ shaping: {{ port: {{ ingress: {{ average: 10 Mbit/s, burst: {burst} }} }} }} }}\n\
             ports:\n  a: {{ group: web, tap: {{ netns: a, interface: eth0 }} }}\n"
        );
        assert!(config::parse("burst.yaml", &text).is_err(), "{burst} is less than a frame");
    }
}

#[test]
fn the_default_burst_is_small_and_idle_time_saves_no_more() {
    const CAP: u64 = 10_000_000;
    let text = "version: 1\nport_groups:\n  web: { shaping: { port: { egress: { average: 10 Mbit/s } } } }\n\
                ports:\n  a: { group: web, netdev: x }\n";
    let topology = config::parse("default.yaml", text).unwrap().topology;
    let default = topology.ports[0].egress.unwrap().shaping;
    // 50 ms of the rate, in bytes.
    assert!(default.burst.get() <= CAP / 8 / 20 + 4 * FULL as u64, "{}", default.burst);
    let mut ports = host_ports(2);
    ports[B.index()].egress = Some(default);
    let mut sim = Sim::new(rig(ports, ClassTable::default(), 1500), Nanos::ZERO);
    let (on, off) = (Nanos::from_secs(2), Nanos::from_secs(10));
    let id = sim.start(flow(A, B, Pace::Bursty { rate: rate(10 * CAP), on, off }));
    sim.run_until(Instant::from_nanos(60 * SECOND));
    let most = CAP / 8 + default.burst.get() + FULL as u64;
    let arrivals = &sim.record(id).arrivals;
    let mut first = 0;
    let mut bytes = 0;
    for arrival in arrivals {
        bytes += arrival.bytes;
        while arrival.at.saturating_since(arrivals[first].at) >= Nanos::from_secs(1) {
            bytes -= arrivals[first].bytes;
            first += 1;
        }
        assert!(bytes <= most, "{bytes} bytes within a second, {most} may");
    }
    assert!(arrivals.len() > 5000, "{} frames", arrivals.len());
    assert_eq!(sim.stop(), 0);
}

#[test]
fn each_direction_has_its_own_limit() {
    let mut ports = host_ports(2);
    ports[A.index()].ingress = Some(shaping(20_000_000));
    ports[A.index()].egress = Some(shaping(5_000_000));
    let mut sim = Sim::new(rig(ports, ClassTable::default(), 1500), Nanos::ZERO);
    let sent = sim.start(flow(A, B, Pace::Constant(rate(60_000_000))));
    let received = sim.start(flow(B, A, Pace::Constant(rate(60_000_000))));
    let (from, to) = (Instant::from_nanos(2 * SECOND), Instant::from_nanos(12 * SECOND));
    sim.run_until(to);
    for (flow, wanted) in [(sent, 20_000_000), (received, 5_000_000)] {
        assert_rate(
            "one way",
            sim.record(flow).bytes_between(from, to),
            to.saturating_since(from),
            wanted,
            0.01,
        );
    }
    assert_eq!(sim.stop(), 0);
}

#[test]
fn a_strict_class_is_served_before_all_others_and_they_share_what_it_leaves() {
    const BACKGROUND: u8 = 8;
    let weighted = |weight: u8| Class { service: Service::Weighted { weight: weight.try_into().unwrap() } };
    let mut classes = ClassTable {
        classes: Box::new([Class { service: Service::Strict }, weighted(9), weighted(1)]),
        default: ClassId(1),
        ..ClassTable::default()
    };
    classes.by_dscp[usize::from(EF)] = Some(ClassId(0));
    classes.by_dscp[usize::from(BACKGROUND)] = Some(ClassId(2));
    for (voice_rate, left) in [(5_000_000, 15_000_000), (30_000_000, 0)] {
        let mut ports = host_ports(4);
        ports[B.index()].egress = Some(shaping(20_000_000));
        let mut sim = Sim::new(rig(ports, classes.clone(), 1500), Nanos::ZERO);
        let mut start =
            |port, dscp, bits| sim.start(Flow { dscp, ..flow(PortId(port), B, Pace::Constant(rate(bits))) });
        let voice = start(0, EF, voice_rate);
        let bulk: [FlowId; 2] = [start(2, 0, 30_000_000), start(3, BACKGROUND, 30_000_000)];
        let (from, to) = (Instant::from_nanos(SECOND), Instant::from_nanos(6 * SECOND));
        sim.run_until(to);
        let bits = |flow| sim.record(flow).bytes_between(from, to) * 8 / 5;
        if left > 0 {
            assert!(bits(voice).abs_diff(voice_rate) < voice_rate / 100, "{}", bits(voice));
            let delay = sim.record(voice).longest_delay(from, to);
            assert!(delay < Nanos::from_millis(10), "{delay}");
            for (flow, share) in bulk.into_iter().zip([9, 1]) {
                let wanted = left * share / 10;
                assert!(bits(flow).abs_diff(wanted) < left / 50, "{} of {wanted}", bits(flow));
            }
        } else {
            // Strict means all of it: a class that must not take everything is given a weight.
            assert!(
                bits(voice).abs_diff(20_000_000) < 200_000 && bulk.map(bits).iter().sum::<u64>() < 200_000
            );
        }
        assert_eq!(sim.stop(), 0);
    }
}

#[test]
fn setting_a_rate_again_gives_no_new_burst_and_a_new_one_holds_at_once() {
    let frame = Bytes::new(FULL as u64);
    let with_burst = |bits, burst| Shaping { burst: Bytes::new(burst), ..shaping(bits) };
    let same = with_burst(10_000_000, 1_000_000);
    let mut shaper = Shaper::new(&same, frame, Instant::ZERO);
    let mut now = Instant::ZERO;
    let mut run = |shaper: &mut Shaper, span: Nanos| {
        let (end, mut bytes) = (now + span, 0);
        loop {
            let at = shaper.next_conforming(now, frame);
            if at > end {
                break now = end;
            }
            now = at;
            assert!(shaper.try_take(now, frame));
            bytes += frame.get();
        }
        (bytes, end)
    };
    let mut bytes = 0;
    for _ in 0..100 {
        let (passed, at) = run(&mut shaper, Nanos::from_millis(200));
        bytes += passed;
        shaper.reconfigure(&same, frame, at);
    }
    let most = 1_000_000 + 20 * 10_000_000 / 8;
    assert!((most - frame.get()..=most).contains(&bytes), "{bytes} bytes in 20 s, {most} may");
    for bits in [1_000_000, 100_000_000] {
        let (_, at) = run(&mut shaper, Nanos::ZERO);
        shaper.reconfigure(&with_burst(bits, 65_536), frame, at);
        let (passed, _) = run(&mut shaper, Nanos::from_secs(1));
        let wanted = bits / 8;
        assert!(
            passed.abs_diff(wanted) <= 2 * frame.get(),
            "{passed} of {wanted} bytes in the second after the change"
        );
    }
}

fn flow(from: PortId, to: PortId, pace: Pace) -> Flow {
    Flow { from, to, dscp: 0, length: FULL, segments: 1, pace }
}

fn rig(ports: Vec<PortState>, classes: ClassTable, mtu: u32) -> Rig {
    let fdb = FdbSettings { capacity: 64, age: Nanos::from_secs(300) };
    Rig::new(ForwardingState::new(ports, classes, fdb), POOL, mtu)
}
