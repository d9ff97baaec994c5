//! Faults of other switches' forwarding, tried on ours: where addresses were, tags of every kind, frames that are hardly
//! frames, a flood of addresses.

use std::time::Duration;

use lockgate_control::{compile, config};
use lockgate_dataplane::buffer::PoolSize;
use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::id::{Direction, PortId};
use lockgate_dataplane::time::{Instant, Nanos};
use lockgate_dataplane::verdict::DropReason;
use lockgate_tests::clock::{Stopwatch, eventually};
use lockgate_tests::frames::{self, SHORTEST, ethernet, priority_tagged, qinq, station, tagged};
use lockgate_tests::lab::RawLab;
use lockgate_tests::netns::Netns;
use lockgate_tests::packet_socket::PacketSocket;
use lockgate_tests::require;
use lockgate_tests::rig::{Rig, ids};
use lockgate_tests::switch::Switch;
use lockgate_tests::traffic::{Load, Transfer};
use parking_lot::Mutex;

/// The tests share two cores: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

const A: PortId = PortId(0);
const B: PortId = PortId(1);
const C: PortId = PortId(2);
const NOW: Instant = Instant::ZERO;
const SERVICE_TPID: u16 = 0x88a8;

/// A switch over memory ports with the groups and ports of a topology file.
fn rig(groups: &str, ports: &[(&str, &str)]) -> Rig {
    let ports: String = (0..)
        .zip(ports)
        .map(|(at, (group, settings))| format!("  p{at}: {{ group: {group}, netdev: tap{at}{settings} }}\n"))
        .collect();
    let text = format!("version: 1\n{groups}\nports:\n{ports}");
    let topology = config::parse("field.yaml", &text).unwrap_or_else(|report| panic!("{report}")).topology;
    Rig::new(compile::compile(&topology, &[], 1), PoolSize { small: 4096, large: 16 }, 1500)
}

fn udp(to: u8, from: u8) -> Vec<u8> {
    frames::ipv4_udp(station(to), station(from), 0, SHORTEST)
}

/// What each port received of `frame`, sent at `port`.
fn fate(rig: &mut Rig, now: Instant, port: PortId, frame: Vec<u8>) -> Vec<Vec<Vec<u8>>> {
    rig.send(port, frame);
    rig.settle(now);
    let ports: Vec<_> = ids(rig.state()).collect();
    ports.iter().map(|port| rig.take_all(*port).into_iter().map(|packet| packet.bytes).collect()).collect()
}

fn receivers(rig: &mut Rig, now: Instant, port: PortId, frame: Vec<u8>) -> Vec<usize> {
    let all = fate(rig, now, port, frame);
    (0..).zip(all).filter(|(_, frames)| !frames.is_empty()).map(|(at, _)| at).collect()
}

#[test]
fn a_moved_host_is_reached_at_once_and_a_slot_used_again_inherits_nothing() {
    let learning = ("lan", ", learn: 10");
    let mut rig = rig("port_groups: { lan: {} }", &[learning; 3]);
    receivers(&mut rig, NOW, B, frames::gratuitous_arp(station(2)));
    assert_eq!(receivers(&mut rig, NOW, A, udp(2, 1)), [1], "known behind b");
    rig.detach(B);
    rig.settle(NOW);
    // Nobody spoke since: the next frame is flooded and reaches the host wherever it is now.
    assert_eq!(receivers(&mut rig, NOW, A, udp(2, 1)), [2]);
    assert_eq!(receivers(&mut rig, NOW, C, udp(1, 2)), [0], "the answer");
    assert_eq!(receivers(&mut rig, NOW, A, udp(2, 1)), [2], "known behind c");
    rig.attach(B);
    assert_eq!(receivers(&mut rig, NOW, A, udp(2, 1)), [2], "what is new in the slot has no old addresses");
    assert_eq!(receivers(&mut rig, NOW, B, frames::gratuitous_arp(station(2))), [0, 2]);
    assert_eq!(receivers(&mut rig, NOW, A, udp(2, 1)), [1], "a clean move counts from its first frame on");
    assert_eq!(receivers(&mut rig, NOW, C, udp(2, 3)), [1]);
}

