//! A lane: a tap of the switch's own that carries the frames of many interfaces, offloads and all.
//!
//! tc programs ([`program`]) put each port's frames into its worker's lane and take what is written there to the port that
//! is named. A frame without a tag comes through the **plain** tap with its port in an S-tag; one with a tag comes through
//! the **tagged** tap behind a prefix that names the port (see [`lockgate_ebpf_common::lane`]). Each tap has one form and
//! the program alone writes the name, so nothing that a sender puts into a frame is taken for it.
//!
//! Whoever receives is one device per worker ([`LaneReceiver`]); whoever sends is one cheap device per port
//! ([`LanePort`]) that shares the plain tap's descriptor.

pub mod program;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use lockgate_ebpf_common::lane::{PREFIX, SERVICE_TPID};

use crate::buffer::{BufferPool, FrameBuf, HEADROOM};
use crate::frame::offload::OffloadSupport;
use crate::frame::{ETHERNET_HEADER, Frame, TAG};
use crate::id::PortId;
use crate::time::Instant;
use crate::verdict::DropReason;

use super::promiscuous::Promiscuous;
use super::tap::queue::{self, Received, Sent};
use super::tap::{TapError, open, vnet};
use super::{BATCH, Capabilities, Device, DeviceStats, Settled};
use program::PortAttachment;

/// Length of both addresses.
const ADDRESSES: usize = 12;
/// The kernel throws a frame away in which less than two bytes follow the EtherType behind a tag (`skb_vlan_untag`), and a
/// frame for a port has one.
const SHORTEST: usize = ETHERNET_HEADER + 2;
/// Longest IP packet a tap may be set to.
const MAX_MTU: u32 = 65_521;

/// The receiving side of a worker's lane. Its interfaces go away when this and every [`LanePort`] are dropped.
#[derive(Debug)]
pub struct LaneReceiver {
    plain: Tap,
    tagged: Tap,
    /// Slots that exist.
    ports: u16,
    stats: DeviceStats,
}

/// What sends into a lane: its plain tap.
#[derive(Clone, Debug)]
pub struct LaneSender {
    tun: Arc<File>,
    takes_udp_gso: bool,
}

/// The sending side of one port.
#[derive(Debug)]
pub struct LanePort {
    port: PortId,
    mtu: u32,
    lane: LaneSender,
    stats: DeviceStats,
    _attachment: PortAttachment,
    _promiscuous: Option<Promiscuous>,
}

#[derive(Debug)]
struct Tap {
    /// `None` once the interface was deleted under us.
    tun: Option<Arc<File>>,
    interface: Box<str>,
    form: Form,
}

/// How frames of a tap name their port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    Tagged,
}

/// Makes the two taps of a lane in the network namespace of the calling thread, for `ports` ports. Settings of the
/// interfaces are the caller's.
///
/// # Errors
/// If an interface of one of the names exists, or the kernel refuses.
pub fn create(plain: &str, tagged: &str, ports: u16) -> Result<(LaneReceiver, LaneSender), TapError> {
    let (first, second) = (open::create(plain)?, open::create(tagged)?);
    let tun = Arc::new(first.file);
    let tap = |tun, interface: &str, form| Tap { tun: Some(tun), interface: interface.into(), form };
    let receiver = LaneReceiver {
        plain: tap(tun.clone(), plain, Form::Plain),
        tagged: tap(Arc::new(second.file), tagged, Form::Tagged),
        ports,
        stats: DeviceStats::default(),
    };
    Ok((receiver, LaneSender { tun, takes_udp_gso: first.takes_udp_gso }))
}

impl Device for LaneReceiver {
    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu: MAX_MTU, offload: OffloadSupport { checksum: true, gso: true } }
    }

    fn rx_batch(&mut self, pool: &mut BufferPool, frames: &mut Vec<Frame>) {
        // Half a batch each, so that neither starves the other.
        self.tagged.receive(pool, frames, BATCH / 2, self.ports, &mut self.stats);
        let most = BATCH - frames.len();
        self.plain.receive(pool, frames, most, self.ports, &mut self.stats);
    }

    /// Frames leave by a [`LanePort`].
    fn tx_batch(&mut self, frames: &mut VecDeque<Frame>, settled: &mut Vec<Settled>) {
        settled.extend(frames.drain(..).map(|frame| Settled { frame, fate: Err(DropReason::PortDown) }));
    }

    fn flush(&mut self, _now: Instant) -> Option<Instant> {
        None
    }

    fn stats(&mut self) -> DeviceStats {
        self.stats.clone()
    }

    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        [&self.plain, &self.tagged].into_iter().filter_map(|tap| Some(tap.tun.as_ref()?.as_fd())).collect()
    }
}

