//! The metrics page of a running switch: the real workers over memory ports, frames that pass and frames that are dropped,
//! and a parser that takes the text format at its word.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

use lockgate_control::metrics;
use lockgate_control::metrics::names::{self, Kind};
use lockgate_control::status::{PortLife, PortStatus, Running};
use lockgate_control::topology::Topology;
use lockgate_control::{compile, config};
use lockgate_dataplane::buffer::{BufferPool, PoolSize};
use lockgate_dataplane::frame::Frame;
use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::id::{Direction, PortId, WorkerId};
use lockgate_dataplane::port::memory::{MemoryPeer, Packet, memory_port};
use lockgate_dataplane::verdict::DropReason;
use lockgate_dataplane::worker::Workers;
use lockgate_tests::frames::{self, station};
use parking_lot::RwLock;

const TOPOLOGY: &str = r#"
version: 1
port_groups:
  web: { vlan: 10, shaping: { port: { egress: { average: 100 Mbit/s, peak: 1 Gbit/s } } } }
  lab: { trunk: [10, 20-29], learn: 2 }
ports:
  web1: { group: web, netdev: tap1, mac: "02:00:00:00:00:01" }
  web2: { group: web, netdev: tap2, mac: "02:00:00:00:00:02" }
  lab1: { group: lab, netdev: tap3 }
  gone: { group: web, netdev: tap4, mac: "02:00:00:00:00:04" }
"#;

/// A name the configuration would refuse: the page must stand it all the same.
const HOSTILE: &str = "we\"b\\1\n";

const WEB1: PortId = PortId(0);
const WEB2: PortId = PortId(1);
const LAB1: PortId = PortId(2);

/// A switch of two workers and the far ends of its ports. The last port never gets a device.
struct Lab {
    running: Running,
    workers: Arc<RwLock<Option<Workers>>>,
    peers: Vec<MemoryPeer>,
}

impl Lab {
    fn start() -> Self {
        let mut topology: Topology = config::parse("lab.yaml", TOPOLOGY).unwrap().topology;
        topology.ports[WEB1.index()].name = HOSTILE.to_owned();
        let state = Arc::new(compile::compile(&topology, &[], 2));
        let workers = Workers::start(&state, &[PoolSize { small: 2048, large: 16 }; 2]).unwrap();
        let ports = [WEB1, WEB2, LAB1].map(|port| {
            let (device, peer) = memory_port(port, 1500);
            workers.attach(port, Box::new(device), None).unwrap();
            peer
        });
        let workers = Arc::new(RwLock::new(Some(workers)));
        let up = || PortStatus {
            life: PortLife::Up,
            driver: "tap",
            xdp_mode: None,
            zerocopy: false,
            interface: "tap1".to_owned(),
            mtu_bytes: 1500,
            mac: None,
        };
        let statuses = vec![up(), up(), up(), PortStatus::waiting("the interface does not exist".to_owned())];
        let running = Running::new(Arc::new(topology), workers.clone(), "0123456789abcdef", statuses);
        Self { running, workers, peers: ports.into() }
    }

    fn send(&self, port: PortId, frame: Vec<u8>) {
        self.peers[port.index()].send(Packet::plain(frame));
    }

    /// A frame for every way through the switch that this topology has, and more for one port than its shaper holds.
    fn send_everything(&self) {
        let (web1, web2, gone) = (station(1), station(2), station(4));
        let (lab, stranger, nobody) = (station(3), station(9), station(7));
        for _ in 0..400 {
            self.send(WEB1, frames::ipv4_udp(web2, web1, 0, frames::FULL));
        }
        self.send(WEB1, frames::ipv4_udp(nobody, web1, 0, frames::SHORTEST));
        self.send(WEB1, frames::ipv4_udp(nobody, web1, 0, frames::JUMBO));
        self.send(WEB1, frames::ipv4_udp(gone, web1, 0, frames::SHORTEST));
        self.send(WEB1, frames::ipv4_udp(web1, web1, 0, frames::SHORTEST));
        self.send(WEB1, frames::arp_request(stranger));
        self.send(WEB1, frames::arp_request(MacAddr::BROADCAST));
        self.send(WEB1, frames::spanning_tree(web1));
        self.send(WEB1, frames::runt());
        self.send(LAB1, frames::tagged(0, 10, &frames::arp_request(lab)));
        self.send(LAB1, frames::tagged(0, 10, &frames::ipv4_udp(nobody, lab, 0, frames::SHORTEST)));
        self.send(LAB1, frames::tagged(0, 20, &frames::arp_request(lab)));
        self.send(LAB1, frames::tagged(0, 10, &frames::arp_request(stranger)));
        self.send(LAB1, frames::tagged(0, 30, &frames::arp_request(lab)));
    }

