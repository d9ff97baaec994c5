//! The stages one by one, over frames of 64 bytes with FCS unless said otherwise, and the MAC table by its size.

use std::collections::VecDeque;
use std::hint::black_box;

use lockgate_benches::frames::{tagged, tcp_super_frame, udp};
use lockgate_benches::harness::Case;
use lockgate_benches::rig::{shaping, station, workload_port};
use lockgate_dataplane::buffer::{BufferPool, PoolSize};
use lockgate_dataplane::frame::headers::Headers;
use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::frame::segment::Segments;
use lockgate_dataplane::frame::vlan::VlanId;
use lockgate_dataplane::frame::{Frame, checksum};
use lockgate_dataplane::id::{PortId, WorkerId};
use lockgate_dataplane::pipeline::ingress_policy::OwnAddress;
use lockgate_dataplane::pipeline::tx_shaper::{Dequeue, ShapedQueue};
use lockgate_dataplane::pipeline::{classify, ingress_policy, lookup};
use lockgate_dataplane::state::{
    BeyondLimit, ClassTable, FdbSettings, ForwardingState, PortState, SourcePolicy, VlanMode,
};
use lockgate_dataplane::table::fdb::Fdb;
use lockgate_dataplane::table::frame_list::FrameSlab;
use lockgate_dataplane::table::shaper::Shaper;
use lockgate_dataplane::time::{Instant, Nanos};
use lockgate_dataplane::units::Bytes;

const BATCHES: [usize; 3] = [1, 32, 64];
/// 64 on the wire, FCS included.
const SHORTEST: usize = 60;
const FULL: usize = 1514;
const VLAN: u16 = 10;
const FDB: FdbSettings = FdbSettings { capacity: 8192, age: Nanos::from_secs(300) };

fn vlan() -> VlanId {
    VlanId::try_from(VLAN).expect("a VLAN")
}

/// A pool and `count` frames from port 0 to port 1, of as many flows.
fn frames(count: usize, bytes: impl Fn(u16) -> Vec<u8>) -> (BufferPool, Vec<Frame>) {
    let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: count, large: 0 });
    let flows = (0..).take(count).map(|flow| {
        let mut frame = Frame::copy_from(&bytes(flow), PortId(0), &mut pool).expect("a buffer for each");
        frame.vlan = vlan();
        frame
    });
    let frames = flows.collect();
    (pool, frames)
}

fn untagged(flow: u16) -> Vec<u8> {
    udp(station(1), station(0), flow, SHORTEST)
}

/// A case for each size of batch; `call` handles all frames of one.
fn by_batch<C: FnMut() + 'static>(row: &str, make: fn(usize) -> C) -> Vec<Case> {
    let case = |batch: usize| Case::new(row, format!("batch of {batch}"), batch, move || make(batch));
    BATCHES.into_iter().map(case).collect()
}

