//! How a lane names the port of a frame, and what can become of a frame there.

/// Ethertype of the S-tag whose 16 bits name a port's slot (IEEE 802.1ad).
pub const SERVICE_TPID: u16 = 0x88a8;

/// Bytes in front of a frame of the tagged lane. The first two are the slot, in network order; the rest is zero.
///
/// The tap puts the frame's tag at offset 12 of what is read, so user space finds 12 bytes of prefix, the tag, 4 bytes of
/// prefix, and the frame without its tag.
pub const PREFIX: usize = 16;

/// Where a port's frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortEntry {
    /// Index of the lane for frames without a tag.
    pub plain_lane: u32,
    /// Index of the lane for frames with one.
    pub tagged_lane: u32,
    /// What names the port there.
    pub slot: u16,
}

/// Where frames for a slot go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotEntry {
    /// Index of the port's interface; 0 for an empty slot.
    pub ifindex: u32,
    /// Address of a veth's far end in another namespace, the first byte highest; 0 if there is none. Frames to that address
    /// enter the far end directly. Others do not, because the kernel then takes each frame for one to the host itself.
    pub far_end: u64,
}

impl PortEntry {
    /// Words of the map's value.
    pub const WORDS: usize = 3;

    /// The map's value.
    pub const fn to_words(self) -> [u32; Self::WORDS] {
        [self.plain_lane, self.tagged_lane, self.slot as u32]
    }

    /// The entry of a map's value.
    #[expect(clippy::cast_possible_truncation, reason = "a slot is 16 bits")]
    pub const fn from_words([plain_lane, tagged_lane, slot]: [u32; Self::WORDS]) -> Self {
        Self { plain_lane, tagged_lane, slot: slot as u16 }
    }
}

impl SlotEntry {
    /// Words of the map's value.
    pub const WORDS: usize = 3;
    /// A slot without a port.
    pub const EMPTY: Self = Self { ifindex: 0, far_end: 0 };

    /// The map's value.
    #[expect(clippy::cast_possible_truncation, reason = "the halves of 64 bits")]
    pub const fn to_words(self) -> [u32; Self::WORDS] {
        [self.ifindex, (self.far_end >> 32) as u32, self.far_end as u32]
    }

    /// The entry of a map's value.
    pub const fn from_words([ifindex, high, low]: [u32; Self::WORDS]) -> Self {
        Self { ifindex, far_end: (high as u64) << 32 | low as u64 }
    }

    /// Whether a frame to `destination` may enter the far end directly.
    pub const fn is_far_end(self, destination: u64) -> bool {
        self.far_end != 0 && self.far_end == destination
    }
}

/// The one outcome of a frame; its value is the index into [`LANE_COUNTERS`](crate::names::LANE_COUNTERS).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum LaneCounter {
    /// From a port to its plain lane. Whether the lane had room is in the lane interface's own statistics (`tx_dropped`).
    ToLane,
    /// From a port to its tagged lane, since it carried a tag.
    ToTaggedLane,
    /// The interface is no port any more, so whoever comes next got it.
    PassedNoPort,
    /// From a lane to the port's interface.
    ToPort,
    /// From a lane directly to the far end of the port's interface.
    ToFarEnd,
    /// Dropped: it came into a lane and names no port.
    DroppedNoSlot,
    /// Dropped: the kernel had no memory to name its port, or to take the name off.
    DroppedNoMemory,
}

impl LaneCounter {
    /// Every outcome, in the order of its index.
    pub const ALL: [Self; 7] = [
        Self::ToLane,
        Self::ToTaggedLane,
        Self::PassedNoPort,
        Self::ToPort,
        Self::ToFarEnd,
        Self::DroppedNoSlot,
        Self::DroppedNoMemory,
    ];
    /// How many outcomes there are: the entries of the counter map.
    pub const COUNT: usize = Self::ALL.len();

    /// Index into the counter map.
    pub const fn index(self) -> u32 {
        self as u32
    }

    /// The metric label of this outcome.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ToLane => "to_lane",
            Self::ToTaggedLane => "to_tagged_lane",
            Self::PassedNoPort => "passed_no_port",
            Self::ToPort => "to_port",
            Self::ToFarEnd => "to_far_end",
            Self::DroppedNoSlot => "dropped_no_slot",
            Self::DroppedNoMemory => "dropped_no_memory",
        }
    }
}

const _: () = {
    let mut index = 0;
    while index < LaneCounter::COUNT {
        assert!(LaneCounter::ALL[index].index() as usize == index, "ALL is not in the order of the indices");
        index += 1;
    }
};
