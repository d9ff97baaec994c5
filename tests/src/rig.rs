//! The real switch over memory ports: every worker's engine, driven in turn by one thread, at instants the test makes up.

use std::sync::Arc;

use lockgate_dataplane::buffer::PoolSize;
use lockgate_dataplane::counters::{Cast, FlowCounters, PortCounters, WorkerCounters};
use lockgate_dataplane::engine::Engine;
use lockgate_dataplane::exchange::Exchange;
use lockgate_dataplane::frame::vlan::VlanId;
use lockgate_dataplane::id::{Direction, GroupId, PortId, WorkerId};
use lockgate_dataplane::port::memory::{MemoryPeer, Packet, memory_port};
use lockgate_dataplane::state::security::Security;
use lockgate_dataplane::state::{BeyondLimit, ForwardingState, PortState, SourcePolicy, VlanMode};
use lockgate_dataplane::switch::Switch;
use lockgate_dataplane::time::Instant;
use lockgate_dataplane::verdict::DropReason;

/// Rounds without a moved frame after which nothing will move until time goes on: what the last worker sent to the first
/// is taken over in the next round, and the buffer comes home in the one after that.
const QUIET_ROUNDS: usize = 3;

/// The switch and the far ends of its ports.
pub struct Rig {
    engines: Vec<Engine>,
    counters: Vec<Arc<WorkerCounters>>,
    peers: Vec<MemoryPeer>,
    state: Arc<ForwardingState>,
    mtu: u32,
    /// Of the latest round.
    now: Instant,
}

impl Rig {
    /// As many workers as `state` names, each with a pool of this size, and a device of this MTU at every port.
    pub fn new(state: ForwardingState, pool: PoolSize, mtu: u32) -> Self {
        let state = Arc::new(state);
        let workers = state.ports.iter().map(|port| port.worker.index() + 1).max().unwrap_or(1);
        let pools = vec![pool; workers];
        let everywhere = workers * (pool.small + pool.large);
        let mut switches: Vec<Switch> = (0..)
            .map(WorkerId)
            .zip(Exchange::connect(&pools))
            .map(|(me, exchange)| Switch::new(Instant::ZERO, me, state.clone(), pool, everywhere, exchange))
            .collect();
        let counters: Vec<_> = switches.iter().map(Switch::counters).collect();
        switches.iter_mut().for_each(|switch| switch.exchange().watch(&counters));
        let engines = switches.into_iter().map(Engine::new).collect();
        let peers = ids(&state).map(|port| memory_port(port, mtu).1).collect();
        let mut rig = Self { engines, counters, peers, state, mtu, now: Instant::ZERO };
        ids(&rig.state.clone()).for_each(|port| rig.attach(port));
        // As threads do, every worker turns before the first frame arrives.
        rig.rounds(Instant::ZERO, 1);
        rig
    }

    /// Gives `port` a device; what is on the wire of the old one is lost.
    pub fn attach(&mut self, port: PortId) {
        let (device, peer) = memory_port(port, self.mtu);
        self.peers[port.index()] = peer;
        let now = self.now;
        self.engine_of(port).attach(now, port, Box::new(device));
    }

    /// Takes the device of `port` away.
    pub fn detach(&mut self, port: PortId) {
        let now = self.now;
        drop(self.engine_of(port).detach(now, port));
    }

    /// The far end of `port`.
    pub fn peer(&self, port: PortId) -> &MemoryPeer {
        &self.peers[port.index()]
    }

    /// Sends a finished frame into the switch.
    pub fn send(&self, port: PortId, bytes: impl Into<Vec<u8>>) {
        self.peer(port).send(Packet::plain(bytes));
    }

    /// Everything the switch sent to `port` since the last call.
    pub fn take_all(&self, port: PortId) -> Vec<Packet> {
        std::iter::from_fn(|| self.peer(port).take()).collect()
    }

    /// One round of every worker; whether any frame moved.
    ///
    /// # Panics
    /// If a frame is unaccounted for after it.
    pub fn round(&mut self, now: Instant) -> bool {
        let mut moved = false;
        for worker in 0..self.engines.len() {
            moved |= self.round_of(worker, now);
        }
        moved
    }

    /// One round of one worker.
    ///
    /// # Panics
    /// As [`Self::round`].
    pub fn round_of(&mut self, worker: usize, now: Instant) -> bool {
        self.now = now;
        let moved = self.engines[worker].round(now);
        let error = self.counters[worker].flow.accounting_error.value();
        assert_eq!(error, 0, "frames unaccounted for at worker {worker}");
        moved
    }

    /// Rounds at the same instant, whether frames move or not.
    pub fn rounds(&mut self, now: Instant, count: usize) {
        for _ in 0..count {
            self.round(now);
        }
    }

    /// Rounds until nothing moves any more at this instant.
    pub fn settle(&mut self, now: Instant) {
        let quiet_rounds = if self.engines.len() == 1 { 1 } else { QUIET_ROUNDS };
        let mut quiet = 0;
        while quiet < quiet_rounds {
            quiet = if self.round(now) { 0 } else { quiet + 1 };
        }
    }

