//! Ports steered by tc: foreign veths with every offload at its default, whole super-frames, tags, and nothing left behind.

use std::net::IpAddr;
use std::time::Duration;

use aya::programs::{SchedClassifier, TcAttachType};
use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_tests::frames::{ethernet, qinq, tagged};
use lockgate_tests::netns::Netns;
use lockgate_tests::packet_socket::{PacketSocket, TEST_ETHERTYPE};
use lockgate_tests::require;
use lockgate_tests::switch::Switch;
use lockgate_tests::traffic::{Load, Transfer};
use nix::sys::signal::Signal;
use parking_lot::Mutex;

/// The tests share two cores: one at a time.
static ALONE: Mutex<()> = Mutex::new(());
const ARRIVAL: Duration = Duration::from_secs(2);

/// Two containers whose veths somebody else made.
struct Lab {
    host: Netns,
    far: [Netns; 2],
}

impl Lab {
    fn new(mtu: u32) -> Self {
        let lab = Self { host: Netns::new(), far: [Netns::new(), Netns::new()] };
        for (netns, number) in lab.far.iter().zip(1..) {
            lab.host.ip(&format!(
                "link add v{number} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {}",
                netns.name()
            ));
            lab.host.ip(&format!("link set v{number} up"));
            netns.ip(&format!("link set eth0 address {} up", mac(number)));
            netns.ip(&format!("addr add 10.78.0.{number}/24 dev eth0"));
            netns.ip(&format!("addr add fd78::{number}/64 dev eth0 nodad"));
        }
        lab
    }

    fn start(&self, group: &str) -> Switch<'_> {
        let ports =
            "  a: { group: lan, netdev: v1, steering: tc }\n  b: { group: lan, netdev: v2, steering: tc }\n";
        let switch = Switch::start(&self.host, &format!("port_groups: {{ lan: {group} }}\nports:\n{ports}"));
        for port in switch.ports() {
            assert_eq!(port.driver.as_deref(), Some("lane"));
        }
        switch
    }

    fn features(&self) -> [String; 4] {
        let far = |at: usize| self.far[at].run("ethtool -k eth0");
        [far(0), far(1), self.host.run("ethtool -k v1"), self.host.run("ethtool -k v2")]
    }
}

fn mac(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0x78, number])
}

fn addresses(number: u8) -> [IpAddr; 2] {
    [format!("10.78.0.{number}").parse().unwrap(), format!("fd78::{number}").parse().unwrap()]
}

#[test]
fn stacks_with_default_offloads_talk_both_ways_and_super_frames_stay_whole() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new(1500);
    let before = lab.features();
    let switch = lab.start("{ vlan: 10 }");
    for (from, to, number) in [(0, 1, 2), (1, 0, 1)] {
        for address in addresses(number) {
            for load in [Load::Tcp, Load::Udp { bits_per_second: 50_000_000 }] {
                let report = Transfer::start(&lab.far[from], &lab.far[to], address, load, 1).finish();
                assert!(report.received_bytes > 3_000_000, "{load:?} to {address}: {report:?}");
            }
        }
    }
    let refused: u64 = lab.far.iter().map(Netns::refused_packets).sum();
    assert_eq!(refused, 0, "packets refused for a checksum or a header");
    // Bytes of the wire against frames of the switch: far more than a packet of the MTU each.
    let port = switch.port("b");
    let whole = switch.metric("lockgate_flow_received_frames_total");
    #[expect(clippy::cast_precision_loss, reason = "a few seconds' worth")]
    let on_the_wire = (port.ingress.frames + port.egress.frames) as f64;
    assert!(on_the_wire > 3.0 * whole, "{on_the_wire} frames of the wire in {whole}");
    assert_eq!(lab.features(), before, "nobody's offloads were changed");
    switch.assert_sound();
    drop(switch);
    assert_eq!(lab.features(), before);
}

#[test]
fn full_packets_of_mtu_9000_pass_unfragmented() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new(9000);
    let switch = lab.start("{}");
    for (address, headers) in addresses(2).into_iter().zip([28, 48]) {
        assert_eq!(lab.far[0].ping(address, 3, 9000 - headers).len(), 3, "to {address}");
    }
    switch.assert_sound();
}

#[test]
fn every_form_of_tag_passes_a_trunk_byte_for_byte() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new(1500);
    let switch = lab.start("{ trunk: [10, 20], native: 1 }");
    // The kernel moves the first tag out of the bytes before the program sees them. Every form arrives byte for byte; a tag
    // of another VLAN does not.
    let (sender, receiver) =
        (PacketSocket::bind(&lab.far[0], "eth0"), PacketSocket::bind(&lab.far[1], "eth0"));
    let plain = ethernet(mac(2), mac(1), TEST_ETHERTYPE, &[7; 60]);
    let inner = tagged(0, 100, &plain);
    let forms =
        [plain.clone(), tagged(5, 20, &plain), tagged(0, 10, &inner), tagged(3, 20, &tagged(0, 20, &inner))];
    // The stacks there say a word of IPv6 now and then.
    let is_ours = |bytes: &[u8]| bytes.ends_with(&[7; 60]);
    for frame in &forms {
        sender.send(frame);
        let arrived = receiver.receive_where(ARRIVAL, is_ours);
        assert_eq!(arrived.map(|frame| frame.bytes).as_deref(), Some(&frame[..]));
    }
    for refused in [tagged(0, 30, &plain), qinq(10, 20, &plain)] {
        sender.send(&refused);
    }
    assert!(receiver.receive_all(Duration::from_millis(300), is_ours).is_empty());
    let refusals = switch.dropped("a", "ingress", "vlan")
        + switch.dropped("a", "egress", "vlan")
        + switch.dropped("b", "egress", "vlan");
    assert!(refusals >= 2, "{refusals} refused for their VLAN");
    assert!(switch.metrics().contains("lockgate_lane_frames_total{outcome=\"to_tagged_lane\"}"));
    switch.assert_sound();
}

#[test]
fn killed_it_leaves_neither_programs_nor_lanes() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new(1500);
    let interfaces = lab.host.interfaces();
    let switch = lab.start("{}");
    assert_eq!(lab.host.interfaces().len(), interfaces.len() + 2, "one lane of two interfaces");
    assert_eq!(programs(&lab.host), 3, "one on each port and one on the lane");
    switch.stop(Signal::SIGKILL);
    assert_eq!(lab.host.interfaces(), interfaces);
    assert_eq!(programs(&lab.host), 0);
    // The next one starts as if nothing had been, and stops without a trace.
    let switch = lab.start("{}");
    assert_eq!(lab.far[0].ping(addresses(2)[0], 2, 56).len(), 2);
    assert!(switch.stop(Signal::SIGTERM).status.success());
    assert_eq!((lab.host.interfaces(), programs(&lab.host)), (interfaces, 0));
}

/// tc programs on the interfaces of the namespace.
fn programs(netns: &Netns) -> usize {
    let interfaces = netns.interfaces();
    netns.inside(|| {
        let on = |interface: &String| SchedClassifier::query_tcx(interface, TcAttachType::Ingress);
        interfaces.iter().map(|interface| on(interface).expect("the kernel has TCX").1.len()).sum()
    })
}
