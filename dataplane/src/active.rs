//! A set of ports that need attention, so that a round costs what the busy ports cost, not what all ports cost.

use crate::id::PortId;

/// Ports in the order they were inserted, each once.
#[derive(Debug)]
pub struct ActiveSet {
    member: Box<[bool]>,
    list: Vec<PortId>,
}

impl ActiveSet {
    /// An empty set over `ports` ports.
    pub fn new(ports: usize) -> Self {
        Self { member: vec![false; ports].into(), list: Vec::with_capacity(ports) }
    }

    /// Adds a port, if it is not in yet.
    pub fn insert(&mut self, port: PortId) {
        if !std::mem::replace(&mut self.member[port.index()], true) {
            self.list.push(port);
        }
    }

    /// Removes a port; the order of the others may change.
    pub fn remove(&mut self, port: PortId) {
        if std::mem::replace(&mut self.member[port.index()], false)
            && let Some(at) = self.list.iter().position(|other| *other == port)
        {
            self.list.swap_remove(at);
        }
    }

    /// The port at `index` of the present order, for walking while removing.
    pub fn nth(&self, index: usize) -> Option<PortId> {
        self.list.get(index).copied()
    }

    /// Whether `port` is in.
    pub fn contains(&self, port: PortId) -> bool {
        self.member[port.index()]
    }

    /// Whether no port is in.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
