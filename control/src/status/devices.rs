//! Counters of devices, kept from falling: a device counts from zero when it is opened, a port's totals go on.

use std::collections::BTreeMap;

use lockgate_dataplane::id::PortId;
use lockgate_dataplane::port::{DeviceStats, XskStats};

/// Totals of every port's devices, one after the other.
#[derive(Debug, Default)]
pub struct DeviceTotals(BTreeMap<PortId, Row>);

#[derive(Debug, Default)]
struct Row {
    /// Sum of the devices that were closed.
    closed: DeviceStats,
    /// The present one as it was last seen.
    open: DeviceStats,
}

impl DeviceTotals {
    /// Takes note of what the devices count now. What a device counted after the last look and before it was closed is
    /// not known; that makes a total fall short, never fall.
    pub fn observe(&mut self, now: Vec<(PortId, DeviceStats)>) {
        for (port, stats) in now {
            let row = self.0.entry(port).or_default();
            if restarted(&row.open, &stats) {
                row.closed = sum(&row.closed, &row.open);
            }
            row.open = stats;
        }
    }

    /// The totals by port.
    pub fn totals(&self) -> Vec<(PortId, DeviceStats)> {
        self.0.iter().map(|(port, row)| (*port, sum(&row.closed, &row.open))).collect()
    }
}

/// Whether `after` belongs to another device than `before`: a counter fell or is no longer there.
fn restarted(before: &DeviceStats, after: &DeviceStats) -> bool {
    let fell = |pair: (u64, u64)| pair.1 < pair.0;
    numbers(before).into_iter().zip(numbers(after)).any(fell)
        || before.xsk.len() > after.xsk.len()
        || before
            .xsk
            .iter()
            .zip(&after.xsk)
            .any(|(b, a)| xsk_numbers(b).into_iter().zip(xsk_numbers(a)).any(fell))
        || before.steering.len() > after.steering.len()
        || before.steering.iter().zip(&after.steering).any(|(b, a)| fell((b.1, a.1)))
}

fn sum(a: &DeviceStats, b: &DeviceStats) -> DeviceStats {
    let queues = a.xsk.len().max(b.xsk.len());
    let queue = |stats: &DeviceStats, at: usize| stats.xsk.get(at).copied().unwrap_or_default();
    // The outcomes are a closed list, so either side has all of them in the same order or none.
    let (longer, shorter) = if a.steering.len() > b.steering.len() { (a, b) } else { (b, a) };
    let steering = longer.steering.iter().enumerate().map(|(at, (outcome, frames))| {
        (*outcome, frames + shorter.steering.get(at).map_or(0, |(_, frames)| *frames))
    });
    DeviceStats {
        syscalls: a.syscalls + b.syscalls,
        tx_busy: a.tx_busy + b.tx_busy,
        checksums_completed: a.checksums_completed + b.checksums_completed,
        super_frames_segmented: a.super_frames_segmented + b.super_frames_segmented,
        rx_no_buffer: a.rx_no_buffer + b.rx_no_buffer,
        rx_unknown_port: a.rx_unknown_port + b.rx_unknown_port,
        xsk: (0..queues).map(|at| xsk_sum(queue(a, at), queue(b, at))).collect(),
        steering: steering.collect(),
    }
}

fn xsk_sum(a: XskStats, b: XskStats) -> XskStats {
    XskStats {
        rx_dropped: a.rx_dropped + b.rx_dropped,
        rx_ring_full: a.rx_ring_full + b.rx_ring_full,
        rx_fill_ring_empty: a.rx_fill_ring_empty + b.rx_fill_ring_empty,
        rx_invalid_descs: a.rx_invalid_descs + b.rx_invalid_descs,
        tx_invalid_descs: a.tx_invalid_descs + b.tx_invalid_descs,
        tx_ring_empty: a.tx_ring_empty + b.tx_ring_empty,
    }
}

fn numbers(stats: &DeviceStats) -> [u64; 5] {
    let DeviceStats { syscalls, tx_busy, checksums_completed, super_frames_segmented, rx_no_buffer, .. } =
        stats;
    [*syscalls, *tx_busy, *checksums_completed, *super_frames_segmented, *rx_no_buffer]
}

fn xsk_numbers(stats: &XskStats) -> [u64; 6] {
    let XskStats {
        rx_dropped,
        rx_ring_full,
        rx_fill_ring_empty,
        rx_invalid_descs,
        tx_invalid_descs,
        tx_ring_empty,
    } = *stats;
    [rx_dropped, rx_ring_full, rx_fill_ring_empty, rx_invalid_descs, tx_invalid_descs, tx_ring_empty]
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: PortId = PortId(3);

    fn stats(syscalls: u64, rx_dropped: u64, redirected: u64) -> DeviceStats {
        let xsk = vec![XskStats { rx_dropped, ..XskStats::default() }];
        DeviceStats { syscalls, xsk, steering: vec![("redirected", redirected)], ..DeviceStats::default() }
    }

    fn observed(looks: impl IntoIterator<Item = DeviceStats>) -> DeviceStats {
        let mut totals = DeviceTotals::default();
        looks.into_iter().for_each(|look| totals.observe(vec![(PORT, look)]));
        totals.totals().remove(0).1
    }

    #[test]
    fn a_device_that_stays_open_counts_as_it_says() {
        assert_eq!(observed([stats(1, 0, 5), stats(9, 2, 7)]), stats(9, 2, 7));
    }

    #[test]
    fn totals_go_on_when_a_device_is_opened_again() {
        assert_eq!(observed([stats(100, 8, 50), stats(3, 0, 1), stats(4, 1, 2)]), stats(104, 9, 52));
    }

    #[test]
    fn one_fallen_counter_is_enough_to_tell_a_new_device() {
        assert_eq!(observed([stats(1, 8, 0), stats(50, 0, 0)]), stats(51, 8, 0));
        assert_eq!(observed([stats(1, 0, 8), stats(50, 0, 7)]), stats(51, 0, 15));
    }

    #[test]
    fn a_closed_device_keeps_its_totals() {
        let mut totals = DeviceTotals::default();
        totals.observe(vec![(PORT, stats(1, 2, 3))]);
        totals.observe(Vec::new());
        assert_eq!(totals.totals(), [(PORT, stats(1, 2, 3))]);
    }
}
