//! Faults of other switches around unfinished checksums, super-frames, MTUs, chunks and tags, tried on ours with every
//! offload at its default.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use lockgate_control::api::types;
use lockgate_dataplane::frame::checksum;
use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::frame::offload::Checksum;
use lockgate_tests::clock::eventually;
use lockgate_tests::frames::{FULL, JUMBO, SHORTEST, ethernet, station, tagged};
use lockgate_tests::lab::{ARRIVAL, Far, RawLab, SILENCE, broadcast, foreign_veth};
use lockgate_tests::netns::Netns;
use lockgate_tests::packet_socket::{PacketSocket, TEST_ETHERTYPE, is_from, is_test_frame};
use lockgate_tests::require;
use lockgate_tests::switch::Switch;
use lockgate_tests::traffic::{Load, Transfer};
use nix::sys::signal::Signal;
use parking_lot::Mutex;

/// The tests share two cores: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Two containers whose veths somebody else made.
struct Containers {
    host: Netns,
    a: Netns,
    b: Netns,
}

impl Containers {
    fn new() -> Self {
        let lab = Self { host: Netns::new(), a: Netns::new(), b: Netns::new() };
        for (netns, near, number) in [(&lab.a, "near-a", 1), (&lab.b, "near-b", 2)] {
            foreign_veth(&lab.host, near, "", netns, &format!("10.77.0.{number}/24"));
            netns.ip(&format!("addr add fd77::{number}/64 dev eth0 nodad"));
        }
        lab
    }

    fn start(&self, settings: &str) -> Switch<'_> {
        Switch::start(
            &self.host,
            &format!(
                "port_groups: {{ lan: {{}} }}\nports:\n  a: {{ group: lan, netdev: near-a{settings} }}\n  \
                 b: {{ group: lan, netdev: near-b{settings} }}\n"
            ),
        )
    }

    fn set_mtu(&self, mtu: u32) {
        for (netns, near) in [(&self.a, "near-a"), (&self.b, "near-b")] {
            self.host.ip(&format!("link set {near} mtu {mtu}"));
            netns.ip(&format!("link set eth0 mtu {mtu}"));
        }
    }
}

#[test]
fn containers_of_others_talk_with_the_offloads_they_came_with() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Containers::new();
    for settings in ["", ", steering: xdp"] {
        let before = [&lab.a, &lab.b].map(|netns| changeable(&netns.run("ethtool -k eth0")));
        let switch = lab.start(settings);
        for (from, to, addresses) in
            [(&lab.a, &lab.b, ["10.77.0.2", "fd77::2"]), (&lab.b, &lab.a, ["10.77.0.1", "fd77::1"])]
        {
            for address in addresses {
                for load in [Load::Tcp, Load::Udp { bits_per_second: 50_000_000 }] {
                    let address: IpAddr = address.parse().unwrap();
                    let report = Transfer::start(from, to, address, load, 1).finish();
                    assert!(
                        report.received_bytes > 3_000_000,
                        "{settings} {load:?} to {address}: {report:?}"
                    );
                }
            }
        }
        assert_eq!([&lab.a, &lab.b].map(Netns::refused_packets), [0, 0], "{settings}");
        let after = [&lab.a, &lab.b].map(|netns| changeable(&netns.run("ethtool -k eth0")));
        assert_eq!(after, before, "{settings}: what a container's owner set stays");
        switch.assert_sound();
    }
}

/// The offloads that are somebody's choice: while an XDP program is attached a veth itself takes others away.
fn changeable(features: &str) -> Vec<String> {
    let chosen = ["tx-checksum", "rx-checksum", "tx-vlan", "rx-vlan", "scatter-gather:"];
    let lines =
        features.lines().map(str::trim).filter(|line| chosen.iter().any(|name| line.starts_with(name)));
    lines.map(str::to_owned).collect()
}

