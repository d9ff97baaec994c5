//! Who receives what, with raw frames between namespaces through the daemon.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_tests::clock::eventually;
use lockgate_tests::frames::{ethernet, station, tagged};
use lockgate_tests::lab::{ARRIVAL, RawLab, SILENCE, broadcast, foreign_veth, tag_on_the_way_out, unicast};
use lockgate_tests::netns::Netns;
use lockgate_tests::packet_socket::{TEST_ETHERTYPE, is_from, is_test_frame};
use lockgate_tests::require;
use lockgate_tests::switch::Switch;
use nix::sys::socket::{setsockopt, sockopt};
use parking_lot::Mutex;

/// The tests share two cores: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// How a VLAN travels on a port, or that the port does not carry it.
#[derive(Clone, Copy)]
enum Form {
    Untagged,
    Tagged,
}

#[test]
fn frames_enter_and_leave_vlans_as_the_table_says() {
    use Form::{Tagged, Untagged};
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let ports = ["access10", "access20", "native", "strict", "plain", "plain2"];
    let groups = ["ten", "twenty", "native", "strict", "plain", "plain"];
    let lab = RawLab::new(&ports.into_iter().zip(groups).collect::<Vec<_>>());
    let (switch, far) = lab.start(
        "  ten: { vlan: 10 }\n  twenty: { vlan: 20 }\n  native: { trunk: [10, 20], native: 10 }\n  \
         strict: { trunk: [10, 20] }\n  plain: {}",
    );
    // The VLAN inside the switch of a frame with this tag, by ingress port: None where it is refused. A port without a
    // VLAN setting is in a VLAN that no other group of this topology has.
    const PLAIN: u16 = 1;
    let entering: [(Option<u16>, [Option<u16>; 5]); 6] = [
        (None, [Some(10), Some(20), Some(10), None, Some(PLAIN)]),
        (Some(0), [Some(10), Some(20), Some(10), None, Some(PLAIN)]),
        (Some(10), [None, None, None, Some(10), None]),
        (Some(20), [None, None, Some(20), Some(20), None]),
        (Some(30), [None, None, None, None, None]),
        (Some(4095), [None, None, None, None, None]),
    ];
    let leaving = |port: &str, vlan: u16| match (port, vlan) {
        ("access10", 10) | ("access20", 20) | ("native", 10) | ("plain" | "plain2", PLAIN) => Some(Untagged),
        ("native", 20) | ("strict", 10 | 20) => Some(Tagged),
        _ => None,
    };
    let mut number = 0;
    for (tag, vlans) in entering {
        for (ingress, vlan) in (0..).zip(vlans) {
            number += 1;
            let from = &far[usize::from(ingress)];
            let plain = broadcast(ingress + 1, number);
            const PCP: u8 = 5;
            let refused = switch.dropped(from.name, "ingress", "vlan");
            from.socket.send(&tag.map_or(plain.clone(), |vlan| tagged(PCP, vlan, &plain)));
            for egress in &far {
                let wanted = vlan.filter(|_| egress.name != from.name).and_then(|vlan| {
                    let pcp = if tag.is_some() { PCP } else { 0 };
                    leaving(egress.name, vlan).map(|form| match form {
                        Untagged => plain.clone(),
                        Tagged => tagged(pcp, vlan, &plain),
                    })
                });
                let what = format!("tag {tag:?} from {} to {}", from.name, egress.name);
                match wanted {
                    Some(wanted) => {
                        let frame = egress.socket.receive_where(ARRIVAL, is_test_frame);
                        assert_eq!(frame.map(|frame| frame.bytes), Some(wanted), "{what}");
                    }
                    // Whoever must receive it has done so, or the count below tells that the switch refused it.
                    None => assert_eq!(
                        egress.socket.receive_where(Duration::from_millis(20), is_test_frame),
                        None,
                        "{what}"
                    ),
                }
            }
            let expected = refused + u64::from(vlan.is_none());
            let counted = eventually("the count of refused frames", ARRIVAL, || {
                let now = switch.dropped(from.name, "ingress", "vlan");
                (now >= expected).then_some(now)
            });
            assert_eq!(counted, expected, "tag {tag:?} from {}: refused frames are counted once", from.name);
        }
    }
    switch.assert_sound();
}

#[test]
fn a_second_tag_is_payload_and_opens_no_other_vlan() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = RawLab::new(&[
        ("native", "native"),
        ("strict", "strict"),
        ("access10", "ten"),
        ("access20", "twenty"),
    ]);
    let (switch, far) = lab.start(
        "  native: { trunk: [10, 20], native: 10 }\n  strict: { trunk: [10, 20] }\n  ten: { vlan: 10 }\n  twenty: { vlan: 20 }",
    );
    let [native, strict, access10, access20] = &far[..] else { panic!("four ports") };

    // The classic hop: the outer tag is the native VLAN and would be taken off.
    native.socket.send(&tagged(0, 10, &tagged(0, 20, &broadcast(1, 1))));
    // On a trunk without a native VLAN it is an ordinary frame of VLAN 10.
    let inner = tagged(3, 20, &broadcast(2, 2));
    strict.socket.send(&tagged(0, 10, &inner));

    assert_eq!(access10.received(), [inner]);
    assert!(access20.received().is_empty(), "nothing hops into VLAN 20");
    assert!(strict.received().is_empty());
    assert!(native.received().is_empty(), "where it would be the outer tag");
    assert_eq!(switch.dropped("native", "ingress", "vlan"), 1);
    assert_eq!(switch.dropped("native", "egress", "vlan"), 1);
}

