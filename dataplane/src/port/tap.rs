//! A tap: the switch holds the file descriptor, a Linux stack holds the interface.
//!
//! Every frame crosses with a virtio-net header, so unfinished checksums and super-frames pass untouched in
//! both directions. One frame is one `readv` or one `writev`; the bytes are copied by the kernel only.
//!
//! The kernel queues up to `txqueuelen` frames for a reader and then drops at the sender's interface, outside our
//! counters, so [`Device::rx_batch`] reads until nothing is left and waiting happens in our queues.

mod open;
pub mod vnet;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use crate::buffer::{BufferPool, FrameBuf, HEADROOM, LARGE, SMALL};
use crate::frame::offload::{GsoKind, OffloadSupport};
use crate::frame::{ETHERNET_HEADER, Frame, TAG};
use crate::id::PortId;
use crate::port::{BATCH, Capabilities, Device, DeviceStats, Settled};
use crate::time::Instant;
use crate::verdict::DropReason;

pub use open::TapError;

/// Longest frame a small buffer holds.
const SMALL_ROOM: usize = SMALL - HEADROOM;
/// Longest frame a large buffer holds.
const LARGE_ROOM: usize = LARGE - HEADROOM;

/// One tap, one queue. The interface goes away when this is dropped.
#[derive(Debug)]
pub struct TapDevice {
    /// `None` once the interface was deleted under us: closing the descriptor is what takes it out of every epoll set,
    /// where it would otherwise report an error for ever.
    tun: Option<File>,
    /// Its name when it was made; it may have been moved and renamed since.
    interface: Box<str>,
    port: PortId,
    mtu: u32,
    takes_udp_gso: bool,
    stats: DeviceStats,
}

/// What became of one frame on its way out.
enum Sent {
    /// The device has no room: try the same frame later.
    Busy,
    /// The frame is done with.
    Settled(Result<(), DropReason>),
}

impl TapDevice {
    /// Makes a new tap interface called `name` in the network namespace of the calling thread; the device may be used
    /// from any thread afterwards. `mtu` is what [`Device::tx_batch`] enforces, in bytes of IP packet; setting it on
    /// the interface, and setting the interface up, is the caller's.
    ///
    /// # Errors
    /// If an interface of that name exists, or the kernel refuses.
    pub fn create(name: &str, port: PortId, mtu: u32) -> Result<Self, TapError> {
        let open::Tun { file, takes_udp_gso } = open::create(name)?;
        Ok(Self {
            tun: Some(file),
            interface: name.into(),
            port,
            mtu,
            takes_udp_gso,
            stats: DeviceStats::default(),
        })
    }

    /// Sends one frame with one `writev`.
    fn send(&mut self, frame: &Frame) -> Sent {
        let Some(tun) = &mut self.tun else { return Sent::Settled(Err(DropReason::PortDown)) };
        if exceeds_mtu(frame, self.mtu) {
            return Sent::Settled(Err(DropReason::MtuExceeded));
        }
        if frame.gso.is_some_and(|gso| gso.kind == GsoKind::Udp) && !self.takes_udp_gso {
            return Sent::Settled(Err(DropReason::UnsupportedOffload));
        }
        let header = vnet::encode(frame);
        self.stats.syscalls += 1;
        match tun.write_vectored(&[IoSlice::new(&header), IoSlice::new(frame.bytes())]) {
            Ok(_) => Sent::Settled(Ok(())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Sent::Busy,
            Err(error) => Sent::Settled(Err(self.failed(&error))),
        }
    }

    /// The drop reason for a failed call, and the end of the descriptor if the interface is gone.
    fn failed(&mut self, error: &io::Error) -> DropReason {
        match error.raw_os_error() {
            // The interface is down: its link comes and goes, the descriptor stays good.
            Some(libc::EIO) => DropReason::PortDown,
            // The interface was deleted, by hand or with its namespace.
            Some(libc::EBADFD) => {
                tracing::warn!(port = self.port.0, made_as = %self.interface, "the tap was deleted: its port is down");
                self.tun = None;
                DropReason::PortDown
            }
            _ => DropReason::DeviceError,
        }
    }
}

impl Device for TapDevice {
    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu: self.mtu, offload: OffloadSupport { checksum: true, gso: true } }
    }

    /// Stops when either size of buffer has run out, because the length of the next frame is known only once it is read
    /// and a frame read into too small a buffer is lost.
    fn rx_batch(&mut self, pool: &mut BufferPool, frames: &mut Vec<Frame>) {
        for _ in 0..BATCH {
            let Some(tun) = &mut self.tun else { return };
            let Some(mut small) = pool.take(SMALL_ROOM) else { return };
            let Some(mut large) = pool.take(LARGE_ROOM) else { return pool.release(small) };
            let mut header = [0; vnet::LEN];
            self.stats.syscalls += 1;
            let read = tun.read_vectored(&mut [
                IoSliceMut::new(&mut header),
                IoSliceMut::new(&mut small.bytes_mut()[HEADROOM..]),
                IoSliceMut::new(&mut large.bytes_mut()[HEADROOM + SMALL_ROOM..]),
            ]);
            match read {
                // The kernel cut off what did not fit (BIG TCP, if someone raised the interface's `gso_max_size`).
                Ok(read) if read == vnet::LEN + LARGE_ROOM => {
                    self.stats.rx_no_buffer += 1;
                    pool.release(small);
                    pool.release(large);
                }
                Ok(read) => {
                    let (buf, spare, len) = gather(small, large, read.saturating_sub(vnet::LEN));
                    pool.release(spare);
                    let mut frame = Frame::new(buf, len, self.port);
                    (frame.checksum, frame.gso) = vnet::decode(header, frame.bytes());
                    frames.push(frame);
                }
                Err(error) => {
                    pool.release(small);
                    pool.release(large);
                    if error.kind() != io::ErrorKind::WouldBlock {
                        self.failed(&error);
                    }
                    return;
                }
            }
        }
    }

    fn tx_batch(&mut self, frames: &mut VecDeque<Frame>, settled: &mut Vec<Settled>) {
        while let Some(frame) = frames.pop_front() {
            match self.send(&frame) {
                Sent::Settled(fate) => settled.push(Settled { frame, fate }),
                Sent::Busy => {
                    self.stats.tx_busy += 1;
                    frames.push_front(frame);
                    return;
                }
            }
        }
    }

    /// A tap has no ring of ours: what was written has left.
    fn flush(&mut self, _now: Instant) -> Option<Instant> {
        None
    }

    fn stats(&mut self) -> DeviceStats {
        self.stats.clone()
    }

    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.tun.iter().map(AsFd::as_fd).collect()
    }
}