/// Super-frames of TCP, of UDP with segmentation asked for by the application: what arrives fits the MTU, all of it.
#[test]
fn a_super_frame_reaches_a_veth_as_frames_of_its_mtu() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    const SEGMENT: u16 = 1000;
    const SEGMENTS: usize = 32;
    let (host, a, b) = (Netns::new(), Netns::new(), Netns::new());
    let port = |kind: &str, name: &str, netns: &Netns, number: u8| {
        let netns = netns.name();
        format!(
            "  {name}: {{ group: lan, {kind}: {{ netns: {netns}, interface: eth0, address: 10.77.0.{number}/24 }}{} }}\n",
            if kind == "veth" { ", steering: xdp" } else { "" }
        )
    };
    for (from, to) in [("tap", "veth"), ("veth", "veth")] {
        let ports = [port(from, "a", &a, 1), port(to, "b", &b, 2)].concat();
        let switch = Switch::start(&host, &format!("port_groups: {{ lan: {{}} }}\nports:\n{ports}"));
        let capture = PacketSocket::bind(&b, "eth0");
        let report = Transfer::start(&a, &b, "10.77.0.2".parse().unwrap(), Load::Tcp, 1).finish();
        assert!(report.received_bytes > 3_000_000, "{from}: {report:?}");
        // Of a device that reassembles on receipt, as GRO, longer ones would be no surprise. A capture is before that.
        let whole = capture.receive_all(Duration::from_millis(1), |frame| frame.len() > 100);
        assert!(whole.len() > 1000, "{} frames", whole.len());
        let longest = whole.iter().map(Vec::len).max().unwrap();
        assert!(longest <= FULL, "{from} to {to}: {longest} bytes at an MTU of 1500");

        let receiver = b.inside(|| UdpSocket::bind("10.77.0.2:7777").unwrap());
        receiver.set_read_timeout(Some(ARRIVAL)).unwrap();
        a.inside(|| {
            let sender = UdpSocket::bind("10.77.0.1:0").unwrap();
            nix::sys::socket::setsockopt(
                &sender,
                nix::sys::socket::sockopt::UdpGsoSegment,
                &i32::from(SEGMENT),
            )
            .unwrap();
            let payload: Vec<u8> = (0..SEGMENTS)
                .flat_map(|number| vec![u8::try_from(number).unwrap(); SEGMENT.into()])
                .collect();
            sender.send_to(&payload, "10.77.0.2:7777").unwrap();
        });
        let mut buffer = [0; 65536];
        for number in 0..SEGMENTS {
            let length = receiver
                .recv(&mut buffer)
                .unwrap_or_else(|error| panic!("{from}: datagram {number}: {error}"));
            let datagram = &buffer[..length];
            assert!(
                length == usize::from(SEGMENT) && datagram.iter().all(|byte| usize::from(*byte) == number),
                "{from}: {number}"
            );
        }
        assert_eq!(b.refused_packets(), 0);
        switch.assert_sound();
    }
}

/// A device without native XDP leaves its senders' offloads on and hands over their super-frames without a note of it.
#[test]
fn super_frames_pass_a_device_without_native_xdp() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Containers::new();
    lab.host.ip("link add macvlan-a link near-a type macvlan mode passthru");
    lab.host.ip("link set macvlan-a up");
    let switch = Switch::start(
        &lab.host,
        "port_groups: { lan: {} }\nports:\n  a: { group: lan, netdev: macvlan-a, steering: xdp, learn: 10 }\n  \
         b: { group: lan, netdev: near-b, steering: xdp }\n",
    );
    assert_eq!(switch.port("a").xdp_mode.as_deref(), Some("generic"));
    let before = switch.dropped("b", "egress", "mtu_exceeded");
    for (from, to, addresses) in
        [(&lab.a, &lab.b, ["10.77.0.2", "fd77::2"]), (&lab.b, &lab.a, ["10.77.0.1", "fd77::1"])]
    {
        for address in addresses {
            let capture = PacketSocket::bind(to, "eth0");
            let report = Transfer::start(from, to, address.parse().unwrap(), Load::Tcp, 1).finish();
            // Far more than single segments after timeouts would carry.
            assert!(report.received_bytes > 20_000_000, "to {address}: {report:?}");
            let frames = capture.receive_all(Duration::from_millis(1), |frame| frame.len() > 100);
            let longest = frames.iter().map(Vec::len).max().unwrap();
            assert!(longest <= FULL, "to {address}: {longest} bytes at an MTU of 1500");
        }
    }
    assert_eq!(switch.dropped("b", "egress", "mtu_exceeded"), before, "every super-frame was cut up");
    assert!(switch.metric("lockgate_device_super_frames_segmented_total") > 100.0, "there were some");
    assert_eq!([&lab.a, &lab.b].map(Netns::refused_packets), [0, 0]);

    // Where an application's datagrams were to be cut is lost: they are counted.
    lab.a.inside(|| {
        let sender = UdpSocket::bind("10.77.0.1:0").unwrap();
        nix::sys::socket::setsockopt(&sender, nix::sys::socket::sockopt::UdpGsoSegment, &1000).unwrap();
        sender.send_to(&[0; 8000], "10.77.0.2:7777").unwrap();
    });
    eventually("the datagrams to be counted", ARRIVAL, || {
        (switch.dropped("b", "egress", "mtu_exceeded") == before + 1).then_some(())
    });
    switch.assert_sound();
}