#[test]
fn a_priority_tag_is_no_vlan_whatever_its_priority() {
    let mut rig = rig(
        "classes: { voice: { match: [{ pcp: 5 }, { pcp: 7 }], strict: true } }\n\
         port_groups: { plain: { vlan: 10 }, native: { trunk: [10, 20], native: 20 }, twenty: { vlan: 20 }, trunk: { trunk: [10, 20] } }",
        &[
            ("plain", ", learn: 9"),
            ("native", ", learn: 9"),
            ("twenty", ", learn: 9"),
            ("trunk", ", learn: 9"),
            ("plain", ", learn: 9"),
        ],
    );
    for pcp in [0, 5, 7] {
        let frame = frames::arp_request(station(1));
        let received = fate(&mut rig, NOW, A, priority_tagged(pcp, &frame));
        // Untagged on access ports, with the VLAN it belongs to on trunks: the same for every priority.
        assert_eq!(received[4], std::slice::from_ref(&frame), "priority {pcp}");
        assert_eq!(received[3], [tagged(pcp, 10, &frame)], "priority {pcp}");
        assert_eq!(received[1], [tagged(pcp, 10, &frame)], "priority {pcp}");
        assert!(received[2].is_empty());
        let frame = frames::arp_request(station(2));
        let received = fate(&mut rig, NOW, B, priority_tagged(pcp, &frame));
        assert_eq!(received[2], std::slice::from_ref(&frame), "priority {pcp}, into the native VLAN");
        assert_eq!(received[3], [tagged(pcp, 20, &frame)], "priority {pcp}");
        assert!(received[0].is_empty() && received[4].is_empty());
    }
    assert!(ids(rig.state()).all(|port| rig.all_drops(port, Direction::Ingress) == 0));
}

#[test]
fn the_priority_of_a_priority_tag_chooses_the_queue() {
    let mut rig = rig(
        "classes: { voice: { match: [{ pcp: 5 }], strict: true } }\n\
         port_groups: { lan: {}, slow: { shaping: { port: { egress: { average: 1 Mbit/s, burst: 9 KiB } } } } }",
        &[("lan", ", mac: \"02:00:00:00:00:01\""), ("slow", ", mac: \"02:00:00:00:00:02\"")],
    );
    // The burst is spent, and some of these wait.
    for _ in 0..10 {
        rig.send(A, frames::ipv4_udp(station(2), station(1), 0, 1514));
    }
    rig.settle(NOW);
    let waiting = rig.take_all(B).len();
    assert!((1..10).contains(&waiting), "{waiting} left at once");
    rig.send(A, priority_tagged(5, &udp(2, 1)));
    rig.settle(NOW);
    let mut now = NOW;
    while rig.peer(B).waiting() == 0 {
        now = rig.next_deadline().expect("frames wait");
        rig.settle(now);
    }
    assert_eq!(rig.take_all(B)[0].bytes, udp(2, 1), "it overtakes what waited before it");
    rig.settle(now);
}

