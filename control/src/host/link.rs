//! What the kernel says about an interface.

use std::fs;

use lockgate_dataplane::frame::mac::MacAddr;
use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkXdp};

use super::ethtool::Ethtool;

/// An interface as its namespace sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its index in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The note an administrator, or Lockgate, left on it.
    pub alias: String,
    /// Its address, if the link has such a thing and it is an Ethernet one.
    pub mac: Option<MacAddr>,
    /// Longest IP packet, in bytes.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it carries a signal: a veth whose far end is up, a tap that somebody has open, a cable.
    pub carrier: bool,
    /// Kind of virtual device, as `ip -d link` prints it; `None` for hardware.
    pub kind: Option<String>,
    /// Index of the bridge or bond it is a member of.
    pub master: Option<u32>,
    /// Number of the XDP program that is attached to it.
    pub xdp_program: Option<u32>,
    /// The other end, if it has one.
    pub peer: Option<PeerIndex>,
    /// Receive queues it was made with, of which fewer may be in use.
    pub rx_queues_allocated: u32,
}

/// Where the other end of a veth is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerIndex {
    /// Its index in its namespace.
    pub index: u32,
    /// Its namespace, by the number this namespace gave it; `None` if both ends are in the same one.
    pub namespace_id: Option<i32>,
}

impl Link {
    /// Whether it is one end of a veth pair.
    pub fn is_veth(&self) -> bool {
        self.kind.as_deref() == Some("veth")
    }

    /// Whether the two are the ends of one pair, as far as their indices tell.
    pub fn is_peer_of(&self, other: &Self) -> bool {
        let points_at = |from: &Self, to: &Self| from.peer.is_some_and(|peer| peer.index == to.index);
        points_at(self, other) && points_at(other, self)
    }

    /// What it is, for messages.
    pub fn kind_name(&self) -> &str {
        self.kind.as_deref().unwrap_or("not a virtual device")
    }

    /// Receive queues in use. Must be called in the network namespace of the interface.
    ///
    /// The driver tells; a veth does. Else sysfs does, but it may show another namespace's interfaces; then the number that
    /// was allocated is the safe answer, since a socket on a queue that is not in use is refused while a queue without a
    /// socket loses frames in silence.
    pub fn rx_queues(&self) -> u32 {
        if let Ok(queues @ 1..) = Ethtool::open().and_then(|ethtool| ethtool.rx_queues(&self.name)) {
            return queues;
        }
        let sysfs = format!("/sys/class/net/{}", self.name);
        let index =
            fs::read_to_string(format!("{sysfs}/ifindex")).ok().and_then(|text| text.trim().parse().ok());
        if index != Some(self.index) {
            return self.rx_queues_allocated;
        }
        let Ok(queues) = fs::read_dir(format!("{sysfs}/queues")) else { return self.rx_queues_allocated };
        let receive =
            queues.flatten().filter(|queue| queue.file_name().as_encoded_bytes().starts_with(b"rx-"));
        u32::try_from(receive.count()).unwrap_or(u32::MAX)
    }
}

impl From<LinkMessage> for Link {
    fn from(message: LinkMessage) -> Self {
        let mut link = Self {
            index: message.header.index,
            up: message.header.flags.contains(LinkFlags::Up),
            carrier: message.header.flags.contains(LinkFlags::LowerUp),
            ..Self::default()
        };
        let (mut peer_index, mut peer_namespace) = (None, None);
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::IfAlias(alias) => link.alias = alias,
                LinkAttribute::Address(mac) => link.mac = mac.try_into().ok().map(MacAddr),
                LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                LinkAttribute::Controller(index) => link.master = Some(index),
                LinkAttribute::NumRxQueues(queues) => link.rx_queues_allocated = queues,
                LinkAttribute::Link(index) => peer_index = Some(index),
                LinkAttribute::LinkNetNsId(id) => peer_namespace = Some(id),
                LinkAttribute::LinkInfo(infos) => link.kind = infos.into_iter().find_map(kind),
                LinkAttribute::Xdp(attributes) => link.xdp_program = attributes.into_iter().find_map(program),
                _ => {}
            }
        }
        // An upper device such as a macvlan names the one below it in the same attribute.
        if link.is_veth() {
            link.peer = peer_index.map(|index| PeerIndex { index, namespace_id: peer_namespace });
        }
        link
    }
}

fn kind(info: LinkInfo) -> Option<String> {
    match info {
        LinkInfo::Kind(InfoKind::Other(name)) => Some(name),
        LinkInfo::Kind(kind) => Some(kind.to_string()),
        _ => None,
    }
}

/// The program's number: in one attribute if there is one program, else one for each mode.
fn program(attribute: LinkXdp) -> Option<u32> {
    match attribute {
        LinkXdp::ProgId(id) | LinkXdp::DrvProgId(id) | LinkXdp::SkbProgId(id) | LinkXdp::HwProgId(id) => {
            Some(id)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(attributes: Vec<LinkAttribute>) -> Link {
        let mut message = LinkMessage::default();
        message.header.index = 7;
        message.attributes = attributes;
        message.into()
    }

    #[test]
    fn a_veth_knows_its_peer_and_a_device_on_top_of_another_has_none() {
        let attributes = |kind| {
            vec![
                LinkAttribute::Link(3),
                LinkAttribute::LinkNetNsId(1),
                LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]),
            ]
        };
        let veth = link(attributes(InfoKind::Veth));
        assert_eq!(veth.peer, Some(PeerIndex { index: 3, namespace_id: Some(1) }));
        assert_eq!(link(attributes(InfoKind::MacVlan)).peer, None);
    }

    #[test]
    fn an_attached_program_shows_whatever_its_mode() {
        for xdp in [LinkXdp::ProgId(42), LinkXdp::DrvProgId(42), LinkXdp::SkbProgId(42)] {
            assert_eq!(link(vec![LinkAttribute::Xdp(vec![LinkXdp::Flags(0), xdp])]).xdp_program, Some(42));
        }
        assert_eq!(link(vec![LinkAttribute::Xdp(vec![LinkXdp::Flags(0)])]).xdp_program, None);
    }

    #[test]
    fn queues_fall_back_to_the_allocated_number_where_sysfs_shows_another_namespace() {
        let mut stranger = link(vec![LinkAttribute::IfName("lo".to_owned()), LinkAttribute::NumRxQueues(4)]);
        stranger.index = u32::MAX;
        assert_eq!(stranger.rx_queues(), 4);
    }
}
