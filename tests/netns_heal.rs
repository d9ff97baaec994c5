//! Interfaces that are deleted, made again, renamed, moved, set down and changed under a running switch: each port heals, or
//! says what it waits for, and no other port notices.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use lockgate_control::api::types;
use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_tests::clock::{Stopwatch, eventually};
use lockgate_tests::frames::ethernet;
use lockgate_tests::lab::{foreign_veth, links};
use lockgate_tests::netns::Netns;
use lockgate_tests::packet_socket::{PacketSocket, TEST_ETHERTYPE, is_from};
use lockgate_tests::process::{command, run, unique_name};
use lockgate_tests::require;
use lockgate_tests::switch::Switch;
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use serde_json::Value;

/// The tests share two cores: one at a time.
static ALONE: Mutex<()> = Mutex::new(());
/// What is aimed at is one second; a machine that does other things too may take longer.
const HEALED: Duration = Duration::from_secs(3);
const STEERINGS: [&str; 2] = ["xdp", "tc"];

/// `a` is the port that suffers, `b` its partner, `c` and `d` are bystanders.
struct Lab {
    host: Netns,
    far: [Netns; 4],
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

impl Lab {
    fn new() -> Self {
        let lab = Self { host: Netns::new(), far: std::array::from_fn(|_| Netns::new().without_ipv6()) };
        (0..4).for_each(|at| lab.make(at));
        lab
    }

    /// A veth pair, as a container engine makes it.
    fn make(&self, at: usize) {
        let name = NAMES[at];
        foreign_veth(
            &self.host,
            &format!("near-{name}"),
            "",
            &self.far[at],
            &format!("10.79.0.{}/24", at + 1),
        );
        // A lost address request is repeated after a second, which would be measured in place of the switch.
        self.far[at].set_sysctl("ipv4/neigh/eth0/retrans_time_ms", "20");
    }

    fn start(&self, steering: &str) -> Switch<'_> {
        let port =
            |name: &str| format!("  {name}: {{ group: lan, netdev: near-{name}, steering: {steering} }}\n");
        let ports: String = NAMES.map(port).concat();
        let switch = Switch::start(&self.host, &format!("port_groups: {{ lan: {{}} }}\nports:\n{ports}"));
        assert!(self.pings(), "before anything happens");
        switch
    }

    /// Whether `a` reaches `b`.
    fn pings(&self) -> bool {
        !self.far[0].ping("10.79.0.2".parse().unwrap(), 1, 56).is_empty()
    }

    /// Waits until `a` reaches `b`; how long that took.
    #[track_caller]
    fn healed(&self, what: &str) -> Duration {
        let watch = Stopwatch::start();
        eventually(what, HEALED, || self.reaches_at_once().then_some(()));
        watch.elapsed()
    }

    /// As [`Self::pings`], with less patience.
    fn reaches_at_once(&self) -> bool {
        let mut ping = self.far[0].command("ping -n -c 1 -W 0.1 10.79.0.2");
        ping.output().expect("ping runs").status.success()
    }

    /// Runs `work` while `c` sends a numbered frame to `d` every millisecond; all of them must arrive.
    #[track_caller]
    fn undisturbed(&self, work: impl FnOnce()) {
        let address = |at: usize| {
            self.far[at].run("cat /sys/class/net/eth0/address").trim().parse().expect("an address")
        };
        let (from, to) = (address(2), address(3));
        let (sender, receiver) =
            (PacketSocket::bind(&self.far[2], "eth0"), PacketSocket::bind(&self.far[3], "eth0"));
        let over = AtomicBool::new(false);
        let (sent, received) = thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let mut sent = 0_u32;
                while !over.load(Relaxed) {
                    let payload = [&sent.to_be_bytes()[..], &[0; 46]].concat();
                    sender.send(&ethernet(to, from, TEST_ETHERTYPE, &payload));
                    sent += 1;
                    thread::sleep(Duration::from_millis(1));
                }
                sent
            });
            let receiving = scope.spawn(|| {
                let mut received = BTreeSet::new();
                loop {
                    match receiver.receive_where(Duration::from_millis(200), is_from(from)) {
                        Some(frame) => _ = received.insert(frame.bytes[14..18].to_vec()),
                        None if over.load(Relaxed) => return received,
                        None => {}
                    }
                }
            });
            work();
            over.store(true, Relaxed);
            (sending.join().unwrap(), receiving.join().unwrap())
        });
        let lost: Vec<u32> =
            (0..sent).filter(|number| !received.contains(&number.to_be_bytes()[..])).collect();
        assert!(sent > 10 && lost.is_empty(), "of {sent} frames of the bystanders these are lost: {lost:?}");
    }
}

