//! The product's maps under the same load as the papers' trees: in the model, and on this machine.
//!
//! In the model the map of 8-byte keys runs over a simulated pool, which tells the model everything that is
//! done to persistent memory. What the map keeps in DRAM (images of inner nodes, and a descriptor of each
//! leaf) is told by asking the map for the way to a key ([`U64Tree::dram_way`]). It lies in DRAM in the
//! model, too, behind the same caches.

use crate::nvm::{Listener, Model, Params};
use crate::runs::{GROUPS, ModelRun};
use foldhash::fast::FixedState;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use tembo_goals::Error;
use tembo_goals::clock::ThreadTime;
use tembo_goals::goals::temporary_pool;
use tembo_goals::workload::{Case, Keys, Operation};
use tembo_index::{DramAccess, U64Tree, WbTree};
use tembo_pmem::{LINE_BYTES, Region};
use tembo_pool::{Geometry, Lane, Pool};

/// The name of the maps in figures.
pub const NAME: &str = "tembo";
/// Lines of a leaf of the map of 8-byte keys.
pub const LEAF_LINES: u64 = 32;

/// Lines that a search asks for while the leaf's descriptor is still on its way.
const EARLY_PREFETCHES: u32 = 2;
/// Instructions that are assumed of an operation in a leaf, and of a search in an inner node.
const LEAF_INSTRUCTIONS: u32 = 80;
const LEVEL_INSTRUCTIONS: u32 = 30;

/// Runs a case with the map of 8-byte keys in the model.
///
/// # Errors
///
/// When the parameters have no such memory, or the pool has no room.
pub fn in_model(case: Case, keys: &Keys<u64>, params: &Params, medium: &str) -> Result<ModelRun, Error> {
    let operations = keys.of(case.operation);
    let bytes = keys.loaded.len() as u64 * 28 + operations.len() as u64 * 3072 + (64 << 20);
    let bytes = bytes.next_multiple_of(1 << 20);
    let mut model = Model::new(params, medium)?;
    model.put_dram_at(bytes);
    let listener = Arc::new(Listener::new(model, &[]));
    let region = Region::simulated(&vec![0; bytes as usize], bytes, Some(listener.clone()))?;
    let tree = U64Tree::create(&Pool::create_in(region, &Geometry::default())?, NAME)?;
    load(&tree, case, keys)?;
    let mut dram = Dram { free: bytes, places: HashMap::default() };
    listener.measure();
    for key in operations {
        watched(&tree, case.operation, *key, &listener, &mut dram)?;
    }
    let (cost, wear) = listener.finish();
    let ns = listener.ns(cost.cycles) / operations.len() as f64;
    Ok(ModelRun { ns, cost, wear, operations: operations.len() })
}

/// Nanoseconds of an operation of the map of 8-byte keys on this machine.
///
/// # Errors
///
/// When the pool has no room.
pub fn words_on_this_machine(case: Case, keys: &Keys<u64>) -> Result<f64, Error> {
    let tree = U64Tree::create(&temporary_pool(false)?, NAME)?;
    load(&tree, case, keys)?;
    timed(keys.of(case.operation), |key| operate(&tree, case.operation, *key))
}

/// Nanoseconds of an operation of the map of byte strings on this machine.
///
/// # Errors
///
/// When the pool has no room.
pub fn strings_on_this_machine(case: Case, keys: &Keys<Vec<u8>>, seed: u64) -> Result<f64, Error> {
    let pool = temporary_pool(false)?;
    let mut lane = pool.lane()?;
    let mut tx = lane.begin();
    let map = WbTree::create(&mut tx, NAME)?;
    tx.commit()?;
    let mut strings = Strings { map, lane };
    let mut order: Vec<&Vec<u8>> = keys.loaded.iter().collect();
    if case.fill_percent < 100 {
        order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    }
    order.into_iter().try_for_each(|key| strings.operate(Operation::Insert, key))?;
    timed(keys.of(case.operation), |key| strings.operate(case.operation, key))
}

