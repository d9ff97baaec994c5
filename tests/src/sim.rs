//! A deterministic simulator: hosts, links and the real switch ([`Rig`]) on virtual time.
//!
//! Time jumps from one event to the next: a frame arrives, a host acts, or the switch said that something is due. Hosts
//! are as simple as they can be and still tell a good shaper from a bad one: [`Pace`] lists them. Every frame carries
//! when it was sent and by which flow, so what arrives tells rate and delay by itself. The same program gives the same
//! numbers on every run and every machine: arithmetic is on integers, chance comes from a seed.
//!
//! Ports are access ports; sinks are the flows' destinations.

mod record;
mod stamp;
mod tcp;

use std::collections::BTreeMap;

use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::id::PortId;
use lockgate_dataplane::port::memory::Packet;
use lockgate_dataplane::state::{PortState, SourcePolicy};
use lockgate_dataplane::time::{Instant, Nanos};
use lockgate_dataplane::units::{BitsPerSecond, Bytes};

use crate::frames::{self, TCP_PAYLOAD, station};
use crate::random::Random;
use crate::rig::{Rig, ids, open_port};
use stamp::Stamp;
use tcp::Tcp;

pub use record::{Arrival, Record};

/// A switch with hosts around it.
pub struct Sim {
    rig: Rig,
    now: Instant,
    /// What will happen, in order of time and, at the same time, in the order it was planned.
    events: BTreeMap<(Instant, u64), Event>,
    planned: u64,
    flows: Vec<State>,
    /// One-way delay of every link between a host and the switch.
    link_delay: Nanos,
    /// The switch wakes up late by up to this.
    late: Nanos,
    random: Random,
}

/// A sender and its one destination.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Where its frames enter.
    pub from: PortId,
    /// Where they leave.
    pub to: PortId,
    /// Their class mark.
    pub dscp: u8,
    /// Length of each frame on the wire, without FCS.
    pub length: usize,
    /// Frames that are sent as one super-frame; 1 for plain ones.
    pub segments: usize,
    /// When they are sent.
    pub pace: Pace,
}

/// How a flow sends.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// At a constant rate, whatever happens.
    Constant(BitsPerSecond),
    /// At `rate` for a random time of `on` on average, then not at all for one of `off` on average.
    Bursty {
        /// While on.
        rate: BitsPerSecond,
        /// Mean of the bursts.
        on: Nanos,
        /// Mean of the pauses.
        off: Nanos,
    },
    /// As a bulk TCP transfer: clocked by acknowledgements, slowed by loss. At most at this rate, its host's link.
    Tcp(BitsPerSecond),
}

/// Names a flow of a [`Sim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowId(usize);

struct State {
    flow: Flow,
    record: Record,
    /// Frames and super-frames sent.
    chunks: u64,
    /// Segments of each chunk that arrived.
    arrived: BTreeMap<u64, u64>,
    tcp: Tcp,
    sending_since: Instant,
    /// Bytes sent since then.
    sent_bytes: u64,
    /// End of the burst.
    on_until: Instant,
}

enum Event {
    /// A flow may have something to send.
    Send(FlowId),
    /// A flow may have waited too long.
    Timer(FlowId),
    /// A frame reaches the switch.
    Enter(PortId, Packet),
    /// A frame reaches a host.
    Leave(Packet),
}

impl Sim {
    /// A simulation of `rig` that starts at its zero.
    pub fn new(rig: Rig, link_delay: Nanos) -> Self {
        Self {
            rig,
            now: Instant::ZERO,
            events: BTreeMap::new(),
            planned: 0,
            flows: Vec::new(),
            link_delay,
            late: Nanos::ZERO,
            random: Random::new(1),
        }
    }

    /// From now on the switch handles everything, arrivals and deadlines, late by a random time of up to `late`.
    pub fn set_late(&mut self, late: Nanos) {
        self.late = late;
    }

    /// A host starts to send.
    pub fn start(&mut self, flow: Flow) -> FlowId {
        let id = FlowId(self.flows.len());
        let line = match flow.pace {
            Pace::Constant(rate) | Pace::Bursty { rate, .. } | Pace::Tcp(rate) => rate,
        };
        let on_until = match flow.pace {
            Pace::Bursty { on, .. } => self.now + self.random.around(on),
            Pace::Constant(_) | Pace::Tcp(_) => Instant::from_nanos(u64::MAX),
        };
        self.flows.push(State {
            flow,
            record: Record::default(),
            chunks: 0,
            arrived: BTreeMap::new(),
            tcp: Tcp::new(line, flow.segments),
            sending_since: self.now,
            sent_bytes: 0,
            on_until,
        });
        self.plan(self.now, Event::Send(id));
        id
    }

    /// Lets time pass until `end`.
    ///
    /// # Panics
    /// If the switch asks for a round at an instant at which nothing moves.
    pub fn run_until(&mut self, end: Instant) {
        loop {
            let arrival = self.events.first_key_value().map(|((at, _), _)| *at);
            let Some(due) = [arrival, self.rig.next_deadline()].into_iter().flatten().min() else {
                break;
            };
            let late = if self.late == Nanos::ZERO { Nanos::ZERO } else { self.random.up_to(self.late) };
            let wake = due.max(self.now) + late;
            if wake > end {
                break;
            }
            self.now = wake;
            while let Some(event) = self.next_event() {
                self.happen(event);
            }
            self.rig.settle(self.now);
            self.collect();
            let next = self.rig.next_deadline();
            assert!(
                next.is_none_or(|next| next > self.now),
                "due at {next:?}, nothing moves at {:?}",
                self.now
            );
        }
        self.now = self.now.max(end);
    }

