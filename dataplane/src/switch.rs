//! One worker's share of the switch: its tables, its ports' queues, its buffers. No I/O, no clock; the stages that work
//! on it are in [`crate::pipeline`].

use std::sync::Arc;

use crate::active::ActiveSet;
use crate::buffer::{BufferPool, FrameBuf, PoolSize, SMALL};
use crate::counters::WorkerCounters;
use crate::exchange::{Exchange, FdbEvent};
use crate::frame::Frame;
use crate::frame::mac::MacAddr;
use crate::id::{ClassId, Direction, PortId, WorkerId};
use crate::pipeline::ingress_policy::OwnAddress;
use crate::pipeline::lookup::{ALLOWED_LIMIT, Announce};
use crate::pipeline::storm_control::StormControl;
use crate::pipeline::tx_shaper::ShapedQueue;
use crate::state::{ForwardingState, SourcePolicy};
use crate::table::fdb::Fdb;
use crate::table::fdb::flap::Flap;
use crate::table::frame_list::FrameSlab;
use crate::time::Instant;
use crate::verdict::DropReason;

/// Most MAC table entries looked at for ageing at a time: some microseconds' work, which gets around a large table in
/// seconds.
const AGE_BUDGET: usize = 1024;
/// Most events from other workers handled in one round.
const EVENT_BUDGET: usize = 64;

/// One worker's share of the switch.
#[derive(Debug)]
pub struct Switch {
    pub(crate) me: WorkerId,
    pub(crate) state: Arc<ForwardingState>,
    pub(crate) pool: BufferPool,
    pub(crate) slab: FrameSlab,
    pub(crate) fdb: Fdb,
    pub(crate) ports: Box<[PortRuntime]>,
    /// Ports with frames that wait for ingress credit.
    pub(crate) ingress_waiting: ActiveSet,
    /// Ports with frames in their egress queue.
    pub(crate) egress_waiting: ActiveSet,
    pub(crate) counters: Arc<WorkerCounters>,
    exchange: Exchange,
}

/// What changes about a port while frames pass.
#[derive(Debug)]
pub(crate) struct PortRuntime {
    /// The port has a device.
    pub attached: bool,
    /// Its interface carries a signal, as far as the control side knows: frames for it would be lost otherwise.
    pub carrier: bool,
    /// It sent what its guard forbids; until the end of the switch.
    pub disabled: bool,
    pub own: OwnAddress,
    pub storm: StormControl,
    pub ingress: ShapedQueue,
    pub egress: ShapedQueue,
}

impl Switch {
    /// The share of worker `me`, with its pool allocated and its pinned addresses in the table.
    ///
    /// `buffers_everywhere` is the number of frame buffers of all workers: that many frames may wait here at most.
    pub fn new(
        now: Instant,
        me: WorkerId,
        state: Arc<ForwardingState>,
        pool: PoolSize,
        buffers_everywhere: usize,
        exchange: Exchange,
    ) -> Self {
        let count = state.ports.len();
        let runtime = |port: &crate::state::PortState| PortRuntime {
            attached: false,
            carrier: true,
            disabled: false,
            own: OwnAddress::default(),
            storm: StormControl::new(port.security.storm, now),
            ingress: ShapedQueue::new(port.ingress.as_ref(), now),
            egress: ShapedQueue::new(port.egress.as_ref(), now),
        };
        let mut fdb = Fdb::new(state.fdb, count);
        for (index, port) in state.ports.iter().enumerate() {
            if let (SourcePolicy::Pinned(macs), Ok(id)) = (&port.sources, u16::try_from(index)) {
                for vlan in port.vlan.vlans() {
                    macs.iter().for_each(|mac| _ = fdb.insert_static(vlan, *mac, PortId(id)));
                }
            }
        }
        reserve_shares(&mut fdb, &state);
        Self {
            me,
            pool: BufferPool::new(me, pool),
            slab: FrameSlab::new(buffers_everywhere),
            fdb,
            ports: state.ports.iter().map(runtime).collect(),
            ingress_waiting: ActiveSet::new(count),
            egress_waiting: ActiveSet::new(count),
            counters: WorkerCounters::new(count),
            exchange,
            state,
        }
    }

    /// The counters of this worker, for the exporter.
    pub fn counters(&self) -> Arc<WorkerCounters> {
        self.counters.clone()
    }

    /// The worker's copy of the MAC table.
    pub fn fdb(&self) -> &Fdb {
        &self.fdb
    }

    /// Frames that wait in queues.
    pub fn queued(&self) -> usize {
        self.slab.used()
    }

    /// The pool, for devices to receive into.
    pub fn pool(&mut self) -> &mut BufferPool {
        &mut self.pool
    }

    /// Lets frames out of `port`: it has a device now.
    pub fn attach(&mut self, port: PortId) {
        let runtime = &mut self.ports[port.index()];
        (runtime.attached, runtime.carrier) = (true, true);
    }

