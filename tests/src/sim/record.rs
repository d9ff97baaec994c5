//! What arrived of a flow, and the rates and delays that follow from it.

use lockgate_dataplane::time::{Instant, Nanos};

/// A frame that reached its destination.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When.
    pub at: Instant,
    /// Frames of the wire: a super-frame that arrives whole counts as its segments.
    pub frames: u64,
    /// Bytes on the wire.
    pub bytes: u64,
    /// Since it was sent.
    pub delay: Nanos,
}

/// What was sent in a flow and what of it arrived.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Frames sent, counted as on the wire.
    pub sent: u64,
    /// Those that arrived, in order of time.
    pub arrivals: Vec<Arrival>,
}

impl Record {
    /// Bytes that arrived from `from` up to, not at, `to`.
    pub fn bytes_between(&self, from: Instant, to: Instant) -> u64 {
        self.between(from, to).iter().map(|arrival| arrival.bytes).sum()
    }

    /// The rate at which frames arrived between these instants, in bits per second: from the first instant at which any
    /// did, these not counted, to the last. Zero if that is the same.
    pub fn bits_per_second(&self, from: Instant, to: Instant) -> u64 {
        let arrivals = self.between(from, to);
        let [Some(first), Some(last)] = [arrivals.first(), arrivals.last()] else { return 0 };
        let counted = arrivals.iter().filter(|arrival| arrival.at > first.at);
        let bits = counted.map(|arrival| u128::from(arrival.bytes)).sum::<u128>() * 8;
        let rate = bits * 1_000_000_000 / u128::from(last.at.saturating_since(first.at).get().max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// The longest a frame that arrived between these instants was on its way.
    pub fn longest_delay(&self, from: Instant, to: Instant) -> Nanos {
        self.between(from, to).iter().map(|arrival| arrival.delay).max().unwrap_or_default()
    }

    /// Frames that did not arrive, those still under way included.
    pub fn missing(&self) -> u64 {
        self.sent - self.arrivals.iter().map(|arrival| arrival.frames).sum::<u64>()
    }

    fn between(&self, from: Instant, to: Instant) -> &[Arrival] {
        let start = self.arrivals.partition_point(|arrival| arrival.at < from);
        let end = self.arrivals.partition_point(|arrival| arrival.at < to);
        &self.arrivals[start..end]
    }
}
