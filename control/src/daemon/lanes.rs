//! The lanes of the running switch: programs and taps, made when the first port needs them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use lockgate_dataplane::id::{PortId, WorkerId};
use lockgate_dataplane::port::lane::program::{LaneAttachment, LanePortConfig, LanePrograms};
use lockgate_dataplane::port::lane::{self, LanePort, LaneSender};
use lockgate_dataplane::port::promiscuous::Promiscuous;
use lockgate_dataplane::worker::Workers;
use parking_lot::Mutex;

use super::devices::chain;
use crate::host::{LaneEdge, LaneInterfaces};

/// Every lane of the switch. Clones are the same lanes.
#[derive(Clone, Debug)]
pub struct Lanes(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    switch: String,
    programs: Option<LanePrograms>,
    lanes: BTreeMap<WorkerId, Lane>,
}

#[derive(Debug)]
struct Lane {
    sender: LaneSender,
    interfaces: LaneInterfaces,
    /// Of the plain and the tagged interface.
    indices: [u32; 2],
    _attachment: LaneAttachment,
}

impl Lanes {
    /// No lane yet, for the switch of this name.
    pub fn new(switch: &str) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            switch: switch.to_owned(),
            programs: None,
            lanes: BTreeMap::new(),
        })))
    }

    /// The device of a port, whose frames come by its worker's lane from now on; or why not.
    pub fn open(&self, port: PortId, edge: &LaneEdge, workers: &Workers) -> Result<LanePort, String> {
        let mut inner = self.0.lock();
        let state = workers.state();
        let programs = match &inner.programs {
            Some(programs) => programs.clone(),
            None => {
                let programs = LanePrograms::load(state.ports.len()).map_err(|error| chain(&error))?;
                inner.programs.insert(programs).clone()
            }
        };
        let owner = state.port(port).worker;
        let Inner { lanes, switch, .. } = &mut *inner;
        let lane = match lanes.entry(owner) {
            Entry::Occupied(lane) => lane.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(make(switch, owner, &programs, workers)?),
        };
        let [plain_lane, tagged_lane] = lane.indices;
        let config = LanePortConfig {
            port,
            interface: edge.interface.clone(),
            ifindex: edge.ifindex,
            plain_lane,
            tagged_lane,
            far_end: edge.far_mac.filter(|_| edge.far_is_apart),
        };
        let promiscuous = match edge.filters_addresses {
            true => Some(
                Promiscuous::hold(edge.ifindex)
                    .map_err(|error| format!("cannot make {} promiscuous: {error}", edge.interface))?,
            ),
            false => None,
        };
        let attachment = programs.attach_port(&config).map_err(|error| chain(&error))?;
        Ok(LanePort::new(port, edge.mtu, lane.sender.clone(), attachment, promiscuous))
    }

    /// The interfaces of each worker's lane.
    pub fn interfaces(&self) -> Vec<(WorkerId, LaneInterfaces)> {
        self.0.lock().lanes.iter().map(|(worker, lane)| (*worker, lane.interfaces.clone())).collect()
    }

    /// Frames by what the programs did with them.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let programs = self.0.lock().programs.clone();
        programs.map_or_else(Vec::new, |programs| programs.counters())
    }

    /// Removes the lanes. Their ports must be detached.
    pub fn close(&self) {
        let mut inner = self.0.lock();
        inner.lanes.clear();
        inner.programs = None;
    }
}

fn make(switch: &str, owner: WorkerId, programs: &LanePrograms, workers: &Workers) -> Result<Lane, String> {
    let interfaces = LaneInterfaces::new(switch, owner);
    let ports = u16::try_from(workers.state().ports.len()).unwrap_or(u16::MAX);
    let (receiver, sender) =
        lane::create(&interfaces.plain, &interfaces.tagged, ports).map_err(|error| chain(&error))?;
    let indices = interfaces.bring_up().map_err(|error| chain(&error))?;
    let attachment = programs.attach_lane(&interfaces.plain).map_err(|error| chain(&error))?;
    workers.attach_lane(owner, Box::new(receiver)).map_err(|error| chain(&error))?;
    tracing::info!(worker = owner.0, plain = interfaces.plain, tagged = interfaces.tagged, "made a lane");
    Ok(Lane { sender, interfaces, indices, _attachment: attachment })
}