    /// Until every frame was sent or dropped. A worker answers between two rounds, so time passes with each question; it
    /// is asked twice because one worker's round may hand frames to the other.
    fn settle(&self) {
        for _ in 0..1_000_000 {
            self.running.devices();
            self.running.devices();
            let totals = self.running.totals();
            let left = totals.sum(|worker| {
                worker.flow.replaced.total() + worker.flow.sent.total() + worker.flow.dropped.total()
            });
            let entered = totals.sum(|worker| worker.flow.received.total() + worker.flow.copied.total());
            if entered == left && self.peers.iter().all(|peer| peer.unreceived() == 0) {
                return;
            }
        }
        panic!("frames are still on their way");
    }

    fn scrape(&self) -> Scrape {
        Scrape::parse(&metrics::render(&self.running).unwrap())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(workers) = self.workers.write().take() {
            workers.stop().unwrap();
        }
    }
}

#[test]
fn the_page_says_what_was_counted_in_the_format_prometheus_reads() {
    let lab = Lab::start();
    lab.send_everything();
    lab.settle();
    let page = lab.scrape();

    let port_names = [HOSTILE, "web2", "lab1", "gone"];
    let mut occurred = HashSet::new();
    for (port, name) in (0..).map(PortId).zip(port_names) {
        for direction in Direction::ALL {
            let total = lab.running.totals().direction(port, direction);
            let labels = [("port", name), ("direction", direction.name())];
            assert_eq!(page.sum("lockgate_port_frames_total", &labels), total.all_frames() as f64);
            assert_eq!(page.sum("lockgate_port_bytes_total", &labels), total.bytes as f64);
            assert_eq!(page.sum("lockgate_port_drops_total", &labels), total.all_drops() as f64);
            for reason in DropReason::ALL.iter().filter(|reason| total.drops[reason.index()] > 0) {
                let labels = [labels[0], labels[1], ("reason", reason.name())];
                assert_eq!(
                    page.value("lockgate_port_drops_total", &labels),
                    total.drops[reason.index()] as f64
                );
                let bytes = total.dropped_bytes[reason.index()];
                assert_eq!(page.value("lockgate_port_dropped_bytes_total", &labels), bytes as f64);
                occurred.insert(reason.name());
            }
        }
        assert_eq!(page.sum("lockgate_port_state", &[("port", name)]), 1.0, "a port is in one state");
    }
    for reason in [
        DropReason::Malformed,
        DropReason::VlanNotAllowed,
        DropReason::InvalidSource,
        DropReason::ForgedSource,
        DropReason::LinkLocalControl,
        DropReason::LearnLimit,
        DropReason::UnknownUnicast,
        DropReason::SamePort,
        DropReason::NoReceiver,
        DropReason::ShaperQueueFull,
        DropReason::MtuExceeded,
        DropReason::PortDown,
    ] {
        assert!(occurred.contains(reason.name()), "{reason} was provoked; there were {occurred:?}");
    }

    let flow = |name| page.sum(&format!("lockgate_flow_{name}"), &[]);
    let entered = flow("received_frames_total") + flow("copied_frames_total");
    let left = flow("replaced_frames_total")
        + flow("sent_frames_total")
        + flow("dropped_frames_total")
        + flow("queued_frames");
    assert_eq!((entered - left, page.value("lockgate_accounting_error_frames", &[])), (0.0, 0.0));
    assert!(flow("sent_frames_total") > 100.0);

    let web2 = [("level", "port"), ("name", "web2"), ("direction", "egress")];
    assert!(page.value("lockgate_shaper_delayed_frames_total", &web2) > 0.0);
    let peak = [web2[0], web2[1], web2[2], ("kind", "peak")];
    assert_eq!(page.value("lockgate_shaper_rate_limit_bytes_per_second", &peak), 125e6);
    let group = [("level", "group"), ("name", "web"), ("direction", "egress")];
    assert!(page.value("lockgate_shaper_sojourn_seconds_count", &group) > 100.0);
    assert_eq!(page.value("lockgate_port_state", &[("port", "gone"), ("state", "waiting")]), 1.0);
}

#[test]
fn every_reason_has_a_series_once_it_occurred() {
    let lab = Lab::start();
    let counters = &lab.running.workers()[0];
    let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 1, large: 0 });
    let frame = Frame::copy_from(&frames::arp_request(station(1)), WEB2, &mut pool).unwrap();
    for reason in DropReason::ALL {
        counters.direction(WEB2, Direction::Egress).drop(frame.wire_frames(), frame.wire_len(), *reason);
    }
    let page = lab.scrape();
    for reason in DropReason::ALL {
        let labels = [("port", "web2"), ("direction", "egress"), ("reason", reason.name())];
        assert_eq!(page.value("lockgate_port_drops_total", &labels), 1.0, "{reason}");
        assert_eq!(
            page.value("lockgate_port_dropped_bytes_total", &labels),
            frames::SHORTEST as f64,
            "{reason}"
        );
    }
}

#[test]
fn no_counter_falls_and_no_series_appears_or_goes_while_frames_pass() {
    let lab = Lab::start();
    lab.send_everything();
    lab.settle();
    let mut before = lab.scrape();
    for _ in 0..20 {
        lab.send_everything();
        let after = lab.scrape();
        assert_eq!(before.series(), after.series());
        for (name, labels, value) in before.counters() {
            assert!(after.samples[&(name.clone(), labels.clone())] >= value, "{name} {labels:?} fell");
        }
        before = after;
    }
    lab.settle();
}

