//! Undoing what was done to the host for a port.

use super::error::{PortError, Step};
use super::ethtool::{Ethtool, VlanOffload};
use super::netlink::Netlink;
use super::netns::apart;
use super::peer::{Namespaces, Peer};

/// What was done to the host for one port. Dropping it undoes that, last step first; what is gone already is skipped,
/// and what cannot be undone is logged.
#[derive(Debug, Default)]
#[must_use = "dropping it removes the port's interface from the host"]
pub struct Teardown(Vec<Undo>);

/// One step backwards. Interfaces of the daemon's namespace are kept by name and index, so that a later one of the same
/// name is left alone, and far ends not at all: holding their namespace open would keep a container's namespace alive.
#[derive(Debug)]
pub(super) struct Undo {
    pub interface: String,
    pub index: u32,
    pub change: Change,
}

/// What is to be undone.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// The interface was made.
    Made,
    /// Its own stripping of VLAN tags was turned off.
    StripOff,
    /// Its far end's insertion of VLAN tags was turned off.
    FarInsertOff,
}

impl Teardown {
    pub(super) fn push(&mut self, undo: Undo) {
        self.0.push(undo);
    }
}

impl From<Undo> for Teardown {
    fn from(undo: Undo) -> Self {
        Self(vec![undo])
    }
}

impl Drop for Teardown {
    fn drop(&mut self) {
        if self.0.is_empty() {
            return;
        }
        apart(|| {
            for undo in self.0.drain(..).rev() {
                if let Err(error) = undo.run() {
                    tracing::warn!(interface = undo.interface, %error, "could not put the host back as it was");
                }
            }
        });
    }
}

impl Undo {
    fn run(&self) -> Result<(), PortError> {
        let netlink = Netlink::open().step(|| "open a netlink socket".to_owned())?;
        let link = netlink.link(&self.interface).step(|| format!("look up {}", self.interface))?;
        let Some(link) = link.filter(|link| link.index == self.index) else { return Ok(()) };
        match self.change {
            Change::Made => netlink.delete(link.index).step(|| format!("remove {}", link.name)),
            Change::StripOff => {
                let ethtool = Ethtool::open().step(|| "open a control socket".to_owned())?;
                turn_on(&ethtool, &link.name, VlanOffload::Strip)
            }
            Change::FarInsertOff => match Peer::find(&link, &netlink, &Namespaces::scan(&netlink))? {
                Some(peer) => turn_on(&peer.ethtool()?, &peer.link.name, VlanOffload::Insert),
                None => Ok(()),
            },
        }
    }
}

fn turn_on(ethtool: &Ethtool, interface: &str, offload: VlanOffload) -> Result<(), PortError> {
    ethtool
        .set(interface, offload, true)
        .step(|| format!("turn {} of {interface} back on", offload.name()))?;
    tracing::info!(interface, offload = offload.name(), "turned the offload back on");
    Ok(())
}