    /// The port is known to send from `mac`, as if it had done so, if it is one that is pinned to what it shows.
    pub fn show(&mut self, now: Instant, port: PortId, mac: MacAddr) {
        let state = self.state.clone();
        if state.port(port).sources != SourcePolicy::FirstSeen {
            return;
        }
        self.ports[port.index()].own.change(now, mac);
        state.port(port).vlan.for_each(|vlan| {
            if self.fdb.pin(vlan, mac, port) {
                self.tell_all(FdbEvent::Pinned { vlan, mac, port });
            }
        });
    }

    /// The link of `port` came up or went down. Down, what waits for it is dropped and what was learned behind it forgotten:
    /// when it comes up again it may be another machine's.
    pub fn set_carrier(&mut self, now: Instant, port: PortId, carrier: bool) {
        let before = std::mem::replace(&mut self.ports[port.index()].carrier, carrier);
        if before && !carrier {
            self.forget(now, port);
        }
    }

    /// The port's device is gone: its waiting frames are dropped, its first-seen and learned addresses forgotten.
    pub fn detach(&mut self, now: Instant, port: PortId) {
        self.ports[port.index()].attached = false;
        self.forget(now, port);
    }

    fn forget(&mut self, now: Instant, port: PortId) {
        self.ports[port.index()].own = OwnAddress::default();
        self.flush_queues(port);
        self.publish(now, port);
        self.fdb.flush_port(port);
        self.tell_all(FdbEvent::Flush { port });
    }

    /// Drops what a device of many ports received for a port that has gone meanwhile.
    pub fn drop_strays(&mut self, frames: &mut Vec<Frame>) {
        let is_stray = |frame: &mut Frame| !self.ports[frame.ingress.index()].attached;
        let strays: Vec<Frame> = frames.extract_if(.., is_stray).collect();
        for frame in strays {
            self.counters.flow.received.add(1);
            self.discard(frame.ingress, Direction::Ingress, frame, DropReason::PortDown);
        }
    }

    /// Takes `port` out of service for what it sent. What was learned behind it is forgotten.
    pub(crate) fn disable(&mut self, port: PortId) {
        if !std::mem::replace(&mut self.ports[port.index()].disabled, true) {
            self.counters.port(port).disabled.set(1);
            self.fdb.flush_port(port);
            self.tell_all(FdbEvent::Flush { port });
        }
    }

    /// Addresses that were found flapping since the last call, and how many more were not kept.
    pub fn take_flaps(&mut self) -> (Vec<Flap>, u64) {
        self.fdb.take_flaps()
    }

    /// Drops every frame that waits for or from `port`.
    pub fn flush_queues(&mut self, port: PortId) {
        while let Some(frame) = self.ports[port.index()].ingress.flush(&mut self.slab) {
            self.discard(port, Direction::Ingress, frame, DropReason::Flushed);
        }
        while let Some(frame) = self.ports[port.index()].egress.flush(&mut self.slab) {
            self.discard(port, Direction::Egress, frame, DropReason::Flushed);
        }
    }

    /// Takes frames, buffers and addresses that other workers sent over; how many frames.
    pub fn take_over(&mut self, now: Instant) -> usize {
        while let Some(buf) = self.exchange.returned() {
            self.pool.release(buf);
        }
        for event in std::iter::from_fn(|| self.exchange.event()).take(EVENT_BUDGET).collect::<EventBatch>() {
            self.apply(now, event);
        }
        let mut taken = 0;
        while taken < crate::port::BATCH
            && let Some((egress, frame)) = self.exchange.frame()
        {
            self.counters.flow.taken_over.add(1);
            self.enqueue(now, egress, frame);
            taken += 1;
        }
        taken
    }

    /// Publishes what is in flight; once per round.
    pub fn account(&mut self, in_devices: usize) {
        let counters = &self.counters;
        let queued = self.slab.used() + in_devices;
        counters.flow.queued.set(queued);
        counters.flow.accounting_error.set(counters.flow.imbalance(queued));
        counters.flow.buffers_outstanding.set(self.pool.outstanding());
        counters.flow.free_small.set(self.pool.free_small());
        counters.flow.free_large.set(self.pool.free_large());
    }

    /// Ages a part of the MAC table and publishes how it stands; several times a second.
    pub fn age_addresses(&mut self, now: Instant) {
        self.fdb.age(now, AGE_BUDGET);
        let (counters, totals) = (&self.counters, self.fdb.totals());
        counters.fdb.entries.set(self.fdb.len());
        counters.fdb.learned.publish(totals.learned);
        counters.fdb.aged.publish(totals.aged);
        counters.fdb.moved.publish(totals.moved);
        counters.fdb.refused_table_full.publish(totals.refused_table_full);
        counters.fdb.refused_port_limit.publish(totals.refused_port_limit);
        counters.fdb.refused_flapping.publish(totals.refused_flapping);
        counters.fdb.refused_static.publish(totals.refused_static);
    }

