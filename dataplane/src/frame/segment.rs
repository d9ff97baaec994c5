//! Cutting a super-frame into the frames the wire carries, for ports that cannot (TCP segmentation offload and UDP
//! segmentation offload done in software).
//!
//! Each segment gets a copy of the headers with what differs written anew: lengths, IPv4 identification and header
//! checksum, TCP sequence number and flags, the transport checksum. Everything is derived from the packet's own
//! headers; what a guest says about them is not used.

use super::headers::{IpVersion, Protocol, Transport};
use super::offload::{Gso, GsoKind};
use super::{Frame, checksum};
use crate::buffer::{BufferPool, HEADROOM};

/// Most segments of a super-frame: 64 KiB in the smallest segments that Linux TCP makes (48 bytes) are 1366. It bounds
/// the work that one frame of a hostile guest can cause.
pub const MAX_SEGMENTS: u16 = 2048;

/// Of a length that any super-frame can be cut into.
const ANY_SEGMENT: u16 = 536;
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;
const UDP_HEADER: usize = 8;
const IPV6_HEADER: usize = 40;

/// How to cut up the frame `bytes` that its sender calls a super-frame of `kind`, `segment_size` bytes of payload each.
///
/// Where the payload begins is read from the packet, since a vnet header's `hdr_len` is only a hint (virtio 1.2, clause
/// 5.1.6.2.2). `None` if the packet is not of that kind, is a fragment, carries no payload, would need more than
/// [`MAX_SEGMENTS`], or segments longer than an IP packet can be.
pub fn plan(bytes: &[u8], kind: GsoKind, segment_size: u16) -> Option<Gso> {
    layout(bytes, kind, segment_size).map(|(_, gso)| gso)
}

/// How to cut up a TCP packet that is longer than the MTU of the device it came by, `mtu` bytes: a super-frame whose note
/// got lost, as where an XDP program runs in generic mode. The sender's own segments are at most as long as that MTU
/// allows, and what the wire would carry is at most that. `None` for everything else.
pub fn detect(bytes: &[u8], mtu: u32) -> Option<Gso> {
    let transport = Transport::locate_in_super_frame(bytes)?;
    let l3_offset = usize::from(transport.l3_offset);
    if bytes.len() - l3_offset <= mtu as usize {
        return None;
    }
    let kind = match (transport.protocol, transport.version) {
        (Protocol::Tcp, IpVersion::V4) => GsoKind::TcpV4,
        (Protocol::Tcp, IpVersion::V6) => GsoKind::TcpV6,
        (Protocol::Udp, _) => return None,
    };
    let headers = usize::from(layout(bytes, kind, ANY_SEGMENT)?.1.header_len) - l3_offset;
    plan(bytes, kind, u16::try_from((mtu as usize).checked_sub(headers)?).ok()?)
}

/// The segments of one super-frame.
#[derive(Debug)]
pub struct Segments<'a> {
    frame: &'a Frame,
    bytes: &'a [u8],
    transport: Transport,
    gso: Gso,
}

impl<'a> Segments<'a> {
    /// The segments of `frame`, or `None` if it is not a super-frame or not what its [`Gso`] says.
    pub fn new(frame: &'a Frame) -> Option<Self> {
        let claimed = frame.gso?;
        let (transport, gso) = layout(frame.bytes(), claimed.kind, claimed.segment_size)?;
        (gso == claimed).then_some(Self { frame, bytes: frame.bytes(), transport, gso })
    }

    /// How many there are; at least one.
    pub fn count(&self) -> u16 {
        self.gso.segments
    }

    /// Length in bytes of segment `index`. None is longer than the first.
    ///
    /// # Panics
    /// If there is no such segment.
    pub fn segment_len(&self, index: u16) -> usize {
        usize::from(self.gso.header_len) + self.payload(index).len()
    }

    /// Writes segment `index` to the start of `out`, all checksums finished, and returns its length.
    ///
    /// # Panics
    /// If there is no such segment, or `out` is shorter than [`Self::segment_len`].
    pub fn write(&self, index: u16, out: &mut [u8]) -> usize {
        let header_len = usize::from(self.gso.header_len);
        let payload = self.payload(index);
        let segment = &mut out[..header_len + payload.len()];
        segment[..header_len].copy_from_slice(&self.bytes[..header_len]);
        segment[header_len..].copy_from_slice(payload);
        self.write_network(index, segment);
        self.write_transport(index, segment);
        segment.len()
    }

