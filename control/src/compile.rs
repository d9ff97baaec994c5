//! From the topology to what a worker reads. Pure: the addresses of far ends, which only the host knows, come in as an
//! argument.

use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::id::WorkerId;
use lockgate_dataplane::state::{ForwardingState, PortState, SourcePolicy};

use crate::topology::{Port, PortKind, Topology};

/// Builds the tables of `topology` for `workers` worker threads (at least one is assumed).
///
/// `macs` holds the address of each port's far end by `PortId`, where it could be read; of an internal port, its own.
/// It may be shorter than the list of ports.
pub fn compile(topology: &Topology, macs: &[Option<MacAddr>], workers: u8) -> ForwardingState {
    let port_states = topology.ports.iter().enumerate().map(|(index, port)| {
        let group = &topology.groups[port.group.index()];
        PortState {
            group: port.group,
            worker: worker_of(index, workers),
            vlan: group.vlan.clone(),
            isolated: group.isolated,
            sources: source_policy(port, macs.get(index).copied().flatten()),
            security: port.security.clone(),
            // A port that pins its addresses has them all in the MAC table: an unknown one is not behind it.
            takes_unknown_unicast: port.learn.is_some(),
            ingress: port.ingress.map(|ingress| ingress.shaping),
            egress: port.egress.map(|egress| egress.shaping),
        }
    });
    ForwardingState::new(port_states.collect(), topology.classes.clone(), topology.fdb)
}

/// Ports go round the workers in the order of the file.
fn worker_of(port_index: usize, workers: u8) -> WorkerId {
    let worker = port_index % usize::from(workers.max(1));
    WorkerId(u8::try_from(worker).unwrap_or_default())
}

/// Learning where it was asked for; else the listed addresses; else that of an interface which Lockgate makes. The far end of
/// an interface that is somebody else's may be another one tomorrow: its address is shown when the port is opened, else it
/// is the first one seen.
fn source_policy(port: &Port, far_end: Option<MacAddr>) -> SourcePolicy {
    if let Some(learn) = port.learn {
        return SourcePolicy::Learn { limit: learn.limit, beyond: learn.beyond };
    }
    if !port.macs.is_empty() {
        return SourcePolicy::Pinned(port.macs.clone().into());
    }
    let is_foreign = matches!(port.kind, PortKind::Netdev { .. });
    match far_end.filter(|_| !is_foreign).or(configured_address(port)) {
        Some(mac) => SourcePolicy::Pinned([mac].into()),
        None => SourcePolicy::FirstSeen,
    }
}

/// The address that Lockgate itself gives to the port's interface.
fn configured_address(port: &Port) -> Option<MacAddr> {
    match &port.kind {
        PortKind::Netdev { .. } => None,
        PortKind::Veth(far_end, _) | PortKind::Tap(far_end) => far_end.interface.mac,
        PortKind::Internal { interface } => interface.mac,
    }
}

#[cfg(test)]
mod tests {
    use lockgate_dataplane::id::{GroupId, PortId};
    use lockgate_dataplane::state::BeyondLimit;

    use super::*;
    use crate::config;

    const TEXT: &str = r#"
version: 1
port_groups:
  web: { vlan: 10, isolated: true, shaping: { port: { egress: { average: 10 Mbit/s } } } }
  lab: { trunk: [10, 20-29], learn: 8 }
ports:
  listed:   { group: web, netdev: tap0, mac: ["52:54:00:00:00:01", "52:54:00:00:00:02"] }
  known:    { group: web, netdev: tap1 }
  unknown:  { group: web, netdev: tap2 }
  set:      { group: web, tap: { netns: a, interface: eth0, mac: "52:54:00:00:00:05" } }
  learning: { group: lab, netdev: tap4 }
  host:     { group: lab, internal: { interface: lg-host } }
"#;

    fn mac(last: u8) -> MacAddr {
        MacAddr([0x52, 0x54, 0, 0, 0, last])
    }

    fn state(workers: u8) -> ForwardingState {
        let topology = config::parse("test.yaml", TEXT).unwrap().topology;
        compile(&topology, &[Some(mac(9)), Some(mac(3)), None, None, Some(mac(9))], workers)
    }

    #[test]
    fn a_port_may_send_from_what_is_known_of_it() {
        let sources: Vec<_> = state(1).ports.iter().map(|port| port.sources.clone()).collect();
        let pinned = |macs: &[u8]| SourcePolicy::Pinned(macs.iter().map(|last| mac(*last)).collect());
        let learn = SourcePolicy::Learn { limit: 8, beyond: BeyondLimit::Drop };
        assert_eq!(
            sources,
            [
                pinned(&[1, 2]),
                SourcePolicy::FirstSeen,
                SourcePolicy::FirstSeen,
                pinned(&[5]),
                learn,
                SourcePolicy::FirstSeen
            ]
        );
    }

    #[test]
    fn only_learning_ports_take_unknown_unicast() {
        let takes: Vec<_> = state(1).ports.iter().map(|port| port.takes_unknown_unicast).collect();
        assert_eq!(takes, [false, false, false, false, true, false]);
    }

    #[test]
    fn ports_go_round_the_workers_and_keep_their_groups_settings() {
        let state = state(4);
        let workers: Vec<_> = state.ports.iter().map(|port| port.worker.0).collect();
        assert_eq!(workers, [0, 1, 2, 3, 0, 1]);
        let port = state.port(PortId(2));
        assert_eq!((port.group, port.isolated), (GroupId(0), true));
        assert_eq!(port.egress.map(|shaping| shaping.average.get()), Some(10_000_000));
        assert_eq!(port.ingress, None);
        assert!(!state.may_exchange(PortId(0), PortId(1)) && state.may_exchange(PortId(0), PortId(4)));
    }

    #[test]
    fn no_workers_at_all_count_as_one() {
        assert!(state(0).ports.iter().all(|port| port.worker == WorkerId(0)));
    }
}
