//! Whole rounds of a worker over replaying devices: everything but the kernel. End to end is `benches/peers`.

use std::sync::atomic::Ordering::Relaxed;

use lockgate_benches::frames::{tcp_super_frame, udp};
use lockgate_benches::harness::Case;
use lockgate_benches::replay::Template;
use lockgate_benches::rig::{ReplayRig, shaping, station, workload_port};
use lockgate_dataplane::buffer::PoolSize;
use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::id::PortId;
use lockgate_dataplane::state::{ClassTable, FdbSettings, ForwardingState, PortState};
use lockgate_dataplane::time::Nanos;

const BATCHES: [usize; 3] = [1, 32, 64];
const SHORTEST: usize = 60;
const FULL: usize = 1514;
const FLOODED_TO: u16 = 8;
const FDB: FdbSettings = FdbSettings { capacity: 8192, age: Nanos::from_secs(300) };
/// Every round is this much later than the last one.
const ROUND: Nanos = Nanos::from_millis(1);

/// Frames of `flows` flows from station `from` to `to`.
fn flows(from: u16, to: MacAddr, length: usize, flows: u16) -> Vec<Template> {
    (0..flows).map(|flow| Template::plain(udp(to, station(from), flow, length))).collect()
}

fn rig(ports: Vec<PortState>, templates: Vec<Vec<Template>>, per_call: usize) -> ReplayRig {
    let pool = PoolSize { small: 64 * 64, large: 64 };
    ReplayRig::new(ForwardingState::new(ports, ClassTable::default(), FDB), pool, templates, per_call)
}

fn two() -> Vec<PortState> {
    vec![workload_port(0), workload_port(1)]
}

/// One port sends to another, batch by batch.
pub fn by_batch() -> Vec<Case> {
    let mut cases = Vec::new();
    for batch in BATCHES {
        let column = format!("batch of {batch}");
        let mut case = |row: &str, make: fn(usize) -> ReplayRig| {
            let call = move || {
                let mut rig = make(batch);
                move || rig.round(ROUND)
            };
            cases.push(Case::new(row, &column, batch, call));
        };
        case("pipeline: 64 bytes to one port", |batch| {
            rig(two(), vec![flows(0, station(1), SHORTEST, 64), vec![]], batch)
        });
        case("pipeline: 1514 bytes to one port", |batch| {
            rig(two(), vec![flows(0, station(1), FULL, 64), vec![]], batch)
        });
        case("pipeline: broadcast to 8 ports", |batch| {
            let ports = (0..=FLOODED_TO).map(workload_port).collect();
            let mut templates = vec![vec![]; usize::from(FLOODED_TO) + 1];
            templates[0] = flows(0, MacAddr::BROADCAST, SHORTEST, 64);
            rig(ports, templates, batch)
        });
    }
    let make = move || {
        let super_frames = vec![tcp_super_frame(station(1), station(0), 64_000, 1448)];
        let mut rig = rig(two(), vec![super_frames, vec![]], 1);
        move || rig.round(ROUND)
    };
    cases.push(Case::new("pipeline: a super-frame of 64 kB, whole", "batch of 1", 1, make));
    cases
}

/// Each port sends a frame to the next one in every round.
pub fn by_ports() -> Vec<Case> {
    let mut cases = Vec::new();
    for ports in [10_u16, 100, 1000] {
        let column = format!("{ports} ports");
        let frames = usize::from(ports);
        let make = move || {
            let mut rig = ring(ports, SHORTEST, |port| PortState {
                ingress: Some(shaping(1_000_000_000)),
                egress: Some(shaping(1_000_000_000)),
                ..port
            });
            move || rig.round(ROUND)
        };
        cases.push(Case::new("pipeline: shaped both ways, within the rate", &column, frames, make));
        let make = move || {
            // One frame of 1514 bytes a millisecond, and what the first rounds send is one too many for the burst.
            let mut rig = ring(ports, FULL, |port| PortState { egress: Some(shaping(12_112_000)), ..port });
            let controls: Vec<_> = (0..ports).map(PortId).collect();
            let per_call = |rig: &ReplayRig, frames| {
                let set = |port: &_| rig.controls(*port).per_call.store(frames, Relaxed);
                controls.iter().for_each(set);
            };
            per_call(&rig, 15);
            rig.round(ROUND);
            per_call(&rig, 1);
            move || rig.round(ROUND)
        };
        cases.push(Case::new("pipeline: shaped, every frame waits", &column, frames, make));
        let make = move || {
            let mut rig = ring(ports, SHORTEST, |port| port);
            move || rig.round(ROUND)
        };
        cases.push(Case::new("pipeline: the same ports unshaped", &column, frames, make));
    }
    cases
}

fn ring(ports: u16, length: usize, shaped: fn(PortState) -> PortState) -> ReplayRig {
    let next = |port: u16| station((port + 1) % ports);
    let templates = (0..ports).map(|port| flows(port, next(port), length, 1)).collect();
    let pool = PoolSize { small: 16 * usize::from(ports) + 64, large: 0 };
    let state = (0..ports).map(|port| shaped(workload_port(port))).collect();
    ReplayRig::new(ForwardingState::new(state, ClassTable::default(), FDB), pool, templates, 1)
}
