//! A worker without its thread: one share of the switch, the devices of its ports, and one round over both.
//!
//! A round is take over → receive → release → transmit → flush → housekeeping, all at one `now`. The engine reads no
//! clock and never sleeps, so the complete switch runs in a unit test over memory devices and in virtual time.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use crate::active::ActiveSet;
use crate::frame::Frame;
use crate::frame::mac::MacAddr;
use crate::id::{Direction, PortId};
use crate::port::{BATCH, Device, DeviceStats, Settled};
use crate::switch::Switch;
use crate::time::{Instant, Nanos};
use crate::verdict::DropReason;

/// Empty receive calls after which a device is left alone until its descriptor is readable.
const COLD_AFTER: u8 = 16;
/// Rounds that received something after which a device counts as busy.
const BUSY_AFTER: u32 = 32;
/// A device that was full is asked again after this long, and after twice as long each time until [`LAST_RETRY`].
const RETRY: Nanos = Nanos::from_micros(50);
const LAST_RETRY: Nanos = Nanos::from_millis(1);
/// How often queue and shaper gauges are published and addresses age.
const PUBLISH_EVERY: Nanos = Nanos::from_millis(100);

/// A worker without its thread.
pub struct Engine {
    switch: Switch,
    /// By [`PortId`]; `None` for ports without a device or of other workers. The last one is the lane's.
    slots: Vec<Option<Slot>>,
    /// The ports that have a slot.
    attached: Vec<PortId>,
    /// Slots whose device receives.
    receivers: Vec<PortId>,
    /// Slots with something to flush, to retry or in their backlog.
    sending: ActiveSet,
    /// Frames in all backlogs.
    in_devices: usize,
    received: Vec<Frame>,
    settled: Vec<Settled>,
    last_received: usize,
    newly_busy: Vec<PortId>,
    next_release: Option<Instant>,
    next_transmit: Option<Instant>,
    next_publish: Instant,
}

struct Slot {
    device: Box<dyn Device>,
    /// Frames that left their queue, were charged, and wait for room in the device.
    backlog: VecDeque<Frame>,
    /// Empty receive calls in a row.
    empty: u8,
    /// The device's descriptors are watched, so it need not be asked while it is quiet.
    watched: bool,
    /// Rounds that received something since the worker slept.
    streak: u32,
    /// When [`Device::flush`] is due.
    flush_due: Option<Instant>,
    /// When a device that was full is asked again, and how long that is after the last time.
    retry: Option<(Instant, Nanos)>,
}

impl Engine {
    /// An engine without devices.
    pub fn new(switch: Switch) -> Self {
        let ports = switch.ports.len();
        Self {
            switch,
            slots: (0..=ports).map(|_| None).collect(),
            attached: Vec::with_capacity(ports),
            receivers: Vec::with_capacity(ports),
            sending: ActiveSet::new(ports + 1),
            in_devices: 0,
            received: Vec::with_capacity(BATCH),
            settled: Vec::with_capacity(BATCH),
            last_received: 0,
            newly_busy: Vec::with_capacity(ports),
            next_release: None,
            next_transmit: None,
            next_publish: Instant::ZERO,
        }
    }

    /// Gives `port` its device. A device it had before is detached first.
    pub fn attach(&mut self, now: Instant, port: PortId, device: Box<dyn Device>) {
        self.detach(now, port);
        self.fill(port, device);
        self.attached.push(port);
        self.switch.attach(port);
    }

    /// Gives the worker the device that receives for all its ports without one that does. The devices of those ports only
    /// send.
    pub fn attach_lane(&mut self, device: Box<dyn Device>) {
        let lane = self.lane();
        self.receivers.retain(|other| *other != lane);
        self.fill(lane, device);
    }

    /// What the lane is called where ports are named: no port of the switch.
    pub fn lane(&self) -> PortId {
        PortId(u16::try_from(self.slots.len() - 1).unwrap_or(u16::MAX))
    }

    fn fill(&mut self, slot: PortId, device: Box<dyn Device>) {
        let (backlog, watched) = (VecDeque::with_capacity(BATCH), !device.wait_fds().is_empty());
        if device.receives() {
            self.receivers.push(slot);
        }
        self.slots[slot.index()] =
            Some(Slot { device, backlog, empty: 0, watched, streak: 0, flush_due: None, retry: None });
    }

