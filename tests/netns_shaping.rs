//! Rates between namespaces through the daemon, measured by the receiving interface's own counters of Ethernet bytes.

use std::net::IpAddr;
use std::time::Duration;

use lockgate_tests::clock::Stopwatch;
use lockgate_tests::netns::Netns;
use lockgate_tests::require;
use lockgate_tests::switch::Switch;
use lockgate_tests::traffic::{Load, Transfer, bits, received_rate, wait_for_load};
use parking_lot::Mutex;

/// The tests share two cores: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The burst is spent and TCP has found its rate.
const SETTLE: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(4);
const TRANSFER_SECONDS: u32 = 7;
/// How far the mean may be from the rate.
const TOLERANCE: f64 = 0.01;

/// A limited port and one without a limit.
struct Lab {
    host: Netns,
    limited: Netns,
    free: Netns,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    /// Port → switch.
    Ingress,
    /// Switch → port.
    Egress,
}

impl Lab {
    fn new() -> Self {
        Self { host: Netns::new(), limited: Netns::new(), free: Netns::new() }
    }

    fn start(&self, limited_kind: &str, free_kind: &str, shaping: &str) -> Switch<'_> {
        let port = |kind: &str, netns: &Netns, number: u8| {
            format!("{kind}: {{ netns: {}, interface: eth0, address: 10.77.0.{number}/24 }}", netns.name())
        };
        Switch::start(
            &self.host,
            &format!(
                "port_groups: {{ lan: {{}} }}\nports:\n  \
                 limited: {{ group: lan, {}, shaping: {{ {shaping} }} }}\n  free: {{ group: lan, {} }}\n",
                port(limited_kind, &self.limited, 1),
                port(free_kind, &self.free, 2)
            ),
        )
    }

    fn transfer(&self, way: Way, load: Load) -> (Transfer, &Netns) {
        let (from, to, address) = match way {
            Way::Ingress => (&self.limited, &self.free, "10.77.0.2"),
            Way::Egress => (&self.free, &self.limited, "10.77.0.1"),
        };
        let address: IpAddr = address.parse().unwrap();
        (Transfer::start(from, to, address, load, TRANSFER_SECONDS), to)
    }

    #[track_caller]
    fn assert_held(&self, way: Way, load: Load, megabits: u32) {
        let (_transfer, receiver) = self.transfer(way, load);
        let measured = received_rate(receiver, "eth0", SETTLE, WINDOW);
        let cap = f64::from(megabits) * 1e6;
        let error = measured / cap - 1.0;
        println!("{way:?} {megabits} Mbit/s, {load:?}: {:+.2} %", error * 100.0);
        assert!(
            error.abs() <= TOLERANCE,
            "{way:?} {load:?}: {measured:.0} bit/s of {cap:.0}: {:+.2} %",
            error * 100.0
        );
    }
}

fn twice(megabits: u32) -> Load {
    Load::Udp { bits_per_second: u64::from(megabits) * 2_000_000 }
}

#[test]
fn a_limit_for_each_direction_is_not_taken_for_the_other() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new();
    for (limited, free) in [("veth", "veth"), ("tap", "veth")] {
        let switch =
            lab.start(limited, free, "ingress: { average: 20 Mbit/s }, egress: { average: 5 Mbit/s }");
        println!("{limited}");
        lab.assert_held(Way::Ingress, Load::Tcp, 20);
        lab.assert_held(Way::Egress, Load::Tcp, 5);
        switch.assert_sound();
    }
}

#[test]
fn tcp_and_overloaded_udp_are_held_to_100_megabits_in_both_directions() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new();
    for (limited, free) in [("veth", "veth"), ("tap", "veth")] {
        let switch =
            lab.start(limited, free, "ingress: { average: 100 Mbit/s }, egress: { average: 100 Mbit/s }");
        println!("{limited}");
        for way in [Way::Ingress, Way::Egress] {
            for load in [Load::Tcp, twice(100)] {
                lab.assert_held(way, load, 100);
            }
        }
        switch.assert_sound();
    }
}

#[test]
fn a_super_frame_is_charged_what_the_wire_would_carry() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new();
    let _switch = lab.start("tap", "tap", "ingress: { average: 100 Mbit/s }");
    // Between taps frames stay whole, and the receiver's interface counts their headers once. What TCP delivers of each
    // full frame is known: 1448 bytes of 1514.
    let report = lab.transfer(Way::Ingress, Load::Tcp).0.finish();
    let wire = report.goodput_bits_per_second * 1514.0 / 1448.0;
    let error = wire / 100e6 - 1.0;
    println!("between taps: {:+.2} %", error * 100.0);
    // The burst at the start is in it, 0.1 % of seven seconds.
    assert!(error.abs() <= 2.0 * TOLERANCE, "{wire:.0} bit/s on the wire");
}

#[test]
fn the_default_burst_is_felt_neither_at_the_start_nor_after_a_pause() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    const RATE: f64 = 10e6;
    /// The larger of 10 ms of the rate and 64 KiB.
    const BURST: f64 = 65536.0 * 8.0;
    const FULL_FRAME: f64 = 1514.0 * 8.0;
    let lab = Lab::new();
    let _switch = lab.start("veth", "veth", "egress: { average: 10 Mbit/s }");
    for _ in 0..3 {
        let before = lab.limited.counters("eth0").rx_bytes;
        let watch = Stopwatch::start();
        let _transfer = lab.transfer(Way::Egress, Load::Udp { bits_per_second: 30_000_000 });
        wait_for_load(&lab.limited, "eth0");
        std::thread::sleep(Duration::from_secs(1));
        let passed = bits(lab.limited.counters("eth0").rx_bytes - before);
        let most = RATE * watch.elapsed().as_secs_f64() + BURST + FULL_FRAME;
        println!("{passed:.0} bit of at most {most:.0}");
        assert!(passed <= most, "{passed:.0} bit passed, {most:.0} may");
        assert!(passed >= RATE, "{passed:.0} bit in more than a second");
        // Much longer than the burst takes to fill up.
        std::thread::sleep(Duration::from_secs(2));
    }
}