/// Loads the map of 8-byte keys. In ascending order, which fills leaves; for leaves that are not full, with
/// other keys in between, which are removed then.
fn load(tree: &U64Tree, case: Case, keys: &Keys<u64>) -> Result<(), Error> {
    let others_of_each = f64::from(100 - case.fill_percent) / f64::from(case.fill_percent);
    let (mut others, mut owed) = (Vec::new(), 0.0);
    for (value, key) in keys.loaded.iter().enumerate() {
        tree.put(*key, value as u64)?;
        owed += others_of_each;
        let other = key.saturating_add(1);
        if owed >= 1.0 && tree.insert(other, 0)? {
            owed -= 1.0;
            others.push(other);
        }
    }
    for other in others {
        // It was one of the keys, if that was the next.
        if keys.loaded.binary_search(&other).is_err() {
            tree.remove(other)?;
        }
    }
    Ok(())
}

fn operate(tree: &U64Tree, operation: Operation, key: u64) -> Result<(), Error> {
    let as_expected = match operation {
        Operation::Search => black_box(tree.get(key)?).is_some(),
        Operation::Insert => tree.insert(key, 1)?,
        Operation::Delete => tree.remove(key)?.is_some(),
    };
    assert!(as_expected, "{} of {key} went wrong", operation.name());
    Ok(())
}

/// The map of byte strings, a commit for each change.
struct Strings {
    map: WbTree,
    lane: Lane,
}

impl Strings {
    fn operate(&mut self, operation: Operation, key: &[u8]) -> Result<(), Error> {
        if operation == Operation::Search {
            assert!(black_box(self.map.get_pinned(key)?).is_some(), "search of {key:?} went wrong");
            return Ok(());
        }
        let mut tx = self.lane.begin();
        if operation == Operation::Insert {
            self.map.put(&mut tx, key, &[&1u64.to_le_bytes()])?;
        } else {
            assert!(self.map.remove(&mut tx, key)?, "delete of {key:?} went wrong");
        }
        Ok(tx.commit()?)
    }
}

/// The median of groups of operations.
fn timed<K>(keys: &[K], mut operate: impl FnMut(&K) -> Result<(), Error>) -> Result<f64, Error> {
    let mut times = Vec::new();
    for group in keys.chunks(keys.len().div_ceil(GROUPS)) {
        let start = ThreadTime::now();
        group.iter().try_for_each(&mut operate)?;
        times.push(start.elapsed_ns() as f64 / group.len() as f64);
    }
    Ok(tembo_goals::stats::median(times.into_iter()))
}

/// Where nodes lie in the model's DRAM: one after the other as they are met, so that it does not depend on
/// where they lie here.
struct Dram {
    free: u64,
    places: HashMap<(u64, u64), u64, FixedState>,
}

impl Dram {
    fn place(&mut self, address: u64, bytes: u64) -> u64 {
        *self.places.entry((address, bytes)).or_insert_with(|| {
            let place = self.free;
            self.free += bytes.next_multiple_of(LINE_BYTES);
            place
        })
    }
}

/// An operation of which the model hears everything.
fn watched(
    tree: &U64Tree,
    operation: Operation,
    key: u64,
    listener: &Listener,
    dram: &mut Dram,
) -> Result<(), Error> {
    let access = match operation {
        Operation::Search => DramAccess::Get,
        Operation::Insert => DramAccess::Insert,
        Operation::Delete => DramAccess::Remove,
    };
    let way = tree.dram_way(key, access);
    let mut places = way.iter().map(|node| dram.place(node.address, node.bytes)).collect::<Vec<_>>();
    let [inner @ .., leaf] = &way[..] else { return Err("no node is known".into()) };
    let leaf_place = places.pop().unwrap_or_default();
    listener.tell(|model| {
        for (node, place) in inner.iter().zip(&places) {
            for step in &node.reads {
                step.iter().for_each(|off| model.ask(place + off));
                step.iter().for_each(|off| model.load(place + off, 8));
            }
            model.compute(LEVEL_INSTRUCTIONS);
        }
        model.compute(LEAF_INSTRUCTIONS);
    });
    let reads = leaf.reads.iter().flatten().map(|off| leaf_place + off).collect();
    listener.load_after_prefetches(EARLY_PREFETCHES, reads);
    operate(tree, operation, key)?;
    if operation == Operation::Search {
        return Ok(());
    }
    let after = tree.dram_way(key, access);
    listener.tell(|model| leaf.stores.iter().for_each(|off| model.store_dram(leaf_place + off)));
    // A division adds a child to the node above, and a join takes one out, in place where that is possible;
    // or they write images of nodes above anew. And a division makes a leaf's descriptor. Its instructions
    // take no time, as those of the other trees' divisions.
    for (old, new) in way.iter().rev().zip(after.iter().rev()).skip(1) {
        let old_place = dram.place(old.address, old.bytes);
        if old.address != new.address {
            let place = dram.place(new.address, new.bytes);
            listener.tell(|model| {
                model.prefetch(old_place, old.bytes);
                model.load(old_place, old.bytes);
                store_all(model, place, new.bytes);
            });
        } else if old.children != new.children {
            listener.tell(|model| old.stores.iter().for_each(|off| model.store_dram(old_place + off)));
        } else {
            continue;
        }
        if old.level == 1 && old.children < new.children {
            let place = dram.place(dram.free, leaf.bytes);
            listener.tell(|model| store_all(model, place, leaf.bytes));
        }
    }
    Ok(())
}