#[test]
fn promtool_finds_nothing_to_criticise() {
    let lab = Lab::start();
    lab.send_everything();
    lab.settle();
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = match promtool {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return eprintln!("SKIP promtool: it is not installed (Debian: prometheus)");
        }
        other => other.unwrap(),
    };
    let page = metrics::render(&lab.running).unwrap();
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let verdict = promtool.wait_with_output().unwrap();
    let words =
        String::from_utf8_lossy(&verdict.stderr).into_owned() + &String::from_utf8_lossy(&verdict.stdout);
    assert!(verdict.status.success() && words.trim().is_empty(), "{words}");
}

type Labels = BTreeMap<String, String>;

/// A page that was read and found in order.
struct Scrape {
    samples: BTreeMap<(String, Labels), f64>,
    types: HashMap<String, String>,
}

impl Scrape {
    /// Reads the text format 0.0.4 and holds each line against the table of metrics.
    fn parse(page: &str) -> Self {
        assert!(page.ends_with('\n'), "the last line is ended");
        let mut scrape = Self { samples: BTreeMap::new(), types: HashMap::new() };
        let (mut helped, mut present) = (HashSet::new(), String::new());
        for line in page.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, text) = help.split_once(' ').unwrap();
                assert!(helped.insert(name.to_owned()), "HELP twice: {name}");
                assert_eq!(text, metric(name).help);
                present = name.to_owned();
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert_eq!((name, kind), (present.as_str(), metric(name).kind.name()), "{line}");
                assert!(
                    scrape.types.insert(name.to_owned(), kind.to_owned()).is_none(),
                    "TYPE twice: {name}"
                );
            } else {
                let (name, labels, value) = sample(line);
                let metric = metric(&present);
                let suffix =
                    name.strip_prefix(present.as_str()).unwrap_or_else(|| panic!("{name} under {present}"));
                let suffixes: &[&str] =
                    if metric.kind == Kind::Histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
                assert!(suffixes.contains(&suffix), "{line}");
                let bucket = (suffix == "_bucket").then_some("le");
                let expected: HashSet<&str> = metric.labels.iter().copied().chain(bucket).collect();
                assert_eq!(labels.keys().map(String::as_str).collect::<HashSet<_>>(), expected, "{line}");
                assert!(scrape.samples.insert((name, labels), value).is_none(), "twice: {line}");
            }
        }
        scrape
    }

    /// The one sample with exactly these labels.
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
        let found = self.samples.get(&(name.to_owned(), labels));
        *found.unwrap_or_else(|| panic!("no {name} with exactly the labels that were asked for"))
    }

    /// The sum of all samples that have these labels among theirs.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let matches =
            |own: &Labels| labels.iter().all(|(label, value)| own.get(*label).is_some_and(|v| v == value));
        let found = self.samples.iter().filter(|((sample, own), _)| sample == name && matches(own));
        found.map(|(_, value)| value).sum()
    }

    fn series(&self) -> Vec<&(String, Labels)> {
        self.samples.keys().collect()
    }

    /// Every sample that may not fall: counters, and the parts of histograms.
    fn counters(&self) -> impl Iterator<Item = (&String, &Labels, f64)> {
        let falls = |name: &String| self.types.get(name).is_some_and(|kind| kind == "gauge");
        self.samples
            .iter()
            .filter(move |((name, _), _)| !falls(name))
            .map(|((name, own), value)| (name, own, *value))
    }
}

fn metric(name: &str) -> names::Metric {
    *names::ALL
        .iter()
        .find(|metric| metric.name == name)
        .unwrap_or_else(|| panic!("{name} is not in names.rs"))
}

/// `name{label="value",…} number`, with `\\`, `\"` and `\n` escaped in the values.
fn sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no sample: {line}"));
    let (name, mut rest) = line.split_at(end);
    let mut labels = Labels::new();
    if rest.starts_with('{') {
        loop {
            let (label, quoted) = rest[1..].split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
            let (value, after) = unescape(quoted).unwrap_or_else(|| panic!("an open value: {line}"));
            assert!(labels.insert(label.to_owned(), value).is_none(), "{label} twice: {line}");
            rest = after;
            match rest.as_bytes().first() {
                Some(b',') => {}
                Some(b'}') => break rest = &rest[1..],
                _ => panic!("neither the end nor another label: {line}"),
            }
        }
    }
    let number = rest.strip_prefix(' ').and_then(|number| number.parse().ok());
    (name.to_owned(), labels, number.unwrap_or_else(|| panic!("no number: {line}")))
}

/// The value up to its closing quote, and what follows that.
fn unescape(quoted: &str) -> Option<(String, &str)> {
    let (mut value, mut chars) = (String::new(), quoted.chars());
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            '\\' => value.push(match chars.next()? {
                'n' => '\n',
                escaped @ ('\\' | '"') => escaped,
                _ => return None,
            }),
            other => value.push(other),
        }
    }
}
