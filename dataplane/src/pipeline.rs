//! The frame path: the stages in order, and nothing else. `ls pipeline/` is the same list.
//!
//! ```text
//!   receive:   parse → classify → ingress_policy → storm_control → ingress_shaper ─┐ passes, or waits and
//!                                                                                 │ `release` takes it up again
//!   forward:   ┌──────────────────────────────────────────────────────────────────┘
//!              └→ lookup (learn, find) → pacing → queue of the egress port, here or at the worker
//!                                              that owns it
//!   transmit:  queue → scheduler → tx_shaper → device
//! ```
//!
//! Every frame that enters ends in exactly one counter: [`Switch::settle`] counts it as sent or dropped, and
//! [`Switch::discard`] is the only other way out.

pub mod classify;
pub mod ingress_policy;
pub mod ingress_shaper;
pub mod lookup;
pub mod pacing;
pub mod queue;
pub mod scheduler;
pub mod storm_control;
pub mod tx_shaper;

use std::collections::VecDeque;

use crate::frame::Frame;
use crate::frame::headers::Headers;
use crate::frame::segment::Segments;
use crate::id::{Direction, PortId};
use crate::port::{BATCH, BATCH_BYTES, Settled};
use crate::state::security::Admin;
use crate::switch::{PortRuntime, Switch};
use crate::time::Instant;
use crate::verdict::DropReason;

use ingress_shaper::Admission;
use lookup::Destination;
use queue::Bound;
use tx_shaper::Dequeue;

impl Switch {
    /// Takes frames that a device of this worker received.
    pub fn receive(&mut self, now: Instant, frames: &mut Vec<Frame>) {
        for mut frame in frames.drain(..) {
            self.counters.flow.received.add(1);
            match self.admit(now, &mut frame) {
                Ok(()) if self.ports[frame.ingress.index()].ingress.is_too_long(&frame) => {
                    let port = frame.ingress;
                    self.cut_up(port, Direction::Ingress, frame, |switch, piece| {
                        switch.shape_ingress(now, piece)
                    });
                }
                Ok(()) => self.shape_ingress(now, frame),
                Err(reason) => {
                    if reason == DropReason::BpduGuard {
                        self.disable(frame.ingress);
                    }
                    self.discard(frame.ingress, Direction::Ingress, frame, reason);
                }
            }
        }
    }

    /// Parse, classify, policy, storm limits: everything that needs no other port.
    fn admit(&mut self, now: Instant, frame: &mut Frame) -> Result<(), DropReason> {
        let state = &self.state;
        let (port, runtime) = (state.port(frame.ingress), &mut self.ports[frame.ingress.index()]);
        if port.security.admin == Admin::Down {
            return Err(DropReason::AdminDown);
        }
        if runtime.disabled {
            return Err(DropReason::BpduGuard);
        }
        let headers = Headers::parse(frame.bytes()).map_err(|_| DropReason::Malformed)?;
        classify::classify(frame, &headers, &port.vlan, &state.classes)?;
        ingress_policy::admit(now, frame, port, runtime.own)?;
        runtime.storm.admit(now, frame)
    }

    fn shape_ingress(&mut self, now: Instant, frame: Frame) {
        let (port, free) = (frame.ingress, self.free_buffers(&frame));
        let queue = &mut self.ports[port.index()].ingress;
        if !queue.is_shaped() {
            return self.forward(now, frame);
        }
        match ingress_shaper::admit(now, frame, queue, &mut self.slab, free) {
            Admission::Pass(frame) => {
                queue.record(now, &frame, &self.counters.direction(port, Direction::Ingress).shaper);
                self.forward(now, frame);
            }
            Admission::Held => self.ingress_waiting.insert(port),
            Admission::Refused(frame, bound) => {
                self.discard(port, Direction::Ingress, frame, bound_reason(bound, true));
            }
        }
    }

    /// Takes up the frames of `port` that waited for ingress credit and have it now; the instant at which the next one
    /// will, if any still waits.
    pub fn release(&mut self, now: Instant, port: PortId) -> Option<Instant> {
        loop {
            let queue = &mut self.ports[port.index()].ingress;
            match ingress_shaper::release(now, queue, &mut self.slab, &self.state.classes) {
                Dequeue::Frame(frame) => {
                    queue.record(now, &frame, &self.counters.direction(port, Direction::Ingress).shaper);
                    self.forward(now, frame);
                }
                Dequeue::Wait(until) => return Some(until),
                Dequeue::Empty => return None,
            }
        }
    }

