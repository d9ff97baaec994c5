//! What a worker reads: the topology with names resolved to dense integers and lists precomputed. Immutable; control
//! builds it and publishes it whole.

pub mod security;

use std::num::NonZeroU8;

use crate::frame::mac::MacAddr;
use crate::frame::vlan::{VlanId, VlanSet};
use crate::id::{ClassId, GroupId, PortId, WorkerId};
use crate::time::Nanos;
use crate::units::{BitsPerSecond, Bytes};

use security::Security;

/// Most traffic classes a switch has.
pub const MAX_CLASSES: usize = 8;

/// The immutable tables of one generation of the topology.
#[derive(Clone, Debug)]
pub struct ForwardingState {
    /// Ports by [`PortId`].
    pub ports: Box<[PortState]>,
    /// Traffic classes and how frames are put into them.
    pub classes: ClassTable,
    /// The MAC table's bounds.
    pub fdb: FdbSettings,
    /// For each port and VLAN-independent of content: who else could receive a group frame from it, by ingress
    /// [`PortId`]. Membership in the frame's VLAN is checked per receiver.
    pub flood: Box<[Box<[PortId]>]>,
    /// The ports of `flood` that also receive unicast frames for others, by ingress [`PortId`].
    pub overhearers: Box<[Box<[PortId]>]>,
}

/// Bounds of the MAC table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbSettings {
    /// Most learned entries; static ones do not count.
    pub capacity: usize,
    /// A learned entry unused for this long is removed.
    pub age: Nanos,
}

/// What a worker knows about a port.
#[derive(Clone, Debug)]
pub struct PortState {
    /// The port's group.
    pub group: GroupId,
    /// The worker that receives from the port and holds its queues.
    pub worker: WorkerId,
    /// Which VLANs, tagged how.
    pub vlan: VlanMode,
    /// An isolated port exchanges no frames with other isolated ports of its group.
    pub isolated: bool,
    /// Which source addresses the port may use.
    pub sources: SourcePolicy,
    /// What the port may do beyond that, and what is kept from the others.
    pub security: Security,
    /// Whether frames to unknown unicast destinations are copied to this port.
    pub takes_unknown_unicast: bool,
    /// Shaping of frames from the port into the switch.
    pub ingress: Option<Shaping>,
    /// Shaping of frames from the switch to the port.
    pub egress: Option<Shaping>,
}

/// Which VLANs a port carries and how (IEEE 802.1Q).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VlanMode {
    /// Untagged on the port, in one VLAN inside the switch. Tagged frames are refused, priority tags (VLAN 0) are not.
    Access(VlanId),
    /// Tagged on the port. Untagged frames belong to `native` where there is one, else they are refused.
    Trunk {
        /// VLANs that may pass, `native` included.
        allowed: VlanSet,
        /// The VLAN that travels untagged.
        native: Option<VlanId>,
    },
}

impl VlanMode {
    /// Whether frames of `vlan` may leave through the port.
    pub fn carries(&self, vlan: VlanId) -> bool {
        match self {
            Self::Access(own) => *own == vlan,
            Self::Trunk { allowed, .. } => allowed.contains(vlan),
        }
    }

    /// Calls `act` for every VLAN of the port.
    pub fn for_each(&self, act: impl FnMut(VlanId)) {
        match self {
            Self::Access(own) => std::iter::once(*own).for_each(act),
            Self::Trunk { allowed, .. } => allowed.iter().for_each(act),
        }
    }

    /// Every VLAN of the port in ascending order.
    pub fn vlans(&self) -> Vec<VlanId> {
        match self {
            Self::Access(own) => vec![*own],
            Self::Trunk { allowed, .. } => allowed.iter().collect(),
        }
    }
}

/// Which source addresses a port may send from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourcePolicy {
    /// Exactly these, entered in the MAC table as static.
    Pinned(Box<[MacAddr]>),
    /// The first one seen becomes the pinned one until the port is detached.
    FirstSeen,
    /// Learned, up to `limit` addresses at a time.
    Learn {
        /// Most addresses of this port in the MAC table.
        limit: usize,
        /// What happens to frames from further addresses.
        beyond: BeyondLimit,
    },
}

