//! Faults of other programs around XDP and AF_XDP, tried on ours: queues of others, crashes, devices without native XDP,
//! limits of memory, floods, moved and flapping ends.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_tests::clock::{Stopwatch, eventually};
use lockgate_tests::frames::{SHORTEST, ethernet, station, tagged};
use lockgate_tests::lab::{
    ARRIVAL, RawLab, SILENCE, broadcast, foreign_program, foreign_veth, links, unicast, with_xdp,
};
use lockgate_tests::netns::Netns;
use lockgate_tests::packet_socket::{PacketSocket, TEST_ETHERTYPE, is_test_frame};
use lockgate_tests::process::{Process, processor_seconds};
use lockgate_tests::random::Random;
use lockgate_tests::require;
use lockgate_tests::switch::{Switch, TopologyFile, binary, run_command};
use lockgate_tests::xsk_socket::XskSocket;
use nix::sys::signal::Signal;
use parking_lot::Mutex;

/// The tests share two cores: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Whether to run as often and as long as the reports did.
fn is_long() -> bool {
    std::env::var_os("LOCKGATE_LONG").is_some()
}

/// Two containers whose veths somebody else made, as ports by XDP.
struct Containers {
    host: Netns,
    a: Netns,
    b: Netns,
}

impl Containers {
    const TOPOLOGY: &str = "port_groups: { lan: {} }\nports:\n  a: { group: lan, netdev: near-a, steering: xdp }\n  \
                            b: { group: lan, netdev: near-b, steering: xdp }\n";

    fn new() -> Self {
        let lab = Self { host: Netns::new(), a: Netns::new(), b: Netns::new() };
        foreign_veth(&lab.host, "near-a", "", &lab.a, "10.77.0.1/24");
        foreign_veth(&lab.host, "near-b", "", &lab.b, "10.77.0.2/24");
        lab
    }

    fn assert_connected(&self) {
        assert_eq!(self.a.ping("10.77.0.2".parse().unwrap(), 2, 56).len(), 2);
        assert_eq!(self.b.ping("10.77.0.1".parse().unwrap(), 2, 56).len(), 2);
    }
}

#[test]
fn a_queue_that_another_process_holds_is_named_and_joins_when_it_is_free() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Containers::new();
    let other = lab.host.inside(|| XskSocket::bind("near-a", 0));
    let file = TopologyFile::new(Containers::TOPOLOGY);
    let watch = Stopwatch::start();
    let switch = Switch::start_file(&lab.host, &file);
    let reason = eventually("the port's state", Duration::from_secs(10), || switch.port("a").reason);
    assert!(watch.elapsed() < Duration::from_secs(10));
    assert!(reason.contains("near-a") && reason.contains("queue 0"), "{reason}");
    assert_ne!(switch.port("a").state, "up");
    assert_eq!(switch.port("b").state, "up", "the others start");
    // The attempt leaves nothing behind that would make the next one fail.
    drop(other);
    eventually("the port to join", Duration::from_secs(10), || {
        (switch.port("a").state == "up").then_some(())
    });
    lab.assert_connected();
    let said = switch.process().output().lines().filter(|line| line.contains("in use by another")).count();
    assert!(said <= 2, "said {said} times: {}", switch.process().output());
}

#[test]
fn however_it_dies_no_program_stays_and_the_next_start_needs_no_help() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Containers::new();
    let file = TopologyFile::new(Containers::TOPOLOGY);
    for signal in [Signal::SIGSEGV, Signal::SIGABRT, Signal::SIGKILL] {
        let switch = Switch::start_file(&lab.host, &file);
        switch.wait_until_up();
        lab.assert_connected();
        assert_eq!(with_xdp(&lab.host).len(), 2);
        if signal == Signal::SIGSEGV {
            // The first one only takes the handler away that Rust has for overflows of its stacks.
            switch.process().signal(signal);
            std::thread::sleep(Duration::from_millis(100));
        }
        switch.stop(signal);
        eventually("every XDP program to be gone", Duration::from_secs(1), || {
            with_xdp(&lab.host).is_empty().then_some(())
        });
        let pinned = std::fs::read_dir("/sys/fs/bpf").into_iter().flatten().flatten();
        let ours = pinned.filter(|entry| entry.file_name().to_string_lossy().contains("lockgate"));
        assert_eq!(ours.count(), 0, "{signal}: nothing is pinned");
    }
    let switch = Switch::start_file(&lab.host, &file);
    switch.wait_until_up();
    lab.assert_connected();
}

