//! The committed eBPF object in the kernel: run over named frames (`BPF_PROG_TEST_RUN`), and attached to a veth.

#![expect(
    clippy::cast_possible_truncation,
    reason = "the sizes of structures and of these frames fit the kernel's u32"
)]

use std::{
    os::fd::{AsRawFd, OwnedFd},
    process::Command,
    thread::sleep,
    time::Duration,
};

use aya::{
    Ebpf,
    maps::{MapData, PerCpuArray, XskMap},
    programs::{ProgramError, TestRun, TestRunOptions, Xdp, XdpMode, links::FdLink},
};
use lockgate_ebpf_common::{
    names::{MAX_QUEUES, STEER_COUNTERS, STEER_PROGRAM, XSK_MAP},
    steer::SteerCounter,
};
use lockgate_tests::require;
use lockgate_tests::xsk_socket::{XskSocket, bind, raw_socket};
use nix::{net::if_::if_nametoindex, sched::CloneFlags};

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

#[test]
fn maps_have_the_capacities_that_user_space_assumes() {
    if !enter_network_namespace() {
        return;
    }
    let steer = Steer::load();
    assert_eq!(steer.sockets().len(), MAX_QUEUES);
    assert_eq!(steer.counter_map().len() as usize, SteerCounter::COUNT);
}

#[test]
fn without_a_socket_every_frame_passes_and_is_counted() {
    if !enter_network_namespace() {
        return;
    }
    for (name, frame) in golden_frames() {
        let steer = Steer::load();
        assert_eq!(steer.run(&frame, &Context::of(&frame)).unwrap(), XDP_PASS, "{name}");
        assert_eq!(steer.counts(), Counts { passed_no_socket: 1, ..Counts::default() }, "{name}");
    }
}

#[test]
fn with_a_socket_every_frame_is_redirected_and_counted() {
    if !enter_network_namespace() {
        return;
    }
    let socket = XskSocket::bind("lo", 0);
    for (name, frame) in golden_frames() {
        let mut steer = Steer::load();
        steer.set_socket(0, &socket);
        assert_eq!(steer.run(&frame, &Context::of(&frame)).unwrap(), XDP_REDIRECT, "{name}");
        assert_eq!(steer.counts(), Counts { redirected: 1, ..Counts::default() }, "{name}");
    }
}

#[test]
fn runts_are_dropped_and_counted() {
    if !enter_network_namespace() {
        return;
    }
    let socket = XskSocket::bind("lo", 0);
    let mut steer = Steer::load();
    steer.set_socket(0, &socket);
    // The kernel refuses test frames under 14 bytes, but since 6.18 it lets the first buffer, where the program looks,
    // be shorter than that.
    let frame = arp_request();
    for (runts, length) in [0, 1, 6, 12, 13].into_iter().enumerate() {
        match steer.run(&frame, &Context { data_end: length, ..Context::of(&frame) }) {
            Err(error) if errno(&error) == Some(libc::EINVAL) => {
                eprintln!("SKIP runts: this kernel makes none");
                return;
            }
            action => assert_eq!(action.unwrap(), XDP_DROP, "{length} bytes"),
        }
        assert_eq!(
            steer.counts(),
            Counts { dropped_runt: runts as u64 + 1, ..Counts::default() },
            "{length} bytes"
        );
    }
    assert_eq!(steer.run(&frame, &Context { data_end: 14, ..Context::of(&frame) }).unwrap(), XDP_REDIRECT);
}

#[test]
fn a_closed_socket_leaves_the_map() {
    if !enter_network_namespace() {
        return;
    }
    let mut steer = Steer::load();
    let socket = XskSocket::bind("lo", 0);
    steer.set_socket(0, &socket);
    drop(socket);
    let frame = arp_request();
    assert_eq!(steer.run(&frame, &Context::of(&frame)).unwrap(), XDP_PASS);
}

#[test]
fn each_queue_finds_its_own_socket() {
    if !enter_network_namespace() {
        return;
    }
    let veth = Veth::create();
    let mut steer = Steer::load();
    // A veth has its receive queues ready for XDP only while a program is attached.
    let _link = steer.attach(veth.port, XdpMode::Driver).unwrap();
    let sockets = [0, 2].map(|queue| (queue, XskSocket::bind(Veth::PORT, queue)));
    for (queue, socket) in &sockets {
        steer.set_socket(*queue, socket);
    }
    let frame = arp_request();
    for (queue, action) in [(0, XDP_REDIRECT), (1, XDP_PASS), (2, XDP_REDIRECT), (3, XDP_PASS)] {
        let context = Context { ingress_ifindex: veth.port, rx_queue_index: queue, ..Context::of(&frame) };
        assert_eq!(steer.run(&frame, &context).unwrap(), action, "queue {queue}");
    }
}

