//! The one place that reads the operating system's clock for the frame path, once per round.

use rustix::time::{ClockId, clock_gettime};

use crate::time::Instant;

/// `CLOCK_MONOTONIC`: never steps, stands still while the host is suspended.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl MonotonicClock {
    /// The present instant.
    pub fn now(self) -> Instant {
        let now = clock_gettime(ClockId::Monotonic);
        let (secs, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
        Instant::from_nanos(secs * 1_000_000_000 + nanos)
    }
}
