//! The ports of the running switch: opened, looked after while they run, tried again, closed.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::Arc;

use lockgate_dataplane::id::PortId;
use lockgate_dataplane::worker::{WorkerGone, Workers};
use parking_lot::RwLock;

use super::health::{Finding, Held, Interfaces};
use super::lanes::Lanes;
use super::{DaemonError, devices};
use crate::host::{self, Edge, Link, PreparedPort, Teardown};
use crate::status::{PortLife, PortStatus};
use crate::topology::{PortKind, Topology};

/// A port that keeps failing is tried every 2^MOST_FAILURES rounds, 16 s: each try changes the host a little.
const MOST_FAILURES: u32 = 5;

/// The running switch and what keeps its ports.
pub struct Switch {
    /// What was applied.
    pub topology: Arc<Topology>,
    /// `None` from the moment the switch stops.
    pub workers: Arc<RwLock<Option<Workers>>>,
    /// What the ports steered by tc share.
    pub lanes: Lanes,
    ports: BTreeMap<PortId, Port>,
    /// Ports whose status changed since [`Switch::take_changes`].
    changed: Vec<PortId>,
}

/// One port as the daemon sees it.
struct Port {
    status: PortStatus,
    hold: Option<Hold>,
    /// Failures in a row.
    failures: u32,
    /// Rounds of trying again in which it is left alone.
    skip: u32,
}

/// What a port has on the host.
struct Hold {
    held: Held,
    /// It has a device. One that was set down has none.
    is_open: bool,
    teardown: Teardown,
}

impl Switch {
    /// Opens the prepared ports. One that fails is tried again later; the others run.
    pub fn open(
        topology: Topology,
        workers: Arc<RwLock<Option<Workers>>>,
        lanes: Lanes,
        prepared: Vec<PreparedPort>,
    ) -> Self {
        let topology = Arc::new(topology);
        let mut switch = Self { topology, workers, lanes, ports: BTreeMap::new(), changed: Vec::new() };
        for port in prepared {
            switch.take_on(port);
        }
        switch
    }

    /// The state of every port, by [`PortId`].
    pub fn statuses(&self) -> Vec<PortStatus> {
        self.ports.values().map(|port| port.status.clone()).collect()
    }

    /// The ports whose state changed since the last call.
    pub fn take_changes(&mut self) -> Vec<(PortId, PortStatus)> {
        let mut changed = take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        changed.into_iter().map(|port| (port, self.ports[&port].status.clone())).collect()
    }

    /// Compares every port with the host's interfaces and does what that calls for; then tries those that wait.
    pub fn look_after(&mut self) {
        let Some(interfaces) = interfaces() else { return };
        for port in self.topology.clone().port_ids() {
            let Some(hold) = self.ports.get(&port).and_then(|port| port.hold.as_ref()) else { continue };
            let finding = hold.held.assess(&interfaces, hold.is_open, Link::rx_queues);
            self.act(port, finding);
        }
        self.try_again(&interfaces, true);
    }

    /// Lets go of ports whose device says that it is gone, and tries those without one again, the failed ones less and less
    /// often.
    pub fn retry(&mut self) {
        for port in self.gone() {
            self.let_go(port, "its interface was deleted".to_owned());
        }
        if self.ports.values().any(|port| port.hold.is_none())
            && let Some(interfaces) = interfaces()
        {
            self.try_again(&interfaces, false);
        }
    }

    /// A worker that is gone although nobody stopped it.
    pub fn ended_worker(&self) -> Option<WorkerGone> {
        self.workers.read().as_ref().and_then(Workers::ended)
    }

    /// Stops the workers, which closes every device, then undoes what was done to the host.
    pub fn stop(self) -> Result<(), DaemonError> {
        let Some(workers) = self.workers.write().take() else { return Ok(()) };
        let stopped = workers.stop();
        self.lanes.close();
        host::tear_down(
            self.ports.into_values().filter_map(|port| port.hold).map(|hold| hold.teardown).collect(),
        );
        let stopped = stopped.map_err(|error| DaemonError::new("a worker did not stop cleanly", &error))?;
        let outstanding: usize = stopped.iter().map(|worker| worker.outstanding).sum();
        if outstanding != 0 {
            return Err(DaemonError(format!("{outstanding} frame buffers are lost: please report this")));
        }
        let errors: i64 = stopped.iter().map(|worker| worker.accounting_error.abs()).sum();
        if errors != 0 {
            return Err(DaemonError(format!("{errors} frames are unaccounted for: please report this")));
        }
        Ok(())
    }

    fn act(&mut self, port: PortId, finding: Finding) {
        let Some(Port { status, hold: Some(hold), .. }) = self.ports.get(&port) else { return };
        let (is_open, is_up) = (hold.is_open, status.life == PortLife::Up);
        match finding {
            Finding::Gone(reason) => self.let_go(port, reason),
            Finding::SetDown if is_open => self.set_down(port),
            Finding::SetDown => {}
            Finding::Changed(held, reason) => {
                tracing::info!(port = self.name(port), reason, "opening the port's device again");
                self.reopen(port, held);
            }
            Finding::Fine | Finding::NoCarrier if !is_open => {
                let held = hold.held.clone();
                self.reopen(port, held);
                if finding == Finding::NoCarrier {
                    self.set_carrier(port, false);
                }
            }
            Finding::Fine if !is_up => self.set_carrier(port, true),
            Finding::NoCarrier if is_up => self.set_carrier(port, false),
            Finding::Fine | Finding::NoCarrier => {}
        }
    }

