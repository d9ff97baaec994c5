//! Counters of all workers added up. Each worker has a block of its own, and a frame may be counted by the one that
//! received it or by the one that owns its egress port.
//!
//! Blocks are read while they are written: each number is right, two of them may be a few frames apart.

use std::ops::AddAssign;
use std::sync::Arc;

use lockgate_dataplane::counters::{
    Cast, DirectionCounters, Gauge, ShaperCounters, SojournHistogram, WorkerCounters,
};
use lockgate_dataplane::id::{ClassId, Direction, PortId};
use lockgate_dataplane::time::Nanos;
use lockgate_dataplane::verdict::DropReason;

/// Buckets of the waiting times.
pub const SOJOURN_BUCKETS: usize = SojournHistogram::BOUNDS.len() + 1;

/// The blocks of all workers.
#[derive(Clone, Copy, Debug)]
pub struct Totals<'a>(pub &'a [Arc<WorkerCounters>]);

/// One direction of a port, or of several ports added up. A super-frame counts as its segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionTotals {
    /// Frames that passed, by [`Cast`].
    pub frames: [u64; Cast::ALL.len()],
    /// Bytes that passed.
    pub bytes: u64,
    /// Frames dropped, by [`DropReason`].
    pub drops: [u64; DropReason::COUNT],
    /// Bytes dropped, by [`DropReason`].
    pub dropped_bytes: [u64; DropReason::COUNT],
}

/// One direction's shaper and its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShaperTotals {
    /// Frames that waited.
    pub delayed_frames: u64,
    /// Time during which frames waited for credit.
    pub throttled: Nanos,
    /// Bytes waiting now.
    pub queue_bytes: u64,
    /// Frames waiting now.
    pub queue_frames: u64,
    /// Most bytes that ever waited.
    pub queue_high_water_bytes: u64,
    /// Bytes that would pass at once; negative while a super-frame is paid off.
    pub credit_bytes: i64,
}

/// How long frames waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sojourn {
    /// Frames per bucket of [`SojournHistogram::BOUNDS`], not cumulative; the last one is beyond every bound.
    pub frames: [u64; SOJOURN_BUCKETS],
    /// Sum of all waits.
    pub sum: Nanos,
}

/// One class of a port's egress queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassTotals {
    /// Bytes sent.
    pub bytes: u64,
    /// Frames dropped.
    pub drops: u64,
    /// Bytes waiting now.
    pub depth_bytes: u64,
}

impl Totals<'_> {
    /// The sum of one number of each worker.
    pub fn sum(&self, number: impl Fn(&WorkerCounters) -> u64) -> u64 {
        self.0.iter().map(|worker| number(worker)).sum()
    }

    /// Whether `port` was disabled for what it sent.
    pub fn is_disabled(&self, port: PortId) -> bool {
        self.0.iter().any(|worker| worker.port(port).disabled.value() != 0)
    }

    /// One direction of `port`.
    pub fn direction(&self, port: PortId, direction: Direction) -> DirectionTotals {
        let mut total = DirectionTotals::default();
        self.each(port, direction).for_each(|counters| total += counters.into());
        total
    }

    /// One direction of several ports.
    pub fn directions(
        &self,
        ports: impl IntoIterator<Item = PortId>,
        direction: Direction,
    ) -> DirectionTotals {
        let mut total = DirectionTotals::default();
        ports.into_iter().for_each(|port| total += self.direction(port, direction));
        total
    }

    /// The shaper of one direction of `port`. Only the worker that owns the port writes its gauges.
    pub fn shaper(&self, port: PortId, direction: Direction) -> ShaperTotals {
        let mut total = ShaperTotals::default();
        for ShaperCounters {
            delayed_frames,
            throttled_nanos,
            queue_bytes,
            queue_frames,
            queue_high_water_bytes,
            credit_bytes,
            sojourn: _,
        } in self.each(port, direction).map(|counters| &counters.shaper)
        {
            total.delayed_frames += delayed_frames.total();
            total.throttled = Nanos::new(total.throttled.get() + throttled_nanos.total());
            total.queue_bytes += level(queue_bytes);
            total.queue_frames += level(queue_frames);
            total.queue_high_water_bytes += level(queue_high_water_bytes);
            total.credit_bytes += credit_bytes.value();
        }
        total
    }

    /// How long frames of several ports waited in one direction.
    pub fn sojourn(&self, ports: impl IntoIterator<Item = PortId>, direction: Direction) -> Sojourn {
        let mut total = Sojourn::default();
        for port in ports {
            for histogram in self.each(port, direction).map(|counters| &counters.shaper.sojourn) {
                add_each(&mut total.frames, histogram.counts());
                total.sum = Nanos::new(total.sum.get() + histogram.sum().get());
            }
        }
        total
    }

    /// One class of the egress queue of `port`.
    pub fn class(&self, port: PortId, class: ClassId) -> ClassTotals {
        let at = class.index();
        let rows = || self.0.iter().map(|worker| worker.port(port));
        ClassTotals {
            bytes: rows().map(|row| row.class_bytes[at].total()).sum(),
            drops: rows().map(|row| row.class_drops[at].total()).sum(),
            depth_bytes: rows().map(|row| level(&row.class_depth_bytes[at])).sum(),
        }
    }

    /// A number of the first worker: of the MAC table, of which every worker has a copy.
    pub fn first(&self, number: impl Fn(&WorkerCounters) -> u64) -> u64 {
        self.0.first().map_or(0, |worker| number(worker))
    }

    /// Frames unaccounted for. Each worker's books balance on their own, so an error of one never hides another's.
    pub fn accounting_error_frames(&self) -> u64 {
        self.sum(|worker| worker.flow.accounting_error.value().unsigned_abs())
    }

    fn each(&self, port: PortId, direction: Direction) -> impl Iterator<Item = &DirectionCounters> {
        self.0.iter().map(move |worker| worker.direction(port, direction))
    }
}

