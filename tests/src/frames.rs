//! Named frames, built byte by byte and without the code they test. Lengths count from the destination address to the
//! end of the payload, without FCS.

use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::frame::offload::{Checksum, Gso, GsoKind};
use lockgate_dataplane::port::memory::Packet;

/// Shortest Ethernet frame.
pub const SHORTEST: usize = 60;
/// Untagged frame of a full packet at an MTU of 1500.
pub const FULL: usize = 1514;
/// Untagged frame of a full packet at an MTU of 9000.
pub const JUMBO: usize = 9014;
/// Expedited forwarding, the DSCP of voice (RFC 3246).
pub const EF: u8 = 46;

/// Where the UDP payload of [`ipv4_udp`] starts.
pub const UDP_PAYLOAD: usize = 42;
/// Where the TCP payload of [`tcp`] starts.
pub const TCP_PAYLOAD: usize = 54;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const TPID: u16 = 0x8100;
const SERVICE_TPID: u16 = 0x88a8;
const UDP: u8 = 17;
const TCP: u8 = 6;

/// The address of station `number`: `02:00:00:00:00:07` is that of 7.
pub const fn station(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, number])
}

/// Any Ethernet frame, unpadded.
pub fn ethernet(to: MacAddr, from: MacAddr, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&to.0, &from.0, &ethertype.to_be_bytes()[..], payload].concat()
}

/// Who has 10.0.0.2?
pub fn arp_request(from: MacAddr) -> Vec<u8> {
    padded(arp(from, MacAddr::default(), [10, 0, 0, 2]))
}

/// "10.0.0.1 is here": what a host sends when it starts or has moved.
pub fn gratuitous_arp(from: MacAddr) -> Vec<u8> {
    padded(arp(from, MacAddr::default(), [10, 0, 0, 1]))
}

/// A datagram in a frame of `length` bytes, at least [`UDP_PAYLOAD`].
pub fn ipv4_udp(to: MacAddr, from: MacAddr, dscp: u8, length: usize) -> Vec<u8> {
    let mut packet = ipv4(dscp, UDP, length);
    let length = u16::try_from(length - 34).expect("a datagram fits its length field");
    packet.extend([0x30, 0x39, 0x30, 0x3a]);
    packet.extend(length.to_be_bytes());
    packet.extend([0; 2]);
    packet.resize(usize::from(length) + 20, 0);
    ethernet(to, from, IPV4, &packet)
}

/// A TCP segment in a frame of `length` bytes, at least [`TCP_PAYLOAD`].
pub fn tcp(to: MacAddr, from: MacAddr, dscp: u8, length: usize) -> Vec<u8> {
    let mut packet = ipv4(dscp, TCP, length);
    packet.extend([0x30, 0x39, 0x30, 0x3a, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    packet.resize(length - 14, 0);
    ethernet(to, from, IPV4, &packet)
}

/// `segments` TCP segments, each in a frame of `length` bytes, as one super-frame with an unfinished checksum.
pub fn super_frame(to: MacAddr, from: MacAddr, dscp: u8, length: usize, segments: usize) -> Packet {
    let payload = length - TCP_PAYLOAD;
    let bytes = tcp(to, from, dscp, TCP_PAYLOAD + segments * payload);
    let segment_size = u16::try_from(payload).expect("a segment fits a frame");
    let gso = Gso::new(GsoKind::TcpV4, segment_size, 54, bytes.len()).expect("at least one segment");
    Packet { bytes, checksum: Checksum::Partial { start: 34, offset: 16 }, gso: Some(gso) }
}

/// `frame` with an 802.1Q tag.
pub fn tagged(pcp: u8, vlan: u16, frame: &[u8]) -> Vec<u8> {
    with_tag(TPID, u16::from(pcp) << 13 | vlan, frame)
}

/// `frame` with a tag that carries a priority and no VLAN.
pub fn priority_tagged(pcp: u8, frame: &[u8]) -> Vec<u8> {
    tagged(pcp, 0, frame)
}

/// `frame` with a service tag in front of a customer tag (IEEE 802.1ad).
pub fn qinq(service: u16, customer: u16, frame: &[u8]) -> Vec<u8> {
    with_tag(SERVICE_TPID, service, &tagged(0, customer, frame))
}

/// A spanning tree configuration message, which a bridge keeps to itself.
pub fn spanning_tree(from: MacAddr) -> Vec<u8> {
    padded(ethernet(MacAddr([0x01, 0x80, 0xc2, 0, 0, 0]), from, 38, &[0x42, 0x42, 0x03]))
}

/// One byte short of an Ethernet header.
pub fn runt() -> Vec<u8> {
    vec![0xff; 13]
}

/// Announces a tag and ends before it.
pub fn truncated_tag(from: MacAddr) -> Vec<u8> {
    ethernet(MacAddr::BROADCAST, from, TPID, &[0; 2])
}

fn arp(from: MacAddr, target: MacAddr, target_address: [u8; 4]) -> Vec<u8> {
    let header = [0, 1, 0x08, 0, 6, 4, 0, 1];
    let body = [&header, &from.0[..], &[10, 0, 0, 1], &target.0, &target_address].concat();
    ethernet(MacAddr::BROADCAST, from, ARP, &body)
}

/// The header of the packet in a frame of `length` bytes. A length beyond what the field holds, as in a super-frame of
/// 64 KiB and more, is written as zero, as Linux does.
fn ipv4(dscp: u8, protocol: u8, length: usize) -> Vec<u8> {
    let length = u16::try_from(length - 14).unwrap_or(0).to_be_bytes();
    let mut header = [&[0x45, dscp << 2], &length[..], &[0, 0, 0x40, 0, 64, protocol, 0, 0]].concat();
    header.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let checksum = !(sum + (sum >> 16)) & 0xffff;
    header[10..12].copy_from_slice(&checksum.to_be_bytes()[2..]);
    header
}

fn with_tag(tpid: u16, control: u16, frame: &[u8]) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(12);
    [addresses, &tpid.to_be_bytes(), &control.to_be_bytes(), rest].concat()
}

fn padded(mut frame: Vec<u8>) -> Vec<u8> {
    frame.resize(frame.len().max(SHORTEST), 0);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_dataplane::frame::headers::{Headers, Protocol, Transport};

    #[test]
    fn frames_are_what_their_names_say() {
        let (to, from) = (station(2), station(1));
        for length in [SHORTEST, 64, FULL, JUMBO] {
            for (frame, protocol) in
                [(ipv4_udp(to, from, EF, length), Protocol::Udp), (tcp(to, from, EF, length), Protocol::Tcp)]
            {
                assert_eq!(frame.len(), length);
                assert_eq!(Headers::parse(&frame).unwrap().dscp, Some(EF));
                let transport = Transport::locate(&frame).unwrap();
                assert_eq!((transport.protocol, transport.packet_end as usize), (protocol, length));
            }
        }
        let super_frame = super_frame(to, from, 0, FULL, 44);
        assert_eq!(super_frame.bytes.len(), TCP_PAYLOAD + 44 * (FULL - TCP_PAYLOAD));
        assert_eq!(super_frame.gso.unwrap().segments, 44);
        assert_eq!((arp_request(from).len(), gratuitous_arp(from).len()), (SHORTEST, SHORTEST));
        let tags = tagged(5, 7, &arp_request(from));
        assert_eq!(Headers::parse(&tags).unwrap().tag.map(|tag| (tag.pcp(), tag.vid())), Some((5, 7)));
        assert!(Headers::parse(&runt()).is_err() && Headers::parse(&truncated_tag(from)).is_err());
    }
}
