//! The edge of the switch: devices behind one small trait. I/O and `unsafe` live here and nowhere else.
//!
//! A port is what the topology names, a device is what a worker polls. The driver stamps each frame with the port it
//! came in on; the pipeline never asks a device.

#[cfg(feature = "edges")]
pub mod af_xdp;
#[cfg(feature = "edges")]
pub mod lane;
pub mod memory;
#[cfg(feature = "edges")]
pub mod promiscuous;
#[cfg(feature = "edges")]
pub mod tap;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use crate::buffer::BufferPool;
use crate::frame::offload::OffloadSupport;
use crate::frame::{ETHERNET_HEADER, Frame, TAG};
use crate::time::Instant;
use crate::verdict::DropReason;

/// Most frames a device moves in one call.
pub const BATCH: usize = 64;

/// Bytes after which a batch for a device takes no further frame.
pub const BATCH_BYTES: usize = 128 * 1024;

/// What a device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Longest IP packet the device takes; a frame may be this plus its Ethernet header and a tag.
    pub mtu: u32,
    /// Unfinished work it takes; the rest is finished in [`Device::tx_batch`].
    pub offload: OffloadSupport,
}

/// Counters of the device itself, beside those of the pipeline. All are totals since the device was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Calls into the kernel to receive, send or wake.
    pub syscalls: u64,
    /// Transmit calls that found the device's ring or queue full.
    pub tx_busy: u64,
    /// Frames whose checksum was finished in software.
    pub checksums_completed: u64,
    /// Super-frames that were segmented in software.
    pub super_frames_segmented: u64,
    /// Received frames lost because no buffer was free or none was long enough.
    pub rx_no_buffer: u64,
    /// Received frames that named no port of the switch.
    pub rx_unknown_port: u64,
    /// What the kernel counted for each AF_XDP socket (`XDP_STATISTICS`), by receive queue.
    pub xsk: Vec<XskStats>,
    /// What the XDP program did, by the name of the outcome.
    pub steering: Vec<(&'static str, u64)>,
}

/// `struct xdp_statistics` of `linux/if_xdp.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XskStats {
    /// Frames dropped for reasons other than an invalid descriptor or a full ring, as when no chunk could hold them.
    pub rx_dropped: u64,
    /// Frames dropped because the receive ring was full.
    pub rx_ring_full: u64,
    /// Times the kernel found no chunk in the fill ring.
    pub rx_fill_ring_empty: u64,
    /// Invalid descriptors in the fill ring.
    pub rx_invalid_descs: u64,
    /// Invalid descriptors in the transmit ring.
    pub tx_invalid_descs: u64,
    /// Times the kernel found the transmit ring empty.
    pub tx_ring_empty: u64,
}

/// A frame that [`Device::tx_batch`] took, and how it ended.
#[derive(Debug)]
pub struct Settled {
    /// The frame; the caller counts it and returns its buffer.
    pub frame: Frame,
    /// Sent, or why not.
    pub fate: Result<(), DropReason>,
}

/// Longest frame a device with this MTU takes: the packet, its Ethernet header and one tag.
pub const fn longest_frame(mtu: u32) -> usize {
    mtu as usize + ETHERNET_HEADER + TAG
}

/// A device that frames enter and leave by.
pub trait Device: Send {
    /// What the device can do.
    fn capabilities(&self) -> Capabilities;

    /// Whether [`Self::rx_batch`] can ever give a frame. One that only sends is not asked.
    fn receives(&self) -> bool {
        true
    }

    /// Appends received frames to `frames`, at most [`BATCH`], with buffers of `pool`. When the pool is empty the rest
    /// stays in the device.
    fn rx_batch(&mut self, pool: &mut BufferPool, frames: &mut Vec<Frame>);

    /// Takes frames from the front of `frames` until the device is full, and appends each to `settled`. The unsent
    /// stay in `frames`; a device never drops silently.
    fn tx_batch(&mut self, frames: &mut VecDeque<Frame>, settled: &mut Vec<Settled>);

    /// Gives back buffers the device holds between calls. Called once, before the device is closed.
    fn release_buffers(&mut self, _pool: &mut BufferPool) {}

    /// Pushes out what [`Self::tx_batch`] placed in a ring; when to call it again, if something is still on its way.
    fn flush(&mut self, now: Instant) -> Option<Instant>;

    /// The device's own counters.
    fn stats(&mut self) -> DeviceStats;

    /// Whether the device is gone for good, as a tap whose interface was deleted. The control side asks, and replaces it.
    fn is_gone(&self) -> bool {
        false
    }

    /// Descriptors that become readable when frames are waiting. Empty for a device without any.
    fn wait_fds(&self) -> Vec<BorrowedFd<'_>>;
}
