//! The Internet checksum (RFC 1071), and finishing the transport checksums that senders left undone.
//!
//! A stack behind a device with checksum offload writes only the sum of the pseudo-header into the checksum field.
//! Devices with a vnet header say so; a veth's frame that comes through XDP does not, and has to be recognised by
//! [`detect_partial`]. [`complete`] does what the network card would have done. Neither repairs anything: a checksum
//! that is finished and wrong stays wrong.

use super::headers::{self, IpVersion, Transport};
use super::offload::Checksum;

/// Where an unfinished checksum is said to be there is no packet. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsidePacket;

/// Finishes the checksum whose sum begins at `start` and whose field is `offset` bytes further on.
///
/// The sum ends where the packet ends, Ethernet padding excluded. Both numbers may come from a guest and are not
/// trusted: only bytes behind the Ethernet header and its tags are written, so no frame can change its addresses or its
/// VLAN after the switch has judged them.
pub fn complete(bytes: &mut [u8], start: u16, offset: u16) -> Result<(), OutsidePacket> {
    let packet = headers::packet_range(bytes).ok_or(OutsidePacket)?;
    // A datagram can end before its packet does.
    let end = Transport::locate(bytes)
        .filter(|transport| transport.offset == start)
        .map_or(packet.end, |transport| transport.packet_end as usize);
    let start = usize::from(start);
    let field = start + usize::from(offset);
    if start < packet.start || field + 2 > end {
        return Err(OutsidePacket);
    }
    let checksum = finish(sum(&bytes[start..end]));
    bytes[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// Whether the frame's TCP or UDP checksum is unfinished, judged by the field holding the sum of the pseudo-header.
///
/// One in 65 536 finished checksums is equal to that sum by chance. Such a frame loses nothing: with P the sum of the
/// pseudo-header and D that of the rest, the right checksum is ~(P + D), and completing computes the same ~(P + D), P
/// being what the field holds.
pub fn detect_partial(bytes: &[u8]) -> Checksum {
    let Some(transport) = Transport::locate(bytes) else { return Checksum::None };
    let length = transport.packet_end - u32::from(transport.offset);
    let field = headers::u16_at(bytes, usize::from(transport.offset + transport.checksum_offset()));
    if field == Some(fold(pseudo_header(bytes, &transport, length.into()))) {
        Checksum::Partial { start: transport.offset, offset: transport.checksum_offset() }
    } else {
        Checksum::None
    }
}

/// Sum of the big-endian 16-bit words of `bytes`, to be added to others and folded. Where sums are added, each but the
/// last must cover an even number of bytes.
pub fn sum(bytes: &[u8]) -> u64 {
    // The one's complement sum does not depend on byte order, nor on how wide the words are that it is taken of
    // (RFC 1071 clause 2): native 32-bit words into a 64-bit sum is what compilers vectorise. The sum of a frame is far
    // from wrapping.
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let whole: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    u64::from(u16::from_be(fold(whole + u64::from(u32::from_ne_bytes(last)))))
}

/// The sum in 16 bits, carries added in. Zero only if every word was zero.
#[expect(clippy::cast_possible_truncation, reason = "four rounds leave no bits above the sixteenth")]
pub fn fold(sum: u64) -> u16 {
    let mut sum = sum;
    for _ in 0..4 {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// What belongs in the checksum field of a transport header: the complement, and since UDP reads 0 as "no checksum",
/// the other representation of 0 (RFC 768), which the other protocols take as well.
pub fn finish(sum: u64) -> u16 {
    match !fold(sum) {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// Sum of the pseudo-header of a transport packet of `length` bytes (RFC 9293 clause 3.1, RFC 8200 clause 8.1).
pub(super) fn pseudo_header(bytes: &[u8], transport: &Transport, length: u64) -> u64 {
    let l3 = usize::from(transport.l3_offset);
    let destination = usize::from(transport.destination_offset);
    let addresses = match transport.version {
        IpVersion::V4 => address::<1>(bytes, l3 + 12) + address::<1>(bytes, destination),
        IpVersion::V6 => address::<4>(bytes, l3 + 8) + address::<4>(bytes, destination),
    };
    addresses + u64::from(transport.protocol.number()) + length
}

/// Sum of an address of `WORDS` 32-bit words. Every received frame of a veth costs two of these, so they are plain
/// loads.
fn address<const WORDS: usize>(bytes: &[u8], at: usize) -> u64 {
    let (words, _) = bytes[at..at + 4 * WORDS].as_chunks::<4>();
    words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum()
}

#[cfg(test)]
mod tests {
    use super::headers::Protocol;
    use super::headers::samples::{Sample, checksums_are_right, naive_sum, v4, v6};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_rfc_1071_and_of_a_published_ipv4_header() {
        assert_eq!(fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
        let header =
            [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert_eq!(finish(sum(&header)), 0xb861);
    }

    fn samples_of(payload: &[u8]) -> Vec<Sample> {
        let hop_by_hop = vec![(0, vec![0, 0, 1, 4, 0, 0, 0, 0])];
        [Protocol::Tcp, Protocol::Udp]
            .into_iter()
            .flat_map(|protocol| {
                let (v4, v6) = (v4(protocol, payload.to_vec()), v6(protocol, payload.to_vec()));
                [
                    Sample { padding: 11, ..v4.clone() },
                    Sample { tags: vec![(0x8100, 10)], ipv4_options: Some(vec![1; 8]), ..v4.clone() },
                    Sample { tags: vec![(0x88a8, 10), (0x8100, 20)], ..v4 },
                    Sample { extensions: hop_by_hop.clone(), padding: 3, ..v6.clone() },
                    v6,
                ]
            })
            .collect()
    }

    /// What a frame's receiver does to it on the way in.
    fn recognise_and_complete(bytes: &mut [u8]) -> bool {
        match detect_partial(bytes) {
            Checksum::Partial { start, offset } => complete(bytes, start, offset).is_ok(),
            _ => false,
        }
    }

    #[test]
    fn an_unfinished_frame_is_recognised_and_becomes_the_finished_one() {
        for len in [0, 1, 2, 3, 63, 64, 1459, 1460] {
            let payload: Vec<u8> = (0..=u8::MAX).cycle().take(len).collect();
            for sample in samples_of(&payload) {
                let mut bytes = sample.unfinished();
                assert!(recognise_and_complete(&mut bytes), "{sample:?}");
                assert_eq!(bytes, sample.finished(), "the padding included: {sample:?}");
                let packet = &bytes[sample.l3()..sample.packet_end()];
                assert!(checksums_are_right(packet, sample.l4() - sample.l3(), sample.protocol.number()));
            }
        }
    }

    #[test]
    fn a_finished_checksum_right_or_wrong_is_left_alone() {
        for sample in samples_of(b"some payload") {
            let mut bytes = sample.finished();
            assert_eq!(detect_partial(&bytes), Checksum::None);
            bytes[sample.l4() + usize::from(sample.protocol.checksum_offset())] ^= 0x40;
            assert_eq!(detect_partial(&bytes), Checksum::None);
        }
        let mut without = v4(Protocol::Udp, vec![1, 2, 3]).finished();
        without[40..42].fill(0);
        assert_eq!(detect_partial(&without), Checksum::None, "UDP without a checksum");
    }

    #[test]
    fn completing_a_finished_checksum_that_looks_unfinished_changes_nothing() {
        // Two bytes of payload chosen so that the final checksum happens to equal the sum of the pseudo-header.
        let coincidence = (0..=u16::MAX)
            .map(|choice| v4(Protocol::Udp, choice.to_be_bytes().to_vec()).finished())
            .find(|bytes| matches!(detect_partial(bytes), Checksum::Partial { .. }))
            .expect("one in 65 536");
        let mut bytes = coincidence.clone();
        assert!(recognise_and_complete(&mut bytes));
        assert_eq!(bytes, coincidence);
    }

    #[test]
    fn a_datagram_whose_checksum_comes_out_as_zero_says_ffff() {
        let zero = (0..=u16::MAX)
            .map(|choice| v6(Protocol::Udp, choice.to_be_bytes().to_vec()))
            .find(|sample| naive_sum(&sample.unfinished()[sample.l4()..]) == 0xffff)
            .expect("one in 65 536");
        let mut bytes = zero.unfinished();
        assert!(recognise_and_complete(&mut bytes));
        assert_eq!(bytes[zero.l4() + 6..zero.l4() + 8], [0xff, 0xff]);
    }

    #[test]
    fn a_packet_on_its_last_but_one_hop_is_checked_against_its_last() {
        let mut header = vec![0; 24];
        (header[1], header[2], header[3]) = (2, 4, 1);
        header[8..].copy_from_slice(&[0xfd; 16]);
        let routed = Sample { extensions: vec![(43, header)], ..v6(Protocol::Udp, vec![9; 5]) };
        let (mut bytes, l4) = (routed.unfinished(), routed.l4());
        assert_eq!(detect_partial(&bytes), Checksum::None);
        let pseudo = [&bytes[22..38], &[0xfd; 16], &[0, 0, 0, 13, 0, 0, 0, 17]].concat();
        bytes[l4 + 6..l4 + 8].copy_from_slice(&naive_sum(&pseudo).to_be_bytes());
        assert!(recognise_and_complete(&mut bytes));
        assert_eq!(naive_sum(&[&pseudo[..], &bytes[l4..], &[0]].concat()), 0xffff);
    }

    #[test]
    fn a_datagram_is_summed_to_its_own_end_not_to_its_packet_s() {
        let whole = v4(Protocol::Udp, vec![5; 40]);
        let shorter = v4(Protocol::Udp, vec![5; 30]);
        let mut bytes = whole.unfinished();
        bytes[whole.l4()..whole.l4() + 8].copy_from_slice(&shorter.unfinished()[whole.l4()..whole.l4() + 8]);
        assert!(recognise_and_complete(&mut bytes));
        assert_eq!(bytes[whole.l4()..][..38], shorter.finished()[whole.l4()..]);
        assert_eq!(bytes[whole.l4() + 38..], [5; 10]);
    }

    #[test]
    fn a_guest_that_names_another_header_gets_that_completed() {
        // A tunnel: the inner header's checksum is the one left to do, and only the guest knows where it is.
        let mut bytes = v4(Protocol::Udp, vec![3; 40]).finished();
        bytes[56..58].fill(0);
        complete(&mut bytes, 50, 6).unwrap();
        assert_eq!(naive_sum(&bytes[50..]), 0xffff);
    }

    #[test]
    fn neither_addresses_nor_tags_can_be_written() {
        let sample = Sample { tags: vec![(0x8100, 10)], ..v4(Protocol::Udp, vec![0; 4]) };
        let original = sample.unfinished();
        let end = u16::try_from(original.len()).unwrap();
        let nonsense =
            [(0, 6), (17, 1), (0, 60), (end, 0), (end - 2, 1), (38, 7 + end - 38), (u16::MAX, u16::MAX)];
        for (start, offset) in nonsense {
            let mut bytes = original.clone();
            assert_eq!(complete(&mut bytes, start, offset), Err(OutsidePacket), "{start} + {offset}");
            assert_eq!(bytes, original);
        }
        assert_eq!(complete(&mut [0; 13], 0, 0), Err(OutsidePacket));
    }

    proptest! {
        #[test]
        fn the_sum_is_that_of_the_naive_loop(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(fold(sum(&bytes)), naive_sum(&bytes));
        }

        #[test]
        fn folding_keeps_the_remainder_of_65535(sum in prop_oneof![any::<u64>(), u64::MAX - 0xfffff..=u64::MAX]) {
            prop_assert_eq!(u64::from(fold(sum)) % 0xffff, sum % 0xffff);
            prop_assert_eq!(fold(sum) == 0, sum == 0);
        }

        #[test]
        fn sums_of_parts_add_up(bytes in proptest::collection::vec(any::<u8>(), 0..99), half in 0_usize..49) {
            let (first, second) = bytes.split_at((half * 2).min(bytes.len() & !1));
            prop_assert_eq!(fold(sum(first) + sum(second)), naive_sum(&bytes));
        }

        #[test]
        fn only_the_field_is_ever_written(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..100),
            start in 0_u16..120,
            offset in 0_u16..120,
        ) {
            let original = bytes.clone();
            let done = complete(&mut bytes, start, offset);
            let field = usize::from(start) + usize::from(offset);
            let changed = (0..bytes.len()).filter(|&i| bytes[i] != original[i]);
            prop_assert!(changed.clone().all(|i| (i == field || i == field + 1) && i >= 14));
            prop_assert!(done.is_ok() || changed.count() == 0);
        }
    }
}
