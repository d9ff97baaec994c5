//! Where the fuzzer starts: frames made by hand, the topologies under `configs/`, short lives of a switch.
//! The ignored test `write_seeds` writes them into the corpus.

use std::fs;
use std::path::Path;

use crate::frames::{self, station};

/// The seeds of a target, with their names.
///
/// # Panics
/// If there is no such target.
pub fn of(target: &str) -> Vec<(String, Vec<u8>)> {
    match target {
        "frame_parser" => frame_parser(),
        "pipeline" => pipeline(),
        "config" => config(),
        "vnet_header" => vnet_header(),
        other => panic!("no fuzz target `{other}`"),
    }
}

fn sample_frames() -> Vec<(&'static str, Vec<u8>)> {
    let (to, from) = (station(1), station(2));
    let udp = frames::ipv4_udp(to, from, frames::EF, frames::SHORTEST);
    vec![
        ("arp", frames::arp_request(from)),
        ("udp", udp.clone()),
        ("tcp", frames::tcp(to, from, 0, 590)),
        ("tcp-long", frames::super_frame(to, from, 0, 1514, 3).bytes),
        ("tagged", frames::tagged(5, 10, &udp)),
        ("priority-tagged", frames::priority_tagged(3, &udp)),
        ("qinq", frames::qinq(100, 10, &udp)),
        ("spanning-tree", frames::spanning_tree(from)),
        ("runt", frames::runt()),
        ("truncated-tag", frames::truncated_tag(from)),
        ("ipv6-extension-headers", ipv6()),
    ]
}

/// UDP behind a hop-by-hop and a destination-options header.
fn ipv6() -> Vec<u8> {
    let mut payload = vec![0x60, 0, 0, 0, 0, 28, 0, 64];
    payload.extend([0xfd; 32]);
    payload.extend([60, 0, 1, 4, 0, 0, 0, 0]);
    payload.extend([17, 0, 1, 4, 0, 0, 0, 0]);
    payload.extend([4, 0, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4]);
    frames::ethernet(station(1), station(2), 0x86dd, &payload)
}

fn frame_parser() -> Vec<(String, Vec<u8>)> {
    // Segments of 100 bytes, checksum of a TCP header, tag of VLAN 100 and PCP 1.
    let claims = [100, 0, 34, 0, 16, 0x64, 0x20];
    prefixed(&claims, "frame")
}

fn vnet_header() -> Vec<(String, Vec<u8>)> {
    let mut seeds = prefixed(&[0; 10], "finished");
    // Needs a checksum at 34 + 16; TCP over IPv4 in segments of 1448 bytes.
    seeds.extend(prefixed(&[1, 1, 54, 0, 0xa8, 5, 34, 0, 16, 0], "tcp-segments"));
    seeds.extend(prefixed(&[1, 5, 42, 0, 100, 0, 34, 0, 6, 0], "udp-segments"));
    seeds
}

fn prefixed(head: &[u8], what: &str) -> Vec<(String, Vec<u8>)> {
    let seed = |(name, frame): (&str, Vec<u8>)| (format!("{what}-{name}"), [head, &frame].concat());
    sample_frames().into_iter().map(seed).collect()
}

/// Every kind of step, with growing numbers behind it.
fn pipeline() -> Vec<(String, Vec<u8>)> {
    let life = |name: &str, stride: u8| {
        let topology = (0..80).map(|at: u8| at.wrapping_mul(stride));
        let steps = (0..40_u8).flat_map(|turn| (0..8).map(move |step| (turn << 3) | step)).chain(0..255);
        (name.to_owned(), topology.chain(steps).collect())
    };
    vec![life("two-ports", 0), life("mixed", 1), life("mostly-shaped", 3), life("all-different", 7)]
}

fn config() -> Vec<(String, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let mut seeds = Vec::new();
    for directory in [root.join("invalid"), root] {
        let entries =
            fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
            if path.extension().is_some_and(|extension| extension == "yaml") {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                seeds.push((name, fs::read(&path).unwrap_or_default()));
            }
        }
    }
    seeds.sort();
    seeds
}
