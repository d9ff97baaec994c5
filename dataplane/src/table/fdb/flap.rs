//! Addresses that go back and forth between two ports: a copied machine, a loop, a thief.
//!
//! An address that moves is followed with its first frame, as a machine that was moved expects. One that moved
//! [`FLAP_MOVES`] times within [`FLAP_WINDOW`] stays where it is until the window is over. So a flapping address costs a
//! bounded number of table events, and whoever has it keeps it for a moment. The first ones of every report are kept
//! for the control side, which names them in the log.

use arrayvec::ArrayVec;

use crate::frame::mac::MacAddr;
use crate::frame::vlan::VlanId;
use crate::id::PortId;
use crate::time::{Instant, Nanos};

/// Time in which moves are counted.
pub const FLAP_WINDOW: Nanos = Nanos::from_secs(1);
/// Moves of one address that are followed in a window.
pub const FLAP_MOVES: u8 = 5;
/// Addresses that one report names at most.
const REPORTED: usize = 16;

/// An address that was seen at two ports in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flap {
    /// Its VLAN.
    pub vlan: VlanId,
    /// The address.
    pub mac: MacAddr,
    /// Where the table has it.
    pub at: PortId,
    /// Where it was seen as well.
    pub also_at: PortId,
}

/// How often an entry moved in the present window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moves {
    since: Instant,
    count: u8,
}

/// What the next report says.
#[derive(Debug, Default)]
pub(super) struct FlapLog {
    flaps: ArrayVec<Flap, REPORTED>,
    more: u64,
}

impl Moves {
    pub(super) fn may_move(self, now: Instant) -> bool {
        self.count < FLAP_MOVES || self.is_over(now)
    }

    pub(super) fn note(&mut self, now: Instant) {
        if self.count == 0 || self.is_over(now) {
            *self = Self { since: now, count: 0 };
        }
        self.count = self.count.saturating_add(1);
    }

    fn is_over(self, now: Instant) -> bool {
        now.saturating_since(self.since) >= FLAP_WINDOW
    }
}

impl FlapLog {
    /// Keeps each address once.
    pub(super) fn note(&mut self, flap: Flap) {
        let is_same = |other: &Flap| (other.vlan, other.mac) == (flap.vlan, flap.mac);
        if !self.flaps.iter().any(is_same) && self.flaps.try_push(flap).is_err() {
            self.more = self.more.saturating_add(1);
        }
    }

    pub(super) fn take(&mut self) -> (Vec<Flap>, u64) {
        (self.flaps.drain(..).collect(), std::mem::take(&mut self.more))
    }
}