/// The buffer that ends up holding a frame of `len` bytes whose first [`SMALL_ROOM`] bytes were read into `small` and
/// the rest into `large`, and the buffer that is left over. Only a frame that does not fit the small buffer is copied,
/// and of that only its first part.
fn gather(small: FrameBuf, mut large: FrameBuf, len: usize) -> (FrameBuf, FrameBuf, usize) {
    if len <= SMALL_ROOM {
        return (small, large, len);
    }
    large.bytes_mut()[HEADROOM..HEADROOM + SMALL_ROOM].copy_from_slice(&small.bytes()[HEADROOM..]);
    (large, small, len)
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
    use crate::id::WorkerId;

    fn pool() -> BufferPool {
        BufferPool::new(WorkerId(0), PoolSize { small: 2, large: 2 })
    }

    fn frame(len: usize, pool: &mut BufferPool) -> Frame {
        Frame::copy_from(&vec![0; len], PortId(0), pool).unwrap()
    }

    #[test]
    fn a_frame_that_fits_stays_in_the_small_buffer_and_a_longer_one_is_whole_in_the_large() {
        let mut pool = pool();
        let bytes: Vec<u8> = (0..=250).cycle().take(SMALL_ROOM + 1000).collect();
        for len in [60, SMALL_ROOM, SMALL_ROOM + 1, bytes.len()] {
            let mut small = pool.take(SMALL_ROOM).unwrap();
            let mut large = pool.take(LARGE_ROOM).unwrap();
            let first = len.min(SMALL_ROOM);
            small.bytes_mut()[HEADROOM..HEADROOM + first].copy_from_slice(&bytes[..first]);
            large.bytes_mut()[HEADROOM + SMALL_ROOM..][..len - first].copy_from_slice(&bytes[first..len]);
            let (buf, spare, len) = gather(small, large, len);
            assert_eq!(buf.bytes().len() == SMALL, len <= SMALL_ROOM);
            assert_eq!(&buf.bytes()[HEADROOM..HEADROOM + len], &bytes[..len]);
            pool.release(buf);
            pool.release(spare);
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

    #[test]
    fn a_tap_that_was_deleted_is_down_and_asks_for_no_wake_up() {
        let mut pool = pool();
        let mut tap = TapDevice {
            tun: None,
            interface: "t0".into(),
            port: PortId(0),
            mtu: 1500,
            takes_udp_gso: true,
            stats: DeviceStats::default(),
        };
        let mut settled = Vec::new();
        tap.tx_batch(&mut VecDeque::from([frame(60, &mut pool)]), &mut settled);
        assert_eq!(settled[0].fate, Err(DropReason::PortDown));
        tap.rx_batch(&mut pool, &mut Vec::new());
        assert_eq!(
            (pool.outstanding(), tap.wait_fds().len()),
            (1, 0),
            "only the settled frame is outstanding"
        );
    }
}
