//! What no two ports may share: an interface, and an address within a VLAN.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use lockgate_dataplane::frame::mac::MacAddr;

use super::diagnostic::{Diagnostics, Place};
use super::ports::KindConfig;
use super::reader::Reader;
use super::resolve::Member;
use crate::topology::Netns;

/// Reports interfaces and MAC addresses of two ports as errors, IP addresses as warnings: those a host may share on
/// purpose.
pub fn check(members: &[Member<'_>], diagnostics: &mut Diagnostics) {
    for Clash { what: (place, name), first, second } in clashes(members, interfaces, |_, _| true) {
        second
            .reader(diagnostics)
            .error(
                second.place,
                format!("interface `{name}` of {place} is already port `{}`", first.port_name()),
            )
            .label("again here")
            .related(first.place, "first here")
            .help("an interface is one port: rename one of them");
    }
    for Clash { what: mac, first, second } in clashes(members, macs, share_a_vlan) {
        second
            .reader(diagnostics)
            .error(second.place, format!("{mac} is already an address of port `{}`", first.port_name()))
            .label("again here")
            .related(first.place, "first here")
            .help("the switch finds a station of a VLAN by its MAC address: give each its own");
    }
    for Clash { what: address, first, second } in clashes(members, addresses, share_a_vlan) {
        second
            .reader(diagnostics)
            .warning(second.place, format!("{address} is already an address of port `{}`", first.port_name()))
            .label("again here")
            .related(first.place, "first here")
            .help("two hosts with one IP address in a VLAN take each other's traffic");
    }
}

/// Something that a port says it has.
#[derive(Clone, Copy)]
struct Claim<'c> {
    member: Member<'c>,
    place: Place,
}

/// Two claims to the same thing.
struct Clash<'c, K> {
    what: K,
    first: Claim<'c>,
    second: Claim<'c>,
}

impl<'c> Claim<'c> {
    fn port_name(&self) -> &'c str {
        &self.member.port.name.value
    }

    fn reader<'d>(&self, diagnostics: &'d mut Diagnostics) -> Reader<'d> {
        Reader::new(diagnostics, format!("port `{}`", self.port_name()))
    }
}

/// Each claim that conflicts with one of an earlier port, together with that one.
fn clashes<'c, K: Clone + Eq + Hash>(
    members: &[Member<'c>],
    things: impl Fn(&Member<'c>) -> Vec<(K, Place)>,
    conflict: impl Fn(&Member<'c>, &Member<'c>) -> bool,
) -> Vec<Clash<'c, K>> {
    let mut claims: HashMap<K, Vec<Claim<'c>>> = HashMap::new();
    let mut clashes = Vec::new();
    for member in members {
        for (what, place) in things(member) {
            let second = Claim { member: *member, place };
            let earlier = claims.entry(what.clone()).or_default();
            let other_port = |first: &&Claim<'c>| first.member.port.name.place != member.port.name.place;
            let first =
                earlier.iter().filter(other_port).find(|first| conflict(&first.member, member)).copied();
            clashes.extend(first.map(|first| Clash { what, first, second }));
            earlier.push(second);
        }
    }
    clashes
}

/// Interfaces with the namespace they are in.
fn interfaces(member: &Member<'_>) -> Vec<((String, String), Place)> {
    const HOST: &str = "the host";
    let (namespace, name) = match &member.port.kind {
        None => return Vec::new(),
        Some(KindConfig::Netdev { interface, .. }) => (HOST.to_owned(), interface),
        Some(KindConfig::Internal(interface)) => (HOST.to_owned(), &interface.name),
        Some(KindConfig::Veth(far_end, _) | KindConfig::Tap(far_end)) => {
            let namespace = match &far_end.netns {
                Netns::Name(name) => format!("namespace `{name}`"),
                Netns::Path(path) => format!("namespace `{}`", path.display()),
                Netns::Pid(pid) => format!("the namespace of process {pid}"),
            };
            (namespace, &far_end.interface.name)
        }
    };
    vec![((namespace, name.value.clone()), name.place)]
}

fn macs(member: &Member<'_>) -> Vec<(MacAddr, Place)> {
    let own = member.port.interface().and_then(|interface| interface.mac);
    member.port.macs.iter().copied().chain(own).map(|mac| (mac.value, mac.place)).collect()
}

fn addresses(member: &Member<'_>) -> Vec<(IpAddr, Place)> {
    let interface = member.port.interface();
    interface
        .into_iter()
        .flat_map(|interface| &interface.addresses)
        .map(|at| (at.value.0, at.place))
        .collect()
}

fn share_a_vlan(a: &Member<'_>, b: &Member<'_>) -> bool {
    let vlan = |member: &Member<'_>| member.group.and_then(|(_, group)| group.vlan.clone());
    let (Some(a), Some(b)) = (vlan(a), vlan(b)) else { return false };
    a.vlans().into_iter().any(|id| b.carries(id))
}
