//! Opening the device of a prepared port and handing it to its worker.

use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::id::PortId;
use lockgate_dataplane::port::Device;
use lockgate_dataplane::port::af_xdp::{AfXdpConfig, AfXdpDevice};
use lockgate_dataplane::worker::Workers;
use parking_lot::RwLock;

use super::lanes::Lanes;
use crate::host::Edge;
use crate::status::{PortLife, PortStatus};

/// Address to pin the port to, where the edge tells one.
pub fn far_mac(edge: &Edge) -> Option<MacAddr> {
    match edge {
        Edge::Xdp(edge) => edge.far_mac,
        Edge::Lane(edge) => edge.far_mac,
        Edge::Tap(edge) => edge.mac,
        Edge::Waiting(_) => None,
    }
}

/// Opens the device and attaches it; the port's status, or why not.
pub fn open(
    port: PortId,
    edge: Edge,
    workers: &RwLock<Option<Workers>>,
    lanes: &Lanes,
) -> Result<PortStatus, String> {
    let workers = workers.read();
    let workers = workers.as_ref().ok_or("the switch is stopping")?;
    let (device, status): (Box<dyn Device>, PortStatus) = match edge {
        Edge::Waiting(reason) => return Ok(PortStatus::waiting(reason.to_string())),
        Edge::Tap(tap) => {
            let mtu = tap.device.capabilities().mtu;
            let status = PortStatus {
                life: PortLife::Up,
                driver: "tap",
                xdp_mode: None,
                zerocopy: false,
                interface: tap.interface,
                mtu_bytes: mtu,
                mac: tap.mac,
            };
            (Box::new(tap.device), status)
        }
        Edge::Lane(edge) => {
            let device = lanes.open(port, &edge, workers)?;
            let status = PortStatus {
                life: PortLife::Up,
                driver: "lane",
                xdp_mode: None,
                zerocopy: false,
                interface: edge.interface,
                mtu_bytes: edge.mtu,
                mac: edge.far_mac,
            };
            (Box::new(device), status)
        }
        Edge::Xdp(edge) => {
            let config = AfXdpConfig {
                port,
                interface: edge.interface.clone(),
                ifindex: edge.ifindex,
                mtu: edge.mtu,
                queues: edge.rx_queues,
            };
            let device = AfXdpDevice::open(&config).map_err(|error| chain(&error))?;
            let status = PortStatus {
                life: PortLife::Up,
                driver: "af_xdp",
                xdp_mode: Some(device.mode().name()),
                zerocopy: false,
                interface: edge.interface,
                mtu_bytes: edge.mtu,
                mac: edge.far_mac,
            };
            (Box::new(device), status)
        }
    };
    workers.attach(port, device, status.mac).map_err(|error| chain(&error))?;
    Ok(status)
}

/// An error with its causes, outermost first.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
