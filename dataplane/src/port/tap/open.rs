//! Making a tap interface: `/dev/net/tun` and its three ioctls (Linux `if_tun.h`).

#![expect(unsafe_code, reason = "ioctls of the tun driver")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Once;

use super::vnet;

const TUN_DEVICE: &str = "/dev/net/tun";
/// Refuse an existing interface instead of joining it: a persistent tap of another owner may have other flags, and it
/// would outlive us with our settings.
const IFF_TUN_EXCL: libc::c_int = 0x8000;
/// Unfinished checksums and TCP super-frames, with or without CWR.
const OFFLOADS: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
/// UDP super-frames, from Linux 6.2 on.
const UDP_OFFLOADS: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// A tap could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The device node is missing or may not be opened.
    #[error(
        "cannot open {TUN_DEVICE}: {0}; load the kernel module `tun` and make the node readable and writable"
    )]
    Open(io::Error),
    /// The name cannot belong to an interface.
    #[error("{0:?} cannot be the name of an interface: 1 to 15 bytes, without NUL")]
    Name(String),
    /// There is an interface of that name.
    #[error(
        "interface {0:?} exists already and a tap is only made new (IFF_TUN_EXCL), never taken over: remove it with \
         `ip link del {0}`, or choose another name"
    )]
    Exists(String),
    /// The interface could not be made.
    #[error("cannot make tap interface {name:?}: {source}; it takes CAP_NET_ADMIN in the network namespace")]
    Create {
        /// The interface.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The interface was made but does not take a setting.
    #[error("tap interface {name:?} does not take {setting}: {source}")]
    Configure {
        /// The interface.
        name: String,
        /// The setting.
        setting: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A tap's descriptor, non-blocking.
pub(in crate::port) struct Tun {
    pub file: File,
    /// Whether UDP super-frames pass.
    pub takes_udp_gso: bool,
}

/// Makes a tap called `name` in the network namespace of the calling thread.
pub(in crate::port) fn create(name: &str) -> Result<Tun, TapError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(TUN_DEVICE)
        .map_err(TapError::Open)?;
    set_interface(&file, name)?;
    let configure = |setting| move |source| TapError::Configure { name: name.to_owned(), setting, source };
    set_header_len(&file).map_err(configure("a virtio-net header of 10 bytes"))?;
    let takes_udp_gso = match set_offloads(&file, OFFLOADS | UDP_OFFLOADS) {
        Ok(()) => true,
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            set_offloads(&file, OFFLOADS).map_err(configure("checksum and TCP segmentation offload"))?;
            log_missing_udp_offload();
            false
        }
        Err(source) => return Err(configure("checksum and segmentation offload")(source)),
    };
    Ok(Tun { file, takes_udp_gso })
}

fn log_missing_udp_offload() {
    static LOGGED: Once = Once::new();
    LOGGED.call_once(|| {
        tracing::warn!(
            "this kernel's taps have no UDP segmentation offload (Linux 6.2 has): UDP is sent frame by frame"
        );
    });
}

/// TUNSETIFF: binds the descriptor to a new interface.
fn set_interface(file: &File, name: &str) -> Result<(), TapError> {
    let mut ifr_name = [0; libc::IFNAMSIZ];
    if name.is_empty() || name.len() >= ifr_name.len() || name.contains('\0') {
        return Err(TapError::Name(name.to_owned()));
    }
    for (to, from) in ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | IFF_TUN_EXCL;
    #[expect(clippy::cast_possible_truncation, reason = "the field holds 16 flag bits")]
    let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_flags: flags as libc::c_short };
    let mut request = libc::ifreq { ifr_name, ifr_ifru };
    // SAFETY: TUNSETIFF reads and writes one `ifreq`; `request` is one and lives until the call returns.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    outcome(result).map_err(|source| match source.raw_os_error() {
        Some(libc::EBUSY) => TapError::Exists(name.to_owned()),
        _ => TapError::Create { name: name.to_owned(), source },
    })
}

/// TUNSETVNETHDRSZ: set even though it is the default, since a wrong length would shift every frame.
fn set_header_len(file: &File) -> io::Result<()> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "ten")]
    let len = vnet::LEN as libc::c_int;
    // SAFETY: TUNSETVNETHDRSZ reads one `int`; `len` is one and lives until the call returns.
    outcome(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const len) })
}

/// TUNSETOFFLOAD: what the reader takes.
fn set_offloads(file: &File, offloads: libc::c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value and touches no memory of ours.
    outcome(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads)) })
}

fn outcome(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_the_kernel_would_truncate_is_refused() {
        let file = File::open("/dev/null").unwrap();
        for name in ["", "sixteen-bytes-xx", "nul\0"] {
            assert!(matches!(set_interface(&file, name), Err(TapError::Name(bad)) if bad == name));
        }
    }
}
