//! What a look at a port's interface calls for. Pure: interfaces in, findings out.

use std::collections::HashMap;

use crate::host::{Edge, LaneEdge, Link, XdpEdge};

/// The interface that a port holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// Frames are taken by XDP.
    Xdp(XdpEdge),
    /// Frames are taken by tc.
    Lane(LaneEdge),
    /// A tap, whose interface may be in another namespace; its device knows when it is gone.
    Tap,
}

/// What to do about a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// All is well: frames pass.
    Fine,
    /// The interface is not the port's any more: let go of it, and wait for one that is.
    Gone(String),
    /// It was set down: close the device, so that nothing that is in it now comes out when it is set up again.
    SetDown,
    /// It is up and nobody is at the other end.
    NoCarrier,
    /// It is another one now in this respect, and needs a new device.
    Changed(Held, String),
}

/// The interfaces of the daemon's namespace at one moment.
#[derive(Debug)]
pub struct Interfaces(HashMap<u32, Link>);

impl Interfaces {
    /// Those.
    pub fn new(links: Vec<Link>) -> Self {
        Self(links.into_iter().map(|link| (link.index, link)).collect())
    }

    /// Whether there is one of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.0.values().any(|link| link.name == name)
    }
}

impl Held {
    /// What the port holds after this was opened.
    pub fn of(edge: &Edge) -> Option<Self> {
        match edge {
            Edge::Xdp(edge) => Some(Self::Xdp(edge.clone())),
            Edge::Lane(edge) => Some(Self::Lane(edge.clone())),
            Edge::Tap(_) => Some(Self::Tap),
            Edge::Waiting(_) => None,
        }
    }

    /// What to open to hold it again; a tap cannot be.
    pub fn edge(&self) -> Option<Edge> {
        match self {
            Self::Xdp(edge) => Some(Edge::Xdp(edge.clone())),
            Self::Lane(edge) => Some(Edge::Lane(edge.clone())),
            Self::Tap => None,
        }
    }

    /// What these interfaces call for. `is_open` says whether the port has a device, and `rx_queues` counts the receive
    /// queues of an interface.
    pub fn assess(
        &self,
        interfaces: &Interfaces,
        is_open: bool,
        rx_queues: impl FnOnce(&Link) -> u32,
    ) -> Finding {
        let (name, index) = match self {
            Self::Xdp(edge) => (&edge.interface, edge.ifindex),
            Self::Lane(edge) => (&edge.interface, edge.ifindex),
            Self::Tap => return Finding::Fine,
        };
        let Some(link) = interfaces.0.get(&index) else {
            return Finding::Gone(match interfaces.contains(name) {
                true => format!("interface {name} was replaced by another one"),
                false => format!("interface {name} is gone: it was deleted or moved to another namespace"),
            });
        };
        if link.name != *name {
            return Finding::Gone(format!("interface {name} is called {} now", link.name));
        }
        if link.master.is_some() {
            return Finding::Gone(format!("interface {name} was made a member of another device"));
        }
        if !link.up {
            return Finding::SetDown;
        }
        if let Some((held, reason)) = self.changed(link, is_open, rx_queues) {
            return Finding::Changed(held, reason);
        }
        if link.carrier { Finding::Fine } else { Finding::NoCarrier }
    }

    fn changed(
        &self,
        link: &Link,
        is_open: bool,
        rx_queues: impl FnOnce(&Link) -> u32,
    ) -> Option<(Self, String)> {
        let mtu_reason = |mtu| format!("its MTU is {} bytes now, not {mtu}", link.mtu);
        match self {
            Self::Lane(edge) if edge.mtu != link.mtu => {
                Some((Self::Lane(LaneEdge { mtu: link.mtu, ..edge.clone() }), mtu_reason(edge.mtu)))
            }
            Self::Xdp(edge) => {
                let rx_queues = rx_queues(link);
                let reason = if edge.mtu != link.mtu {
                    mtu_reason(edge.mtu)
                } else if edge.rx_queues != rx_queues {
                    format!("it has {rx_queues} receive queues now, not {}", edge.rx_queues)
                } else if is_open && link.xdp_program.is_none() {
                    "somebody detached its XDP program".to_owned()
                } else {
                    return None;
                };
                Some((Self::Xdp(XdpEdge { mtu: link.mtu, rx_queues, ..edge.clone() }), reason))
            }
            Self::Lane(_) | Self::Tap => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge() -> XdpEdge {
        XdpEdge { interface: "veth-a".to_owned(), ifindex: 7, mtu: 1500, rx_queues: 1, far_mac: None }
    }

    fn link() -> Link {
        Link {
            index: 7,
            name: "veth-a".to_owned(),
            mtu: 1500,
            up: true,
            carrier: true,
            xdp_program: Some(42),
            ..Link::default()
        }
    }

    fn finding(change: impl FnOnce(&mut Link)) -> Finding {
        let mut link = link();
        change(&mut link);
        Held::Xdp(edge()).assess(&Interfaces::new(vec![link]), true, |_| 1)
    }

    #[test]
    fn an_interface_that_is_as_it_was_is_fine() {
        assert_eq!(finding(|_| ()), Finding::Fine);
    }

    #[test]
    fn an_interface_that_is_not_the_port_s_any_more_is_gone() {
        let gone = |finding| matches!(finding, Finding::Gone(_));
        assert!(gone(finding(|link| link.index = 8)), "another one of the name");
        assert!(gone(finding(|link| (link.index, link.name) = (8, "other".to_owned()))), "none");
        assert!(gone(finding(|link| link.name = "veth-b".to_owned())), "renamed");
        assert!(gone(finding(|link| link.master = Some(3))), "taken by a bridge");
    }

    #[test]
    fn a_link_that_is_down_is_told_from_one_that_was_set_down() {
        assert_eq!(finding(|link| link.carrier = false), Finding::NoCarrier);
        assert_eq!(finding(|link| (link.up, link.carrier) = (false, false)), Finding::SetDown);
    }

    #[test]
    fn what_the_device_was_opened_for_is_compared() {
        let xdp = |mtu, rx_queues| Held::Xdp(XdpEdge { mtu, rx_queues, ..edge() });
        let changed = |finding| match finding {
            Finding::Changed(held, _) => Some(held),
            _ => None,
        };
        assert_eq!(changed(finding(|link| link.mtu = 9000)), Some(xdp(9000, 1)));
        assert_eq!(changed(finding(|link| link.xdp_program = None)), Some(xdp(1500, 1)));
        let interfaces = Interfaces::new(vec![link()]);
        assert_eq!(changed(Held::Xdp(edge()).assess(&interfaces, true, |_| 4)), Some(xdp(1500, 4)));
        // A port that was set down has no program, and needs none.
        let bare = Interfaces::new(vec![Link { xdp_program: None, ..link() }]);
        assert_eq!(Held::Xdp(edge()).assess(&bare, false, |_| 1), Finding::Fine);
    }
}
