//! What every simulated frame carries, a super-frame in each of its segments: its flow, its number, when it was sent.

use lockgate_dataplane::time::Instant;

use super::FlowId;
use crate::frames::{TCP_PAYLOAD, UDP_PAYLOAD};

/// At the start of the payload.
pub(super) struct Stamp {
    pub(super) flow: FlowId,
    pub(super) is_ack: bool,
    pub(super) sequence: u64,
    pub(super) sent: Instant,
}

impl Stamp {
    /// Bytes of a stamp.
    pub(super) const LEN: usize = 18;

    /// Writes the stamp into a frame whose segments carry `segment_size` bytes of payload each.
    pub(super) fn write(&self, bytes: &mut [u8], segment_size: usize) {
        for at in (Self::offset(bytes)..bytes.len()).step_by(segment_size) {
            self.write_at(at, bytes);
        }
    }

    fn write_at(&self, at: usize, bytes: &mut [u8]) {
        let flow = u16::try_from(self.flow.0).expect("few flows") | u16::from(self.is_ack) << 15;
        bytes[at..at + 2].copy_from_slice(&flow.to_be_bytes());
        bytes[at + 2..at + 10].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[at + 10..at + 18].copy_from_slice(&self.sent.as_nanos().to_be_bytes());
    }

    /// `None` for frames that carry none, as ARP.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        if bytes[12..14] != [0x08, 0x00] {
            return None;
        }
        let at = Self::offset(bytes);
        let flow = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let number = |at: usize| Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Self {
            flow: FlowId(usize::from(flow & 0x7fff)),
            is_ack: flow >> 15 == 1,
            sequence: number(at + 2)?,
            sent: Instant::from_nanos(number(at + 10)?),
        })
    }

    fn offset(bytes: &[u8]) -> usize {
        if bytes[23] == 6 { TCP_PAYLOAD } else { UDP_PAYLOAD }
    }
}
