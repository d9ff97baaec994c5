//! Frames, as bytes.

use lockgate_dataplane::frame::checksum;
use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::frame::offload::{Checksum, GsoKind};
use lockgate_dataplane::frame::segment;

use crate::replay::Template;

const ETHERNET_HEADER: usize = 14;
const IPV4_HEADER: usize = 20;
const TCP_HEADER: usize = 20;

/// A UDP frame of `length` bytes without FCS (at least 42), IPv4, of the flow numbered `flow`.
pub fn udp(destination: MacAddr, source: MacAddr, flow: u16, length: usize) -> Vec<u8> {
    let length = length.max(42);
    let mut frame = ipv4(destination, source, 17, length);
    let udp_length = u16::try_from(length - ETHERNET_HEADER - IPV4_HEADER).unwrap_or(u16::MAX);
    frame.extend((1024 + flow).to_be_bytes());
    frame.extend(9_u16.to_be_bytes());
    frame.extend(udp_length.to_be_bytes());
    frame.extend([0, 0]);
    frame.resize(length, 0);
    frame
}

/// The same with a tag of `vlan` in front of its ethertype.
pub fn tagged(mut frame: Vec<u8>, vlan: u16) -> Vec<u8> {
    let [high, low] = vlan.to_be_bytes();
    frame.splice(12..12, [0x81, 0x00, high, low]);
    frame
}

/// A TCP super-frame with `payload` bytes in segments of `segment_size`, IPv4, its checksum left undone as a stack behind a
/// tap does.
///
/// # Panics
/// If there is no such super-frame.
pub fn tcp_super_frame(destination: MacAddr, source: MacAddr, payload: usize, segment_size: u16) -> Template {
    let headers = ETHERNET_HEADER + IPV4_HEADER + TCP_HEADER;
    let mut bytes = ipv4(destination, source, 6, headers + payload);
    bytes.extend([4, 0, 0x13, 0x89, 0, 0, 0, 1, 0, 0, 0, 1, 5 << 4, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.resize(headers + payload, 0x5a);
    let gso = segment::plan(&bytes, GsoKind::TcpV4, segment_size);
    assert!(gso.is_some(), "{payload} bytes in segments of {segment_size}");
    Template { bytes, checksum: Checksum::Partial { start: 34, offset: 16 }, gso }
}

/// Ethernet and IPv4 header of a frame that will be `length` bytes long.
fn ipv4(destination: MacAddr, source: MacAddr, protocol: u8, length: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(length);
    frame.extend(destination.0);
    frame.extend(source.0);
    frame.extend([0x08, 0x00]);
    let total = u16::try_from(length - ETHERNET_HEADER).unwrap_or(u16::MAX);
    let mut header = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 200, 0, 1, 10, 200, 0, 2];
    header[2..4].copy_from_slice(&total.to_be_bytes());
    let finished = checksum::finish(checksum::sum(&header));
    header[10..12].copy_from_slice(&finished.to_be_bytes());
    frame.extend(header);
    frame
}