pub fn stages() -> Vec<Case> {
    [
        by_batch("parse", |batch| {
            let (_, frames) = frames(batch, untagged);
            move || frames.iter().for_each(|frame| _ = black_box(Headers::parse(frame.bytes())))
        }),
        by_batch("classify, tag out and back in", |batch| {
            let (_, mut frames) = frames(batch, |flow| tagged(untagged(flow), VLAN));
            let mode = VlanMode::Trunk { allowed: [vlan()].into_iter().collect(), native: None };
            let classes = ClassTable::default();
            let headers = Headers::parse(frames[0].bytes()).expect("a good frame");
            move || {
                for frame in &mut frames {
                    _ = black_box(classify::classify(frame, &headers, &mode, &classes));
                    _ = black_box(classify::put_tag_back(frame, &mode));
                }
            }
        }),
        by_batch("ingress policy", |batch| {
            let (_, frames) = frames(batch, untagged);
            let (port, own) = (workload_port(0), OwnAddress::default());
            move || {
                for frame in &frames {
                    _ = black_box(ingress_policy::admit(Instant::ZERO, frame, &port, own));
                }
            }
        }),
        by_batch("learn and lookup", |batch| {
            let (_, frames) = frames(batch, untagged);
            let state =
                ForwardingState::new(vec![workload_port(0), workload_port(1)], ClassTable::default(), FDB);
            let mut fdb = Fdb::new(FDB, 2);
            fdb.insert_static(vlan(), station(1), PortId(1));
            let sources = SourcePolicy::Learn { limit: 100, beyond: BeyondLimit::Drop };
            let policy = PortState { sources, ..workload_port(0) };
            let mut own = OwnAddress::default();
            move || {
                for frame in &frames {
                    let learned = lookup::learn(Instant::ZERO, frame, &policy, &mut own, &mut fdb);
                    _ = black_box(learned);
                    _ = black_box(lookup::lookup(frame, &state, &fdb));
                }
            }
        }),
        by_batch("queue and scheduler", |batch| {
            let (_, frames) = frames(batch, untagged);
            let (mut queue, mut slab) = (ShapedQueue::new(None, Instant::ZERO), FrameSlab::new(batch));
            let (classes, mut frames) = (ClassTable::default(), VecDeque::from(frames));
            move || through(&mut queue, &mut slab, &classes, &mut frames, Instant::ZERO)
        }),
        by_batch("queue, scheduler and tx shaper", |batch| {
            let (_, frames) = frames(batch, untagged);
            let rate = shaping(1_000_000_000);
            let (mut queue, mut slab) = (ShapedQueue::new(Some(&rate), Instant::ZERO), FrameSlab::new(batch));
            let (classes, mut frames) = (ClassTable::default(), VecDeque::from(frames));
            let mut now = Instant::ZERO;
            move || {
                now += Nanos::from_millis(1);
                through(&mut queue, &mut slab, &classes, &mut frames, now);
            }
        }),
        by_batch("tx shaper", |batch| {
            let mut shaper = Shaper::new(&shaping(1_000_000_000), Bytes::new(1518), Instant::ZERO);
            let mut now = Instant::ZERO;
            move || {
                for _ in 0..batch {
                    now += Nanos::from_micros(1);
                    let charged = shaper.charged(SHORTEST as u64, 1);
                    black_box(shaper.try_take(now, charged));
                }
            }
        }),
        by_batch("checksum of 1514 bytes", |batch| {
            let (_, mut frames) = frames(batch, |flow| udp(station(1), station(0), flow, FULL));
            move || {
                frames
                    .iter_mut()
                    .for_each(|frame| _ = black_box(checksum::complete(frame.bytes_mut(), 34, 6)));
            }
        }),
        by_batch("unfinished checksum recognised", |batch| {
            let (_, frames) = frames(batch, untagged);
            move || frames.iter().for_each(|frame| _ = black_box(checksum::detect_partial(frame.bytes())))
        }),
        by_batch("segment, a frame of 1514 bytes", |batch| {
            let template = tcp_super_frame(station(1), station(0), 1460 * batch.min(44), 1460);
            let mut pool = BufferPool::new(WorkerId(0), PoolSize { small: 1, large: 1 });
            let mut frame = Frame::copy_from(&template.bytes, PortId(0), &mut pool).expect("a buffer");
            // A single segment is planned as a super-frame of one.
            (frame.checksum, frame.gso) = (template.checksum, template.gso);
            let mut out = vec![0; 2048];
            move || {
                // 64 KiB hold 44 segments: a batch of 64 begins anew for the rest.
                let segments = Segments::new(&frame).expect("a super-frame");
                for index in 0..batch {
                    let index = u16::try_from(index).unwrap_or_default() % segments.count();
                    black_box(segments.write(index, &mut out));
                }
            }
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Every frame into the queue and out again.
fn through(
    queue: &mut ShapedQueue,
    slab: &mut FrameSlab,
    classes: &ClassTable,
    frames: &mut VecDeque<Frame>,
    now: Instant,
) {
    let count = frames.len();
    for _ in 0..count {
        let Some(mut frame) = frames.pop_front() else { return };
        frame.queued_at = now;
        assert!(queue.enqueue(slab, frame, usize::MAX).is_ok(), "the queue takes a batch");
    }
    while let Dequeue::Frame(frame) = queue.dequeue(now, slab, classes) {
        frames.push_back(frame);
    }
    assert_eq!(frames.len(), count, "a batch conforms");
}

/// Operations of one call: enough to defeat the caches with a large table, in an order that no prefetcher guesses.
const OPERATIONS: usize = 1024;

pub fn fdb() -> Vec<Case> {
    let mut cases = Vec::new();
    for entries in [10, 10_000, 1_000_000] {
        let column = format!("{entries} entries");
        let make = move || {
            let (fdb, keys) = full_table(entries);
            let mut at = 0;
            move || {
                for _ in 0..OPERATIONS {
                    at = (at + 1) % keys.len();
                    black_box(fdb.lookup(vlan(), keys[at]));
                }
            }
        };
        cases.push(Case::new("FDB: lookup, found", &column, OPERATIONS, make));
        let make = move || {
            let (fdb, _) = full_table(entries);
            let mut number = 0_u32;
            move || {
                for _ in 0..OPERATIONS {
                    number = number.wrapping_add(1);
                    black_box(fdb.lookup(vlan(), address(number, 0x56)));
                }
            }
        };
        cases.push(Case::new("FDB: lookup, unknown", &column, OPERATIONS, make));
        let make = move || {
            let (mut fdb, keys) = full_table(entries);
            let mut at = 0;
            move || {
                for _ in 0..OPERATIONS {
                    at = (at + 1) % keys.len();
                    black_box(fdb.learn(Instant::ZERO, vlan(), keys[at], PortId(0), usize::MAX));
                }
            }
        };
        cases.push(Case::new("FDB: learn, known", &column, OPERATIONS, make));
        let make = move || {
            let (mut fdb, keys) = full_table(entries);
            let (mut at, mut port) = (0, 0);
            move || {
                for _ in 0..OPERATIONS {
                    at = (at + 1) % keys.len();
                    if at == 0 {
                        port = 1 - port;
                    }
                    black_box(fdb.learn(Instant::ZERO, vlan(), keys[at], PortId(port), usize::MAX));
                }
            }
        };
        cases.push(Case::new("FDB: learn, moved to another port", &column, OPERATIONS, make));
    }
    cases
}

/// A table of `entries` learned addresses, and these in an order of chance.
fn full_table(entries: u32) -> (Fdb, Vec<MacAddr>) {
    let settings = FdbSettings { capacity: entries as usize, age: Nanos::from_secs(300) };
    let mut fdb = Fdb::new(settings, 2);
    let mut keys: Vec<MacAddr> = (0..entries).map(|number| address(number, 0x54)).collect();
    for key in &keys {
        fdb.learn(Instant::ZERO, vlan(), *key, PortId(0), usize::MAX);
    }
    assert_eq!(fdb.len(), entries as usize, "the table is full");
    let mut chance = 1_u64;
    for at in (1..keys.len()).rev() {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let other = usize::try_from(chance >> 33).unwrap_or_default() % (at + 1);
        keys.swap(at, other);
    }
    (fdb, keys)
}

fn address(number: u32, vendor: u8) -> MacAddr {
    let [a, b, c, d] = number.to_be_bytes();
    MacAddr([0x52, vendor, a, b, c, d])
}
