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
//! **Bounds.** Learned entries are bounded for the table and, by the caller's limit, for each port, so that one port's
//! flood of invented addresses cannot push out another's: a full table refuses, it does not evict, and frames pass all
//! the same. Lookup and learning take constant time on average and never allocate: the map has room for twice its
//! entries, so that removed ones cannot make it grow. It hashes with a random seed, since senders choose the keys.
//! Ageing looks at as many entries per call as the caller grants.
//!
//! **Invariants**, checked by `invariants`: the map finds each entry at its place and finds nothing else; the numbers
//! of learned entries per port add up.

mod entry;

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::frame::mac::MacAddr;
use crate::frame::vlan::VlanId;
use crate::id::PortId;
use crate::state::FdbSettings;
use crate::time::{Instant, Nanos};

pub use entry::FdbRow;
use entry::{Entry, Key, Origin};

/// The MAC table of one worker.
#[derive(Debug)]
pub struct Fdb {
    settings: FdbSettings,
    /// Where in `entries` a key is.
    places: HashMap<Key, usize, RandomState>,
    /// Without gaps: a removed entry's place is taken by the last.
    entries: Vec<Entry>,
    /// Learned entries of each port.
    learned: Vec<usize>,
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
}

impl Fdb {
    /// An empty table for ports 0 to `ports - 1`, with room for its learned entries and a static one per port.
    pub fn new(settings: FdbSettings, ports: usize) -> Self {
        let mut fdb = Self {
            settings,
            places: HashMap::default(),
            entries: Vec::new(),
            learned: vec![0; ports],
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
            Origin::Learned { last_used, announced } if from == port => {
                *last_used = now;
                let announce = now.saturating_since(*announced) > announce_after;
                if announce {
                    *announced = now;
                }
                Learned::Refreshed { announce }
            }
            Origin::Learned { .. } if self.learned[port.index()] >= limit => {
                self.totals.refused_port_limit += 1;
                Learned::PortLimit
            }
            Origin::Learned { last_used, announced } => {
                (*last_used, *announced, entry.port) = (now, now, port);
                self.learned[from.index()] -= 1;
                self.learned[port.index()] += 1;
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
        self.learned[port.index()]
    }

    /// Totals since the table was made.
    pub fn totals(&self) -> FdbTotals {
        self.totals
    }

    fn learn_new(&mut self, now: Instant, vlan: VlanId, mac: MacAddr, port: PortId, limit: usize) -> Learned {
        // The port's own limit first: a port that floods the table should be told that it is the one.
        if self.learned[port.index()] >= limit {
            self.totals.refused_port_limit += 1;
            return Learned::PortLimit;
        }
        if self.entries.len() - self.statics >= self.settings.capacity {
            self.totals.refused_table_full += 1;
            return Learned::TableFull;
        }
        self.insert(Entry { vlan, mac, port, origin: Origin::Learned { last_used: now, announced: now } });
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
            true => self.learned[entry.port.index()] += 1,
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
            true => self.learned[entry.port.index()] -= 1,
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
        assert_eq!(*learned, self.learned, "learned entries per port");
        assert_eq!(
            learned.iter().sum::<usize>() + self.statics,
            self.entries.len(),
            "learned and static are all"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AGE: Nanos = Nanos::from_secs(300);
    const SETTINGS: FdbSettings = FdbSettings { capacity: 4, age: AGE };
    const NO_LIMIT: usize = usize::MAX;
    const NOW: Instant = Instant::from_nanos(1_000);

    fn vlan(id: u16) -> VlanId {
        VlanId::try_from(id).unwrap()
    }

    fn mac(last: u8) -> MacAddr {
        MacAddr([0x52, 0x54, 0, 0, 0, last])
    }

    fn learn(fdb: &mut Fdb, now: Instant, address: u8, port: u16) -> Learned {
        fdb.learn(now, vlan(10), mac(address), PortId(port), NO_LIMIT)
    }

    fn lookup(fdb: &Fdb, address: u8) -> Option<PortId> {
        fdb.lookup(vlan(10), mac(address))
    }

    #[test]
    fn finds_an_address_in_its_vlan_only() {
        let mut fdb = Fdb::new(SETTINGS, 2);
        assert_eq!(lookup(&fdb, 1), None);
        assert_eq!(learn(&mut fdb, NOW, 1, 0), Learned::New);
        assert_eq!(lookup(&fdb, 1), Some(PortId(0)));
        assert_eq!(fdb.lookup(vlan(11), mac(1)), None);
        assert_eq!(fdb.learn(NOW, vlan(11), mac(1), PortId(1), NO_LIMIT), Learned::New, "not a move");
        assert_eq!(lookup(&fdb, 1), Some(PortId(0)));
    }

    #[test]
    fn an_address_moves_with_the_first_frame_from_elsewhere() {
        let mut fdb = Fdb::new(SETTINGS, 2);
        learn(&mut fdb, NOW, 1, 0);
        assert_eq!(learn(&mut fdb, NOW, 1, 1), Learned::Moved { from: PortId(0) });
        assert_eq!(lookup(&fdb, 1), Some(PortId(1)));
        assert_eq!((fdb.learned_at(PortId(0)), fdb.learned_at(PortId(1))), (0, 1));
        assert_eq!(fdb.totals(), FdbTotals { learned: 1, moved: 1, ..FdbTotals::default() });
    }

    #[test]
    fn a_static_address_neither_moves_nor_ages_nor_counts() {
        let mut fdb = Fdb::new(SETTINGS, 2);
        assert!(fdb.insert_static(vlan(10), mac(1), PortId(0)));
        assert_eq!(learn(&mut fdb, NOW, 1, 1), Learned::StaticElsewhere(PortId(0)));
        assert_eq!(learn(&mut fdb, NOW, 1, 0), Learned::Refreshed { announce: false });
        assert!(!fdb.insert_static(vlan(10), mac(1), PortId(1)), "another port cannot take it");
        assert!(!fdb.pin(vlan(10), mac(1), PortId(1)));
        assert_eq!(fdb.age(NOW + Nanos::from_secs(1_000_000), usize::MAX), 0);
        assert_eq!(lookup(&fdb, 1), Some(PortId(0)));
        for address in 2..6 {
            assert_eq!(learn(&mut fdb, NOW, address, 0), Learned::New, "the whole capacity is left");
        }
        assert_eq!(fdb.totals().refused_static, 1);
    }

    #[test]
    fn a_static_address_takes_the_place_of_a_learned_one() {
        let mut fdb = Fdb::new(SETTINGS, 2);
        learn(&mut fdb, NOW, 1, 1);
        assert!(fdb.insert_static(vlan(10), mac(1), PortId(0)));
        assert_eq!((lookup(&fdb, 1), fdb.learned_at(PortId(1)), fdb.len()), (Some(PortId(0)), 0, 1));
    }

    #[test]
    fn a_full_table_refuses_newcomers_and_keeps_who_is_there() {
        let mut fdb = Fdb::new(SETTINGS, 2);
        for address in 1..=4 {
            learn(&mut fdb, NOW, address, 0);
        }
        assert_eq!(learn(&mut fdb, NOW, 5, 1), Learned::TableFull);
        assert_eq!(lookup(&fdb, 5), None);
        assert_eq!(learn(&mut fdb, NOW, 4, 1), Learned::Moved { from: PortId(0) }, "a move needs no room");
        let later = NOW + AGE;
        assert_eq!(fdb.age(later, usize::MAX), 4);
        assert_eq!(learn(&mut fdb, later, 5, 1), Learned::New);
        assert_eq!(fdb.totals().refused_table_full, 1);
    }

    #[test]
    fn a_port_at_its_limit_neither_learns_nor_takes_over() {
        let mut fdb = Fdb::new(SETTINGS, 2);
        learn(&mut fdb, NOW, 1, 0);
        learn(&mut fdb, NOW, 2, 1);
        for address in [1, 3] {
            assert_eq!(fdb.learn(NOW, vlan(10), mac(address), PortId(1), 1), Learned::PortLimit);
        }
        assert_eq!(fdb.learn(NOW, vlan(10), mac(2), PortId(1), 1), Learned::Refreshed { announce: false });
        assert_eq!(lookup(&fdb, 1), Some(PortId(0)));
        assert_eq!(fdb.totals().refused_port_limit, 2);
    }

    #[test]
    fn an_entry_goes_when_its_age_is_over_and_not_before() {
        let mut fdb = Fdb::new(SETTINGS, 1);
        learn(&mut fdb, NOW, 1, 0);
        learn(&mut fdb, NOW, 2, 0);
        let refreshed = NOW + Nanos::from_secs(100);
        learn(&mut fdb, refreshed, 1, 0);
        assert_eq!(fdb.age(NOW + AGE - Nanos::new(1), usize::MAX), 0);
        assert_eq!(fdb.age(NOW + AGE, usize::MAX), 1);
        assert_eq!((lookup(&fdb, 1), lookup(&fdb, 2)), (Some(PortId(0)), None));
        assert_eq!(fdb.age(refreshed + AGE, usize::MAX), 1);
        assert_eq!(fdb.totals().aged, 2);
    }

    #[test]
    fn ageing_looks_at_no_more_than_its_budget_and_gets_around() {
        let mut fdb = Fdb::new(FdbSettings { capacity: 100, ..SETTINGS }, 1);
        for address in 0..100 {
            learn(&mut fdb, NOW, address, 0);
        }
        for address in (0..100).step_by(2) {
            learn(&mut fdb, NOW + AGE, address, 0);
        }
        let aged: Vec<usize> = (0..10).map(|_| fdb.age(NOW + AGE, 10)).collect();
        assert!(aged.iter().all(|aged| *aged <= 10), "{aged:?}");
        assert_eq!(aged.iter().sum::<usize>(), 50);
    }

    #[test]
    fn a_known_address_is_announced_again_once_a_quarter_of_the_age() {
        let mut fdb = Fdb::new(SETTINGS, 1);
        learn(&mut fdb, NOW, 1, 0);
        let announced = |seconds| learn(&mut fdb, NOW + Nanos::from_secs(seconds), 1, 0);
        let announced: Vec<u64> = (1..300)
            .zip((1..300).map(announced))
            .filter_map(|(seconds, learned)| {
                (learned == Learned::Refreshed { announce: true }).then_some(seconds)
            })
            .collect();
        assert_eq!(announced, [76, 152, 228]);
    }

    #[test]
    fn a_port_that_goes_down_keeps_its_configured_addresses_only() {
        let mut fdb = Fdb::new(SETTINGS, 2);
        assert!(fdb.insert_static(vlan(10), mac(1), PortId(0)));
        assert!(fdb.pin(vlan(10), mac(2), PortId(0)) && fdb.pin(vlan(10), mac(2), PortId(0)));
        learn(&mut fdb, NOW, 3, 0);
        learn(&mut fdb, NOW, 4, 1);
        fdb.flush_port(PortId(0));
        let found: Vec<_> = (1..=4).map(|address| lookup(&fdb, address).is_some()).collect();
        assert_eq!(found, [true, false, false, true]);
        assert_eq!(fdb.totals().flushed, 1);
    }

    #[test]
    fn rows_tell_how_long_an_address_was_silent() {
        let mut fdb = Fdb::new(SETTINGS, 2);
        fdb.pin(vlan(10), mac(1), PortId(0));
        learn(&mut fdb, NOW, 2, 1);
        let idle = Nanos::from_secs(7);
        let row = |address, port, is_static, idle| FdbRow {
            vlan: vlan(10),
            mac: mac(address),
            port: PortId(port),
            is_static,
            idle,
        };
        assert_eq!(fdb.rows(NOW + idle), [row(1, 0, true, Nanos::ZERO), row(2, 1, false, idle)]);
    }

    #[test]
    fn coming_and_going_never_makes_the_table_grow() {
        let mut fdb = Fdb::new(FdbSettings { capacity: 50, ..SETTINGS }, 3);
        let room = |fdb: &Fdb| (fdb.places.capacity(), fdb.entries.capacity());
        let before = room(&fdb);
        let mut now = NOW;
        for round in 0..5000_u64 {
            let [a, b, c, d, ..] = (round * 2_654_435_761).to_le_bytes();
            let address = MacAddr([0x52, 0x54, a, b, c, d]);
            fdb.learn(now, vlan(10), address, PortId(0), NO_LIMIT);
            now += Nanos::from_secs(7);
            fdb.age(now, 2);
        }
        assert!(fdb.totals().aged > 4000);
        let after = room(&fdb);
        assert!(after.0 <= before.0 && after.1 == before.1, "{before:?} became {after:?}");
    }

    /// The table as a list, searched from the front.
    #[derive(Default)]
    struct Naive(Vec<NaiveEntry>);

    struct NaiveEntry {
        key: (u16, u8),
        port: u16,
        fixed: Option<Fixed>,
        used: u64,
    }

    #[derive(PartialEq)]
    enum Fixed {
        Configured,
        Pinned,
    }

    impl Naive {
        fn learn(&mut self, now: u64, key: (u16, u8), port: u16, limit: usize) -> Learned {
            let held = |entries: &[NaiveEntry], at: Option<u16>| {
                entries.iter().filter(|e| e.fixed.is_none() && at.is_none_or(|at| e.port == at)).count()
            };
            let at_limit = held(&self.0, Some(port)) >= limit;
            let full = held(&self.0, None) >= SETTINGS.capacity;
            match self.0.iter_mut().find(|e| e.key == key) {
                Some(e) if e.port == port => {
                    e.used = now;
                    Learned::Refreshed { announce: false }
                }
                Some(e) if e.fixed.is_some() => Learned::StaticElsewhere(PortId(e.port)),
                _ if at_limit => Learned::PortLimit,
                Some(e) => {
                    let from = PortId(e.port);
                    (e.port, e.used) = (port, now);
                    Learned::Moved { from }
                }
                None if full => Learned::TableFull,
                None => {
                    self.0.push(NaiveEntry { key, port, fixed: None, used: now });
                    Learned::New
                }
            }
        }

        fn fix(&mut self, key: (u16, u8), port: u16, fixed: Fixed) -> bool {
            if let Some(e) = self.0.iter().find(|e| e.key == key && e.fixed.is_some()) {
                return e.port == port;
            }
            let foreign = self.0.iter().any(|e| e.key == key && e.port != port);
            if foreign && matches!(fixed, Fixed::Pinned) {
                return false;
            }
            self.0.retain(|e| e.key != key);
            self.0.push(NaiveEntry { key, port, fixed: Some(fixed), used: 0 });
            true
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Learn { key: (u16, u8), port: u16, limit: usize },
        InsertStatic { key: (u16, u8), port: u16 },
        Pin { key: (u16, u8), port: u16 },
        Flush { port: u16 },
        Age,
        Wait { seconds: u64 },
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let key = (1_u16..3, 0_u8..5);
        prop_oneof![
            8 => (key.clone(), 0_u16..3, 0_usize..5).prop_map(|(key, port, limit)| Step::Learn { key, port, limit }),
            1 => (key.clone(), 0_u16..3).prop_map(|(key, port)| Step::InsertStatic { key, port }),
            1 => (key, 0_u16..3).prop_map(|(key, port)| Step::Pin { key, port }),
            1 => (0_u16..3).prop_map(|port| Step::Flush { port }),
            2 => Just(Step::Age),
            4 => (0_u64..200).prop_map(|seconds| Step::Wait { seconds }),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_list(steps in proptest::collection::vec(any_step(), 1..200)) {
            let (mut fdb, mut naive, mut seconds) = (Fdb::new(SETTINGS, 3), Naive::default(), 0);
            for step in steps {
                let now = NOW + Nanos::from_secs(seconds);
                match step {
                    Step::Learn { key, port, limit } => {
                        let learned = match fdb.learn(now, vlan(key.0), mac(key.1), PortId(port), limit) {
                            Learned::Refreshed { .. } => Learned::Refreshed { announce: false },
                            other => other,
                        };
                        prop_assert_eq!(learned, naive.learn(seconds, key, port, limit));
                    }
                    Step::InsertStatic { key, port } => {
                        let entered = fdb.insert_static(vlan(key.0), mac(key.1), PortId(port));
                        prop_assert_eq!(entered, naive.fix(key, port, Fixed::Configured));
                    }
                    Step::Pin { key, port } => {
                        let entered = fdb.pin(vlan(key.0), mac(key.1), PortId(port));
                        prop_assert_eq!(entered, naive.fix(key, port, Fixed::Pinned));
                    }
                    Step::Flush { port } => {
                        fdb.flush_port(PortId(port));
                        naive.0.retain(|e| e.port != port || e.fixed == Some(Fixed::Configured));
                    }
                    Step::Age => {
                        let before = naive.0.len();
                        naive.0.retain(|e| e.fixed.is_some() || seconds - e.used < 300);
                        prop_assert_eq!(fdb.age(now, usize::MAX), before - naive.0.len());
                    }
                    Step::Wait { seconds: more } => seconds += more,
                }
                fdb.check();
                prop_assert_eq!(fdb.len(), naive.0.len());
                for e in &naive.0 {
                    prop_assert_eq!(fdb.lookup(vlan(e.key.0), mac(e.key.1)), Some(PortId(e.port)));
                }
            }
        }
    }
}
