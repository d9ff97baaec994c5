//! Faults of other switches' counters, tried on ours: losses nobody sees, series that follow an attacker or stay for ever,
//! pages that cannot be read, scrapers that disturb.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use lockgate_control::{compile, config};
use lockgate_dataplane::buffer::PoolSize;
use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::id::{Direction, PortId};
use lockgate_dataplane::time::Instant;
use lockgate_dataplane::verdict::DropReason;
use lockgate_tests::clock::eventually;
use lockgate_tests::frames::{self, FULL, JUMBO, SHORTEST, ethernet, station, tagged};
use lockgate_tests::lab::{RawLab, broadcast, foreign_veth};
use lockgate_tests::netns::Netns;
use lockgate_tests::packet_socket::TEST_ETHERTYPE;
use lockgate_tests::process::Process;
use lockgate_tests::require;
use lockgate_tests::rig::{Rig, ids};
use lockgate_tests::switch::{METRICS, Switch, TopologyFile};
use parking_lot::Mutex;

/// The tests share two cores: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

const A: PortId = PortId(0);
const B: PortId = PortId(1);
const FRAMES: u64 = 1000;

/// What is lost for one reason.
struct Loss {
    reason: DropReason,
    direction: Direction,
    /// Port groups, and settings and groups of the ports.
    groups: &'static str,
    ports: &'static [(&'static str, &'static str)],
    /// Sent by the first port.
    frame: fn() -> Vec<u8>,
    /// Done before the frames are sent.
    before: fn(&mut Rig),
}

const LAN: &str = "{ lan: {} }";
const PAIR: &[(&str, &str)] =
    &[("lan", ", mac: \"02:00:00:00:00:01\""), ("lan", ", mac: \"02:00:00:00:00:02\"")];

fn known() -> Vec<u8> {
    frames::ipv4_udp(station(2), station(1), 0, SHORTEST)
}

fn losses() -> Vec<Loss> {
    use Direction::{Egress, Ingress};
    let loss = |reason, direction, groups, ports, frame| Loss {
        reason,
        direction,
        groups,
        ports,
        frame,
        before: |_| {},
    };
    let pair = |reason, direction, frame| loss(reason, direction, LAN, PAIR, frame);
    vec![
        pair(DropReason::Malformed, Ingress, frames::runt),
        pair(DropReason::VlanNotAllowed, Ingress, || tagged(0, 20, &known())),
        pair(DropReason::InvalidSource, Ingress, || {
            ethernet(station(2), MacAddr::BROADCAST, TEST_ETHERTYPE, &[0; 46])
        }),
        pair(DropReason::ForgedSource, Ingress, || frames::ipv4_udp(station(2), station(9), 0, SHORTEST)),
        pair(DropReason::LinkLocalControl, Ingress, || frames::spanning_tree(station(1))),
        pair(DropReason::UnknownUnicast, Ingress, || frames::ipv4_udp(station(9), station(1), 0, SHORTEST)),
        pair(DropReason::SamePort, Ingress, || frames::ipv4_udp(station(1), station(1), 0, SHORTEST)),
        pair(DropReason::MtuExceeded, Egress, || frames::ipv4_udp(station(2), station(1), 0, JUMBO)),
        Loss { before: |rig| rig.detach(B), ..pair(DropReason::PortDown, Egress, known) },
        loss(
            DropReason::LearnLimit,
            Ingress,
            LAN,
            &[("lan", ", learn: 1"), ("lan", ", mac: \"02:00:00:00:00:02\"")],
            || frames::ipv4_udp(station(2), station(8), 0, SHORTEST),
        ),
        loss(DropReason::Isolated, Ingress, "{ lan: { isolated: true } }", PAIR, known),
        loss(
            DropReason::NoReceiver,
            Ingress,
            "{ lan: { vlan: 10 }, other: { vlan: 20 } }",
            &[("lan", ", mac: \"02:00:00:00:00:01\""), ("other", ", mac: \"02:00:00:00:00:02\"")],
            || frames::arp_request(station(1)),
        ),
        loss(
            DropReason::ShaperQueueFull,
            Ingress,
            "{ lan: {}, slow: { shaping: { port: { ingress: { average: 64 kbit/s, burst: 9 KiB, max_delay: 1 ms } } } } }",
            &[("slow", ", mac: \"02:00:00:00:00:01\""), ("lan", ", mac: \"02:00:00:00:00:02\"")],
            || frames::ipv4_udp(station(2), station(1), 0, FULL),
        ),
        loss(
            DropReason::ShaperQueueFull,
            Egress,
            "{ lan: {}, slow: { shaping: { port: { egress: { average: 64 kbit/s, burst: 9 KiB, max_delay: 1 ms } } } } }",
            &[("lan", ", mac: \"02:00:00:00:00:01\""), ("slow", ", mac: \"02:00:00:00:00:02\"")],
            || frames::ipv4_udp(station(2), station(1), 0, FULL),
        ),
        Loss { before: |rig| rig.peer(B).set_room(0), ..pair(DropReason::BufferQuota, Egress, known) },
    ]
}

