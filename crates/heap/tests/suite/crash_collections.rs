//! Crashes at every flush and fence of changes of collections: vectors that grow and shrink, texts that move
//! out of their field, hash maps that grow, small and large, ordered maps whose nodes divide and become one;
//! with several lanes, and with threads at once.
//!
//! `CRASHSIM_IMAGES=300000 cargo test --release -p tembo-heap --test suite crash_collections::campaign` is
//! the long campaign.

mod power;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tembo_crashsim::{
    Audit, Failure, Mutation, Report, Scenario, SharedScenario, Simulation, Target, campaign,
};
use tembo_heap::collections::{PHashMap, PMap, PString, PVec};
use tembo_heap::{Error, Heap, Obj, PRc, Persist, Tx, brand, check};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};

brand!(Goods);

/// One heap with the brand is open at a time; with a brand for each test there would be as much code of each.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The targets of values, so that a move of a value puts counts at stake.
#[derive(Default, Persist)]
#[repr(C)]
struct Item {
    id: u64,
}

#[derive(Default, Persist)]
#[repr(C)]
struct Shelf {
    numbers: PVec<u64>,
    items: PVec<PRc<Item>>,
    text: PString,
    by_key: PHashMap<u64, PRc<Item>>,
    /// The same keys, and values without pointers, which move as words when the map grows.
    words: PHashMap<u64, u64>,
    by_name: PHashMap<PString, u64>,
    in_order: PMap<u64, PRc<Item>>,
    names: PMap<PString, u64>,
}

/// A root for each thread, so that theirs are in conflict about lanes and memory only.
#[derive(Default, Persist)]
#[repr(C)]
struct Shop {
    shelves: [PRc<Shelf>; 2],
}

