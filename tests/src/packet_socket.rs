//! A packet socket on an interface: raw frames out, and in with their tags and the state of their checksums.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use lockgate_dataplane::frame::mac::MacAddr;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recv,
    recvmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use nix::unistd::write;
use nix::{setsockopt_impl, sockopt_impl};

use crate::clock::Stopwatch;
use crate::netns::Netns;

sockopt_impl!(
    /// Asks for the part of a frame that is not in its bytes.
    Auxdata, SetOnly, libc::SOL_PACKET, libc::PACKET_AUXDATA, bool
);
sockopt_impl!(
    /// Leaves out frames on the way out.
    IgnoreOutgoing, SetOnly, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, bool
);

/// EtherType of the tests' own frames (IEEE 802 local experimental 1).
pub const TEST_ETHERTYPE: u16 = 0x88b5;

const RECEIVE_BUFFER: usize = 64 << 20;

/// A socket bound to one interface. It receives what comes in after it was made.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
}

/// A frame that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its bytes, tag included.
    pub bytes: Vec<u8>,
    /// The receiving device was told that the checksum is still to be filled in, as between two local stacks.
    pub checksum_unfinished: bool,
}

impl PacketSocket {
    /// Binds to `interface` in `netns`.
    ///
    /// # Panics
    /// If the interface is not there.
    #[track_caller]
    pub fn bind(netns: &Netns, interface: &str) -> Self {
        netns.inside(|| {
            let all = SockProtocol::EthAll;
            let fd =
                socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, all).expect("root may");
            setsockopt(&fd, sockopt::RcvBufForce, &RECEIVE_BUFFER).expect("root may");
            setsockopt(&fd, Auxdata, &true).expect("the kernel has auxiliary data");
            setsockopt(&fd, IgnoreOutgoing, &true).expect("the kernel can leave out what goes out");
            bind(fd.as_raw_fd(), &link_address(interface)).expect("the interface is there");
            Self { fd }
        })
    }

    /// Sends a frame.
    #[track_caller]
    pub fn send(&self, frame: &[u8]) {
        loop {
            match write(&self.fd, frame) {
                Ok(_) => return,
                // The device's queue is full.
                Err(Errno::ENOBUFS | Errno::EAGAIN) => std::thread::yield_now(),
                Err(error) => panic!("cannot send {} bytes: {error}", frame.len()),
            }
        }
    }

    /// The next frame that `wanted` picks, or none within `limit`. Others are thrown away.
    pub fn receive_where(&self, limit: Duration, wanted: impl Fn(&[u8]) -> bool) -> Option<Received> {
        let watch = Stopwatch::start();
        while let Some(left) = limit.checked_sub(watch.elapsed()).filter(|left| !left.is_zero()) {
            match self.receive(left) {
                Some(frame) if wanted(&frame.bytes) => return Some(frame),
                _ => {}
            }
        }
        None
    }

    /// Every frame that `wanted` picks until nothing came for `silence`.
    pub fn receive_all(&self, silence: Duration, wanted: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.receive_where(silence, &wanted)).map(|frame| frame.bytes).collect()
    }

    /// The next frame, or none within `limit`.
    pub fn receive(&self, limit: Duration) -> Option<Received> {
        let micros = i64::try_from(limit.as_micros()).unwrap_or(i64::MAX).max(1);
        let timeout = TimeVal::new(micros / 1_000_000, micros % 1_000_000);
        setsockopt(&self.fd, sockopt::ReceiveTimeout, &timeout).expect("a socket has a timeout");
        match self.read() {
            Ok(frame) => Some(frame),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => panic!("cannot receive: {error}"),
        }
    }

    fn read(&self) -> io::Result<Received> {
        // The frame's length, without taking it: room for the longest would have to be cleared for each.
        let length = recv(self.fd.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC)?;
        let mut bytes = vec![0; length];
        let mut control = nix::cmsg_space!([u8; AUXDATA_LEN]);
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        let message =
            recvmsg::<LinkAddr>(self.fd.as_raw_fd(), &mut buffers, Some(&mut control), MsgFlags::empty())?;
        let auxdata = message.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::Unknown(unknown) if unknown.cmsg_header.cmsg_level == libc::SOL_PACKET => {
                Some(Auxiliary::read(&unknown.data_bytes))
            }
            _ => None,
        });
        let len = message.bytes;
        bytes.truncate(len);
        let auxdata = auxdata.unwrap_or_default();
        if let Some(tag) = auxdata.tag {
            bytes.splice(12..12, tag);
        }
        Ok(Received { bytes, checksum_unfinished: auxdata.checksum_unfinished })
    }
}

/// Picks the tests' own frames, tagged or not.
pub fn is_test_frame(frame: &[u8]) -> bool {
    let mut at = 12;
    while frame.get(at..at + 2) == Some(&[0x81, 0]) {
        at += 4;
    }
    frame.get(at..at + 2) == Some(&TEST_ETHERTYPE.to_be_bytes())
}

/// Picks frames from `source`.
pub fn is_from(source: MacAddr) -> impl Fn(&[u8]) -> bool {
    move |frame| frame.get(6..12) == Some(&source.0)
}

const AUXDATA_LEN: usize = 20;

/// The kernel's `struct tpacket_auxdata`.
#[derive(Default)]
struct Auxiliary {
    /// The tag that the kernel took out of the bytes.
    tag: Option<[u8; 4]>,
    checksum_unfinished: bool,
}

impl Auxiliary {
    fn read(bytes: &[u8]) -> Self {
        const CHECKSUM_NOT_READY: u32 = 1 << 3;
        const TAG_VALID: u32 = 1 << 4;
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let status = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let ([control_high, control_low], [tpid_high, tpid_low]) =
            (half(16).to_be_bytes(), half(18).to_be_bytes());
        Self {
            tag: (status & TAG_VALID != 0).then_some([tpid_high, tpid_low, control_high, control_low]),
            checksum_unfinished: status & CHECKSUM_NOT_READY != 0,
        }
    }
}

/// The kernel's own description of an interface is also the address to bind to.
fn link_address(interface: &str) -> LinkAddr {
    let mut addresses = getifaddrs().expect("interfaces can be listed");
    let link = addresses.find_map(|address| {
        (address.interface_name == interface).then_some(())?;
        address.address?.as_link_addr().copied()
    });
    link.unwrap_or_else(|| panic!("no interface {interface}"))
}
