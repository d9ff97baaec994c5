//! `netdev` ports: an interface that exists already and becomes the switch's alone.

use super::error::{PortError, Step};
use super::ethtool::{Ethtool, VlanOffload};
use super::interface::existing;
use super::link::Link;
use super::peer::Peer;
use super::teardown::{Change, Teardown, Undo};
use super::{Edge, Host, LaneEdge, Waiting, XdpEdge, lane};
use crate::topology::Steering;

/// An interface that may become a port.
#[derive(Debug)]
pub(super) struct NetdevPlan {
    link: Link,
    /// Frames are taken by tc, else by XDP.
    by_tc: bool,
    /// Tags must stay in the frames.
    trunk: bool,
}

impl NetdevPlan {
    /// Checks that the interface is there and nobody else's. Nothing is changed.
    pub fn new(
        interface: &str,
        steering: Steering,
        trunk: bool,
        host: &Host,
    ) -> Result<Result<Self, Waiting>, PortError> {
        let Some(link) = existing(interface, &host.netlink)? else { return Ok(Err(Waiting::Missing)) };
        check_unused_by_host(&link, host)?;
        if lane::is_chosen(steering, &link) {
            return Ok(Ok(Self { link, by_tc: true, trunk }));
        }
        if let Some(program_id) = link.xdp_program {
            return Ok(Err(Waiting::ForeignXdp { program_id }));
        }
        if trunk && link.is_veth() && far_end(&link, host)?.is_none() {
            return Err(far_end_out_of_reach(&link));
        }
        Ok(Ok(Self { link, by_tc: false, trunk }))
    }

    /// Sees to it that tags stay in the frames, and reads what the dataplane needs to know. What `teardown` holds
    /// undoes it, also after an error.
    pub fn carry_out(self, host: &Host, teardown: &mut Teardown) -> Result<Edge, PortError> {
        let far_end = far_end(&self.link, host)?;
        if self.trunk && !self.by_tc {
            keep_tags(&self.link, far_end.as_ref(), teardown)?;
        }
        if !self.link.up {
            tracing::warn!(
                interface = self.link.name,
                "the interface is down: frames pass once it is set up"
            );
        }
        let far_mac = far_end.and_then(|peer| peer.link.mac);
        if self.by_tc {
            return Ok(Edge::Lane(LaneEdge::new(self.link, far_mac)));
        }
        let rx_queues = self.link.rx_queues();
        Ok(Edge::Xdp(XdpEdge::new(self.link, rx_queues, far_mac)))
    }
}

/// The interface must carry nothing of the host's: XDP takes its frames away from the host's stack.
fn check_unused_by_host(link: &Link, host: &Host) -> Result<(), PortError> {
    let interface = link.name.clone();
    if let Some(index) = link.master {
        let master =
            host.netlink.link_by_index(index).step(|| format!("look up the master of {interface}"))?;
        let master = master.map_or_else(
            || format!("another device (index {index})"),
            |master| format!("{} {}", master.kind_name(), master.name),
        );
        return Err(PortError::Enslaved { interface, master });
    }
    let occupied = host.occupied()?;
    if let Some(&(address, prefix_len)) = occupied.addresses.get(&link.index) {
        return Err(PortError::CarriesAddress { interface, address, prefix_len });
    }
    if occupied.default_routes.contains(&link.index) {
        return Err(PortError::CarriesDefaultRoute { interface });
    }
    Ok(())
}

fn far_end(link: &Link, host: &Host) -> Result<Option<Peer>, PortError> {
    // Only a far end in another namespace takes a scan.
    if link.peer.is_none() {
        return Ok(None);
    }
    Peer::find(link, &host.netlink, host.namespaces())
}

/// Turns off what would take the tags out of the frames before XDP sees them.
fn keep_tags(link: &Link, far_end: Option<&Peer>, teardown: &mut Teardown) -> Result<(), PortError> {
    let (ethtool, interface, place, offload, change) = if link.is_veth() {
        let Some(peer) = far_end else { return Err(far_end_out_of_reach(link)) };
        (peer.ethtool()?, &peer.link.name, peer.description(), VlanOffload::Insert, Change::FarInsertOff)
    } else {
        let ethtool = Ethtool::open().step(|| "open a control socket".to_owned())?;
        (ethtool, &link.name, link.name.clone(), VlanOffload::Strip, Change::StripOff)
    };
    let changed = ethtool.set(interface, offload, false).map_err(|error| PortError::TagsLost {
        interface: link.name.clone(),
        reason: format!("{} of {place} cannot be turned off: {error}", offload.name()),
    })?;
    if changed {
        tracing::info!(
            interface = place,
            offload = offload.name(),
            "turned the offload off, to keep VLAN tags in frames"
        );
        teardown.push(Undo { interface: link.name.clone(), index: link.index, change });
    }
    Ok(())
}

fn far_end_out_of_reach(link: &Link) -> PortError {
    PortError::TagsLost {
        interface: link.name.clone(),
        reason: "its far end is in a network namespace that has neither a name under /run/netns nor a process here, so \
                 tx-vlan-hw-insert cannot be turned off there"
            .to_owned(),
    }
}
