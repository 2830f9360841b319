//! `PMap`.

use super::{Place, Tested, compare, objects, prove, turn};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::ops::Bound;
use tembo_heap::collections::{PMap, PString};
use tembo_heap::{Heap, Obj, PRc, Persist, ReadTx, Result, Tx};

#[derive(Persist)]
#[repr(C)]
struct Leaf {
    value: u64,
}

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    numbers: PMap<u64, u64>,
    /// Keys and values that are no whole words.
    odd: PMap<[u8; 3], u16>,
    texts: PMap<PString, PRc<Leaf>>,
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64, u64),
    Remove(u64),
    Replace(u64, u64),
    Take(u64),
    Count(u64),
    RemoveRange(u64, usize),
    Range(Bound<u64>, Bound<u64>, Vec<bool>),
    Clear,
}

type Model = BTreeMap<u64, u64>;

/// In the order of the keys; some are short, some not.
fn text(key: u64) -> String {
    format!("{key:06}{}", "-".repeat((key % 29) as usize))
}

fn odd(key: u64) -> [u8; 3] {
    [(key >> 16) as u8, (key >> 8) as u8, key as u8]
}

fn model(map: &mut Model, op: &Op) -> Vec<(u64, u64)> {
    let old = match *op {
        Op::Insert(key, value) | Op::Replace(key, value) => map.insert(key, value),
        Op::Remove(key) | Op::Take(key) => map.remove(&key),
        Op::Count(key) => {
            *map.entry(key).or_default() += 1;
            map.get(&key).copied()
        }
        Op::RemoveRange(from, count) => {
            let keys: Vec<u64> = map.range(from..).map(|(key, _)| *key).take(count).collect();
            map.retain(|key, _| !keys.contains(key));
            None
        }
        Op::Range(from, to, ref ends) => {
            let mut range = map.range((from, to));
            let steps =
                ends.iter().map_while(|forward| if *forward { range.next() } else { range.next_back() });
            return steps.map(|(key, value)| (*key, *value)).collect();
        }
        Op::Clear => {
            map.clear();
            None
        }
    };
    old.map(|value| (0, value)).into_iter().collect()
}

fn put<'t>(tx: &mut Tx<'t, Tested>, root: Obj<'t, Tested, Root>, key: u64, value: u64) -> Result<()> {
    let slot = root.texts().insert(tx, &text(key), PRc::null())?;
    let leaf = tx.alloc(Leaf { value })?;
    tx.link(slot, leaf)?;
    root.odd().replace(tx, &odd(key), value as u16)?;
    Ok(())
}

fn drop_key<'t>(tx: &mut Tx<'t, Tested>, root: Obj<'t, Tested, Root>, key: u64) -> Result<bool> {
    root.odd().take(tx, &odd(key))?;
    root.texts().remove(tx, &text(key))
}

fn change<'t>(tx: &mut Tx<'t, Tested>, root: Obj<'t, Tested, Root>, op: &Op) -> Result<Vec<(u64, u64)>> {
    let numbers = root.numbers();
    let old = match *op {
        Op::Insert(key, value) => {
            let old = numbers.value(tx, &key)?;
            let place = numbers.insert(tx, &key, value)?;
            assert_eq!(tx.get(place)?, value);
            put(tx, root, key, value)?;
            old
        }
        Op::Replace(key, value) => {
            put(tx, root, key, value)?;
            numbers.replace(tx, &key, value)?
        }
        Op::Remove(key) => {
            let old = numbers.value(tx, &key)?;
            assert_eq!(numbers.remove(tx, &key)?, old.is_some());
            assert_eq!(drop_key(tx, root, key)?, old.is_some());
            old
        }
        Op::Take(key) => {
            drop_key(tx, root, key)?;
            numbers.take(tx, &key)?
        }
        Op::Count(key) => {
            let place = numbers.get_or_insert_with(tx, &key, || 0)?;
            *tx.get_mut(place)? += 1;
            let value = tx.get(place)?;
            put(tx, root, key, value)?;
            Some(value)
        }
        Op::RemoveRange(from, count) => {
            let keys = numbers.range(tx, from..)?.take(count).map(|entry| Ok(entry?.0));
            for key in keys.collect::<Result<Vec<u64>>>()? {
                assert!(numbers.remove(tx, &key)?);
                assert!(drop_key(tx, root, key)?);
            }
            None
        }
        Op::Range(from, to, ref ends) => {
            let mut range = numbers.range(tx, (from, to))?;
            let steps =
                ends.iter().map_while(|forward| if *forward { range.next() } else { range.next_back() });
            return steps.map(|step| step.and_then(|(key, place)| Ok((key, tx.get(place)?)))).collect();
        }
        Op::Clear => {
            numbers.clear(tx)?;
            root.odd().clear(tx)?;
            root.texts().clear(tx)?;
            None
        }
    };
    Ok(old.map(|value| (0, value)).into_iter().collect())
}

