//! Learn where the source is, find where the destination is (IEEE 802.1Q-2018 clauses 8.7 and 8.8).
//!
//! A unicast frame whose destination is in the table of its VLAN goes to that port. It is dropped if that is the port
//! it came from, or if the two are isolated from each other. An unknown unicast destination goes to the ports that take
//! such frames; by default workload ports do not, their addresses being pinned, so nobody overhears a conversation
//! because a table entry aged out. A group frame goes to every port that carries the VLAN. Never to its port of origin.

use crate::frame::Frame;
use crate::id::PortId;
use crate::state::{BeyondLimit, ForwardingState, SourcePolicy};
use crate::table::fdb::{Fdb, Learned};
use crate::time::Instant;
use crate::verdict::DropReason;

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To one port.
    Port(PortId),
    /// To every port of the ingress port's flood list that carries the VLAN and, if the destination is a station, takes
    /// unknown unicast.
    Flood {
        /// The destination is a station nobody knows.
        unknown_unicast: bool,
    },
    /// Nowhere.
    Drop(DropReason),
}

/// What the other workers should be told about a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announce {
    /// Nothing: they know.
    Nothing,
    /// The address is behind the frame's ingress port.
    Learned,
    /// The address is pinned to the frame's ingress port.
    Pinned,
}

/// Enters the frame's source into the table as its port's policy says.
pub fn learn(now: Instant, frame: &Frame, policy: &SourcePolicy, fdb: &mut Fdb) -> Result<Announce, DropReason> {
    let (vlan, source, port) = (frame.vlan, frame.source(), frame.ingress);
    match policy {
        SourcePolicy::Pinned(_) => Ok(Announce::Nothing),
        SourcePolicy::FirstSeen if fdb.lookup(vlan, source) == Some(port) => Ok(Announce::Nothing),
        SourcePolicy::FirstSeen if fdb.pin(vlan, source, port) => Ok(Announce::Pinned),
        SourcePolicy::FirstSeen => Err(DropReason::ForgedSource),
        SourcePolicy::Learn { limit, beyond } => match fdb.learn(now, vlan, source, port, *limit) {
            Learned::Refreshed { announce: false } => Ok(Announce::Nothing),
            Learned::New | Learned::Moved { .. } | Learned::Refreshed { announce: true } => Ok(Announce::Learned),
            // The address of a pinned port is nobody else's.
            Learned::StaticElsewhere(_) => Err(DropReason::ForgedSource),
            Learned::TableFull => Ok(Announce::Nothing),
            Learned::PortLimit => match beyond {
                BeyondLimit::Forward => Ok(Announce::Nothing),
                BeyondLimit::Drop => Err(DropReason::LearnLimit),
            },
        },
    }
}

/// Finds where the frame goes.
pub fn lookup(frame: &Frame, state: &ForwardingState, fdb: &Fdb) -> Destination {
    let destination = frame.destination();
    if destination.is_group() {
        return Destination::Flood { unknown_unicast: false };
    }
    match fdb.lookup(frame.vlan, destination) {
        None => Destination::Flood { unknown_unicast: true },
        Some(port) if port == frame.ingress => Destination::Drop(DropReason::SamePort),
        Some(port) if !state.may_exchange(frame.ingress, port) => Destination::Drop(DropReason::Isolated),
        Some(port) => Destination::Port(port),
    }
}

/// Whether `egress`, a port of the ingress port's flood list, takes a copy of the frame.
pub fn takes_copy(frame: &Frame, unknown_unicast: bool, egress: PortId, state: &ForwardingState) -> bool {
    let port = state.port(egress);
    port.vlan.carries(frame.vlan) && (!unknown_unicast || port.takes_unknown_unicast)
}
