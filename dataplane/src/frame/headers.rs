//! Where the headers of a frame are.
//!
//! [`Headers::parse`] answers what every frame is asked, in a few loads: tag, ethertype, DSCP. [`Transport::locate`]
//! searches on for a TCP or UDP header and is called only where somebody needs one: a checksum to finish, a super-frame
//! to cut, a rule on protocol or ports.
//!
//! Only what the switch itself relies on can make a frame malformed: the Ethernet header and an 802.1Q tag. Whatever
//! an IP header says may be a lie; a frame with such a header is forwarded by its addresses, unchanged, as a frame of
//! an unknown protocol would be. Every read is bounded by the bytes that are there, every loop by a constant.

mod ip;
#[cfg(test)]
pub(crate) mod samples;

use std::ops::Range;

use super::vlan::TagControl;
use super::{ETHERNET_HEADER, TAG, TPID};

use ip::{End, IpHeader, behind_extensions};

/// Ethertype of IPv4.
pub const IPV4: u16 = 0x0800;
/// Ethertype of IPv6.
pub const IPV6: u16 = 0x86dd;

/// Ethertype of an 802.1ad service tag. The switch does not interpret it; the transport search looks behind it.
const SERVICE_TPID: u16 = 0x88a8;
/// Tags that the transport search looks behind.
const MAX_TAGS: usize = 2;

/// Shorter than an Ethernet header, or than the tag it announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// What classification needs to know of a frame besides its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The outer 802.1Q tag (TPID 0x8100); other tags are payload to the switch.
    pub tag: Option<TagControl>,
    /// Ethertype behind the outer tag; below 0x0600 it is the length of an 802.3 frame.
    pub ethertype: u16,
    /// Start of the network header, in bytes from the start of the frame.
    pub l3_offset: usize,
    /// Differentiated services code point, 0 to 63, if the frame is an IP packet that is all there.
    pub dscp: Option<u8>,
}

/// Version of the Internet Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// RFC 791.
    V4,
    /// RFC 8200.
    V6,
}

/// A transport protocol the switch can work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
}

/// Where the TCP or UDP header of an unfragmented packet is. Offsets count from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// The protocol. Its fixed header lies between `offset` and `packet_end`.
    pub protocol: Protocol,
    /// What carries it.
    pub version: IpVersion,
    /// Start of the IP header.
    pub l3_offset: u16,
    /// Start of the TCP or UDP header.
    pub offset: u16,
    /// End of what the transport checksum covers; Ethernet padding may follow. Never beyond the frame.
    pub packet_end: u32,
    /// Address the pseudo-header names as the destination: behind a routing header it is not the one in the IP header.
    pub(super) destination_offset: u16,
}

impl Headers {
    /// Reads the headers of the frame `bytes`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let outer = u16_at(bytes, ETHERNET_HEADER - 2).ok_or(Malformed)?;
        let (tag, ethertype, l3_offset) = if outer == TPID {
            let tag = u16_at(bytes, ETHERNET_HEADER).ok_or(Malformed)?;
            let ethertype = u16_at(bytes, ETHERNET_HEADER + TAG - 2).ok_or(Malformed)?;
            (Some(TagControl(tag)), ethertype, ETHERNET_HEADER + TAG)
        } else {
            (None, outer, ETHERNET_HEADER)
        };
        let dscp = IpHeader::parse(bytes, ethertype, l3_offset, End::OfHeader).map(|ip| ip.dscp);
        Ok(Self { tag, ethertype, l3_offset, dscp })
    }
}

impl Protocol {
    /// Its number in an IP header.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }

    /// Where its checksum is, from the start of its header.
    pub const fn checksum_offset(self) -> u16 {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
        }
    }

    const fn fixed_header(self) -> usize {
        match self {
            Self::Tcp => 20,
            Self::Udp => 8,
        }
    }

    const fn from_number(number: u8) -> Option<Self> {
        match number {
            6 => Some(Self::Tcp),
            17 => Some(Self::Udp),
            _ => None,
        }
    }
}

