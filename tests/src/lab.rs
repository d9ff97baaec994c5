//! What end-to-end tests set up: ports with raw stations behind them, veths and programs that are not the switch's.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use aya::Ebpf;
use aya::programs::links::FdLink;
use aya::programs::{ProgramError, Xdp, XdpMode};
use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_ebpf_common::names::STEER_PROGRAM;
use nix::net::if_::if_nametoindex;
use serde_json::Value;

use crate::frames::{SHORTEST, ethernet, station};
use crate::netns::Netns;
use crate::packet_socket::{PacketSocket, TEST_ETHERTYPE, is_test_frame};
use crate::process::{run, temporary_path};
use crate::switch::Switch;

/// What has not arrived after this long will not.
pub const SILENCE: Duration = Duration::from_millis(200);
/// Longest wait for what must arrive.
pub const ARRIVAL: Duration = Duration::from_secs(2);

/// A port with one station behind it, and a raw socket there.
pub struct Far<'a> {
    /// Its port.
    pub name: &'static str,
    /// Where its interface is.
    pub netns: &'a Netns,
    /// On its interface.
    pub socket: PacketSocket,
}

/// One port per name and group, a tap where the name says so and a veth else; station 1 behind the first, 2 behind the
/// second and so on. No stack sends anything.
pub struct RawLab {
    /// Where the switch runs.
    pub host: Netns,
    far: Vec<(&'static str, &'static str, Netns)>,
    steering: &'static str,
}

impl RawLab {
    /// Namespaces for these ports, by name and group.
    pub fn new(ports: &[(&'static str, &'static str)]) -> Self {
        let far = ports.iter().map(|(name, group)| (*name, *group, Netns::new().without_ipv6())).collect();
        Self { host: Netns::new().without_ipv6(), far, steering: "auto" }
    }

    /// The veths are steered by XDP.
    pub fn by_xdp(mut self) -> Self {
        self.steering = "xdp";
        self
    }

    /// A switch with these groups, as the body of `port_groups`.
    #[track_caller]
    pub fn start(&self, groups: &str) -> (Switch<'_>, Vec<Far<'_>>) {
        let mut ports = String::new();
        for ((name, group, netns), number) in self.far.iter().zip(1..) {
            let (netns, mac) = (netns.name(), station(number));
            let (kind, steering) = match name.starts_with("tap") {
                true => ("tap", String::new()),
                false => ("veth", format!(", steering: {}", self.steering)),
            };
            ports += &format!(
                "  {name}: {{ group: {group}, {kind}: {{ netns: {netns}, interface: eth0, mac: \"{mac}\" }}{steering} }}\n"
            );
        }
        let switch = Switch::start(&self.host, &format!("port_groups:\n{groups}\nports:\n{ports}"));
        let far = self.far.iter();
        (
            switch,
            far.map(|(name, _, netns)| Far { name, netns, socket: PacketSocket::bind(netns, "eth0") })
                .collect(),
        )
    }
}

impl Far<'_> {
    /// The tests' frames that arrived here.
    pub fn received(&self) -> Vec<Vec<u8>> {
        self.socket.receive_all(SILENCE, is_test_frame)
    }
}

/// A broadcast from `from` that says which one it is.
pub fn broadcast(from: u8, number: u8) -> Vec<u8> {
    ethernet(MacAddr::BROADCAST, station(from), TEST_ETHERTYPE, &[number; SHORTEST - 14])
}

/// A frame from station `from`.
pub fn unicast(from: u8, to: MacAddr) -> Vec<u8> {
    ethernet(to, station(from), TEST_ETHERTYPE, &[0x5a; SHORTEST - 14])
}

/// A veth pair as a container engine makes it: `near` on the host, `eth0` with an address in the container. `queues` is
/// `numrxqueues N numtxqueues N` or nothing.
pub fn foreign_veth(host: &Netns, near: &str, queues: &str, container: &Netns, address: &str) {
    host.ip(&format!(
        "link add {near} {queues} type veth peer name eth0 {queues} netns {}",
        container.name()
    ));
    host.ip(&format!("link set {near} up"));
    container.ip("link set eth0 up");
    container.ip(&format!("addr add {address} dev eth0"));
}

/// Every link of a namespace with all that `ip` says of it.
pub fn links(netns: &Netns) -> BTreeMap<String, Value> {
    let links: Value = serde_json::from_str(&netns.ip("-j -d link")).unwrap();
    let links = links.as_array().unwrap().iter();
    links.map(|link| (link["ifname"].as_str().unwrap().to_owned(), link.clone())).collect()
}

/// Interfaces of `netns` that have an XDP program.
pub fn with_xdp(netns: &Netns) -> Vec<String> {
    links(netns).into_iter().filter(|(_, link)| !link["xdp"].is_null()).map(|(name, _)| name).collect()
}

/// An XDP program on `interface` that passes every frame, and stays as long as the link that is returned: the switch's
/// own object in other hands, without a socket to send frames to.
///
/// # Errors
/// If the kernel refuses.
pub fn foreign_program(netns: &Netns, interface: &str) -> Result<FdLink, ProgramError> {
    netns.inside(|| {
        let mut ebpf = Ebpf::load(aya::include_bytes_aligned!("../../ebpf/object/lockgate.bpf.o")).unwrap();
        let program: &mut Xdp = ebpf.program_mut(STEER_PROGRAM).unwrap().try_into().unwrap();
        program.load().unwrap();
        let id = program.attach_to_if_index(if_nametoindex(interface).unwrap(), XdpMode::Driver)?;
        Ok(program.take_link(id)?.try_into().expect("the link is a file descriptor"))
    })
}

/// A program on the way out of `netns` that gives every frame a tag, in the kernel's data about the frame, as a VLAN
/// interface does. It stays as long as the namespace.
pub fn tag_on_the_way_out(netns: &Netns, vlan: u16) {
    let tpid = 0x8100u16.to_be();
    let source = format!(
        "static long (*vlan_push)(void *, unsigned short, unsigned short) = (void *)18;\n\
         __attribute__((section(\"tagger\"))) int tag(void *skb) {{ vlan_push(skb, {tpid}, {vlan}); return 0; }}\n\
         __attribute__((section(\"license\"))) char gpl[] = \"GPL\";\n"
    );
    let (file, object) = (temporary_path("tagger.c"), temporary_path("tagger.o"));
    fs::write(&file, source).expect("the directory for temporary files can be written");
    let mut compile = Command::new("clang");
    compile.args(["-target", "bpf", "-O2", "-c", "-o"]).arg(&object).arg(&file);
    run(compile);
    netns.run("tc qdisc add dev eth0 clsact");
    netns
        .run(&format!("tc filter add dev eth0 egress bpf direct-action obj {} sec tagger", object.display()));
    _ = (fs::remove_file(&file), fs::remove_file(&object));
}
