//! What lanes count, and the kernel at them.

use std::fs;

use crate::metrics::names;
use crate::metrics::page::Page;
use crate::status::Running;

/// Adds the counters of every lane; nothing if no port uses one.
pub fn collect(page: &mut Page, running: &Running) {
    let Some(lanes) = running.lanes() else { return };
    for (outcome, frames) in lanes.counters() {
        page.count(&names::LANE_FRAMES, &[outcome], frames);
    }
    let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    for (worker, interfaces) in lanes.interfaces() {
        for (lane, interface) in [("plain", &interfaces.plain), ("tagged", &interfaces.tagged)] {
            if let Some(frames) = dropped(&table, interface) {
                page.count(&names::LANE_DROPPED, &[&worker.0.to_string(), lane], frames);
            }
        }
    }
    for (worker, stats) in running.lane_receivers() {
        page.count(&names::LANE_UNKNOWN_PORT, &[&worker.0.to_string()], stats.rx_unknown_port);
    }
}

/// Frames the interface dropped on their way out, from the text of `/proc/net/dev`.
fn dropped(table: &str, interface: &str) -> Option<u64> {
    const TX_DROPPED: usize = 11;
    let row = |line: &'_ str| line.trim_start().strip_prefix(interface)?.strip_prefix(':').map(str::to_owned);
    table.lines().find_map(row)?.split_whitespace().nth(TX_DROPPED)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_gives_the_frames_dropped_on_their_way_out() {
        let table = "Inter-|   Receive\n face |bytes\n    lo: 1 2 0 0 0 0 0 0 1 2 0 0 0 0 0 0\n  lgp1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        assert_eq!(dropped(table, "lgp1"), Some(12));
        assert_eq!(dropped(table, "lgp"), None);
    }
}