/// A customer's frames cross a VLAN of the switch as they are: plain, or with service tags, however many tags are in them.
#[test]
fn what_is_inside_the_outer_tag_comes_out_as_it_went_in() {
    let mut rig = rig(
        "port_groups: { customer: { vlan: 100 }, trunk: { trunk: [100, 200] } }",
        &[
            ("customer", ", learn: 9"),
            ("trunk", ", learn: 9"),
            ("customer", ", learn: 9"),
            ("trunk", ", learn: 9"),
        ],
    );
    let plain = frames::arp_request(station(1));
    let three = qinq(300, 10, &tagged(2, 20, &plain));
    for frame in [plain.clone(), qinq(10, 20, &plain), qinq(100, 100, &plain), three.clone()] {
        let received = fate(&mut rig, NOW, A, frame.clone());
        let on_the_trunk = tagged(0, 100, &frame);
        assert_eq!(received[1], std::slice::from_ref(&on_the_trunk));
        assert_eq!(received[3], std::slice::from_ref(&on_the_trunk));
        assert_eq!(received[2], std::slice::from_ref(&frame));
        // And back, byte for byte. The source moves to the trunk and back with it.
        let received = fate(&mut rig, NOW, B, on_the_trunk);
        assert_eq!(received[0], std::slice::from_ref(&frame));
        assert_eq!(received[2], [frame]);
    }
    // Between trunks inner tags are payload, also one that repeats the outer one.
    for inner in [tagged(1, 100, &plain), tagged(1, 7, &tagged(2, 100, &plain)), three] {
        let frame = tagged(6, 100, &inner);
        assert_eq!(fate(&mut rig, NOW, B, frame.clone())[3], [frame]);
    }
    let drops =
        |rig: &Rig, direction| ids(rig.state()).map(|port| rig.all_drops(port, direction)).sum::<u64>();
    assert_eq!(
        [drops(&rig, Direction::Ingress), drops(&rig, Direction::Egress)],
        [0, 0],
        "nothing delivered counts as dropped"
    );
    // A customer's own 802.1Q tag is refused and counted: an access port is in one VLAN.
    for tag in [10, 100] {
        assert_eq!(receivers(&mut rig, NOW, A, tagged(0, tag, &plain)), [0_usize; 0]);
    }
    assert_eq!(rig.drops(A, Direction::Ingress, DropReason::VlanNotAllowed), 2);
}

/// Frames that claim what they do not have. Each is for station 2 or for all, from station 1.
fn odd_frames() -> Vec<Vec<u8>> {
    let mut odd = Vec::new();
    for ethertype in [0x0800, 0x86dd, 0x0806, 0x8100, SERVICE_TPID, 0x8847, 0xffff] {
        for length in 0..=19 {
            for first in [0x00, 0x45, 0x4f, 0x60, 0xff] {
                odd.push(ethernet(station(2), station(1), ethertype, &vec![first; length]));
            }
        }
    }
    let datagram = frames::ipv4_udp(station(2), station(1), 0, 200);
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = datagram.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    // Header lengths, total lengths and UDP lengths beyond the frame and short of the header.
    odd.extend([0x40, 0x41, 0x4f, 0x55, 0xf5].map(|first| with(14, &[first])));
    odd.extend([0_u16, 19, 20, 187, 1500, 65535].map(|length| with(16, &length.to_be_bytes())));
    odd.extend([0_u16, 7, 8, 167, 65535].map(|length| with(38, &length.to_be_bytes())));
    // Protocols with nothing behind the header, and a chain of extension headers that goes on for ever.
    odd.extend([6, 17, 132].map(|protocol| with(23, &[protocol])[..34].to_vec()));
    let mut chain = ethernet(
        station(2),
        station(1),
        0x86dd,
        &[&[0x60, 0, 0, 0, 0, 100, 0, 64][..], &[0; 32], &[0; 100]].concat(),
    );
    odd.push(chain.clone());
    chain[18..20].copy_from_slice(&[0xff, 0xff]);
    odd.push(chain);
    // 802.3: a length where the type should be, right, short and wrong, and with more behind it than a frame holds.
    for length in [0, 3, 38, 46, 100, 1500] {
        odd.push(ethernet(station(2), station(1), length, &[0x42, 0x42, 3, 0, 0].repeat(10)));
    }
    // Tags upon tags, the last cut off.
    for count in 1..=40 {
        let mut frame = ethernet(station(2), station(1), 0x0800, &[0x45; 40]);
        for _ in 0..count {
            frame = tagged(0, 10, &frame);
        }
        odd.push(frame[..(14 + 4 * count).min(frame.len()) - 1].to_vec());
        odd.push(frame);
    }
    odd.extend((0..14).map(|length| vec![0xff; length]));
    odd
}

