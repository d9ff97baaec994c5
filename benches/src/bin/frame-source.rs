//! Sends equal-sized UDP frames out of an interface as fast as it takes them, past the queueing discipline, and prints
//! how many it sent. Runs in the sending namespace of a frame-rate measurement.
//!
//! `frame-source INTERFACE DESTINATION-MAC SECONDS FLOWS LENGTH PROCESSOR`

use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::socket::{
    self, AddressFamily, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockProtocol, SockType,
};
use nix::unistd::Pid;

/// Frames per system call.
const BATCH: usize = 64;
/// `PACKET_QDISC_BYPASS` of `linux/if_packet.h`.
const PACKET_QDISC_BYPASS: libc::c_int = 20;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(sent) => {
            println!("{sent}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("frame-source: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<u64, Box<dyn std::error::Error>> {
    let [interface, destination, seconds, flows, length, processor] = arguments else {
        return Err("usage: frame-source INTERFACE DESTINATION-MAC SECONDS FLOWS LENGTH PROCESSOR".into());
    };
    let destination: lockgate_dataplane::frame::mac::MacAddr = destination.parse()?;
    let (flows, length): (u16, usize) = (flows.parse()?, length.parse()?);
    let mut processors = CpuSet::new();
    processors.set(processor.parse()?)?;
    sched_setaffinity(Pid::from_raw(0), &processors)?;

    let (address, source) = link_address(interface)?;
    let socket =
        socket::socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), None::<SockProtocol>)?;
    bypass_queueing_discipline(&socket)?;
    let frames: Vec<Vec<u8>> = (0..flows.max(1))
        .map(|flow| lockgate_benches::frames::udp(destination, source, flow, length))
        .collect();

    let until = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?;
    let until = Duration::from(until) + Duration::from_secs_f64(seconds.parse()?);
    let mut headers = MultiHeaders::preallocate(BATCH, None);
    let (mut sent, mut next) = (0, 0);
    while Duration::from(nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?) < until {
        let batch: Vec<[IoSlice; 1]> =
            (0..BATCH).map(|step| [IoSlice::new(&frames[(next + step) % frames.len()])]).collect();
        next = (next + BATCH) % frames.len();
        let addresses = vec![Some(address); BATCH];
        match socket::sendmmsg(socket.as_raw_fd(), &mut headers, &batch, addresses, [], MsgFlags::empty()) {
            Ok(results) => sent += results.count() as u64,
            // The interface's ring is full: what a sender without flow control meets.
            Err(nix::errno::Errno::ENOBUFS | nix::errno::Errno::EAGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sent)
}

fn link_address(interface: &str) -> Result<(LinkAddr, lockgate_dataplane::frame::mac::MacAddr), String> {
    let addresses = nix::ifaddrs::getifaddrs().map_err(|error| error.to_string())?;
    for entry in addresses.filter(|entry| entry.interface_name == interface) {
        if let Some(link) = entry.address.as_ref().and_then(|address| address.as_link_addr())
            && let Some(mac) = link.addr()
        {
            return Ok((*link, lockgate_dataplane::frame::mac::MacAddr(mac)));
        }
    }
    Err(format!("no interface {interface}"))
}

fn bypass_queueing_discipline(socket: &impl AsRawFd) -> Result<(), std::io::Error> {
    let on: libc::c_int = 1;
    // SAFETY: the option value is a C int that lives across the call, and 4 is its size.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, PACKET_QDISC_BYPASS, (&raw const on).cast(), 4)
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