impl DirectionTotals {
    /// All frames that passed.
    pub fn all_frames(&self) -> u64 {
        self.frames.iter().sum()
    }

    /// All frames that were dropped.
    pub fn all_drops(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// All bytes that were dropped.
    pub fn all_dropped_bytes(&self) -> u64 {
        self.dropped_bytes.iter().sum()
    }
}

impl From<&DirectionCounters> for DirectionTotals {
    fn from(counters: &DirectionCounters) -> Self {
        Self {
            frames: Cast::ALL.map(|cast| counters.frames(cast)),
            bytes: counters.bytes(),
            drops: std::array::from_fn(|at| counters.drops(DropReason::ALL[at])),
            dropped_bytes: std::array::from_fn(|at| counters.dropped_bytes(DropReason::ALL[at])),
        }
    }
}

impl AddAssign for DirectionTotals {
    fn add_assign(&mut self, other: Self) {
        add_each(&mut self.frames, other.frames);
        self.bytes += other.bytes;
        add_each(&mut self.drops, other.drops);
        add_each(&mut self.dropped_bytes, other.dropped_bytes);
    }
}

/// A gauge that is never below zero.
pub fn level(gauge: &Gauge) -> u64 {
    u64::try_from(gauge.value()).unwrap_or(0)
}

fn add_each<const N: usize>(to: &mut [u64; N], from: [u64; N]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: PortId = PortId(1);

    #[test]
    fn the_blocks_of_all_workers_add_up() {
        let workers = [WorkerCounters::new(2), WorkerCounters::new(2)];
        for (worker, waited) in workers.iter().zip([3, 5]) {
            let shaper = &worker.direction(PORT, Direction::Egress).shaper;
            shaper.delayed_frames.add(waited);
            shaper.sojourn.record(Nanos::from_millis(waited));
            worker.port(PORT).class_drops[2].add(waited);
        }
        let totals = Totals(&workers);
        assert_eq!(totals.shaper(PORT, Direction::Egress).delayed_frames, 8);
        assert_eq!(totals.sojourn([PortId(0), PORT], Direction::Egress).sum, Nanos::from_millis(8));
        assert_eq!(totals.sojourn([PORT], Direction::Egress).frames.iter().sum::<u64>(), 2);
        assert_eq!(totals.shaper(PORT, Direction::Ingress), ShaperTotals::default());
        assert_eq!(totals.class(PORT, ClassId(2)).drops, 8);
    }

    #[test]
    fn accounting_errors_of_two_workers_do_not_cancel() {
        let workers = [WorkerCounters::new(0), WorkerCounters::new(0)];
        workers[0].flow.accounting_error.set(-2);
        workers[1].flow.accounting_error.set(2);
        assert_eq!(Totals(&workers).accounting_error_frames(), 4);
    }
}
