//! What the daemon knows about itself while it runs: the one source that the API and the metrics read.
//!
//! Counters are read where the workers write them, which costs a worker nothing. The two answers only a worker can give,
//! its devices' counters and its MAC table, are a command it handles between two rounds: some system calls per AF_XDP port.

pub mod devices;
pub mod totals;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use lockgate_dataplane::counters::WorkerCounters;
use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::id::{PortId, WorkerId};
use lockgate_dataplane::port::DeviceStats;
use lockgate_dataplane::state::VlanMode;
use lockgate_dataplane::state::security::Admin;
use lockgate_dataplane::table::fdb::FdbRow;
use lockgate_dataplane::table::fdb::flap::Flap;
use lockgate_dataplane::worker::{WorkerGone, Workers};
use parking_lot::{Mutex, RwLock};

use crate::daemon::lanes::Lanes;
use crate::topology::Topology;

use devices::DeviceTotals;
use totals::Totals;

/// Version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit it was built from, if the build said so in `LOCKGATE_COMMIT`.
pub const COMMIT: &str = match option_env!("LOCKGATE_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// The running switch, as the API and the metrics see it.
#[derive(Debug)]
pub struct Running {
    /// What was applied.
    pub topology: Arc<Topology>,
    /// Where it came from.
    pub config: ConfigStatus,
    counters: Vec<Arc<WorkerCounters>>,
    /// `None` from the moment the switch stops.
    workers: Arc<RwLock<Option<Workers>>>,
    /// By [`PortId`].
    ports: RwLock<Vec<PortStatus>>,
    devices: Mutex<DeviceTotals>,
    lanes: Option<Lanes>,
    /// Held by whoever asks the workers for their devices' counters.
    asking: Mutex<()>,
}

/// The configuration in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigStatus {
    /// Fingerprint of its text.
    pub hash: String,
    /// How many configurations were applied since the start; the first one is 1.
    pub generation: u64,
    /// Whether the latest one that was offered was applied.
    pub last_reload_success: bool,
    /// When that was.
    pub last_reload: SystemTime,
}

/// A port's device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// Whether frames pass.
    pub life: PortLife,
    /// `af_xdp`, `lane` or `tap`; empty while there is no device.
    pub driver: &'static str,
    /// `native` or `generic`, for AF_XDP.
    pub xdp_mode: Option<&'static str>,
    /// Whether the kernel shares its buffers with the device instead of copying.
    pub zerocopy: bool,
    /// The interface in the namespace the device was opened in; empty while there is no device.
    pub interface: String,
    /// MTU of the device; 0 while there is none.
    pub mtu_bytes: u32,
    /// Address of the far end, where it can be read.
    pub mac: Option<MacAddr>,
}

/// Whether frames pass a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortLife {
    /// They do.
    Up,
    /// What the port needs is not there yet; it is tried again.
    Waiting(String),
    /// The device could not be opened; it is tried again.
    Failed(String),
    /// The interface is there, but its link is down.
    Down(String),
    /// It has a device, but no frame passes: the operator said so, or a guard did.
    Disabled(&'static str),
}

/// Why the workers did not answer.
#[derive(Debug, thiserror::Error)]
pub enum NotServing {
    /// The switch is being stopped.
    #[error("the switch is stopping")]
    Stopping,
    /// A worker is gone.
    #[error(transparent)]
    WorkerGone(#[from] WorkerGone),
}

impl Running {
    /// The state of a switch that has just started with the configuration of this `hash`. `ports` is by [`PortId`].
    pub fn new(
        topology: Arc<Topology>,
        workers: Arc<RwLock<Option<Workers>>>,
        hash: &str,
        ports: Vec<PortStatus>,
    ) -> Self {
        let counters = workers.read().as_ref().map_or_else(Vec::new, Workers::counters);
        let config = ConfigStatus {
            hash: hash.to_owned(),
            generation: 1,
            last_reload_success: true,
            last_reload: wall_clock(),
        };
        let (devices, asking) = (Mutex::default(), Mutex::default());
        Self { topology, config, counters, workers, ports: RwLock::new(ports), devices, lanes: None, asking }
    }

    /// The same switch with its lanes.
    pub fn with_lanes(self, lanes: Lanes) -> Self {
        Self { lanes: Some(lanes), ..self }
    }

    /// Its lanes.
    pub fn lanes(&self) -> Option<&Lanes> {
        self.lanes.as_ref()
    }

    /// Counters of the receiving side of each worker's lane. Blocks until the workers answer; empty if one does not.
    pub fn lane_receivers(&self) -> Vec<(WorkerId, DeviceStats)> {
        self.ask(Workers::lanes).unwrap_or_default()
    }

    /// Notes that the device of `port` changed.
    pub fn set_port(&self, port: PortId, status: PortStatus) {
        if let Some(present) = self.ports.write().get_mut(port.index()) {
            *present = status;
        }
    }

