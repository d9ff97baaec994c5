//! A tap as a hypervisor opens it: with flags of its choice, read and written frame by frame.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use crate::clock::eventually;
use crate::netns::Netns;

/// Bytes of the virtio-net header that a tap with [`Tun::VNET_HDR`] carries in front of every frame.
const VNET_LEN: usize = 10;
const LONGEST: usize = 1 << 16;

nix::ioctl_write_ptr_bad!(
    /// Joins or makes the interface (`linux/if_tun.h`).
    tun_set_interface, libc::TUNSETIFF, libc::ifreq
);

/// An open tap.
#[derive(Debug)]
pub struct Tun {
    file: File,
    header: usize,
}

impl Tun {
    /// With a virtio-net header.
    pub const VNET_HDR: i32 = libc::IFF_VNET_HDR;
    /// One of several queues.
    pub const MULTI_QUEUE: i32 = libc::IFF_MULTI_QUEUE;

    /// Opens the tap `name` of `netns`, which is made if it is not there.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn open(netns: &Netns, name: &str, flags: i32) -> io::Result<Self> {
        netns.inside(|| {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
            let mut ifr_name = [0; libc::IFNAMSIZ];
            for (to, from) in ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
                *to = libc::c_char::from_ne_bytes([from]);
            }
            let all = libc::IFF_TAP | libc::IFF_NO_PI | flags;
            #[expect(clippy::cast_possible_truncation, reason = "the field holds 16 flag bits")]
            let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_flags: all as libc::c_short };
            let request = libc::ifreq { ifr_name, ifr_ifru };
            // SAFETY: the kernel reads and writes one `ifreq`, which `request` is, and no longer than the call.
            unsafe { tun_set_interface(file.as_raw_fd(), &raw const request) }?;
            let header = if flags & Self::VNET_HDR == 0 { 0 } else { VNET_LEN };
            Ok(Self { file, header })
        })
    }

    /// Sends a finished frame.
    ///
    /// # Panics
    /// If the tap does not take it.
    #[track_caller]
    pub fn send(&self, frame: &[u8]) {
        let bytes = [&vec![0; self.header], frame].concat();
        let written = (&self.file).write(&bytes).unwrap_or_else(|error| panic!("cannot send: {error}"));
        assert_eq!(written, bytes.len());
    }

    /// The next frame that waits, without its header.
    pub fn receive(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; LONGEST];
        let length = (&self.file).read(&mut bytes).ok()?;
        bytes.truncate(length);
        Some(bytes.split_off(self.header.min(length)))
    }

    /// The next frame that `wanted` picks.
    ///
    /// # Panics
    /// If there is none within `limit`.
    #[track_caller]
    pub fn receive_where(&self, limit: Duration, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        eventually("a frame at the tap", limit, || {
            std::iter::from_fn(|| self.receive()).find(|frame| wanted(frame))
        })
    }
}
