//! A frame: bytes in one buffer, and what travels with them.
//!
//! The VLAN tag of a frame inside the switch is not in its bytes: [`crate::pipeline::classify`] takes it out and the
//! egress queue puts the egress port's form back in. Unfinished offload work ([`offload`]) stays with the frame until a
//! port that cannot take it makes [`checksum`] or [`segment`] finish it.

pub mod checksum;
pub mod headers;
pub mod mac;
pub mod offload;
pub mod segment;
pub mod vlan;

use crate::buffer::{BufferPool, FrameBuf, HEADROOM};
use crate::id::{ClassId, PortId, WorkerId};
use crate::time::Instant;

use mac::MacAddr;
use offload::{Checksum, Gso};
use vlan::{TagControl, VlanId};

/// Length of destination, source and ethertype.
pub const ETHERNET_HEADER: usize = 14;
/// Length of an 802.1Q tag.
pub const TAG: usize = 4;
/// What a tag adds to the offset of everything behind it.
const TAG_OFFSET: i16 = 4;
/// Ethertype of an 802.1Q tag.
pub const TPID: u16 = 0x8100;
/// Ethertype of an 802.1ad service tag, which is payload to this switch.
pub const SERVICE_TPID: u16 = 0x88a8;

/// One frame on its way through the switch.
#[derive(Debug)]
pub struct Frame {
    buf: FrameBuf,
    start: usize,
    len: usize,
    /// The port it came in on.
    pub ingress: PortId,
    /// Whether its checksum is finished.
    pub checksum: Checksum,
    /// How to cut it up, if it is a super-frame.
    pub gso: Option<Gso>,
    /// The VLAN it belongs to inside the switch; set by classify.
    pub vlan: VlanId,
    /// Tag control bits it came with or should leave with; the VLAN in it is meaningless.
    pub tag: TagControl,
    /// Its traffic class; set by classify.
    pub class: ClassId,
    /// When it entered the queue it waits in.
    pub queued_at: Instant,
}

impl Frame {
    /// A frame of `len` bytes that start [`HEADROOM`] into `buf`, with no offload work left.
    ///
    /// # Panics
    /// If `buf` is shorter than that.
    pub fn new(buf: FrameBuf, len: usize, ingress: PortId) -> Self {
        assert!(
            HEADROOM + len <= buf.bytes().len(),
            "frame of {len} bytes in a buffer of {}",
            buf.bytes().len()
        );
        Self {
            buf,
            start: HEADROOM,
            len,
            ingress,
            checksum: Checksum::None,
            gso: None,
            vlan: VlanId::UNTAGGED,
            tag: TagControl::default(),
            class: ClassId::default(),
            queued_at: Instant::ZERO,
        }
    }

    /// A frame with these bytes, in a buffer of `pool`; `None` if the pool has no buffer for it.
    pub fn copy_from(bytes: &[u8], ingress: PortId, pool: &mut BufferPool) -> Option<Self> {
        let mut buf = pool.take(bytes.len())?;
        buf.bytes_mut()[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        Some(Self::new(buf, bytes.len(), ingress))
    }

    /// Another frame with the same bytes and the same work left; `None` if the pool has no buffer for it.
    pub fn duplicate(&self, pool: &mut BufferPool) -> Option<Self> {
        let copy = Self::copy_from(self.bytes(), self.ingress, pool)?;
        let Self { checksum, gso, vlan, tag, class, queued_at, .. } = *self;
        Some(Self { checksum, gso, vlan, tag, class, queued_at, ..copy })
    }

    /// The bytes of the frame, from the destination address on, without FCS.
    pub fn bytes(&self) -> &[u8] {
        &self.buf.bytes()[self.start..self.start + self.len]
    }

    /// The bytes of the frame.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buf.bytes_mut()[self.start..self.start + self.len]
    }

    /// Length in bytes without FCS.
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty once parsed")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes the wire would carry: a super-frame repeats its headers in every segment.
    pub fn wire_len(&self) -> u64 {
        let repeated =
            self.gso.map_or(0, |gso| u64::from(gso.segments.saturating_sub(1)) * u64::from(gso.header_len));
        self.len as u64 + repeated
    }

