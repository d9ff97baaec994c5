//! Queues of frames as linked lists through one slab, so that a queue costs a few words however many may wait in it.
//!
//! A worker has one slab with as many nodes as there are frame buffers, so it can never be full: a frame that waits
//! holds a buffer. All operations are O(1) and allocate nothing.

use crate::frame::Frame;

const NIL: u32 = u32::MAX;

/// The nodes that every [`FrameList`] of a worker is made of.
#[derive(Debug)]
pub struct FrameSlab {
    nodes: Vec<Node>,
    free: u32,
    used: usize,
}

#[derive(Debug)]
struct Node {
    frame: Option<Frame>,
    next: u32,
}

/// A first-in first-out queue of frames. Its frames live in the slab it is used with: always the same one.
#[derive(Debug)]
pub struct FrameList {
    head: u32,
    tail: u32,
    frames: usize,
    bytes: u64,
}

impl FrameSlab {
    /// A slab for `capacity` frames.
    ///
    /// # Panics
    /// If `capacity` does not fit 32 bits.
    pub fn new(capacity: usize) -> Self {
        let count = u32::try_from(capacity).expect("fewer than 2^32 frame buffers");
        let nodes =
            (1..=count).map(|next| Node { frame: None, next: if next == count { NIL } else { next } });
        Self { nodes: nodes.collect(), free: if count == 0 { NIL } else { 0 }, used: 0 }
    }

    /// Frames in all lists of this slab.
    pub fn used(&self) -> usize {
        self.used
    }
}

impl FrameList {
    /// An empty list.
    pub const fn new() -> Self {
        Self { head: NIL, tail: NIL, frames: 0, bytes: 0 }
    }

    /// Appends a frame, or gives it back if the slab is full.
    pub fn push(&mut self, slab: &mut FrameSlab, frame: Frame) -> Result<(), Frame> {
        let at = slab.free;
        let Some(node) = slab.nodes.get_mut(at as usize) else { return Err(frame) };
        slab.free = node.next;
        slab.used += 1;
        self.bytes += frame.wire_len();
        self.frames += 1;
        *node = Node { frame: Some(frame), next: NIL };
        match slab.nodes.get_mut(self.tail as usize) {
            Some(tail) => tail.next = at,
            None => self.head = at,
        }
        self.tail = at;
        Ok(())
    }

    /// The frame that [`Self::pop`] would take.
    pub fn front<'a>(&self, slab: &'a FrameSlab) -> Option<&'a Frame> {
        slab.nodes.get(self.head as usize)?.frame.as_ref()
    }

    /// Takes the oldest frame.
    pub fn pop(&mut self, slab: &mut FrameSlab) -> Option<Frame> {
        let at = self.head;
        let node = slab.nodes.get_mut(at as usize)?;
        let frame = node.frame.take()?;
        self.head = std::mem::replace(&mut node.next, slab.free);
        if self.head == NIL {
            self.tail = NIL;
        }
        slab.free = at;
        slab.used -= 1;
        self.frames -= 1;
        self.bytes -= frame.wire_len();
        Some(frame)
    }

    /// Frames in the list.
    pub const fn frames(&self) -> usize {
        self.frames
    }

    /// Bytes in the list, as the wire would carry them.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the list has no frame.
    pub const fn is_empty(&self) -> bool {
        self.frames == 0
    }
}

impl Default for FrameList {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{BufferPool, PoolSize};
    use crate::id::{PortId, WorkerId};

    #[test]
    fn two_lists_share_a_slab_and_keep_their_order() {
        let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 5, large: 0 });
        let mut slab = FrameSlab::new(4);
        let (mut a, mut b) = (FrameList::new(), FrameList::new());
        let mut frame = |byte: u8| Frame::copy_from(&[byte; 60], PortId(0), &mut pool).unwrap();
        for byte in [1, 2] {
            a.push(&mut slab, frame(byte)).unwrap();
            b.push(&mut slab, frame(byte + 10)).unwrap();
        }
        let refused = a.push(&mut slab, frame(3)).unwrap_err();
        assert_eq!((refused.bytes()[0], slab.used(), a.bytes()), (3, 4, 120));
        let order = |list: &mut FrameList, slab: &mut FrameSlab| -> Vec<u8> {
            std::iter::from_fn(|| list.pop(slab)).map(|frame| frame.bytes()[0]).collect()
        };
        assert_eq!(order(&mut b, &mut slab), [11, 12]);
        a.push(&mut slab, refused).unwrap();
        assert_eq!(a.front(&slab).unwrap().bytes()[0], 1);
        assert_eq!(order(&mut a, &mut slab), [1, 2, 3]);
        assert_eq!((slab.used(), a.bytes(), a.is_empty(), b.frames()), (0, 0, true, 0));
    }
}
