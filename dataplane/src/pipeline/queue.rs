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
    /// What each frame costs beyond its length.
    overhead: u64,
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
        let overhead = shaping.map_or(0, |shaping| shaping.overhead.get());
        Self { classes: Default::default(), limit, overhead, bytes: 0, frames: 0, buffers: [0; 2] }
    }

    /// Appends the frame to the queue of its class, or gives it back with the bound that refused it.
    ///
    /// `free_buffers` is how many buffers of the frame's size its pool has left. A port may hold at most as many as
    /// are left (dynamic threshold with factor one: Choudhury and Hahne 1998), so however slow it is, the others can
    /// always receive. An empty class takes any frame, else one longer than the bound would never pass. What may leave
    /// on saved credit, `spendable` bytes, does not wait, so it does not count towards the bound.
    pub fn push(
        &mut self,
        slab: &mut FrameSlab,
        frame: Frame,
        free_buffers: usize,
        spendable: impl FnOnce() -> u64,
    ) -> Result<(), (Frame, Bound)> {
        let class = &mut self.classes[frame.class.index()];
        let (len, size) = (frame.wire_len(), buffer_size(&frame));
        let waiting = class.bytes() + len + self.overhead * (class.frames() as u64 + frame.wire_frames());
        if !class.is_empty() && waiting > self.limit.get() && waiting > self.limit.get() + spendable() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{BufferPool, PoolSize};
    use crate::id::{PortId, WorkerId};
    use crate::time::Nanos;
    use crate::units::BitsPerSecond;

    struct Rig {
        pool: BufferPool,
        slab: FrameSlab,
        queues: QueueSet,
    }

    impl Rig {
        fn new(shaping: Option<&Shaping>) -> Self {
            Self {
                pool: BufferPool::new(WorkerId(0), PoolSize { small: 100, large: 4 }),
                slab: FrameSlab::new(104),
                queues: QueueSet::new(shaping),
            }
        }

        fn push(&mut self, class: u8, length: usize, free_buffers: usize) -> Result<(), Bound> {
            let mut frame = Frame::copy_from(&vec![class; length], PortId(0), &mut self.pool).unwrap();
            frame.class = ClassId(class);
            let refused = self.queues.push(&mut self.slab, frame, free_buffers, || 0);
            refused.map_err(|(frame, bound)| {
                self.pool.release(frame.into_buf());
                bound
            })
        }
    }

    fn shaping(kbit: u64, millis: u64) -> Shaping {
        Shaping {
            average: BitsPerSecond::new(kbit * 1000).unwrap(),
            peak: None,
            burst: Bytes::new(2000),
            max_delay: Nanos::from_millis(millis),
            overhead: Bytes::new(0),
        }
    }

    #[test]
    fn a_shaped_queue_holds_its_delay_s_worth_but_at_least_ten_frames() {
        assert_eq!(QueueSet::new(Some(&shaping(10_000, 20))).limit(), Bytes::new(25_000));
        assert_eq!(QueueSet::new(Some(&shaping(64, 20))).limit(), Bytes::new(15_180));
        assert_eq!(QueueSet::new(None).limit(), UNSHAPED_BYTES);
    }

    #[test]
    fn each_class_has_the_whole_depth_and_an_empty_one_takes_anything() {
        let mut rig = Rig::new(Some(&shaping(64, 20)));
        assert_eq!(rig.push(0, 20_000, 100), Ok(()), "longer than the bound");
        assert_eq!(rig.push(0, 60, 100), Err(Bound::Depth));
        for _ in 0..10 {
            assert_eq!(rig.push(1, 1518, 100), Ok(()));
        }
        assert_eq!(rig.push(1, 60, 100), Err(Bound::Depth));
        assert_eq!((rig.queues.frames(), rig.queues.bytes()), (11, 35_180));
        assert_eq!(rig.queues.class_bytes(ClassId(1)), 15_180);
    }

    #[test]
    fn a_port_holds_at_most_as_many_buffers_as_are_left_for_others() {
        let mut rig = Rig::new(None);
        let mut held = 0;
        while rig.push(0, 60, 100 - held).is_ok() {
            held += 1;
        }
        assert_eq!(held, 51, "half of the pool and the one that tips it");
        assert_eq!(rig.push(0, 60, 100 - held), Err(Bound::Buffers));
        assert_eq!(rig.push(0, 9000, 4), Ok(()), "large buffers are another matter");
        while rig.queues.pop(&mut rig.slab, ClassId(0)).is_some() {}
        assert_eq!((rig.queues.frames(), rig.queues.bytes(), rig.slab.used()), (0, 0, 0));
        assert_eq!(rig.push(0, 60, 0), Ok(()), "all were given back");
    }
}
