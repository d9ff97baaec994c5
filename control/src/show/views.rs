//! The API's answers as tables.

use crate::api::types::{Drop, Fdb, Group, Port, Shaper, Status, Traffic};

use super::human::{bytes, rate, seconds, signed_bytes};
use super::table::{Column, Table, numbers, words};

const INGRESS: &str = "ingress (port → switch)";
const EGRESS: &str = "egress (switch → port)";
/// In the place of what there is not.
const NONE: &str = "-";

/// The daemon, one fact a line.
pub fn status(status: &Status) -> String {
    let facts = [
        ("switch", status.switch.clone()),
        ("version", format!("{} ({})", status.version, status.commit)),
        ("configuration", format!("{}, generation {}", status.config_hash, status.config_generation)),
        ("workers", status.workers.to_string()),
        ("ports", format!("{}, {} of them up", status.ports, status.ports_up)),
        ("frames unaccounted for", status.accounting_error_frames.to_string()),
    ];
    facts.map(|(name, value)| format!("{name:<24}{value}\n")).concat()
}

/// One port a line, and below why some are not up.
pub fn ports(ports: &[Port]) -> String {
    let columns = ["PORT", "GROUP", "KIND", "STATE", "INTERFACE", "DRIVER", "VLAN"].map(words);
    let mut table = Table::new([&columns[..], &traffic_columns()].concat());
    for port in ports {
        let driver = match (&port.driver, &port.xdp_mode) {
            (Some(driver), Some(mode)) if port.zerocopy => format!("{driver} {mode} zero-copy"),
            (Some(driver), Some(mode)) => format!("{driver} {mode}"),
            (driver, _) => text(driver.as_ref()),
        };
        let words = [&port.name, &port.group, &port.kind, &port.state].map(Clone::clone);
        let words = [&words[..], &[text(port.interface.as_ref()), driver, port.vlan.clone()]].concat();
        table.row([words, traffic(port.ingress), traffic(port.egress)].concat());
    }
    let reasons = ports.iter().filter_map(|port| {
        port.reason.as_ref().map(|reason| format!("{} is {}: {reason}\n", port.name, port.state))
    });
    table.render() + &reasons.collect::<String>()
}

/// One group a line.
pub fn groups(groups: &[Group]) -> String {
    let columns = [words("GROUP"), words("VLAN"), words("ISOLATED"), numbers("PORTS"), numbers("UP")];
    let mut table = Table::new([&columns[..], &traffic_columns()].concat());
    for group in groups {
        let isolated = if group.isolated { "yes" } else { "no" };
        let words = [group.name.clone(), group.vlan.clone(), isolated.to_owned()];
        let words = [&words[..], &[group.ports.to_string(), group.ports_up.to_string()]].concat();
        table.row([words, traffic(group.ingress), traffic(group.egress)].concat());
    }
    table.render()
}

/// One address a line.
pub fn fdb(fdb: &Fdb) -> String {
    let mut table =
        Table::new([numbers("VLAN"), words("ADDRESS"), words("PORT"), words("TYPE"), numbers("IDLE")]);
    for entry in &fdb.entries {
        let kind = if entry.is_static { "static" } else { "learned" };
        let idle = entry.idle_seconds.map_or_else(|| NONE.to_owned(), seconds);
        table.row([entry.vlan.to_string(), entry.mac.clone(), entry.port.clone(), kind.to_owned(), idle]);
    }
    let learned = fdb.entries.iter().filter(|entry| !entry.is_static).count();
    let fixed = fdb.entries.len() - learned;
    table.render() + &format!("{fixed} static, {learned} learned of at most {}\n", fdb.limit)
}

