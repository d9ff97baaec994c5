//! The interfaces of lanes, and which ports use one.

use std::sync::Once;

use lockgate_dataplane::id::WorkerId;
use lockgate_dataplane::port::lane::program;

use super::error::{PortError, Step};
use super::interface::made;
use super::link::Link;
use super::name;
use super::netlink::Netlink;
use super::netns::apart;
use crate::topology::Steering;

/// Frames that wait for the worker in a lane's own queue before the kernel drops them at their senders. One queue serves all
/// ports of a worker: enough for what they send while the worker is away for a scheduling period, 4 ms of a million frames a
/// second. It holds references, 32 KiB of them, and no frames of its own.
const QUEUE_FRAMES: u32 = 4096;

/// The two interfaces of a worker's lane, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneInterfaces {
    /// For frames without a tag.
    pub plain: String,
    /// For frames with one.
    pub tagged: String,
}

impl LaneInterfaces {
    /// Those of `worker` of the switch.
    pub fn new(switch: &str, worker: WorkerId) -> Self {
        Self { plain: name::lane(switch, 'p', worker), tagged: name::lane(switch, 't', worker) }
    }

    /// Gives the interfaces, which were just made in the daemon's namespace, their settings; the index of the plain one and
    /// of the tagged one.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn bring_up(&self) -> Result<[u32; 2], PortError> {
        apart(|| {
            let netlink = Netlink::open().step(|| "open a netlink socket".to_owned())?;
            Ok([bring_up(&self.plain, &netlink)?, bring_up(&self.tagged, &netlink)?])
        })
    }
}

/// No address, no word of IPv6, nothing of the host's: frames only.
fn bring_up(interface: &str, netlink: &Netlink) -> Result<u32, PortError> {
    let index = made(interface, netlink)?.index;
    netlink.silence(index).step(|| format!("keep IPv6 off {interface}"))?;
    netlink.set_queue_len(index, QUEUE_FRAMES).step(|| format!("lengthen the queue of {interface}"))?;
    netlink.set_up(index).step(|| format!("set {interface} up"))?;
    Ok(index)
}

/// Whether frames of a port with this interface are taken by tc. `auto` is tc for virtual devices, whose senders' super-frames
/// an XDP program would have the kernel cut up, and XDP for the others, which are NICs.
pub(super) fn is_chosen(steering: Steering, link: &Link) -> bool {
    match steering {
        Steering::Tc => true,
        Steering::Xdp => false,
        Steering::Auto if link.kind.is_none() => false,
        Steering::Auto => {
            let supported = program::is_supported();
            if !supported {
                log_missing_tcx();
            }
            supported
        }
    }
}

fn log_missing_tcx() {
    static LOGGED: Once = Once::new();
    LOGGED.call_once(|| {
        tracing::warn!(
            "this kernel has no TCX (Linux 6.6 has): virtual devices are steered by XDP, which turns off the segmentation \
             offload of veths"
        );
    });
}
