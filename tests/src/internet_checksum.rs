//! A receiver's look at checksums, written from RFC 1071 and without the code under test.

/// Whether the IPv4 header and the TCP or UDP checksum of an untagged frame are right; `None` if it has neither.
pub fn verify(frame: &[u8]) -> Option<bool> {
    match frame.get(12..14)? {
        [0x08, 0x00] => {
            let header_len = usize::from(frame[14] & 15) * 4;
            let total_len = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            let (header, payload) = frame.get(14..14 + total_len)?.split_at(header_len);
            let transport = verify_transport(header[9], &header[12..20], payload)?;
            Some(transport && sum(header) == 0xffff)
        }
        [0x86, 0xdd] => {
            let payload_len = usize::from(u16::from_be_bytes([frame[18], frame[19]]));
            verify_transport(frame[20], &frame[22..54], frame.get(54..54 + payload_len)?)
        }
        _ => None,
    }
}

fn verify_transport(protocol: u8, addresses: &[u8], payload: &[u8]) -> Option<bool> {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    if protocol != TCP && protocol != UDP {
        return None;
    }
    let length = u32::try_from(payload.len()).ok()?.to_be_bytes();
    Some(sum(&[addresses, &length, &[0, protocol], payload].concat()) == 0xffff)
}

/// The ones' complement sum of 16-bit words.
fn sum(bytes: &[u8]) -> u32 {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}
