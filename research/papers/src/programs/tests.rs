//! Tests that every program passes, wherever it runs.

use super::*;
use rand::SeedableRng;
use tembo_pmem::Durability;
use tembo_pool::Options;

/// A small pool in memory.
pub(super) fn pool() -> Pool {
    let dir = tempfile::tempdir().unwrap();
    open(&dir.path().join("programs.pool"))
}

fn open(path: &std::path::Path) -> Pool {
    let mut options = Options::new().durability(Durability::PageCache);
    options.create = true;
    Pool::open(path, &options).unwrap()
}

/// Every pointer valid, every count exact, nothing lost.
fn check_heap(pool: &Pool) {
    let mut marks = pool.marks().unwrap();
    let summary = tembo_heap::check(pool, &mut marks).unwrap();
    assert_eq!((summary.orphans, summary.circles.len()), (0, 0));
    marks.finish().unwrap();
}

/// The same operations end in the same state in the heap and in ordinary memory; the state is there when the
/// heap is opened again, where the program goes on.
#[test]
fn heaps_and_ordinary_memory_agree_and_what_is_in_heaps_stays() {
    let size = Size::quick(7);
    for kind in Kind::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program.pool");
        let twin = in_dram(kind, &size).unwrap();
        for seed in 0..2 {
            let mut random = Random::seed_from_u64(seed);
            twin.run(3000, &mut random).unwrap();
            let expected = twin.state().unwrap();
            let mut random = Random::seed_from_u64(seed);
            let found = on_heap(kind, &size, open(&path), |program| {
                program.run(3000, &mut random)?;
                program.state()
            });
            assert_eq!(found.unwrap(), expected, "{}, seed {seed}", kind.name());
            let pool = open(&path);
            check_heap(&pool);
            let found = on_heap(kind, &size, pool, |program| program.state()).unwrap();
            assert_eq!(found, expected, "{} opened again", kind.name());
        }
    }
}

#[test]
fn threads_leave_a_state_that_the_program_can_have() {
    let size = Size::quick(3);
    for kind in Kind::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program.pool");
        let load = Load { operations: 1500, rounds: 1, seed: 5 };
        let rate = on_heap(kind, &size, open(&path), |program| {
            let rate = rate(program, 3, &load)?;
            program.state()?;
            Ok(rate)
        });
        assert!(rate.unwrap() > 0.0, "{}", kind.name());
        check_heap(&open(&path));
    }
}

/// Trees that are small enough for every shape: all keys in and out in several orders, and after each change
/// the tree is one.
#[test]
fn trees_and_tables_hold_what_was_put_into_them() {
    for kind in [Kind::BTree, Kind::HashTable, Kind::RbTree] {
        for keys in [1, 2, 3, 40, 600] {
            let size = Size { keys, ..Size::quick(1) };
            let program = in_dram(kind, &size).unwrap();
            let mut present: std::collections::BTreeSet<u64> = halves(keys).collect();
            let mut random = Random::seed_from_u64(keys);
            let mut twin = random.clone();
            for _ in 0..keys * 4 {
                program.run(1, &mut random).unwrap();
                let key = rand::Rng::random_range(&mut twin, 0..keys);
                if !present.remove(&key) {
                    present.insert(key);
                }
                let state = program.state().unwrap();
                assert!(state.iter().eq(&present), "{} after {key}: {state:?}", kind.name());
            }
        }
    }
}

#[test]
fn programs_begin_with_every_second_key() {
    for keys in [1, 2, 7, 1000] {
        let mut begin: Vec<u64> = halves(keys).collect();
        assert!(keys < 1000 || !begin.is_sorted());
        begin.sort_unstable();
        assert!(begin.into_iter().eq((0..keys).step_by(2)), "{keys}");
    }
}

/// Every layer of the heap does what the whole does, as long as nothing crashes and threads are as many as it
/// is for.
#[test]
fn layers_end_in_the_same_state() {
    let size = Size::quick(5);
    for kind in Kind::ALL {
        let twin = in_dram(kind, &size).unwrap();
        let mut random = Random::seed_from_u64(9);
        twin.run(2000, &mut random).unwrap();
        let expected = twin.state().unwrap();
        for layer in [Layer::Base, Layer::Safe, Layer::SequentialTx, Layer::ConcurrentTx, Layer::NoDur] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("program.pool");
            let found = on_layer(kind, &size, open(&path), layer, |program| {
                let mut random = Random::seed_from_u64(9);
                program.run(2000, &mut random)?;
                program.state()
            });
            assert_eq!(found.unwrap(), expected, "{} in {layer:?}", kind.name());
            if layer != Layer::Base {
                // A heap that was closed in order is sound without a log, too.
                check_heap(&open(&path));
            }
        }
        let load = Load { operations: 1500, rounds: 1, seed: 5 };
        let outcome = on_layer(kind, &size, pool(), Layer::NoDur, |program| {
            rate(program, 3, &load)?;
            program.state()
        });
        assert!(outcome.is_ok(), "{}: {outcome:?}", kind.name());
    }
}
