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

    /// The ports in their present order.
    pub fn iter(&self) -> impl Iterator<Item = PortId> + '_ {
        self.list.iter().copied()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_in_once_however_often_it_is_inserted() {
        let mut set = ActiveSet::new(3);
        assert!(set.is_empty());
        [2, 0, 2, 0].into_iter().for_each(|port| set.insert(PortId(port)));
        assert_eq!([set.nth(0), set.nth(1), set.nth(2)], [Some(PortId(2)), Some(PortId(0)), None]);
        set.remove(PortId(2));
        set.remove(PortId(2));
        assert!(!set.contains(PortId(2)) && set.contains(PortId(0)));
    }

    #[test]
    fn a_walk_that_removes_sees_every_port() {
        let mut set = ActiveSet::new(10);
        (0..10).for_each(|port| set.insert(PortId(port)));
        let (mut at, mut seen) = (0, Vec::new());
        while let Some(port) = set.nth(at) {
            seen.push(port.0);
            if port.0 % 2 == 0 { set.remove(port) } else { at += 1 }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
        assert_eq!(at, 5, "the odd ones are left");
    }
}
