//! One frame in, one frame out of a tap's descriptor: one `readv`, one `writev`.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};

use crate::buffer::{BufferPool, FrameBuf, HEADROOM, LARGE, SMALL};
use crate::frame::offload::GsoKind;
use crate::frame::{ETHERNET_HEADER, Frame, TAG};
use crate::verdict::DropReason;

use super::vnet;

/// Longest frame a small buffer holds.
const SMALL_ROOM: usize = SMALL - HEADROOM;
/// Longest frame a large buffer holds.
const LARGE_ROOM: usize = LARGE - HEADROOM;

/// What a read gave.
pub enum Received {
    /// `len` bytes that start at the offset that was asked for.
    Frame { header: [u8; vnet::LEN], buf: FrameBuf, len: usize },
    /// Nothing waits.
    Empty,
    /// No buffer of one of the sizes is free; the frame waits.
    NoBuffer,
    /// The kernel cut off what did not fit (BIG TCP, if someone raised the interface's `gso_max_size`); the frame is lost.
    TooLong,
    /// The call failed.
    Failed(io::Error),
}

/// What became of one frame on its way out.
pub enum Sent {
    /// The device has no room: try the same frame later.
    Busy,
    /// The frame left.
    Done,
    /// The call failed.
    Failed(io::Error),
}

/// Reads one frame to `start` of a buffer, which is at most [`HEADROOM`].
///
/// Both sizes of buffer must be free, because the length of the next frame is known only once it is read and a frame read
/// into too small a buffer is lost.
pub fn receive(mut tun: &File, start: usize, pool: &mut BufferPool) -> Received {
    let Some(mut small) = pool.take(SMALL_ROOM) else { return Received::NoBuffer };
    let Some(mut large) = pool.take(LARGE_ROOM) else {
        pool.release(small);
        return Received::NoBuffer;
    };
    let mut header = [0; vnet::LEN];
    let read = tun.read_vectored(&mut [
        IoSliceMut::new(&mut header),
        IoSliceMut::new(&mut small.bytes_mut()[start..]),
        IoSliceMut::new(&mut large.bytes_mut()[SMALL..]),
    ]);
    match read {
        Ok(read) if read == vnet::LEN + LARGE - start => {
            pool.release(small);
            pool.release(large);
            Received::TooLong
        }
        Ok(read) => {
            let len = read.saturating_sub(vnet::LEN);
            let (buf, spare) = gather(small, large, start, len);
            pool.release(spare);
            Received::Frame { header, buf, len }
        }
        Err(error) => {
            pool.release(small);
            pool.release(large);
            match error.kind() {
                io::ErrorKind::WouldBlock => Received::Empty,
                _ => Received::Failed(error),
            }
        }
    }
}

/// Writes the parts of one frame, its header first.
pub fn send(mut tun: &File, parts: &[IoSlice<'_>]) -> Sent {
    match tun.write_vectored(parts) {
        Ok(_) => Sent::Done,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Sent::Busy,
        Err(error) => Sent::Failed(error),
    }
}

/// Why a device of this `mtu` does not take the frame, if it does not.
pub fn refusal(frame: &Frame, mtu: u32, takes_udp_gso: bool) -> Option<DropReason> {
    if exceeds_mtu(frame, mtu) {
        return Some(DropReason::MtuExceeded);
    }
    let is_udp = frame.gso.is_some_and(|gso| gso.kind == GsoKind::Udp);
    (is_udp && !takes_udp_gso).then_some(DropReason::UnsupportedOffload)
}

/// The buffer that ends up holding a frame of `len` bytes from `start` on, whose part up to the end of a small buffer was
/// read into `small` and the rest into `large`, and the buffer that is left over. Only a frame that does not fit the small
/// buffer is copied, and of that only its first part.
fn gather(small: FrameBuf, mut large: FrameBuf, start: usize, len: usize) -> (FrameBuf, FrameBuf) {
    if start + len <= SMALL {
        return (small, large);
    }
    large.bytes_mut()[start..SMALL].copy_from_slice(&small.bytes()[start..]);
    (large, small)
}
/// Whether the frame, or any segment of it, is longer than an IP packet of `mtu` bytes with its link header. An 802.1Q
/// or 802.1ad tag does not count against the MTU (IEEE 802.3-2018 clause 3.2.7).
fn exceeds_mtu(frame: &Frame, mtu: u32) -> bool {
    let longest = match frame.gso {
        Some(gso) => usize::from(gso.header_len) + usize::from(gso.segment_size),
        None => frame.len(),
    };
    let tag = match frame.bytes().get(12..ETHERNET_HEADER) {
        Some([0x81, 0x00] | [0x88, 0xa8]) => TAG,
        _ => 0,
    };
    longest > mtu as usize + ETHERNET_HEADER + tag
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::PoolSize;
    use crate::frame::offload::Gso;
    use crate::frame::vlan::TagControl;
    use crate::id::{PortId, WorkerId};

    fn pool() -> BufferPool {
        BufferPool::new(WorkerId(0), PoolSize { small: 2, large: 2 })
    }

    fn frame(len: usize, pool: &mut BufferPool) -> Frame {
        Frame::copy_from(&vec![0; len], PortId(0), pool).unwrap()
    }

    #[test]
    fn a_frame_that_fits_stays_in_the_small_buffer_and_a_longer_one_is_whole_in_the_large() {
        let mut pool = pool();
        for start in [HEADROOM, HEADROOM - 16] {
            let room = SMALL - start;
            let bytes: Vec<u8> = (0..=250).cycle().take(room + 1000).collect();
            for len in [60, room, room + 1, bytes.len()] {
                let mut small = pool.take(SMALL_ROOM).unwrap();
                let mut large = pool.take(LARGE_ROOM).unwrap();
                let first = len.min(room);
                small.bytes_mut()[start..start + first].copy_from_slice(&bytes[..first]);
                large.bytes_mut()[SMALL..][..len - first].copy_from_slice(&bytes[first..len]);
                let (buf, spare) = gather(small, large, start, len);
                assert_eq!(buf.bytes().len() == SMALL, len <= room);
                assert_eq!(&buf.bytes()[start..start + len], &bytes[..len]);
                pool.release(buf);
                pool.release(spare);
            }
        }
        assert_eq!(pool.outstanding(), 0);
    }

    #[test]
    fn the_mtu_counts_the_packet_and_not_its_link_header_or_tag() {
        let mut pool = pool();
        assert!(!exceeds_mtu(&frame(1514, &mut pool), 1500));
        assert!(exceeds_mtu(&frame(1515, &mut pool), 1500));
        let mut tagged = frame(1514, &mut BufferPool::new(WorkerId(0), PoolSize { small: 1, large: 0 }));
        tagged.push_tag(TagControl(100));
        assert!(!exceeds_mtu(&tagged, 1500));
        assert!(exceeds_mtu(&tagged, 1499));
    }

    #[test]
    fn a_super_frame_is_measured_by_its_segments() {
        let mut pool = pool();
        let mut frame = frame(64_000, &mut pool);
        frame.gso = Gso::new(GsoKind::TcpV4, 1448, 66, 64_000);
        assert!(!exceeds_mtu(&frame, 1500));
        assert!(exceeds_mtu(&frame, 1499));
    }
}
