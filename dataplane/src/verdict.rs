//! Why a frame was dropped: the closed set. Every frame ends in exactly one counter, either sent or one of these.

use std::fmt;

macro_rules! drop_reasons {
    ($( $(#[doc = $doc:literal])+ $variant:ident => $name:literal, )+) => {
        /// The one reason a frame was dropped for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason { $( $(#[doc = $doc])+ $variant, )+ }

        impl DropReason {
            /// Every reason, in the order of its index.
            pub const ALL: &'static [Self] = &[ $( Self::$variant, )+ ];
            /// How many reasons there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The metric label of this reason.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )+ }
            }

            /// One sentence for people, the same as this reason's documentation.
            pub const fn explanation(self) -> &'static str {
                match self { $( Self::$variant => concat!($($doc,)+), )+ }
            }
        }
    };
}

drop_reasons! {
    /// Shorter than its headers claim, or shorter than an Ethernet header.
    Malformed => "malformed",
    /// The frame's VLAN is not one the ingress port may send in, or an access port sent a tagged frame.
    VlanNotAllowed => "vlan",
    /// Source address is a group address or all zero (IEEE 802-2014 clause 8.2).
    InvalidSource => "invalid_source",
    /// Source address is not one of the port's addresses: forged transmit.
    ForgedSource => "forged_source",
    /// Destination is in 01:80:C2:00:00:00 to :0F, which a bridge does not forward (IEEE 802.1Q clause 8.6.3).
    LinkLocalControl => "link_local_control",
    /// The port sent a spanning tree frame although a guard forbids it, and is disabled since.
    BpduGuard => "bpdu_guard",
    /// The operator took the port down.
    AdminDown => "admin_down",
    /// More broadcast frames per second than the port may send.
    StormBroadcast => "storm_broadcast",
    /// More multicast frames per second than the port may send.
    StormMulticast => "storm_multicast",
    /// More frames per second to unknown stations than the port may send.
    StormUnknownUnicast => "storm_unknown_unicast",
    /// The port already learned as many addresses as it may.
    LearnLimit => "learn_limit",
    /// No port has this unicast destination and none takes unknown unicast.
    UnknownUnicast => "unknown_unicast",
    /// The destination is the port the frame came from.
    SamePort => "same_port",
    /// Source and destination are isolated from each other.
    Isolated => "isolated",
    /// A group frame that no other port takes.
    NoReceiver => "no_receiver",
    /// The shaper's queue was over its bound.
    ShaperQueueFull => "shaper_queue_full",
    /// The egress queue of an unshaped port was over its bound.
    EgressQueueFull => "egress_queue_full",
    /// The port held more than its share of the worker's frame buffers.
    BufferQuota => "buffer_quota",
    /// The ring to the worker that owns the egress port was full.
    WorkerRingFull => "worker_ring_full",
    /// Longer than the egress port's MTU, and not a super-frame that can be segmented.
    MtuExceeded => "mtu_exceeded",
    /// The egress port is not there or is down.
    PortDown => "port_down",
    /// The device refused the frame.
    DeviceError => "device_error",
    /// A super-frame of a kind that cannot be segmented in software.
    UnsupportedOffload => "unsupported_offload",
    /// The port was removed or the switch stopped while the frame waited.
    Flushed => "flushed",
}

impl DropReason {
    /// Index into per-reason tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