    /// The devices of all ports, by [`PortId`].
    pub fn ports(&self) -> Vec<PortStatus> {
        let mut ports = self.ports.read().clone();
        for ((id, port), status) in self.topology.port_ids().zip(&self.topology.ports).zip(&mut ports) {
            if status.life != PortLife::Up {
                continue;
            }
            if port.security.admin == Admin::Down {
                status.life = PortLife::Disabled("`admin: down` in the topology");
            } else if self.totals().is_disabled(id) {
                status.life = PortLife::Disabled(
                    "it sent a spanning tree frame, which its bpdu_guard forbids; restart lockgate to enable it",
                );
            }
        }
        ports
    }

    /// The counters of all workers added up.
    pub fn totals(&self) -> Totals<'_> {
        Totals(&self.counters)
    }

    /// The counters of each worker.
    pub fn workers(&self) -> &[Arc<WorkerCounters>] {
        &self.counters
    }

    /// Counters of every device that was ever open, by port. Blocks until the workers answer.
    ///
    /// While somebody else asks already, or if a worker does not answer, these are the counters of the last answer: a
    /// worker that hangs holds up one scrape and not all of them.
    pub fn devices(&self) -> Vec<(PortId, DeviceStats)> {
        if let Some(_asking) = self.asking.try_lock()
            && let Ok(now) = self.ask(Workers::devices)
        {
            self.devices.lock().observe(now);
        }
        self.devices.lock().totals()
    }

    /// Logs the addresses that were found flapping since the last call. Blocks until the workers answer.
    pub fn log_flaps(&self) {
        let Ok((flaps, more)) = self.ask(Workers::take_flaps) else { return };
        let name = |port: PortId| self.topology.ports.get(port.index()).map_or("", |port| &port.name);
        for Flap { vlan, mac, at, also_at } in flaps {
            tracing::warn!(
                %mac, %vlan, port = name(at), also_at = name(also_at),
                "an address goes back and forth between two ports: a copy of a machine, or a loop"
            );
        }
        if more > 0 {
            tracing::warn!(more, "further addresses go back and forth");
        }
    }

    /// The MAC table. Blocks until a worker answers.
    ///
    /// # Errors
    /// If the switch is stopping or the worker is gone.
    pub fn fdb(&self) -> Result<Vec<FdbRow>, NotServing> {
        self.ask(Workers::fdb)
    }

    /// Whether every worker answers. Blocks until they do.
    ///
    /// # Errors
    /// If the switch is stopping or a worker is gone.
    pub fn check(&self) -> Result<(), NotServing> {
        self.ask(Workers::devices).map(|_| ())
    }

    fn ask<T>(&self, question: impl FnOnce(&Workers) -> Result<T, WorkerGone>) -> Result<T, NotServing> {
        let workers = self.workers.read();
        Ok(question(workers.as_ref().ok_or(NotServing::Stopping)?)?)
    }
}

impl PortStatus {
    /// A port without a device, for this reason, which may pass by itself.
    pub fn waiting(reason: String) -> Self {
        Self::without_device(PortLife::Waiting(reason))
    }

    /// A port whose device could not be opened, for this reason.
    pub fn failed(reason: String) -> Self {
        Self::without_device(PortLife::Failed(reason))
    }

    fn without_device(life: PortLife) -> Self {
        Self {
            life,
            driver: "",
            xdp_mode: None,
            zerocopy: false,
            interface: String::new(),
            mtu_bytes: 0,
            mac: None,
        }
    }
}

impl PortLife {
    /// Every name that [`Self::name`] gives.
    pub const NAMES: [&'static str; 5] = ["up", "down", "waiting", "failed", "disabled"];

    /// One word, a metric label.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Waiting(_) => "waiting",
            Self::Failed(_) => "failed",
            Self::Down(_) => "down",
            Self::Disabled(_) => "disabled",
        }
    }

    /// Why frames do not pass, for people.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Up => None,
            Self::Waiting(reason) | Self::Failed(reason) | Self::Down(reason) => Some(reason),
            Self::Disabled(reason) => Some(reason),
        }
    }
}

impl fmt::Display for PortLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        self.reason().map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}

/// The VLANs of a port: `10`, or `trunk 10, 20-29 native 1`.
pub fn vlan_text(vlan: &VlanMode) -> String {
    match vlan {
        VlanMode::Access(vlan) => vlan.to_string(),
        VlanMode::Trunk { allowed, native: None } => format!("trunk {allowed:?}"),
        VlanMode::Trunk { allowed, native: Some(native) } => format!("trunk {allowed:?} native {native}"),
    }
}

#[expect(clippy::disallowed_methods, reason = "a date for people, which no frame depends on")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
impl Running {
    /// A switch with this topology whose workers are gone and whose ports all wait.
    pub(crate) fn stopped(topology: &str) -> Self {
        let topology = crate::config::parse("test.yaml", topology).unwrap().topology;
        let ports = topology.ports.iter().map(|_| PortStatus::waiting("it is a test".to_owned())).collect();
        Self::new(Arc::new(topology), Arc::default(), "0", ports)
    }
}