    /// What happened to a flow so far.
    pub fn record(&self, id: FlowId) -> &Record {
        &self.flows[id.0].record
    }

    /// The switch.
    pub fn rig(&self) -> &Rig {
        &self.rig
    }

    /// The end of the simulation: stops the switch; buffers that did not come home.
    pub fn stop(mut self) -> usize {
        self.rig.drain(self.now)
    }

    fn plan(&mut self, at: Instant, event: Event) {
        self.planned += 1;
        self.events.insert((at, self.planned), event);
    }

    fn next_event(&mut self) -> Option<Event> {
        let entry = self.events.first_entry()?;
        (entry.key().0 <= self.now).then(|| entry.remove())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Send(id) => self.send(id),
            Event::Timer(id) => {
                self.flows[id.0].tcp.timer(self.now);
                self.send(id);
            }
            Event::Enter(port, packet) => self.rig.peer(port).send(packet),
            Event::Leave(packet) => self.arrive(&packet),
        }
    }

    /// Sends what the flow's pace says, and plans when to ask again.
    fn send(&mut self, id: FlowId) {
        let state = &mut self.flows[id.0];
        let flow = state.flow;
        let wire = Bytes::new((flow.length * flow.segments) as u64);
        match flow.pace {
            Pace::Constant(rate) | Pace::Bursty { rate, .. } => {
                let at = state.sending_since + rate.time_for(Bytes::new(state.sent_bytes));
                state.sent_bytes += wire.get();
                let mut next = state.sending_since + rate.time_for(Bytes::new(state.sent_bytes));
                if let Pace::Bursty { on, off, .. } = flow.pace
                    && next >= state.on_until
                {
                    next = state.on_until + self.random.around(off);
                    let on_until = next + self.random.around(on);
                    (state.sending_since, state.sent_bytes, state.on_until) = (next, 0, on_until);
                }
                self.transmit(id, at);
                self.plan(next, Event::Send(id));
            }
            Pace::Tcp(_) => {
                while let Some(at) = self.flows[id.0].tcp.next(self.now, wire) {
                    self.transmit(id, at);
                }
                if let Some(timeout) = self.flows[id.0].tcp.set_timer() {
                    self.plan(timeout, Event::Timer(id));
                }
            }
        }
    }

    fn transmit(&mut self, id: FlowId, at: Instant) {
        let state = &mut self.flows[id.0];
        let sequence = state.chunks;
        state.chunks += 1;
        state.record.sent += state.flow.segments as u64;
        let Flow { from, to, dscp, length, segments, pace } = state.flow;
        let mut packet = match (pace, segments) {
            (_, 2..) => frames::super_frame(address_of(to), address_of(from), dscp, length, segments),
            (Pace::Tcp(_), _) => Packet::plain(frames::tcp(address_of(to), address_of(from), dscp, length)),
            _ => Packet::plain(frames::ipv4_udp(address_of(to), address_of(from), dscp, length)),
        };
        let segment_size = packet.gso.map_or(packet.bytes.len(), |gso| gso.segment_size.into());
        Stamp { flow: id, is_ack: false, sequence, sent: at }.write(&mut packet.bytes, segment_size);
        self.plan(at + self.link_delay, Event::Enter(from, packet));
    }

    /// Takes what the switch sent off the wires.
    fn collect(&mut self) {
        for port in ids(self.rig.state()) {
            while let Some(packet) = self.rig.peer(port).take() {
                match self.link_delay {
                    Nanos::ZERO => self.arrive(&packet),
                    delay => self.plan(self.now + delay, Event::Leave(packet)),
                }
            }
        }
    }

    fn arrive(&mut self, packet: &Packet) {
        let Some(stamp) = Stamp::read(&packet.bytes) else { return };
        let delay = self.now.saturating_since(stamp.sent);
        let state = &mut self.flows[stamp.flow.0];
        if stamp.is_ack {
            state.tcp.acknowledge(self.now, stamp.sequence, delay);
            return self.send(stamp.flow);
        }
        let Flow { from, to, length, segments, dscp, pace } = state.flow;
        let frames = packet.gso.map_or(1, |gso| u64::from(gso.segments));
        state.record.arrivals.push(Arrival { at: self.now, frames, bytes: length as u64 * frames, delay });
        // The segments of a chunk arrive in order; the last one is there when as many as were sent are.
        let arrived = state.arrived.entry(stamp.sequence).or_default();
        *arrived += frames;
        if let Pace::Tcp(_) = pace
            && *arrived == segments as u64
        {
            let mut ack = frames::tcp(address_of(from), address_of(to), dscp, TCP_PAYLOAD + Stamp::LEN);
            let length = ack.len();
            Stamp { is_ack: true, ..stamp }.write(&mut ack, length);
            self.plan(self.now + self.link_delay, Event::Enter(to, Packet::plain(ack)));
        }
    }
}

/// Ports for `count` hosts: access ports in one VLAN, unshaped, each pinned to its host's address.
pub fn host_ports(count: u16) -> Vec<PortState> {
    let sources = |port| SourcePolicy::Pinned([address_of(PortId(port))].into());
    (0..count).map(|port| PortState { sources: sources(port), ..open_port() }).collect()
}

fn address_of(port: PortId) -> MacAddr {
    station(u8::try_from(port.0 + 1).expect("few ports"))
}
