//! Frame buffers and the pool they come from.
//!
//! A worker allocates its whole pool before the first frame; after that buffers only move. A [`FrameBuf`] has one
//! owner, it is neither `Clone` nor shared, and it goes back with [`BufferPool::release`]. A buffer that crossed to
//! another worker returns to its home through a ring (see [`crate::exchange`]). The pool counts what is outstanding, so
//! a leak shows as a number that does not come back to zero.
//!
//! Two sizes: small ones hold a frame of an ordinary MTU, large ones a super-frame or a jumbo frame. Both leave
//! [`HEADROOM`] in front for a VLAN tag.

use crate::id::WorkerId;

/// Room in front of a received frame, enough to push tags in place.
pub const HEADROOM: usize = 64;
/// Bytes of a small buffer, headroom included.
pub const SMALL: usize = 2048;
/// Bytes of a large buffer, headroom included: the largest super-frame is 64 KiB of IP packet plus its link header.
pub const LARGE: usize = 66 * 1024;

/// One buffer and its one owner.
#[derive(Debug)]
pub struct FrameBuf {
    bytes: Box<[u8]>,
    home: WorkerId,
}

/// How many buffers of each size a worker holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// Buffers of [`SMALL`] bytes.
    pub small: usize,
    /// Buffers of [`LARGE`] bytes.
    pub large: usize,
}

/// The free buffers of one worker.
#[derive(Debug)]
pub struct BufferPool {
    home: WorkerId,
    size: PoolSize,
    small: Vec<Box<[u8]>>,
    large: Vec<Box<[u8]>>,
}

impl FrameBuf {
    /// The whole buffer, headroom included.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The whole buffer, headroom included.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The worker whose pool the buffer belongs to.
    pub fn home(&self) -> WorkerId {
        self.home
    }
}

impl BufferPool {
    /// Allocates every buffer of the pool.
    pub fn new(home: WorkerId, size: PoolSize) -> Self {
        let allocate = |count, len| (0..count).map(|_| vec![0; len].into_boxed_slice()).collect();
        Self { home, size, small: allocate(size.small, SMALL), large: allocate(size.large, LARGE) }
    }

    /// A buffer that holds `len` bytes of frame behind the headroom, or `None` if the pool has none left or no buffer
    /// is that long. A small frame never takes a large buffer, so super-frames cannot starve behind small ones.
    pub fn take(&mut self, len: usize) -> Option<FrameBuf> {
        let bytes = if len + HEADROOM <= SMALL {
            self.small.pop()
        } else if len + HEADROOM <= LARGE {
            self.large.pop()
        } else {
            None
        };
        bytes.map(|bytes| FrameBuf { bytes, home: self.home })
    }

    /// How many more frames of `len` bytes the pool has buffers for.
    pub fn room_for(&self, len: usize) -> usize {
        match len + HEADROOM {
            small if small <= SMALL => self.small.len(),
            large if large <= LARGE => self.large.len(),
            _ => 0,
        }
    }

    /// Takes a buffer back.
    ///
    /// # Panics
    /// In debug builds, if the buffer is another worker's: those go home through the worker's return ring.
    pub fn release(&mut self, buf: FrameBuf) {
        debug_assert_eq!(buf.home, self.home, "a buffer must return to its own pool");
        let free = if buf.bytes.len() == SMALL { &mut self.small } else { &mut self.large };
        free.push(buf.bytes);
    }

    /// Buffers of either size that are in someone's hands.
    pub fn outstanding(&self) -> usize {
        self.size.small + self.size.large - self.small.len() - self.large.len()
    }

    /// Small buffers that are free.
    pub fn free_small(&self) -> usize {
        self.small.len()
    }

    /// Large buffers that are free.
    pub fn free_large(&self) -> usize {
        self.large.len()
    }

    /// The worker this pool belongs to.
    pub fn home(&self) -> WorkerId {
        self.home
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_size_that_fits_and_gets_everything_back() {
        let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 1, large: 1 });
        let small = pool.take(SMALL - HEADROOM).unwrap();
        let large = pool.take(SMALL - HEADROOM + 1).unwrap();
        assert_eq!((small.bytes().len(), large.bytes().len()), (SMALL, LARGE));
        assert_eq!(pool.outstanding(), 2);
        assert!(pool.take(60).is_none() && pool.take(9000).is_none());
        pool.release(small);
        pool.release(large);
        assert_eq!(pool.outstanding(), 0);
        assert!(pool.take(LARGE).is_none(), "longer than any buffer");
    }
}
