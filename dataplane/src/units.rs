//! Quantities with their unit in the type. Rates are decimal (1 kbit = 1000 bit), sizes are plain bytes.

use std::fmt;

use crate::time::Nanos;

/// A bit rate, in bits per second of L2 frame without FCS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitsPerSecond(u64);

/// A rate of frames, at least one per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FramesPerSecond(u64);

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl BitsPerSecond {
    /// The slowest rate a shaper takes: 64 kbit/s.
    pub const MIN: Self = Self(64_000);
    /// The fastest rate a shaper takes: 400 Gbit/s.
    pub const MAX: Self = Self(400_000_000_000);

    /// A rate of `bits` bits per second, or `None` outside [`Self::MIN`]..=[`Self::MAX`].
    pub const fn new(bits: u64) -> Option<Self> {
        if bits >= Self::MIN.0 && bits <= Self::MAX.0 { Some(Self(bits)) } else { None }
    }

    /// Bits per second.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Bytes that pass in `span` at this rate, rounded down.
    pub fn bytes_in(self, span: Nanos) -> Bytes {
        let bytes = u128::from(self.0) * u128::from(span.get()) / 8_000_000_000;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Time that `bytes` take at this rate, rounded up.
    pub fn time_for(self, bytes: Bytes) -> Nanos {
        let nanos = (u128::from(bytes.0) * 8_000_000_000).div_ceil(u128::from(self.0));
        Nanos::new(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl FramesPerSecond {
    /// The slowest rate.
    pub const MIN: Self = Self(1);
    /// The fastest: more than 400 Gbit/s of the shortest frames.
    pub const MAX: Self = Self(1_000_000_000);

    /// A rate, or `None` outside [`Self::MIN`]..=[`Self::MAX`].
    pub const fn new(frames: u64) -> Option<Self> {
        if frames >= Self::MIN.0 && frames <= Self::MAX.0 { Some(Self(frames)) } else { None }
    }

    /// Frames per second.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Bytes {
    /// A size of `bytes` bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// A size of `kib` times 1024 bytes.
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib * 1024)
    }

    /// Bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for BitsPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            b if b % 1_000_000_000 == 0 => write!(f, "{} Gbit/s", b / 1_000_000_000),
            b if b % 1_000_000 == 0 => write!(f, "{} Mbit/s", b / 1_000_000),
            b if b % 1_000 == 0 => write!(f, "{} kbit/s", b / 1_000),
            b => write!(f, "{b} bit/s"),
        }
    }
}

impl fmt::Display for FramesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames/s", self.0)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            b if b != 0 && b % (1 << 30) == 0 => write!(f, "{} GiB", b >> 30),
            b if b != 0 && b % (1 << 20) == 0 => write!(f, "{} MiB", b >> 20),
            b if b != 0 && b % (1 << 10) == 0 => write!(f, "{} KiB", b >> 10),
            b => write!(f, "{b} B"),
        }
    }
}