fn all<'t>(
    tx: &ReadTx<'t, Tested>,
    map: tembo_heap::Ref<'t, Tested, PMap<u64, u64>>,
) -> Result<Vec<(u64, u64)>> {
    map.iter(tx)?.map(|entry| entry.and_then(|(key, place)| Ok((key, tx.get(place)?)))).collect()
}

fn same(heap: &Heap<Tested, Root>, map: &Model) {
    heap.read(|tx, root| {
        assert_eq!(root.numbers().len(tx)?, map.len());
        assert_eq!(root.texts().len(tx)?, map.len());
        assert_eq!(root.numbers().is_empty(tx)?, map.is_empty());
        assert_eq!(all(tx, root.numbers())?, map.clone().into_iter().collect::<Vec<_>>());
        let backwards: Vec<u64> = root.numbers().iter(tx)?.rev().map(|e| Ok(e?.0)).collect::<Result<_>>()?;
        assert_eq!(backwards, map.keys().rev().copied().collect::<Vec<_>>());
        let texts = root.texts().iter(tx)?.map(|entry| {
            let (key, slot) = entry?;
            Ok((key, tx.get(tx.load(slot)?.unwrap().value())?))
        });
        let expected: Vec<_> = map.iter().map(|(key, value)| (text(*key), *value)).collect();
        assert_eq!(texts.collect::<Result<Vec<_>>>()?, expected);
        let odds = root.odd().iter(tx)?.map(|e| e.and_then(|(key, place)| Ok((key, tx.get(place)?))));
        let expected: Vec<_> = map.iter().map(|(key, value)| (odd(*key), *value as u16)).collect();
        assert_eq!(odds.collect::<Result<Vec<_>>>()?, expected);
        for key in map.keys() {
            assert_eq!(root.numbers().value(tx, key)?, map.get(key).copied());
            assert!(root.texts().contains(tx, &text(*key))?);
            assert_eq!(root.numbers().contains(tx, &(key + 1))?, map.contains_key(&(key + 1)));
        }
        let first = root.numbers().first(tx)?.map(|(key, _)| key);
        assert_eq!(first, map.keys().next().copied());
        let last = root.texts().last(tx)?.map(|(key, _)| key);
        assert_eq!(last, map.keys().next_back().map(|key| text(*key)));
        Ok(())
    })
    .unwrap();
}

#[test]
fn ordered_maps_of_numbers_and_texts_are_as_btree_map() {
    let _turn = turn();
    fn bound(random: &mut impl Rng, key: u64) -> Bound<u64> {
        match random.random_range(0..4) {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(key),
            _ => Bound::Included(key),
        }
    }
    let op = |random: &mut rand_xoshiro::Xoshiro256PlusPlus, map: &Model| {
        let most = if map.len() > 1500 { 2000 } else { 5000 };
        let (key, value) = (random.random_range(0..most), random.random());
        // For a while there are more insertions, for a while more removals.
        let insertions = if map.len() % 2000 < 1000 { 600 } else { 400 };
        match random.random_range(0..1000) {
            i if i < insertions - 200 => Op::Insert(key, value),
            i if i < insertions - 100 => Op::Replace(key, value),
            i if i < insertions => Op::Count(key),
            i if i < insertions + 150 => Op::Remove(key),
            i if i < insertions + 200 => Op::Take(key),
            997 => Op::Clear,
            990..1000 => Op::RemoveRange(key, random.random_range(0..300)),
            _ => {
                let end = key + random.random_range(0..300);
                let ends = (0..random.random_range(0..60)).map(|_| random.random()).collect();
                let (from, to) = (bound(random, key), bound(random, end));
                match (from, to) {
                    // Which the standard library refuses.
                    (Bound::Excluded(a), Bound::Excluded(b)) if a == b => Op::Take(a),
                    _ => Op::Range(from, to, ends),
                }
            }
        }
    };
    compare::<Tested, Root, Model, _, _>("ordered", (1500, 40), Model::new(), op, model, change, same);
}