fn state(switch: &Switch<'_>) -> String {
    switch.port("a").state
}

fn descriptors(switch: &Switch<'_>) -> usize {
    fs::read_dir(format!("/proc/{}/fd", switch.process().pid())).unwrap().count()
}

/// Nothing is left over: no frame unaccounted for, no buffer missing, a clean end.
#[track_caller]
fn assert_clean(switch: Switch<'_>) {
    switch.assert_sound();
    eventually("every buffer to be back", HEALED, || {
        (switch.metric("lockgate_buffers_in_use") == 0.0).then_some(())
    });
    let ended = switch.stop(Signal::SIGTERM);
    assert!(ended.status.success(), "{}", ended.log);
}

#[test]
fn an_interface_that_is_deleted_and_made_again_heals_and_leaks_nothing() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    let cycles = if std::env::var_os("LOCKGATE_LONG").is_some() { 200 } else { 15 };
    for steering in STEERINGS {
        let lab = Lab::new();
        let switch = lab.start(steering);
        let mut open = 0;
        let mut outages = Vec::new();
        lab.undisturbed(|| {
            for cycle in 0..cycles {
                lab.host.ip("link del near-a");
                // At once, after a moment, and after the port was seen waiting. The new pair has another address.
                match cycle % 3 {
                    0 => {}
                    1 => thread::sleep(Duration::from_millis(50)),
                    _ => {
                        eventually("the port to wait", HEALED, || (state(&switch) == "waiting").then_some(()))
                    }
                }
                lab.make(0);
                outages.push(lab.healed(&format!("{steering}, cycle {cycle}")));
                if cycle == 3 {
                    open = descriptors(&switch);
                }
            }
        });
        outages.sort();
        println!(
            "{steering}: {cycles} cycles, healed after {:?} (median), {:?} (longest)",
            outages[outages.len() / 2],
            outages[outages.len() - 1]
        );
        assert!(descriptors(&switch) <= open, "{} descriptors, {open} before", descriptors(&switch));
        assert_clean(switch);
    }
}

#[test]
fn what_was_learned_behind_a_port_is_forgotten_when_its_interface_goes() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    for steering in STEERINGS {
        let lab = Lab::new();
        let switch = lab.start(steering);
        let behind_a = || {
            let fdb = switch.show::<types::Fdb>("fdb");
            fdb.entries.into_iter().filter(|entry| entry.port == "a").count()
        };
        assert_eq!(behind_a(), 1);
        lab.host.ip("link del near-a");
        eventually("its address to be forgotten", Duration::from_secs(1), || (behind_a() == 0).then_some(()));
        let port = switch.port("a");
        assert_eq!((port.state.as_str(), port.driver), ("waiting", None));
        assert!(port.reason.is_some_and(|reason| reason.contains("near-a is gone")), "the reason names it");
        assert_clean(switch);
    }
}

#[test]
fn an_interface_that_was_renamed_or_moved_away_is_waited_for() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    for steering in STEERINGS {
        let (lab, elsewhere) = (Lab::new(), Netns::new());
        let switch = lab.start(steering);
        let waits = |what: &str| eventually(what, HEALED, || (state(&switch) == "waiting").then_some(()));
        lab.undisturbed(|| {
            lab.host.ip("link set near-a name other");
            waits("the port to wait for its name");
            lab.host.ip("link set other name near-a");
            lab.healed("after the name came back");

            lab.host.ip(&format!("link set near-a netns {}", elsewhere.name()));
            waits("the port to wait for its interface");
            let links = elsewhere.ip("-d link show near-a");
            assert!(!links.contains("prog/xdp"), "a program was left on it: {links}");
            elsewhere.ip(&format!("link set near-a netns {}", lab.host.name()));
            lab.host.ip("link set near-a up");
            lab.healed("after the interface came back");

            // Two that swap their names.
            lab.host.ip("link set near-a name swap");
            lab.host.ip("link set near-b name near-a");
            lab.host.ip("link set swap name near-b");
            lab.healed("after the swap");
        });
        assert_clean(switch);
    }
}