fn store_all(model: &mut Model, place: u64, bytes: u64) {
    (0..bytes).step_by(8).for_each(|off| model.store_dram(place + off));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(case: Case, params: &Params, medium: &str) -> ModelRun {
        in_model(case, &Keys::new(20_000, 1_000, 5), params, medium).unwrap()
    }

    /// The costs that the map promises, seen from outside: a line and a fence for each change, two words,
    /// none for a search.
    #[test]
    fn the_model_sees_what_the_map_costs() {
        let params = Params::wbtree();
        let [search, insert, delete, full] = Case::ALL.map(|case| run(case, &params, "pcm"));
        let counts = |run: &ModelRun| {
            (run.each(run.cost.stores), run.each(run.cost.flushes), run.each(run.cost.fences))
        };
        assert_eq!(counts(&search), (0.0, 0.0, 0.0));
        assert_eq!(counts(&insert), (2.0, 1.0, 1.0));
        assert_eq!(counts(&delete), (1.0, 1.0, 1.0));
        assert!(counts(&full).1 > 2.0, "leaves are divided: {:?}", counts(&full));
        for run in [search, insert, delete, full] {
            assert!(run.cost.dram_lines_read > 0 && run.cost.lines_read > 0);
        }
        assert!(full.cost.dram_lines_read + full.cost.dram_lines_written > insert.cost.dram_lines_read);
    }

    /// A search asks for two lines before it looks at the leaf's descriptor: as many as [`EARLY_PREFETCHES`].
    #[test]
    fn the_model_tells_the_descriptor_where_the_search_reads_it() {
        #[derive(Default)]
        struct Prefetches(std::sync::Mutex<(u32, Option<u32>)>);
        impl tembo_pmem::Observer for Prefetches {
            fn store(&self, _: tembo_pmem::ThreadTag, _: u64, _: &[u8]) {}
            fn flush(&self, _: tembo_pmem::ThreadTag, _: u64) {}
            fn fence(&self, _: tembo_pmem::ThreadTag) {}
            fn wants_loads(&self) -> bool {
                true
            }
            fn load(&self, _: tembo_pmem::ThreadTag, _: u64, _: u64) {
                let mut state = self.0.lock().unwrap();
                let so_far = state.0;
                state.1.get_or_insert(so_far);
            }
            fn prefetch(&self, _: tembo_pmem::ThreadTag, _: u64) {
                self.0.lock().unwrap().0 += 1;
            }
        }
        let seen = Arc::new(Prefetches::default());
        let region = Region::simulated(&vec![0; 8 << 20], 8 << 20, Some(seen.clone())).unwrap();
        let geometry = Geometry { zone_chunks: 1 << 12, ..Geometry::default() };
        let tree = U64Tree::create(&Pool::create_in(region, &geometry).unwrap(), NAME).unwrap();
        (0..10_000).for_each(|key| assert_eq!(tree.put(key, key).unwrap(), None));
        *seen.0.lock().unwrap() = (0, None);
        assert_eq!(tree.get(5000).unwrap(), Some(5000));
        assert_eq!(seen.0.lock().unwrap().1, Some(EARLY_PREFETCHES));
    }
}
