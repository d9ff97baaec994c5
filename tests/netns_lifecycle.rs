//! How the daemon comes, goes and shares a host: what it leaves behind, and what it leaves alone.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use lockgate_tests::clock::{Stopwatch, eventually};
use lockgate_tests::lab::{foreign_program, foreign_veth, links, with_xdp};
use lockgate_tests::netns::Netns;
use lockgate_tests::process::Process;
use lockgate_tests::require;
use lockgate_tests::switch::{Switch, TopologyFile, run_command};
use lockgate_tests::traffic::{Load, Transfer, wait_for_load};
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use serde_json::Value;

/// The tests share two cores: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// What is promised for the end after a signal.
const STOP: Duration = Duration::from_secs(2);
/// What is promised for an interface that appears.
const JOIN: Duration = Duration::from_secs(3);
/// Set to run the restarts as often as the project promises them.
const LONG: &str = "LOCKGATE_LONG";

/// Two containers whose veths somebody else made, one behind a veth of the switch's own, one behind a tap.
struct Lab {
    host: Netns,
    a: Netns,
    b: Netns,
    c: Netns,
    d: Netns,
}

impl Lab {
    fn new() -> Self {
        let lab =
            Self { host: Netns::new(), a: Netns::new(), b: Netns::new(), c: Netns::new(), d: Netns::new() };
        foreign_veth(&lab.host, "near-a", "", &lab.a, "10.77.0.1/24");
        foreign_veth(&lab.host, "near-b", "", &lab.b, "10.77.0.2/24");
        lab
    }

    /// Ports of every kind. The foreign veths are trunks, for which an offload of their far ends is changed.
    fn topology(&self) -> String {
        format!(
            "port_groups: {{ trunk: {{ trunk: [20], native: 10 }}, lan: {{ vlan: 10 }} }}\nports:\n  \
             a: {{ group: trunk, netdev: near-a, steering: xdp }}\n  \
             b: {{ group: trunk, netdev: near-b, steering: xdp }}\n  \
             c: {{ group: lan, veth: {{ netns: {}, interface: eth0, address: 10.77.0.3/24 }} }}\n  \
             d: {{ group: lan, tap: {{ netns: {}, interface: eth0, address: 10.77.0.4/24 }} }}\n  \
             host: {{ group: lan, internal: {{ interface: lg-host, address: 10.77.0.9/24 }} }}\n",
            self.c.name(),
            self.d.name()
        )
    }

    fn state(&self) -> HostState {
        HostState {
            host: links(&self.host),
            containers: [&self.a, &self.b, &self.c, &self.d].map(links),
            offloads: [&self.a, &self.b].map(|netns| netns.run("ethtool -k eth0")),
            settings: [settings(&self.host, "near-a"), settings(&self.a, "eth0")],
        }
    }

    fn load(&self) -> Transfer {
        let load = Load::Udp { bits_per_second: 300_000_000 };
        let transfer = Transfer::start(&self.a, &self.b, "10.77.0.2".parse().unwrap(), load, 300);
        wait_for_load(&self.b, "eth0");
        transfer
    }
}

/// What a switch may have changed.
#[derive(Debug, PartialEq)]
struct HostState {
    /// Links of the host's namespace, with flags, MTU, address and programs.
    host: BTreeMap<String, Value>,
    containers: [BTreeMap<String, Value>; 4],
    /// Of the foreign veths' far ends.
    offloads: [String; 2],
    /// The kernel's settings of a foreign veth's ends.
    settings: [BTreeMap<String, String>; 2],
}

fn settings(netns: &Netns, interface: &str) -> BTreeMap<String, String> {
    netns.inside(|| {
        let mut settings = BTreeMap::new();
        for family in ["ipv4", "ipv6"] {
            let directory = format!("/proc/sys/net/{family}/conf/{interface}");
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                // Some of them can only be written, and some are random by nature.
                let value = fs::read_to_string(&path).unwrap_or_default();
                settings.insert(path.display().to_string(), value);
            }
        }
        settings
    })
}

