//! The virtio-net header in front of each frame of a tap (virtio 1.2 clause 5.1.6.2, Linux `virtio_net.h`).
//!
//! The form of 10 bytes, in the byte order of the machine. The one of 12 only adds `num_buffers`, which says over how
//! many buffers of a virtqueue a frame is spread and is always zero on a tap.
//!
//! A claim that the frame does not bear out is not passed on: [`segment::plan`] reads the packet's own headers to find
//! out how it can be cut.

use crate::frame::offload::{Checksum, Gso, GsoKind};
use crate::frame::{Frame, segment};

/// Length of the header in bytes.
pub const LEN: usize = 10;

const FLAG_NEEDS_CSUM: u8 = 1;
const FLAG_DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// Set beside a TCP kind: the segment has CWR set, and only the first one may keep it (RFC 3168 section 6.1.2).
const GSO_ECN: u8 = 0x80;

/// Where a TCP header holds its flags.
const TCP_FLAGS: usize = 13;
const TCP_CWR: u8 = 0x80;

/// What `header` says about the frame of these `bytes`, as far as the bytes bear it out. `removed` bytes that were in front
/// of the packet when the header was written are there no more.
pub fn decode(header: [u8; LEN], removed: u16, bytes: &[u8]) -> (Checksum, Option<Gso>) {
    let [flags, gso_type, rest @ ..] = header;
    let [_header_len, gso_size, csum_start, csum_offset] = fields(rest);
    let checksum = if flags & FLAG_NEEDS_CSUM != 0 {
        let Some(csum_start) = csum_start.checked_sub(removed) else { return (Checksum::None, None) };
        if usize::from(csum_start) + usize::from(csum_offset) + 2 > bytes.len() {
            return (Checksum::None, None);
        }
        Checksum::Partial { start: csum_start, offset: csum_offset }
    } else if flags & FLAG_DATA_VALID != 0 {
        Checksum::Valid
    } else {
        Checksum::None
    };
    let kind = match gso_type & !GSO_ECN {
        GSO_TCPV4 => GsoKind::TcpV4,
        GSO_TCPV6 => GsoKind::TcpV6,
        GSO_UDP_L4 => GsoKind::Udp,
        _ => return (checksum, None),
    };
    (checksum, segment::plan(bytes, kind, gso_size))
}

/// The header that hands the unfinished work of `frame` to the kernel, with `added` bytes in front of its packet that are
/// not in the frame.
pub fn encode(frame: &Frame, added: u16) -> [u8; LEN] {
    let (flags, csum_start, csum_offset) = match frame.checksum {
        Checksum::None => (0, 0, 0),
        Checksum::Partial { start, offset } => (FLAG_NEEDS_CSUM, start + added, offset),
        Checksum::Valid => (FLAG_DATA_VALID, 0, 0),
    };
    let (gso_type, header_len, gso_size) = match frame.gso {
        None => (GSO_NONE, 0, 0),
        Some(Gso { kind: GsoKind::Udp, segment_size, header_len, .. }) => {
            (GSO_UDP_L4, header_len + added, segment_size)
        }
        Some(Gso { kind, segment_size, header_len, .. }) => {
            let kind = if kind == GsoKind::TcpV4 { GSO_TCPV4 } else { GSO_TCPV6 };
            (kind | ecn(frame), header_len + added, segment_size)
        }
    };
    let [a, b] = header_len.to_ne_bytes();
    let [c, d] = gso_size.to_ne_bytes();
    let [e, f] = csum_start.to_ne_bytes();
    let [g, h] = csum_offset.to_ne_bytes();
    [flags, gso_type, a, b, c, d, e, f, g, h]
}

/// The four 16-bit fields behind the two bytes of flags and kind.
fn fields([a, b, c, d, e, f, g, h]: [u8; 8]) -> [u16; 4] {
    [[a, b], [c, d], [e, f], [g, h]].map(u16::from_ne_bytes)
}

