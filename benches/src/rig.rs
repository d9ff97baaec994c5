//! Whole switches over replaying devices: every worker's engine, driven by one thread at instants that the caller makes
//! up. They allocate nothing once they run.

use std::sync::Arc;

use lockgate_dataplane::buffer::PoolSize;
use lockgate_dataplane::counters::WorkerCounters;
use lockgate_dataplane::engine::Engine;
use lockgate_dataplane::exchange::Exchange;
use lockgate_dataplane::frame::mac::MacAddr;
use lockgate_dataplane::frame::vlan::VlanId;
use lockgate_dataplane::id::{GroupId, PortId, WorkerId};
use lockgate_dataplane::state::security::Security;
use lockgate_dataplane::state::{ForwardingState, PortState, Shaping, SourcePolicy, VlanMode};
use lockgate_dataplane::switch::Switch;
use lockgate_dataplane::time::{Instant, Nanos};
use lockgate_dataplane::units::{BitsPerSecond, Bytes};

use crate::replay::{Controls, ReplayDevice, Template};

/// A switch and the controls of its ports' devices.
pub struct ReplayRig {
    engines: Vec<Engine>,
    counters: Vec<Arc<WorkerCounters>>,
    controls: Vec<Arc<Controls>>,
    now: Instant,
}

impl ReplayRig {
    /// A switch with as many workers as `state` names, each with a pool of this size, whose ports play these templates,
    /// `per_call` frames in each round.
    pub fn new(
        state: ForwardingState,
        pool: PoolSize,
        templates: Vec<Vec<Template>>,
        per_call: usize,
    ) -> Self {
        let state = Arc::new(state);
        let workers = state.ports.iter().map(|port| port.worker.index() + 1).max().unwrap_or(1);
        let everywhere = workers * (pool.small + pool.large);
        let exchanges = Exchange::connect(&vec![pool; workers]);
        let mut switches: Vec<Switch> = (0..)
            .map(WorkerId)
            .zip(exchanges)
            .map(|(me, exchange)| Switch::new(Instant::ZERO, me, state.clone(), pool, everywhere, exchange))
            .collect();
        let counters: Vec<_> = switches.iter().map(Switch::counters).collect();
        switches.iter_mut().for_each(|switch| switch.exchange().watch(&counters));
        let mut engines: Vec<Engine> = switches.into_iter().map(Engine::new).collect();
        let mut controls = Vec::new();
        for ((port, templates), settings) in (0..).map(PortId).zip(templates).zip(&state.ports) {
            let (device, control) = ReplayDevice::new(port, templates, per_call);
            engines[settings.worker.index()].attach(Instant::ZERO, port, Box::new(device));
            controls.push(control);
        }
        Self { engines, counters, controls, now: Instant::ZERO }
    }

    /// One round of every worker, `after` the last one.
    pub fn round(&mut self, after: Nanos) {
        self.now += after;
        for engine in &mut self.engines {
            engine.round(self.now);
        }
    }

    /// The device's controls of `port`.
    pub fn controls(&self, port: PortId) -> &Controls {
        &self.controls[port.index()]
    }

    /// The counters of each worker.
    pub fn counters(&self) -> &[Arc<WorkerCounters>] {
        &self.counters
    }

    /// Takes the device of `port` away.
    pub fn detach(&mut self, port: PortId) {
        for engine in &mut self.engines {
            drop(engine.detach(self.now, port));
        }
    }

    /// Stops the switch; buffers that did not come home.
    pub fn drain(&mut self) -> usize {
        self.engines.iter_mut().for_each(|engine| drop(engine.drain(self.now)));
        (0..3).for_each(|_| self.round(Nanos::ZERO));
        self.engines.iter_mut().map(|engine| engine.switch_mut().pool().outstanding()).sum()
    }
}

/// The address of the station behind port `number`.
pub fn station(number: u16) -> MacAddr {
    let [high, low] = number.to_be_bytes();
    MacAddr([0x52, 0x54, 0, 0, high, low])
}

/// An access port of VLAN 10 that sends from the address [`station`] gives it, unshaped, of worker 0.
pub fn workload_port(number: u16) -> PortState {
    PortState {
        group: GroupId(0),
        worker: WorkerId(0),
        vlan: VlanMode::Access(VlanId::try_from(10).expect("10 is a VLAN")),
        isolated: false,
        sources: SourcePolicy::Pinned(Box::new([station(number)])),
        security: Security::default(),
        takes_unknown_unicast: false,
        ingress: None,
        egress: None,
    }
}

/// A rate of this many bit/s with a burst of one second's fraction that holds ten full frames.
///
/// # Panics
/// If the rate is not one that a shaper takes.
pub fn shaping(bits_per_second: u64) -> Shaping {
    Shaping {
        average: BitsPerSecond::new(bits_per_second).expect("a rate within the bounds"),
        peak: None,
        burst: Bytes::new(15_180),
        max_delay: Nanos::from_millis(20),
        overhead: Bytes::new(0),
    }
}
