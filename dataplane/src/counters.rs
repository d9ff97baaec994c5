//! Counters: one writer each, the worker that owns the block; read at any time by the exporter. No locks, and no
//! read-modify-write instructions, since nobody else writes.
//!
//! Every worker has a block with a row for every port, because a frame may be dropped by the worker that received it
//! or by the one that owns its egress port. The exporter adds the blocks up.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use crate::frame::Frame;
use crate::frame::mac::MacAddr;
use crate::id::{Direction, PortId};
use crate::state::MAX_CLASSES;
use crate::time::Nanos;
use crate::verdict::DropReason;

/// A total that only its owner increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

/// A value that only its owner sets.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

/// Who a frame is addressed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// One station.
    Unicast,
    /// A group.
    Multicast,
    /// Everyone.
    Broadcast,
}

/// Everything one worker counts.
#[derive(Debug)]
pub struct WorkerCounters {
    /// Rows by [`PortId`].
    pub ports: Box<[PortCounters]>,
    /// Frames as the worker handles them, for the conservation check.
    pub flow: FlowCounters,
    /// The MAC table copy of this worker.
    pub fdb: FdbCounters,
    /// The loop.
    pub rounds: RoundCounters,
}

/// Both directions of a port.
#[derive(Debug, Default)]
pub struct PortCounters {
    directions: [DirectionCounters; 2],
    /// Bytes sent to the port by class.
    pub class_bytes: [Counter; MAX_CLASSES],
    /// Frames dropped on the way to the port by class.
    pub class_drops: [Counter; MAX_CLASSES],
    /// Bytes waiting for the port by class.
    pub class_depth_bytes: [Gauge; MAX_CLASSES],
    /// Frames whose source was not learned because the MAC table was full.
    pub table_full: Counter,
    /// 1 since the port was disabled for what it sent.
    pub disabled: Gauge,
}

/// One direction of a port. Frames and bytes are those the wire would carry: a super-frame counts as its segments.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct DirectionCounters {
    frames: [Counter; 3],
    bytes: Counter,
    drops: [Counter; DropReason::COUNT],
    dropped_bytes: [Counter; DropReason::COUNT],
    /// The shaper and its queue.
    pub shaper: ShaperCounters,
}

/// A shaper and its queue.
#[derive(Debug, Default)]
pub struct ShaperCounters {
    /// Frames that waited.
    pub delayed_frames: Counter,
    /// Nanoseconds during which frames waited for credit.
    pub throttled_nanos: Counter,
    /// Bytes waiting now.
    pub queue_bytes: Gauge,
    /// Frames waiting now.
    pub queue_frames: Gauge,
    /// Most bytes that ever waited.
    pub queue_high_water_bytes: Gauge,
    /// Bytes the shaper would let pass at once; negative while a super-frame is paid off.
    pub credit_bytes: Gauge,
    /// How long frames waited.
    pub sojourn: SojournHistogram,
}

/// Frames by waiting time; bucket `i` counts those up to [`SojournHistogram::BOUNDS`]`[i]`, the last one the rest.
#[derive(Debug, Default)]
pub struct SojournHistogram {
    buckets: [Counter; Self::BOUNDS.len() + 1],
    sum_nanos: Counter,
}

/// Frames as buffers: what came in must have gone out, been dropped, or still wait.
#[derive(Debug, Default)]
pub struct FlowCounters {
    /// Received from devices.
    pub received: Counter,
    /// Copies made for flooding, beyond the original, and segments cut from super-frames.
    pub copied: Counter,
    /// Taken over from other workers.
    pub taken_over: Counter,
    /// Handed over to other workers.
    pub handed_over: Counter,
    /// Super-frames whose segments, counted as copies, took their place.
    pub replaced: Counter,
    /// Sent by devices.
    pub sent: Counter,
    /// Dropped.
    pub dropped: Counter,
    /// Waiting in queues or in front of a device.
    pub queued: Gauge,
    /// `received + copied + taken_over − handed_over − replaced − sent − dropped − queued`, computed by the worker itself at the
    /// end of a round, when it must be zero.
    pub accounting_error: Gauge,
    /// Buffers of the worker's pool that are in use.
    pub buffers_outstanding: Gauge,
    /// Free small buffers of the worker's pool.
    pub free_small: Gauge,
    /// Free large buffers of the worker's pool.
    pub free_large: Gauge,
    /// Copies and segments that were not made because the pool was empty; they count as dropped where they were to go.
    pub copies_failed: Counter,
}

/// The worker's copy of the MAC table. The copies say the same of the switch, so the exporter shows the first worker's
/// and adds nothing up, but for `refused_port_limit` and `events_lost`, which only the worker that received the frame
/// counts.
#[derive(Debug, Default)]
pub struct FdbCounters {
    /// Entries, static ones included.
    pub entries: Gauge,
    /// Addresses learned.
    pub learned: Counter,
    /// Entries that aged out.
    pub aged: Counter,
    /// Addresses that moved to another port.
    pub moved: Counter,
    /// Addresses refused because they are static at another port; only the worker that received the frame counts.
    pub refused_static: Counter,
    /// Addresses refused because the table was full.
    pub refused_table_full: Counter,
    /// Moves refused because the address had moved too often; only the worker that received the frame counts.
    pub refused_flapping: Counter,
    /// Addresses refused because their port had its limit.
    pub refused_port_limit: Counter,
    /// Events for other workers that found their channel full; they are repeated later.
    pub events_lost: Counter,
}

