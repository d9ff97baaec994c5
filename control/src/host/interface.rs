//! The interface a port shows to its workload: is its name free, and how it gets its settings.

use crate::topology::Interface;

use super::error::{PortError, Step};
use super::link::Link;
use super::netlink::Netlink;

/// How messages call the namespace that the daemon runs in.
pub const OWN_NAMESPACE: &str = "the daemon's network namespace";

/// That no interface is called `name`, apart from those that `is_ours` owns up to.
pub fn check_free(
    name: &str,
    namespace: &str,
    netlink: &Netlink,
    is_ours: impl FnOnce(&Link) -> bool,
) -> Result<(), PortError> {
    match existing(name, netlink)? {
        Some(link) if !is_ours(&link) => Err(taken(&link, namespace)),
        _ => Ok(()),
    }
}

/// The error about an interface that is in the way.
pub fn taken(link: &Link, namespace: &str) -> PortError {
    PortError::InterfaceTaken {
        interface: link.name.clone(),
        namespace: namespace.to_owned(),
        kind: link.kind_name().to_owned(),
    }
}

/// The interface called `name`, if there is one.
pub fn existing(name: &str, netlink: &Netlink) -> Result<Option<Link>, PortError> {
    netlink.link(name).step(|| format!("look up interface {name}"))
}

/// The interface called `name`, which was just made.
pub fn made(name: &str, netlink: &Netlink) -> Result<Link, PortError> {
    existing(name, netlink)?.ok_or_else(|| PortError::Kernel {
        step: format!("find interface {name} again, which was just made"),
        source: std::io::Error::from_raw_os_error(libc::ENODEV),
    })
}

/// Gives a new interface its addresses and sets it up.
pub fn bring_up(interface: &Interface, index: u32, netlink: &Netlink) -> Result<(), PortError> {
    let name = &interface.name;
    for (address, prefix_len) in &interface.addresses {
        netlink
            .add_address(index, *address, *prefix_len)
            .step(|| format!("give interface {name} the address {address}/{prefix_len}"))?;
    }
    netlink.set_up(index).step(|| format!("set interface {name} up"))
}
