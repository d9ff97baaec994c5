//! A token bucket in exact integers.
//!
//! Credit is counted in billionths of a bit, because a rate in bits per second times a time in nanoseconds is just
//! that: nothing is ever rounded, so the long-term rate is the configured one to the last bit, however often the bucket
//! is asked and however long it runs.
//!
//! **Ranges.** Rates are those of [`BitsPerSecond`], 64 kbit/s to 400 Gbit/s; depth and lengths are any [`Bytes`];
//! times are any [`Instant`]. Credit is an `i128`: the largest product, 2^64 ns at 400 Gbit/s, is below 2^103, so
//! nothing wraps and a pause of any length just fills the bucket.
//!
//! **Conformance.** A frame conforms when there is credit for it or the bucket is full. The second case lets a frame
//! pass that is longer than the bucket is deep (a super-frame, or a burst set too small): it leaves a debt, and the
//! next frame waits until that is paid. In any window of time `t`, frames no longer than the depth carry at most
//! `rate × t + depth`; longer ones exceed it by at most one frame. A full bucket earns nothing, so a sender reaches the
//! rate only if the bucket has room for what it earns while the sender is late; where each frame takes a full bucket,
//! even the rest of the last nanosecond is lost.
//!
//! **Time.** A clock that steps back gives nothing for the step and goes on from there; it can neither fill the bucket
//! nor freeze it.
//!
//! **One word.** Rate and depth apart, the state is equivalent to one point in time, the one at which the bucket was
//! (or, in debt, will be) empty: `now − credit / rate`. Charging a frame moves it by the frame's time at `rate`, and a
//! full bucket is one that lies `depth / rate` back. So a mirror of the bucket outside this process can hold it in one
//! 64-bit word of nanoseconds, at the price of rounding each charge to them.

use crate::time::{Instant, Nanos};
use crate::units::{BitsPerSecond, Bytes};

/// Credit of one byte.
const BYTE: i128 = 8_000_000_000;

/// A bucket that fills at a rate and from which frames are paid.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: BitsPerSecond,
    /// Most credit, in billionths of a bit.
    depth: i128,
    /// Credit at `updated`, in billionths of a bit; negative is debt.
    credit: i128,
    updated: Instant,
}

impl TokenBucket {
    /// A full bucket of `depth` that fills at `rate`.
    pub fn new(rate: BitsPerSecond, depth: Bytes, now: Instant) -> Self {
        let depth = credit_for(depth);
        Self { rate, depth, credit: depth, updated: now }
    }

    /// Whether a frame of `length` may leave at `now`.
    pub fn conforms(&self, now: Instant, length: Bytes) -> bool {
        self.credit_at(now) >= self.needed(length)
    }

    /// Takes the credit of `length`, be it there or not.
    pub fn charge(&mut self, now: Instant, length: Bytes) {
        self.refill(now);
        self.credit -= credit_for(length);
    }

    /// Charges `length` if it conforms.
    pub fn try_take(&mut self, now: Instant, length: Bytes) -> bool {
        let conforms = self.conforms(now, length);
        if conforms {
            self.charge(now, length);
        }
        conforms
    }