impl Transport {
    /// Searches the frame `bytes` for a TCP or UDP header: behind up to two tags, IPv4 options, and the IPv6
    /// extension headers that leave a packet whole. `None` if it has none, is a fragment, or claims more than is there.
    pub fn locate(bytes: &[u8]) -> Option<Self> {
        Self::search(bytes, End::OfHeader)
    }

    /// As [`Self::locate`], but the packet ends where the frame ends: senders do not agree on what the length fields of
    /// a super-frame say, and segmentation writes them anew.
    pub(super) fn locate_in_super_frame(bytes: &[u8]) -> Option<Self> {
        Self::search(bytes, End::OfFrame)
    }

    /// Where the checksum is, from [`Self::offset`].
    pub const fn checksum_offset(&self) -> u16 {
        self.protocol.checksum_offset()
    }

    fn search(bytes: &[u8], end: End) -> Option<Self> {
        let (ethertype, l3_offset) = behind_tags(bytes)?;
        let ip = IpHeader::parse(bytes, ethertype, l3_offset, end)?;
        if ip.is_fragment {
            return None;
        }
        let (destination, offset, number) = match ip.version {
            IpVersion::V4 => (l3_offset + 16, ip.payload, ip.protocol),
            IpVersion::V6 => behind_extensions(&bytes[..ip.end], l3_offset + 24, ip.payload, ip.protocol)?,
        };
        let protocol = Protocol::from_number(number)?;
        let room = ip.end.checked_sub(offset)?;
        // What follows a datagram inside its packet is not part of it (RFC 768; RFC 9868 puts options there).
        let length = match (protocol, end) {
            (Protocol::Udp, End::OfHeader) => usize::from(u16_at(bytes, offset + 4)?),
            _ => room,
        };
        if !(protocol.fixed_header()..=room).contains(&length) {
            return None;
        }
        Some(Self {
            protocol,
            version: ip.version,
            l3_offset: u16::try_from(l3_offset).ok()?,
            offset: u16::try_from(offset).ok()?,
            packet_end: u32::try_from(offset + length).ok()?,
            destination_offset: u16::try_from(destination).ok()?,
        })
    }
}

/// What a frame carries behind its tags, without the Ethernet padding where an IP header tells where the packet ends.
/// `None` if the frame is shorter than its Ethernet header and tags.
pub(super) fn packet_range(bytes: &[u8]) -> Option<Range<usize>> {
    let (ethertype, l3_offset) = behind_tags(bytes)?;
    let end = IpHeader::parse(bytes, ethertype, l3_offset, End::OfHeader).map_or(bytes.len(), |ip| ip.end);
    Some(l3_offset..end)
}

/// The two bytes at `at`, in network order.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Ethertype and start of what follows up to [`MAX_TAGS`] tags of either kind.
fn behind_tags(bytes: &[u8]) -> Option<(u16, usize)> {
    let mut start = ETHERNET_HEADER;
    for _ in 0..MAX_TAGS {
        if !matches!(u16_at(bytes, start - 2)?, TPID | SERVICE_TPID) {
            break;
        }
        start += TAG;
    }
    Some((u16_at(bytes, start - 2)?, start))
}

#[cfg(test)]
mod tests {
    use super::ip::MAX_EXTENSIONS;
    use super::samples::{v4, v6};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_frame_shorter_than_its_ethernet_header_or_tag_is_malformed() {
        let mut frame = [0; 18];
        assert_eq!(Headers::parse(&frame[..13]), Err(Malformed));
        assert!(Headers::parse(&frame[..14]).is_ok(), "14 bytes are a legal frame on a tap");
        frame[12..14].copy_from_slice(&TPID.to_be_bytes());
        assert_eq!(Headers::parse(&frame[..17]), Err(Malformed));
        assert!(Headers::parse(&frame).is_ok());
    }