#[derive(Debug, Clone)]
enum Op {
    Push {
        count: u64,
        from: u64,
    },
    Truncate {
        len: usize,
    },
    Shrink,
    PushItem {
        id: u64,
    },
    InsertItem {
        at: usize,
        id: u64,
    },
    RemoveItem {
        at: usize,
    },
    ClearItems,
    Text {
        len: usize,
    },
    Insert {
        from: u64,
        count: u64,
    },
    Remove {
        from: u64,
        count: u64,
    },
    ClearKeys,
    Name {
        from: u64,
        count: u64,
    },
    Unname {
        from: u64,
        count: u64,
    },
    InsertInOrder {
        from: u64,
        count: u64,
    },
    RemoveInOrder {
        from: u64,
        count: u64,
    },
    NameInOrder {
        from: u64,
        count: u64,
    },
    UnnameInOrder {
        from: u64,
        count: u64,
    },
    /// On the other shelf, in another session than those around it.
    Second(Box<Op>),
    Collect,
    Reopen,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Model {
    numbers: Vec<u64>,
    items: Vec<u64>,
    text: String,
    by_key: BTreeMap<u64, u64>,
    by_name: BTreeMap<String, u64>,
    in_order: BTreeMap<u64, u64>,
    names: BTreeMap<String, u64>,
}

fn name_of(key: u64) -> String {
    format!("{key:04}{}", " is the name".repeat(key as usize % 3))
}

fn text_of(len: usize) -> String {
    "abcdefghij".chars().cycle().take(len).collect()
}

impl Model {
    fn apply(&mut self, op: &Op) {
        let keys = |from: u64, count: u64| from..from + count;
        match *op {
            Op::Push { count, from } => self.numbers.extend(keys(from, count)),
            Op::Truncate { len } => self.numbers.truncate(len),
            Op::Shrink | Op::Collect | Op::Reopen => {}
            Op::PushItem { id } => self.items.push(id),
            Op::InsertItem { at, id } => self.items.insert(at.min(self.items.len()), id),
            Op::RemoveItem { at } => {
                if at < self.items.len() {
                    self.items.remove(at);
                }
            }
            Op::ClearItems => self.items.clear(),
            Op::Text { len } => self.text = text_of(len),
            Op::Insert { from, count } => self.by_key.extend(keys(from, count).map(|key| (key, key + 1))),
            Op::Remove { from, count } => self.by_key.retain(|key, _| !keys(from, count).contains(key)),
            Op::ClearKeys => self.by_key.clear(),
            Op::Name { from, count } => self.by_name.extend(keys(from, count).map(|key| (name_of(key), key))),
            Op::Unname { from, count } => self.by_name.retain(|_, key| !keys(from, count).contains(key)),
            Op::InsertInOrder { from, count } => {
                self.in_order.extend(keys(from, count).map(|key| (key, key + 2)));
            }
            Op::RemoveInOrder { from, count } => {
                self.in_order.retain(|key, _| !keys(from, count).contains(key));
            }
            Op::NameInOrder { from, count } => {
                self.names.extend(keys(from, count).map(|key| (name_of(key), key)));
            }
            Op::UnnameInOrder { from, count } => self.names.retain(|_, key| !keys(from, count).contains(key)),
            Op::Second(_) => unreachable!("applied to the other shelf"),
        }
    }
}

fn apply_to_shelves(shelves: &mut [Model; 2], op: &Op) {
    match op {
        Op::Second(op) => shelves[1].apply(op),
        op => shelves[0].apply(op),
    }
}

fn perform<'t>(tx: &mut Tx<'t, Goods>, shelf: Obj<'t, Goods, Shelf>, op: &Op) -> Result<(), Error> {
    match *op {
        Op::Push { count, from } => {
            (from..from + count).try_for_each(|number| shelf.numbers().push(tx, number).map(drop))
        }
        Op::Truncate { len } => shelf.numbers().truncate(tx, len),
        Op::Shrink => {
            shelf.numbers().shrink(tx)?;
            shelf.items().shrink(tx)
        }
        Op::PushItem { id } => {
            let item = tx.alloc(Item { id })?;
            shelf.items().push_link(tx, item).map(drop)
        }
        Op::InsertItem { at, id } => {
            let item = tx.alloc(Item { id })?;
            let at = at.min(shelf.items().len(tx)?);
            let place = shelf.items().insert(tx, at, PRc::null())?;
            tx.link(place, item)
        }
        Op::RemoveItem { at } => {
            if at < shelf.items().len(tx)? {
                shelf.items().remove(tx, at)?;
            }
            Ok(())
        }
        Op::ClearItems => shelf.items().clear(tx),
        Op::Text { len } => shelf.text().set(tx, &text_of(len)),
        Op::ClearKeys => {
            shelf.by_key().clear(tx)?;
            shelf.words().clear(tx)
        }
        Op::Insert { from, count }
        | Op::InsertInOrder { from, count }
        | Op::Remove { from, count }
        | Op::Unname { from, count }
        | Op::RemoveInOrder { from, count }
        | Op::Name { from, count }
        | Op::NameInOrder { from, count }
        | Op::UnnameInOrder { from, count } => {
            (from..from + count).try_for_each(|key| change_key(tx, shelf, op, key))
        }
        Op::Second(_) | Op::Collect | Op::Reopen => unreachable!("no part of a transaction"),
    }
}

/// An operation's part of one key of a map.
fn change_key<'t>(
    tx: &mut Tx<'t, Goods>,
    shelf: Obj<'t, Goods, Shelf>,
    op: &Op,
    key: u64,
) -> Result<(), Error> {
    match op {
        Op::Insert { .. } => {
            let item = tx.alloc(Item { id: key + 1 })?;
            let place = shelf.by_key().insert(tx, &key, PRc::null())?;
            tx.link(place, item)?;
            shelf.words().insert(tx, &key, !key)?;
        }
        Op::InsertInOrder { .. } => {
            let item = tx.alloc(Item { id: key + 2 })?;
            let place = shelf.in_order().insert(tx, &key, PRc::null())?;
            tx.link(place, item)?;
        }
        Op::Remove { .. } => {
            let is_there = shelf.by_key().remove(tx, &key)?;
            assert_eq!(shelf.words().remove(tx, &key)?, is_there);
        }
        Op::Unname { .. } => drop(shelf.by_name().remove(tx, &name_of(key))?),
        Op::RemoveInOrder { .. } => drop(shelf.in_order().remove(tx, &key)?),
        Op::Name { .. } => drop(shelf.by_name().replace(tx, &name_of(key), key)?),
        Op::NameInOrder { .. } => drop(shelf.names().replace(tx, &name_of(key), key)?),
        Op::UnnameInOrder { .. } => drop(shelf.names().remove(tx, &name_of(key))?),
        other => unreachable!("{other:?} changes no keys"),
    }
    Ok(())
}