/// What happens to a frame whose source address the port may not learn any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeyondLimit {
    /// The frame is dropped.
    Drop,
    /// The frame passes and its source stays unknown.
    Forward,
}

/// VMware's triple for one port and direction, plus how long a frame may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shaping {
    /// Long-term rate.
    pub average: BitsPerSecond,
    /// Rate while a burst is spent; `None` means the burst leaves at line rate.
    pub peak: Option<BitsPerSecond>,
    /// Depth of the credit bucket.
    pub burst: Bytes,
    /// Longest time a frame should wait; bounds the queue.
    pub max_delay: Nanos,
    /// Bytes added to each frame's charged length (FCS, preamble, gap: 24 for Ethernet).
    pub overhead: Bytes,
}

/// Classes in order of rank: strict ones first by rank, then the weighted share what is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassTable {
    /// The classes by [`ClassId`]; at least one, at most [`MAX_CLASSES`].
    pub classes: Box<[Class]>,
    /// Class of a frame with this PCP in its tag.
    pub by_pcp: [Option<ClassId>; 8],
    /// Class of an IP packet with this DSCP.
    pub by_dscp: [Option<ClassId>; 64],
    /// Class of every other frame.
    pub default: ClassId,
}

/// A traffic class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// How the class competes.
    pub service: Service,
}

/// How a class competes for a port's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Served before every class of higher [`ClassId`] and before all weighted ones.
    Strict,
    /// Shares what the strict classes leave, in proportion to `weight` (deficit round robin, Shreedhar and Varghese
    /// 1996).
    Weighted {
        /// 1 to 255.
        weight: NonZeroU8,
    },
}

impl Default for ClassTable {
    fn default() -> Self {
        Self {
            classes: Box::new([Class { service: Service::Weighted { weight: NonZeroU8::MIN } }]),
            by_pcp: [None; 8],
            by_dscp: [None; 64],
            default: ClassId(0),
        }
    }
}

impl ForwardingState {
    /// Builds the state and precomputes the flood lists.
    pub fn new(ports: Vec<PortState>, classes: ClassTable, fdb: FdbSettings) -> Self {
        let flood: Box<[Box<[PortId]>]> =
            (0..ports.len()).map(|ingress| flood_list(&ports, ingress)).collect();
        let overhears = |port: &&PortId| ports[port.index()].security.promiscuous.accepts();
        let overhearers = flood.iter().map(|list| list.iter().filter(overhears).copied().collect()).collect();
        Self { ports: ports.into(), classes, fdb, flood, overhearers }
    }

    /// The state of `port`.
    pub fn port(&self, port: PortId) -> &PortState {
        &self.ports[port.index()]
    }

    /// Whether frames may pass between two ports at all, VLANs apart.
    pub fn may_exchange(&self, from: PortId, to: PortId) -> bool {
        may_exchange(&self.ports, from.index(), to.index())
    }
}

/// Every port that may receive from `ingress` and shares a VLAN with it: never the port itself (IEEE 802.1Q clause
/// 8.6.1), never an isolated one of the same group if `ingress` is isolated.
fn flood_list(ports: &[PortState], ingress: usize) -> Box<[PortId]> {
    let vlans = ports[ingress].vlan.vlans();
    let shares_a_vlan = |port: &PortState| vlans.iter().any(|vlan| port.vlan.carries(*vlan));
    (0..ports.len())
        .filter(|&egress| may_exchange(ports, ingress, egress) && shares_a_vlan(&ports[egress]))
        .filter_map(|egress| u16::try_from(egress).ok().map(PortId))
        .collect()
}

fn may_exchange(ports: &[PortState], from: usize, to: usize) -> bool {
    let (a, b) = (&ports[from], &ports[to]);
    from != to && !(a.isolated && b.isolated && a.group == b.group)
}