/// The worker's loop.
#[derive(Debug, Default)]
pub struct RoundCounters {
    /// Rounds.
    pub rounds: Counter,
    /// Rounds that moved a frame.
    pub busy_rounds: Counter,
    /// Nanoseconds spent awake.
    pub busy_nanos: Counter,
    /// Times the worker went to sleep.
    pub sleeps: Counter,
    /// Frames by size of the batch they were received in: 1, 2–3, 4–7, … 64.
    pub batches: [Counter; 7],
}

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Publishes a total that its owner counts elsewhere.
    pub fn publish(&self, total: u64) {
        self.0.store(total, Relaxed);
    }

    /// The total.
    pub fn total(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Gauge {
    /// Sets the value; larger than an `i64` saturates.
    pub fn set(&self, value: impl TryInto<i64>) {
        self.0.store(value.try_into().unwrap_or(i64::MAX), Relaxed);
    }

    /// The value.
    pub fn value(&self) -> i64 {
        self.0.load(Relaxed)
    }

    /// Sets the value if it is above the present one.
    pub fn raise(&self, value: impl TryInto<i64>) {
        let value = value.try_into().unwrap_or(i64::MAX);
        if value > self.value() {
            self.0.store(value, Relaxed);
        }
    }
}

impl Cast {
    /// All three, in the order of their index.
    pub const ALL: [Self; 3] = [Self::Unicast, Self::Multicast, Self::Broadcast];

    /// Who a frame to `destination` is addressed to.
    pub fn of(destination: MacAddr) -> Self {
        match destination {
            d if d.is_broadcast() => Self::Broadcast,
            d if d.is_group() => Self::Multicast,
            _ => Self::Unicast,
        }
    }

    /// The metric label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unicast => "unicast",
            Self::Multicast => "multicast",
            Self::Broadcast => "broadcast",
        }
    }
}

impl WorkerCounters {
    /// A block of zeroes with a row for each of `ports` ports.
    pub fn new(ports: usize) -> Arc<Self> {
        Arc::new(Self {
            ports: (0..ports).map(|_| PortCounters::default()).collect(),
            flow: FlowCounters::default(),
            fdb: FdbCounters::default(),
            rounds: RoundCounters::default(),
        })
    }

    /// The row of `port`.
    pub fn port(&self, port: PortId) -> &PortCounters {
        &self.ports[port.index()]
    }

    /// One direction of `port`.
    pub fn direction(&self, port: PortId, direction: Direction) -> &DirectionCounters {
        self.port(port).direction(direction)
    }
}

impl PortCounters {
    /// One direction.
    pub fn direction(&self, direction: Direction) -> &DirectionCounters {
        &self.directions[direction.index()]
    }
}

impl DirectionCounters {
    /// Counts a frame that passed.
    pub fn pass(&self, frame: &Frame, destination: MacAddr) {
        self.frames[Cast::of(destination) as usize].add(frame.wire_frames());
        self.bytes.add(frame.wire_len());
    }

    /// Counts a dropped frame, or a super-frame of several.
    pub fn drop(&self, wire_frames: u64, wire_len: u64, reason: DropReason) {
        self.drops[reason.index()].add(wire_frames);
        self.dropped_bytes[reason.index()].add(wire_len);
    }

    /// Frames that passed.
    pub fn frames(&self, cast: Cast) -> u64 {
        self.frames[cast as usize].total()
    }

    /// Bytes that passed.
    pub fn bytes(&self) -> u64 {
        self.bytes.total()
    }

    /// Frames dropped for `reason`.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops[reason.index()].total()
    }

    /// Bytes dropped for `reason`.
    pub fn dropped_bytes(&self, reason: DropReason) -> u64 {
        self.dropped_bytes[reason.index()].total()
    }
}

impl SojournHistogram {
    /// Upper bounds of the buckets.
    pub const BOUNDS: [Nanos; 10] = [
        Nanos::from_micros(10),
        Nanos::from_micros(50),
        Nanos::from_micros(100),
        Nanos::from_micros(500),
        Nanos::from_millis(1),
        Nanos::from_millis(2),
        Nanos::from_millis(5),
        Nanos::from_millis(10),
        Nanos::from_millis(20),
        Nanos::from_millis(100),
    ];

    /// Counts one frame that waited `wait`.
    pub fn record(&self, wait: Nanos) {
        let bucket = Self::BOUNDS.partition_point(|bound| *bound < wait);
        self.buckets[bucket].add(1);
        self.sum_nanos.add(wait.get());
    }

    /// Frames per bucket, not cumulative; the last one is beyond every bound.
    pub fn counts(&self) -> [u64; Self::BOUNDS.len() + 1] {
        std::array::from_fn(|bucket| self.buckets[bucket].total())
    }

    /// Sum of all waits.
    pub fn sum(&self) -> Nanos {
        Nanos::new(self.sum_nanos.total())
    }
}

impl FlowCounters {
    /// Frames unaccounted for, given how many wait now. Zero between rounds.
    pub fn imbalance(&self, queued: usize) -> i64 {
        let entered = self.received.total() + self.copied.total() + self.taken_over.total();
        let left =
            self.handed_over.total() + self.replaced.total() + self.sent.total() + self.dropped.total();
        entered.wrapping_sub(left).wrapping_sub(queued as u64).cast_signed()
    }
}

impl RoundCounters {
    /// Counts a receive batch of `frames` frames, 1 to 64.
    pub fn batch(&self, frames: usize) {
        let bucket = (frames.max(1).ilog2() as usize).min(self.batches.len() - 1);
        self.batches[bucket].add(1);
    }
}