    #[test]
    fn only_the_outer_802_1q_tag_is_interpreted() {
        let mut sample = v4(Protocol::Udp, vec![1, 2, 3]);
        let parse = |sample: &samples::Sample| Headers::parse(&sample.finished()).unwrap();
        assert_eq!(parse(&sample), Headers { tag: None, ethertype: IPV4, l3_offset: 14, dscp: Some(46) });
        sample.tags = vec![(TPID, 0xa064)];
        let tag = Some(TagControl(0xa064));
        assert_eq!(parse(&sample), Headers { tag, ethertype: IPV4, l3_offset: 18, dscp: Some(46) });
        sample.tags = vec![(TPID, 0xa064), (TPID, 5)];
        assert_eq!(parse(&sample), Headers { tag, ethertype: TPID, l3_offset: 18, dscp: None });
        sample.tags = vec![(SERVICE_TPID, 0xa064)];
        assert_eq!(parse(&sample), Headers { tag: None, ethertype: SERVICE_TPID, l3_offset: 14, dscp: None });
    }

    #[test]
    fn dscp_is_read_from_both_ip_versions() {
        for dscp in 0..64 {
            for sample in [v4(Protocol::Tcp, vec![]), v6(Protocol::Tcp, vec![])] {
                let bytes = samples::Sample { dscp, ..sample }.finished();
                assert_eq!(Headers::parse(&bytes).unwrap().dscp, Some(dscp));
            }
        }
    }

    #[test]
    fn a_lying_ip_header_is_not_malformed_but_says_nothing() {
        let whole = v4(Protocol::Udp, vec![0; 20]).finished();
        let with = |at: usize, value: u8| {
            let mut bytes = whole.clone();
            bytes[at] = value;
            bytes
        };
        let lies = [
            ("version 6", with(14, 0x65)),
            ("header shorter than a header", with(14, 0x44)),
            ("header longer than the packet", with(14, 0x4f)),
            ("packet longer than the frame", with(17, whole[17] + 1)),
            ("packet shorter than its header", with(17, 19)),
            ("cut off", whole[..33].to_vec()),
        ];
        for (lie, bytes) in lies {
            let headers = Headers::parse(&bytes).unwrap();
            assert_eq!((headers.ethertype, headers.dscp), (IPV4, None), "{lie}");
            assert_eq!(Transport::locate(&bytes), None, "{lie}");
        }
        let mut bytes = v6(Protocol::Udp, vec![0; 20]).finished();
        bytes[19] += 1;
        assert_eq!(Headers::parse(&bytes).unwrap().dscp, None);
        assert_eq!(Transport::locate(&bytes), None);
    }

