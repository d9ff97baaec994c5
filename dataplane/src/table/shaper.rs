//! When a frame may leave: VMware's triple of average, peak and burst as two token buckets.
//!
//! The credit bucket fills at the average and is `burst` deep. The peak bucket, there only if a peak is set, fills at the
//! peak and holds a millisecond of it and the largest frame. A frame leaves when both have credit for it and is charged
//! to both. From full credit a sender that never pauses therefore sends at the peak for `burst / (peak − average)` and at
//! the average from then on; with a peak equal to the average it never bursts.
//!
//! A shaper tells time; it holds no frames. What waits, and what is dropped when too much waits, is the queue's matter.

use crate::state::Shaping;
use crate::time::{Instant, Nanos};
use crate::units::{BitsPerSecond, Bytes};

use super::token_bucket::TokenBucket;

/// How much of the peak rate may leave at once. Less than the worker's poll interval would lose rate, much more would
/// not be a peak rate.
const PEAK_WINDOW: Nanos = Nanos::from_millis(1);

/// The buckets of one port and direction.
#[derive(Clone, Copy, Debug)]
pub struct Shaper {
    credit: TokenBucket,
    peak: Option<TokenBucket>,
    overhead: Bytes,
    average: BitsPerSecond,
    max_delay: Nanos,
}

impl Shaper {
    /// A shaper with all its credit, for a port whose largest frame is `largest_frame` (without FCS).
    pub fn new(shaping: &Shaping, largest_frame: Bytes, now: Instant) -> Self {
        let peak = shaping.peak.map(|peak| TokenBucket::new(peak, peak_depth(peak, largest_frame), now));
        Self {
            credit: TokenBucket::new(shaping.average, shaping.burst, now),
            peak,
            overhead: shaping.overhead,
            average: shaping.average,
            max_delay: shaping.max_delay,
        }
    }

    /// What a frame or super-frame of `wire_len` bytes in `wire_frames` frames costs: the one place where the port's
    /// overhead is added, once per frame on the wire.
    pub fn charged(&self, wire_len: u64, wire_frames: u64) -> Bytes {
        Bytes::new(wire_len.saturating_add(wire_frames.saturating_mul(self.overhead.get())))
    }

    /// Takes credit for a frame that costs `charged`, if it may leave at `now`.
    pub fn try_take(&mut self, now: Instant, charged: Bytes) -> bool {
        let conforms =
            self.credit.conforms(now, charged) && self.peak.is_none_or(|peak| peak.conforms(now, charged));
        if conforms {
            self.credit.charge(now, charged);
            if let Some(peak) = &mut self.peak {
                peak.charge(now, charged);
            }
        }
        conforms
    }

    /// The first instant, `now` or later, at which a frame that costs `charged` may leave if no other does before.
    pub fn next_conforming(&mut self, now: Instant, charged: Bytes) -> Instant {
        let by_credit = self.credit.next_conforming(now, charged);
        let by_peak = self.peak.as_mut().map_or(now, |peak| peak.next_conforming(now, charged));
        by_credit.max(by_peak)
    }

    /// Credit of the average at `now` in bytes; negative is debt.
    pub fn credit(&self, now: Instant) -> i64 {
        self.credit.credit(now)
    }

    /// Bytes that may leave within the longest delay beyond what the average earns in it: saved credit, as far as the
    /// peak lets it out in that time.
    pub fn spendable(&self, now: Instant) -> u64 {
        let by_credit = u64::try_from(self.credit.credit(now)).unwrap_or(0);
        self.peak.map_or(by_credit, |peak| {
            let in_time = |rate: BitsPerSecond| rate.bytes_in(self.max_delay).get();
            let by_peak = in_time(peak.rate()).saturating_add_signed(peak.credit(now));
            by_credit.min(by_peak.saturating_sub(in_time(self.average)))
        })
    }

    /// Goes on with another triple. Credit is kept as far as it fits, so that setting the same triple again changes
    /// nothing; a peak bucket that was not there before starts full.
    pub fn reconfigure(&mut self, shaping: &Shaping, largest_frame: Bytes, now: Instant) {
        self.credit.reconfigure(shaping.average, shaping.burst, now);
        self.peak = shaping.peak.map(|rate| {
            let depth = peak_depth(rate, largest_frame);
            let mut peak = self.peak.unwrap_or_else(|| TokenBucket::new(rate, depth, now));
            peak.reconfigure(rate, depth, now);
            peak
        });
        (self.overhead, self.average, self.max_delay) =
            (shaping.overhead, shaping.average, shaping.max_delay);
    }
}

