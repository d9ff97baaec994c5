//! The MAC table (forwarding database, IEEE 802.1Q-2018 clause 8.8): which port an address of a VLAN is behind.
//!
//! Static entries come from the topology, or from a port that its first source address is pinned to. They never move
//! and never age, and do not count as learned. Learned entries come from source addresses; they follow an address that
//! moves, and are removed when it was not seen for the table's age. When a port goes down it loses what was learned and
//! what was pinned, but not what the topology says.
//!
//! Each worker has a table of its own and tells the others what it learned. [`Learned`] says when that is worth it: for
//! a new or moved entry, and for one whose last announcement is older than a quarter of the age, so that the others'
//! copies stay alive without an event per frame. An entry that fell silent can therefore age up to a quarter of the age
//! earlier in the copies than where it was learned.
//!
//! **Bounds.** Learned entries are bounded for the table and, by the caller's limit, for each port. Half of the table is
//! [`shares`] of the ports that learn: what a port has of its share is kept free for it, so that one port's flood of
//! invented addresses can neither push out another's nor keep it from learning. A full table refuses, it does not evict,
//! and frames pass all the same. Lookup and learning take constant time on average and never allocate: the map has room for twice its
//! entries, so that removed ones cannot make it grow. It hashes with a random seed, since senders choose the keys.
//! Ageing looks at as many entries per call as the caller grants.
//!
//! **Invariants**, checked by `invariants`: the map finds each entry at its place and finds nothing else; the numbers
//! of learned entries per port add up.

mod entry;
pub mod flap;
mod shares;

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::frame::mac::MacAddr;
use crate::frame::vlan::VlanId;
use crate::id::PortId;
use crate::state::FdbSettings;
use crate::time::{Instant, Nanos};

pub use entry::FdbRow;
use entry::{Entry, Key, Origin};
use flap::{Flap, FlapLog, Moves};
use shares::Shares;

/// The MAC table of one worker.
#[derive(Debug)]
pub struct Fdb {
    settings: FdbSettings,
    /// Where in `entries` a key is.
    places: HashMap<Key, usize, RandomState>,
    /// Without gaps: a removed entry's place is taken by the last.
    entries: Vec<Entry>,
    /// Learned entries of each port.
    learned: Shares,
    flaps: FlapLog,
    statics: usize,
    /// Where ageing looks next.
    cursor: usize,
    totals: FdbTotals,
    /// What `invariants` counts in: a check must not allocate where the code that it checks may not.
    #[cfg(debug_assertions)]
    counted: Vec<usize>,
}

/// What became of a source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// The address was not known.
    New,
    /// The address is known at this port, learned or static.
    Refreshed {
        /// The other workers should hear of it again. The next answers take it that they did.
        announce: bool,
    },
    /// The address was learned at another port and is now at this one.
    Moved {
        /// Where it was.
        from: PortId,
    },
    /// Refused: the address is static at this other port.
    StaticElsewhere(PortId),
    /// Refused: the table holds as many learned entries as it may.
    TableFull,
    /// Refused: the port holds as many learned entries as it may.
    PortLimit,
    /// Refused: the address goes back and forth and stays where it is for the moment.
    Flapping,
}

/// Totals since the table was made, whether an address came in a frame or from another worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FdbTotals {
    /// Entries learned.
    pub learned: u64,
    /// Learned entries removed because they were not used for the table's age.
    pub aged: u64,
    /// Learned entries that went to another port.
    pub moved: u64,
    /// Learned entries removed with their port.
    pub flushed: u64,
    /// Addresses refused because they are static at another port.
    pub refused_static: u64,
    /// Addresses refused because the table was full.
    pub refused_table_full: u64,
    /// Addresses refused because the port was at its limit.
    pub refused_port_limit: u64,
    /// Moves refused because the address had moved too often in the last second.
    pub refused_flapping: u64,
}

impl Fdb {
    /// An empty table for ports 0 to `ports - 1`, with room for its learned entries and a static one per port.
    pub fn new(settings: FdbSettings, ports: usize) -> Self {
        let mut fdb = Self {
            settings,
            places: HashMap::default(),
            entries: Vec::new(),
            learned: Shares::new(ports),
            flaps: FlapLog::default(),
            statics: 0,
            cursor: 0,
            totals: FdbTotals::default(),
            #[cfg(debug_assertions)]
            counted: vec![0; ports],
        };
        fdb.reserve(ports);
        fdb
    }

    /// The port behind which `mac` is in `vlan`.
    pub fn lookup(&self, vlan: VlanId, mac: MacAddr) -> Option<PortId> {
        self.places.get(&Key::new(vlan, mac)).map(|&place| self.entries[place].port)
    }

    /// Notes that `mac` was seen as a source in `vlan` at `port`, which may hold `limit` learned entries. It must be a
    /// station's address.
    ///
    /// # Panics
    /// If the table was not made for `port`.
    pub fn learn(&mut self, now: Instant, vlan: VlanId, mac: MacAddr, port: PortId, limit: usize) -> Learned {
        self.learn_from(now, vlan, mac, port, Some(limit))
    }

