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
    // Whoever is behind a waiting frame waits too: order within a flow is kept.
    if queue.is_empty() && queue.try_charge(now, &frame) {
        return Admission::Pass(frame);
    }
    frame.queued_at = now;
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