#[test]
fn a_device_without_native_xdp_runs_in_generic_mode_and_says_so() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Containers::new();
    // A macvlan has no XDP of its own.
    lab.host.ip("link add macvlan-a link near-a type macvlan mode passthru");
    lab.host.ip("link set macvlan-a up");
    let topology = Containers::TOPOLOGY.replace("netdev: near-a", "netdev: macvlan-a, learn: 10");
    let switch = Switch::start(&lab.host, &topology);
    let modes = ["a", "b"].map(|port| switch.port(port).xdp_mode);
    assert_eq!(modes, ["generic", "native"].map(|mode| Some(mode.to_owned())));
    lab.assert_connected();
    switch.assert_sound();
}

#[test]
fn an_interface_that_is_in_use_is_refused_with_its_user() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Containers::new();
    lab.host.ip("link add br0 type bridge");
    lab.host.ip("link set near-a master br0");
    lab.host.ip("addr add 10.99.0.1/24 dev near-b");
    let before = links(&lab.host);
    for (interface, words) in [("near-a", "br0"), ("near-b", "10.99.0.1"), ("lo", "the kernel's own")] {
        let file = TopologyFile::new(&format!(
            "port_groups: {{ lan: {{}} }}\nports:\n  a: {{ group: lan, netdev: {interface}, steering: xdp }}\n"
        ));
        let mut process = Process::spawn(run_command(&lab.host, &file.path()));
        let status = process.wait(Duration::from_secs(5));
        assert!(!status.success(), "{interface}");
        let said = process.output();
        assert!(said.contains(interface) && said.contains(words), "{interface}: {said}");
        assert_eq!(links(&lab.host), before, "{interface}");
    }
}

#[test]
fn too_little_locked_memory_is_named_and_harms_no_other_port() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Containers::new();
    let c = Netns::new();
    let file = TopologyFile::new(&format!(
        "{}  c: {{ group: lan, tap: {{ netns: {}, interface: eth0, address: 10.77.0.3/24 }} }}\n  \
         host: {{ group: lan, internal: {{ interface: lg-host, address: 10.77.0.9/24 }} }}\n",
        Containers::TOPOLOGY,
        c.name()
    ));
    // Root without the one capability that lifts the limit.
    let limited = lab.host.command(&format!(
        "prlimit --memlock=65536 setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock {} run {}",
        binary().display(),
        file.path().display()
    ));
    let switch = Switch::start_command(&lab.host, &file, limited);
    let reason = eventually("the port's state", Duration::from_secs(5), || switch.port("a").reason);
    assert!(reason.contains("near-a") && reason.contains("KiB"), "what was tried: {reason}");
    assert!(reason.contains("RLIMIT_MEMLOCK") && reason.contains("64 KiB"), "the limit: {reason}");
    let taps = ["c", "host"].map(|port| switch.port(port).state);
    assert_eq!(taps, ["up", "up"], "the others run");
    assert_eq!(c.ping("10.77.0.9".parse().unwrap(), 2, 56).len(), 2);
    drop(switch);

    let switch = Switch::start_file(&lab.host, &file);
    switch.wait_until_up();
    lab.assert_connected();
}

