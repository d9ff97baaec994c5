//! Frames for tests, built byte by byte, and a checksum verifier as naive as RFC 1071 allows: neither uses the code
//! they test.
#![expect(clippy::cast_possible_truncation, reason = "samples are short, and sums are folded")]

use super::Protocol;

/// A TCP or UDP packet in an Ethernet frame.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) tags: Vec<(u16, u16)>,
    /// IPv4 options, a multiple of four bytes; `None` makes it an IPv6 packet.
    pub(crate) ipv4_options: Option<Vec<u8>>,
    /// IPv6 extension headers: number of each and its bytes, of which the first is filled in.
    pub(crate) extensions: Vec<(u8, Vec<u8>)>,
    pub(crate) protocol: Protocol,
    /// A multiple of four bytes.
    pub(crate) tcp_options: Vec<u8>,
    pub(crate) tcp_flags: u8,
    pub(crate) sequence: u32,
    pub(crate) identification: u16,
    pub(crate) dscp: u8,
    pub(crate) payload: Vec<u8>,
    /// Ethernet padding behind the packet.
    pub(crate) padding: usize,
}

pub(crate) fn v4(protocol: Protocol, payload: Vec<u8>) -> Sample {
    Sample {
        tags: Vec::new(),
        ipv4_options: Some(Vec::new()),
        extensions: Vec::new(),
        protocol,
        tcp_options: Vec::new(),
        tcp_flags: 0x10,
        sequence: 0x1000_0000,
        identification: 0x1234,
        dscp: 46,
        payload,
        padding: 0,
    }
}

pub(crate) fn v6(protocol: Protocol, payload: Vec<u8>) -> Sample {
    Sample { ipv4_options: None, ..v4(protocol, payload) }
}

impl Sample {
    pub(crate) fn l3(&self) -> usize {
        14 + 4 * self.tags.len()
    }

    pub(crate) fn l4(&self) -> usize {
        let ip = self.ipv4_options.as_ref().map_or(40, |options| 20 + options.len());
        self.l3() + ip + self.extensions.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
    }

    pub(crate) fn packet_end(&self) -> usize {
        self.payload_start() + self.payload.len()
    }

    pub(crate) fn payload_start(&self) -> usize {
        self.l4() + if self.protocol == Protocol::Tcp { 20 + self.tcp_options.len() } else { 8 }
    }

    /// The frame with its transport checksum finished.
    pub(crate) fn finished(&self) -> Vec<u8> {
        let mut bytes = self.unfinished();
        let (l4, end) = (self.l4(), self.packet_end());
        let sum = !naive_sum(&bytes[l4..end]);
        let sum = if sum == 0 { 0xffff } else { sum };
        let field = l4 + usize::from(self.protocol.checksum_offset());
        bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// The frame as a stack leaves it to the network card: with the sum of the pseudo-header in the checksum field.
    pub(crate) fn unfinished(&self) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for (tpid, control) in &self.tags {
            bytes.extend(tpid.to_be_bytes());
            bytes.extend(control.to_be_bytes());
        }
        let transport_len = self.packet_end() - self.l4();
        let next = self.protocol.number();
        match &self.ipv4_options {
            Some(options) => {
                let len = 20 + options.len() + transport_len;
                bytes.extend([0x08, 0x00, 0x45 + (options.len() / 4) as u8, self.dscp << 2]);
                bytes.extend((len as u16).to_be_bytes());
                bytes.extend(self.identification.to_be_bytes());
                bytes.extend([0x40, 0, 64, next, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2]);
                bytes.extend(options);
                let header = self.l3()..self.l4();
                let sum = !naive_sum(&bytes[header]);
                let field = self.l3() + 10;
                bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
            }
            None => {
                let mut numbers: Vec<u8> = self.extensions.iter().map(|(number, _)| *number).collect();
                numbers.push(next);
                let len = self.l4() - self.l3() - 40 + transport_len;
                bytes.extend([0x86, 0xdd, 0x60 | self.dscp >> 2, (self.dscp & 3) << 6, 0, 0]);
                bytes.extend((len as u16).to_be_bytes());
                bytes.extend([numbers[0], 64]);
                bytes.extend([0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
                bytes.extend([0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
                for ((_, extension), next) in self.extensions.iter().zip(&numbers[1..]) {
                    bytes.push(*next);
                    bytes.extend(&extension[1..]);
                }
            }
        }
        match self.protocol {
            Protocol::Tcp => {
                bytes.extend([0x13, 0x88, 0xc0, 0x00]);
                bytes.extend(self.sequence.to_be_bytes());
                bytes.extend([0, 0, 0, 1, 0x50 + ((self.tcp_options.len() / 4) << 4) as u8, self.tcp_flags]);
                bytes.extend([0x01, 0xf5, 0, 0, 0, 0]);
                bytes.extend(&self.tcp_options);
            }
            Protocol::Udp => {
                bytes.extend([0x13, 0x88, 0xc0, 0x00]);
                bytes.extend((transport_len as u16).to_be_bytes());
                bytes.extend([0, 0]);
            }
        }
        bytes.extend(&self.payload);
        let sum = pseudo_header_sum(&bytes, self.l3(), next, transport_len);
        let field = self.l4() + usize::from(self.protocol.checksum_offset());
        bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        bytes.resize(bytes.len() + self.padding, 0xee);
        bytes
    }
}

/// Whether the transport checksum of a packet without routing header is right, and that of its IPv4 header.
pub(crate) fn checksums_are_right(packet: &[u8], l4: usize, number: u8) -> bool {
    let pseudo = pseudo_header_sum(packet, 0, number, packet.len() - l4).to_be_bytes();
    let transport = naive_sum(&[&pseudo, &packet[l4..]].concat());
    let header = if packet[0] >> 4 == 4 { naive_sum(&packet[..l4]) } else { 0xffff };
    (transport, header) == (0xffff, 0xffff)
}

fn pseudo_header_sum(bytes: &[u8], l3: usize, number: u8, length: usize) -> u16 {
    let addresses = if bytes[l3] >> 4 == 4 { l3 + 12..l3 + 20 } else { l3 + 8..l3 + 40 };
    let length = (length as u32).to_be_bytes();
    naive_sum(&[&bytes[addresses], &length, &[0, 0, 0, number]].concat())
}

pub(crate) fn naive_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
