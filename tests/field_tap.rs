//! Faults of other switches around taps, tried on ours: taps that are down, that nobody reads, that exist already with
//! other flags.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockgate_tests::clock::{Stopwatch, eventually};
use lockgate_tests::frames::{FULL, SHORTEST, ethernet, station};
use lockgate_tests::lab::{ARRIVAL, RawLab, links};
use lockgate_tests::netns::Netns;
use lockgate_tests::packet_socket::{PacketSocket, TEST_ETHERTYPE, is_from, is_test_frame};
use lockgate_tests::process::{Process, processor_seconds};
use lockgate_tests::require;
use lockgate_tests::switch::{Switch, TopologyFile, run_command};
use lockgate_tests::traffic::{Load, Transfer};
use lockgate_tests::tun::Tun;
use parking_lot::Mutex;

/// The tests share two cores: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_tap_that_is_down_counts_what_it_cannot_take_and_comes_back_with_the_link() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = RawLab::new(&[("tap", "lan"), ("b", "lan"), ("c", "lan")]);
    let (switch, far) = lab.start("  lan: {}");
    let [tap, b, c] = &far[..] else { panic!("three ports") };
    let to = |number: u8| ethernet(station(number), station(2), TEST_ETHERTYPE, &[number; SHORTEST - 14]);
    let mut lost = 0;
    for round in 0..50 {
        tap.netns.ip("link set eth0 down");
        for _ in 0..4 {
            b.socket.send(&to(1));
        }
        // The others do not notice.
        b.socket.send(&to(3));
        assert!(c.socket.receive_where(ARRIVAL, is_from(station(2))).is_some(), "round {round}");
        lost += 4;
        eventually("the lost frames to be counted", ARRIVAL, || {
            (switch.dropped("tap", "egress", "port_down") == lost).then_some(())
        });
        tap.netns.ip("link set eth0 up");
        // A socket on an interface that went down says so once.
        let socket = PacketSocket::bind(tap.netns, "eth0");
        let watch = Stopwatch::start();
        let arrived = (0..100).any(|_| {
            b.socket.send(&to(1));
            lost = switch.dropped("tap", "egress", "port_down");
            socket.receive_where(Duration::from_millis(10), is_test_frame).is_some()
        });
        assert!(arrived && watch.elapsed() < Duration::from_secs(1), "round {round}: {:?}", watch.elapsed());
        lost = switch.dropped("tap", "egress", "port_down");
    }
    switch.assert_sound();
}

#[test]
fn a_tap_that_is_down_costs_no_processor_time() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = RawLab::new(&[("tap", "lan"), ("b", "lan")]);
    let (switch, far) = lab.start("  lan: {}");
    let [tap, b] = &far[..] else { panic!("two ports") };
    tap.netns.ip("link set eth0 down");
    let pid = switch.process().pid();
    let (watch, before) = (Stopwatch::start(), processor_seconds(pid));
    for _ in 0..20 {
        b.socket.send(&ethernet(station(1), station(2), TEST_ETHERTYPE, &[0; 46]));
        std::thread::sleep(Duration::from_millis(100));
    }
    let share = (processor_seconds(pid) - before) / watch.elapsed().as_secs_f64();
    println!("with a tap that is down: {:.2} % of a core", share * 100.0);
    assert!(share < 0.05, "{:.2} % of a core", share * 100.0);
}

/// A virtual machine that stops reading: its tap's queue fills and overflows, and nobody else notices.
#[test]
fn a_tap_that_nobody_reads_stalls_nobody_and_goes_on_when_it_is_read() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let seconds = if std::env::var_os("LOCKGATE_LONG").is_some() { 10 } else { 3 };
    const MAC: &str = "02:00:00:00:00:07";
    let (host, a, b, c) = (Netns::new().without_ipv6(), Netns::new(), Netns::new(), Netns::new());
    let vm = Tun::open(&host, "tap-vm", Tun::VNET_HDR).unwrap();
    host.ip("link set tap-vm up");
    let port = |name: &str, netns: &Netns, number: u8| {
        let netns = netns.name();
        format!(
            "  {name}: {{ group: lan, veth: {{ netns: {netns}, interface: eth0, address: 10.77.0.{number}/24 }} }}\n"
        )
    };
    let ports = [port("a", &a, 1), port("b", &b, 2), port("c", &c, 3)].concat();
    let topology = format!(
        "port_groups: {{ lan: {{}} }}\nports:\n  vm: {{ group: lan, netdev: tap-vm, mac: \"{MAC}\" }}\n{ports}"
    );
    let switch = Switch::start(&host, &topology);
    a.ip(&format!("neigh add 10.77.0.7 lladdr {MAC} dev eth0"));
    let to_vm = |frame: &[u8]| frame.get(23) == Some(&17) && frame.get(30..34) == Some(&[10, 77, 0, 7]);
    let drain = || std::iter::from_fn(|| vm.receive()).filter(|frame| to_vm(frame)).count();
    assert_eq!(b.ping("10.77.0.3".parse().unwrap(), 2, 56).len(), 2);
    let pid = switch.process().pid();

    // A sender that is heard, then one that is not.
    let mut shares = Vec::new();
    for is_read in [true, false] {
        let stop = AtomicBool::new(false);
        let (report, share) = std::thread::scope(|scope| {
            let (a, stop, drain) = (&a, &stop, &drain);
            scope.spawn(move || {
                a.inside(|| {
                    let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
                    while !stop.load(Ordering::Relaxed) {
                        for _ in 0..20 {
                            _ = socket.send_to(&[0x5a; 1000], "10.77.0.7:7777");
                        }
                        std::thread::sleep(Duration::from_millis(2));
                    }
                });
            });
            if is_read {
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        drain();
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            }
            let (watch, before) = (Stopwatch::start(), processor_seconds(pid));
            let load = Load::Udp { bits_per_second: 20_000_000 };
            let report = Transfer::start(&b, &c, "10.77.0.3".parse().unwrap(), load, seconds).finish();
            let share = (processor_seconds(pid) - before) / watch.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            (report, share)
        });
        let offered = 20_000_000 / 8 * u64::from(seconds);
        println!(
            "read: {is_read}: {:.1} % of a core, {} of {offered} bytes",
            share * 100.0,
            report.received_bytes
        );
        assert!(report.received_bytes >= offered * 9 / 10, "read: {is_read}: {report:?} of {offered} bytes");
        shares.push(share);
    }
    assert!(shares[1] < 2.0 * shares[0] + 0.02, "of a core, read and not: {shares:?}");

    // The oldest wait in the tap, the newest were dropped there. What is sent once it is read again arrives.
    let waited = drain();
    assert!(waited > 100, "{waited} frames waited");
    let lost = host.counters("tap-vm").tx_dropped;
    println!("{waited} frames waited, the tap dropped {lost}");
    let sender = a.inside(|| UdpSocket::bind("10.77.0.1:0").unwrap());
    sender.send_to(&[0x77; 100], "10.77.0.7:7777").unwrap();
    vm.receive_where(Duration::from_millis(100), |frame| to_vm(frame) && frame.get(42) == Some(&0x77));
    switch.assert_sound();
}