    /// Frames the wire would carry.
    pub fn wire_frames(&self) -> u64 {
        self.gso.map_or(1, |gso| u64::from(gso.segments))
    }

    /// Destination address. The frame must be at least an Ethernet header long, which [`headers::Headers::parse`]
    /// checked.
    pub fn destination(&self) -> MacAddr {
        MacAddr(self.bytes()[..6].try_into().expect("parsed frames hold an Ethernet header"))
    }

    /// Source address. See [`Self::destination`].
    pub fn source(&self) -> MacAddr {
        MacAddr(self.bytes()[6..12].try_into().expect("parsed frames hold an Ethernet header"))
    }

    /// Size of the buffer the frame is in.
    pub fn buffer_len(&self) -> usize {
        self.buf.bytes().len()
    }

    /// The worker whose pool the buffer belongs to.
    pub fn home(&self) -> WorkerId {
        self.buf.home()
    }

    /// Gives the buffer up.
    pub fn into_buf(self) -> FrameBuf {
        self.buf
    }

    /// Takes the outer tag out of the bytes and returns it.
    ///
    /// # Panics
    /// If the frame is not long enough to hold a tag.
    pub fn pop_tag(&mut self) -> TagControl {
        let bytes = self.bytes_mut();
        let tag = TagControl(u16::from_be_bytes([bytes[14], bytes[15]]));
        bytes.copy_within(0..12, TAG);
        self.start += TAG;
        self.len -= TAG;
        self.shift_offsets(-TAG_OFFSET);
        tag
    }

    /// Puts a tag in front of the ethertype.
    ///
    /// # Panics
    /// If more tags are pushed than the headroom holds (sixteen).
    pub fn push_tag(&mut self, tag: TagControl) {
        self.start -= TAG;
        self.len += TAG;
        let bytes = self.bytes_mut();
        bytes.copy_within(TAG..TAG + 12, 0);
        bytes[12..14].copy_from_slice(&TPID.to_be_bytes());
        bytes[14..16].copy_from_slice(&tag.0.to_be_bytes());
        self.shift_offsets(TAG_OFFSET);
    }

    /// Header offsets count from the start of the frame, so they move with a tag.
    fn shift_offsets(&mut self, by: i16) {
        if let Checksum::Partial { start, .. } = &mut self.checksum {
            *start = start.saturating_add_signed(by);
        }
        if let Some(gso) = &mut self.gso {
            gso.header_len = gso.header_len.saturating_add_signed(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::PoolSize;
    use offload::GsoKind;

    #[test]
    fn a_tag_pushed_and_popped_leaves_the_frame_as_it_was() {
        let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 1, large: 0 });
        let original: Vec<u8> = (0..60).collect();
        let mut frame = Frame::copy_from(&original, PortId(0), &mut pool).unwrap();
        frame.checksum = Checksum::Partial { start: 34, offset: 6 };
        frame.push_tag(TagControl(0x2064));
        assert_eq!(&frame.bytes()[..18], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x81, 0, 0x20, 0x64, 12, 13]);
        assert_eq!(frame.checksum, Checksum::Partial { start: 38, offset: 6 });
        assert_eq!(frame.pop_tag(), TagControl(0x2064));
        assert_eq!(frame.bytes(), original);
        assert_eq!(frame.checksum, Checksum::Partial { start: 34, offset: 6 });
        pool.release(frame.into_buf());
    }

    #[test]
    fn a_super_frame_is_charged_what_the_wire_would_carry() {
        let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 0, large: 1 });
        let mut frame = Frame::copy_from(&vec![0; 66 + 3 * 1448], PortId(0), &mut pool).unwrap();
        frame.gso = Some(Gso { kind: GsoKind::TcpV4, segment_size: 1448, header_len: 66, segments: 3 });
        assert_eq!((frame.wire_len(), frame.wire_frames()), (3 * 1514, 3));
        pool.release(frame.into_buf());
    }
}