/// Room for one frame on top of the window: a bucket of exactly one frame earns nothing while it is full, so a slow port
/// would lose rate with every wake-up that is late.
fn peak_depth(peak: BitsPerSecond, largest_frame: Bytes) -> Bytes {
    Bytes::new(peak.bytes_in(PEAK_WINDOW).get() + largest_frame.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FRAME: u64 = 1514;
    const SECOND: u64 = 1_000_000_000;

    fn kbit(rate: u64) -> BitsPerSecond {
        BitsPerSecond::new(rate * 1000).unwrap()
    }

    fn shaping(average: BitsPerSecond, peak: Option<BitsPerSecond>, burst: Bytes) -> Shaping {
        Shaping { average, peak, burst, max_delay: Nanos::from_millis(20), overhead: Bytes::new(0) }
    }

    fn shaper(shaping: &Shaping) -> Shaper {
        Shaper::new(shaping, Bytes::new(1518), Instant::ZERO)
    }

    /// Bytes that a sender with always another frame gets through until `end`, and when its last frame left.
    fn flood(shaper: &mut Shaper, from: Instant, end: Instant) -> u64 {
        let (mut sent, mut now) = (0, from);
        loop {
            now = shaper.next_conforming(now, Bytes::new(FRAME));
            if now > end {
                return sent;
            }
            assert!(shaper.try_take(now, Bytes::new(FRAME)));
            sent += FRAME;
        }
    }

    #[test]
    fn a_full_burst_lasts_as_long_as_vmware_s_numbers_say() {
        // average and peak in kbit/s, burst in KiB; the burst's duration in ns and the bytes sent in it.
        let vectors = [
            (100_000, 1_000_000, 102_400, 932_067_555, 116_508_444),
            (2000, 4000, 2000, 8_192_000_000, 4_096_000),
            (1000, 2000, 1024, 8_388_608_000, 2_097_152),
        ];
        for (average, peak, burst, duration, bytes) in vectors {
            let burst = Bytes::from_kib(burst);
            assert_eq!(burst.get() * 8 * 1_000_000 / (peak - average), duration, "8B / (p − r)");
            let mut shaper = shaper(&shaping(kbit(average), Some(kbit(peak)), burst));
            let end = Instant::from_nanos(duration);

            let half = Instant::from_nanos(duration / 2);
            let early = flood(&mut shaper, Instant::ZERO, half);
            let at_peak = kbit(peak).bytes_in(Nanos::new(duration / 2)).get();
            let head_start = peak_depth(kbit(peak), Bytes::new(1518)).get();
            assert!(
                (at_peak..=at_peak + head_start).contains(&early),
                "{early} bytes in the first half of the burst"
            );

            let sent = early + flood(&mut shaper, half, end);
            assert!(sent.abs_diff(bytes) <= FRAME, "{sent} bytes in the burst, not {bytes}");

            let after = flood(&mut shaper, end, end + Nanos::from_secs(10));
            assert!(
                after.abs_diff(average * 1000 / 8 * 10) <= FRAME,
                "{after} bytes in the ten seconds after it"
            );

            let refilled =
                end + Nanos::from_secs(10) + kbit(average).time_for(burst) + Nanos::from_millis(100);
            assert_eq!(
                shaper.credit(refilled),
                i64::try_from(burst.get()).unwrap(),
                "full again after 8B / r"
            );
        }
    }

    #[test]
    fn a_peak_equal_to_the_average_never_bursts() {
        let burst = Bytes::from_kib(102_400);
        let mut same = shaper(&shaping(kbit(100_000), Some(kbit(100_000)), burst));
        let sent = flood(&mut same, Instant::ZERO, Instant::ZERO);
        assert!(sent <= peak_depth(kbit(100_000), Bytes::new(1518)).get(), "{sent} bytes at once");
        let mut none = shaper(&shaping(kbit(100_000), None, burst));
        let sent = flood(&mut none, Instant::ZERO, Instant::ZERO);
        assert!(burst.get() - sent < FRAME, "without a peak the burst leaves at line rate");
    }

    #[test]
    fn a_slow_port_loses_no_rate_to_late_wake_ups() {
        let (average, peak) = (kbit(10_000), kbit(11_000));
        let mut shaper = shaper(&shaping(average, Some(peak), Bytes::from_kib(64)));
        let (mut sent, mut now) = (0, Instant::ZERO);
        while now < Instant::ZERO + Nanos::from_secs(10) {
            while shaper.try_take(now, Bytes::new(FRAME)) {
                sent += FRAME;
            }
            now = shaper.next_conforming(now, Bytes::new(FRAME)) + Nanos::from_micros(990);
        }
        let earned = average.bytes_in(Nanos::from_secs(10)).get();
        assert!(sent >= earned, "{sent} of {earned} bytes");
    }

    #[test]
    fn a_super_frame_larger_than_both_buckets_passes_and_pays() {
        let mut shaper = shaper(&shaping(kbit(10_000), Some(kbit(20_000)), Bytes::new(2000)));
        let (mut now, frames) = (Instant::ZERO, 100);
        for _ in 0..frames {
            now = shaper.next_conforming(now, Bytes::new(65_549));
            assert!(shaper.try_take(now, Bytes::new(65_549)));
        }
        assert_eq!(now, Instant::ZERO + kbit(10_000).time_for(Bytes::new((frames - 1) * 65_549)));
    }

    #[test]
    fn saved_credit_is_spendable_as_far_as_the_peak_lets_it_out() {
        let burst = Bytes::new(100_000);
        // 20 ms of the average are 25 000 bytes, of the peak 50 000, and the peak bucket holds 2500 and a frame.
        let mut capped = shaper(&shaping(kbit(10_000), Some(kbit(20_000)), burst));
        assert_eq!(capped.spendable(Instant::ZERO), 25_000 + 2500 + 1518);
        let mut free = shaper(&shaping(kbit(10_000), None, burst));
        assert_eq!(free.spendable(Instant::ZERO), 100_000);
        for shaper in [&mut capped, &mut free] {
            shaper.credit.charge(Instant::ZERO, Bytes::new(150_000));
            assert_eq!(shaper.spendable(Instant::ZERO), 0, "a debt is not spendable");
        }
    }

    #[test]
    fn overhead_is_charged_once_per_frame_on_the_wire() {
        let overhead = Bytes::new(24);
        let shaper = shaper(&Shaping { overhead, ..shaping(kbit(64), None, Bytes::new(1)) });
        assert_eq!(shaper.charged(60, 1), Bytes::new(84));
        assert_eq!(shaper.charged(3 * 1514, 3), Bytes::new(3 * 1538));
    }

    #[test]
    fn setting_the_same_triple_again_changes_nothing() {
        let triple = shaping(kbit(1000), Some(kbit(2000)), Bytes::new(20_000));
        let mut shaper = shaper(&triple);
        flood(&mut shaper, Instant::ZERO, Instant::ZERO);
        let (mut untouched, now) = (shaper, Instant::from_nanos(12_345));
        shaper.reconfigure(&triple, Bytes::new(1518), now);
        assert_eq!(
            shaper.next_conforming(now, Bytes::new(FRAME)),
            untouched.next_conforming(now, Bytes::new(FRAME))
        );
        assert_eq!(shaper.credit(now), untouched.credit(now));
    }

    #[test]
    fn a_peak_can_be_set_and_taken_away_while_running() {
        let burst = Bytes::new(1_000_000);
        let (plain, peaked) =
            (shaping(kbit(1000), None, burst), shaping(kbit(1000), Some(kbit(8000)), burst));
        let mut shaper = shaper(&plain);
        shaper.reconfigure(&peaked, Bytes::new(1518), Instant::ZERO);
        let window = Instant::from_nanos(SECOND / 10);
        assert!(flood(&mut shaper, Instant::ZERO, window) <= 100_000 + 1518, "held to the peak");
        shaper.reconfigure(&plain, Bytes::new(1518), window);
        assert!(flood(&mut shaper, window, window) > 800_000, "the rest of the burst leaves at once");
    }

    proptest! {
        #[test]
        fn both_rates_hold_in_every_window_and_the_told_wait_is_exact(
            average in 64_u64..10_000_000,
            factor in 1_u64..20,
            burst in 1_u64..5_000_000,
            lengths in proptest::collection::vec((1_u64..10_000, 0_u64..3_000_000), 1..60),
        ) {
            let (average, peak) = (kbit(average), kbit(average * factor));
            let mut shaper = shaper(&shaping(average, Some(peak), Bytes::new(burst)));
            let mut now = Instant::ZERO;
            let mut sent: Vec<(Instant, u64)> = Vec::new();
            for (length, pause) in lengths {
                now += Nanos::new(pause);
                let due = shaper.next_conforming(now, Bytes::new(length));
                if due > now {
                    prop_assert!(!shaper.try_take(due - Nanos::new(1), Bytes::new(length)));
                }
                prop_assert!(shaper.try_take(due, Bytes::new(length)));
                now = due;
                sent.push((now, length));
                let depths = [(average, burst), (peak, peak_depth(peak, Bytes::new(1518)).get())];
                for (rate, depth) in &depths[..if factor == 1 { 1 } else { 2 }] {
                    let (mut carried, mut longest) = (0, 0);
                    for &(since, length) in sent.iter().rev() {
                        carried += length;
                        longest = longest.max(length);
                        let earned = rate.bytes_in(now.saturating_since(since)).get();
                        prop_assert!(carried <= earned + 1 + (*depth).max(longest));
                    }
                }
            }
        }
    }
}