#[test]
fn a_stop_under_load_leaves_the_host_as_it_was() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new();
    lab.a.ping("10.77.0.2".parse().unwrap(), 1, 56);
    let before = lab.state();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let switch = Switch::start(&lab.host, &lab.topology());
        let socket = switch.socket().to_owned();
        // The third veth is steered by tc.
        assert_eq!(with_xdp(&lab.host).len(), 2);
        assert!(
            lab.a.run("ethtool -k eth0").contains("tx-vlan-offload: off"),
            "an offload has changed for the trunk"
        );
        let transfer = lab.load();

        let ended = switch.stop(signal);

        assert_eq!(ended.status.code(), Some(0), "{signal}: {}", ended.log);
        assert!(ended.took <= STOP, "{signal}: took {:?}", ended.took);
        println!("{signal}: ended after {:?}", ended.took);
        drop(transfer);
        assert!(!socket.exists(), "{signal}: the socket is left");
        assert_eq!(lab.state(), before, "{signal}");
    }
}

#[test]
fn killed_it_leaves_no_program_and_the_next_start_needs_no_help() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new();
    let file = TopologyFile::new(&lab.topology());
    for _ in 0..3 {
        let switch = Switch::start_file(&lab.host, &file);
        switch.wait_until_up();
        let transfer = lab.load();

        let ended = switch.stop(Signal::SIGKILL);

        assert_eq!(ended.status.code(), None);
        eventually("every XDP program to be gone", Duration::from_secs(1), || {
            with_xdp(&lab.host).is_empty().then_some(())
        });
        drop(transfer);
        // The host's own stack has the interface back.
        lab.host.ip("addr add 10.77.0.254/24 dev near-a");
        assert_eq!(lab.host.ping("10.77.0.1".parse().unwrap(), 2, 56).len(), 2, "the ordinary path");
        lab.host.ip("addr del 10.77.0.254/24 dev near-a");
    }
    let switch = Switch::start_file(&lab.host, &file);
    switch.wait_until_up();
    for address in ["10.77.0.2", "10.77.0.3", "10.77.0.4", "10.77.0.9"] {
        assert_eq!(lab.a.ping(address.parse().unwrap(), 2, 56).len(), 2, "{address}");
    }
}

#[test]
fn every_restart_under_load_comes_up() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let restarts = if std::env::var_os(LONG).is_some() { 50 } else { 10 };
    const PING_SECONDS: f64 = 0.005;
    const LONGEST_OUTAGE_SECONDS: f64 = 2.0;
    let lab = Lab::new();
    let file = TopologyFile::new(&lab.topology());
    let mut switch = Switch::start_file(&lab.host, &file);
    switch.wait_until_up();
    let _transfer = lab.load();
    let ping = Process::spawn(lab.a.command(&format!("ping -n -D -i {PING_SECONDS} 10.77.0.2")));
    for restart in 0..restarts {
        std::thread::sleep(Duration::from_millis(500));
        let ended = switch.stop(Signal::SIGTERM);
        assert_eq!(ended.status.code(), Some(0), "stop {restart}: {}", ended.log);
        assert!(ended.took <= STOP, "stop {restart} took {:?}", ended.took);
        switch = Switch::start_file(&lab.host, &file);
        switch.wait_until_up();
    }
    std::thread::sleep(Duration::from_millis(500));
    let outages = outages(&ping.output(), restarts);
    let (median, longest) = (outages[outages.len() / 2], outages[outages.len() - 1]);
    println!("outage of {restarts} restarts under load: median {median:.3} s, longest {longest:.3} s");
    assert!(longest <= LONGEST_OUTAGE_SECONDS, "{outages:.3?}");
}

/// The longest `restarts` pauses between two replies in the output of `ping -D`, in seconds, ascending.
fn outages(output: &str, restarts: usize) -> Vec<f64> {
    let reply = |line: &str| {
        line.contains(" bytes from ")
            .then(|| line.strip_prefix('[')?.split(']').next()?.parse::<f64>().ok())?
    };
    let replies: Vec<f64> = output.lines().filter_map(reply).collect();
    let mut pauses: Vec<f64> = replies.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.len() >= restarts, "hardly any reply: {output}");
    pauses.sort_unstable_by(f64::total_cmp);
    pauses.split_off(pauses.len() - restarts)
}

