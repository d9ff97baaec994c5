//! `tap` and `internal` ports: a tap whose descriptor the switch holds and whose interface a Linux stack has.

use std::os::fd::AsRawFd;

use lockgate_dataplane::id::PortId;
use lockgate_dataplane::port::tap::TapDevice;

use super::error::{PortError, Step};
use super::interface::{OWN_NAMESPACE, bring_up, check_free, made};
use super::netlink::Netlink;
use super::netns::Namespace;
use super::veth::{leftover, remove_leftover};
use super::{Host, TapEdge, name};
use crate::topology::{FarEnd, Interface};

/// A tap that can be made.
#[derive(Debug)]
pub(super) enum TapPlan<'a> {
    /// One that stays.
    Internal(&'a Interface),
    /// One that goes into a namespace.
    Far {
        far: &'a FarEnd,
        /// Its name on the way.
        transit: String,
        /// Index of what a killed daemon left under that name, when the port was a veth.
        leftover: Option<u32>,
    },
}

impl<'a> TapPlan<'a> {
    /// A tap in the daemon's namespace, if its name is free.
    pub fn internal(interface: &'a Interface, host: &Host) -> Result<Self, PortError> {
        check_free(&interface.name, OWN_NAMESPACE, &host.netlink, |_| false)?;
        Ok(Self::Internal(interface))
    }

    /// A tap in another namespace, if that exists and its name is free there.
    pub fn far(far: &'a FarEnd, switch: &str, port: &str, host: &Host) -> Result<Self, PortError> {
        let transit = name::host_end(switch, port);
        let leftover = leftover(&transit, &name::alias(switch, port), &host.netlink)?;
        let namespace = Namespace::open(&far.netns)?;
        let inside = namespace.open_socket(Netlink::open)?;
        check_free(&far.interface.name, namespace.label(), &inside, |link| {
            leftover.as_ref().is_some_and(|near| near.is_peer_of(link))
        })?;
        Ok(Self::Far { far, transit, leftover: leftover.map(|link| link.index) })
    }

    /// Makes the tap. Its interface lives as long as the device.
    pub fn carry_out(self, port: PortId, host: &Host) -> Result<TapEdge, PortError> {
        match self {
            Self::Internal(interface) => {
                let device = TapDevice::create(&interface.name, port, interface.mtu)?;
                tracing::info!(interface = interface.name, "made a tap");
                settle(device, interface, &host.netlink)
            }
            Self::Far { far, transit, leftover } => {
                let interface = &far.interface;
                let namespace = Namespace::open(&far.netns)?;
                remove_leftover(leftover, &transit, &host.netlink)?;
                // Made here and moved, not made there: a tap's descriptor keeps the namespace alive that it was opened
                // in, and the container's must be able to end.
                let device = TapDevice::create(&transit, port, interface.mtu)?;
                let index = made(&transit, &host.netlink)?.index;
                host.netlink
                    .move_to(index, namespace.file().as_raw_fd(), &interface.name)
                    .step(|| format!("move the new tap {} into {}", interface.name, namespace.label()))?;
                tracing::info!(interface = interface.name, namespace = namespace.label(), "made a tap");
                settle(device, interface, &namespace.open_socket(Netlink::open)?)
            }
        }
    }
}

/// Gives the interface its settings where it is now.
fn settle(device: TapDevice, interface: &Interface, netlink: &Netlink) -> Result<TapEdge, PortError> {
    let index = made(&interface.name, netlink)?.index;
    netlink.configure(index, interface.mac, interface.mtu).step(|| {
        format!("give interface {} its MTU of {} and its MAC address", interface.name, interface.mtu)
    })?;
    bring_up(interface, index, netlink)?;
    Ok(TapEdge { device, interface: interface.name.clone(), mac: made(&interface.name, netlink)?.mac })
}
