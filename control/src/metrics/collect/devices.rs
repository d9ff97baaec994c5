//! What devices and the kernel count at them.

use lockgate_dataplane::port::{DeviceStats, XskStats};

use crate::metrics::names::{self, Metric};
use crate::metrics::page::Page;
use crate::status::Running;

type Numbers<T> = [(Metric, fn(&T) -> u64)];

const DEVICE: &Numbers<DeviceStats> = &[
    (names::DEVICE_SYSCALLS, |stats| stats.syscalls),
    (names::DEVICE_TX_BUSY, |stats| stats.tx_busy),
    (names::DEVICE_CHECKSUMS, |stats| stats.checksums_completed),
    (names::DEVICE_SEGMENTED, |stats| stats.super_frames_segmented),
    (names::DEVICE_RX_NO_BUFFER, |stats| stats.rx_no_buffer),
];

const XSK: &Numbers<XskStats> = &[
    (names::XSK_RX_DROPPED, |stats| stats.rx_dropped),
    (names::XSK_RX_RING_FULL, |stats| stats.rx_ring_full),
    (names::XSK_RX_FILL_RING_EMPTY, |stats| stats.rx_fill_ring_empty),
    (names::XSK_RX_INVALID_DESCS, |stats| stats.rx_invalid_descs),
    (names::XSK_TX_INVALID_DESCS, |stats| stats.tx_invalid_descs),
    (names::XSK_TX_RING_EMPTY, |stats| stats.tx_ring_empty),
];

/// Adds the counters of every device.
pub fn collect(page: &mut Page, running: &Running) {
    for (id, stats) in running.devices() {
        let Some(port) = running.topology.ports.get(id.index()) else { continue };
        for (metric, number) in DEVICE {
            page.count(metric, &[&port.name], number(&stats));
        }
        for (queue, xsk) in stats.xsk.iter().enumerate() {
            for (metric, number) in XSK {
                page.count(metric, &[&port.name, &queue.to_string()], number(xsk));
            }
        }
        for (outcome, frames) in &stats.steering {
            page.count(&names::STEERING_FRAMES, &[&port.name, outcome], *frames);
        }
    }
}