#[test]
fn a_tag_that_a_container_s_kernel_keeps_beside_the_frame_is_not_lost() {
    if !require::root("netns") {
        return;
    }
    let has_clang =
        Command::new("clang").arg("--version").output().is_ok_and(|output| output.status.success());
    if !require::ring_can_run("netns", (!has_clang).then_some("it needs clang")) {
        return;
    }
    let _alone = ALONE.lock();
    let lab = RawLab::new(&[("trunk", "trunk"), ("access1", "one"), ("access100", "hundred")]);
    let (_switch, far) =
        lab.start("  trunk: { trunk: [100], native: 1 }\n  one: { vlan: 1 }\n  hundred: { vlan: 100 }");
    let [trunk, access1, access100] = &far[..] else { panic!("three ports") };
    tag_on_the_way_out(trunk.netns, 100);
    let frame = broadcast(1, 1);
    trunk.socket.send(&frame);
    assert_eq!(access100.received(), [frame]);
    assert!(access1.received().is_empty(), "a frame of VLAN 100 leaked into the native VLAN");
}

#[test]
fn isolated_ports_reach_the_gateway_and_not_each_other() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = RawLab::new(&[("tenant1", "tenants"), ("tenant2", "tenants"), ("gateway", "gateway")]);
    let (switch, far) = lab.start("  tenants: { vlan: 10, isolated: true }\n  gateway: { vlan: 10 }");
    let [tenant1, tenant2, gateway] = &far[..] else { panic!("three ports") };

    tenant1.socket.send(&broadcast(1, 1));
    tenant1.socket.send(&unicast(1, station(2)));
    tenant1.socket.send(&unicast(1, station(3)));
    assert_eq!(gateway.received(), [broadcast(1, 1), unicast(1, station(3))]);
    assert!(tenant2.received().is_empty());
    assert_eq!(switch.dropped("tenant1", "ingress", "isolated"), 1);

    gateway.socket.send(&broadcast(3, 2));
    for tenant in [tenant1, tenant2] {
        assert_eq!(tenant.received(), [broadcast(3, 2)]);
    }
}

#[test]
fn no_frame_comes_back_to_its_port_of_origin() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    // With learning too: then unknown addresses are flooded.
    for group in ["lan: {}", "lan: { learn: true }"] {
        let lab = RawLab::new(&[("a", "lan"), ("b", "lan")]);
        let (_switch, far) = lab.start(&format!("  {group}"));
        let [a, b] = &far[..] else { panic!("two ports") };
        let (unknown, multicast) = (station(77), MacAddr([0x01, 0, 0x5e, 0, 0, 0xfb]));
        for to in [MacAddr::BROADCAST, multicast, unknown, station(2), station(1)] {
            a.socket.send(&unicast(1, to));
        }
        assert!(!b.received().is_empty());
        let own = a.socket.receive_all(SILENCE, is_from(station(1)));
        assert!(own.is_empty(), "{group}: own frames came back: {own:02x?}");
    }
}

#[test]
fn duplicate_address_detection_finds_no_duplicate() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let (host, a, b, c) = (Netns::new(), Netns::new(), Netns::new(), Netns::new());
    let port = |name: &str, netns: &Netns, kind: &str| {
        let netns = netns.name();
        format!(
            "  {name}: {{ group: lan, {kind}: {{ netns: {netns}, interface: eth0, address: \"fd77::{name}/64\" }} }}\n"
        )
    };
    let ports = [port("a", &a, "veth"), port("b", &b, "veth"), port("c", &c, "tap")].concat();
    let switch = Switch::start(&host, &format!("port_groups: {{ lan: {{}} }}\nports:\n{ports}"));
    for netns in [&a, &b, &c] {
        netns.wait_for_ipv6("eth0");
        let states = netns.ipv6_states("eth0");
        assert!(states.len() >= 2 && states.iter().all(|state| !state.duplicate), "{states:?}");
    }
    // It works at all: a second owner of an address is found.
    b.ip("addr add fd77::a/64 dev eth0");
    eventually("the duplicate to be found", Duration::from_secs(5), || {
        b.ipv6_states("eth0").iter().any(|state| state.duplicate).then_some(())
    });
    drop(switch);
}

