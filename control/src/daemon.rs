//! `lockgate run`: from a topology file to a running switch, and back to a host without a trace of it.
//!
//! Order of start: read the file, check and prepare the host (all or nothing), start the workers, open the devices,
//! serve. Order of stop, the reverse: devices first, so that no program and no socket is left, then the workers, then
//! what was made on the host.

mod devices;
mod health;
pub mod lanes;
mod pools;
mod ports;

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lockgate_dataplane::worker::Workers;
use parking_lot::RwLock;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::config::{self, Loaded};
use crate::host;
use crate::status::Running;
use crate::topology::{self, Topology};
use crate::{api, compile, metrics};

use lanes::Lanes;
use ports::Switch;

/// How often ports that wait or failed are tried again, whether the host says that something has changed or not.
const RETRY: Duration = Duration::from_millis(500);

/// How often all interfaces are looked at for what the kernel does not tell, such as a program that somebody detached.
const LOOK: Duration = Duration::from_secs(4);

/// How often addresses that go back and forth between ports are named in the log.
const FLAP_REPORT: Duration = Duration::from_secs(10);

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
    // Before the first look, so that no change falls between.
    let interfaces_changed =
        host::watch_links().map_err(|error| DaemonError::new("cannot watch interfaces", &error))?;
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
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            name = stop.received() => {
                tracing::info!(signal = name, "stopping");
                break;
            }
            _ = flaps.tick() => running.log_flaps(),
            () = interfaces_changed.notified() => switch.look_after(),
            _ = look.tick() => switch.look_after(),
            _ = retry.tick() => switch.retry(),
        }
        for (port, status) in switch.take_changes() {
            running.set_port(port, status);
        }
        if let Some(error) = switch.ended_worker() {
            tracing::error!(%error, "stopping");
            break;
        }
    }
    api::remove(&topology.api_socket);
    switch.stop()
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
    let all: Vec<_> = topology.port_ids().collect();
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
    Ok(Switch::open(topology, workers, lanes, prepared))
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