/// Frames that are dropped on the way in and on the way out, copied to all, and delayed: a hundred times as many as the
/// sockets have chunks. Afterwards every buffer is where it belongs.
#[test]
fn whatever_is_dropped_gives_its_buffer_back() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    const CHUNKS: usize = 1024;
    let times = if is_long() { 1000 } else { 100 };
    let names: [(&str, &str); 8] = [
        ("p1", "lan"),
        ("p2", "lan"),
        ("p3", "slow"),
        ("p4", "lan"),
        ("p5", "lan"),
        ("p6", "lan"),
        ("tap7", "lan"),
        ("tap8", "slow"),
    ];
    let lab = RawLab::new(&names).by_xdp();
    let slow =
        "{ vlan: 10, shaping: { port: { ingress: { average: 1 Mbit/s }, egress: { average: 1 Mbit/s } } } }";
    let (switch, far) = lab.start(&format!("  lan: {{ vlan: 10 }}\n  slow: {slow}"));
    let kinds = [
        ethernet(station(2), station(9), TEST_ETHERTYPE, &[1; 46]),
        tagged(0, 99, &broadcast(1, 2)),
        ethernet(station(3), station(1), TEST_ETHERTYPE, &[3; 1400]),
        ethernet(station(77), station(1), TEST_ETHERTYPE, &[4; 46]),
        ethernet(MacAddr([1, 0, 0x5e, 0, 0, 9]), station(1), TEST_ETHERTYPE, &[5; 400]),
        ethernet(station(8), station(1), TEST_ETHERTYPE, &[6; 1400]),
        ethernet(station(2), station(1), TEST_ETHERTYPE, &[7; 900]),
    ];
    for number in 0..CHUNKS * times {
        far[0].socket.send(&kinds[number % kinds.len()]);
    }
    eventually("the flood to be over", Duration::from_secs(20), || {
        let queued = switch.metric("lockgate_flow_queued_frames");
        (queued == 0.0).then_some(())
    });
    for (number, port) in (1..).zip(&far) {
        // What arrived before is not of interest.
        port.socket.receive_all(Duration::from_millis(1), is_test_frame);
        let witness = &far[usize::from(number == 1)];
        witness.socket.receive_all(Duration::from_millis(1), is_test_frame);
        port.socket.send(&broadcast(number, 0xaa));
        let is_it = |frame: &[u8]| frame == broadcast(number, 0xaa);
        assert!(witness.socket.receive_where(ARRIVAL, is_it).is_some(), "from {} after the flood", port.name);
    }
    for exported in ["lockgate_xsk_rx_dropped_total", "lockgate_xsk_rx_fill_ring_empty_total"] {
        switch.metric(exported);
    }
    eventually("every buffer to be back", ARRIVAL, || {
        (switch.metric("lockgate_buffers_in_use") == 0.0).then_some(())
    });
    switch.assert_sound();
    let ended = switch.stop(Signal::SIGTERM);
    assert!(ended.status.success(), "{}", ended.log);
}

#[test]
fn a_flooded_port_recovers_at_once_and_nobody_spins() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = RawLab::new(&[("a", "lan"), ("b", "lan"), ("c", "lan")]).by_xdp();
    let (switch, far) = lab.start("  lan: {}");
    let [a, b, c] = &far[..] else { panic!("three ports") };
    let span = Duration::from_secs(if is_long() { 10 } else { 3 });
    std::thread::scope(|scope| {
        for (number, sender) in [(1, a), (3, c)] {
            scope.spawn(move || {
                let (watch, frame) = (Stopwatch::start(), unicast(number, station(2)));
                while watch.elapsed() < span {
                    (0..64).for_each(|_| sender.socket.send(&frame));
                }
            });
        }
    });
    let lone = broadcast(1, 0xbb);
    // The old socket is full of the flood.
    let socket = PacketSocket::bind(b.netns, "eth0");
    let watch = Stopwatch::start();
    a.socket.send(&lone);
    let arrived = socket.receive_where(Duration::from_secs(5), |frame| frame == lone);
    assert!(arrived.is_some() && watch.elapsed() < Duration::from_secs(1), "after {:?}", watch.elapsed());
    std::thread::sleep(Duration::from_millis(200));
    let pid = switch.process().pid();
    let (watch, before) = (Stopwatch::start(), processor_seconds(pid));
    std::thread::sleep(Duration::from_secs(2));
    let share = (processor_seconds(pid) - before) / watch.elapsed().as_secs_f64();
    assert!(share < 0.03, "{:.1} % of a core after the flood", share * 100.0);
    switch.assert_sound();
}

