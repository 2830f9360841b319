//! Threads that change the same collections: sums and counts stay, and nothing is lost.

use super::{Place, Tested, prove, turn};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use tembo_heap::collections::{PHashMap, PMap, PString, PVec};
use tembo_heap::{Heap, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    ordered: PMap<u64, u64>,
    hashed: PHashMap<u64, u64>,
    texts: PHashMap<PString, PVec<u64>>,
}

const THREADS: u64 = 3;
const ROUNDS: u64 = 3000;

/// Each thread has keys of its own, which are neighbours of the others' in the maps; whatever a transaction
/// does to one map it does to the other.
#[test]
fn threads_with_keys_of_their_own_find_what_they_left() {
    let _turn = turn();
    let mut random = super::random("keys");
    let place = Place::new();
    let heap = place.open::<Tested, Root>();
    let seeds: Vec<u64> = (0..THREADS).map(|_| random.random()).collect();
    let models: Vec<BTreeMap<u64, u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = seeds
            .iter()
            .zip(0..)
            .map(|(seed, me)| {
                let heap = &heap;
                scope.spawn(move || work(heap, me, Xoshiro256PlusPlus::seed_from_u64(*seed)))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let all: BTreeMap<u64, u64> = models.into_iter().flatten().collect();
    heap.read(|tx, root| {
        assert_eq!(root.ordered().len(tx)?, all.len());
        assert_eq!(root.hashed().len(tx)?, all.len());
        for (entry, expected) in root.ordered().iter(tx)?.zip(&all) {
            let (key, place) = entry?;
            assert_eq!((&key, &tx.get(place)?), expected);
        }
        for (key, value) in &all {
            assert_eq!(root.hashed().value(tx, key)?, Some(*value));
            let list = root.texts().get(tx, &text(*key))?.unwrap();
            assert_eq!(list.to_vec(tx)?.last(), Some(value));
        }
        Ok(())
    })
    .unwrap();
    prove(&heap);
}

fn text(key: u64) -> String {
    format!("the text of number {key}")
}

fn work(heap: &Heap<Tested, Root>, me: u64, mut random: Xoshiro256PlusPlus) -> BTreeMap<u64, u64> {
    let mut model = BTreeMap::new();
    for _ in 0..ROUNDS {
        let key = random.random_range(0..400) * THREADS + me;
        let (value, is_removal) = (random.random::<u64>(), random.random_ratio(1, 3));
        let (old, other) = heap
            .write(|tx, root| {
                if is_removal {
                    root.texts().remove(tx, &text(key))?;
                    Ok((root.ordered().take(tx, &key)?, root.hashed().take(tx, &key)?))
                } else {
                    let list = root.texts().get_or_insert_with(tx, &text(key), PVec::new)?;
                    list.push(tx, value)?;
                    let old = root.ordered().replace(tx, &key, value)?;
                    Ok((old, root.hashed().replace(tx, &key, value)?))
                }
            })
            .unwrap();
        assert_eq!(old, other);
        assert_eq!(old, if is_removal { model.remove(&key) } else { model.insert(key, value) });
    }
    model
}

#[test]
fn entries_that_move_between_maps_are_in_one_of_them_whenever_one_looks() {
    let _turn = turn();
    const ENTRIES: u64 = 500;
    let mut random = super::random("sums");
    let place = Place::new();
    let heap = place.open::<Tested, Root>();
    for key in 0..ENTRIES {
        heap.write(|tx, root| root.ordered().replace(tx, &key, key)).unwrap();
    }
    let seeds: Vec<u64> = (0..THREADS).map(|_| random.random()).collect();
    std::thread::scope(|scope| {
        for seed in &seeds {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(*seed);
            let heap = &heap;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let key = random.random_range(0..ENTRIES);
                    heap.write(|tx, root| match root.ordered().take(tx, &key)? {
                        Some(value) => root.hashed().insert(tx, &key, value).map(drop),
                        None => {
                            let value = root.hashed().take(tx, &key)?;
                            assert_eq!(value, Some(key));
                            root.ordered().insert(tx, &key, key).map(drop)
                        }
                    })
                    .unwrap();
                    if round % 100 == 0 {
                        look(heap, ENTRIES).unwrap();
                    }
                }
            });
        }
    });
    look(&heap, ENTRIES).unwrap();
    prove(&heap);
}

fn look(heap: &Heap<Tested, Root>, entries: u64) -> Result<()> {
    heap.read(|tx, root| {
        let mut seen = Vec::new();
        for entry in root.ordered().iter(tx)? {
            seen.push(entry?.0);
        }
        for entry in root.hashed().iter(tx)? {
            seen.push(entry?.0);
        }
        assert_eq!(root.ordered().len(tx)? + root.hashed().len(tx)?, entries as usize);
        seen.sort_unstable();
        assert_eq!(seen, (0..entries).collect::<Vec<u64>>());
        Ok(())
    })
}
