//! An entry of the MAC table.

use crate::frame::mac::MacAddr;
use crate::frame::vlan::VlanId;
use crate::id::PortId;
use crate::time::{Instant, Nanos};

use super::flap::Moves;

/// An entry of the table, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbRow {
    /// The VLAN the address is in.
    pub vlan: VlanId,
    /// The address.
    pub mac: MacAddr,
    /// The port it is behind.
    pub port: PortId,
    /// Never moves, never ages.
    pub is_static: bool,
    /// Time since it was last seen as a source; zero for a static entry.
    pub idle: Nanos,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) vlan: VlanId,
    pub(super) mac: MacAddr,
    pub(super) port: PortId,
    pub(super) origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Configuration.
    Configured,
    /// The first source of a port that takes just one.
    Pinned,
    /// A source address.
    Learned {
        /// When it was last seen.
        last_used: Instant,
        /// When the other workers were last told, or told us.
        announced: Instant,
        /// How often it moved of late.
        moves: Moves,
    },
}

/// VLAN and address in one integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key(u64);

impl Entry {
    /// The entry as it is shown at `now`.
    pub(super) fn row(&self, now: Instant) -> FdbRow {
        let idle = match self.origin {
            Origin::Learned { last_used, .. } => now.saturating_since(last_used),
            Origin::Configured | Origin::Pinned => Nanos::ZERO,
        };
        FdbRow { vlan: self.vlan, mac: self.mac, port: self.port, is_static: !self.origin.is_learned(), idle }
    }
}

impl Origin {
    pub(super) const fn is_learned(self) -> bool {
        matches!(self, Self::Learned { .. })
    }
}

impl Key {
    pub(super) const fn new(vlan: VlanId, mac: MacAddr) -> Self {
        Self((vlan.get() as u64) << 48 | mac.to_u64())
    }

    pub(super) const fn of(entry: &Entry) -> Self {
        Self::new(entry.vlan, entry.mac)
    }
}