    /// Notes what another worker learned. It has applied the port's limit and judged whether the address flaps.
    ///
    /// # Panics
    /// If the table was not made for `port`.
    pub fn follow(&mut self, now: Instant, vlan: VlanId, mac: MacAddr, port: PortId) {
        self.learn_from(now, vlan, mac, port, None);
    }

    fn learn_from(
        &mut self,
        now: Instant,
        vlan: VlanId,
        mac: MacAddr,
        port: PortId,
        own_limit: Option<usize>,
    ) -> Learned {
        let limit = own_limit.unwrap_or(usize::MAX);
        debug_assert!(mac.is_station(), "{mac} cannot be a source");
        let Some(&place) = self.places.get(&Key::new(vlan, mac)) else {
            return self.learn_new(now, vlan, mac, port, limit);
        };
        let announce_after = Nanos::new(self.settings.age.get() / 4);
        let entry = &mut self.entries[place];
        let from = entry.port;
        match &mut entry.origin {
            Origin::Configured | Origin::Pinned if from == port => Learned::Refreshed { announce: false },
            Origin::Configured | Origin::Pinned => {
                self.totals.refused_static += 1;
                Learned::StaticElsewhere(from)
            }
            Origin::Learned { last_used, announced, .. } if from == port => {
                *last_used = now;
                let announce = now.saturating_since(*announced) > announce_after;
                if announce {
                    *announced = now;
                }
                Learned::Refreshed { announce }
            }
            Origin::Learned { .. } if self.learned.of(port) >= limit => {
                self.totals.refused_port_limit += 1;
                Learned::PortLimit
            }
            Origin::Learned { moves, .. } if !moves.may_move(now) && own_limit.is_some() => {
                self.totals.refused_flapping += 1;
                self.flaps.note(Flap { vlan, mac, at: from, also_at: port });
                Learned::Flapping
            }
            Origin::Learned { last_used, announced, moves } => {
                moves.note(now);
                (*last_used, *announced, entry.port) = (now, now, port);
                self.learned.remove(from);
                self.learned.add(port);
                self.totals.moved += 1;
                Learned::Moved { from }
            }
        }
    }

    /// Enters an address of `port` that the topology names, in place of a learned entry. `false` if it is static at
    /// another port, where it stays.
    pub fn insert_static(&mut self, vlan: VlanId, mac: MacAddr, port: PortId) -> bool {
        self.insert_fixed(Entry { vlan, mac, port, origin: Origin::Configured })
    }

    /// Enters the first source address of `port` as static until [`Self::flush_port`]. `false` if it is another port's,
    /// learned or static: whoever comes later does not take it over.
    pub fn pin(&mut self, vlan: VlanId, mac: MacAddr, port: PortId) -> bool {
        let known = self.places.get(&Key::new(vlan, mac)).map(|&place| self.entries[place]);
        if known.is_some_and(|entry| entry.port != port) {
            return false;
        }
        self.insert_fixed(Entry { vlan, mac, port, origin: Origin::Pinned })
    }

    /// Enters a pinned source that another worker saw at `port`, in place of a learned one. If two workers pinned the same
    /// address at the same time, the port with the lower number has it, which every worker finds out for itself; the port
    /// that lost it, if it was another.
    pub fn follow_pin(&mut self, vlan: VlanId, mac: MacAddr, port: PortId) -> Option<PortId> {
        let entry = Entry { vlan, mac, port, origin: Origin::Pinned };
        let Some(&place) = self.places.get(&Key::of(&entry)) else {
            self.insert_fixed(entry);
            return None;
        };
        let present = self.entries[place];
        match present.origin {
            Origin::Pinned if port < present.port => {
                self.entries[place].port = port;
                Some(present.port)
            }
            Origin::Pinned | Origin::Configured => None,
            Origin::Learned { .. } => {
                self.insert_fixed(entry);
                None
            }
        }
    }

    /// Removes the pinned entry of `mac` at `port`: the port has another address now. Whether there was one.
    pub fn unpin(&mut self, vlan: VlanId, mac: MacAddr, port: PortId) -> bool {
        let place = self.places.get(&Key::new(vlan, mac)).copied();
        let is_its = |place: &usize| {
            let entry = self.entries[*place];
            entry.port == port && entry.origin == Origin::Pinned
        };
        place.filter(is_its).map(|place| self.remove(place)).is_some()
    }

    /// Keeps room for `entries` learned entries of `port` that nobody else may take.
    ///
    /// # Panics
    /// If the table was not made for `port`.
    pub fn reserve_share(&mut self, port: PortId, entries: usize) {
        self.learned.reserve(port, entries);
    }

    /// Addresses that were found flapping since the last call, and how many more were not kept.
    pub fn take_flaps(&mut self) -> (Vec<Flap>, u64) {
        self.flaps.take()
    }