fn rig(groups: &str, ports: &[(&str, &str)], pool: PoolSize) -> Rig {
    let ports: String = (0..)
        .zip(ports)
        .map(|(at, (group, settings))| format!("  p{at}: {{ group: {group}, netdev: tap{at}{settings} }}\n"))
        .collect();
    let text = format!("version: 1\nport_groups: {groups}\nports:\n{ports}");
    let topology = config::parse("field.yaml", &text).unwrap_or_else(|report| panic!("{report}")).topology;
    Rig::new(compile::compile(&topology, &[], 1), pool, 1500)
}

/// A thousand frames for each reason: each of them is in that counter, or came out, and no other counter moved.
#[test]
fn every_lost_frame_is_in_the_one_counter_that_says_why() {
    for Loss { reason, direction, groups, ports, frame, before } in losses() {
        // Where a port may take half of the buffers, 500 wait and 500 do not.
        let mut rig = rig(groups, ports, PoolSize { small: 1000, large: 16 });
        if reason == DropReason::LearnLimit {
            rig.send(A, frames::ipv4_udp(station(2), station(1), 0, SHORTEST));
            rig.settle(Instant::ZERO);
            assert_eq!(rig.take_all(B).len(), 1);
        }
        before(&mut rig);
        let port = if direction == Direction::Ingress { A } else { B };
        for _ in 0..FRAMES {
            rig.send(A, frame());
            rig.rounds(Instant::ZERO, 1);
        }
        rig.rounds(Instant::ZERO, 4);
        let counted = rig.drops(port, direction, reason);
        let came_out = rig.take_all(B).len() as u64;
        let wait = match reason {
            DropReason::ShaperQueueFull | DropReason::BufferQuota => FRAMES - counted - came_out,
            _ => 0,
        };
        assert_eq!(counted + came_out + wait, FRAMES, "{direction} {reason}");
        assert!(counted >= 450, "{direction} {reason}: {counted} counted");
        assert!(wait == 0 || counted < FRAMES, "{direction} {reason}");
        // What waits is queued, and lost for a reason of its own when the switch stops.
        assert_eq!(rig.drain(Instant::ZERO), 0, "{direction} {reason}");
        let mut all: BTreeMap<DropReason, u64> = BTreeMap::new();
        for port in ids(rig.state()) {
            for direction in Direction::ALL {
                for reason in DropReason::ALL {
                    *all.entry(*reason).or_default() += rig.drops(port, direction, *reason);
                }
            }
        }
        all.retain(|_, count| *count > 0);
        let mut expected = BTreeMap::from([(reason, counted), (DropReason::Flushed, wait)]);
        expected.retain(|_, count| *count > 0);
        assert_eq!(all, expected, "{direction} {reason}");
    }
}

/// Series on the page.
fn series(switch: &Switch<'_>) -> usize {
    switch.metrics().lines().filter(|line| !line.starts_with('#')).count()
}

#[test]
fn the_number_of_series_follows_the_configuration_and_not_the_traffic() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = RawLab::new(&[("a", "lan"), ("b", "lab")]);
    let (switch, far) = lab.start("  lan: {}\n  lab: { learn: 1000 }");
    let before = series(&switch);
    for number in 0..5000_u16 {
        let [high, low] = number.to_be_bytes();
        let mac = MacAddr([2, 0x77, 0, 0, high, low]);
        // Addresses as an attacker makes them up, and frames that fail for every reason there is.
        far[1].socket.send(&ethernet(MacAddr::BROADCAST, mac, TEST_ETHERTYPE, &[0; 46]));
        far[0].socket.send(&ethernet(mac, mac, TEST_ETHERTYPE, &[0; 46]));
        if number % 100 == 0 {
            far[0].socket.send(&tagged(0, number % 4096, &broadcast(1, low)));
            far[0].socket.send(&frames::spanning_tree(station(1)));
        }
    }
    eventually("the flood to be counted", Duration::from_secs(5), || {
        (switch.all_dropped() > 1000).then_some(())
    });
    let after = series(&switch);
    // A reason has a series once it occurred: of those there is a fixed number.
    let most = before + 2 * 2 * 2 * DropReason::COUNT;
    assert!(after <= most, "{before} series before, {after} after");
    let page = switch.metrics();
    assert!(!page.contains("02:77"), "no address is a label");
    switch.assert_sound();
}

