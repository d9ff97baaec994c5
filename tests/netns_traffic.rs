//! Frames between namespaces through the daemon, by real stacks with every offload at its default and by raw sockets:
//! what arrives is what was sent.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_tests::clock::{Stopwatch, eventually};
use lockgate_tests::frames::{FULL, JUMBO, SHORTEST, ethernet, station};
use lockgate_tests::internet_checksum;
use lockgate_tests::netns::Netns;
use lockgate_tests::packet_socket::{PacketSocket, TEST_ETHERTYPE, is_test_frame};
use lockgate_tests::require;
use lockgate_tests::switch::Switch;
use lockgate_tests::traffic::{Load, Transfer};
use parking_lot::Mutex;

/// The tests share two cores: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Longest wait for a frame that was sent already.
const ARRIVAL: Duration = Duration::from_secs(2);
/// Frames in flight at once: well within every queue on the way.
const WINDOW: usize = 64;

/// Two veths and two taps in a namespace each, and the host's own interface, all in one VLAN.
struct Lab {
    host: Netns,
    far: [Netns; 4],
}

/// The second veth is steered by XDP, the first one by tc.
const BY_XDP: &str = "veth2";
const FAR: [&str; 4] = ["veth1", "veth2", "tap1", "tap2"];
const HOST: &str = "internal";

impl Lab {
    fn new() -> Self {
        Self { host: Netns::new(), far: std::array::from_fn(|_| Netns::new()) }
    }

    fn start(&self, mtu: u32) -> Switch<'_> {
        let mut ports = String::new();
        for ((name, netns), number) in FAR.iter().zip(&self.far).zip(1..) {
            let kind = name.trim_end_matches(char::is_numeric);
            let (netns, mac) = (netns.name(), station(number));
            ports += &format!(
                "  {name}: {{ group: lan, {kind}: {{ netns: {netns}, interface: eth0, mtu: {mtu}, mac: \"{mac}\", \
                 address: [10.77.0.{number}/24, \"fd77::{number}/64\"] }}{} }}\n",
                if *name == BY_XDP { ", steering: xdp" } else { "" }
            );
        }
        let internal = "internal: { interface: lg-host, address: [10.77.0.9/24, \"fd77::9/64\"] }";
        let switch = Switch::start(
            &self.host,
            &format!(
                "port_groups: {{ lan: {{ vlan: 10 }} }}\nports:\n{ports}  {HOST}: {{ group: lan, {internal} }}\n"
            ),
        );
        self.far.iter().for_each(|netns| netns.wait_for_ipv6("eth0"));
        self.host.wait_for_ipv6("lg-host");
        switch
    }

    fn netns(&self, name: &str) -> &Netns {
        FAR.iter().position(|far| *far == name).map_or(&self.host, |at| &self.far[at])
    }
}

fn addresses(name: &str) -> [IpAddr; 2] {
    let number = FAR.iter().position(|far| *far == name).map_or(9, |at| at + 1);
    [format!("10.77.0.{number}").parse().unwrap(), format!("fd77::{number}").parse().unwrap()]
}

#[test]
fn tcp_and_udp_pass_between_every_pair_of_kinds_without_a_bad_checksum() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new();
    let switch = lab.start(1500);
    let pairs = [
        ("veth1", "veth2"),
        ("veth1", "tap1"),
        ("tap1", "veth1"),
        ("tap1", "tap2"),
        ("veth1", HOST),
        (HOST, "veth1"),
        ("tap1", HOST),
        (HOST, "tap1"),
    ];
    for (from, to) in pairs {
        for address in addresses(to) {
            for load in [Load::Tcp, Load::Udp { bits_per_second: 50_000_000 }] {
                let report = Transfer::start(lab.netns(from), lab.netns(to), address, load, 1).finish();
                let what = format!("{load:?} from {from} to {to} at {address}");
                // Half of what was offered, and of TCP far more than single segments after timeouts would carry.
                assert!(report.received_bytes > 3_000_000, "{what}: {report:?}");
                let refused: u64 = [from, to].map(|name| lab.netns(name).refused_packets()).iter().sum();
                assert_eq!(refused, 0, "{what}: packets refused for a checksum or a header");
            }
        }
    }
    switch.assert_sound();
}

