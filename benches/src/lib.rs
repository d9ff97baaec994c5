//! What the benches share: frames, and how they are made.

use lockgate_dataplane::frame::mac::MacAddr;

/// A UDP frame of `length` bytes without FCS (at least 42), IPv4, of the flow numbered `flow`.
pub fn udp_frame(destination: MacAddr, source: MacAddr, flow: u16, length: usize) -> Vec<u8> {
    let length = length.max(42);
    let mut frame = Vec::with_capacity(length);
    frame.extend(destination.0);
    frame.extend(source.0);
    frame.extend([0x08, 0x00]);
    let total = u16::try_from(length - 14).unwrap_or(u16::MAX);
    let mut header = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 200, 0, 1, 10, 200, 0, 2];
    header[2..4].copy_from_slice(&total.to_be_bytes());
    let sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap_or(u16::MAX);
    header[10..12].copy_from_slice(&(!folded).to_be_bytes());
    frame.extend(header);
    frame.extend((1024 + flow).to_be_bytes());
    frame.extend(9_u16.to_be_bytes());
    frame.extend((total - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.resize(length, 0);
    frame
}
