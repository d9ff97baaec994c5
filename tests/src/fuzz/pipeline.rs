//! A stream of bytes as the life of a small switch: its topology, then frames with arbitrary offload claims, time, full
//! devices, ports that come and go. After each step every frame is accounted for, at the end no buffer is out.

use lockgate_dataplane::buffer::PoolSize;
use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::frame::offload::{Checksum, Gso, GsoKind};
use lockgate_dataplane::frame::vlan::{VlanId, VlanSet};
use lockgate_dataplane::id::{ClassId, GroupId, PortId, WorkerId};
use lockgate_dataplane::port::memory::Packet;
use lockgate_dataplane::port::tap::vnet;
use lockgate_dataplane::state::security::Security;
use lockgate_dataplane::state::{
    BeyondLimit, Class, ClassTable, FdbSettings, ForwardingState, PortState, Service, Shaping, SourcePolicy,
    VlanMode,
};
use lockgate_dataplane::time::{Instant, Nanos};
use lockgate_dataplane::units::{BitsPerSecond, Bytes};

use crate::frames::{self, station};
use crate::rig::{Rig, ids};

use super::input::Input;

const MTU: u32 = 9000;
const STATIONS: u8 = 8;
/// More steps show nothing new and only take time.
const MAX_STEPS: usize = 200;

/// Builds the switch that `data` describes and lets happen what it says.
pub fn check(data: &[u8]) {
    let mut input = Input(data);
    let state = topology(&mut input);
    let pool = PoolSize { small: 1 + input.below(60), large: input.below(5) };
    let mut rig = Rig::new(state, pool, MTU);
    let ports: Vec<PortId> = ids(rig.state()).collect();
    let workers = rig.state().ports.iter().map(|port| port.worker.index() + 1).max().unwrap_or(1);
    let mut is_up = vec![true; ports.len()];
    let (mut now, mut left) = (Instant::ZERO, 0);
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        let (step, port) = (input.u8(), ports[input.below(ports.len())]);
        match step % 8 {
            0 => rig.peer(port).send(packet(&mut input)),
            1 => rig.send(port, raw_frame(&mut input)),
            2 => {
                let frame = frame(&mut input);
                (0..=input.below(20)).for_each(|_| rig.send(port, frame.clone()));
            }
            3 => _ = rig.round_of(input.below(workers), now),
            4 => {
                now += Nanos::from_micros(u64::from(input.u16()) * 10);
                rig.round(now);
            }
            5 => {
                let room = input.u8();
                rig.peer(port).set_room(if room == u8::MAX { usize::MAX } else { usize::from(room % 16) });
            }
            6 if is_up[port.index()] => {
                is_up[port.index()] = false;
                rig.detach(port);
            }
            6 => {
                is_up[port.index()] = true;
                rig.attach(port);
            }
            _ => rig.settle(now),
        }
        left += ports.iter().map(|port| rig.take_all(*port).len() as u64).sum::<u64>();
    }
    for _ in 0..20 {
        now += Nanos::from_millis(1);
        rig.round(now);
        left += ports.iter().map(|port| rig.take_all(*port).len() as u64).sum::<u64>();
    }
    rig.stop_and_add_up(now, left);
}

fn topology(input: &mut Input<'_>) -> ForwardingState {
    let (count, workers) = (2 + input.below(5), 1 + input.u8() % 2);
    let ports = (0_u8..).take(count).map(|number| port(input, number, workers)).collect();
    let mut classes = ClassTable::default();
    if !input.one_in(2) {
        let weight = std::num::NonZeroU8::MIN.saturating_add(input.u8());
        let services = [
            Service::Strict,
            Service::Weighted { weight },
            Service::Weighted { weight: std::num::NonZeroU8::MIN },
        ];
        classes.classes = services.map(|service| Class { service }).into();
        classes.by_pcp[5] = Some(ClassId(0));
        classes.by_dscp[46] = Some(ClassId(0));
        classes.by_dscp[10] = Some(ClassId(1));
        classes.default = ClassId(2);
    }
    let fdb =
        FdbSettings { capacity: 1 + input.below(40), age: Nanos::from_millis(1 + u64::from(input.u8())) };
    ForwardingState::new(ports, classes, fdb)
}

