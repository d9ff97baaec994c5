//! Chance from a seed.

use lockgate_dataplane::time::Nanos;

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Anything from zero to `most`.
    pub(super) fn up_to(&mut self, most: Nanos) -> Nanos {
        Nanos::new(self.next() % (most.get() + 1))
    }

    /// `mean` on average, never zero, at most twice that.
    pub(super) fn around(&mut self, mean: Nanos) -> Nanos {
        Nanos::new(self.up_to(Nanos::new(2 * mean.get())).get().max(1))
    }
}