#[test]
fn a_large_map_grows_and_shrinks_in_any_order() {
    let _turn = turn();
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        map: PMap<u64, u64>,
    }
    let place = Place::new();
    let heap = place.open::<Tested, Root>();
    let before = objects(&heap);
    let mut random = super::random("grown");
    let mut seed = || rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(random.random());
    let keys = |order: u32, random: &mut rand_xoshiro::Xoshiro256PlusPlus| {
        let mut keys: Vec<u64> = (0..6000).collect();
        match order {
            0 => {}
            1 => keys.reverse(),
            _ => keys.shuffle(random),
        }
        keys
    };
    for (insert, remove) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (0, 2), (2, 1)] {
        let mut random = seed();
        for keys in keys(insert, &mut random).chunks(64) {
            heap.write(|tx, root| {
                for key in keys {
                    assert_eq!(root.map().replace(tx, key, !key)?, None);
                }
                Ok(())
            })
            .unwrap();
        }
        prove(&heap);
        heap.read(|tx, root| {
            assert_eq!(root.map().len(tx)?, 6000);
            for (entry, expected) in root.map().iter(tx)?.zip(0..) {
                assert_eq!(entry?.0, expected);
            }
            Ok(())
        })
        .unwrap();
        for keys in keys(remove, &mut random).chunks(64) {
            heap.write(|tx, root| {
                for key in keys {
                    assert_eq!(root.map().take(tx, key)?, Some(!key));
                }
                Ok(())
            })
            .unwrap();
        }
        heap.read(|tx, root| {
            assert_eq!((root.map().is_empty(tx)?, root.map().len(tx)?), (true, 0));
            assert!(root.map().first(tx)?.is_none());
            Ok(())
        })
        .unwrap();
        prove(&heap);
        assert_eq!(objects(&heap), before);
    }
}

#[test]
fn places_of_values_harm_nothing_when_they_are_kept_for_too_long() {
    let _turn = turn();
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        map: PMap<u64, PRc<Leaf>>,
    }
    let place = Place::new();
    let heap = place.open::<Tested, Root>();
    let before = objects(&heap);
    for round in 0..4 {
        heap.write(|tx, root| {
            let map = root.map();
            let mut slots = Vec::new();
            for key in (0..800).map(|i| i * 37 % 800) {
                let slot = map.insert(tx, &key, PRc::null())?;
                let leaf = tx.alloc(Leaf { value: key })?;
                // It is this entry's until the next is inserted.
                tx.link(slot, leaf)?;
                assert_eq!(map.get(tx, &key)?.map(|slot| tx.load(slot)).transpose()?.flatten(), Some(leaf));
                slots.push(slot);
            }
            for key in (0..800).filter(|key| key % 4 != 0 || round == 3) {
                assert!(map.remove(tx, &key)?);
            }
            // A link in a free place is counted too.
            for slot in slots {
                let leaf = tx.alloc(Leaf { value: 1000 })?;
                tx.link(slot, leaf)?;
            }
            Ok(())
        })
        .unwrap();
        prove(&heap);
        heap.read(|tx, root| {
            let keys = root.map().iter(tx)?.map(|entry| Ok(entry?.0)).collect::<Result<Vec<_>>>()?;
            let kept = (0..800).filter(|key| key % 4 == 0 && round < 3).collect::<Vec<u64>>();
            assert_eq!(keys, kept);
            Ok(())
        })
        .unwrap();
        // It is written over.
        heap.write(|tx, root| {
            for key in 0..2000 {
                let slot = root.map().insert(tx, &key, PRc::null())?;
                assert_eq!(tx.load(slot)?, None);
            }
            Ok(())
        })
        .unwrap();
        prove(&heap);
        heap.write(|tx, root| root.map().clear(tx)).unwrap();
        prove(&heap);
        assert_eq!(objects(&heap), before);
    }
}

#[test]
fn texts_are_found_by_ranges_of_str() {
    let _turn = turn();
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        map: PMap<PString, u32>,
    }
    let place = Place::new();
    let heap = place.open::<Tested, Root>();
    heap.write(|tx, root| {
        for word in ["zebra", "a", "", "a longer text than lies in the map", "ab"] {
            root.map().replace(tx, word, word.len() as u32)?;
        }
        let found = root.map().range(tx, (Bound::Excluded("a"), Bound::Included("zebra")))?;
        let found: Vec<String> = found.map(|entry| Ok(entry?.0)).collect::<Result<_>>()?;
        assert_eq!(found, ["a longer text than lies in the map", "ab", "zebra"]);
        Ok(())
    })
    .unwrap();
    prove(&heap);
}
