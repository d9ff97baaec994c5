//! Routing netlink in one network namespace, one blocking call for each question or change.

use std::future::ready;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use futures_util::{StreamExt, TryStreamExt};
use lockgate_dataplane::frame::mac::MacAddr;
use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoVeth, LinkAttribute, LinkMessage,
};
use rtnetlink::packet_route::nsid::{NsidAttribute, NsidMessage};
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth};
use tokio::runtime::{Builder, Runtime};

use super::link::Link;
use super::netns::Namespace;

/// A socket in the namespace it was opened in. Its calls block, so they belong on a thread that may
/// ([`super::netns::apart`]).
#[derive(Debug)]
pub struct Netlink {
    runtime: Runtime,
    handle: Handle,
}

/// One end of a veth pair to be made.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its address, chosen by the kernel when absent.
    pub mac: Option<MacAddr>,
}

impl Netlink {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let (connection, handle, _) = {
            let _context = runtime.enter();
            rtnetlink::new_connection()?
        };
        runtime.spawn(connection);
        Ok(Self { runtime, handle })
    }

    /// The interface of that name.
    pub fn link(&self, name: &str) -> io::Result<Option<Link>> {
        self.one_link(self.handle.link().get().match_name(name))
    }

    /// The interface of that index.
    pub fn link_by_index(&self, index: u32) -> io::Result<Option<Link>> {
        self.one_link(self.handle.link().get().match_index(index))
    }

    /// Every interface.
    pub fn links(&self) -> io::Result<Vec<Link>> {
        self.collect(self.handle.link().get().execute().map_ok(Link::from))
    }

    /// Every address with the index of its interface and the length of its prefix.
    pub fn addresses(&self) -> io::Result<Vec<(u32, IpAddr, u8)>> {
        let messages = self.collect(self.handle.address().get().execute())?;
        let entry = |message: AddressMessage| {
            local_address(&message).map(|address| (message.header.index, address, message.header.prefix_len))
        };
        Ok(messages.into_iter().filter_map(entry).collect())
    }

    /// Indices of the interfaces that a default route of either IP version leaves by.
    pub fn default_route_interfaces(&self) -> io::Result<Vec<u32>> {
        let mut interfaces = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            // Filtered as it streams: a router's table has a million routes.
            let is_default = |route: &RouteMessage| ready(route.header.destination_prefix_length == 0);
            let routes = self.collect(self.handle.route().get(request).execute().try_filter(is_default))?;
            interfaces.extend(routes.iter().flat_map(outgoing));
        }
        Ok(interfaces)
    }

    /// The number that this namespace gave to another one, if it gave it any.
    pub fn namespace_id(&self, namespace: &Namespace) -> io::Result<Option<i32>> {
        let mut question = NsidMessage::default();
        question.attributes.push(NsidAttribute::Fd(namespace.file().as_raw_fd().cast_unsigned()));
        let mut request = NetlinkMessage::from(RouteNetlinkMessage::GetNsId(question));
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK;
        let mut handle = self.handle.clone();
        let answers = handle.request(request).map_err(into_io)?;
        let answers: Vec<_> = self.runtime.block_on(answers.collect());
        for answer in answers {
            match answer.payload {
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNsId(answer)) => {
                    return Ok(answer.attributes.into_iter().find_map(|attribute| match attribute {
                        NsidAttribute::Id(id) => (id >= 0).then_some(id),
                        _ => None,
                    }));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Makes a veth pair, `far` in `namespace` under its final name, so that no other name is ever seen there. Both
    /// ends have one queue each way and are down.
    pub fn add_veth(&self, near: VethEnd, far: VethEnd, namespace: &Namespace, mtu: u32) -> io::Result<()> {
        let end = |end: VethEnd| {
            let mut attributes = vec![
                LinkAttribute::IfName(end.name.to_owned()),
                LinkAttribute::Mtu(mtu),
                LinkAttribute::NumTxQueues(1),
                LinkAttribute::NumRxQueues(1),
            ];
            attributes.extend(end.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())));
            attributes
        };
        let mut peer = LinkMessage::default();
        peer.attributes = end(far);
        peer.attributes.push(LinkAttribute::NetNsFd(namespace.file().as_raw_fd()));
        let mut pair =
            LinkVeth::new(near.name, far.name).set_info_data(InfoData::Veth(InfoVeth::Peer(peer))).build();
        pair.attributes.extend(end(near).into_iter().filter(|a| !matches!(a, LinkAttribute::IfName(_))));
        self.block_on(self.handle.link().add(pair).execute())
    }

    /// Removes the interface; that it is gone already is no error.
    pub fn delete(&self, index: u32) -> io::Result<()> {
        match self.block_on(self.handle.link().del(index).execute()) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            result => result,
        }
    }

    /// Moves the interface into the namespace whose file is `namespace`, under a new name.
    pub fn move_to(&self, index: u32, namespace: RawFd, name: &str) -> io::Result<()> {
        self.change(LinkUnspec::new_with_index(index).setns_by_fd(namespace).name(name))
    }

    /// Sets address and MTU.
    pub fn configure(&self, index: u32, mac: Option<MacAddr>, mtu: u32) -> io::Result<()> {
        let link = LinkUnspec::new_with_index(index).mtu(mtu);
        self.change(match mac {
            Some(mac) => link.address(mac.0.to_vec()),
            None => link,
        })
    }

    /// Leaves a note on the interface for whoever lists it.
    pub fn set_alias(&self, index: u32, alias: &str) -> io::Result<()> {
        self.change(LinkUnspec::new_with_index(index).alias(alias))
    }

    /// Keeps the kernel from giving the interface a link-local address, and so from talking on it. A kernel without
    /// IPv6 has nothing to keep.
    pub fn silence(&self, index: u32) -> io::Result<()> {
        let none = vec![AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)])];
        let attribute = LinkAttribute::AfSpecUnspec(none);
        match self.change(LinkUnspec::new_with_index(index).append_extra_attribute(attribute)) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => {
                Ok(())
            }
            result => result,
        }
    }

    /// Sets how many frames the interface queues.
    pub fn set_queue_len(&self, index: u32, frames: u32) -> io::Result<()> {
        let attribute = LinkAttribute::TxQueueLen(frames);
        self.change(LinkUnspec::new_with_index(index).append_extra_attribute(attribute))
    }

    /// Gives the interface an address.
    pub fn add_address(&self, index: u32, address: IpAddr, prefix_len: u8) -> io::Result<()> {
        self.block_on(self.handle.address().add(index, address, prefix_len).execute())
    }

    /// Sets the interface up.
    pub fn set_up(&self, index: u32) -> io::Result<()> {
        self.change(LinkUnspec::new_with_index(index).up())
    }

    fn change(&self, link: LinkMessageBuilder<LinkUnspec>) -> io::Result<()> {
        self.block_on(self.handle.link().change(link.build()).execute())
    }

    fn one_link(&self, request: rtnetlink::LinkGetRequest) -> io::Result<Option<Link>> {
        match self.collect(request.execute()) {
            Ok(links) => Ok(links.into_iter().next().map(Link::from)),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn collect<T>(
        &self,
        stream: impl futures_util::Stream<Item = Result<T, rtnetlink::Error>>,
    ) -> io::Result<Vec<T>> {
        self.block_on(stream.try_collect())
    }

    fn block_on<T>(&self, call: impl Future<Output = Result<T, rtnetlink::Error>>) -> io::Result<T> {
        self.runtime.block_on(call).map_err(into_io)
    }
}

/// The interface's own address; on a point-to-point interface the other attribute is the far side's.
fn local_address(message: &AddressMessage) -> Option<IpAddr> {
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    local.or_else(|| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })
}

/// Interfaces that a route leaves by: one, or one for each of its next hops.
fn outgoing(route: &RouteMessage) -> Vec<u32> {
    let mut interfaces = Vec::new();
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => interfaces.push(*index),
            RouteAttribute::MultiPath(hops) => interfaces.extend(hops.iter().map(|hop| hop.interface_index)),
            _ => {}
        }
    }
    interfaces
}

/// The kernel's error number where there is one, so that messages read like those of `ip`.
fn into_io(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.to_io(),
        other => io::Error::other(other.to_string()),
    }
}