#[test]
fn every_mtu_works_from_end_to_end() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Containers::new();
    // Without fragments in the program a veth takes 3506 at most.
    for mtu in [1500, 3500, 3520, 9000] {
        lab.set_mtu(mtu);
        for settings in ["", ", steering: xdp"] {
            let switch = lab.start(settings);
            for (from, to) in [(&lab.a, "10.77.0.2"), (&lab.b, "10.77.0.1")] {
                let replies = from.ping(to.parse().unwrap(), 3, mtu as usize - 28);
                assert_eq!(replies.len(), 3, "MTU {mtu}{settings} to {to}");
            }
            assert_eq!(switch.port("a").mtu_bytes, Some(mtu));
            switch.assert_sound();
        }
    }
}

#[test]
fn frames_of_random_sizes_arrive_whole_leave_no_piece_behind_and_give_their_buffers_back() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let frames = if std::env::var_os("LOCKGATE_LONG").is_some() { 200_000 } else { 10_000 };
    let lab = Containers::new();
    lab.set_mtu(9000);
    let switch = lab.start(", steering: xdp");
    let address = |netns: &Netns| {
        let text = netns.run("cat /sys/class/net/eth0/address");
        text.trim().parse::<MacAddr>().unwrap()
    };
    let (from, to) = (address(&lab.a), address(&lab.b));
    let (sender, receiver) = (PacketSocket::bind(&lab.a, "eth0"), PacketSocket::bind(&lab.b, "eth0"));
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for window in 0..frames / 50 {
        let sent: Vec<Vec<u8>> = (0..50)
            .map(|number| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let length = SHORTEST + usize::try_from(seed % (JUMBO - SHORTEST + 1) as u64).unwrap();
                let mut payload: Vec<u8> =
                    (14..length).map(|at| (at as u64 ^ seed >> (at % 32)).to_le_bytes()[0]).collect();
                payload[0] = number;
                ethernet(to, from, TEST_ETHERTYPE, &payload)
            })
            .collect();
        sent.iter().for_each(|frame| sender.send(frame));
        for (number, frame) in sent.iter().enumerate() {
            let received = receiver.receive_where(ARRIVAL, is_test_frame);
            let received = received
                .unwrap_or_else(|| panic!("window {window}: frame {number} of {} bytes", frame.len()));
            assert!(
                received.bytes == *frame,
                "window {window}: frame {number} of {} bytes differs",
                frame.len()
            );
        }
    }
    let known: Vec<String> =
        switch.show::<types::Fdb>("fdb").entries.into_iter().map(|entry| entry.mac).collect();
    assert!(known.iter().all(|mac| [from, to].map(|mac| mac.to_string()).contains(mac)), "{known:?}");
    switch.assert_sound();
    // It ends with an error if a buffer is missing.
    let ended = switch.stop(Signal::SIGTERM);
    assert!(ended.status.success(), "{}", ended.log);
}

/// Every length from the bare header on, with a tag put on and taken off on the way.
#[test]
fn every_length_passes_with_a_tag_added_and_removed() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    const VLAN: u16 = 10;
    let ports = [("access", "ten"), ("tap", "ten"), ("trunk", "trunk")];
    // Through a lane, a frame that ends with its EtherType is padded, for the same reason as below.
    for (lab, shortest) in [(RawLab::new(&ports).by_xdp(), 14), (RawLab::new(&ports), 16)] {
        every_length_passes(&lab, shortest, VLAN);
    }
}