    /// When the next round is due although nothing arrives.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.engines.iter().filter_map(Engine::next_deadline).min()
    }

    /// Detaches every port, drops what waits and lets every buffer go home; how many did not.
    pub fn drain(&mut self, now: Instant) -> usize {
        self.engines.iter_mut().for_each(|engine| drop(engine.drain(now)));
        self.settle(now);
        self.engines.iter_mut().map(|engine| engine.switch_mut().pool().outstanding()).sum()
    }

    /// The engine of a worker.
    pub fn engine(&mut self, worker: usize) -> &mut Engine {
        &mut self.engines[worker]
    }

    /// What the workers read.
    pub fn state(&self) -> &ForwardingState {
        &self.state
    }

    /// A sum over all workers of something about `port`.
    pub fn total(&self, port: PortId, value: impl Fn(&PortCounters) -> u64) -> u64 {
        self.counters.iter().map(|counters| value(counters.port(port))).sum()
    }

    /// A sum over all workers of one of their totals.
    pub fn flow(&self, value: impl Fn(&FlowCounters) -> u64) -> u64 {
        self.counters.iter().map(|counters| value(&counters.flow)).sum()
    }

    /// Frames of `port` dropped for `reason`.
    pub fn drops(&self, port: PortId, direction: Direction, reason: DropReason) -> u64 {
        self.total(port, |counters| counters.direction(direction).drops(reason))
    }

    /// Frames of `port` dropped for any reason.
    pub fn all_drops(&self, port: PortId, direction: Direction) -> u64 {
        DropReason::ALL.iter().map(|reason| self.drops(port, direction, *reason)).sum()
    }

    /// Frames of `port` that passed.
    pub fn passed(&self, port: PortId, direction: Direction) -> u64 {
        self.total(port, |counters| {
            Cast::ALL.map(|cast| counters.direction(direction).frames(cast)).iter().sum()
        })
    }

    /// Stops the switch and adds up the workers' totals; `left` frames were seen to leave.
    ///
    /// # Panics
    /// If they do not add up, or a buffer did not come home.
    pub fn stop_and_add_up(&mut self, now: Instant, left: u64) {
        assert_eq!(self.drain(now), 0, "buffers that did not come home");
        let [received, copied, replaced, sent, dropped, handed_over, taken_over] = [
            self.flow(|flow| flow.received.total()),
            self.flow(|flow| flow.copied.total()),
            self.flow(|flow| flow.replaced.total()),
            self.flow(|flow| flow.sent.total()),
            self.flow(|flow| flow.dropped.total()),
            self.flow(|flow| flow.handed_over.total()),
            self.flow(|flow| flow.taken_over.total()),
        ];
        assert_eq!(received + copied, replaced + sent + dropped, "in = out + drops");
        assert_eq!(handed_over, taken_over, "what one worker hands over another takes");
        assert_eq!(sent, left, "sent frames come out");
    }

    /// Adds up the counters of the ports. They count frames of the wire, so this holds only if no super-frame came in.
    ///
    /// # Panics
    /// If they do not agree with the workers' totals.
    pub fn add_up_ports(&self) {
        let ports: Vec<PortId> = ids(&self.state).collect();
        let sum = |value: &dyn Fn(PortId) -> u64| ports.iter().map(|port| value(*port)).sum::<u64>();
        let [received, copied, copies_failed, sent, dropped] = [
            self.flow(|flow| flow.received.total()),
            self.flow(|flow| flow.copied.total()),
            self.flow(|flow| flow.copies_failed.total()),
            self.flow(|flow| flow.sent.total()),
            self.flow(|flow| flow.dropped.total()),
        ];
        let [entered, refused] = [
            sum(&|port| self.passed(port, Direction::Ingress)),
            sum(&|port| self.all_drops(port, Direction::Ingress)),
        ];
        let [delivered, lost] = [
            sum(&|port| self.passed(port, Direction::Egress)),
            sum(&|port| self.all_drops(port, Direction::Egress)),
        ];
        assert_eq!(entered + refused, received, "every frame counts once at the port it came in by");
        assert_eq!(delivered + lost, entered + copied + copies_failed, "and once at each port it was for");
        assert_eq!(delivered, sent);
        assert_eq!(refused + lost, dropped + copies_failed);
    }

    fn engine_of(&mut self, port: PortId) -> &mut Engine {
        &mut self.engines[self.state.port(port).worker.index()]
    }
}

/// Every port of `state`.
pub fn ids(state: &ForwardingState) -> impl Iterator<Item = PortId> + use<> {
    (0..).map(PortId).take(state.ports.len())
}

/// A port as tests like to start from: untagged in VLAN 1, learning without a limit that matters, takes unknown unicast,
/// unshaped, of worker 0.
pub fn open_port() -> PortState {
    PortState {
        group: GroupId(0),
        worker: WorkerId(0),
        vlan: VlanMode::Access(VlanId::UNTAGGED),
        isolated: false,
        sources: SourcePolicy::Learn { limit: 1000, beyond: BeyondLimit::Drop },
        security: Security::default(),
        takes_unknown_unicast: true,
        ingress: None,
        egress: None,
    }
}