    /// Takes the device of `port` away; every frame that waits for it is dropped.
    pub fn detach(&mut self, now: Instant, port: PortId) -> Option<Box<dyn Device>> {
        let mut slot = self.slots[port.index()].take()?;
        slot.device.release_buffers(self.switch.pool());
        self.attached.retain(|other| *other != port);
        self.receivers.retain(|other| *other != port);
        self.sending.remove(port);
        self.in_devices -= slot.backlog.len();
        for frame in slot.backlog {
            self.switch.discard(port, Direction::Egress, frame, DropReason::Flushed);
        }
        self.switch.detach(now, port);
        Some(slot.device)
    }

    /// The address that is known to be behind `port`.
    pub fn show(&mut self, now: Instant, port: PortId, mac: MacAddr) {
        self.switch.show(now, port, mac);
    }

    /// The link of `port` came up or went down.
    pub fn set_carrier(&mut self, now: Instant, port: PortId, carrier: bool) {
        if !carrier && let Some(Some(slot)) = self.slots.get_mut(port.index()) {
            self.in_devices -= slot.backlog.len();
            for frame in slot.backlog.drain(..) {
                self.switch.discard(port, Direction::Egress, frame, DropReason::Flushed);
            }
        }
        self.switch.set_carrier(now, port, carrier);
    }

    /// Ports whose device is gone.
    pub fn gone(&self) -> Vec<PortId> {
        let is_gone =
            |port: &&PortId| self.slots[port.index()].as_ref().is_some_and(|slot| slot.device.is_gone());
        self.attached.iter().filter(is_gone).copied().collect()
    }

    /// One round; whether any frame moved.
    pub fn round(&mut self, now: Instant) -> bool {
        // First what the others learned: a frame that was received since must find it.
        let mut moved = self.switch.take_over(now) > 0;
        moved |= self.receive(now);
        self.release(now);
        moved |= self.transmit(now);
        self.flush(now);
        self.switch.account(self.in_devices);
        if now >= self.next_publish {
            self.next_publish = now + PUBLISH_EVERY;
            self.switch.age_addresses(now);
            for port in &self.attached {
                self.switch.publish(now, *port);
            }
        }
        moved
    }

    /// When the next round is due although nothing arrives.
    pub fn next_deadline(&self) -> Option<Instant> {
        let slots = || self.sending.iter().filter_map(|port| self.slots[port.index()].as_ref());
        let retry = slots().filter_map(|slot| slot.retry.map(|(due, _)| due)).min();
        let flush = slots().filter_map(|slot| slot.flush_due).min();
        [self.next_release, self.next_transmit, retry, flush].into_iter().flatten().min()
    }

    /// Frames that the latest round received from devices.
    pub fn last_received(&self) -> usize {
        self.last_received
    }

    /// A port that has just become busy: watching its descriptors costs its senders a callback for every frame and tells
    /// nothing that the next round would not find. If it is answered with [`Self::set_watched`], it is asked in every round.
    pub fn next_busy(&mut self) -> Option<PortId> {
        self.newly_busy.pop()
    }

