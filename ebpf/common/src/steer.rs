//! What can become of a frame in the XDP program: a closed set, each outcome with its counter.

/// The one outcome of a frame; its value is the index into [`STEER_COUNTERS`](crate::names::STEER_COUNTERS).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum SteerCounter {
    /// Given to the AF_XDP socket of its receive queue. Whether the socket had room is in the socket's own statistics
    /// (`XDP_STATISTICS`): the kernel asks it after the program has ended.
    Redirected,
    /// No socket serves its receive queue, so the host's stack got it.
    PassedNoSocket,
    /// Dropped: too short for an Ethernet header.
    DroppedRunt,
}

impl SteerCounter {
    /// Every outcome, in the order of its index.
    pub const ALL: [Self; 3] = [Self::Redirected, Self::PassedNoSocket, Self::DroppedRunt];
    /// How many outcomes there are: the entries of the counter map.
    pub const COUNT: usize = Self::ALL.len();

    /// Index into the counter map.
    pub const fn index(self) -> u32 {
        self as u32
    }

    /// The metric label of this outcome.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redirected => "redirected",
            Self::PassedNoSocket => "passed_no_socket",
            Self::DroppedRunt => "dropped_runt",
        }
    }
}

const _: () = {
    let mut index = 0;
    while index < SteerCounter::COUNT {
        assert!(SteerCounter::ALL[index].index() as usize == index, "ALL is not in the order of the indices");
        index += 1;
    }
};
