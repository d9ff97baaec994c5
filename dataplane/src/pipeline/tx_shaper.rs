//! When a waiting frame may leave: queue, scheduler and token buckets of one port and direction together.

use crate::counters::ShaperCounters;
use crate::frame::Frame;
use crate::id::ClassId;
use crate::state::Shaping;
use crate::table::frame_list::FrameSlab;
use crate::table::shaper::Shaper;
use crate::time::{Instant, Nanos};
use crate::units::Bytes;

use super::pacing;
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
    longest_whole: u64,
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
            longest_whole: pacing::longest_whole(shaping),
        }
    }

    /// Charges a frame that need not wait; `false` if there is not enough credit.
    pub fn try_charge(&mut self, now: Instant, frame: &Frame) -> bool {
        self.shaper.as_mut().is_none_or(|shaper| {
            let charged = shaper.charged(frame.wire_len(), frame.wire_frames());
            shaper.try_take(now, charged)
        })
    }

    /// Lets the frame wait from its `queued_at` on, or gives it back with the bound that refused it. See
    /// [`QueueSet::push`].
    pub fn enqueue(
        &mut self,
        slab: &mut FrameSlab,
        frame: Frame,
        free_buffers: usize,
    ) -> Result<(), (Frame, Bound)> {
        let now = frame.queued_at;
        let spendable = || self.shaper.as_ref().map_or(0, |shaper| shaper.spendable(now));
        self.queues.push(slab, frame, free_buffers, spendable)
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
        self.throttled_since = None;
        ClassId::all().find_map(|class| self.queues.pop(slab, class))
    }

    /// Whether `frame` is to be cut up before it is queued here.
    pub fn is_too_long(&self, frame: &Frame) -> bool {
        pacing::is_too_long(frame, self.longest_whole)
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
        if let Some(since) = &mut self.throttled_since {
            counters.throttled_nanos.add(now.saturating_since(*since).get());
            *since = now;
        }
        counters.queue_bytes.set(self.queues.bytes());
        counters.queue_frames.set(self.queues.frames());
        counters.queue_high_water_bytes.raise(self.queues.bytes());
        if let Some(shaper) = &self.shaper {
            counters.credit_bytes.set(shaper.credit(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{BufferPool, PoolSize};
    use crate::id::{PortId, WorkerId};
    use crate::units::BitsPerSecond;

    /// 1 Mbit/s, which is 125 bytes in a millisecond, with credit for 1000 bytes.
    const SHAPING: Shaping = Shaping {
        average: BitsPerSecond::new(1_000_000).unwrap(),
        peak: None,
        burst: Bytes::new(1000),
        max_delay: Nanos::from_millis(100),
        overhead: Bytes::new(0),
    };

    struct Port {
        queue: ShapedQueue,
        slab: FrameSlab,
        pool: BufferPool,
        counters: ShaperCounters,
    }

    impl Port {
        fn new(shaping: Option<&Shaping>) -> Self {
            Self {
                queue: ShapedQueue::new(shaping, Instant::ZERO),
                slab: FrameSlab::new(64),
                pool: BufferPool::new(WorkerId(0), PoolSize { small: 64, large: 0 }),
                counters: ShaperCounters::default(),
            }
        }

        fn enqueue(&mut self, now: Instant, length: usize) {
            let mut frame = Frame::copy_from(&vec![0; length], PortId(0), &mut self.pool).unwrap();
            frame.queued_at = now;
            self.queue.enqueue(&mut self.slab, frame, 64).unwrap();
        }

        /// Lets out what may leave: how many frames, and when the next one may.
        fn drain(&mut self, now: Instant) -> (usize, Option<Instant>) {
            let mut left = 0;
            loop {
                match self.queue.dequeue(now, &mut self.slab, &ClassTable::default()) {
                    Dequeue::Frame(frame) => self.queue.record(now, &frame, &self.counters),
                    Dequeue::Wait(until) => return (left, Some(until)),
                    Dequeue::Empty => return (left, None),
                }
                left += 1;
            }
        }
    }

    fn millis(millis: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(millis)
    }

    #[test]
    fn frames_leave_when_they_have_credit_and_not_before() {
        let mut port = Port::new(Some(&SHAPING));
        (0..3).for_each(|_| port.enqueue(Instant::ZERO, 500));
        assert_eq!(port.drain(Instant::ZERO), (2, Some(millis(4))));
        assert_eq!(port.drain(millis(4) - Nanos::new(1)), (0, Some(millis(4))));
        assert_eq!(port.drain(millis(4)), (1, None));
        assert_eq!(port.counters.delayed_frames.total(), 1);
        assert_eq!(port.counters.throttled_nanos.total(), 4_000_000);
        assert_eq!(port.counters.sojourn.sum(), Nanos::from_millis(4));
    }

    #[test]
    fn without_a_rate_everything_leaves_at_once_and_nothing_is_timed() {
        let mut port = Port::new(None);
        (0..50).for_each(|_| port.enqueue(Instant::ZERO, 1500));
        assert_eq!(port.drain(millis(9)), (50, None));
        assert_eq!(port.counters.sojourn.counts().iter().sum::<u64>(), 0);
    }

    #[test]
    fn overhead_counts_against_the_rate() {
        let mut port = Port::new(Some(&Shaping { overhead: Bytes::new(24), ..SHAPING }));
        (0..3).for_each(|_| port.enqueue(Instant::ZERO, 476));
        assert_eq!(port.drain(Instant::ZERO), (2, Some(millis(4))));
    }

    #[test]
    fn a_port_that_went_away_while_it_was_throttled_was_not_throttled_meanwhile() {
        let mut port = Port::new(Some(&SHAPING));
        (0..2).for_each(|_| port.enqueue(Instant::ZERO, 1000));
        port.drain(Instant::ZERO);
        assert!(port.queue.flush(&mut port.slab).is_some());
        port.enqueue(millis(60_000), 1000);
        assert_eq!(port.drain(millis(60_000)), (1, None));
        assert_eq!(port.counters.throttled_nanos.total(), 0);
    }

    #[test]
    fn publishes_what_waits_and_what_credit_is_left() {
        let mut port = Port::new(Some(&SHAPING));
        (0..3).for_each(|_| port.enqueue(Instant::ZERO, 800));
        port.drain(Instant::ZERO);
        port.queue.publish(Instant::ZERO, &port.counters);
        let gauges = |counters: &ShaperCounters| {
            [&counters.queue_bytes, &counters.queue_frames, &counters.credit_bytes].map(|gauge| gauge.value())
        };
        assert_eq!(gauges(&port.counters), [1600, 2, 200]);
        port.drain(millis(100));
        port.queue.publish(millis(100), &port.counters);
        assert_eq!(gauges(&port.counters), [800, 1, 200]);
        assert_eq!(port.counters.queue_high_water_bytes.value(), 1600);
    }
}
