//! What the API says, made from the running switch.

use lockgate_dataplane::id::{Direction, GroupId, PortId};
use lockgate_dataplane::verdict::DropReason;

use crate::status::totals::DirectionTotals;
use crate::status::{COMMIT, NotServing, PortLife, Running, VERSION, vlan_text};
use crate::topology::Origin;

use super::types::{Drop, Fdb, FdbEntry, Group, Port, Shaper, Status, Traffic};

/// The daemon.
pub fn status(running: &Running) -> Status {
    let topology = &running.topology;
    Status {
        version: VERSION.to_owned(),
        commit: COMMIT.to_owned(),
        switch: topology.name.clone(),
        config_hash: running.config.hash.clone(),
        config_generation: running.config.generation,
        workers: running.workers().len(),
        ports: topology.ports.len(),
        ports_up: running.ports().iter().filter(|port| port.life == PortLife::Up).count(),
        accounting_error_frames: running.totals().accounting_error_frames(),
    }
}

/// Every port, in the order of the file.
pub fn ports(running: &Running) -> Vec<Port> {
    let (topology, totals) = (&running.topology, running.totals());
    let described = topology.port_ids().zip(&topology.ports).zip(running.ports());
    let port = |((id, port), status): ((PortId, &crate::topology::Port), crate::status::PortStatus)| {
        let group = &topology.groups[port.group.index()];
        Port {
            name: port.name.clone(),
            group: group.name.clone(),
            kind: port.kind.name().to_owned(),
            state: status.life.name().to_owned(),
            reason: status.life.reason().map(str::to_owned),
            interface: Some(status.interface).filter(|name| !name.is_empty()),
            driver: Some(status.driver.to_owned()).filter(|name| !name.is_empty()),
            xdp_mode: status.xdp_mode.map(str::to_owned),
            zerocopy: status.zerocopy,
            vlan: vlan_text(&group.vlan),
            mtu_bytes: Some(status.mtu_bytes).filter(|bytes| *bytes > 0),
            mac: status.mac.map(|mac| mac.to_string()),
            ingress: totals.direction(id, Direction::Ingress).into(),
            egress: totals.direction(id, Direction::Egress).into(),
        }
    };
    described.map(port).collect()
}

/// Every group, in the order of the file.
pub fn groups(running: &Running) -> Vec<Group> {
    let (topology, totals, states) = (&running.topology, running.totals(), running.ports());
    let is_up = |port: PortId| states.get(port.index()).is_some_and(|status| status.life == PortLife::Up);
    let group = |(id, group): (GroupId, &crate::topology::PortGroup)| {
        let members: Vec<PortId> = topology.members(id).map(|(port, _)| port).collect();
        Group {
            name: group.name.clone(),
            vlan: vlan_text(&group.vlan),
            isolated: group.isolated,
            ports: members.len(),
            ports_up: members.iter().filter(|port| is_up(**port)).count(),
            ingress: totals.directions(members.iter().copied(), Direction::Ingress).into(),
            egress: totals.directions(members, Direction::Egress).into(),
        }
    };
    (0..).map(GroupId).zip(&topology.groups).map(group).collect()
}

/// The MAC table. Blocks until a worker answers.
///
/// # Errors
/// If the switch is stopping or the worker is gone.
pub fn fdb(running: &Running) -> Result<Fdb, NotServing> {
    let mut rows = running.fdb()?;
    rows.sort_unstable_by_key(|row| (row.vlan, row.mac.0));
    let name = |port: PortId| {
        running.topology.ports.get(port.index()).map_or_else(String::new, |port| port.name.clone())
    };
    let entries = rows.iter().map(|row| FdbEntry {
        vlan: row.vlan.get(),
        mac: row.mac.to_string(),
        port: name(row.port),
        is_static: row.is_static,
        idle_seconds: (!row.is_static).then(|| row.idle.as_secs_f64()),
    });
    Ok(Fdb { limit: running.topology.fdb.capacity, entries: entries.collect() })
}

/// Every shaper, by port and direction.
pub fn shapers(running: &Running) -> Vec<Shaper> {
    let (topology, totals) = (&running.topology, running.totals());
    let mut shapers = Vec::new();
    for (id, port) in topology.port_ids().zip(&topology.ports) {
        for direction in Direction::ALL {
            let Some(limit) = port.shaping(direction) else { continue };
            let total = totals.shaper(id, direction);
            shapers.push(Shaper {
                port: port.name.clone(),
                direction: direction.name().to_owned(),
                set_by: match limit.origin {
                    Origin::Group => "group".to_owned(),
                    Origin::Port => "port".to_owned(),
                },
                average_bits_per_second: limit.shaping.average.get(),
                peak_bits_per_second: limit.shaping.peak.map(|peak| peak.get()),
                burst_bytes: limit.shaping.burst.get(),
                max_delay_seconds: limit.shaping.max_delay.as_secs_f64(),
                overhead_bytes: limit.shaping.overhead.get(),
                credit_bytes: total.credit_bytes,
                queue_bytes: total.queue_bytes,
                queue_frames: total.queue_frames,
                queue_high_water_bytes: total.queue_high_water_bytes,
                delayed_frames: total.delayed_frames,
                throttled_seconds: total.throttled.as_secs_f64(),
            });
        }
    }
    shapers
}

/// Every drop that occurred, by port, direction and reason.
pub fn drops(running: &Running) -> Vec<Drop> {
    let (topology, totals) = (&running.topology, running.totals());
    let mut drops = Vec::new();
    for (id, port) in topology.port_ids().zip(&topology.ports) {
        for direction in Direction::ALL {
            let total = totals.direction(id, direction);
            let occurred = DropReason::ALL.iter().filter(|reason| total.drops[reason.index()] > 0);
            drops.extend(occurred.map(|reason| Drop {
                port: port.name.clone(),
                direction: direction.name().to_owned(),
                reason: reason.name().to_owned(),
                explanation: reason.explanation().trim().to_owned(),
                frames: total.drops[reason.index()],
                bytes: total.dropped_bytes[reason.index()],
            }));
        }
    }
    drops
}

impl From<DirectionTotals> for Traffic {
    fn from(total: DirectionTotals) -> Self {
        Self {
            frames: total.all_frames(),
            bytes: total.bytes,
            dropped_frames: total.all_drops(),
            dropped_bytes: total.all_dropped_bytes(),
        }
    }
}