#[test]
fn malformed_and_tiny_frames_are_forwarded_as_they_are_or_counted() {
    for groups in ["port_groups: { lan: {} }", "port_groups: { lan: { trunk: [1-4094], native: 1 } }"] {
        let mut rig = rig(groups, &[("lan", ", learn: 9"), ("lan", ", learn: 9"), ("lan", ", learn: 9")]);
        for frame in odd_frames() {
            let dropped = rig.all_drops(A, Direction::Ingress) + rig.all_drops(B, Direction::Egress);
            let before = dropped + rig.all_drops(C, Direction::Egress);
            let received = fate(&mut rig, NOW, A, frame.clone());
            let copies = received[1].len() + received[2].len();
            let dropped = rig.all_drops(A, Direction::Ingress) + rig.all_drops(B, Direction::Egress);
            let dropped = dropped + rig.all_drops(C, Direction::Egress) - before;
            assert!(
                copies as u64 + dropped >= 1 && copies <= 2,
                "{copies} copies, {dropped} drops: {frame:02x?}"
            );
            for copy in received[1].iter().chain(&received[2]) {
                // As it came, but for a tag of its own VLAN.
                let untagged = [&frame[..12], frame.get(16..).unwrap_or_default()].concat();
                assert!(*copy == frame || *copy == untagged, "{frame:02x?} became {copy:02x?}");
            }
        }
        // Unknown payloads pass unchanged.
        let unknown = ethernet(station(2), station(1), 0x88b6, &[7; 46]);
        assert_eq!(fate(&mut rig, NOW, A, unknown.clone())[1], [unknown]);
        assert_eq!(rig.drain(NOW), 0, "every buffer is home");
    }
}

#[test]
fn malformed_and_tiny_frames_harm_no_port_of_any_kind() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = RawLab::new(&[("veth", "lan"), ("tap", "lan"), ("trunk", "trunk")]);
    let (switch, far) = lab.start("  lan: { vlan: 10 }\n  trunk: { trunk: [10-20] }");
    for (number, port) in (1..).zip(&far) {
        for mut frame in odd_frames().into_iter().filter(|frame| (14..1514).contains(&frame.len())) {
            frame[..12].copy_from_slice(&[station(3 - number % 2).0, station(number).0].concat());
            port.socket.send(&frame);
        }
    }
    let plain = frames::arp_request(station(1));
    far[0].socket.send(&plain);
    let is_plain = |frame: &[u8]| frame == plain;
    assert!(far[1].socket.receive_where(lockgate_tests::lab::ARRIVAL, is_plain).is_some(), "it goes on");
    switch.assert_sound();
    let ended = switch.stop(nix::sys::signal::Signal::SIGTERM);
    assert!(ended.status.success(), "{}", ended.log);
}

/// A port that speaks from a million addresses fills neither memory nor the table, floods nobody else's traffic and is
/// over when it stops.
#[test]
fn a_flood_of_addresses_is_bounded_and_forgotten() {
    let mut rig = rig(
        "switch: { mac_table: { size: 1000, age: 300 s } }\nport_groups: { lan: {}, lab: {} }",
        &[
            ("lan", ", mac: \"02:00:00:00:00:01\""),
            ("lan", ", mac: \"02:00:00:00:00:02\""),
            ("lab", ", learn: 900"),
            ("lab", ", learn: 50"),
        ],
    );
    let (attacker, d) = (PortId(2), PortId(3));
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut now = NOW;
    for round in 0..1000 {
        for _ in 0..100 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let mut mac = MacAddr(seed.to_le_bytes()[..6].try_into().unwrap());
            mac.0[0] = mac.0[0] & 0xfe | 2;
            rig.send(attacker, frames::ipv4_udp(station(1), mac, 0, SHORTEST));
        }
        now += Nanos::from_millis(1);
        rig.settle(now);
        ids(rig.state()).for_each(|port| drop(rig.take_all(port)));
        if round % 100 == 0 {
            assert_eq!(receivers(&mut rig, now, A, udp(2, 1)), [1], "known traffic stays where it belongs");
            assert_eq!(receivers(&mut rig, now, d, udp(1, 100)), [0], "a new host is not cut off");
            assert_eq!(receivers(&mut rig, now, A, udp(100, 1)), [3], "and is found");
        }
    }
    let refused = rig.drops(attacker, Direction::Ingress, DropReason::LearnLimit);
    assert!(refused >= 99_000, "{refused} of 100 000 were over the port's limit");
    now += Nanos::from_secs(301);
    rig.rounds(now, 100);
    assert_eq!(receivers(&mut rig, now, attacker, udp(1, 77)), [0], "learned again");
    assert_eq!(receivers(&mut rig, now, A, udp(77, 1)), [2]);
    assert_eq!(rig.drain(now), 0);
}