fn every_length_passes(lab: &RawLab, shortest: usize, vlan: u16) {
    let (switch, far) = lab.start("  ten: { vlan: 10 }\n  trunk: { trunk: [10] }");
    let [access, tap, trunk] = &far[..] else { panic!("three ports") };
    for length in shortest..=FULL {
        let frame = |number: u8| {
            let payload: Vec<u8> = (14..length).map(|at| (at * 7 + length).to_le_bytes()[0]).collect();
            ethernet(MacAddr::BROADCAST, station(number), TEST_ETHERTYPE, &payload)
        };
        let exact = |far: &Far<'_>, from: u8, wanted: &[u8]| {
            let received = far.socket.receive_where(ARRIVAL, is_from(station(from)));
            let received = received.unwrap_or_else(|| panic!("{length} bytes from {from} to {}", far.name));
            assert!(
                received.bytes == wanted,
                "{length} bytes from {from} to {}: {:02x?}",
                far.name,
                received.bytes
            );
        };
        for (number, sender, other) in [(1, access, tap), (2, tap, access)] {
            let plain = frame(number);
            sender.socket.send(&plain);
            exact(other, number, &plain);
            // Linux itself throws a tagged frame away in which nothing follows the tag.
            if length >= 16 {
                exact(trunk, number, &tagged(0, vlan, &plain));
            }
        }
        let plain = frame(3);
        trunk.socket.send(&tagged(0, vlan, &plain));
        exact(access, 3, &plain);
        exact(tap, 3, &plain);
    }
    switch.assert_sound();
}

/// A frame as its sender's stack leaves it, and as the wire must carry it.
struct Case {
    name: &'static str,
    sent: Vec<u8>,
    wire: Vec<u8>,
}

impl Case {
    /// An unfinished checksum is finished on the way.
    fn completed(name: &'static str, outer: &Outer, protocol: u8, payload: &[u8]) -> Self {
        let build =
            |checksum: &dyn Fn(u16, &[u8]) -> u16| outer.frame(&outer.transport(protocol, payload, checksum));
        Self {
            name,
            sent: build(&|pseudo, _| pseudo),
            wire: build(&|_, all| match !sum(all) {
                0 => 0xffff,
                checksum => checksum,
            }),
        }
    }

    /// Nobody's to finish.
    fn untouched(name: &'static str, frame: Vec<u8>) -> Self {
        Self { name, sent: frame.clone(), wire: frame }
    }
}

/// What is around a transport packet.
#[derive(Clone, Default)]
struct Outer {
    tags: Vec<(u16, u16)>,
    ipv6: bool,
    /// Options of IPv4.
    options: Vec<u8>,
    /// Extension headers of IPv6: number and bytes, whose first is filled in.
    extensions: Vec<(u8, Vec<u8>)>,
    padding: usize,
    /// Flags and offset of an IPv4 fragment.
    fragment: u16,
}

impl Outer {
    fn addresses(&self) -> Vec<u8> {
        match self.ipv6 {
            true => [[0xfd; 15].as_slice(), &[1], &[0xfd; 15], &[2]].concat(),
            false => vec![10, 0, 0, 1, 10, 0, 0, 2],
        }
    }

    /// Ports and payload behind a TCP or UDP header; `checksum` is asked with the sum of the pseudo-header and all of it.
    fn transport(&self, protocol: u8, payload: &[u8], checksum: &dyn Fn(u16, &[u8]) -> u16) -> (u8, Vec<u8>) {
        let mut packet = vec![0x30, 0x39, 0x30, 0x3a];
        let field = if protocol == TCP {
            packet.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
            16
        } else {
            let length = u16::try_from(8 + payload.len()).unwrap();
            packet.extend([&length.to_be_bytes()[..], &[0, 0]].concat());
            6
        };
        packet.extend(payload);
        let length = u32::try_from(packet.len()).unwrap().to_be_bytes();
        let pseudo = [&self.addresses(), &length[..], &[0, protocol]].concat();
        let value = checksum(sum(&pseudo), &[&pseudo[..], &packet].concat());
        packet[field..field + 2].copy_from_slice(&value.to_be_bytes());
        (protocol, packet)
    }