#[test]
fn a_port_that_comes_and_waits_is_in_one_state_and_its_series_are_there_once() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let (host, a, b) = (Netns::new(), Netns::new(), Netns::new());
    foreign_veth(&host, "near-a", "", &a, "10.77.0.1/24");
    let file = TopologyFile::new(
        "port_groups: { lan: {} }\nports:\n  a: { group: lan, netdev: near-a }\n  b: { group: lan, netdev: near-b }\n",
    );
    let switch = Switch::start_file(&host, &file);
    eventually("the first port", Duration::from_secs(5), || (switch.port("a").state == "up").then_some(()));
    let state_of = |page: &str, port: &str| -> Vec<String> {
        let start = format!("lockgate_port_state{{port=\"{port}\"");
        let ones = page.lines().filter(|line| line.starts_with(&start) && line.ends_with(" 1"));
        ones.map(str::to_owned).collect()
    };
    for (made, state) in [(false, "waiting"), (true, "up")] {
        if made {
            foreign_veth(&host, "near-b", "", &b, "10.77.0.2/24");
        }
        eventually("the state", Duration::from_secs(5), || (switch.port("b").state == state).then_some(()));
        let page = switch.metrics();
        let [one] = &state_of(&page, "b")[..] else { panic!("not one state: {:?}", state_of(&page, "b")) };
        assert!(one.contains(&format!("state=\"{state}\"")), "{one}");
        let mut names: Vec<&str> = page
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| Some(line.rsplit_once(' ')?.0))
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "a series is there twice");
    }
}

/// The head and the body of an answer.
fn scrape(host: &Netns, accept: &str) -> (String, String) {
    let answer = host.inside(|| {
        let mut stream = TcpStream::connect(METRICS).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        write!(stream, "GET /metrics HTTP/1.0\r\nHost: x\r\n{accept}\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_lowercase(), body.to_owned())
}

#[test]
fn whatever_a_scraper_accepts_the_page_is_of_the_type_it_says() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = RawLab::new(&[("a", "lan"), ("b", "lan")]);
    let (_switch, _far) = lab.start("  lan: {}");
    for accept in [
        "",
        "Accept: text/plain;version=0.0.4\r\n",
        "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5\r\n",
        "Accept: application/openmetrics-text;version=1.0.0\r\n",
        "Accept: */*\r\n",
    ] {
        let (head, body) = scrape(&lab.host, accept);
        assert!(head.starts_with("http/1.0 200") || head.starts_with("http/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/plain; version=0.0.4"), "{accept}: {head}");
        // The body is that format and not the other: no unit lines, no end mark, no created samples.
        assert!(!body.contains("# EOF") && !body.contains("# UNIT") && !body.contains("_created"));
        assert!(!body.contains("_total_total"));
        let mut typed: BTreeMap<&str, &str> = BTreeMap::new();
        for line in body.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').unwrap();
            assert!(typed.insert(name, kind).is_none(), "{name} has two types");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
        }
        for line in body.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            let of_histogram = ["_bucket", "_sum", "_count"]
                .iter()
                .any(|end| name.strip_suffix(end).is_some_and(|name| typed.get(name) == Some(&"histogram")));
            assert!(typed.contains_key(name) || of_histogram, "{line} has no type");
        }
    }
}

#[test]
fn slow_aborted_and_many_scrapers_do_not_disturb_forwarding() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let (host, a, b) = (Netns::new(), Netns::new(), Netns::new());
    let port = |name: &str, netns: &Netns, number: u8| {
        let netns = netns.name();
        format!(
            "  {name}: {{ group: lan, veth: {{ netns: {netns}, interface: eth0, address: 10.77.0.{number}/24 }} }}\n"
        )
    };
    let ports = [port("a", &a, 1), port("b", &b, 2)].concat();
    let switch = Switch::start(&host, &format!("port_groups: {{ lan: {{}} }}\nports:\n{ports}"));
    assert_eq!(a.ping("10.77.0.2".parse().unwrap(), 2, 56).len(), 2);
    let mut ping = Process::spawn(a.command("ping -q -n -c 300 -i 0.01 -W 1 10.77.0.2"));
    host.inside(|| {
        // Some never ask, some never read, some go away in the middle of their question.
        let open = || TcpStream::connect(METRICS).unwrap();
        let silent: Vec<TcpStream> = (0..10).map(|_| open()).collect();
        let deaf: Vec<TcpStream> = (0..10)
            .map(|_| {
                let mut stream = open();
                write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
                stream
            })
            .collect();
        for _ in 0..50 {
            write!(open(), "GET /metr").unwrap();
        }
        std::thread::scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|| {
                    for _ in 0..3 {
                        // A thread of its own is in this namespace as its parent is.
                        let mut stream = open();
                        write!(stream, "GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n").unwrap();
                        let mut answer = String::new();
                        stream.read_to_string(&mut answer).unwrap();
                        assert!(answer.contains("lockgate_port_frames_total"), "{answer}");
                    }
                });
            }
        });
        drop((silent, deaf));
    });
    let status = ping.wait(Duration::from_secs(20));
    let said = ping.output();
    assert!(status.success() && said.contains(" 0% packet loss"), "{said}");
    switch.assert_sound();
}