/// A bridge joins two of its ports, and one broadcast of its own goes round for ever: what else the switch does goes on,
/// and it is over when the loop is cut.
#[test]
fn a_storm_leaves_the_switch_answering_and_ends_with_its_loop() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Looped::new();
    let switch = lab.start();
    assert_eq!(lab.a.ping("10.77.0.2".parse().unwrap(), 2, 56).len(), 2);
    let received = || switch.metric("lockgate_flow_received_frames_total");
    lab.broadcast();
    let before = received();
    std::thread::sleep(Duration::from_secs(1));
    let frames = received() - before;
    println!("{frames} frames in a second of the storm");
    assert!(frames > 1.0, "there is a storm, or the loop is not one");
    for _ in 0..5 {
        let watch = Stopwatch::start();
        switch.metrics();
        assert!(watch.elapsed() < Duration::from_secs(1), "a scrape took {:?}", watch.elapsed());
    }
    let load = Load::Udp { bits_per_second: 10_000_000 };
    let report = Transfer::start(&lab.a, &lab.b, "10.77.0.2".parse().unwrap(), load, 2).finish();
    assert!(report.received_bytes > 10_000_000 / 8, "half of what was offered: {report:?}");
    lab.bridge.ip("link set l1 nomaster");
    let watch = Stopwatch::start();
    eventually("quiet", Duration::from_secs(2), || {
        let before = received();
        let replies = lab.a.ping("10.77.0.2".parse().unwrap(), 3, 56).len();
        (replies == 3 && received() - before < 100.0).then_some(())
    });
    println!("quiet {:?} after the cut", watch.elapsed());
    switch.assert_sound();
}

/// Two hosts and a third namespace that bridges its two ports.
struct Looped {
    host: Netns,
    a: Netns,
    b: Netns,
    bridge: Netns,
}

impl Looped {
    fn new() -> Self {
        let lab = Self {
            host: Netns::new().without_ipv6(),
            a: Netns::new().without_ipv6(),
            b: Netns::new().without_ipv6(),
            bridge: Netns::new().without_ipv6(),
        };
        lab.bridge.ip("link add br0 type bridge");
        lab.bridge.ip("link set br0 up");
        lab
    }

    fn start(&self) -> Switch<'_> {
        let port = |name: &str, netns: &Netns, interface: &str, rest: &str| {
            format!(
                "  {name}: {{ group: lan, veth: {{ netns: {}, interface: {interface}{rest} }} }}\n",
                netns.name()
            )
        };
        let mut ports = [
            port("a", &self.a, "eth0", ", address: 10.77.0.1/24"),
            port("b", &self.b, "eth0", ", address: 10.77.0.2/24"),
        ]
        .concat();
        for name in ["l0", "l1"] {
            let netns = self.bridge.name();
            ports += &format!("  {name}: {{ group: loop, veth: {{ netns: {netns}, interface: {name} }} }}\n");
        }
        let switch = Switch::start(
            &self.host,
            &format!("port_groups: {{ lan: {{ vlan: 10 }}, loop: {{ vlan: 10 }} }}\nports:\n{ports}"),
        );
        for name in ["l0", "l1"] {
            self.bridge.ip(&format!("link set {name} master br0"));
        }
        switch
    }

    /// One broadcast from the bridge's own address, which is that of one of its ports, so that the port may send it.
    fn broadcast(&self) {
        let text = self.bridge.run("cat /sys/class/net/br0/address");
        let from: MacAddr = text.trim().parse().unwrap();
        PacketSocket::bind(&self.bridge, "br0").send(&ethernet(MacAddr::BROADCAST, from, 0x88b5, &[0; 46]));
    }
}

