//! Within the port's rate into the switch? If not, the frame waits here, before it can reach anyone.
//!
//! Charged on admission: a frame that is dropped later does not give its credit back. Frames wait in the same
//! [`ShapedQueue`] as on the way out, so classes and `max_delay` mean the same in both directions.

use crate::frame::Frame;
use crate::table::frame_list::FrameSlab;
use crate::time::Instant;

use super::queue::Bound;
use super::scheduler::ClassTable;
use super::tx_shaper::ShapedQueue;

/// What became of a frame at the ingress shaper.
#[derive(Debug)]
pub enum Admission {
    /// It conforms and goes on.
    Pass(Frame),
    /// It waits.
    Held,
    /// The queue was over its bound.
    Refused(Frame, Bound),
}

/// Charges the frame to the port's ingress rate, or lets it wait.
pub fn admit(
    now: Instant,
    mut frame: Frame,
    queue: &mut ShapedQueue,
    slab: &mut FrameSlab,
    free_buffers: usize,
) -> Admission {
    frame.queued_at = now;
    // Whoever is behind a waiting frame waits too: order within a flow is kept.
    if queue.is_empty() && queue.try_charge(now, &frame) {
        return Admission::Pass(frame);
    }
    match queue.enqueue(slab, frame, free_buffers) {
        Ok(()) => Admission::Held,
        Err((frame, bound)) => Admission::Refused(frame, bound),
    }
}

/// The next waiting frame whose time has come.
pub fn release(
    now: Instant,
    queue: &mut ShapedQueue,
    slab: &mut FrameSlab,
    classes: &ClassTable,
) -> super::tx_shaper::Dequeue {
    queue.dequeue(now, slab, classes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{BufferPool, PoolSize};
    use crate::id::{PortId, WorkerId};
    use crate::pipeline::tx_shaper::Dequeue;
    use crate::state::Shaping;
    use crate::time::Nanos;
    use crate::units::{BitsPerSecond, Bytes};

    struct Port {
        queue: ShapedQueue,
        slab: FrameSlab,
        pool: BufferPool,
    }

    impl Port {
        /// 1 Mbit/s, which is 125 bytes in a millisecond, with credit for 1000 bytes.
        fn new() -> Self {
            let shaping = Shaping {
                average: BitsPerSecond::new(1_000_000).unwrap(),
                peak: None,
                burst: Bytes::new(1000),
                max_delay: Nanos::ZERO,
                overhead: Bytes::new(0),
            };
            Self {
                queue: ShapedQueue::new(Some(&shaping), Instant::ZERO),
                slab: FrameSlab::new(64),
                pool: BufferPool::new(WorkerId(0), PoolSize { small: 64, large: 0 }),
            }
        }

        fn admit(&mut self, now: Instant, length: usize) -> Admission {
            let frame = Frame::copy_from(&vec![0; length], PortId(0), &mut self.pool).unwrap();
            admit(now, frame, &mut self.queue, &mut self.slab, 64)
        }

        fn release(&mut self, now: Instant) -> Dequeue {
            release(now, &mut self.queue, &mut self.slab, &ClassTable::default())
        }
    }

    #[test]
    fn what_conforms_passes_and_the_rest_waits_its_turn() {
        let mut port = Port::new();
        assert!(matches!(port.admit(Instant::ZERO, 600), Admission::Pass(_)));
        assert!(matches!(port.admit(Instant::ZERO, 600), Admission::Held));
        assert!(
            matches!(port.admit(Instant::ZERO, 60), Admission::Held),
            "has credit, but somebody is before it"
        );

        let due = Instant::from_nanos(1_600_000);
        assert!(matches!(port.release(Instant::ZERO), Dequeue::Wait(until) if until == due));
        let Dequeue::Frame(frame) = port.release(due) else { panic!("the first one is due") };
        assert_eq!((frame.len(), frame.queued_at), (600, Instant::ZERO));
        assert!(matches!(port.release(due), Dequeue::Wait(until) if until == due + Nanos::from_micros(480)));
    }

    #[test]
    fn a_queue_over_its_bound_gives_the_frame_back() {
        let mut port = Port::new();
        // Ten full frames may wait, the least there is.
        let held = (0..20).filter(|_| matches!(port.admit(Instant::ZERO, 1518), Admission::Held)).count();
        assert_eq!(held, 10);
        assert!(matches!(port.admit(Instant::ZERO, 1518), Admission::Refused(_, Bound::Depth)));
    }
}
