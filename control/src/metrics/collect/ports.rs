//! Ports, their groups and their classes.

use lockgate_dataplane::counters::Cast;
use lockgate_dataplane::id::{ClassId, Direction, GroupId};
use lockgate_dataplane::verdict::DropReason;

use crate::metrics::names;
use crate::metrics::page::Page;
use crate::status::totals::DirectionTotals;
use crate::status::{PortLife, PortStatus, Running, vlan_text};
use crate::topology::Port;

/// Reasons that have a series from the start, so that the first drop shows as an increase.
const USUAL: [DropReason; 8] = [
    DropReason::VlanNotAllowed,
    DropReason::ForgedSource,
    DropReason::UnknownUnicast,
    DropReason::ShaperQueueFull,
    DropReason::EgressQueueFull,
    DropReason::BufferQuota,
    DropReason::MtuExceeded,
    DropReason::PortDown,
];

/// Adds what there is to say about every port and group.
pub fn collect(page: &mut Page, running: &Running) {
    let (topology, totals) = (&running.topology, running.totals());
    for ((id, port), status) in topology.port_ids().zip(&topology.ports).zip(running.ports()) {
        device(page, running, port, &status);
        for direction in Direction::ALL {
            traffic(page, &port.name, direction, &totals.direction(id, direction));
        }
        for (class, name) in (0..).map(ClassId).zip(&topology.class_names) {
            let queue = totals.class(id, class);
            page.count(&names::QUEUE_BYTES, &[&port.name, name], queue.bytes);
            page.count(&names::QUEUE_DROPS, &[&port.name, name], queue.drops);
            page.count(&names::QUEUE_DEPTH, &[&port.name, name], queue.depth_bytes);
        }
    }
    for (id, group) in (0..).map(GroupId).zip(&topology.groups) {
        for direction in Direction::ALL {
            let total = totals.directions(topology.members(id).map(|(port, _)| port), direction);
            let labels = [group.name.as_str(), direction.name()];
            page.count(&names::PORT_GROUP_FRAMES, &labels, total.all_frames());
            page.count(&names::PORT_GROUP_BYTES, &labels, total.bytes);
            for reason in reasons(&total) {
                let labels = [group.name.as_str(), direction.name(), reason.name()];
                page.count(&names::PORT_GROUP_DROPS, &labels, total.drops[reason.index()]);
            }
        }
    }
}

fn device(page: &mut Page, running: &Running, port: &Port, status: &PortStatus) {
    let group = &running.topology.groups[port.group.index()];
    let facts = [
        running.topology.name.as_str(),
        &port.name,
        &group.name,
        port.kind.name(),
        status.driver,
        status.xdp_mode.unwrap_or_default(),
        if status.zerocopy { "true" } else { "false" },
        &vlan_text(&group.vlan),
        &status.interface,
    ];
    page.count(&names::PORT_INFO, &facts, 1);
    page.count(&names::PORT_UP, &[&port.name], (status.life == PortLife::Up).into());
    for state in PortLife::NAMES {
        page.count(&names::PORT_STATE, &[&port.name, state], (status.life.name() == state).into());
    }
    if status.mtu_bytes > 0 {
        page.count(&names::PORT_MTU, &[&port.name], status.mtu_bytes.into());
    }
}

fn traffic(page: &mut Page, port: &str, direction: Direction, total: &DirectionTotals) {
    for cast in Cast::ALL {
        let labels = [port, direction.name(), cast.name()];
        page.count(&names::PORT_FRAMES, &labels, total.frames[cast as usize]);
    }
    page.count(&names::PORT_BYTES, &[port, direction.name()], total.bytes);
    for reason in reasons(total) {
        let labels = [port, direction.name(), reason.name()];
        page.count(&names::PORT_DROPS, &labels, total.drops[reason.index()]);
        page.count(&names::PORT_DROPPED_BYTES, &labels, total.dropped_bytes[reason.index()]);
    }
}

/// The reasons that occurred, and the usual ones.
fn reasons(total: &DirectionTotals) -> impl Iterator<Item = DropReason> {
    let occurred = |reason: &DropReason| total.drops[reason.index()] > 0;
    DropReason::ALL.iter().copied().filter(move |reason| occurred(reason) || USUAL.contains(reason))
}