    fn frame(&self, (protocol, packet): &(u8, Vec<u8>)) -> Vec<u8> {
        let mut chain = Vec::new();
        let mut first = *protocol;
        for (number, bytes) in self.extensions.iter().rev() {
            chain.splice(0..0, [&[first], &bytes[1..]].concat());
            first = *number;
        }
        let mut ip = if self.ipv6 {
            let length = u16::try_from(chain.len() + packet.len()).unwrap().to_be_bytes();
            [&[0x60, 0, 0, 0], &length[..], &[first, 64], &self.addresses(), &chain].concat()
        } else {
            let header_len = 20 + self.options.len();
            let total = u16::try_from(header_len + packet.len()).unwrap().to_be_bytes();
            let words = u8::try_from(header_len / 4).unwrap();
            let mut header = [
                &[0x40 | words, 0],
                &total[..],
                &[0, 7],
                &self.fragment.to_be_bytes(),
                &[64, *protocol, 0, 0],
            ]
            .concat();
            header.extend([&self.addresses()[..], &self.options].concat());
            let checksum = !sum(&header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            header
        };
        ip.extend(packet);
        ip.extend(vec![0xee; self.padding]);
        let mut frame = ethernet(station(2), station(1), if self.ipv6 { IPV6 } else { IPV4 }, &ip);
        for (tpid, control) in self.tags.iter().rev() {
            frame.splice(12..12, [tpid.to_be_bytes(), control.to_be_bytes()].concat());
        }
        frame
    }
}

/// The ones' complement sum of 16-bit words (RFC 1071), without the code under test.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap()
}

fn cases() -> Vec<Case> {
    const SCTP: u8 = 132;
    const UDP_LITE: u8 = 136;
    const ICMPV6: u8 = 58;
    const IP_IN_IP: u8 = 4;
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const DESTINATION: u8 = 60;
    let v4 = Outer::default;
    let v6 = || Outer { ipv6: true, ..Outer::default() };
    let data: Vec<u8> = (0..120).collect();
    let mut cases = Vec::new();
    for protocol in [TCP, UDP] {
        for (name, outer) in [
            ("IPv4", v4()),
            ("IPv4 with options", Outer { options: vec![1; 40], ..v4() }),
            ("IPv4 with padding", Outer { padding: 6, ..v4() }),
            ("IPv6", v6()),
            (
                "IPv6 with hop-by-hop options",
                Outer { extensions: vec![(HOP_BY_HOP, vec![0, 0, 1, 4, 0, 0, 0, 0])], ..v6() },
            ),
            (
                "IPv6 with three extension headers",
                Outer {
                    extensions: vec![
                        (HOP_BY_HOP, vec![0, 0, 1, 4, 0, 0, 0, 0]),
                        (DESTINATION, vec![0, 0, 1, 4, 0, 0, 0, 0]),
                        // No segments left: the destination is the last one.
                        (ROUTING, [&[0, 2, 2, 0, 0, 0, 0, 0][..], &[0xfd; 16]].concat()),
                    ],
                    padding: 9,
                    ..v6()
                },
            ),
        ] {
            // Odd and even, none at all, and long.
            for payload in [&data[..0], &data[..1], &data[..2], &data[..119], &[0xa5; 1301]] {
                cases.push(Case::completed(name, &outer, protocol, payload));
            }
        }
    }
    // A datagram whose checksum comes out as zero. The payload is chosen for that: it is the complement of the rest.
    let rest = |filler: u16| {
        let (_, packet) = v4().transport(UDP, &filler.to_be_bytes(), &|_, all| !sum(all));
        u16::from_be_bytes([packet[6], packet[7]])
    };
    let zero = (0..=u16::MAX).find(|filler| rest(*filler) == 0).expect("one of them");
    cases.push(Case::completed("UDP whose sum is zero", &v4(), UDP, &zero.to_be_bytes()));
    assert_eq!(cases.last().unwrap().wire[40..42], [0xff, 0xff]);

    let unfinished = |outer: &Outer, protocol| outer.transport(protocol, &data, &|pseudo, _| pseudo).1;
    let first = Outer { fragment: 0x2000, ..v4() };
    let later = Outer { fragment: 0x0010, ..v4() };
    cases.push(Case::untouched("first fragment", first.frame(&(UDP, unfinished(&first, UDP)))));
    cases.push(Case::untouched("later fragment", later.frame(&(UDP, unfinished(&later, UDP)))));
    let fragment = Outer { extensions: vec![(FRAGMENT, vec![0, 0, 0, 9, 0, 0, 0, 1])], ..v6() };
    cases.push(Case::untouched("IPv6 fragment", fragment.frame(&(UDP, unfinished(&fragment, UDP)))));
    for (name, outer, protocol) in [
        ("SCTP", v4(), SCTP),
        ("UDP-Lite", v4(), UDP_LITE),
        ("ICMPv6", v6(), ICMPV6),
        ("unknown protocol", v4(), 253),
    ] {
        cases.push(Case::untouched(name, outer.frame(&(protocol, unfinished(&outer, UDP)))));
    }
    let inner = v4().frame(&v4().transport(UDP, &data, &|pseudo, _| pseudo));
    cases.push(Case::untouched("IP in IP", v4().frame(&(IP_IN_IP, inner[14..].to_vec()))));
    // A tunnel's own checksum is finished, that of the packet inside is bytes.
    let vxlan = [&[8, 0, 0, 0, 0, 0, 1, 0][..], &inner].concat();
    cases.push(Case::completed("VXLAN", &v6(), UDP, &vxlan));
    // Lengths that lie, beyond the frame and short of the header.
    for length in [0_u16, 19, 27, 2000] {
        let mut lying = v4().frame(&(UDP, unfinished(&v4(), UDP)));
        lying[16..18].copy_from_slice(&length.to_be_bytes());
        cases.push(Case::untouched("lying IPv4 length", lying));
    }
    let mut lying = v4().frame(&(UDP, unfinished(&v4(), UDP)));
    lying[14] = 0x4f;
    cases.push(Case::untouched("lying header length", lying));
    cases
}