fn port(input: &mut Input<'_>, number: u8, workers: u8) -> PortState {
    let vlan = |number: u8| VlanId::try_from(1 + u16::from(number % 3)).expect("1 to 3 are VLANs");
    let beyond = if input.one_in(2) { BeyondLimit::Drop } else { BeyondLimit::Forward };
    let native = vlan(input.u8());
    PortState {
        group: GroupId(u16::from(input.u8() % 2)),
        worker: WorkerId(number % workers),
        vlan: match input.u8() % 3 {
            0 => VlanMode::Access(vlan(input.u8())),
            1 => VlanMode::Trunk { allowed: (0..3).map(vlan).collect::<VlanSet>(), native: None },
            _ => VlanMode::Trunk { allowed: (0..3).map(vlan).collect::<VlanSet>(), native: Some(native) },
        },
        isolated: input.one_in(4),
        sources: match input.u8() % 3 {
            0 => SourcePolicy::Pinned(Box::new([station(number + 1)])),
            1 => SourcePolicy::FirstSeen,
            _ => SourcePolicy::Learn { limit: input.below(5), beyond },
        },
        security: Security::default(),
        takes_unknown_unicast: input.one_in(2),
        ingress: shaping(input),
        egress: shaping(input),
    }
}

fn shaping(input: &mut Input<'_>) -> Option<Shaping> {
    if input.one_in(2) {
        return None;
    }
    let kilobits = 64 + u64::from(input.u16()) * 16;
    let rate = |factor| BitsPerSecond::new(kilobits * 1000 * factor);
    Some(Shaping {
        average: rate(1)?,
        peak: if input.one_in(2) { None } else { rate(2) },
        burst: Bytes::new(1 + u64::from(input.u16())),
        max_delay: Nanos::from_millis(u64::from(input.u8() % 30)),
        overhead: Bytes::new(u64::from(input.u8() % 32)),
    })
}

/// A frame between stations that exist, of a length that matters.
fn frame(input: &mut Input<'_>) -> Vec<u8> {
    let number = |input: &mut Input<'_>| station(1 + input.u8() % STATIONS);
    let to = if input.one_in(4) { MacAddr::BROADCAST } else { number(input) };
    let from = number(input);
    let length = [60, 61, 590, 1514, 1518, 4000, 9014, 9018, 9019][input.below(9)];
    let dscp = [0, 10, 46][input.below(3)];
    let bytes = match input.u8() % 2 {
        0 => frames::ipv4_udp(to, from, dscp, length),
        _ => frames::tcp(to, from, dscp, length),
    };
    match input.u8() % 4 {
        0 => frames::tagged(5, u16::from(input.u8() % 5), &bytes),
        1 => frames::tagged(0, 1, &frames::tagged(0, 2, &bytes)),
        _ => bytes,
    }
}

/// Addresses of stations, and behind them whatever the stream holds.
fn raw_frame(input: &mut Input<'_>) -> Vec<u8> {
    let mut bytes = frame(input)[..12].to_vec();
    let length = input.below(100);
    bytes.extend(input.take(length));
    if input.one_in(8) {
        bytes.truncate(input.below(14));
    }
    bytes
}

/// A frame with claims about it: by a vnet header, as from a tap, or any at all, as no device makes them.
fn packet(input: &mut Input<'_>) -> Packet {
    let number = |input: &mut Input<'_>| station(1 + input.u8() % STATIONS);
    let (to, from) = (number(input), number(input));
    let mut packet = match input.u8() % 3 {
        0 => Packet::plain(raw_frame(input)),
        1 => Packet::plain(frame(input)),
        _ => frames::super_frame(to, from, 0, 1514, 1 + input.below(40)),
    };
    match input.u8() % 3 {
        0 => {
            let mut header = [0; vnet::LEN];
            let given = input.take(vnet::LEN);
            header[..given.len()].copy_from_slice(given);
            (packet.checksum, packet.gso) = vnet::decode(header, 0, &packet.bytes);
        }
        1 => {
            packet.checksum = Checksum::Partial { start: input.u16(), offset: input.u16() };
            let kind = [GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::Udp][input.below(3)];
            packet.gso = Gso::new(kind, input.u16(), input.u16(), packet.bytes.len());
        }
        _ => {}
    }
    packet
}