#[test]
fn frames_of_any_size_reach_the_socket_of_a_veth_with_mtu_9000() {
    if !enter_network_namespace() {
        return;
    }
    let veth = Veth::create();
    for mode in [XdpMode::Driver, XdpMode::Skb] {
        let mut steer = Steer::load();
        let _link = steer.attach(veth.port, mode).unwrap();

        veth.send(&arp_request());
        wait_for("one frame to pass", || steer.counts().passed_no_socket == 1);

        let socket = XskSocket::bind(Veth::PORT, 0);
        steer.set_socket(0, &socket);
        for length in [60, 1514, 4096, 9014] {
            veth.send(&ipv4_udp(length));
        }
        wait_for("four redirects", || {
            steer.counts() == Counts { redirected: 4, passed_no_socket: 1, dropped_runt: 0 }
        });
        // The socket has no buffers: that it was offered the frames shows in its drops.
        wait_for("four offers to the socket", || socket.dropped() == 4);
    }
}

#[test]
fn a_device_has_one_program_and_loses_it_with_the_link() {
    if !enter_network_namespace() {
        return;
    }
    let veth = Veth::create();
    let (mut first, mut second) = (Steer::load(), Steer::load());
    let link = first.attach(veth.port, XdpMode::Driver).unwrap();

    let refused = second.attach(veth.port, XdpMode::Driver).unwrap_err();
    assert_eq!(errno(&refused), Some(libc::EBUSY), "{refused}");

    drop(link);
    second.attach(veth.port, XdpMode::Driver).unwrap();
}

/// The committed object, loaded.
struct Steer {
    ebpf: Ebpf,
}

/// Frames by outcome, summed over all CPUs.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    redirected: u64,
    passed_no_socket: u64,
    dropped_runt: u64,
}

impl Steer {
    fn load() -> Self {
        let mut ebpf = Ebpf::load(aya::include_bytes_aligned!("../ebpf/object/lockgate.bpf.o")).unwrap();
        let program: &mut Xdp = ebpf.program_mut(STEER_PROGRAM).unwrap().try_into().unwrap();
        program.load().unwrap();
        Self { ebpf }
    }

    fn sockets(&self) -> XskMap<&MapData> {
        self.ebpf.map(XSK_MAP).unwrap().try_into().unwrap()
    }

    fn set_socket(&mut self, queue: u32, socket: &XskSocket) {
        let mut sockets: XskMap<&mut MapData> = self.ebpf.map_mut(XSK_MAP).unwrap().try_into().unwrap();
        sockets.set(queue, socket.as_raw_fd(), 0).unwrap();
    }

    fn counter_map(&self) -> PerCpuArray<&MapData, u64> {
        self.ebpf.map(STEER_COUNTERS).unwrap().try_into().unwrap()
    }

    fn counts(&self) -> Counts {
        let map = self.counter_map();
        let [redirected, passed_no_socket, dropped_runt] =
            SteerCounter::ALL.map(|counter| map.get(&counter.index(), 0).unwrap().iter().sum());
        Counts { redirected, passed_no_socket, dropped_runt }
    }

    /// The action of the program on `frame`.
    fn run(&self, frame: &[u8], context: &Context) -> Result<u32, ProgramError> {
        let program: &Xdp = self.ebpf.program(STEER_PROGRAM).unwrap().try_into().unwrap();
        let context = context.bytes();
        let options =
            TestRunOptions { data_in: Some(frame), ctx_in: Some(&context), ..TestRunOptions::new() };
        Ok(program.test_run(options)?.return_value)
    }

    /// A link that is not a file descriptor would outlive the process, hence the check.
    fn attach(&mut self, interface: u32, mode: XdpMode) -> Result<FdLink, ProgramError> {
        let program: &mut Xdp = self.ebpf.program_mut(STEER_PROGRAM).unwrap().try_into().unwrap();
        let id = program.attach_to_if_index(interface, mode)?;
        Ok(program.take_link(id)?.try_into().expect("the link is a file descriptor"))
    }
}

/// What the program is told about a frame: the fields of the kernel's `struct xdp_md` that a test may set.
#[derive(Default)]
struct Context {
    /// Bytes in the first buffer; the others follow in further buffers.
    data_end: u32,
    /// Zero stands for the namespace's loopback device.
    ingress_ifindex: u32,
    rx_queue_index: u32,
}

impl Context {
    fn of(frame: &[u8]) -> Self {
        // A page has room for this much beside the headroom and the kernel's own bookkeeping.
        const FIRST_BUFFER: usize = 3072;
        Self { data_end: frame.len().min(FIRST_BUFFER) as u32, ..Self::default() }
    }