#[test]
fn a_receiving_interface_sees_finished_checksums_only() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new();
    let _switch = lab.start(1500);
    // A tap tells its stack which checksums are unfinished, and so does a lane; only what is called finished has to be right.
    for (from, to) in [("veth1", "veth2"), ("tap1", "veth2"), ("veth1", "tap1"), (HOST, "veth1")] {
        for address in addresses(to) {
            for load in [Load::Tcp, Load::Udp { bits_per_second: 20_000_000 }] {
                let capture = PacketSocket::bind(lab.netns(to), "eth0");
                let transfer = Transfer::start(lab.netns(from), lab.netns(to), address, load, 1);
                let mut verified = 0;
                while verified < 300 {
                    let frame = capture.receive(ARRIVAL).expect("the transfer goes on");
                    let Some(is_right) = internet_checksum::verify(&frame.bytes) else { continue };
                    let excused = frame.checksum_unfinished && to != BY_XDP;
                    assert!(
                        is_right || excused,
                        "{load:?} from {from} to {address}: {:02x?}",
                        &frame.bytes[..54]
                    );
                    verified += 1;
                }
                transfer.finish();
            }
        }
    }
}

#[test]
fn full_size_packets_pass_unfragmented_at_mtu_1500_and_9000() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new();
    for mtu in [1500, 9000] {
        let switch = lab.start(mtu);
        for (from, to) in [("veth1", "veth2"), ("veth1", "tap1"), ("tap1", "veth1"), ("tap1", "tap2")] {
            for (address, ip_header) in addresses(to).into_iter().zip([20, 40]) {
                let payload = mtu as usize - ip_header - 8;
                let replies = lab.netns(from).ping(address, 3, payload);
                assert_eq!(replies.len(), 3, "MTU {mtu} from {from} to {address}");
            }
        }
        switch.assert_sound();
    }
}

#[test]
fn every_frame_size_arrives_byte_for_byte() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new();
    let switch = lab.start(1500);
    let lengths: Vec<usize> = (SHORTEST..=FULL).collect();
    for (from, to) in [("veth1", "veth2"), ("veth1", "tap1"), ("tap1", "veth1"), ("tap1", "tap2")] {
        assert_identical(&lab, from, to, &lengths);
    }
    switch.assert_sound();
}

#[test]
fn jumbo_frames_of_random_sizes_arrive_whole_and_once() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new();
    let switch = lab.start(9000);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let lengths: Vec<usize> = (0..2000).map(|_| SHORTEST + random.below(JUMBO - SHORTEST + 1)).collect();
    for (from, to) in [("veth1", "veth2"), ("veth1", "tap1"), ("tap1", "veth1")] {
        assert_identical(&lab, from, to, &lengths);
    }
    switch.assert_sound();
}

#[test]
fn a_burst_is_delivered_or_counted_without_a_later_frame_to_push_it() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    const BURST: u64 = 5000;
    // Without the stacks' own frames the counters are exact.
    let (host, a, b) =
        (Netns::new().without_ipv6(), Netns::new().without_ipv6(), Netns::new().without_ipv6());
    for kind in ["veth", "tap"] {
        let switch = Switch::start(&host, &pair(&a, &b, kind));
        let sender = PacketSocket::bind(&a, "eth0");
        let before = b.counters("eth0").rx_frames;
        let frame = ethernet(station(2), station(1), TEST_ETHERTYPE, &[0; SHORTEST - 14]);
        let lost_before = a.counters("eth0").tx_dropped;
        for _ in 0..BURST {
            sender.send(&frame);
        }
        let watch = Stopwatch::start();
        let accounted = |switch: &Switch<'_>| {
            let delivered = b.counters("eth0").rx_frames - before;
            let at_sender = a.counters("eth0").tx_dropped - lost_before;
            (delivered, switch.all_dropped(), at_sender, dropped_by_kernel(switch))
        };
        let (delivered, ..) =
            eventually("every frame of the burst to be accounted for", Duration::from_secs(1), || {
                let counts = accounted(&switch);
                (counts.0 + counts.1 + counts.2 + counts.3 == BURST).then_some(counts)
            });
        println!("{kind}: {delivered} of {BURST} delivered, {:?} after the burst", watch.elapsed());
        // The least there is room for on the way: a tap holds 1000 frames for its reader, an AF_XDP socket has 1024 chunks.
        assert!(delivered >= 1000, "{kind}: {:?}", accounted(&switch));
        switch.assert_sound();
    }
}