impl LanePort {
    /// The device of `port`, whose interface takes IP packets of `mtu` bytes. It keeps what takes the interface's frames to
    /// the lane.
    pub fn new(
        port: PortId,
        mtu: u32,
        lane: LaneSender,
        attachment: PortAttachment,
        promiscuous: Option<Promiscuous>,
    ) -> Self {
        Self {
            port,
            mtu,
            lane,
            stats: DeviceStats::default(),
            _attachment: attachment,
            _promiscuous: promiscuous,
        }
    }

    fn send(&mut self, frame: &Frame) -> Option<Result<(), DropReason>> {
        if let Some(reason) = queue::refusal(frame, self.mtu, self.lane.takes_udp_gso) {
            return Some(Err(reason));
        }
        let bytes = frame.bytes();
        let (Some(addresses), Some(rest)) = (bytes.get(..ADDRESSES), bytes.get(ADDRESSES..)) else {
            return Some(Err(DropReason::Malformed));
        };
        #[expect(clippy::cast_possible_truncation, reason = "four")]
        let header = vnet::encode(frame, TAG as u16);
        let name = self.name(addresses);
        self.stats.syscalls += 1;
        let padding = &[0; SHORTEST][..SHORTEST.saturating_sub(bytes.len())];
        let parts = [&header[..], &name, rest, padding].map(IoSlice::new);
        match queue::send(&self.lane.tun, &parts) {
            Sent::Done => Some(Ok(())),
            Sent::Busy => None,
            Sent::Failed(error) => Some(Err(match error.raw_os_error() {
                Some(libc::EIO | libc::EBADFD) => DropReason::PortDown,
                _ => DropReason::DeviceError,
            })),
        }
    }

    /// The addresses and the S-tag that names the port.
    fn name(&self, addresses: &[u8]) -> [u8; ADDRESSES + TAG] {
        let mut name = [0; ADDRESSES + TAG];
        name[..ADDRESSES].copy_from_slice(addresses);
        name[ADDRESSES..][..2].copy_from_slice(&SERVICE_TPID.to_be_bytes());
        name[ADDRESSES + 2..].copy_from_slice(&self.port.0.to_be_bytes());
        name
    }
}

impl Device for LanePort {
    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu: self.mtu, offload: OffloadSupport { checksum: true, gso: true } }
    }

    /// Its frames come by the [`LaneReceiver`].
    fn receives(&self) -> bool {
        false
    }

    fn rx_batch(&mut self, _pool: &mut BufferPool, _frames: &mut Vec<Frame>) {}

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

    fn flush(&mut self, _now: Instant) -> Option<Instant> {
        None
    }

    fn stats(&mut self) -> DeviceStats {
        self.stats.clone()
    }

    fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}

impl Tap {
    fn receive(
        &mut self,
        pool: &mut BufferPool,
        frames: &mut Vec<Frame>,
        most: usize,
        ports: u16,
        stats: &mut DeviceStats,
    ) {
        for _ in 0..most {
            let Some(tun) = &self.tun else { return };
            stats.syscalls += 1;
            match queue::receive(tun, HEADROOM - self.form.removed(), pool) {
                Received::Frame { header, mut buf, len } => {
                    let Some(port) = self.form.take_name(&mut buf, len).filter(|port| port.0 < ports) else {
                        stats.rx_unknown_port += 1;
                        pool.release(buf);
                        continue;
                    };
                    let mut frame = Frame::new(buf, len - self.form.removed(), port);
                    #[expect(clippy::cast_possible_truncation, reason = "four or sixteen")]
                    let removed = self.form.removed() as u16;
                    (frame.checksum, frame.gso) = vnet::decode(header, removed, frame.bytes());
                    frames.push(frame);
                }
                Received::TooLong => stats.rx_no_buffer += 1,
                Received::Empty | Received::NoBuffer => return,
                Received::Failed(error) => return self.failed(&error),
            }
        }
    }