#[test]
fn a_broken_file_changes_nothing() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new();
    lab.a.ping("10.77.0.2".parse().unwrap(), 1, 56);
    let before = lab.state();
    let good = lab.topology();
    for (broken, message) in [
        (good.clone() + "  e: { group: lna, netdev: x }\n", "lna"),
        (good.clone() + "  e: { group: lan, netdev: x, vlna: 10 }\n", "vlna"),
        (
            good.clone() + "  e: { group: lan, veth: { netns: no-such-namespace, interface: eth0 } }\n",
            "no-such-namespace",
        ),
        (good.replace("lg-host", "near-a"), "near-a"),
    ] {
        let (ended, log) = run_to_its_end(&lab.host, &TopologyFile::new(&broken));
        assert_ne!(ended, Some(0), "{log}");
        assert!(log.contains(message), "the message names {message}: {log}");
        assert_eq!(lab.state(), before, "{message}");
    }
}

#[test]
fn a_second_daemon_on_the_same_socket_is_refused_and_the_first_runs_on() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new();
    let file = TopologyFile::new(&lab.topology());
    let switch = Switch::start_file(&lab.host, &file);
    switch.wait_until_up();
    let before = lab.state();

    let (ended, log) = run_to_its_end(&lab.host, &file);

    assert_ne!(ended, Some(0), "{log}");
    assert!(log.contains(&*file.socket().to_string_lossy()), "the message names the socket: {log}");
    assert_eq!(lab.state(), before);
    assert_eq!(lab.a.ping("10.77.0.2".parse().unwrap(), 2, 56).len(), 2);
    assert_eq!(switch.ports().len(), 5);
}

#[test]
fn a_foreign_xdp_program_is_named_and_left_alone() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let lab = Lab::new();
    let file = TopologyFile::new(&lab.topology());
    let foreign = foreign_program(&lab.host, "near-a").unwrap();
    let program = links(&lab.host)["near-a"]["xdp"].clone();
    let id = program["prog"]["id"].to_string();

    let switch = Switch::start_file(&lab.host, &file);

    eventually("the other ports", Duration::from_secs(5), || {
        switch.ports().iter().filter(|port| port.name != "a").all(|port| port.state == "up").then_some(())
    });
    let port = switch.port("a");
    assert_eq!(port.state, "waiting");
    assert!(port.reason.as_ref().is_some_and(|reason| reason.contains(&id)), "{id}: {port:?}");
    assert_eq!(lab.b.ping("10.77.0.3".parse().unwrap(), 2, 56).len(), 2, "the others run");
    assert_eq!(links(&lab.host)["near-a"]["xdp"], program, "the program is still there");

    drop(foreign);
    eventually("the port to join", JOIN, || (switch.port("a").state == "up").then_some(()));
    assert_eq!(lab.a.ping("10.77.0.2".parse().unwrap(), 2, 56).len(), 2);
}

#[test]
fn a_missing_interface_joins_when_it_appears() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let (host, a, b) = (Netns::new(), Netns::new(), Netns::new());
    foreign_veth(&host, "near-a", "", &a, "10.77.0.1/24");
    let file = TopologyFile::new(
        "port_groups: { lan: {} }\nports:\n  a: { group: lan, netdev: near-a, steering: xdp }\n  b: { group: lan, netdev: near-b }\n",
    );
    let switch = Switch::start_file(&host, &file);
    eventually("the other port", JOIN, || (switch.port("a").state == "up").then_some(()));
    let port = switch.port("b");
    assert_eq!(port.state, "waiting");
    assert!(port.reason.is_some_and(|reason| reason.contains("does not exist")));

    foreign_veth(&host, "near-b", "", &b, "10.77.0.2/24");
    let watch = Stopwatch::start();
    eventually("the port to join", JOIN, || (switch.port("b").state == "up").then_some(()));
    println!("joined after {:?}", watch.elapsed());
    for (from, to) in [(&a, "10.77.0.2"), (&b, "10.77.0.1")] {
        assert_eq!(from.ping(to.parse().unwrap(), 2, 56).len(), 2);
    }
}

/// Runs a daemon that is expected to refuse: its exit code and what it said.
fn run_to_its_end(host: &Netns, file: &TopologyFile) -> (Option<i32>, String) {
    let mut process = Process::spawn(run_command(host, &file.path()));
    let status = process.wait(Duration::from_secs(5));
    (status.code(), process.output())
}
