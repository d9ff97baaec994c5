//! VLAN offloads and queues of an interface, through the ethtool ioctl (Linux `ethtool.h`).
//!
//! With transmit offload on, the far end of a veth leaves a VLAN tag beside the frame instead of in it, and with
//! receive offload on a NIC takes it out; an XDP program sees the frame without its tag either way and would file it under the
//! wrong VLAN. So a trunk port on XDP has the offload turned off.

#![expect(unsafe_code, reason = "the ethtool ioctl")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// A VLAN offload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanOffload {
    /// Inserting the tag of a sent frame: `tx-vlan-hw-insert`, `txvlan` for short.
    Insert,
    /// Taking the tag out of a received frame: `rx-vlan-hw-parse`, `rxvlan` for short.
    Strip,
}

/// A socket to ask about the interfaces of one namespace.
#[derive(Debug)]
pub struct Ethtool(OwnedFd);

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// `struct ethtool_channels`.
#[derive(Default)]
#[repr(C)]
struct EthtoolChannels {
    command: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// What an ethtool command reads and writes: one of the structures of `ethtool.h` that begin with the command and have a
/// fixed size.
trait Request {}

impl Request for EthtoolValue {}
impl Request for EthtoolChannels {}

impl VlanOffload {
    /// Its name in `ethtool -k`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Insert => "tx-vlan-hw-insert",
            Self::Strip => "rx-vlan-hw-parse",
        }
    }

    /// Its bit, `ETH_FLAG_TXVLAN` or `ETH_FLAG_RXVLAN`.
    const fn flag(self) -> u32 {
        match self {
            Self::Insert => 1 << 7,
            Self::Strip => 1 << 8,
        }
    }
}

impl Ethtool {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        Ok(Self(socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?))
    }

    /// Turns the offload on or off. Returns whether that changed anything.
    ///
    /// # Errors
    /// If the interface is not there or its driver does not let the offload be changed.
    pub fn set(&self, interface: &str, offload: VlanOffload, on: bool) -> io::Result<bool> {
        let flags = self.flags(interface)?;
        let wanted = if on { flags | offload.flag() } else { flags & !offload.flag() };
        if wanted == flags {
            return Ok(false);
        }
        self.call(interface, &mut EthtoolValue { command: ETHTOOL_SFLAGS, data: wanted })?;
        if (self.flags(interface)? ^ wanted) & offload.flag() != 0 {
            return Err(io::Error::other(format!("the driver does not change {}", offload.name())));
        }
        Ok(true)
    }

    fn flags(&self, interface: &str) -> io::Result<u32> {
        let mut value = EthtoolValue { command: ETHTOOL_GFLAGS, data: 0 };
        match self.call(interface, &mut value) {
            // A driver without ethtool operations has no offload that could be on.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(0),
            result => result.map(|()| value.data),
        }
    }

    /// Receive queues in use.
    ///
    /// # Errors
    /// If the interface is not there or its driver does not tell.
    pub fn rx_queues(&self, interface: &str) -> io::Result<u32> {
        let mut channels = EthtoolChannels { command: ETHTOOL_GCHANNELS, ..EthtoolChannels::default() };
        self.call(interface, &mut channels)?;
        Ok(channels.rx + channels.combined)
    }

    /// One request, answered in place.
    fn call<R: Request>(&self, interface: &str, value: &mut R) -> io::Result<()> {
        let mut ifr_name = [0; libc::IFNAMSIZ];
        if interface.len() >= ifr_name.len() {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (to, from) in ifr_name.iter_mut().zip(interface.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_data: std::ptr::from_mut(value).cast() };
        let mut request = libc::ifreq { ifr_name, ifr_ifru };
        // SAFETY: SIOCETHTOOL reads one `ifreq` and reads and writes the structure of the command behind its pointer. This
        // module pairs each command with its structure; `request` and `value` live until the call returns.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_is_an_error_and_not_an_offload_that_is_off() {
        for name in ["no-such-if", "a-name-of-more-than-fifteen-bytes"] {
            let error = Ethtool::open().unwrap().set(name, VlanOffload::Insert, false).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{name}");
        }
    }
}