    fn bytes(&self) -> [u8; 24] {
        let (data, data_meta, egress_ifindex) = (0, 0, 0);
        let fields =
            [data, self.data_end, data_meta, self.ingress_ifindex, self.rx_queue_index, egress_ifindex];
        let mut bytes = [0; 24];
        for (field, to) in fields.into_iter().zip(bytes.chunks_exact_mut(4)) {
            to.copy_from_slice(&field.to_ne_bytes());
        }
        bytes
    }
}

/// Every kind of frame that could tempt a steering program to decide by content; this one must not.
fn golden_frames() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("arp_request", arp_request()),
        ("ipv4_udp", ipv4_udp(64)),
        ("ipv6", ipv6_neighbour_solicitation()),
        ("vlan_tagged", tagged(&[[0x81, 0x00, 0x00, 0x0a]], &ipv4_udp(64))),
        ("qinq", tagged(&[[0x88, 0xa8, 0x00, 0x64], [0x81, 0x00, 0x00, 0x0a]], &ipv4_udp(64))),
        ("spanning_tree", ethernet([0x01, 0x80, 0xc2, 0, 0, 0], 38, &[&[0x42, 0x42, 0x03], &[0; 43]])),
        ("header_only", ethernet(BROADCAST, 0x88b5, &[])),
        ("jumbo", ipv4_udp(9014)),
    ]
}

const BROADCAST: [u8; 6] = [0xff; 6];
const SENDER: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
const RECEIVER: [u8; 6] = [0x02, 0, 0, 0, 0, 0x02];

fn ethernet(destination: [u8; 6], ethertype: u16, payload: &[&[u8]]) -> Vec<u8> {
    [&destination, &SENDER, &ethertype.to_be_bytes()[..], &payload.concat()].concat()
}

/// `frame` with `tags` (EtherType and control information, outermost first) behind its addresses.
fn tagged(tags: &[[u8; 4]], frame: &[u8]) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(12);
    [addresses, &tags.concat(), rest].concat()
}

fn arp_request() -> Vec<u8> {
    let header = [0, 1, 0x08, 0, 6, 4, 0, 1];
    ethernet(BROADCAST, 0x0806, &[&header, &SENDER, &[10, 0, 0, 1], &[0; 6], &[10, 0, 0, 2]])
}

/// `length` counts from the Ethernet header to the end of the payload.
fn ipv4_udp(length: usize) -> Vec<u8> {
    let ip_length = (length - 14) as u16;
    let [high, low] = ip_length.to_be_bytes();
    let ip = [0x45, 0, high, low, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let [high, low] = (ip_length - 20).to_be_bytes();
    let udp = [0x30, 0x39, 0x30, 0x3a, high, low, 0, 0];
    ethernet(RECEIVER, 0x0800, &[&ip, &udp, &vec![0; length - 42]])
}

fn ipv6_neighbour_solicitation() -> Vec<u8> {
    let address = |last| [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let ip = [0x60, 0, 0, 0, 0, 24, 58, 255];
    let icmp = [135, 0, 0, 0, 0, 0, 0, 0];
    let group = [0x33, 0x33, 0xff, 0, 0, 0x02];
    ethernet(group, 0x86dd, &[&ip, &address(1), &address(2), &icmp, &address(2)])
}

/// A pair with four queues and MTU 9000 that does not speak by itself.
struct Veth {
    port: u32,
    peer: OwnedFd,
}

impl Veth {
    const PORT: &str = "lgebpf-port";
    const PEER: &str = "lgebpf-peer";

    fn create() -> Self {
        let queues = "numrxqueues 4 numtxqueues 4";
        ip(&format!(
            "link add {} mtu 9000 {queues} type veth peer name {} mtu 9000 {queues}",
            Self::PORT,
            Self::PEER
        ));
        for end in [Self::PORT, Self::PEER] {
            ip(&format!("link set {end} addrgenmode none up"));
        }
        let peer = raw_socket(libc::AF_PACKET, 0);
        // SAFETY: a structure of integers may be zero.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = if_nametoindex(Self::PEER).unwrap() as i32;
        bind(&peer, &address);
        Self { port: if_nametoindex(Self::PORT).unwrap(), peer }
    }

    fn send(&self, frame: &[u8]) {
        assert_eq!(nix::unistd::write(&self.peer, frame).unwrap(), frame.len());
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

fn errno(error: &ProgramError) -> Option<i32> {
    match error {
        ProgramError::SyscallError(error) => error.io_error.raw_os_error(),
        _ => None,
    }
}

#[track_caller]
fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..200 {
        if condition() {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("waited two seconds for {what}");
}

/// False, with the reason said, where the tests of this file cannot run. The namespace goes away with the test's thread.
#[must_use]
fn enter_network_namespace() -> bool {
    if !require::root("bpf_prog_run") {
        return false;
    }
    nix::sched::unshare(CloneFlags::CLONE_NEWNET).unwrap();
    ip("link set lo up");
    true
}
