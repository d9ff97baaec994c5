//! A worker without its thread: one share of the switch, the devices of its ports, and one round over both.
//!
//! A round is receive → take over → release → transmit → flush → housekeeping, all at one `now`. The engine reads no
//! clock and never sleeps, so the complete switch runs in a unit test over memory devices and in virtual time.

use std::collections::VecDeque;

use crate::frame::Frame;
use crate::id::{Direction, PortId};
use crate::port::{BATCH, Device, DeviceStats, Settled};
use crate::switch::Switch;
use crate::time::{Instant, Nanos};
use crate::verdict::DropReason;

/// Empty receive calls after which a device is left alone until its descriptor is readable.
const COLD_AFTER: u8 = 16;
/// When a device is full, or still has frames on their way, it is asked again after this long.
const RETRY: Nanos = Nanos::from_micros(50);
/// How often queue and shaper gauges of a quiet port are published.
const PUBLISH_EVERY: Nanos = Nanos::from_millis(100);

/// A worker without its thread.
pub struct Engine {
    switch: Switch,
    /// By [`PortId`]; `None` for ports without a device or of other workers.
    slots: Vec<Option<Slot>>,
    /// The ports that have a slot.
    attached: Vec<PortId>,
    received: Vec<Frame>,
    settled: Vec<Settled>,
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
    /// The device can be slept on, so it need not be asked while it is quiet.
    pollable: bool,
    /// The device has frames on their way that need [`Device::flush`].
    flushing: bool,
}

impl Engine {
    /// An engine without devices.
    pub fn new(switch: Switch) -> Self {
        let ports = switch.ports.len();
        Self {
            switch,
            slots: (0..ports).map(|_| None).collect(),
            attached: Vec::with_capacity(ports),
            received: Vec::with_capacity(BATCH),
            settled: Vec::with_capacity(BATCH),
            next_release: None,
            next_transmit: None,
            next_publish: Instant::ZERO,
        }
    }

    /// Gives `port` its device. A device it had before is detached first.
    pub fn attach(&mut self, port: PortId, device: Box<dyn Device>) {
        self.detach(port);
        let (backlog, pollable) = (VecDeque::with_capacity(BATCH), !device.wait_fds().is_empty());
        self.slots[port.index()] = Some(Slot { device, backlog, empty: 0, pollable, flushing: false });
        self.attached.push(port);
        self.switch.attach(port);
    }

    /// Takes the device of `port` away; every frame that waits for it is dropped.
    pub fn detach(&mut self, port: PortId) -> Option<Box<dyn Device>> {
        let mut slot = self.slots[port.index()].take()?;
        slot.device.release_buffers(self.switch.pool());
        self.attached.retain(|other| *other != port);
        for frame in slot.backlog {
            self.switch.discard(port, Direction::Egress, frame, DropReason::Flushed);
        }
        self.switch.detach(port);
        Some(slot.device)
    }

    /// One round; whether any frame moved.
    pub fn round(&mut self, now: Instant) -> bool {
        let mut moved = self.receive(now);
        moved |= self.switch.take_over(now) > 0;
        self.release(now);
        moved |= self.transmit(now);
        self.flush(now);
        let in_devices = self.attached.iter().filter_map(|port| self.slots[port.index()].as_ref());
        self.switch.housekeeping(now, in_devices.map(|slot| slot.backlog.len()).sum());
        if now >= self.next_publish {
            self.next_publish = now + PUBLISH_EVERY;
            for port in &self.attached {
                self.switch.publish(now, *port);
            }
        }
        moved
    }

    /// When the next round is due although nothing arrives.
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let retry = self.attached.iter().filter_map(|port| self.slots[port.index()].as_ref());
        let retry = retry.into_iter().any(|slot| slot.flushing || !slot.backlog.is_empty()).then(|| now + RETRY);
        [self.next_release, self.next_transmit, retry].into_iter().flatten().min()
    }

    /// The device of `port` has something to read.
    pub fn ready(&mut self, port: PortId) {
        if let Some(Some(slot)) = self.slots.get_mut(port.index()) {
            slot.empty = 0;
        }
    }

    /// Drops everything that waits, as for a stop; afterwards no buffer of this worker is in a queue or device.
    pub fn drain(&mut self) {
        for port in std::mem::take(&mut self.attached) {
            self.attached.push(port);
            drop(self.detach(port));
        }
    }

    /// This worker's share of the switch.
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    /// This worker's share of the switch.
    pub fn switch_mut(&mut self) -> &mut Switch {
        &mut self.switch
    }

    /// Counters of every device.
    pub fn device_stats(&self) -> Vec<(PortId, DeviceStats)> {
        let stats = |port: &PortId| Some((*port, self.slots[port.index()].as_ref()?.device.stats()));
        self.attached.iter().filter_map(stats).collect()
    }

    fn receive(&mut self, now: Instant) -> bool {
        let mut moved = false;
        for port in &self.attached {
            let Some(slot) = &mut self.slots[port.index()] else { continue };
            if slot.pollable && slot.empty >= COLD_AFTER {
                continue;
            }
            slot.device.rx_batch(self.switch.pool(), &mut self.received);
            if self.received.is_empty() {
                slot.empty = slot.empty.saturating_add(1);
                continue;
            }
            slot.empty = 0;
            moved = true;
            self.switch.counters.rounds.batch(self.received.len());
            self.switch.receive(now, &mut self.received);
        }
        moved
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
            let due = self.switch.transmit(now, port, BATCH, &mut slot.backlog);
            slot.device.tx_batch(&mut slot.backlog, &mut self.settled);
            slot.flushing |= !self.settled.is_empty();
            moved |= !self.settled.is_empty();
            for settled in self.settled.drain(..) {
                self.switch.settle(port, settled);
            }
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
        for port in &self.attached {
            if let Some(slot) = &mut self.slots[port.index()]
                && slot.flushing
            {
                slot.flushing = slot.device.flush(now);
            }
        }
    }
}

fn earlier(a: Option<Instant>, b: Instant) -> Option<Instant> {
    Some(a.map_or(b, |a| a.min(b)))
}
