//! `lockgate run`: from a topology file to a running switch, and back to a host without a trace of it.
//!
//! Order of start: read the file, check and prepare the host (all or nothing), start the workers, open the devices,
//! serve. Order of stop, the reverse: devices first, so that no program and no socket is left, then the workers, then
//! what was made on the host.

mod devices;
pub mod lanes;
mod pools;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lockgate_dataplane::id::PortId;
use lockgate_dataplane::worker::Workers;
use parking_lot::RwLock;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::config::{self, Loaded};
use crate::host::{self, Edge, PreparedPort, Teardown};
use crate::status::{PortLife, PortStatus, Running};
use crate::topology::{self, Topology};
use crate::{api, compile, metrics};

use lanes::Lanes;

/// How often ports that wait for their interface are tried again.
const RETRY: Duration = Duration::from_millis(500);

/// How often addresses that go back and forth between ports are named in the log.
const FLAP_REPORT: Duration = Duration::from_secs(10);

/// A port that keeps failing is tried every 2^MOST_FAILURES rounds of [`RETRY`], 16 s: each try changes the host a little.
const MOST_FAILURES: u32 = 5;

/// Why the daemon did not start or did not stop cleanly. The text says everything; it may span lines.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DaemonError(String);

impl DaemonError {
    fn new(what: &str, error: &dyn std::error::Error) -> Self {
        Self(format!("{what}: {}", devices::chain(error)))
    }
}

/// Runs the switch until SIGTERM or SIGINT.
///
/// # Errors
/// If the file is faulty, the host refuses something, or an address is taken; then nothing is left changed.
pub fn run(file: &Path) -> Result<(), DaemonError> {
    let loaded = config::load(file).map_err(|report| DaemonError(report.render(false)))?;
    if !loaded.warnings.is_empty() {
        tracing::warn!("{}", loaded.warnings.render(false));
    }
    // The servers get a thread of their own: preparing the host for a port blocks this one for a moment.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| DaemonError::new("cannot start the control side", &error))?;
    runtime.block_on(serve(loaded))
}

async fn serve(loaded: Loaded) -> Result<(), DaemonError> {
    // First of all: a signal during the start must wait for a clean stop, not kill half a switch.
    let mut stop = StopSignals::new()?;
    let topology = loaded.topology;
    let api_listener =
        api::listen(&topology.api_socket).map_err(|error| DaemonError(devices::chain(&error)))?;
    let _name = claim_name(&topology.name)?;
    let metrics_listener = metrics::listen(topology.metrics_listen)
        .await
        .map_err(|error| DaemonError(devices::chain(&error)))?;
    let mut switch = start(topology)?;
    let topology = switch.topology.clone();
    let running = Running::new(topology.clone(), switch.workers.clone(), &loaded.hash, switch.statuses());
    let running = Arc::new(running.with_lanes(switch.lanes.clone()));
    tokio::spawn(api::serve(api_listener, running.clone()));
    tokio::spawn(metrics::serve(metrics_listener, running.clone()));
    tracing::info!(
        switch = topology.name,
        ports = topology.ports.len(),
        metrics = %topology.metrics_listen,
        socket = %topology.api_socket.display(),
        "running"
    );
    let mut retry = interval(RETRY);
    retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut flaps = interval(FLAP_REPORT);
    flaps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            name = stop.received() => {
                tracing::info!(signal = name, "stopping");
                break;
            }
            _ = flaps.tick() => running.log_flaps(),
            _ = retry.tick() => {
                for port in switch.retry() {
                    running.set_port(port, switch.ports[&port].status.clone());
                }
            }
        }
    }
    api::remove(&topology.api_socket);
    switch.stop()
}

/// The running switch and what keeps its ports.
struct Switch {
    topology: Arc<Topology>,
    workers: Arc<RwLock<Option<Workers>>>,
    lanes: Lanes,
    ports: HashMap<PortId, Port>,
}

/// One port as the daemon sees it.
struct Port {
    status: PortStatus,
    /// Present while the host is prepared for the port.
    teardown: Option<Teardown>,
    /// Failures in a row.
    failures: u32,
    /// Rounds of [`RETRY`] to leave it alone.
    skip: u32,
}

/// Takes the switch's name in this network namespace, for as long as the listener lives: interfaces are named after it, so
/// a second daemon would take them for what an earlier run left.
fn claim_name(name: &str) -> Result<UnixListener, DaemonError> {
    SocketAddr::from_abstract_name(format!("lockgate/{name}"))
        .and_then(|address| UnixListener::bind_addr(&address))
        .map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => DaemonError(format!(
                "a switch called {name} runs in this network namespace: stop it, or set another `switch: {{ name: … }}`"
            )),
            _ => DaemonError::new("cannot claim the switch's name", &error),
        })
}