    /// Publishes the queues and shapers of one port.
    pub fn publish(&mut self, now: Instant, port: PortId) {
        let (runtime, row) = (&mut self.ports[port.index()], self.counters.port(port));
        runtime.ingress.publish(now, &row.direction(Direction::Ingress).shaper);
        runtime.egress.publish(now, &row.direction(Direction::Egress).shaper);
        for class in ClassId::all().take(self.state.classes.classes.len()) {
            row.class_depth_bytes[class.index()].set(runtime.egress.class_bytes(class));
        }
    }

    pub(crate) fn count_ingress(&self, frame: &Frame) {
        self.counters.direction(frame.ingress, Direction::Ingress).pass(frame, frame.destination());
    }

    /// A copy or segment that could not be made counts as dropped where it was to go.
    pub(crate) fn copy_failed(&self, port: PortId, direction: Direction, wire_frames: u64, wire_len: u64) {
        self.counters.flow.copies_failed.add(1);
        self.counters.direction(port, direction).drop(wire_frames, wire_len, DropReason::BufferQuota);
    }

    /// Free buffers of the frame's size in the pool it came from.
    pub(crate) fn free_buffers(&self, frame: &Frame) -> usize {
        let small = frame.buffer_len() == SMALL;
        match frame.home() == self.me {
            true if small => self.pool.free_small(),
            true => self.pool.free_large(),
            false => self.exchange.free_buffers(frame.home(), small),
        }
    }

    /// Gives a buffer back to its pool, at home or abroad.
    pub(crate) fn recycle(&mut self, buf: FrameBuf) {
        if buf.home() == self.me {
            self.pool.release(buf);
        } else {
            self.exchange.give_back(buf);
        }
    }

    pub(crate) fn hand_over(&mut self, owner: WorkerId, egress: PortId, frame: Frame) -> Result<(), Frame> {
        self.exchange.hand_over(owner, egress, frame)
    }

    pub(crate) fn announce(&mut self, what: Announce, frame: &Frame) {
        let (vlan, mac, port) = (frame.vlan, frame.source(), frame.ingress);
        match what {
            Announce::Nothing => {}
            Announce::Learned => self.tell_all(FdbEvent::Learned { vlan, mac, port }),
            Announce::Pinned => self.tell_all(FdbEvent::Pinned { vlan, mac, port }),
            Announce::Changed { former } => {
                self.unpin(former, port);
                self.tell_all(FdbEvent::Unpinned { mac: former, port });
                self.tell_all(FdbEvent::Pinned { vlan, mac, port });
            }
            Announce::TableFull => self.counters.port(port).table_full.add(1),
        }
    }

    fn tell_all(&mut self, event: FdbEvent) {
        let lost = self.exchange.tell_all(event);
        self.counters.fdb.events_lost.add(lost);
    }

    fn apply(&mut self, now: Instant, event: FdbEvent) {
        match event {
            FdbEvent::Learned { vlan, mac, port } => {
                self.fdb.follow(now, vlan, mac, port);
            }
            FdbEvent::Pinned { vlan, mac, port } => {
                if let Some(loser) = self.fdb.follow_pin(vlan, mac, port) {
                    let own = &mut self.ports[loser.index()].own;
                    if own.mac() == Some(mac) {
                        *own = OwnAddress::default();
                    }
                }
            }
            FdbEvent::Unpinned { mac, port } => self.unpin(mac, port),
            FdbEvent::Flush { port } => self.fdb.flush_port(port),
        }
    }

    /// Forgets a former address of `port` in each of its VLANs.
    fn unpin(&mut self, mac: MacAddr, port: PortId) {
        let Self { state, fdb, .. } = self;
        state.port(port).vlan.for_each(|vlan| _ = fdb.unpin(vlan, mac, port));
    }

    /// The ring endpoints and channels to other workers.
    pub fn exchange(&mut self) -> &mut Exchange {
        &mut self.exchange
    }
}

/// Half of the table is kept for the ports that learn, in equal shares; the rest is whose needs it first.
fn reserve_shares(fdb: &mut Fdb, state: &ForwardingState) {
    let limit = |port: &crate::state::PortState| match port.sources {
        SourcePolicy::Learn { limit, .. } => limit,
        _ if port.security.allowed.is_empty() => 0,
        _ => ALLOWED_LIMIT,
    };
    let learners = state.ports.iter().filter(|port| limit(port) > 0).count();
    let share = state.fdb.capacity / 2 / learners.max(1);
    for (id, port) in (0..).map(PortId).zip(&state.ports) {
        fdb.reserve_share(id, share.min(limit(port)));
    }
}

type EventBatch = arrayvec::ArrayVec<FdbEvent, EVENT_BUDGET>;
