//! Stories of single entries, and the table beside a list.

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

#[test]
fn an_address_that_flaps_stays_where_it_is_for_the_rest_of_the_second() {
    let mut fdb = Fdb::new(SETTINGS, 2);
    learn(&mut fdb, NOW, 1, 0);
    for moves in 1..=u16::from(flap::FLAP_MOVES) {
        let port = moves % 2;
        assert_eq!(learn(&mut fdb, NOW, 1, port), Learned::Moved { from: PortId(1 - port) });
    }
    let at = lookup(&fdb, 1).unwrap();
    let other = PortId(1 - at.0);
    let later = NOW + Nanos::new(flap::FLAP_WINDOW.get() - 1);
    for now in [NOW, later] {
        assert_eq!(learn(&mut fdb, now, 1, other.0), Learned::Flapping);
        assert_eq!(learn(&mut fdb, now, 1, at.0), Learned::Refreshed { announce: false });
    }
    let flap = Flap { vlan: vlan(10), mac: mac(1), at, also_at: other };
    assert_eq!(fdb.take_flaps(), (vec![flap], 0), "named once");
    assert_eq!(fdb.take_flaps(), (vec![], 0));
    fdb.follow(NOW, vlan(10), mac(1), other);
    assert_eq!(lookup(&fdb, 1), Some(other), "another worker's word counts");
    let over = NOW + flap::FLAP_WINDOW;
    assert_eq!(learn(&mut fdb, over, 1, at.0), Learned::Moved { from: other });
    assert_eq!(fdb.totals().refused_flapping, 2);
}

#[test]
fn one_port_s_flood_leaves_the_others_their_shares() {
    let mut fdb = Fdb::new(FdbSettings { capacity: 8, ..SETTINGS }, 3);
    (1..3).for_each(|port| fdb.reserve_share(PortId(port), 2));
    let learned = |fdb: &mut Fdb, port: u16, addresses: std::ops::Range<u8>| {
        addresses.filter(|address| learn(fdb, NOW, *address, port) == Learned::New).count()
    };
    assert_eq!(learned(&mut fdb, 0, 0..100), 4, "half of the table");
    assert_eq!(learned(&mut fdb, 1, 100..110), 2);
    assert_eq!(learned(&mut fdb, 2, 110..120), 2, "and nothing that was kept for another");
    assert_eq!(fdb.totals().refused_table_full, 96 + 8 + 8);
    fdb.flush_port(PortId(0));
    assert_eq!(learned(&mut fdb, 1, 120..130), 4, "what is free is anybody's");
    assert_eq!(learned(&mut fdb, 2, 130..140), 0, "beyond its share");
    fdb.flush_port(PortId(2));
    assert_eq!(learned(&mut fdb, 0, 140..150), 0, "kept for port 2");
    assert_eq!(learned(&mut fdb, 2, 150..160), 2);
}

#[test]
fn of_two_ports_that_pinned_an_address_at_once_the_lower_has_it_everywhere() {
    let tables = [0, 1].map(|own| {
        let mut fdb = Fdb::new(SETTINGS, 2);
        assert!(fdb.pin(vlan(10), mac(1), PortId(own)));
        let loser = fdb.follow_pin(vlan(10), mac(1), PortId(1 - own));
        (lookup(&fdb, 1), loser)
    });
    assert_eq!(tables, [(Some(PortId(0)), None), (Some(PortId(0)), Some(PortId(1)))]);
    let mut fdb = Fdb::new(SETTINGS, 2);
    assert!(fdb.pin(vlan(10), mac(1), PortId(0)));
    assert!(!fdb.unpin(vlan(10), mac(1), PortId(1)) && fdb.unpin(vlan(10), mac(1), PortId(0)));
    assert_eq!((lookup(&fdb, 1), fdb.len()), (None, 0));
}

/// The table as a list, searched from the front.
#[derive(Default)]
struct Naive(Vec<NaiveEntry>);

struct NaiveEntry {
    key: (u16, u8),
    port: u16,
    fixed: Option<Fixed>,
    used: u64,
    /// Seconds at which it moved.
    moves: Vec<u64>,
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
            // The steps are whole seconds, as the window is.
            Some(e) if e.moves.iter().filter(|at| **at == now).count() >= usize::from(flap::FLAP_MOVES) => {
                Learned::Flapping
            }
            Some(e) => {
                e.moves.push(now);
                let from = PortId(e.port);
                (e.port, e.used) = (port, now);
                Learned::Moved { from }
            }
            None if full => Learned::TableFull,
            None => {
                self.0.push(NaiveEntry { key, port, fixed: None, used: now, moves: vec![] });
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
        self.0.push(NaiveEntry { key, port, fixed: Some(fixed), used: 0, moves: vec![] });
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