    /// Segment `index` as a frame of its own, in the VLAN and class of the super-frame; `None` if the pool has no buffer
    /// for it.
    ///
    /// # Panics
    /// If there is no such segment.
    pub fn frame(&self, index: u16, pool: &mut BufferPool) -> Option<Frame> {
        let len = self.segment_len(index);
        let mut buf = pool.take(len)?;
        self.write(index, &mut buf.bytes_mut()[HEADROOM..]);
        let &Frame { ingress, vlan, tag, class, queued_at, .. } = self.frame;
        Some(Frame { vlan, tag, class, queued_at, ..Frame::new(buf, len, ingress) })
    }

    fn payload(&self, index: u16) -> &'a [u8] {
        assert!(index < self.gso.segments, "segment {index} of {}", self.gso.segments);
        let payload = &self.bytes[usize::from(self.gso.header_len)..];
        let start = usize::from(index) * usize::from(self.gso.segment_size);
        let end = payload.len().min(start + usize::from(self.gso.segment_size));
        &payload[start..end]
    }

    fn write_network(&self, index: u16, segment: &mut [u8]) {
        let l3 = usize::from(self.transport.l3_offset);
        let length = segment.len() - l3;
        match self.transport.version {
            IpVersion::V4 => {
                let header = &mut segment[l3..usize::from(self.transport.offset)];
                put_u16(header, 2, u16_len(length));
                // Receivers tell fragments apart by it (RFC 6864), so no two packets in a row share one.
                let identification = u16::from_be_bytes([header[4], header[5]]).wrapping_add(index);
                put_u16(header, 4, identification);
                put_u16(header, 10, 0);
                let checksum = !checksum::fold(checksum::sum(header));
                put_u16(header, 10, checksum);
            }
            IpVersion::V6 => put_u16(segment, l3 + 4, u16_len(length - IPV6_HEADER)),
        }
    }

    fn write_transport(&self, index: u16, segment: &mut [u8]) {
        let start = usize::from(self.transport.offset);
        let length = segment.len() - start;
        let header = &mut segment[start..];
        match self.transport.protocol {
            Protocol::Tcp => {
                let first = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
                let sequence = first.wrapping_add(u32::from(index) * u32::from(self.gso.segment_size));
                header[4..8].copy_from_slice(&sequence.to_be_bytes());
                // "Congestion window reduced" is said once (RFC 3168 clause 6.1.2), the end comes at the end.
                if index > 0 {
                    header[13] &= !TCP_CWR;
                }
                if index + 1 < self.gso.segments {
                    header[13] &= !(TCP_FIN | TCP_PSH);
                }
            }
            Protocol::Udp => put_u16(header, 4, u16_len(length)),
        }
        let field = usize::from(self.transport.checksum_offset());
        put_u16(header, field, 0);
        let sum = checksum::pseudo_header(self.bytes, &self.transport, length as u64) + checksum::sum(header);
        put_u16(header, field, checksum::finish(sum));
    }
}

/// Where the headers are and how the payload divides.
fn layout(bytes: &[u8], kind: GsoKind, segment_size: u16) -> Option<(Transport, Gso)> {
    let transport = Transport::locate_in_super_frame(bytes)?;
    let start = usize::from(transport.offset);
    let header_len = match (kind, transport.protocol, transport.version) {
        (GsoKind::TcpV4, Protocol::Tcp, IpVersion::V4) | (GsoKind::TcpV6, Protocol::Tcp, IpVersion::V6) => {
            let data_offset = bytes[start + 12] >> 4;
            start + if data_offset >= 5 { usize::from(data_offset) * 4 } else { return None }
        }
        (GsoKind::Udp, Protocol::Udp, _) => start + UDP_HEADER,
        _ => return None,
    };
    let gso = Gso::new(kind, segment_size, u16::try_from(header_len).ok()?, bytes.len())?;
    if gso.segments > MAX_SEGMENTS {
        return None;
    }
    let longest = header_len + usize::from(segment_size).min(bytes.len() - header_len);
    u16::try_from(longest - usize::from(transport.l3_offset)).ok()?;
    Some((transport, gso))
}

fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// A length field. That every length of a segment fits is what [`layout`] checked last.
fn u16_len(bytes: usize) -> u16 {
    u16::try_from(bytes).expect("no segment is longer than an IP packet can be")
}

#[cfg(test)]
mod tests {
    use super::super::headers::samples::{Sample, checksums_are_right, v4, v6};
    use super::*;
    use crate::buffer::{BufferPool, PoolSize};
    use crate::id::{PortId, WorkerId};
    use proptest::prelude::*;

    /// The segments of `sample` as the wire would carry them, and what the switch would charge for it.
    fn cut(sample: &Sample, kind: GsoKind, segment_size: u16) -> Option<(Vec<Vec<u8>>, u64)> {
        let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 1, large: 1 });
        let bytes = sample.unfinished();
        let mut frame = Frame::copy_from(&bytes, PortId(0), &mut pool).unwrap();
        frame.gso = Some(plan(&bytes, kind, segment_size)?);
        let segments = Segments::new(&frame)?;
        let cut = |index| {
            let mut out = vec![0xee; segments.segment_len(0) + 1];
            let len = segments.write(index, &mut out);
            assert_eq!(
                (len, out[len]),
                (segments.segment_len(index), 0xee),
                "nothing is written behind the segment"
            );
            out.truncate(len);
            out
        };
        Some(((0..segments.count()).map(cut).collect(), frame.wire_len()))
    }

    fn kind_of(sample: &Sample) -> GsoKind {
        match (sample.protocol, &sample.ipv4_options) {
            (Protocol::Udp, _) => GsoKind::Udp,
            (Protocol::Tcp, Some(_)) => GsoKind::TcpV4,
            (Protocol::Tcp, None) => GsoKind::TcpV6,
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn tcp_segments_are_these_bytes() {
        let (tcp_flags, sequence, identification) = (0x80 | 0x10 | 0x08 | 0x01, 0xffff_fffe, 0xffff);
        let sample = Sample { tcp_flags, sequence, identification, ..v4(Protocol::Tcp, b"abcde".to_vec()) };
        let segments: Vec<_> =
            cut(&sample, GsoKind::TcpV4, 2).unwrap().0.iter().map(|bytes| hex(bytes)).collect();
        let ethernet = "0200000000020200000000010800";
        let expected = [
            "45b8002affff40004006257a0a4d00010a4d00021388c000fffffffe00000001509001f563d600006162",
            "45b8002a000040004006257a0a4d00010a4d00021388c0000000000000000001501001f5625300006364",
            "45b80029000140004006257a0a4d00010a4d00021388c0000000000200000001501901f560ad000065",
        ];
        assert_eq!(segments, expected.map(|packet| format!("{ethernet}{packet}")));
    }

    #[test]
    fn a_super_frame_without_a_note_is_recognised_and_cut_to_the_mtu() {
        for sample in [v4(Protocol::Tcp, vec![7; 14_000]), v6(Protocol::Tcp, vec![7; 60_000])] {
            let tagged = Sample { tags: vec![(0x8100, 10)], ..sample.clone() };
            for sample in [sample, tagged] {
                let bytes = sample.unfinished();
                let gso = detect(&bytes, 1500).unwrap();
                let l3_offset = 14 + 4 * sample.tags.len();
                assert_eq!(usize::from(gso.header_len + gso.segment_size), 1500 + l3_offset);
                let (segments, _) = cut(&sample, gso.kind, gso.segment_size).unwrap();
                let (l3, l4) = (sample.l3(), sample.l4());
                assert!(segments.iter().all(|segment| checksums_are_right(&segment[l3..], l4 - l3, 6)));
                let longest = bytes.len() - l3_offset;
                assert_eq!(
                    detect(&bytes, u32::try_from(longest).unwrap()),
                    None,
                    "it is a packet of that MTU"
                );
                assert!(detect(&bytes, u32::try_from(longest - 1).unwrap()).is_some());
            }
        }
        // Datagrams do not tell where they were to be cut, and nothing fits an MTU smaller than the headers.
        assert_eq!(detect(&v4(Protocol::Udp, vec![7; 14_000]).unfinished(), 1500), None);
        assert_eq!(detect(&v4(Protocol::Tcp, vec![7; 14_000]).unfinished(), 40), None);
    }

    #[test]
    fn udp_segments_are_these_bytes() {
        let sample = v6(Protocol::Udp, b"abcd".to_vec());
        let segments: Vec<_> =
            cut(&sample, GsoKind::Udp, 3).unwrap().0.iter().map(|bytes| hex(bytes)).collect();
        let addresses = "fd770000000000000000000000000001fd770000000000000000000000000002";
        let expected = ["6b800000000b1140|1388c000000b6cfa616263", "6b80000000091140|1388c0000009cd6064"];
        let ethernet = "02000000000202000000000186dd";
        assert_eq!(segments, expected.map(|packet| format!("{ethernet}{}", packet.replace('|', addresses))));
    }

    #[test]
    fn what_is_not_the_super_frame_it_claims_to_be_is_refused() {
        let tcp = v4(Protocol::Tcp, vec![0; 3000]);
        for kind in [GsoKind::TcpV6, GsoKind::Udp] {
            assert_eq!(plan(&tcp.unfinished(), kind, 1448), None, "{kind:?}");
        }
        assert_eq!(plan(&v6(Protocol::Udp, vec![0; 99]).unfinished(), GsoKind::TcpV6, 10), None);
        let with = |at: usize, value: u8| {
            let mut bytes = tcp.unfinished();
            bytes[at] = value;
            bytes
        };
        assert!(plan(&tcp.unfinished(), GsoKind::TcpV4, 1448).is_some());
        assert_eq!(plan(&tcp.unfinished(), GsoKind::TcpV4, 0), None, "segments of nothing");
        assert_eq!(plan(&tcp.unfinished(), GsoKind::TcpV4, 1), None, "more segments than are allowed");
        assert_eq!(plan(&with(20, 0x20), GsoKind::TcpV4, 1448), None, "a fragment");
        assert_eq!(plan(&with(46, 0x40), GsoKind::TcpV4, 1448), None, "TCP header shorter than a TCP header");
        assert_eq!(plan(&tcp.unfinished()[..54], GsoKind::TcpV4, 1448), None, "no payload");
        assert_eq!(plan(&tcp.unfinished()[..53], GsoKind::TcpV4, 1448), None, "cut off");
        let mut longest = tcp.unfinished();
        longest.resize(66_000, 0);
        assert_eq!(plan(&longest, GsoKind::TcpV4, u16::MAX), None, "segments longer than a packet");
    }

    #[test]
    fn a_frame_whose_gso_is_not_that_of_its_headers_has_no_segments() {
        let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 0, large: 1 });
        let bytes = v4(Protocol::Tcp, vec![0; 3000]).unfinished();
        let mut frame = Frame::copy_from(&bytes, PortId(0), &mut pool).unwrap();
        assert!(Segments::new(&frame).is_none(), "no super-frame");
        let gso = plan(&bytes, GsoKind::TcpV4, 1448).unwrap();
        for lie in
            [Gso { header_len: 14, ..gso }, Gso { segments: 9, ..gso }, Gso { kind: GsoKind::Udp, ..gso }]
        {
            frame.gso = Some(lie);
            assert!(Segments::new(&frame).is_none(), "{lie:?}");
        }
        frame.gso = Some(gso);
        assert!(Segments::new(&frame).is_some());
    }

    #[test]
    fn the_length_fields_of_a_super_frame_are_not_believed() {
        let mut bytes = v4(Protocol::Tcp, vec![0; 3000]).unfinished();
        let gso = plan(&bytes, GsoKind::TcpV4, 1448);
        bytes[16..18].fill(0);
        assert_eq!(plan(&bytes, GsoKind::TcpV4, 1448), gso);
        let mut bytes = v6(Protocol::Udp, vec![0; 3000]).unfinished();
        let gso = plan(&bytes, GsoKind::Udp, 1448);
        bytes[18..20].fill(0);
        bytes[58..60].fill(0);
        assert_eq!(plan(&bytes, GsoKind::Udp, 1448), gso);
        assert!(gso.is_some());
    }

    prop_compose! {
        fn any_sample()(
            v6_header in any::<bool>(),
            protocol in prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp)],
            payload in proptest::collection::vec(any::<u8>(), 1..4000),
            tags in prop_oneof![Just(vec![]), Just(vec![(0x8100, 0xa00a)]), Just(vec![(0x88a8, 9), (0x8100, 7)])],
            tcp_options in 0_usize..=10,
            ipv4_options in 0_usize..=10,
            extended in any::<bool>(),
            (tcp_flags, sequence, identification) in any::<(u8, u32, u16)>(),
        ) -> Sample {
            let base = Sample {
                tags,
                tcp_options: vec![1; tcp_options * 4],
                tcp_flags,
                sequence,
                identification,
                ..v4(protocol, payload)
            };
            let extensions = if extended { vec![(60, vec![0, 0, 1, 4, 0, 0, 0, 0])] } else { vec![] };
            match v6_header {
                true => Sample { ipv4_options: None, extensions, ..base },
                false => Sample { ipv4_options: Some(vec![1; ipv4_options * 4]), ..base },
            }
        }
    }

    proptest! {
        #[test]
        fn segments_are_whole_packets_that_carry_the_payload_and_nothing_else(
            sample in any_sample(),
            segment_size in 8_u16..2000,
        ) {
            let (segments, charged) = cut(&sample, kind_of(&sample), segment_size).unwrap();
            let (l3, l4, start) = (sample.l3(), sample.l4(), sample.payload_start());
            let last = segments.len() - 1;
            let original = sample.unfinished();

            prop_assert_eq!(charged, segments.iter().map(|segment| segment.len() as u64).sum::<u64>());
            let carried: Vec<u8> = segments.iter().flat_map(|segment| segment[start..].to_vec()).collect();
            prop_assert_eq!(&carried, &sample.payload);
            for (index, segment) in segments.iter().enumerate() {
                prop_assert_eq!(&segment[..l3], &original[..l3]);
                prop_assert!(checksums_are_right(&segment[l3..], l4 - l3, sample.protocol.number()));
                prop_assert!(index == last || segment.len() - start == usize::from(segment_size));
                // An ordinary frame to everyone from here on.
                let found = Transport::locate(segment).unwrap();
                prop_assert_eq!((usize::from(found.offset), found.packet_end as usize), (l4, segment.len()));
                if sample.ipv4_options.is_some() {
                    let identification = u16::from_be_bytes([segment[l3 + 4], segment[l3 + 5]]);
                    prop_assert_eq!(usize::from(identification.wrapping_sub(sample.identification)), index);
                }
                if sample.protocol == Protocol::Tcp {
                    let sequence = u32::from_be_bytes(segment[l4 + 4..l4 + 8].try_into().unwrap());
                    prop_assert_eq!(sequence.wrapping_sub(sample.sequence) as usize, index * usize::from(segment_size));
                    let allowed = if index == 0 { 0xff } else { !TCP_CWR };
                    let allowed = allowed & if index == last { 0xff } else { !(TCP_FIN | TCP_PSH) };
                    prop_assert_eq!(segment[l4 + 13], sample.tcp_flags & allowed);
                }
            }
        }

        #[test]
        fn hostile_frames_are_refused_or_cut_without_panic(
            sample in any_sample(),
            (at, value) in any::<(proptest::sample::Index, u8)>(),
            cut_off in any::<proptest::sample::Index>(),
            kind in prop_oneof![Just(GsoKind::TcpV4), Just(GsoKind::TcpV6), Just(GsoKind::Udp)],
            segment_size in any::<u16>(),
        ) {
            let mut bytes = sample.unfinished();
            bytes[at.index(sample.payload_start())] = value;
            bytes.truncate(cut_off.index(bytes.len() * 2).max(1));
            let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 1, large: 1 });
            let mut frame = Frame::copy_from(&bytes, PortId(0), &mut pool).unwrap();
            frame.gso = plan(&bytes, kind, segment_size);
            if let Some(segments) = Segments::new(&frame) {
                let mut out = vec![0; segments.segment_len(0)];
                let written: usize = (0..segments.count()).map(|index| segments.write(index, &mut out)).sum();
                prop_assert_eq!(written as u64, frame.wire_len());
            }
        }
    }
}
