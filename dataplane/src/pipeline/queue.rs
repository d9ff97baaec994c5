//! Where frames wait: one first-in first-out queue per traffic class, bounded in bytes, frames and buffers.

use crate::buffer::SMALL;
use crate::frame::Frame;
use crate::id::ClassId;
use crate::state::{MAX_CLASSES, Shaping};
use crate::table::frame_list::{FrameList, FrameSlab};
use crate::units::Bytes;

/// Shortest bound of a shaped queue, in full frames: a slow port must hold a few.
const LEAST_FRAMES: u64 = 10;
/// A full frame of an ordinary MTU with its tag.
const FULL_FRAME: u64 = 1518;
/// Bound of an unshaped port's queue, which fills only when the device is slower than its senders.
const UNSHAPED_BYTES: Bytes = Bytes::new(8 << 20);

/// The class queues of one port and direction.
#[derive(Debug)]
pub struct QueueSet {
    classes: [FrameList; MAX_CLASSES],
    /// Most bytes that wait in one class.
    limit: Bytes,
    bytes: u64,
    frames: usize,
    /// Small and large buffers that the waiting frames hold.
    buffers: [usize; 2],
}

/// Which bound refused a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The class queue is full: the frame would wait longer than it may.
    Depth,
    /// The port holds as many buffers as are left for all others.
    Buffers,
}

impl QueueSet {
    /// Empty queues, bounded by what `shaping` sends in its `max_delay`.
    pub fn new(shaping: Option<&Shaping>) -> Self {
        let limit = shaping.map_or(UNSHAPED_BYTES, |shaping| {
            let delayed = shaping.average.bytes_in(shaping.max_delay).get();
            Bytes::new(delayed.max(LEAST_FRAMES * FULL_FRAME))
        });
        Self { classes: Default::default(), limit, bytes: 0, frames: 0, buffers: [0; 2] }
    }

    /// Appends the frame to the queue of its class, or gives it back with the bound that refused it.
    ///
    /// `free_buffers` is how many buffers of the frame's size its pool has left. A port may hold at most as many as
    /// are left (dynamic threshold with factor one: Choudhury and Hahne 1998), so however slow it is, the others can
    /// always receive. An empty class takes any frame, else one longer than the bound would never pass.
    pub fn push(&mut self, slab: &mut FrameSlab, frame: Frame, free_buffers: usize) -> Result<(), (Frame, Bound)> {
        let class = &mut self.classes[frame.class.index()];
        let (len, size) = (frame.wire_len(), buffer_size(&frame));
        if !class.is_empty() && class.bytes() + len > self.limit.get() {
            return Err((frame, Bound::Depth));
        }
        if self.buffers[size] > free_buffers {
            return Err((frame, Bound::Buffers));
        }
        class.push(slab, frame).map_err(|frame| (frame, Bound::Buffers))?;
        self.bytes += len;
        self.frames += 1;
        self.buffers[size] += 1;
        Ok(())
    }

    /// The frame [`Self::pop`] would take.
    pub fn front<'a>(&self, slab: &'a FrameSlab, class: ClassId) -> Option<&'a Frame> {
        self.classes[class.index()].front(slab)
    }

    /// Takes the oldest frame of a class.
    pub fn pop(&mut self, slab: &mut FrameSlab, class: ClassId) -> Option<Frame> {
        let frame = self.classes[class.index()].pop(slab)?;
        self.bytes -= frame.wire_len();
        self.frames -= 1;
        self.buffers[buffer_size(&frame)] -= 1;
        Some(frame)
    }

    /// Bytes waiting in all classes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes waiting in one class.
    pub fn class_bytes(&self, class: ClassId) -> u64 {
        self.classes[class.index()].bytes()
    }

    /// Frames waiting in all classes.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Most bytes that wait in one class.
    pub fn limit(&self) -> Bytes {
        self.limit
    }
}

/// 0 for a small buffer, 1 for a large one.
fn buffer_size(frame: &Frame) -> usize {
    usize::from(frame.buffer_len() > SMALL)
}