fn text(e: impl ToString) -> String {
    e.to_string()
}

struct Store {
    pool: Pool,
    heap: Option<Heap<Goods, Shop>>,
}

fn change(heap: &Heap<Goods, Shop>, shelf: usize, op: &Op) -> Result<(), Error> {
    heap.write(|tx, shop| match tx.load(shop.shelves().at(shelf))? {
        Some(shelf) => perform(tx, shelf, op),
        None => Err(tx.cancel()),
    })
}

impl Store {
    fn open(pool: Pool) -> Result<Store, String> {
        let heap = Heap::open_pool(pool.clone()).map_err(text)?;
        heap.write(|tx, shop: Obj<'_, Goods, Shop>| {
            for shelf in 0..2 {
                if tx.load(shop.shelves().at(shelf))?.is_none() {
                    let new = tx.alloc(Shelf::default())?;
                    tx.link(shop.shelves().at(shelf), new)?;
                }
            }
            Ok(())
        })
        .map_err(|e: Error| text(e))?;
        Ok(Store { pool, heap: Some(heap) })
    }

    fn heap(&self) -> &Heap<Goods, Shop> {
        self.heap.as_ref().expect("it is open")
    }

    fn change(&self, shelf: usize, op: &Op) -> Result<(), Error> {
        change(self.heap(), shelf, op)
    }

    fn change_beside(&self, op: &Op) -> Result<(), Error> {
        let (heap, outcome) = (self.heap(), Mutex::new(None));
        let ended = heap.write::<()>(|tx, _| {
            tx.alloc(Item::default())?;
            let inner = std::thread::scope(|scope| {
                let other = scope.spawn(|| change(heap, 1, op));
                other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            *outcome.lock().unwrap() = Some(inner);
            Err(tx.cancel())
        });
        assert!(matches!(&ended, Err(e) if e.is_cancelled()), "{ended:?}");
        outcome.into_inner().unwrap().expect("it ran")
    }

    fn read(&self) -> Result<[Model; 2], Error> {
        self.heap().read(|tx, shop| {
            let mut models = [Model::default(), Model::default()];
            for (shelf, model) in models.iter_mut().enumerate() {
                let Some(shelf) = tx.load(shop.shelves().at(shelf))? else { continue };
                let id = |place| -> Result<u64, Error> {
                    tx.load::<Item>(place)?.map_or(Ok(0), |item| tx.get(item.id()))
                };
                model.numbers = shelf.numbers().to_vec(tx)?;
                for place in shelf.items().iter(tx)? {
                    model.items.push(id(place)?);
                }
                model.text = shelf.text().get(tx)?;
                for entry in shelf.by_key().iter(tx)? {
                    let (key, place) = entry?;
                    model.by_key.insert(key, id(place)?);
                }
                let mut words = BTreeMap::new();
                for entry in shelf.words().iter(tx)? {
                    let (key, place) = entry?;
                    words.insert(key, tx.get(place)?);
                }
                assert_eq!(words, model.by_key.keys().map(|key| (*key, !key)).collect());
                assert_eq!(shelf.words().len(tx)?, words.len());
                for entry in shelf.by_name().iter(tx)? {
                    let (key, place) = entry?;
                    model.by_name.insert(key, tx.get(place)?);
                }
                for entry in shelf.in_order().iter(tx)? {
                    let (key, place) = entry?;
                    model.in_order.insert(key, id(place)?);
                }
                for entry in shelf.names().iter(tx)? {
                    let (key, place) = entry?;
                    model.names.insert(key, tx.get(place)?);
                }
                // The count, and the entries that lookups find.
                assert_eq!(shelf.by_key().len(tx)?, model.by_key.len());
                assert_eq!(shelf.in_order().len(tx)?, model.in_order.len());
                for key in model.by_key.keys() {
                    assert!(shelf.by_key().contains(tx, key)?, "key {key}");
                    assert_eq!(shelf.words().value(tx, key)?, Some(!key));
                }
                for name in model.by_name.keys() {
                    assert!(shelf.by_name().contains(tx, name)?, "{name}");
                }
                for name in model.names.keys() {
                    assert!(shelf.names().contains(tx, name)?, "{name}");
                }
            }
            Ok(models)
        })
    }
}

/// Operations on collections. One worker tries the images, as one heap with the brand is open at a time.
struct Stock {
    name: String,
    start: Vec<Op>,
    ops: Vec<Op>,
    continuation: Vec<Op>,
    bytes: u64,
}

impl Stock {
    fn new(name: impl Into<String>, start: Vec<Op>, ops: Vec<Op>) -> Stock {
        let continuation =
            vec![Op::Insert { from: 5000, count: 2 }, Op::RemoveInOrder { from: 0, count: 2 }, Op::Collect];
        Stock { name: name.into(), start, ops, continuation, bytes: 512 << 10 }
    }

    fn simulation(&self) -> Simulation<'_, Self> {
        let late = Audit::strict().flushed_within(None).fenced_within(None);
        let audit = late.allow_idle_flush(true).allow_idle_fence(true);
        Simulation::new(self).audit(audit).workers(1).continue_ops(3)
    }

    fn survives(&self, limit: usize) {
        survived(self.simulation().limit(limit).nested_limit(3).run());
    }
}

