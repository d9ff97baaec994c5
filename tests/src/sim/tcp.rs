//! A bulk TCP sender reduced to what a shaper sees: a window that acknowledgements open and losses close.
//!
//! What is sent at once is a chunk: a frame, or a super-frame of several segments. Every chunk has its own number, also
//! when it repeats a lost one, and is acknowledged by it, as with selective acknowledgements. It is lost once a chunk
//! beyond the next two is acknowledged (RFC 6675), or when nothing is for long (RFC 6298). The window grows as Reno's
//! (RFC 5681) and shrinks as CUBIC's (RFC 9438).

use std::collections::BTreeSet;

use lockgate_dataplane::time::{Instant, Nanos};
use lockgate_dataplane::units::{BitsPerSecond, Bytes};

/// A window grows by fractions of a segment.
const UNIT: u64 = 1000;
const INITIAL_WINDOW: u64 = 10 * UNIT;
/// Chunks acknowledged beyond one that make it lost.
const REORDERING: u64 = 3;
const SHORTEST_TIMEOUT: Nanos = Nanos::from_millis(200);
const FIRST_TIMEOUT: Nanos = Nanos::from_secs(1);

/// The sender's state.
#[derive(Debug)]
pub(super) struct Tcp {
    /// Segments that may be under way, in thousandths.
    window: u64,
    threshold: u64,
    /// Segments of a chunk.
    segments: u64,
    under_way: BTreeSet<u64>,
    next: u64,
    /// The loss of a chunk before this one has been answered.
    answered: u64,
    line: BitsPerSecond,
    /// When the host's link is free again.
    line_free: Instant,
    last_progress: Instant,
    timeout_after: Nanos,
    timer_is_set: bool,
}

impl Tcp {
    pub(super) fn new(line: BitsPerSecond, segments: usize) -> Self {
        Self {
            window: INITIAL_WINDOW,
            threshold: u64::MAX,
            segments: segments as u64,
            under_way: BTreeSet::new(),
            next: 0,
            answered: 0,
            line,
            line_free: Instant::ZERO,
            last_progress: Instant::ZERO,
            timeout_after: FIRST_TIMEOUT,
            timer_is_set: false,
        }
    }

    /// When the next chunk, of `wire` bytes, leaves the host; `None` if the window is full. One chunk always fits.
    pub(super) fn next(&mut self, now: Instant, wire: Bytes) -> Option<Instant> {
        let chunks = self.under_way.len() as u64;
        if chunks > 0 && (chunks + 1) * self.segments * UNIT > self.window {
            return None;
        }
        if chunks == 0 {
            self.last_progress = now;
        }
        self.under_way.insert(self.next);
        self.next += 1;
        let at = self.line_free.max(now);
        self.line_free = at + self.line.time_for(wire);
        Some(at)
    }

    /// Chunk `number` arrived; it took `round_trip` to know that.
    pub(super) fn acknowledge(&mut self, now: Instant, number: u64, round_trip: Nanos) {
        if !self.under_way.remove(&number) {
            return;
        }
        self.last_progress = now;
        self.timeout_after = Nanos::new(round_trip.get() * 2).max(SHORTEST_TIMEOUT);
        self.window += match self.window < self.threshold {
            true => self.segments * UNIT,
            false => self.segments * UNIT * UNIT / self.window,
        };
        let arrived = self.under_way.split_off(&number.saturating_sub(REORDERING - 1));
        let lost = std::mem::replace(&mut self.under_way, arrived);
        if lost.last().is_some_and(|last| *last >= self.answered) {
            self.window = (self.window * 7 / 10).max(2 * UNIT);
            self.threshold = self.window;
            self.answered = self.next;
        }
    }

    /// When to call [`Self::timer`], if no call is due yet and anything is under way.
    pub(super) fn set_timer(&mut self) -> Option<Instant> {
        let needed = !self.timer_is_set && !self.under_way.is_empty();
        self.timer_is_set |= needed;
        needed.then(|| self.last_progress + self.timeout_after)
    }

    /// Starts over if nothing was acknowledged for too long.
    pub(super) fn timer(&mut self, now: Instant) {
        self.timer_is_set = false;
        if !self.under_way.is_empty() && self.last_progress + self.timeout_after <= now {
            self.under_way.clear();
            self.threshold = (self.window / 2).max(2 * UNIT);
            self.window = UNIT;
            self.answered = self.next;
            self.timeout_after = Nanos::new(self.timeout_after.get() * 2);
        }
    }
}
