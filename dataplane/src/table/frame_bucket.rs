//! A token bucket that counts frames, for limits in frames per second.
//!
//! As [`super::token_bucket`] in exact integers: credit is counted in billionths of a frame, since frames per second times
//! nanoseconds is just that, so no rounding adds up. Credit starts full. A batch longer than the bucket is deep passes when
//! the bucket is full and leaves a debt. A clock that steps back gives nothing.

use crate::time::{Instant, Nanos};
use crate::units::FramesPerSecond;

const FRAME: i128 = 1_000_000_000;
/// How much of a second may come at once.
const BURST: Nanos = Nanos::from_millis(100);
/// A slow limit still lets a few frames through together.
const BURST_MIN_FRAMES: i128 = 10;

/// A bucket that fills at a rate and from which frames are paid.
#[derive(Clone, Copy, Debug)]
pub struct FrameBucket {
    rate: FramesPerSecond,
    /// Most credit, in billionths of a frame.
    depth: i128,
    credit: i128,
    updated: Instant,
}

impl FrameBucket {
    /// A full bucket. It holds 100 ms of the rate, at least ten frames.
    pub fn new(rate: FramesPerSecond, now: Instant) -> Self {
        let depth = (i128::from(rate.get()) * i128::from(BURST.get())).max(BURST_MIN_FRAMES * FRAME);
        Self { rate, depth, credit: depth, updated: now }
    }

    /// Charges `frames` if there is credit for them.
    pub fn try_take(&mut self, now: Instant, frames: u64) -> bool {
        let earned = i128::from(self.rate.get()) * i128::from(now.saturating_since(self.updated).get());
        self.credit = (self.credit + earned).min(self.depth);
        self.updated = now;
        let price = i128::from(frames) * FRAME;
        let conforms = self.credit >= price.min(self.depth);
        if conforms {
            self.credit -= price;
        }
        conforms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(rate: u64) -> FrameBucket {
        FrameBucket::new(FramesPerSecond::new(rate).unwrap(), Instant::ZERO)
    }

    #[test]
    fn the_rate_is_exact_whatever_the_steps() {
        for (rate, step) in [(1, 999_983), (7, 333_331), (1000, 1_000), (14_880_950, 67)] {
            let mut bucket = bucket(rate);
            let at_once = std::iter::repeat(()).take_while(|()| bucket.try_take(Instant::ZERO, 1)).count();
            assert_eq!(at_once as u64, (rate / 10).max(10), "rate {rate}");
            let (mut passed, mut now) = (0_u64, 0_u64);
            while passed < 50 {
                now += step;
                passed += u64::from(bucket.try_take(Instant::from_nanos(now), 1));
                let earned = u128::from(now) * u128::from(rate) / 1_000_000_000;
                assert_eq!(u128::from(passed), earned, "rate {rate} at {now} ns");
            }
        }
    }

    #[test]
    fn a_super_frame_is_paid_as_its_segments() {
        let mut bucket = bucket(10);
        assert!(bucket.try_take(Instant::ZERO, 40), "a full bucket lets it pass");
        let at = |seconds| Instant::ZERO + Nanos::from_secs(seconds);
        assert!(!bucket.try_take(at(3), 1), "3 s have paid the debt of 30 and earned nothing");
        assert!(bucket.try_take(at(4), 1));
    }

    #[test]
    fn a_clock_that_steps_back_gives_nothing() {
        let mut bucket = bucket(1000);
        let later = Instant::ZERO + Nanos::from_secs(10);
        while bucket.try_take(later, 1) {}
        assert!(!bucket.try_take(Instant::ZERO, 1));
        assert!(!bucket.try_take(Instant::ZERO + Nanos::from_micros(999), 1));
        assert!(bucket.try_take(Instant::ZERO + Nanos::from_millis(1), 1));
    }
}
