//! AF_XDP sockets by their plain system calls, as far as tests need them: without the library that the switch uses.

#![expect(
    clippy::cast_possible_truncation,
    reason = "the sizes of structures fit the kernel's u32, and families its u16"
)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::net::if_::if_nametoindex;

/// An AF_XDP socket with an empty fill ring: it can be a target, and drops whatever it is offered.
#[derive(Debug)]
pub struct XskSocket {
    fd: OwnedFd,
    /// The kernel writes here as long as the socket lives, so it is declared, and thus dropped, after it.
    _umem: Box<Umem>,
}

#[derive(Debug)]
#[repr(align(4096))]
struct Umem([u8; Self::CHUNK * Self::CHUNKS]);

impl Umem {
    const CHUNK: usize = 4096;
    const CHUNKS: usize = 4;
}

impl XskSocket {
    /// Binds to a queue of an interface of the calling thread's namespace.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn bind(interface: &str, queue: u32) -> Self {
        let umem = Box::new(Umem([0; _]));
        let socket = Self { fd: raw_socket(libc::AF_XDP, 0), _umem: umem };
        socket.set_option(
            libc::XDP_UMEM_REG,
            &libc::xdp_umem_reg {
                addr: socket._umem.0.as_ptr() as u64,
                len: size_of::<Umem>() as u64,
                chunk_size: Umem::CHUNK as u32,
                headroom: 0,
                flags: 0,
                tx_metadata_len: 0,
            },
        );
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING] {
            socket.set_option(ring, &(Umem::CHUNKS as u32));
        }
        bind(
            &socket.fd,
            &libc::sockaddr_xdp {
                sxdp_family: libc::AF_XDP as u16,
                sxdp_flags: libc::XDP_COPY,
                sxdp_ifindex: if_nametoindex(interface).unwrap(),
                sxdp_queue_id: queue,
                sxdp_shared_umem_fd: 0,
            },
        );
        socket
    }

    fn set_option<T>(&self, option: i32, value: &T) {
        // SAFETY: the kernel reads `size_of::<T>()` bytes, which `value` has.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_XDP,
                option,
                (&raw const *value).cast(),
                size_of::<T>() as u32,
            )
        };
        assert_eq!(result, 0, "setsockopt {option}: {}", io::Error::last_os_error());
    }

    /// Frames the socket was offered and could not take.
    ///
    /// # Panics
    /// If the kernel does not tell.
    pub fn dropped(&self) -> u64 {
        // SAFETY: a structure of integers may be zero.
        let mut statistics: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        let mut length = size_of_val(&statistics) as u32;
        // SAFETY: the kernel writes at most `length` bytes.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_XDP,
                libc::XDP_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        assert_eq!(result, 0, "XDP_STATISTICS: {}", io::Error::last_os_error());
        statistics.rx_dropped
    }
}

impl AsRawFd for XskSocket {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

/// A raw socket.
///
/// # Panics
/// If the kernel refuses.
pub fn raw_socket(family: i32, protocol: i32) -> OwnedFd {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(family, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol) };
    assert!(fd >= 0, "socket: {}", io::Error::last_os_error());
    // SAFETY: the descriptor is new and nobody else's.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Binds to an address of whatever family.
///
/// # Panics
/// If the kernel refuses.
pub fn bind<T>(socket: &OwnedFd, address: &T) {
    // SAFETY: the kernel reads `size_of::<T>()` bytes, which `address` has.
    let result =
        unsafe { libc::bind(socket.as_raw_fd(), (&raw const *address).cast(), size_of::<T>() as u32) };
    assert_eq!(result, 0, "bind: {}", io::Error::last_os_error());
}