    /// Removes the learned and pinned entries of `port`, because it went down. Looks at the whole table.
    pub fn flush_port(&mut self, port: PortId) {
        // Backwards, so that the entry that takes a removed one's place was already looked at.
        for place in (0..self.entries.len()).rev() {
            let entry = self.entries[place];
            if entry.port == port && entry.origin != Origin::Configured {
                self.remove(place);
                self.totals.flushed += u64::from(entry.origin.is_learned());
            }
        }
        self.check();
    }

    /// Removes entries not used for the table's age and returns how many went. Looks at the next `budget` entries, or
    /// fewer at the end of the table; the call after that starts over. So an entry goes at the latest in the second
    /// pass after its time.
    pub fn age(&mut self, now: Instant, budget: usize) -> usize {
        let mut aged = 0;
        for _ in 0..budget.min(self.entries.len().saturating_sub(self.cursor)) {
            match self.entries[self.cursor].origin {
                Origin::Learned { last_used, .. } if now.saturating_since(last_used) >= self.settings.age => {
                    self.remove(self.cursor);
                    aged += 1;
                }
                _ => self.cursor += 1,
            }
        }
        if self.cursor >= self.entries.len() {
            self.cursor = 0;
        }
        if aged > 0 {
            self.totals.aged += aged as u64;
            self.check();
        }
        aged
    }

    /// Every entry, in no order.
    pub fn rows(&self, now: Instant) -> Vec<FdbRow> {
        self.entries.iter().map(|entry| entry.row(now)).collect()
    }

    /// Entries, static ones included.
    #[expect(clippy::len_without_is_empty, reason = "a gauge; nobody asks whether it is zero")]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Learned entries of `port`.
    ///
    /// # Panics
    /// If the table was not made for `port`.
    pub fn learned_at(&self, port: PortId) -> usize {
        self.learned.of(port)
    }

    /// Totals since the table was made.
    pub fn totals(&self) -> FdbTotals {
        self.totals
    }

    fn learn_new(&mut self, now: Instant, vlan: VlanId, mac: MacAddr, port: PortId, limit: usize) -> Learned {
        // The port's own limit first: a port that floods the table should be told that it is the one.
        if self.learned.of(port) >= limit {
            self.totals.refused_port_limit += 1;
            return Learned::PortLimit;
        }
        if !self.learned.has_room(port, self.settings.capacity) {
            self.totals.refused_table_full += 1;
            return Learned::TableFull;
        }
        let origin = Origin::Learned { last_used: now, announced: now, moves: Moves::default() };
        self.insert(Entry { vlan, mac, port, origin });
        self.totals.learned += 1;
        Learned::New
    }

    fn insert_fixed(&mut self, entry: Entry) -> bool {
        if let Some(&place) = self.places.get(&Key::of(&entry)) {
            let present = self.entries[place];
            if !present.origin.is_learned() {
                return present.port == entry.port;
            }
            self.remove(place);
        }
        self.reserve(self.statics + 1);
        self.insert(entry);
        self.check();
        true
    }

    fn insert(&mut self, entry: Entry) {
        self.places.insert(Key::of(&entry), self.entries.len());
        self.entries.push(entry);
        match entry.origin.is_learned() {
            true => self.learned.add(entry.port),
            false => self.statics += 1,
        }
    }

    /// Removes the entry at `place`, which the last entry takes.
    fn remove(&mut self, place: usize) {
        let entry = self.entries.swap_remove(place);
        self.places.remove(&Key::of(&entry));
        if let Some(moved) = self.entries.get(place) {
            self.places.insert(Key::of(moved), place);
        }
        match entry.origin.is_learned() {
            true => self.learned.remove(entry.port),
            false => self.statics -= 1,
        }
    }

    /// Makes room for every entry there can be with `statics` static ones, and in the map for as many removed ones,
    /// which take room until it tidies up in place.
    fn reserve(&mut self, statics: usize) {
        let entries = self.settings.capacity + statics + 1;
        self.entries.reserve(entries.saturating_sub(self.entries.len()));
        self.places.reserve((2 * entries).saturating_sub(self.places.len()));
    }

    fn check(&mut self) {
        #[cfg(debug_assertions)]
        self.invariants();
    }

    /// Panics if the table contradicts itself. Looks at the whole table.
    #[cfg(debug_assertions)]
    fn invariants(&mut self) {
        assert_eq!(self.places.len(), self.entries.len(), "one place per entry");
        let learned = &mut self.counted;
        learned.fill(0);
        for (place, entry) in self.entries.iter().enumerate() {
            assert_eq!(self.places.get(&Key::of(entry)), Some(&place), "{entry:?}");
            learned[entry.port.index()] += usize::from(entry.origin.is_learned());
        }
        self.learned.assert_counts(learned);
        assert_eq!(self.learned.all() + self.statics, self.entries.len(), "learned and static are all");
    }
}

#[cfg(test)]
mod tests;
