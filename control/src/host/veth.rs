//! `veth` ports: a pair whose far end goes into a network namespace.

use lockgate_dataplane::frame::mac::MacAddr;

use super::error::{PortError, Step};
use super::ethtool::{Ethtool, VlanOffload};
use super::interface::{OWN_NAMESPACE, bring_up, check_free, existing, made, taken};
use super::link::Link;
use super::netlink::{Netlink, VethEnd};
use super::netns::Namespace;
use super::teardown::{Change, Teardown, Undo};
use super::{Edge, Host, LaneEdge, XdpEdge, lane, name};
use crate::topology::{FarEnd, Steering};

/// A pair that can be made.
#[derive(Debug)]
pub(super) struct VethPlan<'a> {
    far: &'a FarEnd,
    /// Name of the switch's end.
    near: String,
    /// Note on the switch's end.
    alias: String,
    /// Index of the switch's end that a killed daemon left.
    leftover: Option<u32>,
    steering: Steering,
    /// Tags must stay in the frames.
    trunk: bool,
}

impl<'a> VethPlan<'a> {
    /// Checks everything that can be checked without a change.
    pub fn new(
        far: &'a FarEnd,
        steering: Steering,
        switch: &str,
        port: &str,
        trunk: bool,
        host: &Host,
    ) -> Result<Self, PortError> {
        let (near, alias) = (name::host_end(switch, port), name::alias(switch, port));
        let leftover = leftover(&near, &alias, &host.netlink)?;
        let namespace = Namespace::open(&far.netns)?;
        let inside = namespace.open_socket(Netlink::open)?;
        // The far end of our own leftover goes away with it.
        check_free(&far.interface.name, namespace.label(), &inside, |link| {
            leftover.as_ref().is_some_and(|near| near.is_peer_of(link))
        })?;
        Ok(Self { far, near, alias, leftover: leftover.map(|link| link.index), steering, trunk })
    }

    /// Makes the pair. What `teardown` holds undoes it, also after an error.
    pub fn carry_out(self, host: &Host, teardown: &mut Teardown) -> Result<Edge, PortError> {
        let interface = &self.far.interface;
        let namespace = Namespace::open(&self.far.netns)?;
        remove_leftover(self.leftover, &self.near, &host.netlink)?;

        let near = VethEnd { name: &self.near, mac: None };
        let far = VethEnd { name: &interface.name, mac: interface.mac };
        host.netlink.add_veth(near, far, &namespace, interface.mtu).step(|| {
            format!("make the veth pair {} – {} in {}", self.near, interface.name, namespace.label())
        })?;
        let near = made(&self.near, &host.netlink)?;
        teardown.push(Undo { interface: near.name.clone(), index: near.index, change: Change::Made });

        // The switch's end is no business of the host's stack.
        host.netlink.silence(near.index).step(|| format!("keep IPv6 off {}", near.name))?;
        host.netlink.set_alias(near.index, &self.alias).step(|| format!("set the alias of {}", near.name))?;

        let by_tc = lane::is_chosen(self.steering, &near);
        let far_mac = self.bring_up_far_end(&namespace, by_tc)?;
        host.netlink.set_up(near.index).step(|| format!("set {} up", near.name))?;
        tracing::info!(
            interface = interface.name,
            namespace = namespace.label(),
            host_end = near.name,
            "made a veth pair"
        );
        if by_tc {
            return Ok(Edge::Lane(LaneEdge::new(near, far_mac)));
        }
        let rx_queues = near.rx_queues();
        Ok(Edge::Xdp(XdpEdge::new(near, rx_queues, far_mac)))
    }

    fn bring_up_far_end(&self, namespace: &Namespace, by_tc: bool) -> Result<Option<MacAddr>, PortError> {
        let interface = &self.far.interface;
        let inside = namespace.open_socket(Netlink::open)?;
        let far = made(&interface.name, &inside)?;
        if self.trunk && !by_tc {
            let ethtool = namespace.open_socket(Ethtool::open)?;
            ethtool.set(&far.name, VlanOffload::Insert, false).map_err(|error| PortError::TagsLost {
                interface: far.name.clone(),
                reason: error.to_string(),
            })?;
        }
        bring_up(interface, far.index, &inside)?;
        Ok(far.mac)
    }
}

/// The switch's end that a killed daemon left under this name. It had no time to write its note if it was killed right
/// after making the pair.
pub(super) fn leftover(near: &str, alias: &str, netlink: &Netlink) -> Result<Option<Link>, PortError> {
    match existing(near, netlink)? {
        Some(link) if link.is_veth() && (link.alias == alias || link.alias.is_empty()) => Ok(Some(link)),
        Some(link) => Err(taken(&link, OWN_NAMESPACE)),
        None => Ok(None),
    }
}

pub(super) fn remove_leftover(index: Option<u32>, near: &str, netlink: &Netlink) -> Result<(), PortError> {
    let Some(index) = index else { return Ok(()) };
    netlink.delete(index).step(|| format!("remove {near}, which an earlier run left"))?;
    tracing::info!(interface = near, "removed what an earlier run left");
    Ok(())
}