    /// Learn, find, hand to the egress port's queue.
    fn forward(&mut self, now: Instant, frame: Frame) {
        let ingress = frame.ingress;
        let own = &mut self.ports[ingress.index()].own;
        match lookup::learn(now, &frame, self.state.port(ingress), own, &mut self.fdb) {
            Ok(announce) => self.announce(announce, &frame),
            Err(reason) => return self.discard(ingress, Direction::Ingress, frame, reason),
        }
        let destination = lookup::lookup(&frame, &self.state, &self.fdb);
        if let Destination::Flood { unknown_unicast: true } = destination
            && let Err(reason) = self.ports[ingress.index()].storm.admit_unknown(now, &frame)
        {
            return self.discard(ingress, Direction::Ingress, frame, reason);
        }
        match destination {
            Destination::Port(egress) => {
                self.count_ingress(&frame);
                if !self.state.overhearers[ingress.index()].is_empty() {
                    self.copy_to_overhearers(now, egress, &frame);
                }
                self.deliver(now, egress, frame);
            }
            Destination::Flood { unknown_unicast } => self.flood(now, frame, unknown_unicast),
            Destination::Drop(reason) => self.discard(ingress, Direction::Ingress, frame, reason),
        }
    }

    /// One copy to every receiver; the last one gets the original.
    fn flood(&mut self, now: Instant, frame: Frame, unknown_unicast: bool) {
        let (state, ingress) = (self.state.clone(), frame.ingress);
        let mut receivers = state.flood[ingress.index()]
            .iter()
            .copied()
            .filter(|egress| lookup::takes_copy(&frame, unknown_unicast, *egress, &state));
        let Some(mut receiver) = receivers.next() else {
            let reason = if unknown_unicast { DropReason::UnknownUnicast } else { DropReason::NoReceiver };
            return self.discard(ingress, Direction::Ingress, frame, reason);
        };
        self.count_ingress(&frame);
        for next in receivers {
            self.deliver_copy(now, receiver, &frame);
            receiver = next;
        }
        self.deliver(now, receiver, frame);
    }

    /// A copy of a unicast frame to every promiscuous port of its VLAN but the one it is for.
    fn copy_to_overhearers(&mut self, now: Instant, egress: PortId, frame: &Frame) {
        let state = self.state.clone();
        for port in &state.overhearers[frame.ingress.index()] {
            if *port != egress && lookup::takes_copy(frame, false, *port, &state) {
                self.deliver_copy(now, *port, frame);
            }
        }
    }

    fn deliver_copy(&mut self, now: Instant, egress: PortId, frame: &Frame) {
        match frame.duplicate(&mut self.pool) {
            Some(copy) => {
                self.counters.flow.copied.add(1);
                self.deliver(now, egress, copy);
            }
            None => self.copy_failed(egress, Direction::Egress, frame.wire_frames(), frame.wire_len()),
        }
    }

    /// Hands the frame to the worker that owns the egress port: this one, or through a ring.
    fn deliver(&mut self, now: Instant, egress: PortId, frame: Frame) {
        let owner = self.state.port(egress).worker;
        if owner == self.me {
            return self.enqueue(now, egress, frame);
        }
        match self.hand_over(owner, egress, frame) {
            Ok(()) => self.counters.flow.handed_over.add(1),
            Err(frame) => self.discard(egress, Direction::Egress, frame, DropReason::WorkerRingFull),
        }
    }

    /// Puts a frame into the queue of an egress port of this worker, in the form that port wants.
    pub fn enqueue(&mut self, now: Instant, egress: PortId, frame: Frame) {
        let port = &mut self.ports[egress.index()];
        let is_down = port.disabled || self.state.port(egress).security.admin == Admin::Down;
        if !port.attached || !port.carrier || is_down {
            return self.discard(egress, Direction::Egress, frame, DropReason::PortDown);
        }
        if port.egress.is_too_long(&frame) {
            let step = |switch: &mut Self, piece| switch.enqueue_whole(now, egress, piece);
            return self.cut_up(egress, Direction::Egress, frame, step);
        }
        self.enqueue_whole(now, egress, frame);
    }