fn start(mut topology: Topology) -> Result<Switch, DaemonError> {
    host::remove_orphans(&topology).map_err(|error| DaemonError::new("cannot look at the host", &error))?;
    let all: Vec<PortId> = topology.port_ids().collect();
    let prepared = host::prepare(&topology, &all).map_err(|errors| {
        let lines: Vec<_> = errors.iter().map(|error| devices::chain(error)).collect();
        DaemonError(lines.join("\n"))
    })?;
    let macs: Vec<_> = prepared.iter().map(|port| devices::far_mac(&port.edge)).collect();
    // An interface that has to be made again gets the address that was pinned, not another one of the kernel's choice.
    topology.keep_addresses(&macs);
    let count = worker_count(&topology);
    let state = Arc::new(compile::compile(&topology, &macs, count));
    let pools = vec![pools::pool_size(&state, count); usize::from(count)];
    let workers =
        Workers::start(&state, &pools).map_err(|error| DaemonError::new("cannot start workers", &error))?;
    let workers = Arc::new(RwLock::new(Some(workers)));
    let lanes = Lanes::new(&topology.name);
    let mut switch = Switch { topology: Arc::new(topology), workers, lanes, ports: HashMap::new() };
    for port in prepared {
        switch.open(port);
    }
    Ok(switch)
}

impl Switch {
    /// Opens the device of a prepared port and gives it to its worker. A port that fails is tried again later; the
    /// others run.
    fn open(&mut self, prepared: PreparedPort) {
        let PreparedPort { port, edge, teardown } = prepared;
        let (status, teardown) = match edge {
            Edge::Waiting(reason) => (PortStatus::waiting(reason.to_string()), None),
            edge => match devices::open(port, edge, &self.workers, &self.lanes) {
                Ok(status) => (status, Some(teardown)),
                Err(reason) => (PortStatus::failed(reason), None),
            },
        };
        self.note(port, status, teardown);
    }

    /// Notes how a port stands, and says so once.
    fn note(&mut self, port: PortId, status: PortStatus, teardown: Option<Teardown>) {
        let before = self.ports.get(&port);
        if before.map(|before| &before.status.life) != Some(&status.life) {
            let name = &self.topology.ports[port.index()].name;
            tracing::info!(port = name, interface = status.interface, state = %status.life, "port");
        }
        let failures = match status.life {
            PortLife::Failed(_) => before.map_or(0, |before| before.failures) + 1,
            PortLife::Up | PortLife::Waiting(_) | PortLife::Disabled(_) => 0,
        };
        let skip = (1 << failures.min(MOST_FAILURES)) - 1;
        self.ports.insert(port, Port { status, teardown, failures, skip });
    }

    /// Tries the ports that wait or failed again, the failed ones less and less often; those that were tried.
    fn retry(&mut self) -> Vec<PortId> {
        let mut due = Vec::new();
        for (id, port) in self.ports.iter_mut().filter(|(_, port)| port.teardown.is_none()) {
            match port.skip {
                0 => due.push(*id),
                _ => port.skip -= 1,
            }
        }
        for port in &due {
            match host::prepare(&self.topology, &[*port]) {
                Ok(prepared) => prepared.into_iter().for_each(|port| self.open(port)),
                Err(errors) => {
                    let reasons: Vec<_> = errors.iter().map(|error| devices::chain(error)).collect();
                    self.note(*port, PortStatus::failed(reasons.join("; ")), None);
                }
            }
        }
        due
    }

    fn statuses(&self) -> Vec<PortStatus> {
        self.topology.port_ids().map(|port| self.ports[&port].status.clone()).collect()
    }

    /// Stops the workers, which closes every device, then undoes what was done to the host.
    fn stop(self) -> Result<(), DaemonError> {
        let Some(workers) = self.workers.write().take() else { return Ok(()) };
        let stopped = workers.stop();
        self.lanes.close();
        host::tear_down(self.ports.into_values().filter_map(|port| port.teardown).collect());
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
}

/// SIGTERM and SIGINT.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn new() -> Result<Self, DaemonError> {
        let listen =
            |kind| signal(kind).map_err(|error| DaemonError::new("cannot listen for signals", &error));
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn received(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

fn worker_count(topology: &Topology) -> u8 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    match topology.workers {
        topology::Workers::Count(count) => count,
        topology::Workers::Auto => u8::try_from((processors / 2).clamp(1, topology.ports.len().max(1)))
            .unwrap_or(topology::MAX_WORKERS),
    }
}