    fn failed(&mut self, error: &io::Error) {
        if error.raw_os_error() == Some(libc::EBADFD) {
            tracing::error!(lane = %self.interface, "the lane was deleted: its ports hear nothing until a restart");
            self.tun = None;
        }
    }
}

impl Form {
    /// Bytes that a frame is shorter by once its name is taken out.
    const fn removed(self) -> usize {
        match self {
            Self::Plain => TAG,
            Self::Tagged => PREFIX,
        }
    }

    /// Takes the port's name out of `len` bytes that end where they ended and now start at [`HEADROOM`]; `None` if they are
    /// too short or carry no name.
    fn take_name(self, buf: &mut FrameBuf, len: usize) -> Option<PortId> {
        let bytes = buf.bytes_mut().get_mut(HEADROOM - self.removed()..)?;
        if len < self.removed() + ETHERNET_HEADER {
            return None;
        }
        match self {
            // Addresses, S-tag, rest.
            Self::Plain => {
                if bytes[ADDRESSES..][..2] != SERVICE_TPID.to_be_bytes() {
                    return None;
                }
                let slot = u16::from_be_bytes([bytes[ADDRESSES + 2], bytes[ADDRESSES + 3]]);
                bytes.copy_within(..ADDRESSES, TAG);
                Some(PortId(slot))
            }
            // Prefix, in the midst of which the tag is, then the frame without it.
            Self::Tagged => {
                let slot = u16::from_be_bytes([bytes[0], bytes[1]]);
                let tag: [u8; TAG] = bytes[ADDRESSES..ADDRESSES + TAG].try_into().ok()?;
                bytes.copy_within(PREFIX + TAG..PREFIX + TAG + ADDRESSES, PREFIX);
                bytes[PREFIX + ADDRESSES..][..TAG].copy_from_slice(&tag);
                Some(PortId(slot))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::PoolSize;
    use crate::id::WorkerId;

    /// The port and the bytes of what is left once the name is taken out.
    fn taken(form: Form, read: &[u8]) -> Option<(u16, Vec<u8>)> {
        let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 1, large: 0 });
        let mut buf = pool.take(read.len()).unwrap();
        buf.bytes_mut()[HEADROOM - form.removed()..][..read.len()].copy_from_slice(read);
        let port = form.take_name(&mut buf, read.len())?;
        let len = read.len() - form.removed();
        Some((port.0, buf.bytes()[HEADROOM..HEADROOM + len].to_vec()))
    }

    #[test]
    fn a_plain_frame_loses_its_s_tag_and_nothing_else() {
        let frame: Vec<u8> = (1..=60).collect();
        for slot in [0_u16, 0x1fff, u16::MAX] {
            let name = [&[0x88, 0xa8][..], &slot.to_be_bytes()].concat();
            let read = [&frame[..12], &name, &frame[12..]].concat();
            assert_eq!(taken(Form::Plain, &read), Some((slot, frame.clone())));
        }
    }

    #[test]
    fn a_tagged_frame_gets_its_tag_back_whatever_it_looks_like() {
        for tag in [[0x81, 0x00, 0x20, 0x0a], [0x88, 0xa8, 0, 3]] {
            let addresses: Vec<u8> = (1..=12).collect();
            let rest = [&[0x81, 0x00, 0, 7, 0x08, 0x00][..], &[9; 40]].concat();
            let prefix = [0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            let read = [&prefix[..12], &tag, &prefix[12..], &addresses, &rest].concat();
            let frame = [&addresses[..], &tag, &rest].concat();
            assert_eq!(taken(Form::Tagged, &read), Some((5, frame)));
        }
    }

    #[test]
    fn what_carries_no_name_belongs_to_no_port() {
        assert_eq!(taken(Form::Plain, &[0; 60]), None);
        assert_eq!(taken(Form::Plain, &[0x88; 17]), None);
        assert_eq!(taken(Form::Tagged, &[0; 29]), None);
    }
}