    /// Whether the descriptors of `port` are watched from now on, and what they are.
    pub fn set_watched(&mut self, port: PortId, watched: bool) -> Vec<BorrowedFd<'_>> {
        let Some(slot) = &mut self.slots[port.index()] else { return Vec::new() };
        (slot.watched, slot.streak) = (watched, 0);
        slot.device.wait_fds()
    }

    /// The device of `port` has something to read.
    pub fn ready(&mut self, port: PortId) {
        if let Some(Some(slot)) = self.slots.get_mut(port.index()) {
            slot.empty = 0;
        }
    }

    /// Drops everything that waits, as for a stop, and gives the devices up; afterwards no buffer of this worker is in a
    /// queue or device.
    pub fn drain(&mut self, now: Instant) -> Vec<Box<dyn Device>> {
        let mut devices: Vec<_> =
            self.attached.clone().into_iter().filter_map(|port| self.detach(now, port)).collect();
        let lane = self.lane();
        self.receivers.retain(|other| *other != lane);
        if let Some(mut slot) = self.slots[lane.index()].take() {
            slot.device.release_buffers(self.switch.pool());
            devices.push(slot.device);
        }
        while self.switch.take_over(now) > 0 {
            // Their ports are detached: each frame is dropped and its buffer sent home.
        }
        devices
    }

    /// This worker's share of the switch.
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    /// This worker's share of the switch.
    pub fn switch_mut(&mut self) -> &mut Switch {
        &mut self.switch
    }

    /// Counters of the lane's receiving side, if the worker has one.
    pub fn lane_stats(&mut self) -> Option<DeviceStats> {
        let lane = self.lane();
        Some(self.slots[lane.index()].as_mut()?.device.stats())
    }

    /// Counters of every port's device.
    pub fn device_stats(&mut self) -> Vec<(PortId, DeviceStats)> {
        let Self { slots, attached, .. } = self;
        let stats = |port: &PortId| Some((*port, slots[port.index()].as_mut()?.device.stats()));
        attached.iter().filter_map(stats).collect()
    }

    fn receive(&mut self, now: Instant) -> bool {
        self.last_received = 0;
        let lane = self.lane();
        for port in &self.receivers {
            let Some(slot) = &mut self.slots[port.index()] else { continue };
            if slot.watched && slot.empty >= COLD_AFTER {
                continue;
            }
            slot.device.rx_batch(self.switch.pool(), &mut self.received);
            if self.received.is_empty() {
                slot.empty = slot.empty.saturating_add(1);
                continue;
            }
            slot.empty = 0;
            slot.streak += 1;
            if slot.watched && slot.streak == BUSY_AFTER {
                self.newly_busy.push(*port);
            }
            self.last_received += self.received.len();
            self.switch.counters.rounds.batch(self.received.len());
            if *port == lane {
                self.switch.drop_strays(&mut self.received);
            }
            self.switch.receive(now, &mut self.received);
        }
        self.last_received > 0
    }

    fn release(&mut self, now: Instant) {
        self.next_release = None;
        let mut at = 0;
        while let Some(port) = self.switch.ingress_waiting.nth(at) {
            match self.switch.release(now, port) {
                Some(due) => {
                    self.next_release = earlier(self.next_release, due);
                    at += 1;
                }
                None => self.switch.ingress_waiting.remove(port),
            }
        }
    }

    fn transmit(&mut self, now: Instant) -> bool {
        let mut moved = false;
        self.next_transmit = None;
        let mut at = 0;
        while let Some(port) = self.switch.egress_waiting.nth(at) {
            let Some(slot) = &mut self.slots[port.index()] else {
                self.switch.flush_queues(port);
                self.switch.egress_waiting.remove(port);
                continue;
            };
            // A device that was full is left alone for a while.
            if slot.retry.is_some_and(|(due, _)| due > now) {
                at += 1;
                continue;
            }
            let mut sent = 0;
            self.in_devices -= slot.backlog.len();
            let due = loop {
                let due = self.switch.transmit(now, port, &mut slot.backlog);
                if slot.backlog.is_empty() {
                    break due;
                }
                slot.device.tx_batch(&mut slot.backlog, &mut self.settled);
                // Also when none was finished: a part of a super-frame may be in the device.
                slot.flush_due = Some(now);
                self.sending.insert(port);
                sent += self.settled.len();
                for settled in self.settled.drain(..) {
                    self.switch.settle(port, settled);
                }
                if !slot.backlog.is_empty() || sent >= BATCH {
                    break due;
                }
            };
            moved |= sent > 0;
            self.in_devices += slot.backlog.len();
            slot.retry = (!slot.backlog.is_empty()).then(|| match slot.retry {
                _ if sent > 0 => backed_off(now, RETRY),
                None => backed_off(now, Nanos::new(2 * RETRY.get())),
                Some((_, last)) => backed_off(now, Nanos::new(2 * last.get()).min(LAST_RETRY)),
            });
            if let Some(due) = due {
                self.next_transmit = earlier(self.next_transmit, due);
            }
            if slot.backlog.is_empty() && self.switch.ports[port.index()].egress.is_empty() {
                self.switch.egress_waiting.remove(port);
            } else {
                at += 1;
            }
        }
        moved
    }

    fn flush(&mut self, now: Instant) {
        let mut at = 0;
        while let Some(port) = self.sending.nth(at) {
            let Some(slot) = &mut self.slots[port.index()] else {
                self.sending.remove(port);
                continue;
            };
            if slot.flush_due.is_some_and(|due| due <= now) {
                slot.flush_due = slot.device.flush(now);
                // Everything has left, so there is room again; unless there was none for what came last.
                if let (None, Some((due, RETRY))) = (slot.flush_due, &mut slot.retry) {
                    *due = now;
                }
            }
            if slot.flush_due.is_none() && slot.retry.is_none() {
                self.sending.remove(port);
            } else {
                at += 1;
            }
        }
    }
}

