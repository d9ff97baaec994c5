//! How many entries each port has learned, and how many it may be sure of.

use crate::id::PortId;

/// Learned entries by port, and the room that is kept for each.
#[derive(Debug)]
pub(super) struct Shares {
    ports: Vec<Share>,
    /// Learned entries of all ports.
    all: usize,
    /// What ports have not used of what is kept for them, added up.
    kept: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    learned: usize,
    reserved: usize,
}

impl Share {
    fn unused(self) -> usize {
        self.reserved.saturating_sub(self.learned)
    }
}

impl Shares {
    pub(super) fn new(ports: usize) -> Self {
        Self { ports: vec![Share::default(); ports], all: 0, kept: 0 }
    }

    pub(super) fn reserve(&mut self, port: PortId, entries: usize) {
        self.change(port, |share| share.reserved = entries);
    }

    pub(super) fn add(&mut self, port: PortId) {
        self.all += 1;
        self.change(port, |share| share.learned += 1);
    }

    pub(super) fn remove(&mut self, port: PortId) {
        self.all -= 1;
        self.change(port, |share| share.learned -= 1);
    }

    /// Whether `port` may learn one more in a table for `capacity` entries without taking what is kept for another.
    pub(super) fn has_room(&self, port: PortId, capacity: usize) -> bool {
        let kept_for_others = self.kept - self.ports[port.index()].unused();
        // What is kept for a port that gained entries by moves may be more than is left.
        let has_own = self.ports[port.index()].unused() > 0;
        self.all < capacity && (has_own || self.all + kept_for_others < capacity)
    }

    pub(super) fn of(&self, port: PortId) -> usize {
        self.ports[port.index()].learned
    }

    pub(super) fn all(&self) -> usize {
        self.all
    }

    fn change(&mut self, port: PortId, change: impl FnOnce(&mut Share)) {
        let share = &mut self.ports[port.index()];
        self.kept -= share.unused();
        change(share);
        self.kept += share.unused();
    }
}

#[cfg(debug_assertions)]
impl Shares {
    /// Panics if these are not the learned entries that were `counted` by port.
    pub(super) fn assert_counts(&self, counted: &[usize]) {
        assert!(self.ports.iter().map(|share| share.learned).eq(counted.iter().copied()), "learned per port");
        assert_eq!(self.all, counted.iter().sum::<usize>(), "learned entries");
        assert_eq!(self.kept, self.ports.iter().map(|share| share.unused()).sum::<usize>(), "kept for ports");
    }
}
