//! The host's network: the one place that makes, changes and removes interfaces.
//!
//! [`prepare`] turns ports of the topology into something the dataplane can open. It first checks all of them without
//! changing anything, so that every mistake is reported in one run; then it changes the host. Whatever it does to the
//! host for a port is undone when the port's [`Teardown`] is dropped: after an error, on removal, at the end.
//!
//! A daemon that was killed leaves its veth pairs behind, which the next run recognises by their name and note and makes
//! anew, and the VLAN offloads it turned off on trunk interfaces it did not make, which nobody turns on again. Taps and XDP
//! programs end with its descriptors.

mod error;
mod ethtool;
mod interface;
mod lane;
mod link;
mod name;
mod netdev;
mod netlink;
mod netns;
mod peer;
mod tap;
mod teardown;
mod veth;
mod watch;

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::thread;

use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::id::PortId;
use lockgate_dataplane::port::tap::TapDevice;
use lockgate_dataplane::state::VlanMode;

use crate::topology::{PortKind, Topology};

use error::Step;
use netdev::NetdevPlan;
use netlink::Netlink;
use netns::apart;
use peer::Namespaces;
use tap::TapPlan;
use teardown::{Change, Undo};
use veth::VethPlan;

pub use error::{HostError, PortError};
pub use lane::LaneInterfaces;
pub use link::Link;
pub use netns::NetnsError;
pub use teardown::Teardown;
pub use watch::watch_links;

/// Ports that one thread tears down.
const UNDONE_TOGETHER: usize = 4;

/// A port whose side of the host is ready.
#[derive(Debug)]
pub struct PreparedPort {
    /// The port.
    pub port: PortId,
    /// What the dataplane opens.
    pub edge: Edge,
    /// Keeps the host as the port needs it. Drop it after the dataplane has let go of the edge.
    pub teardown: Teardown,
}

/// What the dataplane opens for a port.
#[derive(Debug)]
pub enum Edge {
    /// An interface for an XDP program and AF_XDP sockets.
    Xdp(XdpEdge),
    /// An interface for a tc program and its worker's lane.
    Lane(LaneEdge),
    /// A tap, open.
    Tap(TapEdge),
    /// Nothing yet. [`prepare`] the port again when interfaces have changed.
    Waiting(Waiting),
}

/// An interface of the daemon's namespace that frames are taken from by XDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpEdge {
    /// Its name.
    pub interface: String,
    /// Its index.
    pub ifindex: u32,
    /// Longest IP packet it takes, in bytes.
    pub mtu: u32,
    /// Its receive queues; each needs a socket, or its frames are lost.
    pub rx_queues: u32,
    /// Address of the veth's far end; `None` if there is none or it is out of reach.
    pub far_mac: Option<MacAddr>,
}

/// An interface of the daemon's namespace that frames are taken from by tc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneEdge {
    /// Its name.
    pub interface: String,
    /// Its index.
    pub ifindex: u32,
    /// Longest IP packet it takes, in bytes.
    pub mtu: u32,
    /// Address of the veth's far end; `None` if there is none or it is out of reach.
    pub far_mac: Option<MacAddr>,
    /// The far end is in another network namespace.
    pub far_is_apart: bool,
    /// The driver filters frames by address, so the interface must be made promiscuous.
    pub filters_addresses: bool,
}

/// A tap, open. Its interface goes away with the device.
#[derive(Debug)]
pub struct TapEdge {
    /// The device.
    pub device: TapDevice,
    /// Its interface, in the namespace the topology says.
    pub interface: String,
    /// Address of its interface.
    pub mac: Option<MacAddr>,
}

/// Why a port has no edge yet. It is no error: the others start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// There is no such interface.
    Missing,
    /// Another program has the interface's XDP hook, and it is never removed.
    ForeignXdp {
        /// Its number, as `bpftool prog` prints it.
        program_id: u32,
    },
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the interface does not exist"),
            Self::ForeignXdp { program_id } => {
                write!(f, "XDP program {program_id} is attached to the interface and is not Lockgate's")
            }
        }
    }
}

impl LaneEdge {
    fn new(link: Link, far_mac: Option<MacAddr>) -> Self {
        Self {
            far_is_apart: link.peer.is_some_and(|peer| peer.namespace_id.is_some()),
            filters_addresses: !matches!(link.kind.as_deref(), Some("veth" | "tun")),
            interface: link.name,
            ifindex: link.index,
            mtu: link.mtu,
            far_mac,
        }
    }
}

impl XdpEdge {
    fn new(link: Link, rx_queues: u32, far_mac: Option<MacAddr>) -> Self {
        Self { interface: link.name, ifindex: link.index, mtu: link.mtu, rx_queues, far_mac }
    }
}