#[test]
fn less_usual_frames_are_completed_where_they_can_be_and_else_left_alone() {
    for Case { name, sent, wire } in cases() {
        let mut bytes = sent.clone();
        if let Checksum::Partial { start, offset } = checksum::detect_partial(&bytes) {
            checksum::complete(&mut bytes, start, offset).unwrap_or_else(|_| panic!("{name}"));
        }
        assert_eq!(bytes, wire, "{name}, {} bytes", sent.len());
        // Finished, it is left alone.
        let mut again = wire.clone();
        if let Checksum::Partial { start, offset } = checksum::detect_partial(&again)
            && sent != wire
        {
            checksum::complete(&mut again, start, offset).unwrap();
        }
        assert_eq!(again, wire, "{name}, again");
        for tags in [vec![(0x8100, 10)], vec![(0x88a8, 10), (0x8100, 20)]] {
            let with_tags = |frame: &[u8]| {
                let mut frame = frame.to_vec();
                let tags = tags
                    .iter()
                    .flat_map(|(tpid, control): &(u16, u16)| [tpid.to_be_bytes(), control.to_be_bytes()]);
                frame.splice(12..12, tags.collect::<Vec<_>>().concat());
                frame
            };
            let mut bytes = with_tags(&sent);
            if let Checksum::Partial { start, offset } = checksum::detect_partial(&bytes) {
                checksum::complete(&mut bytes, start, offset).unwrap_or_else(|_| panic!("{name}"));
            }
            assert_eq!(bytes, with_tags(&wire), "{name} with {} tags", tags.len());
        }
    }
}

#[test]
fn less_usual_frames_cross_the_switch_like_that() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = RawLab::new(&[("a", "lan"), ("b", "lan")]).by_xdp();
    let (switch, far) = lab.start("  lan: {}");
    let [a, b] = &far[..] else { panic!("two ports") };
    for Case { name, sent, wire } in cases() {
        a.socket.send(&sent);
        let received = b.socket.receive_where(ARRIVAL, is_from(station(1)));
        assert_eq!(received.map(|frame| frame.bytes), Some(wire), "{name}");
    }
    switch.assert_sound();
}

/// Inner tags are payload: every one of them arrives, on a trunk and on an access port.
#[test]
fn a_tag_a_priority_and_an_inner_tag_survive_a_trunk() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = RawLab::new(&[("in", "trunk"), ("out", "trunk"), ("access", "hundred"), ("other", "one")]);
    let (switch, far) = lab.start("  trunk: { trunk: [100] }\n  hundred: { vlan: 100 }\n  one: { vlan: 1 }");
    let [ingress, out, access, other] = &far[..] else { panic!("four ports") };
    for (number, pcp) in (1..).zip([0, 5, 7]) {
        let inner = tagged(3, 7, &broadcast(1, number));
        ingress.socket.send(&tagged(pcp, 100, &inner));
        let received = out.socket.receive_where(ARRIVAL, is_test_frame).map(|frame| frame.bytes);
        assert_eq!(received, Some(tagged(pcp, 100, &inner)));
        assert_eq!(access.socket.receive_where(ARRIVAL, is_test_frame).map(|frame| frame.bytes), Some(inner));
    }
    assert!(other.socket.receive_all(SILENCE, is_test_frame).is_empty(), "VLAN 1 is another one");
    assert_eq!(switch.all_dropped(), 0);
}