/// An interface of that name is somebody else's, whatever its flags: it is named, and left as it was.
#[test]
fn a_tap_that_exists_already_is_refused_by_name_and_left_alone() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let host = Netns::new();
    for flags in ["", " multi_queue", " vnet_hdr", " multi_queue vnet_hdr"] {
        host.ip(&format!("tuntap add lg-host mode tap{flags}"));
        let before = links(&host);
        let file = TopologyFile::new(
            "port_groups: { lan: {} }\nports:\n  host: { group: lan, internal: { interface: lg-host } }\n",
        );
        let mut process = Process::spawn(run_command(&host, &file.path()));
        let status = process.wait(Duration::from_secs(5));
        assert!(!status.success(), "{flags}");
        assert!(process.output().contains("lg-host"), "{flags}: {}", process.output());
        assert_eq!(links(&host), before, "{flags}");
        host.ip("link del lg-host");
    }
}

/// As `netdev` a persistent tap is taken with whatever flags its owner chose: its frames are exact, from the first on.
#[test]
fn a_persistent_tap_of_any_flags_is_joined_and_its_frames_are_exact() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    for (words, flags) in [
        ("", 0),
        (" multi_queue", Tun::MULTI_QUEUE),
        (" vnet_hdr", Tun::VNET_HDR),
        (" multi_queue vnet_hdr", Tun::MULTI_QUEUE | Tun::VNET_HDR),
    ] {
        let (host, far) = (Netns::new().without_ipv6(), Netns::new().without_ipv6());
        host.ip(&format!("tuntap add tap-vm mode tap{words}"));
        host.ip("link set tap-vm up");
        // Nobody holds it yet: the port says so, and is there all the same.
        let file = TopologyFile::new(&format!(
            "port_groups: {{ lan: {{}} }}\nports:\n  vm: {{ group: lan, netdev: tap-vm, mac: \"{}\" }}\n  \
                 far: {{ group: lan, veth: {{ netns: {}, interface: eth0, mac: \"{}\" }} }}\n",
            station(1),
            far.name(),
            station(2)
        ));
        let switch = Switch::start_file(&host, &file);
        eventually("the other port", ARRIVAL, || (switch.port("far").state == "up").then_some(()));
        eventually("the missing carrier", ARRIVAL, || (switch.port("vm").state == "down").then_some(()));
        let port = switch.port("vm");
        assert!(port.reason.is_some_and(|reason| reason.starts_with("no carrier")));
        let socket = PacketSocket::bind(&far, "eth0");
        let vm = Tun::open(&host, "tap-vm", flags).unwrap_or_else(|error| panic!("{words}: {error}"));
        eventually("the tap's carrier", ARRIVAL, || {
            let state = &links(&host)["tap-vm"]["flags"];
            state.as_array().unwrap().iter().any(|flag| flag == "LOWER_UP").then_some(())
        });
        eventually("the port to be up", ARRIVAL, || (switch.port("vm").state == "up").then_some(()));
        for (number, length) in (0..).zip([60, 61, 590, 1513, FULL]) {
            let payload = |from: u8| {
                (14..length).map(|at| (at * usize::from(from)).to_le_bytes()[0]).collect::<Vec<_>>()
            };
            let up = ethernet(station(2), station(1), TEST_ETHERTYPE, &payload(3));
            vm.send(&up);
            let received = socket.receive_where(ARRIVAL, is_from(station(1)));
            assert_eq!(received.map(|frame| frame.bytes), Some(up), "{words}: frame {number} from the tap");
            let down = ethernet(station(1), station(2), TEST_ETHERTYPE, &payload(5));
            socket.send(&down);
            let received = vm.receive_where(ARRIVAL, is_from(station(2)));
            assert_eq!(received, down, "{words}: frame {number} to the tap");
        }
        assert_eq!(switch.port("vm").state, "up");
        switch.assert_sound();
    }
}