/// [`GSO_ECN`] if a TCP super-frame has CWR set. Without it the kernel may give the frame to hardware that repeats the
/// flag in every segment.
fn ecn(frame: &Frame) -> u8 {
    let Checksum::Partial { start, .. } = frame.checksum else { return 0 };
    match frame.bytes().get(usize::from(start) + TCP_FLAGS) {
        Some(flags) if flags & TCP_CWR != 0 => GSO_ECN,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{BufferPool, PoolSize};
    use crate::id::{PortId, WorkerId};

    /// Where the transport header of [`packet`] starts.
    const START: u16 = 34;

    fn header(flags: u8, gso_type: u8, gso_size: u16, csum: (u16, u16)) -> [u8; LEN] {
        let mut header = [flags, gso_type, 0xff, 0xff, 0, 0, 0, 0, 0, 0];
        header[4..6].copy_from_slice(&gso_size.to_ne_bytes());
        header[6..8].copy_from_slice(&csum.0.to_ne_bytes());
        header[8..10].copy_from_slice(&csum.1.to_ne_bytes());
        header
    }

    /// An Ethernet and an IPv4 header, then `transport`, then `payload` zeroes.
    fn packet(protocol: u8, transport: &[u8], payload: usize) -> Vec<u8> {
        let len = u16::try_from(20 + transport.len() + payload).unwrap();
        let mut bytes = vec![2; 12];
        bytes.extend([0x08, 0x00, 0x45, 0]);
        bytes.extend(len.to_be_bytes());
        bytes.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend(transport);
        bytes.resize(bytes.len() + payload, 0);
        bytes
    }

    /// A TCP segment with 12 bytes of options.
    fn tcp(payload: usize, flags: u8) -> Vec<u8> {
        let mut transport = [0; 32];
        transport[12] = 8 << 4;
        transport[TCP_FLAGS] = flags;
        packet(6, &transport, payload)
    }

    fn udp(payload: usize) -> Vec<u8> {
        let [a, b] = u16::try_from(8 + payload).unwrap().to_be_bytes();
        packet(17, &[0, 1, 0, 2, a, b, 0, 0], payload)
    }

    #[test]
    fn the_checksum_state_of_an_ordinary_frame_is_kept() {
        let bytes = [0; 60];
        assert_eq!(decode(header(0, GSO_NONE, 0, (0, 0)), 0, &bytes), (Checksum::None, None));
        assert_eq!(decode(header(FLAG_DATA_VALID, GSO_NONE, 0, (0, 0)), 0, &bytes), (Checksum::Valid, None));
        let partial = Checksum::Partial { start: START, offset: 16 };
        assert_eq!(decode(header(FLAG_NEEDS_CSUM, GSO_NONE, 0, (START, 16)), 0, &bytes), (partial, None));
    }

    #[test]
    fn the_header_length_comes_from_the_packet_and_not_from_the_claim() {
        let claim = header(FLAG_NEEDS_CSUM, GSO_TCPV4 | GSO_ECN, 1448, (START, 16));
        let gso = Gso { kind: GsoKind::TcpV4, segment_size: 1448, header_len: 66, segments: 3 };
        let checksum = Checksum::Partial { start: START, offset: 16 };
        assert_eq!(decode(claim, 0, &tcp(3 * 1448 - 1, 0)), (checksum, Some(gso)));
        let claim = header(FLAG_NEEDS_CSUM, GSO_UDP_L4, 1000, (START, 6));
        let gso = Gso { kind: GsoKind::Udp, segment_size: 1000, header_len: 42, segments: 2 };
        assert_eq!(decode(claim, 0, &udp(2000)).1, Some(gso));
    }

    #[test]
    fn a_claim_that_the_frame_does_not_bear_out_is_not_passed_on() {
        let frame = tcp(3000, 0);
        let checksum = Checksum::Partial { start: START, offset: 16 };
        let beyond_the_end = header(FLAG_NEEDS_CSUM, GSO_NONE, 0, (43, 16));
        assert_eq!(decode(beyond_the_end, 0, &[0; 60]), (Checksum::None, None));
        let no_segment_size = header(FLAG_NEEDS_CSUM, GSO_TCPV4, 0, (START, 16));
        assert_eq!(decode(no_segment_size, 0, &frame), (checksum, None));
        let never_negotiated = header(FLAG_NEEDS_CSUM, 3, 1000, (START, 16));
        assert_eq!(decode(never_negotiated, 0, &frame), (checksum, None));
        let another_protocol = header(FLAG_NEEDS_CSUM, GSO_UDP_L4, 1000, (START, 16));
        assert_eq!(decode(another_protocol, 0, &frame), (checksum, None));
    }

    #[test]
    fn what_is_written_reads_back_the_same_and_cwr_is_announced() {
        let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 1, large: 1 });
        for (flags, ecn) in [(0x10, 0), (0x10 | TCP_CWR, GSO_ECN)] {
            let mut frame = Frame::copy_from(&tcp(20_000, flags), PortId(0), &mut pool).unwrap();
            frame.checksum = Checksum::Partial { start: START, offset: 16 };
            frame.gso = segment::plan(frame.bytes(), GsoKind::TcpV4, 1448);
            let header = encode(&frame, 0);
            assert_eq!(header[1], GSO_TCPV4 | ecn);
            assert_eq!(decode(header, 0, frame.bytes()), (frame.checksum, frame.gso));
            assert!(frame.gso.is_some());
            pool.release(frame.into_buf());
        }
        let mut frame = Frame::copy_from(&[0; 60], PortId(0), &mut pool).unwrap();
        frame.checksum = Checksum::Valid;
        assert_eq!(encode(&frame, 0), [FLAG_DATA_VALID, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
