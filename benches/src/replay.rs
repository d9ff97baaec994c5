//! A device that plays the same frames again and again and takes whatever is sent, without a heap or a kernel: what is
//! left of the switch's time is the pipeline's.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use lockgate_dataplane::buffer::BufferPool;
use lockgate_dataplane::frame::Frame;
use lockgate_dataplane::frame::offload::{Checksum, Gso, OffloadSupport};
use lockgate_dataplane::id::PortId;
use lockgate_dataplane::port::{BATCH, Capabilities, Device, DeviceStats, Settled};
use lockgate_dataplane::time::Instant;

/// A frame to play.
#[derive(Clone, Debug)]
pub struct Template {
    /// From the destination address on, without FCS.
    pub bytes: Vec<u8>,
    /// State of its checksum.
    pub checksum: Checksum,
    /// Its segmentation, if it is a super-frame.
    pub gso: Option<Gso>,
}

/// A device that plays `templates` in turn.
#[derive(Debug)]
pub struct ReplayDevice {
    port: PortId,
    templates: Vec<Template>,
    next: usize,
    controls: Arc<Controls>,
}

/// What the owner of a test or bench sets and reads while the engine has the device.
#[derive(Debug, Default)]
pub struct Controls {
    /// Frames of the next receive calls, at most [`BATCH`] each.
    pub per_call: AtomicUsize,
    /// Every frame that is played gets a source address of its own.
    pub new_sources: AtomicUsize,
    /// Frames that the device took.
    pub sent: AtomicU64,
}

impl Template {
    /// A finished frame.
    pub fn plain(bytes: Vec<u8>) -> Self {
        Self { bytes, checksum: Checksum::None, gso: None }
    }
}

impl ReplayDevice {
    /// A device of `port`, and its controls, that plays `per_call` frames in each receive call.
    pub fn new(port: PortId, templates: Vec<Template>, per_call: usize) -> (Self, Arc<Controls>) {
        let controls = Arc::new(Controls { per_call: per_call.into(), ..Controls::default() });
        (Self { port, templates, next: 0, controls: controls.clone() }, controls)
    }
}

impl Device for ReplayDevice {
    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu: 9000, offload: OffloadSupport { checksum: true, gso: true } }
    }

    fn rx_batch(&mut self, pool: &mut BufferPool, frames: &mut Vec<Frame>) {
        if self.templates.is_empty() {
            return;
        }
        for _ in 0..self.controls.per_call.load(Relaxed).min(BATCH) {
            let template = &self.templates[self.next];
            let Some(mut frame) = Frame::copy_from(&template.bytes, self.port, pool) else { return };
            (frame.checksum, frame.gso) = (template.checksum, template.gso);
            let sources = self.controls.new_sources.load(Relaxed);
            if sources > 0 {
                self.controls.new_sources.store(sources + 1, Relaxed);
                frame.bytes_mut()[7..12].copy_from_slice(&sources.to_be_bytes()[3..]);
            }
            frames.push(frame);
            self.next = (self.next + 1) % self.templates.len();
        }
    }

    fn tx_batch(&mut self, frames: &mut VecDeque<Frame>, settled: &mut Vec<Settled>) {
        let sent = &self.controls.sent;
        sent.store(sent.load(Relaxed) + frames.len() as u64, Relaxed);
        settled.extend(frames.drain(..).map(|frame| Settled { frame, fate: Ok(()) }));
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