fn backed_off(now: Instant, wait: Nanos) -> (Instant, Nanos) {
    (now + wait, wait)
}

fn earlier(a: Option<Instant>, b: Instant) -> Option<Instant> {
    Some(a.map_or(b, |a| a.min(b)))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;
    use crate::buffer::{BufferPool, PoolSize};
    use crate::exchange::Exchange;
    use crate::frame::vlan::VlanId;
    use crate::id::{GroupId, WorkerId};
    use crate::port::Capabilities;
    use crate::port::memory::{MemoryPeer, Packet, memory_port};
    use crate::state::security::Security;
    use crate::state::{
        ClassTable, FdbSettings, ForwardingState, PortState, Shaping, SourcePolicy, VlanMode,
    };
    use crate::units::{BitsPerSecond, Bytes};

    const POOL: PoolSize = PoolSize { small: 512, large: 0 };
    const A: PortId = PortId(0);
    const B: PortId = PortId(1);

    fn station(port: PortId) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, u8::try_from(port.0).unwrap() + 1])
    }

    /// Two ports without devices, the second held to `egress`.
    fn engine(egress: Option<Shaping>) -> Engine {
        let port = |id, egress| PortState {
            group: GroupId(0),
            worker: WorkerId(0),
            vlan: VlanMode::Access(VlanId::UNTAGGED),
            isolated: false,
            sources: SourcePolicy::Pinned([station(id)].into()),
            security: Security::default(),
            takes_unknown_unicast: false,
            ingress: None,
            egress,
        };
        let fdb = FdbSettings { capacity: 16, age: Nanos::from_secs(300) };
        let state = ForwardingState::new(vec![port(A, None), port(B, egress)], ClassTable::default(), fdb);
        let exchange = Exchange::connect(&[POOL]).remove(0);
        Engine::new(Switch::new(Instant::ZERO, WorkerId(0), Arc::new(state), POOL, POOL.small, exchange))
    }

    fn attached(engine: &mut Engine, port: PortId) -> MemoryPeer {
        let (device, peer) = memory_port(port, 1500);
        engine.attach(Instant::ZERO, port, Box::new(device));
        peer
    }

    fn frame(to: PortId, from: PortId, length: usize) -> Packet {
        let mut bytes = [&station(to).0[..], &station(from).0, &[0x88, 0xb5]].concat();
        bytes.resize(length, 0);
        Packet::plain(bytes)
    }

    fn flushed(engine: &Engine, port: PortId) -> u64 {
        engine.switch().counters().direction(port, Direction::Egress).drops(DropReason::Flushed)
    }

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Nanos::from_micros(micros)
    }

    #[test]
    fn a_frame_crosses_in_one_round() {
        let mut engine = engine(None);
        let (a, b) = (attached(&mut engine, A), attached(&mut engine, B));
        a.send(frame(B, A, 60));
        assert!(engine.round(Instant::ZERO));
        assert_eq!(b.take(), Some(frame(B, A, 60)));
        assert!(!engine.round(Instant::ZERO));
        assert_eq!(engine.next_deadline(), None);
        assert_eq!(engine.switch_mut().pool().outstanding(), 0);
    }

    #[test]
    fn a_full_device_is_asked_again_soon_and_loses_nothing() {
        let mut engine = engine(None);
        let (a, b) = (attached(&mut engine, A), attached(&mut engine, B));
        b.set_room(1);
        (0..100).for_each(|_| a.send(frame(B, A, 60)));
        while engine.round(Instant::ZERO) {}
        assert_eq!(b.waiting(), 1);
        assert_eq!(engine.next_deadline(), Some(at(100)));
        b.set_room(usize::MAX);
        while engine.round(at(100)) {}
        assert_eq!((b.waiting(), engine.next_deadline()), (100, None));
    }

    #[test]
    fn a_port_that_loses_its_device_drops_what_waits_for_it() {
        let mut engine = engine(None);
        let (a, b) = (attached(&mut engine, A), attached(&mut engine, B));
        b.set_room(0);
        (0..100).for_each(|_| a.send(frame(B, A, 60)));
        while engine.round(Instant::ZERO) {}
        assert!(engine.detach(Instant::ZERO, B).is_some());
        assert_eq!(flushed(&engine, B), 100, "in the queue and in front of the device");
        a.send(frame(B, A, 60));
        engine.round(Instant::ZERO);
        let counters = engine.switch().counters();
        assert_eq!(counters.direction(B, Direction::Egress).drops(DropReason::PortDown), 1);
        assert_eq!(counters.flow.accounting_error.value(), 0);
        assert!(engine.detach(Instant::ZERO, B).is_none(), "it has none any more");
        assert_eq!(engine.switch_mut().pool().outstanding(), 0);
    }

    #[test]
    fn a_port_comes_back_with_a_new_device() {
        let mut engine = engine(None);
        let (a, stuck) = (attached(&mut engine, A), attached(&mut engine, B));
        stuck.set_room(0);
        a.send(frame(B, A, 60));
        engine.round(Instant::ZERO);
        let b = attached(&mut engine, B);
        assert_eq!(flushed(&engine, B), 1, "what waited for the old device");
        a.send(frame(B, A, 60));
        engine.round(Instant::ZERO);
        assert_eq!((stuck.waiting(), b.waiting()), (0, 1));
    }

    #[test]
    fn the_deadline_is_the_instant_the_next_frame_has_credit() {
        let shaping = Shaping {
            average: BitsPerSecond::new(8_000_000).unwrap(),
            peak: None,
            burst: Bytes::new(1000),
            max_delay: Nanos::from_millis(20),
            overhead: Bytes::new(0),
        };
        let mut engine = engine(Some(shaping));
        let (a, b) = (attached(&mut engine, A), attached(&mut engine, B));
        (0..3).for_each(|_| a.send(frame(B, A, 1000)));
        engine.round(Instant::ZERO);
        for (left, due) in [(1, Some(at(1000))), (2, Some(at(2000))), (3, None)] {
            assert_eq!(b.waiting(), left);
            assert_eq!(engine.next_deadline(), due);
            if let Some(due) = due {
                engine.round(due - Nanos::new(1));
                assert_eq!(b.waiting(), left, "a nanosecond early");
                engine.round(due);
            }
        }
    }

    #[test]
    fn a_stop_drops_what_waits_and_gets_every_buffer_back() {
        let mut engine = engine(None);
        let (a, b) = (attached(&mut engine, A), attached(&mut engine, B));
        b.set_room(10);
        (0..100).for_each(|_| a.send(frame(B, A, 60)));
        while engine.round(Instant::ZERO) {}
        engine.drain(Instant::ZERO);
        assert_eq!((b.waiting(), flushed(&engine, B)), (10, 90));
        assert_eq!((engine.switch_mut().pool().outstanding(), engine.switch().queued()), (0, 0));
    }

    /// Counts how often it is asked.
    struct Quiet(Arc<AtomicUsize>, File);

    impl Device for Quiet {
        fn capabilities(&self) -> Capabilities {
            memory_port(A, 1500).0.capabilities()
        }

        fn rx_batch(&mut self, _: &mut BufferPool, _: &mut Vec<Frame>) {
            self.0.fetch_add(1, Relaxed);
        }

        fn tx_batch(&mut self, _: &mut VecDeque<Frame>, _: &mut Vec<Settled>) {}

        fn flush(&mut self, _: Instant) -> Option<Instant> {
            None
        }

        fn stats(&mut self) -> DeviceStats {
            DeviceStats::default()
        }

        fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
            vec![self.1.as_fd()]
        }
    }

    #[test]
    fn a_device_that_stays_quiet_is_left_alone_until_it_has_something() {
        let mut engine = engine(None);
        let asked = Arc::new(AtomicUsize::new(0));
        engine.attach(Instant::ZERO, A, Box::new(Quiet(asked.clone(), File::open("/dev/null").unwrap())));
        (0..100).for_each(|_| _ = engine.round(Instant::ZERO));
        assert_eq!(asked.load(Relaxed), COLD_AFTER.into());
        engine.ready(A);
        engine.round(Instant::ZERO);
        assert_eq!(asked.load(Relaxed), usize::from(COLD_AFTER) + 1);
        engine.ready(PortId(99));
    }
}
