//! Storm limits in virtual time: what a loop or a flood may cost the others.

use lockgate_dataplane::buffer::PoolSize;
use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::id::{Direction, PortId};
use lockgate_dataplane::state::security::{Security, StormLimits};
use lockgate_dataplane::state::{ClassTable, FdbSettings, ForwardingState, PortState};
use lockgate_dataplane::time::{Instant, Nanos};
use lockgate_dataplane::units::FramesPerSecond;
use lockgate_dataplane::verdict::DropReason;
use lockgate_tests::frames::{self, SHORTEST, station};
use lockgate_tests::rig::{Rig, open_port};

const LIMITED: PortId = PortId(0);
const OTHER: PortId = PortId(1);

fn rig(ports: Vec<PortState>) -> Rig {
    let fdb = FdbSettings { capacity: 100, age: Nanos::from_secs(300) };
    Rig::new(
        ForwardingState::new(ports, ClassTable::default(), fdb),
        PoolSize { small: 4096, large: 0 },
        1500,
    )
}

fn limited(storm: StormLimits) -> PortState {
    PortState { security: Security { storm, ..Security::default() }, ..open_port() }
}

fn at(micros: u64) -> Instant {
    Instant::ZERO + Nanos::from_micros(micros)
}

#[test]
fn each_kind_of_frame_has_its_own_exact_limit() {
    let rate = |frames| FramesPerSecond::new(frames);
    let storm = StormLimits { broadcast: rate(1000), multicast: rate(500), unknown_unicast: rate(200) };
    let mut rig = rig(vec![limited(storm), open_port()]);
    rig.send(OTHER, frames::gratuitous_arp(station(2)));
    rig.settle(Instant::ZERO);
    drop(rig.take_all(LIMITED));
    let multicast = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
    let kinds = [
        (MacAddr::BROADCAST, 1000, Some(DropReason::StormBroadcast)),
        (multicast, 500, Some(DropReason::StormMulticast)),
        (station(99), 200, Some(DropReason::StormUnknownUnicast)),
        (station(2), 0, None),
    ];
    // Each kind at 10 000 frames/s for a second, after the tenth of a second that a bucket holds at most.
    for step in 0..1000 {
        for (to, ..) in kinds.iter().cycle().take(10 * kinds.len()) {
            rig.send(LIMITED, frames::ipv4_udp(*to, station(1), 0, SHORTEST));
        }
        rig.settle(at(step * 1000));
    }
    let received = rig.take_all(OTHER);
    for (to, rate, reason) in kinds {
        let passed = received.iter().filter(|packet| packet.bytes[..6] == to.0).count() as u64;
        // A full bucket, and what the second earns up to its last tick.
        let expected = if rate == 0 { 10_000 } else { (rate / 10).max(10) + rate - 1 };
        assert!(passed.abs_diff(expected) <= 1, "{to}: {passed} passed, {expected} may");
        if let Some(reason) = reason {
            assert_eq!(rig.drops(LIMITED, Direction::Ingress, reason), 10_000 - passed, "{to}");
        }
    }
}