fn survived(outcome: Result<Report, Box<Failure>>) {
    println!("{}", outcome.unwrap_or_else(|failure| panic!("{failure}")));
}

impl Scenario for Stock {
    type State = Store;
    type Op = Op;
    type Model = [Model; 2];

    fn name(&self) -> String {
        self.name.clone()
    }

    fn region_bytes(&self) -> u64 {
        self.bytes
    }

    fn setup(&self, region: Region) -> Result<Store, String> {
        let mut store = Store::open(Pool::create_in(region, &Geometry::tiny()).map_err(text)?)?;
        self.start.iter().try_for_each(|op| self.apply(&mut store, op))?;
        Ok(store)
    }

    fn recover(&self, region: Region) -> Result<Store, String> {
        Store::open(Pool::open_in(region).map_err(text)?)
    }

    fn region<'s>(&self, state: &'s Store) -> &'s Region {
        state.pool.region()
    }

    fn ops(&self) -> &[Op] {
        &self.ops
    }

    fn continuation(&self) -> &[Op] {
        &self.continuation
    }

    fn apply(&self, state: &mut Store, op: &Op) -> Result<(), String> {
        match op {
            Op::Second(op) => state.change_beside(op),
            Op::Collect => state.heap().collect(),
            Op::Reopen => {
                state.heap = None;
                Heap::open_pool(state.pool.clone()).map(|heap| state.heap = Some(heap))
            }
            op => state.change(0, op),
        }
        .map_err(text)
    }

    fn initial(&self) -> [Model; 2] {
        let mut models = [Model::default(), Model::default()];
        self.start.iter().for_each(|op| apply_to_shelves(&mut models, op));
        models
    }

    fn apply_model(&self, models: &mut [Model; 2], op: &Op) {
        apply_to_shelves(models, op);
    }

    fn observe(&self, state: &Store) -> Result<[Model; 2], String> {
        state.read().map_err(text)
    }

    fn check(&self, state: &Store) -> Result<(), String> {
        let mut marks = state.pool.marks().map_err(text)?;
        check(&state.pool, &mut marks).map_err(text)?;
        marks.finish().map_err(text).map(drop)
    }
}

#[test]
fn vectors_and_texts_survive_crashes() {
    let _turn = turn();
    let ops = vec![
        Op::Push { count: 20, from: 0 },
        Op::PushItem { id: 1 },
        Op::PushItem { id: 2 },
        Op::Second(Box::new(Op::Push { count: 9, from: 50 })),
        Op::InsertItem { at: 0, id: 3 },
        Op::Text { len: 16 },
        Op::Text { len: 17 },
        Op::Text { len: 300 },
        Op::Text { len: 3 },
        Op::RemoveItem { at: 1 },
        Op::Push { count: 100, from: 100 },
        Op::Truncate { len: 5 },
        Op::Shrink,
        Op::ClearItems,
        Op::Collect,
    ];
    Stock::new("vectors and texts", vec![], ops).survives(24);
}