/// Every port sends at once to all and one of them is far too slow: nothing arrives that was not sent, nothing twice,
/// nothing in another group. That interfaces of two namespaces have one index cannot mix them up: the switch binds its
/// sockets in one.
#[test]
fn every_copy_is_whole_comes_once_and_stays_in_its_group() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let rounds: u32 = if is_long() { 20_000 } else { 1000 };
    let names = [
        ("p1", "lan"),
        ("p2", "lan"),
        ("p3", "lan"),
        ("tap4", "lan"),
        ("tap5", "lan"),
        ("p6", "slow"),
        ("p7", "other"),
        ("tap8", "other"),
    ];
    let lab = RawLab::new(&names).by_xdp();
    let (switch, far) = lab.start(
        "  lan: { vlan: 10 }\n  slow: { vlan: 10, shaping: { port: { egress: { average: 100 kbit/s } } } }\n  other: { vlan: 20 }",
    );
    let hashes = RandomState::new();
    let frame = |sender: u8, number: u32| {
        let length = SHORTEST + (number as usize * 37 + usize::from(sender)) % 1400;
        let mut payload = vec![sender; length - 14];
        payload[..4].copy_from_slice(&number.to_be_bytes());
        let hash = hashes.hash_one((sender, number, length)).to_be_bytes();
        payload[4..12].copy_from_slice(&hash);
        payload[length - 22..].copy_from_slice(&hash);
        ethernet(MacAddr::BROADCAST, station(sender), TEST_ETHERTYPE, &payload)
    };
    let mut received: Vec<HashMap<(u8, u32), u32>> = vec![HashMap::new(); far.len()];
    // In windows that every queue on the way holds, so that what is missing was lost.
    const WINDOW: u32 = 10;
    for start in (0..rounds).step_by(WINDOW as usize) {
        for number in start..start + WINDOW {
            (1..).zip(&far).for_each(|(sender, port)| port.socket.send(&frame(sender, number)));
        }
        let deadline = Stopwatch::start();
        let group = |at: usize| if at < 6 { 0..6 } else { 6..8 };
        let expected = |at: usize| (start + WINDOW) as usize * (group(at).len() - 1);
        for (at, port) in far.iter().enumerate() {
            // The slow one gets what it gets.
            while at != 5 && received[at].len() < expected(at) && deadline.elapsed() < ARRIVAL {
                let Some(got) = port.socket.receive_where(Duration::from_millis(100), is_test_frame) else {
                    continue;
                };
                take(&mut received[at], &got.bytes, &frame);
            }
            assert!(
                at == 5 || received[at].len() == expected(at),
                "{} has {} of {}",
                port.name,
                received[at].len(),
                expected(at)
            );
        }
    }
    for (at, port) in far.iter().enumerate() {
        for rest in port.socket.receive_all(SILENCE, is_test_frame) {
            take(&mut received[at], &rest, &frame);
        }
        for (sender, number) in received[at].keys() {
            assert!((*sender <= 6) == (at < 6), "{} has a frame of group {sender}: {number}", port.name);
        }
    }
    assert!(received[5].len() < received[0].len(), "the slow port is slow");
    assert!(switch.dropped("p6", "egress", "shaper_queue_full") > 0);
    switch.assert_sound();

    fn take(received: &mut HashMap<(u8, u32), u32>, got: &[u8], frame: &dyn Fn(u8, u32) -> Vec<u8>) {
        let (sender, number) = (got[11], u32::from_be_bytes([got[14], got[15], got[16], got[17]]));
        assert!(got == frame(sender, number), "frame {number} of {sender} has other bytes");
        assert!(received.insert((sender, number), 1).is_none(), "frame {number} of {sender} came twice");
    }
}

