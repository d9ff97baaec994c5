//! Why the host's network cannot be made ready. Every message names the port and ends with the way out.

use std::io;
use std::net::IpAddr;

use lockgate_dataplane::port::tap::TapError;

use super::netns::NetnsError;

/// Preparing the host failed; whatever was made for it has been removed again.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The kernel gives no socket to work with.
    #[error("cannot open a netlink or control socket: {0}")]
    Socket(io::Error),
    /// One port cannot be had.
    #[error("port {port}: {cause}")]
    Port {
        /// The port.
        port: String,
        /// Why not.
        cause: PortError,
    },
}

impl HostError {
    /// Whether all that is wrong is that a network namespace is not there, as while a container restarts.
    pub fn is_absence(&self) -> bool {
        let Self::Port { cause: PortError::Netns(error), .. } = self else { return false };
        matches!(error, NetnsError::Missing { .. } | NetnsError::NotANamespace { .. })
    }
}

/// Why one port cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The namespace its interface belongs in cannot be used.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// Its tap cannot be made.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// There is an interface of the name Lockgate was told to make one under.
    #[error(
        "interface {interface} exists already in {namespace} ({kind}) and is not Lockgate's: remove it there with \
         `ip link del {interface}`, or give the port another `interface`"
    )]
    InterfaceTaken {
        /// The interface.
        interface: String,
        /// Where it is.
        namespace: String,
        /// What it is.
        kind: String,
    },
    /// The interface carries an address of the host, which would fall silent.
    #[error(
        "interface {interface} carries the host's address {address}/{prefix_len}, and a port is the switch's alone: \
         move the address to an `internal` port, or choose another interface"
    )]
    CarriesAddress {
        /// The interface.
        interface: String,
        /// The first of its addresses.
        address: IpAddr,
        /// Length of its prefix in bits.
        prefix_len: u8,
    },
    /// The host's default route leaves by the interface.
    #[error(
        "the host's default route leaves by interface {interface}, and a port is the switch's alone: move the route to \
         an `internal` port, or choose another interface"
    )]
    CarriesDefaultRoute {
        /// The interface.
        interface: String,
    },
    /// The interface belongs to a bridge or bond.
    #[error(
        "interface {interface} is a member of {master}: release it with `ip link set {interface} nomaster`"
    )]
    Enslaved {
        /// The interface.
        interface: String,
        /// The bridge or bond.
        master: String,
    },
    /// A trunk port whose tags would be lost on the way to the XDP program.
    #[error(
        "interface {interface} cannot be a trunk port, because VLAN tags would not stay in its frames: {reason}; put \
         the port into a group with one `vlan`"
    )]
    TagsLost {
        /// The interface.
        interface: String,
        /// Why they would not.
        reason: String,
    },
    /// The kernel refused a step.
    #[error("cannot {step}: {source}")]
    Kernel {
        /// The step.
        step: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Names the step that an I/O error stopped.
pub(super) trait Step<T> {
    /// `step` completes the sentence "cannot …".
    fn step(self, step: impl FnOnce() -> String) -> Result<T, PortError>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, step: impl FnOnce() -> String) -> Result<T, PortError> {
        self.map_err(|source| PortError::Kernel { step: step(), source })
    }
}