    /// Opens the device of a prepared port and gives it to its worker.
    fn take_on(&mut self, prepared: PreparedPort) {
        let PreparedPort { port, edge, teardown } = prepared;
        let (status, hold) = match (Held::of(&edge), edge) {
            (Some(held), edge) => match devices::open(port, edge, &self.workers, &self.lanes) {
                Ok(status) => (status, Some(Hold { held, is_open: true, teardown })),
                Err(reason) => (PortStatus::failed(reason), None),
            },
            (None, Edge::Waiting(reason)) => (PortStatus::waiting(reason.to_string()), None),
            (None, _) => (PortStatus::failed("it has no interface".to_owned()), None),
        };
        self.note(port, status, hold);
    }

    /// Opens the port's interface anew, as it is now.
    fn reopen(&mut self, port: PortId, held: Held) {
        self.close(port);
        let Some(teardown) = self.take_hold(port).map(|hold| hold.teardown) else { return };
        let Some(edge) = held.edge() else { return };
        self.take_on(PreparedPort { port, edge, teardown });
    }

    /// The interface is another one's, or nobody's: whatever was done for the port is undone, and it waits.
    fn let_go(&mut self, port: PortId, reason: String) {
        self.close(port);
        drop(self.take_hold(port));
        self.note(port, PortStatus::waiting(reason), None);
    }

    fn set_down(&mut self, port: PortId) {
        self.close(port);
        let Some(hold) = self.take_hold(port) else { return };
        let mut status = self.ports[&port].status.clone();
        status.life =
            PortLife::Down(format!("the interface was set down: `ip link set {} up`", status.interface));
        self.note(port, status, Some(Hold { is_open: false, ..hold }));
    }

    fn set_carrier(&mut self, port: PortId, carrier: bool) {
        if let Some(workers) = self.workers.read().as_ref()
            && let Err(error) = workers.set_carrier(port, carrier, self.ports[&port].status.mac)
        {
            tracing::error!(%error);
            return;
        }
        let hold = self.take_hold(port);
        let mut status = self.ports[&port].status.clone();
        status.life = match carrier {
            true => PortLife::Up,
            false => PortLife::Down("no carrier: nobody is at the other end, or it is down".to_owned()),
        };
        self.note(port, status, hold);
    }

    fn close(&self, port: PortId) {
        if let Some(workers) = self.workers.read().as_ref()
            && let Err(error) = workers.detach(port)
        {
            tracing::error!(%error);
        }
    }

    fn take_hold(&mut self, port: PortId) -> Option<Hold> {
        self.ports.get_mut(&port).and_then(|port| port.hold.take())
    }

    fn gone(&self) -> Vec<PortId> {
        let holds_tap = |port: &Port| port.hold.as_ref().is_some_and(|hold| hold.held == Held::Tap);
        if !self.ports.values().any(holds_tap) {
            return Vec::new();
        }
        self.workers.read().as_ref().and_then(|workers| workers.gone().ok()).unwrap_or_default()
    }

    /// Tries ports that have nothing: on a `hint` that something has changed those that wait, else all whose time has come.
    fn try_again(&mut self, interfaces: &Interfaces, hint: bool) {
        for port in self.topology.clone().port_ids() {
            if self.is_due(port, interfaces, hint) {
                self.try_port(port);
            }
        }
    }

    fn is_due(&mut self, id: PortId, interfaces: &Interfaces, hint: bool) -> bool {
        let Some(port) = self.ports.get_mut(&id).filter(|port| port.hold.is_none()) else { return false };
        match &port.status.life {
            PortLife::Waiting(_) => match &self.topology.ports[id.index()].kind {
                PortKind::Netdev { interface, .. } => interfaces.contains(interface),
                _ => true,
            },
            _ if hint => false,
            _ if port.skip > 0 => {
                port.skip -= 1;
                false
            }
            _ => true,
        }
    }

    fn try_port(&mut self, port: PortId) {
        match host::prepare(&self.topology, &[port]) {
            Ok(prepared) => prepared.into_iter().for_each(|port| self.take_on(port)),
            Err(errors) => {
                let reasons: Vec<_> = errors.iter().map(|error| devices::chain(error)).collect();
                let reason = reasons.join("; ");
                let status = match errors.iter().all(host::HostError::is_absence) {
                    true => PortStatus::waiting(reason),
                    false => PortStatus::failed(reason),
                };
                self.note(port, status, None);
            }
        }
    }

    /// Notes how a port stands, and says so once.
    fn note(&mut self, port: PortId, status: PortStatus, hold: Option<Hold>) {
        let before = self.ports.get(&port);
        if before.map(|before| &before.status) != Some(&status) {
            self.changed.push(port);
        }
        if before.map(|before| &before.status.life) != Some(&status.life) {
            tracing::info!(port = self.name(port), interface = status.interface, state = %status.life, "port");
        }
        let failures = match status.life {
            PortLife::Failed(_) => before.map_or(0, |before| before.failures) + 1,
            _ => 0,
        };
        let skip = (1 << failures.min(MOST_FAILURES)) - 1;
        self.ports.insert(port, Port { status, hold, failures, skip });
    }

    fn name(&self, port: PortId) -> &str {
        &self.topology.ports[port.index()].name
    }
}

fn interfaces() -> Option<Interfaces> {
    host::links()
        .inspect_err(|error| tracing::error!(%error, "cannot look at the host's interfaces"))
        .ok()
        .map(Interfaces::new)
}