#[test]
fn a_stop_at_any_moment_of_a_flood_ends_in_time_and_leaves_nothing() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let runs = if is_long() { 100 } else { 10 };
    let lab = Containers::new();
    let file = TopologyFile::new(Containers::TOPOLOGY);
    let sockets =
        [(&lab.a, 1), (&lab.b, 2)].map(|(netns, number)| (PacketSocket::bind(netns, "eth0"), number));
    let mut random = Random::new(7);
    for run in 0..runs {
        let switch = Switch::start_file(&lab.host, &file);
        switch.wait_until_up();
        let wait = Duration::from_micros(random.any() % 300_000);
        let stop = std::sync::atomic::AtomicBool::new(false);
        let ended = std::thread::scope(|scope| {
            for (socket, number) in &sockets {
                let stop = &stop;
                scope.spawn(move || {
                    let frame = broadcast(*number, 1);
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        (0..32).for_each(|_| socket.send(&frame));
                    }
                });
            }
            std::thread::sleep(wait);
            let ended = switch.stop(Signal::SIGTERM);
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            ended
        });
        assert_eq!(ended.status.code(), Some(0), "run {run}, after {wait:?}: {}", ended.log);
        assert!(ended.took < Duration::from_secs(2), "run {run}: {:?}", ended.took);
        assert!(with_xdp(&lab.host).is_empty(), "run {run}");
    }
}

/// The far end may go where it wants.
#[test]
fn a_far_end_that_moves_to_another_namespace_resets_nothing() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Containers::new();
    let elsewhere = Netns::new();
    let switch = Switch::start(&lab.host, Containers::TOPOLOGY);
    lab.assert_connected();
    let program = links(&lab.host)["near-a"]["xdp"].clone();
    for (from, to) in [(&lab.a, &elsewhere), (&elsewhere, &lab.a)] {
        from.ip(&format!("link set eth0 netns {}", to.name()));
        to.ip("link set eth0 up");
        to.ip("addr add 10.77.0.1/24 dev eth0");
        eventually("the container to be reached again", Duration::from_secs(3), || {
            (to.ping("10.77.0.2".parse().unwrap(), 1, 56).len() == 1).then_some(())
        });
        assert_eq!(switch.port("a").state, "up");
    }
    assert_eq!(links(&lab.host)["near-a"]["xdp"], program, "the same program all the time");
    switch.assert_sound();
}

/// The far end of one port goes up and down: it works again at once, and the others lose nothing.
#[test]
fn a_flapping_far_end_disturbs_nobody() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let flaps = if is_long() { 100 } else { 20 };
    let lab = Containers::new();
    let c = Netns::new();
    foreign_veth(&lab.host, "near-c", "", &c, "10.77.0.3/24");
    let topology = format!("{}  c: {{ group: lan, netdev: near-c, steering: xdp }}\n", Containers::TOPOLOGY);
    let switch = Switch::start(&lab.host, &topology);
    lab.assert_connected();
    assert_eq!(lab.b.ping("10.77.0.3".parse().unwrap(), 2, 56).len(), 2);
    let mut random = Random::new(1);
    let mut witness = Process::spawn(lab.b.command("ping -q -n -i 0.01 -c 400 -W 1 10.77.0.3"));
    for _ in 0..flaps {
        for state in ["down", "up"] {
            lab.a.ip(&format!("link set eth0 {state}"));
            std::thread::sleep(Duration::from_millis(10 + random.any() % 90));
        }
    }
    let watch = Stopwatch::start();
    eventually("the port to work again", Duration::from_secs(2), || {
        (lab.a.ping("10.77.0.2".parse().unwrap(), 1, 56).len() == 1).then_some(())
    });
    println!("worked again {:?} after the last flap", watch.elapsed());
    let status = witness.wait(Duration::from_secs(20));
    assert!(status.success() && witness.output().contains(" 0% packet loss"), "{}", witness.output());
    assert_eq!(switch.port("a").state, "up");
    switch.assert_sound();
}