#[test]
fn a_lone_frame_is_delivered_at_once() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let (host, a, b) =
        (Netns::new().without_ipv6(), Netns::new().without_ipv6(), Netns::new().without_ipv6());
    for kind in ["veth", "tap"] {
        let switch = Switch::start(&host, &pair(&a, &b, kind));
        let (sender, receiver) = (PacketSocket::bind(&a, "eth0"), PacketSocket::bind(&b, "eth0"));
        let mut delays = Vec::new();
        for number in 0..6u8 {
            std::thread::sleep(Duration::from_millis(500));
            let watch = Stopwatch::start();
            sender.send(&ethernet(station(2), station(1), TEST_ETHERTYPE, &[number; 46]));
            let frame = receiver.receive_where(ARRIVAL, is_test_frame).expect("the frame arrives");
            assert_eq!(frame.bytes[14], number);
            delays.push(watch.elapsed());
        }
        delays.sort_unstable();
        println!("{kind}: {delays:?}");
        assert!(delays[3] < Duration::from_millis(10), "{kind}: {delays:?}");
        drop(switch);
    }
}

/// Two ports of a kind with known addresses.
fn pair(a: &Netns, b: &Netns, kind: &str) -> String {
    let port = |number: u8, netns: &Netns| {
        let mac = station(number);
        format!(
            "  p{number}: {{ group: lan, {kind}: {{ netns: {}, interface: eth0, mac: \"{mac}\" }} }}\n",
            netns.name()
        )
    };
    format!("port_groups: {{ lan: {{}} }}\nports:\n{}{}", port(1, a), port(2, b))
}

/// Frames that the kernel dropped before the switch saw them.
fn dropped_by_kernel(switch: &Switch<'_>) -> u64 {
    let page = switch.metrics();
    let dropped = |line: &&str| {
        line.starts_with("lockgate_xsk_rx_dropped") || line.starts_with("lockgate_xsk_rx_ring_full")
    };
    page.lines().filter(dropped).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Sends a frame of every length and compares each with what arrives.
fn assert_identical(lab: &Lab, from: &str, to: &str, lengths: &[usize]) {
    let (sender, receiver) =
        (PacketSocket::bind(lab.netns(from), "eth0"), PacketSocket::bind(lab.netns(to), "eth0"));
    let mut random = Random(0x1234_5678_9abc_def1);
    for window in lengths.chunks(WINDOW) {
        let mut sent: HashMap<Vec<u8>, usize> = HashMap::new();
        for length in window {
            let payload: Vec<u8> = (14..*length).map(|_| random.next().to_le_bytes()[7]).collect();
            let frame = ethernet(mac(to), mac(from), TEST_ETHERTYPE, &payload);
            sender.send(&frame);
            sent.insert(frame, *length);
        }
        while !sent.is_empty() {
            let Some(frame) = receiver.receive_where(ARRIVAL, is_test_frame) else {
                panic!("{from} to {to}: lost frames of {:?} bytes", sent.values())
            };
            assert!(
                sent.remove(&frame.bytes).is_some(),
                "{from} to {to}: {} bytes that nobody sent",
                frame.bytes.len()
            );
        }
    }
    let extra = receiver.receive_all(Duration::from_millis(50), is_test_frame);
    assert!(extra.is_empty(), "{from} to {to}: {} frames arrived twice", extra.len());
}

fn mac(name: &str) -> MacAddr {
    let at = FAR.iter().position(|far| *far == name).expect("one of the four");
    station(u8::try_from(at + 1).unwrap())
}

/// Xorshift (Marsaglia 2003): the same bytes in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }
}