#[test]
fn hash_maps_that_grow_survive_crashes() {
    let _turn = turn();
    let ops = vec![
        Op::Insert { from: 0, count: 1 },
        Op::Insert { from: 1, count: 9 },
        Op::Second(Box::new(Op::Name { from: 0, count: 10 })),
        Op::Remove { from: 3, count: 4 },
        Op::Insert { from: 10, count: 70 },
        Op::Name { from: 0, count: 3 },
        Op::Unname { from: 1, count: 1 },
        Op::ClearKeys,
        Op::Insert { from: 2, count: 2 },
        Op::Collect,
    ];
    Stock::new("hash maps", vec![], ops).survives(6);
}

/// From 128 buckets on maps grow a little with each insertion: the crash comes while some of the buckets are
/// divided.
#[test]
fn large_hash_maps_that_grow_survive_crashes() {
    let _turn = turn();
    // Tallies of about 32 entries each are what growth begins with.
    let start: Vec<Op> = (0..6).map(|i| Op::Insert { from: 90 * i, count: 90 }).collect();
    let mut ops: Vec<Op> = (0..4).map(|i| Op::Insert { from: 600 + 20 * i, count: 20 }).collect();
    ops.push(Op::Remove { from: 0, count: 30 });
    ops.push(Op::Reopen);
    ops.push(Op::Insert { from: 900, count: 40 });
    let stock = Stock { bytes: 1 << 20, ..Stock::new("large hash maps", start, ops) };
    survived(stock.simulation().limit(2).nested_limit(1).run());
}

/// As they were divided, the buckets are joined again while the map is emptied.
#[test]
fn large_hash_maps_that_shrink_survive_crashes() {
    let _turn = turn();
    let mut start: Vec<Op> = (0..9).map(|i| Op::Insert { from: 90 * i, count: 90 }).collect();
    // The next removals begin the shrinking, or go on with it.
    start.extend((0..6).map(|i| Op::Remove { from: 100 * i, count: 100 }));
    let mut ops: Vec<Op> = (0..4).map(|i| Op::Remove { from: 600 + 20 * i, count: 20 }).collect();
    ops.push(Op::Insert { from: 0, count: 20 });
    ops.push(Op::Reopen);
    ops.push(Op::Remove { from: 680, count: 40 });
    ops.push(Op::Insert { from: 900, count: 20 });
    ops.push(Op::Collect);
    let stock = Stock { bytes: 1 << 20, ..Stock::new("large hash maps that shrink", start, ops) };
    survived(stock.simulation().limit(2).nested_limit(1).run());
}

#[test]
fn ordered_maps_that_divide_and_join_survive_crashes() {
    let _turn = turn();
    let start = vec![Op::InsertInOrder { from: 100, count: 14 }, Op::NameInOrder { from: 100, count: 14 }];
    let ops = vec![
        Op::InsertInOrder { from: 0, count: 3 },
        Op::InsertInOrder { from: 50, count: 40 },
        Op::Second(Box::new(Op::InsertInOrder { from: 0, count: 20 })),
        Op::NameInOrder { from: 0, count: 20 },
        Op::RemoveInOrder { from: 60, count: 25 },
        Op::UnnameInOrder { from: 100, count: 14 },
        Op::Second(Box::new(Op::RemoveInOrder { from: 0, count: 20 })),
        Op::RemoveInOrder { from: 0, count: 200 },
        Op::InsertInOrder { from: 7, count: 1 },
        Op::Collect,
    ];
    Stock::new("ordered maps", start, ops).survives(6);
}

fn random_op(rng: &mut Xoshiro256PlusPlus, next: &mut u64) -> Op {
    *next += 1;
    let (from, count) = (rng.random_range(0..60), rng.random_range(1..12));
    match rng.random_range(0..16) {
        0 => Op::Push { count, from },
        1 => Op::Truncate { len: from as usize / 3 },
        2 => Op::Shrink,
        3 | 4 => Op::PushItem { id: *next },
        5 => Op::InsertItem { at: from as usize % 5, id: *next },
        6 => Op::RemoveItem { at: from as usize % 5 },
        7 => Op::Text { len: from as usize },
        8 => Op::Insert { from, count },
        9 => Op::Remove { from, count },
        10 => Op::Name { from, count },
        11 => Op::Unname { from, count },
        12 => Op::InsertInOrder { from, count },
        13 => Op::RemoveInOrder { from, count: 2 * count },
        14 => Op::NameInOrder { from, count },
        _ => Op::UnnameInOrder { from, count },
    }
}

