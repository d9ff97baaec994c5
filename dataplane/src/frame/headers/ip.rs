//! IP headers: what they say, as far as it can be true.

use super::{IPV4, IPV6, IpVersion};

/// IPv6 extension headers that the transport search looks behind. Each kind occurs at most once in a packet,
/// destination options twice (RFC 8200 clause 4.1).
pub(super) const MAX_EXTENSIONS: usize = 8;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;

/// What says where an IP packet ends.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// The IP header: what follows is Ethernet padding.
    OfHeader,
    /// The frame, whatever the IP header claims.
    OfFrame,
}

/// An IP header that is all there and does not contradict itself or the frame's length.
pub(super) struct IpHeader {
    pub(super) version: IpVersion,
    pub(super) dscp: u8,
    /// IPv4 protocol or IPv6 next header.
    pub(super) protocol: u8,
    /// A part of an IPv4 packet. IPv6 says so in an extension header.
    pub(super) is_fragment: bool,
    /// Start of what follows the header, options included.
    pub(super) payload: usize,
    /// End of the packet; not beyond the frame.
    pub(super) end: usize,
}

impl IpHeader {
    #[inline]
    pub(super) fn parse(bytes: &[u8], ethertype: u16, start: usize, end: End) -> Option<Self> {
        match ethertype {
            IPV4 => Self::parse_v4(bytes, start, end),
            IPV6 => Self::parse_v6(bytes, start, end),
            _ => None,
        }
    }

    #[inline]
    fn parse_v4(bytes: &[u8], start: usize, end: End) -> Option<Self> {
        let header: &[u8; IPV4_HEADER] = bytes.get(start..)?.first_chunk()?;
        let header_len = usize::from(header[0] & 0x0f) * 4;
        let end = match end {
            End::OfHeader => start + usize::from(u16::from_be_bytes([header[2], header[3]])),
            End::OfFrame => bytes.len(),
        };
        let payload = start + header_len;
        let is_sane =
            header[0] >> 4 == 4 && header_len >= IPV4_HEADER && payload <= end && end <= bytes.len();
        is_sane.then_some(Self {
            version: IpVersion::V4,
            dscp: header[1] >> 2,
            protocol: header[9],
            // More fragments, or an offset.
            is_fragment: u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0,
            payload,
            end,
        })
    }

    #[inline]
    fn parse_v6(bytes: &[u8], start: usize, end: End) -> Option<Self> {
        let header: &[u8; IPV6_HEADER] = bytes.get(start..)?.first_chunk()?;
        let payload = start + IPV6_HEADER;
        let end = match end {
            End::OfHeader => payload + usize::from(u16::from_be_bytes([header[4], header[5]])),
            End::OfFrame => bytes.len(),
        };
        (header[0] >> 4 == 6 && end <= bytes.len()).then_some(Self {
            version: IpVersion::V6,
            dscp: (header[0] << 2 | header[1] >> 6) & 0x3f,
            protocol: header[6],
            is_fragment: false,
            payload,
            end,
        })
    }
}

/// Walks the extension headers of the IPv6 packet that ends where `bytes` ends: pseudo-header destination, start and
/// number of what follows them. A fragment header ends the walk, as does anything else that is not understood: the
/// caller finds that its number is not a transport's. The last header may lie about its length; the caller finds that
/// what follows does not fit.
pub(super) fn behind_extensions(
    bytes: &[u8],
    mut destination: usize,
    mut start: usize,
    mut number: u8,
) -> Option<(usize, usize, u8)> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const DESTINATION_OPTIONS: u8 = 60;

    for _ in 0..MAX_EXTENSIONS {
        if !matches!(number, HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS) {
            break;
        }
        let header: &[u8; 8] = bytes.get(start..)?.first_chunk()?;
        let next = start + (usize::from(header[1]) + 1) * 8;
        if number == ROUTING && header[3] != 0 {
            destination = final_destination(header[2], start, next)?;
        }
        (number, start) = (header[0], next);
    }
    Some((destination, start, number))
}

/// Where a routing header with segments left, from `start` to `end`, holds the packet's last destination, which is the
/// one the pseudo-header names (RFC 8200 clause 8.1). Addresses begin 8 bytes into each of these kinds.
fn final_destination(kind: u8, start: usize, end: usize) -> Option<usize> {
    const ADDRESS: usize = 16;
    const SOURCE_ROUTE: u8 = 0; // RFC 2460: in the order of travel
    const HOME_ADDRESS: u8 = 2; // RFC 6275: just one
    const SEGMENT_ROUTING: u8 = 4; // RFC 8754: in reverse order

    let first = start + 8;
    let last = end.checked_sub(ADDRESS).filter(|last| *last >= first)?;
    match kind {
        SOURCE_ROUTE => Some(last),
        HOME_ADDRESS | SEGMENT_ROUTING => Some(first),
        _ => None,
    }
}
