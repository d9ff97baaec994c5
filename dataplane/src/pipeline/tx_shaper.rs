//! When a waiting frame may leave: queue, scheduler and token buckets of one port and direction together.

use crate::counters::ShaperCounters;
use crate::frame::Frame;
use crate::id::ClassId;
use crate::state::Shaping;
use crate::table::frame_list::FrameSlab;
use crate::table::shaper::Shaper;
use crate::time::{Instant, Nanos};
use crate::units::Bytes;

use super::queue::{Bound, QueueSet};
use super::scheduler::{ClassTable, Scheduler};

/// The peak bucket holds at least one frame of this size; a longer one passes on debt.
const LARGEST_FRAME: Bytes = Bytes::new(1518);

/// The queues of one port and direction, and the rate they are emptied at.
#[derive(Debug)]
pub struct ShapedQueue {
    queues: QueueSet,
    scheduler: Scheduler,
    shaper: Option<Shaper>,
    /// Since when frames wait for credit and nothing else.
    throttled_since: Option<Instant>,
}

/// Answer of [`ShapedQueue::dequeue`].
#[derive(Debug)]
pub enum Dequeue {
    /// This frame leaves now; it has been charged.
    Frame(Frame),
    /// The next frame has credit at this instant, not before.
    Wait(Instant),
    /// Nothing waits.
    Empty,
}

impl ShapedQueue {
    /// An empty queue; without `shaping` frames leave as fast as they are asked for.
    pub fn new(shaping: Option<&Shaping>, now: Instant) -> Self {
        Self {
            queues: QueueSet::new(shaping),
            scheduler: Scheduler::default(),
            shaper: shaping.map(|shaping| Shaper::new(shaping, LARGEST_FRAME, now)),
            throttled_since: None,
        }
    }

    /// Charges a frame that need not wait; `false` if there is not enough credit.
    pub fn try_charge(&mut self, now: Instant, frame: &Frame) -> bool {
        self.shaper.as_mut().is_none_or(|shaper| {
            let charged = shaper.charged(frame.wire_len(), frame.wire_frames());
            shaper.try_take(now, charged)
        })
    }

    /// Lets the frame wait, or gives it back with the bound that refused it. See [`QueueSet::push`].
    pub fn enqueue(&mut self, slab: &mut FrameSlab, frame: Frame, free_buffers: usize) -> Result<(), (Frame, Bound)> {
        self.queues.push(slab, frame, free_buffers)
    }

    /// Takes the next frame if it has credit now.
    pub fn dequeue(&mut self, now: Instant, slab: &mut FrameSlab, classes: &ClassTable) -> Dequeue {
        let Some(class) = self.scheduler.next(&self.queues, slab, classes) else { return Dequeue::Empty };
        let Some(head) = self.queues.front(slab, class) else { return Dequeue::Empty };
        let (len, frames) = (head.wire_len(), head.wire_frames());
        if let Some(shaper) = &mut self.shaper {
            let charged = shaper.charged(len, frames);
            if !shaper.try_take(now, charged) {
                self.throttled_since.get_or_insert(now);
                return Dequeue::Wait(shaper.next_conforming(now, charged));
            }
        }
        self.scheduler.sent(class, len, classes);
        self.queues.pop(slab, class).map_or(Dequeue::Empty, Dequeue::Frame)
    }

    /// Takes the oldest frame of any class, charging nothing: for a port that goes away.
    pub fn flush(&mut self, slab: &mut FrameSlab) -> Option<Frame> {
        ClassId::all().find_map(|class| self.queues.pop(slab, class))
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queues.frames() == 0
    }

    /// Whether a rate applies.
    pub fn is_shaped(&self) -> bool {
        self.shaper.is_some()
    }

    /// Frames waiting.
    pub fn frames(&self) -> usize {
        self.queues.frames()
    }

    /// Bytes waiting in one class.
    pub fn class_bytes(&self, class: ClassId) -> u64 {
        self.queues.class_bytes(class)
    }

    /// Notes how long a frame that leaves now has waited.
    pub fn record(&mut self, now: Instant, frame: &Frame, counters: &ShaperCounters) {
        if let Some(since) = self.throttled_since.take() {
            counters.throttled_nanos.add(now.saturating_since(since).get());
        }
        if self.shaper.is_some() {
            let wait = now.saturating_since(frame.queued_at);
            counters.sojourn.record(wait);
            if wait > Nanos::ZERO {
                counters.delayed_frames.add(frame.wire_frames());
            }
        }
    }

    /// Publishes what waits and what credit is left.
    pub fn publish(&mut self, now: Instant, counters: &ShaperCounters) {
        counters.queue_bytes.set(self.queues.bytes());
        counters.queue_frames.set(self.queues.frames());
        counters.queue_high_water_bytes.raise(self.queues.bytes());
        if let Some(shaper) = &self.shaper {
            counters.credit_bytes.set(shaper.credit(now));
        }
    }
}
