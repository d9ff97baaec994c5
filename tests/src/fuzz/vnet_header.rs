//! Any vnet header in front of any bytes, as a hostile guest writes them into a tap: decoded, switched to a port that takes
//! everything and to a slow one, where super-frames are cut up, and finished in software as a port without offloads does.

use lockgate_dataplane::buffer::{BufferPool, HEADROOM, LARGE, PoolSize};
use lockgate_dataplane::frame::offload::Checksum;
use lockgate_dataplane::frame::{Frame, checksum};
use lockgate_dataplane::id::{PortId, WorkerId};
use lockgate_dataplane::port::memory::Packet;
use lockgate_dataplane::port::tap::vnet;
use lockgate_dataplane::state::{ClassTable, FdbSettings, ForwardingState, PortState, Shaping};
use lockgate_dataplane::time::{Instant, Nanos};
use lockgate_dataplane::units::{BitsPerSecond, Bytes};

use crate::rig::{Rig, open_port};

use super::frame_parser::check_segments;

const MTU: u32 = 65_535;

/// The first ten bytes are the header, the rest is the frame.
pub fn check(data: &[u8]) {
    let Some((header, bytes)) = data.split_first_chunk::<{ vnet::LEN }>() else { return };
    let bytes = &bytes[..bytes.len().min(LARGE - HEADROOM - 4)];
    let (checksum, gso) = vnet::decode(*header, 0, bytes);
    let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 1, large: 1 });
    let Some(mut frame) = Frame::copy_from(bytes, PortId(0), &mut pool) else { return };
    (frame.checksum, frame.gso) = (checksum, gso);
    check_segments(&frame);
    if gso.is_none() || matches!(checksum, Checksum::Partial { .. }) {
        assert_eq!(
            vnet::decode(vnet::encode(&frame, 0), 0, bytes),
            (checksum, gso),
            "what is written reads back"
        );
    }
    pool.release(frame.into_buf());
    switched(&Packet { bytes: bytes.to_vec(), checksum, gso });
}

/// Through a switch, to a fast and a slow port.
fn switched(packet: &Packet) {
    let slow = Shaping {
        average: BitsPerSecond::new(10_000_000).expect("a rate"),
        peak: None,
        burst: Bytes::new(200_000),
        max_delay: Nanos::from_secs(1),
        overhead: Bytes::new(0),
    };
    let ports = vec![open_port(), open_port(), PortState { egress: Some(slow), ..open_port() }];
    let fdb = FdbSettings { capacity: 16, age: Nanos::from_secs(300) };
    let state = ForwardingState::new(ports, ClassTable::default(), fdb);
    let mut rig = Rig::new(state, PoolSize { small: 4200, large: 8 }, MTU);
    rig.peer(PortId(0)).send(packet.clone());
    let mut now = Instant::ZERO;
    for _ in 0..20 {
        rig.settle(now);
        now += Nanos::from_millis(50);
    }
    let (fast, slow) = (rig.take_all(PortId(1)), rig.take_all(PortId(2)));
    for sent in fast.iter().chain(&slow) {
        finished(sent);
    }
    if let ([whole], false) = (&fast[..], slow.is_empty()) {
        // As it left: a priority tag that was taken out is in no segment.
        let headers = whole.gso.map_or(0, |gso| usize::from(gso.header_len));
        let pieces: usize = slow.iter().map(|piece| piece.bytes.len() - headers).sum();
        assert_eq!(pieces, whole.bytes.len() - headers, "payload is lost or invented");
    }
    assert_eq!(rig.drain(now), 0, "buffers that did not come home");
}

/// What a port without offloads does before it sends.
fn finished(sent: &Packet) {
    let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 1, large: 1 });
    let mut frame =
        Frame::copy_from(&sent.bytes, PortId(1), &mut pool).expect("what fitted before fits again");
    (frame.checksum, frame.gso) = (sent.checksum, sent.gso);
    if frame.gso.is_some() {
        check_segments(&frame);
    } else if let Checksum::Partial { start, offset } = frame.checksum {
        let refused = checksum::complete(frame.bytes_mut(), start, offset).is_err();
        assert!(!refused || frame.bytes() == sent.bytes, "a refused claim writes nothing");
    }
    pool.release(frame.into_buf());
}