/// Two stations with one address, both speaking in turn: it is behind the one that spoke last, each move is
/// counted, and nobody else loses a frame.
#[test]
fn an_address_on_two_ports_follows_who_spoke_last_and_disturbs_nobody() {
    let learning = ("lan", ", learn: 10");
    let pinned = |number| ["", ", mac: \"02:00:00:00:00:01\"", ", mac: \"02:00:00:00:00:02\""][number];
    let mut rig =
        rig("port_groups: { lan: {} }", &[("lan", pinned(1)), ("lan", pinned(2)), learning, learning]);
    let (c, d) = (C, PortId(3));
    let mut now = NOW;
    for round in 0..100 {
        let (speaker, at) = if round % 2 == 0 { (c, 2) } else { (d, 3) };
        rig.send(speaker, udp(2, 9));
        rig.send(A, udp(2, 1));
        // No faster than a machine can be moved.
        now += Nanos::from_millis(400);
        rig.settle(now);
        assert_eq!(rig.take_all(B).len(), 2, "round {round}: both frames for b");
        assert_eq!(receivers(&mut rig, now, A, udp(9, 1)), [at], "round {round}: behind who spoke last");
    }
    assert_eq!(receivers(&mut rig, now, c, udp(2, 9)), [1]);
    assert_eq!(receivers(&mut rig, now, B, udp(9, 2)), [2], "a clean move takes one frame");
    // A configured address never moves, however often somebody else claims it.
    for _ in 0..100 {
        rig.send(c, udp(1, 2));
    }
    rig.settle(now);
    rig.take_all(A);
    assert_eq!(receivers(&mut rig, now, A, udp(2, 1)), [1]);
}

/// A port sends from its own addresses and those that are listed for it, as a virtual router's. Everything else is
/// refused, counted, and never moves anybody.
#[test]
fn listed_addresses_may_be_used_and_forged_ones_never_reach_anybody() {
    let (own, router) = (station(1), MacAddr([0, 0, 0x5e, 0, 1, 0x0a]));
    let mut rig = rig(
        "port_groups: { lan: {} }",
        &[
            ("lan", ", mac: [\"02:00:00:00:00:01\", \"00:00:5e:00:01:0a\"]"),
            ("lan", ", mac: \"02:00:00:00:00:02\""),
            ("lan", ", mac: \"02:00:00:00:00:03\""),
        ],
    );
    let to = |to: MacAddr, from: MacAddr| frames::ipv4_udp(to, from, 0, SHORTEST);
    for from in [own, router] {
        assert_eq!(receivers(&mut rig, NOW, A, to(station(2), from)), [1], "{from}");
        assert_eq!(receivers(&mut rig, NOW, B, to(from, station(2))), [0], "and is reached there: {from}");
        assert_eq!(receivers(&mut rig, NOW, A, frames::gratuitous_arp(from)), [1, 2]);
    }
    for from in [station(2), station(9), MacAddr([0, 0, 0x5e, 0, 1, 0x0b])] {
        assert!(receivers(&mut rig, NOW, A, to(station(2), from)).is_empty(), "{from}");
        assert!(receivers(&mut rig, NOW, A, frames::gratuitous_arp(from)).is_empty(), "{from}");
    }
    assert_eq!(rig.drops(A, Direction::Ingress, DropReason::ForgedSource), 6);
    assert_eq!(receivers(&mut rig, NOW, C, to(station(2), station(3))), [1], "b's address is still b's");
}
