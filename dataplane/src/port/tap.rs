//! A tap: the switch holds the file descriptor, a Linux stack holds the interface.
//!
//! Every frame crosses with a virtio-net header, so unfinished checksums and super-frames pass untouched in
//! both directions. One frame is one `readv` or one `writev`; the bytes are copied by the kernel only.
//!
//! The kernel queues up to `txqueuelen` frames for a reader and then drops at the sender's interface, outside our
//! counters, so [`Device::rx_batch`] reads until nothing is left and waiting happens in our queues.

pub(super) mod open;
pub(super) mod queue;
pub mod vnet;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use crate::buffer::{BufferPool, HEADROOM};
use crate::frame::Frame;
use crate::frame::offload::OffloadSupport;
use crate::id::PortId;
use crate::port::{BATCH, Capabilities, Device, DeviceStats, Settled};
use crate::time::Instant;
use crate::verdict::DropReason;

pub use open::TapError;
use queue::{Received, Sent};

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

    /// Sends one frame; `None` if the device has no room for it now.
    fn send(&mut self, frame: &Frame) -> Option<Result<(), DropReason>> {
        let Some(tun) = &self.tun else { return Some(Err(DropReason::PortDown)) };
        if let Some(reason) = queue::refusal(frame, self.mtu, self.takes_udp_gso) {
            return Some(Err(reason));
        }
        let header = vnet::encode(frame, 0);
        self.stats.syscalls += 1;
        match queue::send(tun, &[IoSlice::new(&header), IoSlice::new(frame.bytes())]) {
            Sent::Done => Some(Ok(())),
            Sent::Busy => None,
            Sent::Failed(error) => Some(Err(self.failed(&error))),
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

    fn rx_batch(&mut self, pool: &mut BufferPool, frames: &mut Vec<Frame>) {
        for _ in 0..BATCH {
            let Some(tun) = &self.tun else { return };
            self.stats.syscalls += 1;
            match queue::receive(tun, HEADROOM, pool) {
                Received::Frame { header, buf, len } => {
                    let mut frame = Frame::new(buf, len, self.port);
                    (frame.checksum, frame.gso) = vnet::decode(header, 0, frame.bytes());
                    frames.push(frame);
                }
                Received::TooLong => self.stats.rx_no_buffer += 1,
                Received::Empty | Received::NoBuffer => return,
                Received::Failed(error) => {
                    self.failed(&error);
                    return;
                }
            }
        }
    }

    fn tx_batch(&mut self, frames: &mut VecDeque<Frame>, settled: &mut Vec<Settled>) {
        while let Some(frame) = frames.pop_front() {
            match self.send(&frame) {
                Some(fate) => settled.push(Settled { frame, fate }),
                None => {
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

    fn is_gone(&self) -> bool {
        self.tun.is_none()
    }

    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.tun.iter().map(AsFd::as_fd).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::PoolSize;
    use crate::id::WorkerId;

    fn pool() -> BufferPool {
        BufferPool::new(WorkerId(0), PoolSize { small: 2, large: 2 })
    }

    fn frame(len: usize, pool: &mut BufferPool) -> Frame {
        Frame::copy_from(&vec![0; len], PortId(0), pool).unwrap()
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