    fn enqueue_whole(&mut self, now: Instant, egress: PortId, mut frame: Frame) {
        if let Err(reason) = classify::put_tag_back(&mut frame, &self.state.port(egress).vlan) {
            return self.discard(egress, Direction::Egress, frame, reason);
        }
        frame.queued_at = now;
        let free = self.free_buffers(&frame);
        let PortRuntime { egress: queue, .. } = &mut self.ports[egress.index()];
        let shaped = queue.is_shaped();
        match queue.enqueue(&mut self.slab, frame, free) {
            Ok(()) => self.egress_waiting.insert(egress),
            Err((frame, bound)) => {
                self.discard(egress, Direction::Egress, frame, bound_reason(bound, shaped))
            }
        }
    }

    /// Hands the segments of a super-frame to `step` one by one, or the frame itself if they have no buffers or it
    /// cannot be cut.
    fn cut_up(
        &mut self,
        port: PortId,
        direction: Direction,
        frame: Frame,
        mut step: impl FnMut(&mut Self, Frame),
    ) {
        let segments = Segments::new(&frame)
            .filter(|segments| self.pool.room_for(segments.segment_len(0)) >= usize::from(segments.count()));
        let Some(segments) = segments else { return step(self, frame) };
        for index in 0..segments.count() {
            match segments.frame(index, &mut self.pool) {
                Some(piece) => {
                    self.counters.flow.copied.add(1);
                    step(self, piece);
                }
                // The pieces before it were flooded and took the buffers.
                None => self.copy_failed(port, direction, 1, segments.segment_len(index) as u64),
            }
        }
        // The pieces take the super-frame's place.
        self.counters.flow.replaced.add(1);
        self.recycle(frame.into_buf());
    }

    /// Appends frames of `port` that may leave now to `batch` until it holds [`BATCH`] or, so that a stuck device holds few
    /// super-frames, [`BATCH_BYTES`]; the instant at which the next one may, if it waits for credit.
    pub fn transmit(&mut self, now: Instant, port: PortId, batch: &mut VecDeque<Frame>) -> Option<Instant> {
        let queue = &mut self.ports[port.index()].egress;
        let mut bytes: usize = batch.iter().map(Frame::len).sum();
        while batch.len() < BATCH && bytes < BATCH_BYTES {
            match queue.dequeue(now, &mut self.slab, &self.state.classes) {
                Dequeue::Frame(frame) => {
                    queue.record(now, &frame, &self.counters.direction(port, Direction::Egress).shaper);
                    bytes += frame.len();
                    batch.push_back(frame);
                }
                Dequeue::Wait(until) => return Some(until),
                Dequeue::Empty => return None,
            }
        }
        None
    }

    /// Counts a frame that a device took and gives its buffer back.
    pub fn settle(&mut self, port: PortId, settled: Settled) {
        let Settled { frame, fate } = settled;
        match fate {
            Err(reason) => self.discard(port, Direction::Egress, frame, reason),
            Ok(()) => {
                self.counters.flow.sent.add(1);
                self.counters.direction(port, Direction::Egress).pass(&frame, frame.destination());
                self.counters.port(port).class_bytes[frame.class.index()].add(frame.wire_len());
                self.recycle(frame.into_buf());
            }
        }
    }

    /// Counts a dropped frame, once, and gives its buffer back.
    pub fn discard(&mut self, port: PortId, direction: Direction, frame: Frame, reason: DropReason) {
        self.counters.flow.dropped.add(1);
        self.counters.direction(port, direction).drop(frame.wire_frames(), frame.wire_len(), reason);
        if direction == Direction::Egress {
            self.counters.port(port).class_drops[frame.class.index()].add(frame.wire_frames());
        }
        self.recycle(frame.into_buf());
    }
}

fn bound_reason(bound: Bound, shaped: bool) -> DropReason {
    match (bound, shaped) {
        (Bound::Buffers, _) => DropReason::BufferQuota,
        (Bound::Depth, true) => DropReason::ShaperQueueFull,
        (Bound::Depth, false) => DropReason::EgressQueueFull,
    }
}