/// Random changes, this many at the start and this many after it.
fn random(seed: u64, [started, count]: [usize; 2]) -> Stock {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut next = 0;
    let mut ops = |count: usize| -> Vec<Op> {
        let op = |i: usize| match i % 4 {
            2 => Op::Second(Box::new(random_op(&mut rng, &mut next))),
            3 => Op::Collect,
            _ => random_op(&mut rng, &mut next),
        };
        (0..count).map(op).collect()
    };
    Stock::new(format!("random changes, seed {seed}"), ops(started), ops(count))
}

#[test]
fn campaign_of_random_changes() {
    let _turn = turn();
    survived(campaign(1_000, |seed| {
        let stock = random(seed, [16, 10]);
        stock.simulation().seed(seed).limit(12).nested_limit(3).depth(2).run()
    }));
}

/// Threads that each have a shelf.
impl SharedScenario for Stock {
    fn thread_of(&self, op: &Op) -> usize {
        usize::from(matches!(op, Op::Second(_)))
    }

    fn apply_shared(&self, state: &Store, op: &Op) -> Result<Vec<usize>, String> {
        let done = match op {
            Op::Second(op) => state.change(1, op),
            op => state.change(0, op),
        };
        done.map(|()| Vec::new()).map_err(text)
    }
}

#[test]
fn threads_that_change_at_once_survive_crashes() {
    let _turn = turn();
    survived(campaign(500, |seed| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut next = 0;
        let ops = (0..10).map(|i| match (i % 2, random_op(&mut rng, &mut next)) {
            (0, op) => op,
            (_, op) => Op::Second(Box::new(op)),
        });
        let ops: Vec<Op> = ops.collect();
        let start = vec![Op::Insert { from: 0, count: 20 }, Op::InsertInOrder { from: 0, count: 20 }];
        let mut stock = Stock::new(format!("threads, seed {seed}"), start, ops);
        stock.continuation.clear();
        stock.simulation().seed(seed).limit(8).depth(0).audit(Audit::off()).run_shared()
    }));
}

/// Bugs in what is flushed when, in operations and in recovery, on two lanes.
#[test]
fn seeded_bugs_are_caught() {
    let _turn = turn();
    let ops = vec![
        Op::Push { count: 9, from: 0 },
        Op::Second(Box::new(Op::Insert { from: 0, count: 9 })),
        Op::InsertInOrder { from: 0, count: 16 },
        Op::Second(Box::new(Op::Remove { from: 0, count: 3 })),
        Op::RemoveInOrder { from: 0, count: 9 },
        Op::Text { len: 40 },
    ];
    let stock = Stock::new("seeded bugs", vec![], ops);
    let simulation = stock.simulation().audit(Audit::off()).limit(8).depth(0).continue_ops(1);
    simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    let harmful = [Mutation::DropFence, Mutation::ForeignFence, Mutation::HoistStore];
    let report =
        simulation.mutants(Target::Operations, &harmful).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    report.assert_some_caught(&harmful);
}

#[test]
fn seeded_bugs_of_recovery_are_caught() {
    let _turn = turn();
    let start = vec![Op::Insert { from: 0, count: 9 }];
    let ops = vec![
        Op::Second(Box::new(Op::Insert { from: 0, count: 9 })),
        Op::InsertInOrder { from: 0, count: 16 },
    ];
    let stock = Stock::new("seeded bugs of recovery", start, ops);
    let simulation = stock.simulation().audit(Audit::off()).limit(4).nested_limit(4).depth(2).continue_ops(1);
    let harmful = [Mutation::DropFence, Mutation::DropFlush];
    let report = simulation.mutants(Target::Recovery, &harmful).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    report.assert_some_caught(&harmful);
}