    #[test]
    fn finds_the_transport_header_behind_tags_options_and_extension_headers() {
        let hop_by_hop = (0, vec![0, 0, 1, 4, 0, 0, 0, 0]);
        let options = (60, vec![0, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let spent_route = (43, vec![0, 0, 0, 0, 0, 0, 0, 0]);
        let payload = vec![7; 33];
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let plain = v4(protocol, payload.clone());
            let plain6 = v6(protocol, payload.clone());
            let cases = [
                plain.clone(),
                samples::Sample { ipv4_options: Some(vec![1; 40]), padding: 9, ..plain.clone() },
                samples::Sample { tags: vec![(TPID, 10)], ..plain.clone() },
                samples::Sample { tags: vec![(SERVICE_TPID, 10), (TPID, 20)], ..plain },
                plain6.clone(),
                samples::Sample { extensions: vec![hop_by_hop.clone()], padding: 1, ..plain6.clone() },
                samples::Sample {
                    extensions: vec![hop_by_hop.clone(), options.clone(), spent_route.clone()],
                    ..plain6
                },
            ];
            for sample in cases {
                let found = Transport::locate(&sample.finished()).unwrap();
                assert_eq!((found.protocol, usize::from(found.l3_offset)), (protocol, sample.l3()));
                assert_eq!(usize::from(found.offset), sample.l4(), "{sample:?}");
                assert_eq!(found.packet_end as usize, sample.packet_end(), "{sample:?}");
            }
        }
    }

    #[test]
    fn fragments_and_other_protocols_have_no_transport_header() {
        let mut first = v4(Protocol::Udp, vec![0; 64]).finished();
        first[20] |= 0x20;
        assert_eq!(Transport::locate(&first), None, "more fragments follow");
        let mut later = v4(Protocol::Udp, vec![0; 64]).finished();
        later[21] = 1;
        assert_eq!(Transport::locate(&later), None);
        let fragment =
            samples::Sample { extensions: vec![(44, vec![0; 8])], ..v6(Protocol::Udp, vec![0; 64]) };
        assert_eq!(Transport::locate(&fragment.finished()), None);
        let mut sctp = v4(Protocol::Udp, vec![0; 64]).finished();
        sctp[23] = 132;
        assert_eq!(Transport::locate(&sctp), None);
        let chain = vec![(60, vec![0, 0, 1, 4, 0, 0, 0, 0]); MAX_EXTENSIONS + 1];
        let endless = samples::Sample { extensions: chain, ..v6(Protocol::Udp, vec![0; 64]) };
        assert_eq!(Transport::locate(&endless.finished()), None);
    }

    #[test]
    fn a_datagram_ends_where_its_own_length_says() {
        let mut bytes = v4(Protocol::Udp, vec![0; 64]).finished();
        bytes[38..40].copy_from_slice(&20_u16.to_be_bytes());
        assert_eq!(Transport::locate(&bytes).unwrap().packet_end, 34 + 20);
        for lie in [0_u16, 7, 73] {
            bytes[38..40].copy_from_slice(&lie.to_be_bytes());
            assert_eq!(Transport::locate(&bytes), None, "length {lie} of 72 bytes");
        }
    }

    #[test]
    fn the_pseudo_header_names_the_last_hop_of_a_route() {
        let route = |kind, addresses: usize, tlv: usize| {
            let mut header = vec![0; 8 + 16 * addresses + tlv];
            header[1] = u8::try_from(header.len() / 8 - 1).unwrap();
            (header[2], header[3]) = (kind, 1);
            samples::Sample { extensions: vec![(43, header)], ..v6(Protocol::Tcp, vec![]) }.finished()
        };
        let destination = |bytes: &[u8]| Transport::locate(bytes).map(|found| found.destination_offset);
        assert_eq!(destination(&route(0, 3, 0)), Some(54 + 8 + 32));
        assert_eq!(destination(&route(2, 1, 0)), Some(54 + 8));
        assert_eq!(destination(&route(4, 3, 8)), Some(54 + 8));
        assert_eq!(destination(&route(4, 0, 0)), None, "no address in it");
        assert_eq!(destination(&route(3, 1, 0)), None, "compressed addresses");
        assert_eq!(destination(&v6(Protocol::Tcp, vec![]).finished()), Some(14 + 24));
    }

    proptest! {
        /// Whatever is found lies inside the frame, whatever the frame is.
        #[test]
        fn nothing_is_found_outside_the_frame(
            v6_header in any::<bool>(),
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            next in prop_oneof![Just(0_u8), Just(43), Just(60), Just(6), Just(17), any::<u8>()],
        ) {
            let ethertype = if v6_header { IPV6 } else { IPV4 };
            for (at, value) in [(12, ethertype.to_be_bytes()[0]), (13, ethertype.to_be_bytes()[1])] {
                if let Some(byte) = bytes.get_mut(at) { *byte = value }
            }
            if let Some(byte) = bytes.get_mut(14) { *byte = if v6_header { 0x60 } else { 0x40 | *byte & 7 } }
            if let Some(byte) = bytes.get_mut(if v6_header { 18 } else { 16 }) { *byte = 0 }
            if let Some(byte) = bytes.get_mut(if v6_header { 20 } else { 23 }) { *byte = next }
            prop_assert_eq!(Headers::parse(&bytes).is_ok(), bytes.len() >= 14);
            for found in [Transport::locate(&bytes), Transport::locate_in_super_frame(&bytes)].into_iter().flatten() {
                let start = usize::from(found.offset);
                prop_assert!(start + found.protocol.fixed_header() <= found.packet_end as usize);
                prop_assert!(found.packet_end as usize <= bytes.len());
                prop_assert!(usize::from(found.destination_offset) + 4 <= start);
            }
        }
    }
}