    /// The first instant, `now` or later, at which `length` conforms if nothing else is charged.
    pub fn next_conforming(&mut self, now: Instant, length: Bytes) -> Instant {
        self.refill(now);
        let missing = u128::try_from(self.needed(length) - self.credit).unwrap_or(0);
        let wait = missing.div_ceil(self.rate.get().into());
        now + Nanos::new(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    /// The rate it fills at.
    pub fn rate(&self) -> BitsPerSecond {
        self.rate
    }

    /// Credit at `now` in bytes, rounded down; negative is debt.
    pub fn credit(&self, now: Instant) -> i64 {
        let bytes = self.credit_at(now).div_euclid(BYTE);
        i64::try_from(bytes).unwrap_or(if bytes < 0 { i64::MIN } else { i64::MAX })
    }

    /// Goes on at another rate and depth. What was earned until `now` was earned at the old rate; what does not fit
    /// into the new depth is lost, a debt remains.
    pub fn reconfigure(&mut self, rate: BitsPerSecond, depth: Bytes, now: Instant) {
        self.refill(now);
        self.rate = rate;
        self.depth = credit_for(depth);
    }

    fn needed(&self, length: Bytes) -> i128 {
        credit_for(length).min(self.depth)
    }

    fn credit_at(&self, now: Instant) -> i128 {
        let elapsed = now.saturating_since(self.updated);
        (self.credit + i128::from(self.rate.get()) * i128::from(elapsed.get())).min(self.depth)
    }

    fn refill(&mut self, now: Instant) {
        self.credit = self.credit_at(now);
        self.updated = now;
    }
}

fn credit_for(length: Bytes) -> i128 {
    i128::from(length.get()) * BYTE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;
    const YEAR: u64 = 365 * 24 * 3600 * SECOND;

    /// Rates that implementations got wrong: odd ones, and each side of where 32 bits of bits or bytes end.
    const RATES: [u64; 20] = [
        64_000,
        65_537,
        999_983,
        9_600_000,
        300_000_000,
        940_000_000,
        2_500_000_000,
        3_000_000_000,
        u32::MAX as u64,
        u32::MAX as u64 + 1,
        5_000_000_000,
        10_000_000_000,
        18_446_744_073,
        25_000_000_000,
        34_359_738_367,
        34_359_738_368,
        40_000_000_000,
        40_960_000_000,
        100_000_000_000,
        400_000_000_000,
    ];

    fn rate(bits: u64) -> BitsPerSecond {
        BitsPerSecond::new(bits).unwrap()
    }

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn every_frame_leaves_at_the_exact_nanosecond() {
        const FRAMES: u128 = 2000;
        for bits in RATES {
            for length in [64, 1500, 9014, 65_549] {
                for (depth, start) in [(0, 0), (1500, 7), (65_549, YEAR), (1 << 30, u64::MAX / 2)] {
                    let mut bucket = TokenBucket::new(rate(bits), Bytes::new(depth), at(start));
                    // What leaves at once: the depth's worth, or one frame if that is longer than the depth.
                    let free = u128::from(depth.max(length));
                    let mut now = at(start);
                    for sent in 1..=FRAMES {
                        now = bucket.next_conforming(now, Bytes::new(length));
                        let owed = (sent * u128::from(length)).saturating_sub(free) * 8 * u128::from(SECOND);
                        let due = owed.div_ceil(bits.into());
                        // Where a frame takes a full bucket, each wait is rounded up on its own.
                        let late = u128::from(now.as_nanos() - start) - due;
                        let slack = if length < depth { 0 } else { sent };
                        assert!(late <= slack, "frame {sent} of {length} is {late} ns late at {bits} bit/s");
                        assert!(bucket.try_take(now, Bytes::new(length)));
                    }
                }
            }
        }
    }

    #[test]
    fn asking_often_loses_nothing_even_where_a_step_earns_no_byte() {
        // 64 kbit/s earn a byte in 125 µs.
        let mut bucket = TokenBucket::new(BitsPerSecond::MIN, Bytes::new(1500), at(0));
        bucket.charge(at(0), Bytes::new(1500));
        let mut now = 0;
        while now < SECOND / 8 {
            assert!(!bucket.try_take(at(now), Bytes::new(1500)));
            bucket.charge(at(now), Bytes::new(0));
            now += 97;
        }
        assert_eq!(bucket.credit(at(SECOND / 8)), 1000);
    }

    #[test]
    fn a_frame_as_long_as_the_bucket_is_deep_passes_and_one_byte_more_passes_too() {
        for length in [1514, 1515, 65_549] {
            let mut bucket = TokenBucket::new(rate(8_000_000), Bytes::new(1514), at(0));
            assert!(bucket.try_take(at(0), Bytes::new(length)));
            assert_eq!(bucket.credit(at(0)), 1514 - i64::try_from(length).unwrap());
            // One byte per microsecond: full again after the time of the frame itself.
            let again = bucket.next_conforming(at(0), Bytes::new(length));
            assert_eq!(again, at(length * 1000));
        }
    }

    #[test]
    fn a_pause_of_any_length_fills_the_bucket_and_no_more() {
        let mut bucket = TokenBucket::new(BitsPerSecond::MAX, Bytes::new(u64::MAX), at(0));
        bucket.charge(at(0), Bytes::new(u64::MAX));
        assert_eq!(bucket.credit(at(1)), 50);
        assert_eq!(bucket.credit(at(u64::MAX)), i64::MAX, "2^64 ns at 400 Gbit/s");
        let mut small = TokenBucket::new(BitsPerSecond::MAX, Bytes::new(1500), at(0));
        assert!(small.try_take(at(0), Bytes::new(1500)));
        assert_eq!(small.credit(at(u64::MAX)), 1500);
    }

    #[test]
    fn a_clock_that_steps_back_gives_nothing_and_does_not_freeze_the_bucket() {
        let hour = 3600 * SECOND;
        let mut bucket = TokenBucket::new(rate(8_000_000), Bytes::new(2000), at(hour));
        bucket.charge(at(hour), Bytes::new(2000));
        assert_eq!(bucket.credit(at(0)), 0);
        assert_eq!(bucket.next_conforming(at(0), Bytes::new(1500)), at(1_500_000));
        assert!(!bucket.try_take(at(1_499_999), Bytes::new(1500)));
        assert!(bucket.try_take(at(1_500_000), Bytes::new(1500)));
        assert!(bucket.try_take(at(hour), Bytes::new(2000)) && !bucket.try_take(at(hour), Bytes::new(1)));
    }

    #[test]
    fn a_new_rate_counts_from_now_and_a_smaller_bucket_spills() {
        let mut bucket = TokenBucket::new(rate(8_000_000), Bytes::new(10_000), at(0));
        bucket.charge(at(0), Bytes::new(10_000));
        bucket.reconfigure(rate(80_000_000), Bytes::new(5000), at(1_000_000));
        assert_eq!(bucket.credit(at(1_000_000)), 1000, "earned at the old rate");
        assert_eq!(bucket.credit(at(1_100_000)), 2000, "earned at the new one");
        bucket.reconfigure(rate(80_000_000), Bytes::new(500), at(1_100_000));
        assert_eq!(bucket.credit(at(1_100_000)), 500);
        bucket.charge(at(1_100_000), Bytes::new(2500));
        bucket.reconfigure(rate(8_000_000), Bytes::new(9000), at(1_100_000));
        assert_eq!(bucket.credit(at(1_100_000)), -2000, "a debt remains");
    }

    /// The bucket as a single point in time, the one at which it was empty, in units of `1 / rate` nanoseconds.
    struct OneWord {
        empty: i128,
    }

    impl OneWord {
        fn try_take(&mut self, bits: u64, depth: u64, now: u64, length: u64) -> bool {
            let now = i128::from(now) * i128::from(bits);
            let [depth, length] = [depth, length].map(|bytes| i128::from(bytes) * 8 * i128::from(SECOND));
            let empty = self.empty.max(now - depth);
            let conforms = now - empty >= length.min(depth);
            self.empty = if conforms { empty + length } else { self.empty };
            conforms
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_one_word_model_and_never_exceeds_rate_and_burst(
            bits in prop_oneof![proptest::sample::select(RATES.to_vec()), 64_000_u64..=400_000_000_000],
            depth in prop_oneof![0_u64..3000, 0_u64..200_000_000],
            start in prop_oneof![Just(0), any::<u64>().prop_map(|start| start / 2)],
            steps in proptest::collection::vec(
                (prop_oneof![0_u64..300, 0_u64..2_000_000, 0_u64..20_000_000_000], 1_u64..70_000),
                1..80,
            ),
        ) {
            let mut bucket = TokenBucket::new(rate(bits), Bytes::new(depth), at(start));
            let full = i128::from(start) * i128::from(bits) - i128::from(depth) * 8 * i128::from(SECOND);
            let mut model = OneWord { empty: full };
            let mut sent: Vec<(u64, u64)> = Vec::new();
            let mut now = start;
            for (pause, length) in steps {
                now += pause;
                let took = bucket.try_take(at(now), Bytes::new(length));
                prop_assert_eq!(took, model.try_take(bits, depth, now, length));
                if !took {
                    continue;
                }
                sent.push((now, length));
                // Every window that ends here.
                let (mut carried, mut longest) = (0, 0);
                for &(since, length) in sent.iter().rev() {
                    carried += u128::from(length);
                    longest = longest.max(length);
                    let earned = u128::from(bits) * u128::from(now - since);
                    let excess = u128::from(longest.saturating_sub(depth));
                    let allowed = earned + (u128::from(depth) + excess) * 8 * u128::from(SECOND);
                    prop_assert!(carried * 8 * u128::from(SECOND) <= allowed);
                }
            }
        }

        #[test]
        fn the_told_wait_is_enough_and_a_nanosecond_less_is_not(
            bits in 64_000_u64..=400_000_000_000,
            depth in 0_u64..100_000,
            spent in 0_u64..200_000,
            length in 1_u64..70_000,
            start in 0_u64..YEAR,
        ) {
            let mut bucket = TokenBucket::new(rate(bits), Bytes::new(depth), at(start));
            bucket.charge(at(start), Bytes::new(spent));
            let due = bucket.next_conforming(at(start), Bytes::new(length));
            prop_assert!(due == at(start) || !bucket.conforms(due - Nanos::new(1), Bytes::new(length)));
            prop_assert!(bucket.conforms(due, Bytes::new(length)));
        }

        #[test]
        fn credit_only_grows_while_nothing_is_taken(
            bits in 64_000_u64..=400_000_000_000,
            depth in 0_u64..1_000_000,
            spent in 0_u64..2_000_000,
            pauses in proptest::collection::vec(0_u64..1_000_000, 1..20),
        ) {
            let mut bucket = TokenBucket::new(rate(bits), Bytes::new(depth), at(0));
            bucket.charge(at(0), Bytes::new(spent));
            let (mut now, mut before) = (0, bucket.credit(at(0)));
            let untouched = bucket;
            for pause in pauses {
                now += pause;
                let after = bucket.credit(at(now));
                prop_assert!(before <= after && after <= i64::try_from(depth).unwrap());
                bucket.charge(at(now), Bytes::new(0));
                before = after;
            }
            prop_assert_eq!(bucket.credit_at(at(now)), untouched.credit_at(at(now)), "however many steps");
        }
    }
}
