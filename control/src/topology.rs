//! The validated topology: what the operator wrote with every default filled in and every name resolved.
//!
//! [`crate::config`] produces it or reports every mistake; [`crate::compile`] turns it into what a worker reads;
//! [`crate::host`] turns its ports into devices. A `Topology` that exists is consistent: groups and classes exist, names
//! are unique, no interface is used twice.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::id::{Direction, GroupId, PortId};
use lockgate_dataplane::state::security::Security;
use lockgate_dataplane::state::{BeyondLimit, ClassTable, FdbSettings, Shaping, VlanMode};

/// One switch and everything on it.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Name of the switch, a metric label.
    pub name: String,
    /// How many worker threads.
    pub workers: Workers,
    /// Bounds of the MAC table.
    pub fdb: FdbSettings,
    /// Where `/metrics` is served.
    pub metrics_listen: SocketAddr,
    /// Where the command line reaches the daemon.
    pub api_socket: PathBuf,
    /// Names of the traffic classes by `ClassId`.
    pub class_names: Vec<String>,
    /// The traffic classes.
    pub classes: ClassTable,
    /// Port groups by `GroupId`.
    pub groups: Vec<PortGroup>,
    /// Ports by `PortId`, in the order of the file.
    pub ports: Vec<Port>,
}

/// Most workers a switch has.
pub const MAX_WORKERS: u8 = 64;

impl Topology {
    /// From now on the interfaces that Lockgate makes have these addresses, by `PortId`, where the file sets none.
    pub fn keep_addresses(&mut self, macs: &[Option<MacAddr>]) {
        for (port, mac) in self.ports.iter_mut().zip(macs) {
            match &mut port.kind {
                PortKind::Veth(FarEnd { interface, .. }, _)
                | PortKind::Tap(FarEnd { interface, .. })
                | PortKind::Internal { interface } => interface.mac = interface.mac.or(*mac),
                PortKind::Netdev { .. } => {}
            }
        }
    }

    /// Every port, in the order of the file.
    pub fn port_ids(&self) -> impl Iterator<Item = PortId> + use<> {
        (0..).map(PortId).take(self.ports.len())
    }

    /// The ports of `group`, in the order of the file.
    pub fn members(&self, group: GroupId) -> impl Iterator<Item = (PortId, &Port)> {
        self.port_ids().zip(&self.ports).filter(move |(_, port)| port.group == group)
    }
}

/// How many worker threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// Half of the processors the daemon may use, at least one and at most one per port.
    Auto,
    /// Exactly this many, 1 to 64.
    Count(u8),
}

/// A port group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortGroup {
    /// Its name.
    pub name: String,
    /// VLANs of its ports.
    pub vlan: VlanMode,
    /// Its ports do not reach each other.
    pub isolated: bool,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: GroupId,
    /// What it is.
    pub kind: PortKind,
    /// Source addresses from `mac:`; empty when the far end's address, or the first one seen, is to be pinned.
    pub macs: Vec<MacAddr>,
    /// Learning from `learn:`; `None` means addresses are pinned.
    pub learn: Option<Learn>,
    /// What it may do to the others.
    pub security: Security,
    /// Shaping from the port into the switch: the group's, or the port's own which overrides it.
    pub ingress: Option<PortShaping>,
    /// Shaping from the switch to the port.
    pub egress: Option<PortShaping>,
}

impl Port {
    /// Shaping in `direction`.
    pub const fn shaping(&self, direction: Direction) -> Option<PortShaping> {
        match direction {
            Direction::Ingress => self.ingress,
            Direction::Egress => self.egress,
        }
    }
}

impl Steering {
    /// The word of the topology file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Tc => "tc",
            Self::Xdp => "xdp",
        }
    }
}

impl PortKind {
    /// The word of the topology file.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Netdev { .. } => "netdev",
            Self::Veth(..) => "veth",
            Self::Tap(_) => "tap",
            Self::Internal { .. } => "internal",
        }
    }
}

/// Shaping of a port in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortShaping {
    /// The numbers.
    pub shaping: Shaping,
    /// Who set them.
    pub origin: Origin,
}

/// Where a port's setting was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// At its group.
    Group,
    /// At the port itself.
    Port,
}

/// Learning of a workload port that asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learn {
    /// Most addresses.
    pub limit: usize,
    /// What happens to frames from further ones.
    pub beyond: BeyondLimit,
}

/// What a port is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// An existing interface of the daemon's namespace.
    Netdev {
        /// Its name.
        interface: String,
        /// How frames reach the switch.
        steering: Steering,
    },
    /// A veth pair that Lockgate makes; the far end goes into a network namespace.
    Veth(FarEnd, Steering),
    /// A tap whose interface goes into a network namespace.
    Tap(FarEnd),
    /// A tap whose interface stays in the daemon's namespace.
    Internal {
        /// The interface.
        interface: Interface,
    },
}

/// How frames of an interface reach the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// By tc for virtual devices, by XDP for NICs and on kernels before 6.6.
    Auto,
    /// By tc programs and a lane: super-frames stay whole, and every offload at its default.
    Tc,
    /// An XDP program and AF_XDP sockets; native mode where the driver has it, else generic.
    Xdp,
}

/// An interface in another network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarEnd {
    /// The namespace.
    pub netns: Netns,
    /// The interface.
    pub interface: Interface,
}

/// A network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Netns {
    /// A name under `/run/netns`, as `ip netns` makes it.
    Name(String),
    /// A path to a namespace file.
    Path(PathBuf),
    /// The namespace of a process.
    Pid(u32),
}

/// An interface that Lockgate makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Its address on the link; chosen by the kernel when absent.
    pub mac: Option<MacAddr>,
    /// Addresses with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// MTU, 68 to 65535 (veth, tap).
    pub mtu: u32,
}
