//! Dense integers the frame path uses instead of names. Names end at configuration.

use std::fmt;

use crate::state::MAX_CLASSES;

/// A port of the switch, an index into [`crate::state::ForwardingState::ports`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

/// A port group, an index into the topology's groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u16);

/// A traffic class, an index into [`crate::state::ClassTable::classes`]; there are at most
/// [`crate::state::MAX_CLASSES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u8);

/// A worker thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u8);

impl PortId {
    /// The index of this port in per-port tables.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl GroupId {
    /// The index of this group in per-group tables.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl ClassId {
    /// Every class a switch can have.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..).map(Self).take(MAX_CLASSES)
    }

    /// The index of this class in per-class tables.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl WorkerId {
    /// The index of this worker in per-worker tables.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Direction relative to the switch, as VMware and Open vSwitch say it. Kubernetes and libvirt mean the reverse, so it
/// always prints with its arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the workload into the switch (port → switch).
    Ingress,
    /// From the switch to the workload (switch → port).
    Egress,
}

impl Direction {
    /// Both directions, in the order of their index.
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    /// Index into per-direction tables.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The word alone, for metric labels and YAML keys.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ingress => "ingress (port → switch)",
            Self::Egress => "egress (switch → port)",
        })
    }
}
