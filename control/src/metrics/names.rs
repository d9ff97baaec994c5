//! Every metric Lockgate has: one table, which the page is built from and `docs/metrics.md` is written from.
//!
//! A name is an interface: it may get company, it does not change its meaning. Values are in base units, counters end in
//! `_total`, label values come from the topology or from closed lists, never from frames.

use std::fmt::Write;

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// How its value moves.
    pub kind: Kind,
    /// What its value counts; empty for a plain number or a fact.
    pub unit: &'static str,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// One sentence on what is counted.
    pub help: &'static str,
}

/// How a value moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only up, from zero at the start of the process.
    Counter,
    /// Up and down.
    Gauge,
    /// Counts by size.
    Histogram,
}

impl Kind {
    /// The word of the text format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

macro_rules! metrics {
    ($( $id:ident = $kind:ident $name:literal $unit:literal [$($label:literal),*] $help:literal; )+) => {
        $(
            #[doc = $help]
            pub const $id: Metric =
                Metric { name: $name, kind: Kind::$kind, unit: $unit, labels: &[$($label),*], help: $help };
        )+

        /// Every metric, in the order of the page.
        pub const ALL: &[Metric] = &[$($id),+];
    };
}

metrics! {
    BUILD_INFO = Gauge "lockgate_build_info" "" ["version", "commit"]
        "The running program; always 1.";
    CONFIG_INFO = Gauge "lockgate_config_info" "" ["hash"]
        "The configuration in effect, by the fingerprint of its text; always 1.";
    CONFIG_GENERATION = Gauge "lockgate_config_generation" "" []
        "Configurations applied since the start, the first one included.";
    CONFIG_LAST_RELOAD_SUCCESS = Gauge "lockgate_config_last_reload_success" "" []
        "Whether the latest configuration that was offered was applied: 1 or 0.";
    CONFIG_LAST_RELOAD_TIMESTAMP = Gauge "lockgate_config_last_reload_timestamp_seconds" "seconds" []
        "When the latest configuration was offered, since 1970-01-01 UTC.";

    PORT_INFO = Gauge "lockgate_port_info" ""
        ["switch", "port", "port_group", "kind", "driver", "xdp_mode", "zerocopy", "vlan", "interface"]
        "What a port is: its kind in the topology, its driver and XDP mode while it has a device, and the name of its interface; always 1.";
    PORT_UP = Gauge "lockgate_port_up" "" ["port"]
        "Whether frames pass the port: 1 or 0.";
    PORT_STATE = Gauge "lockgate_port_state" "" ["port", "state"]
        "1 for the state the port is in, 0 for the others: up, waiting for its interface, failed to open it, or disabled by the operator or a guard.";
    PORT_MTU = Gauge "lockgate_port_mtu_bytes" "bytes" ["port"]
        "Longest IP packet the port's device takes.";
    PORT_FRAMES = Counter "lockgate_port_frames_total" "frames" ["port", "direction", "cast"]
        "Frames accepted at ingress (port → switch) or sent at egress (switch → port); a super-frame counts as the frames it is cut into.";
    PORT_BYTES = Counter "lockgate_port_bytes_total" "bytes" ["port", "direction"]
        "Bytes of those frames as the wire would carry them: headers of every segment, without FCS.";
    PORT_DROPS = Counter "lockgate_port_drops_total" "frames" ["port", "direction", "reason"]
        "Frames dropped on the way in, ingress (port → switch), or out, egress (switch → port), each for one reason.";
    PORT_DROPPED_BYTES = Counter "lockgate_port_dropped_bytes_total" "bytes" ["port", "direction", "reason"]
        "Bytes of the dropped frames as the wire would carry them, without FCS.";

    PORT_GROUP_FRAMES = Counter "lockgate_port_group_frames_total" "frames" ["port_group", "direction"]
        "Frames of all ports of the group, accepted at ingress (port → switch) or sent at egress (switch → port).";
    PORT_GROUP_BYTES = Counter "lockgate_port_group_bytes_total" "bytes" ["port_group", "direction"]
        "Bytes of those frames as the wire would carry them, without FCS.";
    PORT_GROUP_DROPS = Counter "lockgate_port_group_drops_total" "frames" ["port_group", "direction", "reason"]
        "Frames dropped on the way into or out of ports of the group, each for one reason.";

    SHAPER_RATE_LIMIT = Gauge "lockgate_shaper_rate_limit_bytes_per_second" "bytes per second"
        ["level", "name", "direction", "kind"]
        "Configured rate of a shaper; ingress is port → switch, egress is switch → port. The kind peak is there only if a peak is set.";
    SHAPER_BURST_LIMIT = Gauge "lockgate_shaper_burst_limit_bytes" "bytes" ["level", "name", "direction"]
        "Configured burst: what may leave above the average after a pause.";
    SHAPER_CREDIT = Gauge "lockgate_shaper_credit_bytes" "bytes" ["level", "name", "direction"]
        "What would pass at once; negative while a super-frame is being paid off.";
    SHAPER_QUEUE_BYTES = Gauge "lockgate_shaper_queue_bytes" "bytes" ["level", "name", "direction"]
        "Bytes that wait for credit.";
    SHAPER_QUEUE_FRAMES = Gauge "lockgate_shaper_queue_frames" "frames" ["level", "name", "direction"]
        "Frames that wait for credit; a super-frame counts once.";
    SHAPER_QUEUE_HIGH_WATER = Gauge "lockgate_shaper_queue_high_water_bytes" "bytes" ["level", "name", "direction"]
        "Most bytes that were seen waiting since the start.";
    SHAPER_DELAYED = Counter "lockgate_shaper_delayed_frames_total" "frames" ["level", "name", "direction"]
        "Frames that waited and left later.";
    SHAPER_THROTTLED = Counter "lockgate_shaper_throttled_seconds_total" "seconds" ["level", "name", "direction"]
        "Time during which frames waited for credit: its rate is the share of time at the cap.";
    SHAPER_SOJOURN = Histogram "lockgate_shaper_sojourn_seconds" "seconds" ["level", "name", "direction"]
        "How long frames stayed in the shapers of a group's ports, those that did not wait included.";

    QUEUE_BYTES = Counter "lockgate_queue_bytes_total" "bytes" ["port", "class"]
        "Bytes of a traffic class sent at egress (switch → port).";
    QUEUE_DROPS = Counter "lockgate_queue_drops_total" "frames" ["port", "class"]
        "Frames of a traffic class dropped at egress (switch → port).";
    QUEUE_DEPTH = Gauge "lockgate_queue_depth_bytes" "bytes" ["port", "class"]
        "Bytes of a traffic class that wait at egress (switch → port).";

    FDB_ENTRIES = Gauge "lockgate_fdb_entries" "" []
        "Entries of the MAC table, static ones included.";
    FDB_LIMIT = Gauge "lockgate_fdb_limit" "" []
        "Most learned entries the MAC table takes; static ones do not count.";
    FDB_LEARNED = Counter "lockgate_fdb_learned_total" "" []
        "Addresses learned.";
    FDB_AGED = Counter "lockgate_fdb_aged_total" "" []
        "Entries that aged out.";
    FDB_MOVED = Counter "lockgate_fdb_moved_total" "" []
        "Addresses that moved to another port.";
    FDB_REFUSED = Counter "lockgate_fdb_refused_total" "" ["reason"]
        "Times an address was not learned, because the table was full, its port had its limit, or it went back and forth between two ports.";
    PORT_GROUP_FDB_TABLE_FULL = Counter "lockgate_port_group_fdb_table_full_total" "frames" ["port_group"]
        "Frames of ports of the group whose source was not learned because the MAC table was full; they pass.";
    FDB_EVENTS_LOST = Counter "lockgate_fdb_events_lost_total" "" []
        "Messages on learned addresses that another worker had no room for; they are repeated later.";

    XSK_RX_DROPPED = Counter "lockgate_xsk_rx_dropped_total" "frames" ["port", "queue"]
        "Frames the kernel dropped at an AF_XDP socket for want of a chunk that holds them, or for another reason of its own.";
    XSK_RX_RING_FULL = Counter "lockgate_xsk_rx_ring_full_total" "frames" ["port", "queue"]
        "Frames the kernel dropped because the receive ring of the socket was full.";
    XSK_RX_FILL_RING_EMPTY = Counter "lockgate_xsk_rx_fill_ring_empty_total" "" ["port", "queue"]
        "Times the kernel found no chunk in the fill ring of the socket.";
    XSK_RX_INVALID_DESCS = Counter "lockgate_xsk_rx_invalid_descs_total" "" ["port", "queue"]
        "Descriptors in the fill ring that the kernel refused.";
    XSK_TX_INVALID_DESCS = Counter "lockgate_xsk_tx_invalid_descs_total" "" ["port", "queue"]
        "Descriptors in the transmit ring that the kernel refused.";
    XSK_TX_RING_EMPTY = Counter "lockgate_xsk_tx_ring_empty_total" "" ["port", "queue"]
        "Times the kernel found the transmit ring of the socket empty.";
    STEERING_FRAMES = Counter "lockgate_steering_frames_total" "frames" ["port", "outcome"]
        "Frames the XDP program of the port's interface saw, by what it did with them.";
    LANE_FRAMES = Counter "lockgate_lane_frames_total" "frames" ["outcome"]
        "Frames the tc programs of lanes and of ports steered by tc saw, by what they did with them; a super-frame counts once.";
    LANE_DROPPED = Counter "lockgate_lane_dropped_frames_total" "frames" ["worker", "lane"]
        "Frames from ports that found the queue of their worker's lane full, so that the switch never saw them; a super-frame counts once.";
    LANE_UNKNOWN_PORT = Counter "lockgate_lane_unknown_port_frames_total" "frames" ["worker"]
        "Frames read from the worker's lane that named no port of the switch.";
    DEVICE_SYSCALLS = Counter "lockgate_device_syscalls_total" "" ["port"]
        "Calls into the kernel to receive, send or wake.";
    DEVICE_TX_BUSY = Counter "lockgate_device_tx_busy_total" "" ["port"]
        "Times the port's device was full when frames were to be sent; they stay queued.";
    DEVICE_CHECKSUMS = Counter "lockgate_device_checksums_completed_total" "frames" ["port"]
        "Frames whose checksum was finished in software because the device does not.";
    DEVICE_SEGMENTED = Counter "lockgate_device_super_frames_segmented_total" "frames" ["port"]
        "Super-frames cut up in software because the device does not.";
    DEVICE_RX_NO_BUFFER = Counter "lockgate_device_rx_no_buffer_total" "frames" ["port"]
        "Frames lost at reception because no buffer was free or long enough.";

    WORKER_BUSY = Counter "lockgate_worker_busy_seconds_total" "seconds" ["worker"]
        "Time the worker was awake.";
    WORKER_POLLS = Counter "lockgate_worker_polls_total" "" ["worker"]
        "Rounds of the worker over its ports.";
    WORKER_BUSY_POLLS = Counter "lockgate_worker_busy_polls_total" "" ["worker"]
        "Rounds in which a frame moved.";
    WORKER_SLEEPS = Counter "lockgate_worker_sleeps_total" "" ["worker"]
        "Times the worker went to sleep.";
    WORKER_BATCH = Histogram "lockgate_worker_batch_frames" "frames" ["worker"]
        "Frames per batch received; a super-frame counts once.";
    BUFFERS_IN_USE = Gauge "lockgate_buffers_in_use" "" ["worker"]
        "Frame buffers of the worker's pool that hold a frame.";
    BUFFERS_FREE = Gauge "lockgate_buffers_free" "" ["worker", "size"]
        "Free frame buffers of the worker's pool: small ones for ordinary frames, large ones for jumbo and super-frames.";

    FLOW_RECEIVED = Counter "lockgate_flow_received_frames_total" "frames" []
        "Frames received from all devices. In this and the other flow metrics a super-frame counts once.";
    FLOW_COPIED = Counter "lockgate_flow_copied_frames_total" "frames" []
        "Copies made for group frames and unknown destinations, beyond the original, and segments cut from super-frames.";
    FLOW_REPLACED = Counter "lockgate_flow_replaced_frames_total" "frames" []
        "Super-frames too long for a slow port, whose segments took their place.";
    FLOW_COPIES_FAILED = Counter "lockgate_flow_failed_copies_total" "frames" []
        "Copies and segments not made because no buffer was free; they count among the drops of the port they were for.";
    FLOW_SENT = Counter "lockgate_flow_sent_frames_total" "frames" []
        "Frames sent by all devices.";
    FLOW_DROPPED = Counter "lockgate_flow_dropped_frames_total" "frames" []
        "Frames dropped, for any reason.";
    FLOW_QUEUED = Gauge "lockgate_flow_queued_frames" "frames" []
        "Frames that wait in queues or in front of a device.";
    ACCOUNTING_ERROR = Gauge "lockgate_accounting_error_frames" "frames" []
        "Frames received or copied that were neither sent nor dropped nor wait; anything but 0 is a fault of Lockgate.";
}

/// The reference page, in Markdown.
pub fn reference() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         Written from `control/src/metrics/names.rs`; a test keeps it so.\n\n\
         Served at `http://ADDRESS/metrics` in the Prometheus text format 0.0.4, with ADDRESS from `metrics: listen`. \
         Direction is relative to the switch: `ingress` (port → switch), `egress` (switch → port). Every total counts \
         from the start of the process; values are exact up to 2^53. Series of a drop reason begin when it first \
         occurs, those of the usual reasons at the start.\n",
    );
    for metric in ALL {
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let separator = if labels.is_empty() { "" } else { ": " };
        let unit = if metric.unit.is_empty() { String::new() } else { format!(", {}", metric.unit) };
        let (name, kind, help) = (metric.name, metric.kind.name(), metric.help);
        _ = write!(page, "\n### `{name}`\n\n{kind}{unit}{separator}{labels}\n\n{help}\n");
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn names_follow_the_conventions_of_prometheus() {
        let mut seen = HashSet::new();
        for metric in ALL {
            let Metric { name, kind, unit, labels, help } = *metric;
            assert!(seen.insert(name), "{name} is there twice");
            assert!(name.starts_with("lockgate_"), "{name} has another prefix");
            assert_eq!(name.ends_with("_total"), kind == Kind::Counter, "{name}: counters end in _total");
            assert_eq!(name.contains("seconds"), unit == "seconds", "{name} says its unit");
            assert_eq!(name.contains("bytes"), unit.starts_with("bytes"), "{name} says its unit");
            assert!(help.ends_with('.') && !help.contains('\n'), "{name}: {help}");
            assert!(!labels.contains(&"le"), "{name}: `le` is the histogram's own");
        }
    }

    #[test]
    fn the_reference_is_what_the_table_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
        if std::env::var_os("LOCKGATE_WRITE_DOCS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, reference()).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(written, reference(), "docs/metrics.md is old: run this test with LOCKGATE_WRITE_DOCS=1");
    }
}
