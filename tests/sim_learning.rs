//! Who receives what while addresses are learned, move, age and run into limits: short stories, told by the real switch.

use std::fmt::Write;

use insta::assert_snapshot;
use lockgate_dataplane::buffer::PoolSize;
use lockgate_dataplane::id::{Direction, PortId, WorkerId};
use lockgate_dataplane::state::{
    BeyondLimit, ClassTable, FdbSettings, ForwardingState, PortState, SourcePolicy,
};
use lockgate_dataplane::time::{Instant, Nanos};
use lockgate_dataplane::verdict::DropReason;
use lockgate_tests::frames::{self, SHORTEST, station};
use lockgate_tests::rig::{Rig, ids, open_port};

const AGE: Nanos = Nanos::from_secs(300);
const NOBODY: u8 = 99;

#[test]
fn unknown_unicast_reaches_only_ports_that_take_it() {
    let mut story = Story::new(vec![pinned(1), pinned(2), learning(10, BeyondLimit::Drop)], 1);
    story.sends(0, 1, NOBODY, "nobody knows the destination");
    story.sends(2, 30, 1, "a pinned address needs no flood, however long it was silent");
    story.sends(0, 1, 30, "the answer goes to the one that asked");
    story.sends(1, 1, 2, "an address of port 0");
    story.sends(2, 1, 2, "a learning port cannot take a pinned address");

    story.tell("without a port that takes unknown unicast:");
    story.restart(vec![pinned(1), pinned(2), pinned(3)], 1);
    story.sends(0, 1, NOBODY, "");
    story.sends(0, 1, 1, "to itself");
    assert_snapshot!(story.text);
}

#[test]
fn an_address_is_known_while_it_speaks_and_forgotten_after() {
    let mut story = Story::new(vec![learning(10, BeyondLimit::Drop); 3], 1);
    story.sends(0, 10, 20, "");
    story.sends(1, 20, 10, "");
    story.sends(0, 10, 20, "both are known");
    story.waits(Nanos::new(AGE.get() - 1));
    story.sends(2, 30, 20, "a nanosecond before its time");
    // Ageing looks at the table ten times a second.
    story.waits(Nanos::from_millis(100));
    story.sends(2, 30, 20, "20 was silent for the age");
    assert_snapshot!(story.text);
}

#[test]
fn an_address_that_moves_is_followed() {
    for workers in [1, 2] {
        let mut story = Story::new(vec![learning(10, BeyondLimit::Drop); 3], workers);
        story.announces(0, 10);
        story.announces(2, 30);
        story.sends(2, 30, 10, "10 is behind port 0");
        story.announces(1, 10);
        story.sends(2, 30, 10, "10 has moved to port 1");
        story.detaches(1);
        story.sends(2, 30, 10, "port 1 is gone and what was behind it is forgotten");
        // Two workers tell the same story as one.
        assert_snapshot!("an_address_that_moves_is_followed", story.text);
    }
}

#[test]
fn the_limit_of_a_port_drops_or_forwards() {
    let mut story = Story::new(
        vec![
            learning(2, BeyondLimit::Drop),
            learning(2, BeyondLimit::Forward),
            learning(10, BeyondLimit::Drop),
        ],
        1,
    );
    for (port, from) in [(0, 10), (1, 20)] {
        story.announces(port, from);
        story.announces(port, from + 1);
        story.sends(port, from + 2, 30, "a third address");
        story.sends(2, 30, from + 2, "the way back to it");
        story.sends(2, 30, from, "the first is still known");
    }
    story.waits(AGE);
    story.sends(0, 12, 30, "room again after the age");
    assert_snapshot!(story.text);
}

#[test]
fn a_full_table_forwards_and_keeps_what_it_knows() {
    let ports = vec![learning(10, BeyondLimit::Drop); 3];
    let mut story = Story::with_capacity(ports, 1, 2);
    story.announces(0, 10);
    story.announces(0, 11);
    story.sends(1, 20, 10, "20 finds no room, its frames pass");
    story.sends(0, 10, 20, "and are answered by flooding");
    assert_snapshot!(story.text);
}

#[test]
fn the_first_source_is_pinned_until_the_port_is_gone() {
    for workers in [1, 2] {
        let first_seen =
            PortState { sources: SourcePolicy::FirstSeen, takes_unknown_unicast: false, ..open_port() };
        let mut story = Story::new(vec![first_seen, pinned(2), pinned(3)], workers);
        story.sends(1, 2, 10, "nothing is known of port 0 yet");
        story.announces(0, 10);
        story.sends(1, 2, 10, "10 was the first");
        story.sends(0, 11, 2, "any other is forged");
        story.waits(Nanos::new(AGE.get() * 10));
        story.sends(1, 2, 10, "pinned does not age");
        story.detaches(0);
        story.sends(1, 2, 10, "forgotten with the port");
        story.attaches(0);
        story.announces(0, 11);
        story.sends(1, 2, 11, "a new first one");
        assert_snapshot!("the_first_source_is_pinned_until_the_port_is_gone", story.text);
    }
}

/// A worker tells the others of an address again before their copies age, but not with every frame.
#[test]
fn another_worker_knows_an_address_as_long_as_it_speaks() {
    let mut story = Story::new(vec![learning(10, BeyondLimit::Drop); 3], 2);
    let (speaker, other_worker) = (0, 1);
    for _ in 0..100 {
        story.says(speaker, 10);
        story.waits(Nanos::from_secs(10));
    }
    story.sends(other_worker, 20, 10, "the other worker knows 10 after 1000 s");
    story.waits(AGE);
    story.sends(other_worker, 20, 10, "10 fell silent");
    assert_snapshot!(story.text);
}

