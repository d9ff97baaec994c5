//! A device in memory: what a test or the simulator puts in is received, what the switch sends can be taken out.
//!
//! It takes super-frames and unfinished checksums as they are, and sends at most as many frames as it was given room
//! for, so that a slow or stuck device can be played.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::buffer::BufferPool;
use crate::frame::Frame;
use crate::frame::offload::{Checksum, Gso, OffloadSupport};
use crate::id::PortId;
use crate::time::Instant;
use crate::verdict::DropReason;

use super::{BATCH, Capabilities, Device, DeviceStats, Settled};

/// A frame outside the switch: its bytes and the work left on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// From the destination address on, without FCS.
    pub bytes: Vec<u8>,
    /// State of its checksum.
    pub checksum: Checksum,
    /// Its segmentation, if it is a super-frame.
    pub gso: Option<Gso>,
}

/// The switch's end of a memory port.
#[derive(Debug)]
pub struct MemoryDevice {
    port: PortId,
    mtu: u32,
    wire: Arc<Mutex<Wire>>,
}

/// The far end of a memory port.
#[derive(Clone, Debug)]
pub struct MemoryPeer(Arc<Mutex<Wire>>);

#[derive(Debug)]
struct Wire {
    to_switch: VecDeque<Packet>,
    from_switch: VecDeque<Packet>,
    /// Frames the device takes before it is full.
    room: usize,
}

/// A connected pair of ends with room for any number of frames.
pub fn memory_port(port: PortId, mtu: u32) -> (MemoryDevice, MemoryPeer) {
    let wire = Wire { to_switch: VecDeque::new(), from_switch: VecDeque::new(), room: usize::MAX };
    let wire = Arc::new(Mutex::new(wire));
    (MemoryDevice { port, mtu, wire: wire.clone() }, MemoryPeer(wire))
}

impl Packet {
    /// A finished frame.
    pub fn plain(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), checksum: Checksum::None, gso: None }
    }
}

impl MemoryPeer {
    /// Sends into the switch.
    pub fn send(&self, packet: Packet) {
        lock(&self.0).to_switch.push_back(packet);
    }

    /// Takes the oldest frame the switch sent.
    pub fn take(&self) -> Option<Packet> {
        lock(&self.0).from_switch.pop_front()
    }

    /// Frames the switch sent and nobody took yet.
    pub fn waiting(&self) -> usize {
        lock(&self.0).from_switch.len()
    }

    /// Frames sent into the switch that it did not receive yet.
    pub fn unreceived(&self) -> usize {
        lock(&self.0).to_switch.len()
    }

    /// From now on the device takes this many frames and is full then.
    pub fn set_room(&self, frames: usize) {
        lock(&self.0).room = frames;
    }
}

impl Device for MemoryDevice {
    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu: self.mtu, offload: OffloadSupport { checksum: true, gso: true } }
    }

    fn rx_batch(&mut self, pool: &mut BufferPool, frames: &mut Vec<Frame>) {
        let mut wire = lock(&self.wire);
        while frames.len() < BATCH
            && let Some(packet) = wire.to_switch.front()
        {
            let Some(mut frame) = Frame::copy_from(&packet.bytes, self.port, pool) else { return };
            frame.checksum = packet.checksum;
            frame.gso = packet.gso;
            wire.to_switch.pop_front();
            frames.push(frame);
        }
    }

    fn tx_batch(&mut self, frames: &mut VecDeque<Frame>, settled: &mut Vec<Settled>) {
        let mut wire = lock(&self.wire);
        while wire.room > 0
            && let Some(frame) = frames.pop_front()
        {
            let longest = super::longest_frame(self.mtu);
            let fate = if frame.gso.is_none() && frame.len() > longest {
                Err(DropReason::MtuExceeded)
            } else {
                wire.room = wire.room.saturating_sub(1);
                let bytes = frame.bytes().to_vec();
                wire.from_switch.push_back(Packet { bytes, checksum: frame.checksum, gso: frame.gso });
                Ok(())
            };
            settled.push(Settled { frame, fate });
        }
    }

    fn flush(&mut self, _now: Instant) -> Option<Instant> {
        None
    }

    fn stats(&mut self) -> DeviceStats {
        DeviceStats::default()
    }

    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}

/// A test that panicked while it held the wire leaves it usable.
fn lock(wire: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    wire.lock().unwrap_or_else(PoisonError::into_inner)
}