/// One shaper a line.
pub fn shapers(shapers: &[Shaper]) -> String {
    let limit = |title| numbers(title).under("limit");
    let waiting = |title| numbers(title).under("waiting now");
    let total = |title| numbers(title).under("since the start");
    let mut table = Table::new([
        words("PORT"),
        words("DIRECTION"),
        limit("AVERAGE"),
        limit("PEAK"),
        limit("BURST"),
        limit("MAX DELAY"),
        words("SET BY"),
        numbers("CREDIT"),
        waiting("BYTES"),
        waiting("FRAMES"),
        total("HIGH WATER"),
        total("DELAYED"),
        total("THROTTLED"),
    ]);
    for shaper in shapers {
        table.row([
            shaper.port.clone(),
            with_arrow(&shaper.direction),
            rate(shaper.average_bits_per_second),
            shaper.peak_bits_per_second.map_or_else(|| NONE.to_owned(), rate),
            bytes(shaper.burst_bytes),
            seconds(shaper.max_delay_seconds),
            shaper.set_by.clone(),
            signed_bytes(shaper.credit_bytes),
            bytes(shaper.queue_bytes),
            shaper.queue_frames.to_string(),
            bytes(shaper.queue_high_water_bytes),
            shaper.delayed_frames.to_string(),
            seconds(shaper.throttled_seconds),
        ]);
    }
    table.render()
}

/// One port, direction and reason a line.
pub fn drops(drops: &[Drop]) -> String {
    let mut table = Table::new([
        words("PORT"),
        words("DIRECTION"),
        words("REASON"),
        numbers("FRAMES"),
        numbers("BYTES"),
        words("MEANING"),
    ]);
    for drop in drops {
        table.row([
            drop.port.clone(),
            with_arrow(&drop.direction),
            drop.reason.clone(),
            drop.frames.to_string(),
            bytes(drop.bytes),
            drop.explanation.clone(),
        ]);
    }
    table.render()
}

fn traffic_columns() -> [Column; 6] {
    let columns = ["FRAMES", "BYTES", "DROPPED"].map(numbers);
    let [a, b, c] = columns.map(|column| column.under(INGRESS));
    let [d, e, f] = columns.map(|column| column.under(EGRESS));
    [a, b, c, d, e, f]
}

fn traffic(traffic: Traffic) -> Vec<String> {
    vec![traffic.frames.to_string(), bytes(traffic.bytes), traffic.dropped_frames.to_string()]
}

fn with_arrow(direction: &str) -> String {
    match direction {
        "ingress" => INGRESS.to_owned(),
        "egress" => EGRESS.to_owned(),
        other => other.to_owned(),
    }
}

fn text(value: Option<&String>) -> String {
    value.map_or_else(|| NONE.to_owned(), Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_waits_says_why_below_the_table() {
        let traffic = Traffic { frames: 3, bytes: 2048, dropped_frames: 0, dropped_bytes: 0 };
        let port = Port {
            name: "vm1".to_owned(),
            group: "web".to_owned(),
            kind: "netdev".to_owned(),
            state: "waiting".to_owned(),
            reason: Some("the interface does not exist".to_owned()),
            interface: None,
            driver: None,
            xdp_mode: None,
            zerocopy: false,
            vlan: "10".to_owned(),
            mtu_bytes: None,
            mac: None,
            ingress: traffic,
            egress: traffic,
        };
        let expected = "                                                       ingress (port → switch)   egress (switch → port)
PORT  GROUP  KIND    STATE    INTERFACE  DRIVER  VLAN  FRAMES    BYTES  DROPPED  FRAMES    BYTES  DROPPED
vm1   web    netdev  waiting  -          -       10         3  2.0 KiB        0       3  2.0 KiB        0
vm1 is waiting: the interface does not exist
";
        assert_eq!(ports(&[port]), expected);
    }

    #[test]
    fn a_shaper_s_direction_has_its_arrow() {
        let shaper = Shaper {
            port: "web1".to_owned(),
            direction: "egress".to_owned(),
            set_by: "group".to_owned(),
            average_bits_per_second: 100_000_000,
            peak_bits_per_second: None,
            burst_bytes: 125_000,
            max_delay_seconds: 0.02,
            overhead_bytes: 0,
            credit_bytes: -1514,
            queue_bytes: 3028,
            queue_frames: 2,
            queue_high_water_bytes: 3028,
            delayed_frames: 7,
            throttled_seconds: 0.5,
        };
        let text = shapers(&[shaper]);
        for part in ["egress (switch → port)", "100 Mbit/s", "-1.5 KiB", "20.0 ms", "500.0 ms"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}