/// What holds our program is a link, which other tools cannot take away by the interface.
#[test]
fn nobody_replaces_or_removes_the_program_by_the_interface() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Containers::new();
    let switch = Switch::start(&lab.host, Containers::TOPOLOGY);
    let program = links(&lab.host)["near-a"]["xdp"].clone();
    for words in ["off", "xdpgeneric off", "xdpdrv off"] {
        let kind = words.split(' ').next().unwrap();
        let words = if kind == "off" { "xdp off" } else { words };
        let output = lab.host.command(&format!("ip link set near-a {words}")).output().unwrap();
        let still = links(&lab.host)["near-a"]["xdp"].clone();
        assert_eq!(still, program, "{words}: {output:?}");
    }
    assert!(foreign_program(&lab.host, "near-a").is_err(), "a second program is refused");
    lab.assert_connected();
    switch.assert_sound();
}

/// What a device would filter is what a switch is for: it takes every frame while it is a port, and not a moment longer.
#[test]
fn a_port_is_promiscuous_while_it_is_one_however_the_switch_ends() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Containers::new();
    // A macvlan filters as a physical card does.
    lab.host.ip("link add macvlan-a link near-a type macvlan mode passthru");
    lab.host.ip("link set macvlan-a up");
    let topology = Containers::TOPOLOGY.replace("netdev: near-a", "netdev: macvlan-a, learn: 10");
    let file = TopologyFile::new(&topology);
    let promiscuity =
        || ["macvlan-a", "near-b"].map(|name| links(&lab.host)[name]["promiscuity"].as_u64().unwrap());
    // Somebody else's wish is counted beside ours and survives.
    lab.host.ip("link set near-b promisc on");
    let before = promiscuity();
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let switch = Switch::start_file(&lab.host, &file);
        switch.wait_until_up();
        assert_eq!(promiscuity(), before.map(|count| count + 1));
        // A group that nobody joined on the interface itself.
        let socket = PacketSocket::bind(&lab.b, "eth0");
        let group = MacAddr([0x33, 0x33, 0xff, 0, 0, 9]);
        let frame = ethernet(group, station(7), TEST_ETHERTYPE, &[7; 46]);
        PacketSocket::bind(&lab.a, "eth0").send(&frame);
        let received = socket.receive_where(ARRIVAL, is_test_frame);
        assert_eq!(received.map(|received| received.bytes), Some(frame));
        switch.stop(signal);
        eventually("the former state", Duration::from_secs(1), || (promiscuity() == before).then_some(()));
    }
}

/// The switch's own end goes down and up: what was sent meanwhile is counted as lost and does not come out late.
#[test]
fn a_link_that_was_down_releases_nothing_stale() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Containers::new();
    let switch = Switch::start(&lab.host, Containers::TOPOLOGY);
    lab.assert_connected();
    let address =
        |netns: &Netns| netns.run("cat /sys/class/net/eth0/address").trim().parse::<MacAddr>().unwrap();
    let (to, from) = (address(&lab.a), address(&lab.b));
    let sender = PacketSocket::bind(&lab.b, "eth0");
    let frame = |number: u8| ethernet(to, from, TEST_ETHERTYPE, &[number; 46]);
    lab.host.ip("link set near-a down");
    for number in 0..50 {
        sender.send(&frame(number));
    }
    std::thread::sleep(Duration::from_millis(1500));
    let receiver = PacketSocket::bind(&lab.a, "eth0");
    lab.host.ip("link set near-a up");
    let stale = receiver.receive_all(SILENCE, is_test_frame).len();
    eventually("the port to work again", Duration::from_secs(2), || {
        (lab.a.ping("10.77.0.2".parse().unwrap(), 1, 56).len() == 1).then_some(())
    });
    assert_eq!(stale, 0, "frames of 1.5 s ago came out");
    switch.assert_sound();
}
