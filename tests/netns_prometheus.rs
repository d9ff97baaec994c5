//! What Debian's Prometheus says of a switch under traffic, against what the containers' own interfaces counted.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lockgate_tests::netns::{InterfaceCounters, Netns};
use lockgate_tests::prometheus::Prometheus;
use lockgate_tests::require;
use lockgate_tests::switch::Switch;
use lockgate_tests::traffic::{Load, Transfer};
use parking_lot::Mutex;

/// The tests share two cores: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

const TOLERANCE: f64 = 0.01;
const ETHERNET_HEADER: u64 = 14;

/// One container at its limit and one without.
struct Lab {
    host: Netns,
    a: Netns,
    b: Netns,
}

impl Lab {
    fn new() -> Self {
        Self { host: Netns::new(), a: Netns::new(), b: Netns::new() }
    }

    fn start(&self) -> Switch<'_> {
        Switch::start(
            &self.host,
            &format!(
                "port_groups: {{ lan: {{ vlan: 10 }} }}\nports:\n  \
                 a: {{ group: lan, veth: {{ netns: {}, interface: eth0, address: 10.77.0.1/24 }}, steering: xdp, \
                 shaping: {{ ingress: {{ average: 50 Mbit/s }}, egress: {{ average: 20 Mbit/s }} }} }}\n  \
                 b: {{ group: lan, veth: {{ netns: {}, interface: eth0, address: 10.77.0.2/24 }}, steering: xdp }}\n",
                self.a.name(),
                self.b.name()
            ),
        )
    }

    fn transfer(&self, load: Load, back: bool) {
        let (from, to, address) =
            if back { (&self.b, &self.a, "10.77.0.1") } else { (&self.a, &self.b, "10.77.0.2") };
        Transfer::start(from, to, address.parse().unwrap(), load, 2).finish();
    }
}

#[test]
fn its_answers_agree_with_the_containers_own_counters() {
    if !require::root("netns") || !require::ring_can_run("netns", missing("/usr/bin/prometheus")) {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new();
    let _switch = lab.start();
    let prometheus = Prometheus::start(&lab.host);
    // TCP at the limit, and UDP over it so that frames are dropped on the way in and on the way out.
    lab.transfer(Load::Tcp, false);
    lab.transfer(Load::Tcp, true);
    lab.transfer(Load::Udp { bits_per_second: 100_000_000 }, false);
    lab.transfer(Load::Udp { bits_per_second: 40_000_000 }, true);
    std::thread::sleep(Duration::from_millis(200));
    prometheus.wait_for_scrape();

    for (port, netns) in [("a", &lab.a), ("b", &lab.b)] {
        let InterfaceCounters { rx_bytes, rx_frames, tx_bytes, tx_frames, .. } = netns.counters("eth0");
        let sum = |metric: &str, direction: &str| {
            let query =
                format!("sum(lockgate_port_{metric}_total{{port=\"{port}\",direction=\"{direction}\"}})");
            prometheus.query(&query)
        };
        let kernel =
            |metric: &str| prometheus.query(&format!("sum(lockgate_xsk_{metric}_total{{port=\"{port}\"}})"));
        let (lost, dropped) =
            (kernel("rx_dropped") + kernel("rx_ring_full"), sum("dropped_bytes", "ingress"));
        // Frames that the kernel dropped at the socket are counted in frames only.
        assert_agree(
            &format!("{port} ingress frames"),
            sum("frames", "ingress") + sum("drops", "ingress") + lost,
            tx_frames,
        );
        if lost == 0.0 {
            // What a veth sends to an end with an XDP program it counts there, without the Ethernet header.
            let sent = tx_bytes + ETHERNET_HEADER * tx_frames;
            assert_agree(&format!("{port} ingress bytes"), sum("bytes", "ingress") + dropped, sent);
        }
        assert_agree(&format!("{port} egress bytes"), sum("bytes", "egress"), rx_bytes);
        assert_agree(&format!("{port} egress frames"), sum("frames", "egress"), rx_frames);
    }
    assert!(
        prometheus.query(
            "sum(lockgate_port_drops_total{port=\"a\",direction=\"ingress\",reason=\"shaper_queue_full\"})"
        ) > 0.0
    );
    assert!(
        prometheus.query(
            "sum(lockgate_port_drops_total{port=\"a\",direction=\"egress\",reason=\"shaper_queue_full\"})"
        ) > 0.0
    );
    assert_eq!(prometheus.query("max_over_time(lockgate_accounting_error_frames[1m])"), 0.0);
    assert_eq!(prometheus.query("sum(lockgate_port_up)"), 2.0);
    let limits = |direction: &str| {
        let of = format!("name=\"a\",direction=\"{direction}\",kind=\"average\"");
        prometheus.query(&format!("sum(lockgate_shaper_rate_limit_bytes_per_second{{{of}}})"))
    };
    assert_eq!((limits("ingress"), limits("egress")), (6_250_000.0, 2_500_000.0));
}

#[test]
fn promtool_finds_nothing_wrong_with_the_page() {
    if !require::root("netns") || !require::ring_can_run("netns", missing("/usr/bin/promtool")) {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new();
    let switch = lab.start();
    lab.transfer(Load::Udp { bits_per_second: 100_000_000 }, false);
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.spawn().unwrap();
    child.stdin.take().unwrap().write_all(switch.metrics().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

#[track_caller]
fn assert_agree(what: &str, answer: f64, counted: u64) {
    #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53, which no test reaches")]
    let error = answer / counted as f64 - 1.0;
    println!("{what}: {answer} of {counted}, {:+.3} %", error * 100.0);
    assert!(counted > 1000, "{what}: hardly any traffic");
    assert!(error.abs() <= TOLERANCE, "{what}: Prometheus says {answer}, the interface {counted}");
}

fn missing(program: &str) -> Option<&'static str> {
    (!Path::new(program).exists()).then_some("it needs Debian's package prometheus")
}
