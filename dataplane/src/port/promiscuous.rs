//! Taking every frame of an interface, and not only those for its own address: what a switch's port must do on a device
//! that filters.
//!
//! The kernel counts who asks for it. This asks through a packet socket (`packet(7)`, `PACKET_MR_PROMISC`), so the
//! interface is as it was once the socket is closed, also if the process was killed.

#![expect(unsafe_code, reason = "the option's structure is passed to the kernel")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// Holds an interface in promiscuous mode until it is dropped.
#[derive(Debug)]
pub struct Promiscuous(#[expect(dead_code, reason = "what counts is that it is open")] OwnedFd);

impl Promiscuous {
    /// Takes every frame of the interface `ifindex` of the calling thread's network namespace.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn hold(ifindex: u32) -> io::Result<Self> {
        // Without a protocol it receives nothing itself.
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)?;
        let request = libc::packet_mreq {
            mr_ifindex: i32::try_from(ifindex).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?,
            mr_type: MODE,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        // SAFETY: the kernel reads one `packet_mreq`, which `request` is, during the call.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_ADD_MEMBERSHIP,
                (&raw const request).cast(),
                LENGTH,
            )
        };
        if result == 0 { Ok(Self(socket)) } else { Err(io::Error::last_os_error()) }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "1")]
const MODE: u16 = libc::PACKET_MR_PROMISC as u16;
#[expect(clippy::cast_possible_truncation, reason = "16 bytes")]
const LENGTH: libc::socklen_t = size_of::<libc::packet_mreq>() as libc::socklen_t;
