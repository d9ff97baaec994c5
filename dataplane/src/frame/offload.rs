//! Work the sender left to the network card: finishing a checksum, cutting a super-frame into segments.
//!
//! The words are those of the virtio specification (1.2, clause 5.1.6) and of Linux `skbuff.h`.

/// State of a frame's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing is known: the checksum in the frame is final, right or wrong.
    #[default]
    None,
    /// The field holds the sum of the pseudo-header. To finish it, sum from `start` to the end of the packet and store
    /// the complement at `start + offset`.
    Partial {
        /// First byte to sum, from the start of the frame.
        start: u16,
        /// Where the checksum is, from `start`.
        offset: u16,
    },
    /// A device checked it: the receiver need not.
    Valid,
}

/// Kind of a super-frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP datagrams of equal size, over either IP version.
    Udp,
}

/// How to cut a super-frame into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// What it carries.
    pub kind: GsoKind,
    /// Payload bytes of each segment but the last, never 0.
    pub segment_size: u16,
    /// Bytes from the start of the frame to the payload; repeated in each segment.
    pub header_len: u16,
    /// Number of segments.
    pub segments: u16,
}

impl Gso {
    /// The segmentation of a frame of `len` bytes, or `None` if the numbers make no sense.
    pub fn new(kind: GsoKind, segment_size: u16, header_len: u16, len: usize) -> Option<Self> {
        let payload = len.checked_sub(header_len.into())?;
        if segment_size == 0 || payload == 0 {
            return None;
        }
        let segments = u16::try_from(payload.div_ceil(segment_size.into())).ok()?;
        Some(Self { kind, segment_size, header_len, segments })
    }
}

/// What a port takes without help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadSupport {
    /// Frames with an unfinished checksum.
    pub checksum: bool,
    /// Super-frames.
    pub gso: bool,
}
