//! Chance from a seed.

use lockgate_dataplane::time::Nanos;

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`, the same on every machine.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Anything from zero to `most`.
    pub fn up_to(&mut self, most: Nanos) -> Nanos {
        Nanos::new(self.any() % (most.get() + 1))
    }

    /// Anything below `end`, which is not zero.
    pub fn below(&mut self, end: usize) -> usize {
        let end = end as u64;
        usize::try_from(self.any() % end).expect("it is below a usize")
    }

    /// One of `items`, of which there is at least one.
    pub fn pick<'i, T>(&mut self, items: &'i [T]) -> &'i T {
        &items[self.below(items.len())]
    }

    /// `mean` on average, never zero, at most twice that.
    pub fn around(&mut self, mean: Nanos) -> Nanos {
        Nanos::new(self.up_to(Nanos::new(2 * mean.get())).get().max(1))
    }
}