/// Makes the host ready for `ports`, all of them or none. Blocks for some milliseconds per port.
///
/// # Errors
/// Every fault that can be found without changing the host, or else the first one met while changing it; then the host
/// is as it was.
pub fn prepare(topology: &Topology, ports: &[PortId]) -> Result<Vec<PreparedPort>, Vec<HostError>> {
    apart(|| {
        let host = Host::open().map_err(|error| vec![HostError::Socket(error)])?;
        let mut plans = Vec::with_capacity(ports.len());
        let mut errors = Vec::new();
        for &port in ports {
            match Plan::new(topology, port, &host) {
                Ok(plan) => plans.push((port, plan)),
                Err(cause) => errors.push(HostError::port(topology, port, cause)),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let prepared = plans.into_iter().map(|(port, plan)| {
            let _port = tracing::info_span!("port", name = topology.ports[port.index()].name).entered();
            plan.carry_out(port, &host).map_err(|cause| vec![HostError::port(topology, port, cause)])
        });
        prepared.collect()
    })
}

/// Every interface of the daemon's network namespace.
///
/// # Errors
/// If the kernel does not list them.
pub fn links() -> Result<Vec<Link>, HostError> {
    apart(|| Netlink::open().and_then(|netlink| netlink.links())).map_err(HostError::Socket)
}

/// Undoes what was done for many ports, side by side: the kernel waits some 20 ms for each interface to fall out of use.
pub fn tear_down(ports: Vec<Teardown>) {
    let mut ports = ports.into_iter();
    thread::scope(|scope| {
        while ports.len() > 0 {
            let share: Vec<_> = ports.by_ref().take(UNDONE_TOGETHER).collect();
            scope.spawn(move || drop(share));
        }
    });
}

/// Removes what a killed daemon left of this switch for ports that are no longer in the topology. To be called once,
/// before the first [`prepare`].
///
/// # Errors
/// If the interfaces cannot be listed.
pub fn remove_orphans(topology: &Topology) -> Result<(), HostError> {
    let wanted: HashSet<String> =
        topology.ports.iter().map(|port| name::host_end(&topology.name, &port.name)).collect();
    let note = name::alias(&topology.name, "");
    apart(|| {
        let netlink = Netlink::open().map_err(HostError::Socket)?;
        for link in netlink.links().map_err(HostError::Socket)? {
            if link.is_veth() && link.alias.starts_with(&note) && !wanted.contains(&link.name) {
                tracing::info!(
                    interface = link.name,
                    alias = link.alias,
                    "removing what an earlier run left"
                );
                drop(Teardown::from(Undo { interface: link.name, index: link.index, change: Change::Made }));
            }
        }
        Ok(())
    })
}

/// The daemon's network namespace, and what was found out about it during one [`prepare`].
struct Host {
    netlink: Netlink,
    occupied: OnceCell<Occupied>,
    namespaces: OnceCell<Namespaces>,
}

/// Interfaces that the host itself uses.
struct Occupied {
    /// An address of each interface that has one. Link-local IPv6 addresses do not count: the kernel gives one to every
    /// interface that is up.
    addresses: HashMap<u32, (IpAddr, u8)>,
    default_routes: HashSet<u32>,
}

impl Host {
    fn open() -> io::Result<Self> {
        Ok(Self { netlink: Netlink::open()?, occupied: OnceCell::new(), namespaces: OnceCell::new() })
    }

    fn occupied(&self) -> Result<&Occupied, PortError> {
        if let Some(occupied) = self.occupied.get() {
            return Ok(occupied);
        }
        let addresses = self.netlink.addresses().step(|| "list the host's addresses".to_owned())?;
        let routes = self.netlink.default_route_interfaces().step(|| "list the host's routes".to_owned())?;
        let addresses = addresses.into_iter().filter(|(_, address, _)| !is_link_local(address));
        Ok(self.occupied.get_or_init(|| Occupied {
            addresses: addresses.map(|(index, address, prefix_len)| (index, (address, prefix_len))).collect(),
            default_routes: routes.into_iter().collect(),
        }))
    }

    fn namespaces(&self) -> &Namespaces {
        self.namespaces.get_or_init(|| Namespaces::scan(&self.netlink))
    }
}

fn is_link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// What is to be done for a port, checked.
enum Plan<'a> {
    Netdev(NetdevPlan),
    Veth(VethPlan<'a>),
    Tap(TapPlan<'a>),
    Wait(Waiting),
}

impl<'a> Plan<'a> {
    fn new(topology: &'a Topology, port: PortId, host: &Host) -> Result<Self, PortError> {
        let port = &topology.ports[port.index()];
        let trunk = matches!(topology.groups[port.group.index()].vlan, VlanMode::Trunk { .. });
        Ok(match &port.kind {
            PortKind::Netdev { interface, steering } => {
                match NetdevPlan::new(interface, *steering, trunk, host)? {
                    Ok(plan) => Self::Netdev(plan),
                    Err(waiting) => Self::Wait(waiting),
                }
            }
            PortKind::Veth(far, steering) => {
                Self::Veth(VethPlan::new(far, *steering, &topology.name, &port.name, trunk, host)?)
            }
            PortKind::Tap(far) => Self::Tap(TapPlan::far(far, &topology.name, &port.name, host)?),
            PortKind::Internal { interface } => Self::Tap(TapPlan::internal(interface, host)?),
        })
    }

    fn carry_out(self, port: PortId, host: &Host) -> Result<PreparedPort, PortError> {
        // Dropped on the way out of an error, which undoes what was done until then.
        let mut teardown = Teardown::default();
        let edge = match self {
            Self::Netdev(plan) => plan.carry_out(host, &mut teardown)?,
            Self::Veth(plan) => plan.carry_out(host, &mut teardown)?,
            Self::Tap(plan) => Edge::Tap(plan.carry_out(port, host)?),
            Self::Wait(waiting) => Edge::Waiting(waiting),
        };
        Ok(PreparedPort { port, edge, teardown })
    }
}

impl HostError {
    fn port(topology: &Topology, port: PortId, cause: PortError) -> Self {
        Self::Port { port: topology.ports[port.index()].name.clone(), cause }
    }
}