/// What another worker learned before a frame arrived counts for that frame, also if this worker slept meanwhile.
#[test]
fn a_worker_that_slept_knows_what_was_learned_meanwhile() {
    let mut rig = rig(vec![learning(10, BeyondLimit::Drop); 4], 2, 1000);
    let (speaker, listener, sleeper, bystander) = (PortId(0), PortId(2), PortId(1), PortId(3));
    for (port, number) in [(listener, 20), (sleeper, 30)] {
        rig.send(port, frames::gratuitous_arp(station(number)));
    }
    rig.settle(Instant::ZERO);
    ids(rig.state()).for_each(|port| drop(rig.take_all(port)));

    rig.send(speaker, frames::ipv4_udp(station(20), station(10), 0, SHORTEST));
    while rig.round_of(0, Instant::ZERO) {}
    rig.send(sleeper, frames::ipv4_udp(station(10), station(30), 0, SHORTEST));
    rig.settle(Instant::ZERO);
    let received = [speaker, bystander].map(|port| rig.take_all(port).len());
    assert_eq!(received, [1, 0], "the frame went to its destination and was not flooded");
}

/// A switch and what happened to it, a line for every frame.
struct Story {
    rig: Rig,
    now: Instant,
    text: String,
}

impl Story {
    fn new(ports: Vec<PortState>, workers: u8) -> Self {
        Self::with_capacity(ports, workers, 1000)
    }

    fn with_capacity(ports: Vec<PortState>, workers: u8, capacity: usize) -> Self {
        Self { rig: rig(ports, workers, capacity), now: Instant::ZERO, text: String::new() }
    }

    fn restart(&mut self, ports: Vec<PortState>, workers: u8) {
        self.rig = rig(ports, workers, 1000);
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.text, "{line}").unwrap();
    }

    fn sends(&mut self, port: u16, from: u8, to: u8, comment: &str) {
        let frame = frames::ipv4_udp(station(to), station(from), 0, SHORTEST);
        let fate = self.fate(PortId(port), frame);
        let addresses = format!("{from} → {to}");
        let line = format!("{:>5} s  port {port}: {addresses:<9} {fate:<36} {comment}", self.seconds());
        self.tell(line.trim_end());
    }

    fn announces(&mut self, port: u16, from: u8) {
        let fate = self.fate(PortId(port), frames::gratuitous_arp(station(from)));
        let line = format!("{:>5} s  port {port}: {from} → all  {fate}", self.seconds());
        self.tell(&line);
    }

    /// As [`Self::announces`], without telling.
    fn says(&mut self, port: u16, from: u8) {
        self.fate(PortId(port), frames::gratuitous_arp(station(from)));
    }

    fn waits(&mut self, span: Nanos) {
        self.now += span;
        self.rig.rounds(self.now, 1);
    }

    fn detaches(&mut self, port: u16) {
        self.rig.detach(PortId(port));
        self.rig.settle(self.now);
        self.tell(&format!("         port {port} loses its device"));
    }

    fn attaches(&mut self, port: u16) {
        self.rig.attach(PortId(port));
        self.tell(&format!("         port {port} has a device again"));
    }

    fn fate(&mut self, port: PortId, frame: Vec<u8>) -> String {
        let before = drops(&self.rig);
        self.rig.send(port, frame);
        self.rig.settle(self.now);
        let ports = ids(self.rig.state());
        let receivers: Vec<_> = ports
            .filter(|port| !self.rig.take_all(*port).is_empty())
            .map(|port| port.0.to_string())
            .collect();
        let after = drops(&self.rig);
        let dropped = after.into_iter().zip(before).filter(|(after, before)| after.1 > before.1);
        let dropped: Vec<_> = dropped.map(|((reason, _), _)| format!("dropped: {reason}")).collect();
        let received = (!receivers.is_empty()).then(|| format!("received by {}", receivers.join(", ")));
        received.into_iter().chain(dropped).collect::<Vec<_>>().join("; ")
    }

    fn seconds(&self) -> u64 {
        self.now.as_nanos().div_ceil(1_000_000_000)
    }
}

fn drops(rig: &Rig) -> Vec<(DropReason, u64)> {
    let total = |reason: DropReason| {
        let count =
            |port| Direction::ALL.map(|direction| rig.drops(port, direction, reason)).iter().sum::<u64>();
        ids(rig.state()).map(count).sum()
    };
    DropReason::ALL.iter().map(|reason| (*reason, total(*reason))).collect()
}

fn rig(mut ports: Vec<PortState>, workers: u8, capacity: usize) -> Rig {
    for (at, port) in (0..).zip(&mut ports) {
        port.worker = WorkerId(at % workers);
    }
    let state = ForwardingState::new(ports, ClassTable::default(), FdbSettings { capacity, age: AGE });
    Rig::new(state, PoolSize { small: 64, large: 0 }, 1500)
}

/// A port as workloads have it: one address, no unknown unicast.
fn pinned(number: u8) -> PortState {
    let sources = SourcePolicy::Pinned([station(number)].into());
    PortState { sources, takes_unknown_unicast: false, ..open_port() }
}

fn learning(limit: usize, beyond: BeyondLimit) -> PortState {
    PortState { sources: SourcePolicy::Learn { limit, beyond }, ..open_port() }
}