#[test]
fn a_forged_source_is_refused_and_counted() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = RawLab::new(&[("a", "lan"), ("b", "lan")]);
    let (switch, far) = lab.start("  lan: {}");
    let [a, b] = &far[..] else { panic!("two ports") };
    a.socket.send(&ethernet(station(2), station(9), TEST_ETHERTYPE, &[0; 46]));
    a.socket.send(&ethernet(station(2), station(2), TEST_ETHERTYPE, &[0; 46]));
    a.socket.send(&ethernet(station(2), MacAddr::BROADCAST, TEST_ETHERTYPE, &[0; 46]));
    a.socket.send(&unicast(1, station(2)));
    assert_eq!(b.received(), [unicast(1, station(2))]);
    assert_eq!(switch.dropped("a", "ingress", "forged_source"), 2);
    assert_eq!(switch.dropped("a", "ingress", "invalid_source"), 1);
    // Nor did the forged ones move anybody's address.
    b.socket.send(&unicast(2, station(1)));
    assert_eq!(a.received(), [unicast(2, station(1))]);
}

#[test]
fn unknown_destinations_are_not_leaked_to_ports_with_known_addresses() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = RawLab::new(&[("a", "lan"), ("b", "lan"), ("learning", "lab")]);
    let (switch, far) = lab.start("  lan: { vlan: 10 }\n  lab: { vlan: 10, learn: 4 }");
    let [a, b, learning] = &far[..] else { panic!("three ports") };
    a.socket.send(&unicast(1, station(77)));
    assert_eq!(learning.received(), [unicast(1, station(77))]);
    assert!(b.received().is_empty());
    drop(switch);

    let lab = RawLab::new(&[("a", "lan"), ("b", "lan")]);
    let (switch, far) = lab.start("  lan: { vlan: 10 }");
    far[0].socket.send(&unicast(1, station(77)));
    assert!(far[1].received().is_empty());
    assert_eq!(switch.dropped("a", "ingress", "unknown_unicast"), 1);
}

#[test]
fn link_local_control_frames_stay_and_other_groups_are_flooded() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = RawLab::new(&[("a", "lan"), ("b", "lan")]);
    let (switch, far) = lab.start("  lan: {}");
    let [a, b] = &far[..] else { panic!("two ports") };
    for last in 0..=0x0f {
        a.socket.send(&unicast(1, MacAddr([0x01, 0x80, 0xc2, 0, 0, last])));
    }
    // GARP's range, and a vendor's discovery protocol.
    let passing =
        [[0x01, 0x80, 0xc2, 0, 0, 0x20], [0x01, 0, 0x0c, 0xcc, 0xcc, 0xcc]].map(|to| unicast(1, MacAddr(to)));
    passing.iter().for_each(|frame| a.socket.send(frame));
    assert_eq!(b.received(), passing);
    assert_eq!(switch.dropped("a", "ingress", "link_local_control"), 16);
}

#[test]
fn every_queue_of_a_foreign_veth_is_served() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    const FLOWS: u16 = 400;
    let (host, a, b) =
        (Netns::new().without_ipv6(), Netns::new().without_ipv6(), Netns::new().without_ipv6());
    let queues = "numrxqueues 4 numtxqueues 4";
    for (netns, near, address) in [(&a, "near-a", "10.77.0.1/24"), (&b, "near-b", "10.77.0.2/24")] {
        foreign_veth(&host, near, queues, netns, address);
    }
    let switch = Switch::start(
        &host,
        "port_groups: { lan: {} }\nports:\n  a: { group: lan, netdev: near-a, steering: xdp }\n  b: { group: lan, netdev: near-b, steering: xdp }\n",
    );
    assert_eq!(a.ping("10.77.0.2".parse().unwrap(), 1, 56).len(), 1);
    for (from, to, address) in [(&a, &b, "10.77.0.2:7777"), (&b, &a, "10.77.0.1:7777")] {
        let address: SocketAddr = address.parse().unwrap();
        let receiver = to.inside(|| UdpSocket::bind(address).unwrap());
        receiver.set_read_timeout(Some(ARRIVAL)).unwrap();
        // It is read when all are sent.
        setsockopt(&receiver, sockopt::RcvBufForce, &(usize::from(FLOWS) * 16384)).unwrap();
        from.inside(|| {
            for _ in 0..FLOWS {
                let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
                let port = socket.local_addr().unwrap().port();
                socket.send_to(&port.to_be_bytes(), address).unwrap();
            }
        });
        let mut buffer = [0; 2];
        let arrived = (0..FLOWS).take_while(|_| receiver.recv_from(&mut buffer).is_ok()).count();
        assert_eq!(arrived, usize::from(FLOWS), "to {address}");
    }
    // All of that would hold too if the kernel had put every flow on one queue.
    let page = switch.metrics();
    let series = |line: &str| line.starts_with("lockgate_xsk_rx_dropped_total{port=\"a\"");
    let queues: BTreeSet<&str> = page.lines().filter(|line| series(line)).collect();
    assert_eq!(queues.len(), 4, "a socket for each queue");
    switch.assert_sound();
}