#[test]
fn a_link_that_flaps_at_either_end_comes_back_and_releases_nothing_stale() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    for steering in STEERINGS {
        let lab = Lab::new();
        let switch = lab.start(steering);
        let down = |what: &str| eventually(what, HEALED, || (state(&switch) == "down").then_some(()));
        lab.undisturbed(|| {
            for pause_ms in [0, 10, 100, 300, 700] {
                let pause = || thread::sleep(Duration::from_millis(pause_ms));
                lab.host.ip("link set near-a down");
                pause();
                lab.host.ip("link set near-a up");
                lab.healed(&format!("{steering}: near end down for {pause_ms} ms"));
                lab.far[0].ip("link set eth0 down");
                pause();
                lab.far[0].ip("link set eth0 up");
                lab.healed(&format!("{steering}: far end down for {pause_ms} ms"));
            }
        });
        for (end, command) in [(&lab.host, "near-a"), (&lab.far[0], "eth0")] {
            end.ip(&format!("link set {command} down"));
            down("the port to be down");
            let before = switch.dropped("a", "egress", "port_down");
            // Frames for a host whose port is down are dropped and counted.
            let sender = PacketSocket::bind(&lab.far[1], "eth0");
            let from = lab.far[1].run("cat /sys/class/net/eth0/address").trim().parse().unwrap();
            let frame = ethernet(MacAddr::BROADCAST, from, TEST_ETHERTYPE, &[1; 46]);
            (0..50).for_each(|_| sender.send(&frame));
            eventually("the drops to be counted", HEALED, || {
                (switch.dropped("a", "egress", "port_down") >= before + 50).then_some(())
            });
            end.ip(&format!("link set {command} up"));
            let receiver = PacketSocket::bind(&lab.far[0], "eth0");
            lab.healed("after it was up again");
            assert_eq!(
                receiver
                    .receive_all(Duration::from_millis(100), is_from(from))
                    .into_iter()
                    .filter(|bytes| *bytes == frame)
                    .count(),
                0,
                "stale frames"
            );
        }
        assert_clean(switch);
    }
}

#[test]
fn a_changed_mtu_is_followed() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    for steering in STEERINGS {
        let lab = Lab::new();
        let switch = lab.start(steering);
        lab.undisturbed(|| {
            for (at, name) in NAMES.iter().enumerate().take(2) {
                lab.far[at].ip("link set eth0 mtu 9000");
                lab.host.ip(&format!("link set near-{name} mtu 9000"));
            }
            eventually("the MTU to be noticed", HEALED, || {
                NAMES[..2].iter().all(|name| switch.port(name).mtu_bytes == Some(9000)).then_some(())
            });
            lab.healed("after the change");
        });
        assert_eq!(lab.far[0].ping("10.79.0.2".parse().unwrap(), 2, 9000 - 28).len(), 2, "{steering}");
        assert_clean(switch);
    }
}

#[test]
fn a_program_that_somebody_detached_is_attached_again() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    // The kernel tells nobody of a detached link, so the interfaces are looked at every few seconds.
    const NOTICED: Duration = Duration::from_secs(8);
    let lab = Lab::new();
    let switch = lab.start("xdp");
    let program = || links(&lab.host)["near-a"]["xdp"]["prog"]["id"].as_u64();
    let before = program().expect("it is attached");
    let all: Value = serde_json::from_str(&lab.host.run("bpftool -j link show")).unwrap();
    let id = all.as_array().unwrap().iter().find(|link| link["prog_id"] == before).unwrap()["id"].clone();
    lab.undisturbed(|| {
        lab.host.run(&format!("bpftool link detach id {id}"));
        assert_eq!(program(), None);
        eventually("a program on the interface", NOTICED, || program().map(|_| ()));
        lab.healed("after the program was attached again");
    });
    assert_clean(switch);
}

/// Lockgate's own pairs and taps: their namespace goes with the container and comes back with the next one.
#[test]
fn a_container_that_restarts_gets_its_interface_again() {
    if !require::root("netns") {
        return;
    }
    let _alone = ALONE.lock();
    for kind in ["veth", "tap"] {
        let lab = Lab::new();
        let name = unique_name();
        let make = || _ = run(command(&format!("ip netns add {name}")));
        let remove = || _ = run(command(&format!("ip netns del {name}")));
        make();
        let switch = Switch::start(
            &lab.host,
            &format!(
                "port_groups: {{ lan: {{}} }}\nports:\n  \
                 b: {{ group: lan, netdev: near-b }}\n  \
                 c: {{ group: lan, netdev: near-c }}\n  \
                 d: {{ group: lan, netdev: near-d }}\n  \
                 a: {{ group: lan, {kind}: {{ netns: {name}, interface: eth0, address: 10.79.0.9/24 }} }}\n"
            ),
        );
        let reaches = || {
            let mut ping = lab.far[1].command("ping -n -c 1 -W 0.1 10.79.0.9");
            ping.output().expect("ping runs").status.success()
        };
        eventually("the first container", HEALED, || reaches().then_some(()));
        lab.undisturbed(|| {
            for round in 0..3 {
                remove();
                eventually("the port to wait", HEALED, || (state(&switch) == "waiting").then_some(()));
                make();
                eventually(&format!("{kind}, container {round}"), HEALED, || reaches().then_some(()));
            }
        });
        assert_clean(switch);
        remove();
    }
}
