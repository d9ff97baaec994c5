//! Any bytes as a frame: headers, tags, checksums and segments.

use lockgate_dataplane::buffer::{BufferPool, HEADROOM, LARGE, PoolSize};
use lockgate_dataplane::frame::headers::Headers;
use lockgate_dataplane::frame::offload::{Checksum, GsoKind};
use lockgate_dataplane::frame::segment::{self, Segments};
use lockgate_dataplane::frame::vlan::TagControl;
use lockgate_dataplane::frame::{ETHERNET_HEADER, Frame, checksum};
use lockgate_dataplane::id::{PortId, WorkerId};

use crate::internet_checksum;

use super::input::Input;

/// The first seven bytes are claims about the frame, the rest is the frame.
pub fn check(data: &[u8]) {
    let mut input = Input(data);
    let (segment_size, start, offset, tag) = (input.u16(), input.u16(), u16::from(input.u8()), input.u16());
    let bytes = input.take(LARGE - HEADROOM - 4);
    let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 1, large: 1 });
    let Some(mut frame) = Frame::copy_from(bytes, PortId(0), &mut pool) else { return };
    if let Ok(headers) = Headers::parse(bytes) {
        check_tags(&mut frame, &headers, TagControl(tag));
    }
    check_checksums(bytes, start, offset);
    for kind in [GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::Udp] {
        frame.gso = segment::plan(bytes, kind, segment_size);
        check_segments(&frame);
    }
    pool.release(frame.into_buf());
    assert_eq!(pool.outstanding(), 0);
}

/// What is taken out and put back, or the other way round, leaves the frame as it was.
fn check_tags(frame: &mut Frame, headers: &Headers, tag: TagControl) {
    let before = frame.bytes().to_vec();
    if let Some(present) = headers.tag {
        assert_eq!(frame.pop_tag(), present, "the parser's tag and the one in the bytes");
        frame.push_tag(present);
        assert_eq!(frame.bytes(), before, "push after pop");
    }
    frame.push_tag(tag);
    assert_eq!(Headers::parse(frame.bytes()).ok().and_then(|headers| headers.tag), Some(tag));
    assert_eq!(frame.pop_tag(), tag);
    assert_eq!(frame.bytes(), before, "pop after push");
}

/// What is recognised can be completed; what a guest claims at worst changes two bytes behind the addresses.
fn check_checksums(bytes: &[u8], start: u16, offset: u16) {
    if let Checksum::Partial { start, offset } = checksum::detect_partial(bytes) {
        let mut finished = bytes.to_vec();
        assert_eq!(checksum::complete(&mut finished, start, offset), Ok(()), "what was recognised is there");
        changes_only_a_field(bytes, &finished);
    }
    let mut claimed = bytes.to_vec();
    match checksum::complete(&mut claimed, start, offset) {
        Ok(()) => changes_only_a_field(bytes, &claimed),
        Err(_) => assert_eq!(claimed, bytes, "a refused claim writes nothing"),
    }
}

fn changes_only_a_field(before: &[u8], after: &[u8]) {
    assert_eq!(before.len(), after.len());
    let mut changed = (0..before.len()).filter(|at| before[*at] != after[*at]);
    if let Some(first) = changed.next() {
        let last = changed.next_back().unwrap_or(first);
        assert!(first >= ETHERNET_HEADER && last <= first + 1, "bytes {first} to {last} changed");
    }
}

/// The segments are as many and as long as was planned, none is lost, and a receiver finds their checksums right.
pub(super) fn check_segments(frame: &Frame) {
    let Some(gso) = frame.gso else { return };
    let segments = Segments::new(frame).expect("what was planned can be cut");
    let header_len = usize::from(gso.header_len);
    assert_eq!(segments.count(), gso.segments);
    let (mut out, mut payload) = (vec![0xa5_u8; LARGE], Vec::<u8>::new());
    for index in 0..segments.count() {
        let len = segments.segment_len(index);
        assert!(
            len > header_len
                && len <= segments.segment_len(0)
                && len <= header_len + usize::from(gso.segment_size)
        );
        assert_eq!(segments.write(index, &mut out), len);
        assert!(out[len..].iter().all(|byte| *byte == 0xa5), "written past the segment");
        payload.extend(&out[header_len..len]);
        let verified = internet_checksum::verify(&out[..len]);
        assert_ne!(verified, Some(false), "segment {index} of {gso:?} has a wrong checksum");
        out[..len].fill(0xa5);
    }
    assert!(payload == frame.bytes()[header_len..], "the payload is not what it was");
}
