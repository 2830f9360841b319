//! `PHashMap`.

mod sizes;

use super::{Place, Tested, compare, objects, prove, turn};
use rand::Rng;
use std::collections::{BTreeMap, HashMap};
use tembo_heap::collections::{MapKey, PHashMap, PString};
use tembo_heap::{Heap, Obj, PRc, Persist, Result, Tx};
use tembo_pmem::{Counts, snapshot};

#[derive(Persist)]
#[repr(C)]
struct Leaf {
    value: u64,
}

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    numbers: PHashMap<u64, u64>,
    texts: PHashMap<PString, PRc<Leaf>>,
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64, u64),
    Remove(u64),
    Replace(u64, u64),
    Take(u64),
    Count(u64),
    Clear,
}

/// Some are short, some not.
fn text(key: u64) -> String {
    format!("{key}{}", "-".repeat((key % 29) as usize))
}

fn model(map: &mut HashMap<u64, u64>, op: &Op) -> Option<u64> {
    match *op {
        Op::Insert(key, value) | Op::Replace(key, value) => map.insert(key, value),
        Op::Remove(key) | Op::Take(key) => map.remove(&key),
        Op::Count(key) => {
            *map.entry(key).or_default() += 1;
            map.get(&key).copied()
        }
        Op::Clear => {
            map.clear();
            None
        }
    }
}

fn change<'t>(tx: &mut Tx<'t, Tested>, root: Obj<'t, Tested, Root>, op: &Op) -> Result<Option<u64>> {
    let (numbers, texts) = (root.numbers(), root.texts());
    let put = |tx: &mut Tx<'t, Tested>, key: u64, value: u64| {
        let slot = texts.insert(tx, &text(key), PRc::null())?;
        let leaf = tx.alloc(Leaf { value })?;
        tx.link(slot, leaf)
    };
    match *op {
        Op::Insert(key, value) => {
            let old = numbers.value(tx, &key)?;
            let place = numbers.insert(tx, &key, value)?;
            assert_eq!(tx.get(place)?, value);
            put(tx, key, value)?;
            Ok(old)
        }
        Op::Replace(key, value) => {
            put(tx, key, value)?;
            numbers.replace(tx, &key, value)
        }
        Op::Remove(key) => {
            let old = numbers.value(tx, &key)?;
            assert_eq!(numbers.remove(tx, &key)?, old.is_some());
            assert_eq!(texts.remove(tx, &text(key))?, old.is_some());
            Ok(old)
        }
        Op::Take(key) => {
            texts.remove(tx, &text(key))?;
            numbers.take(tx, &key)
        }
        Op::Count(key) => {
            let place = numbers.get_or_insert_with(tx, &key, || 0)?;
            *tx.get_mut(place)? += 1;
            let value = tx.get(place)?;
            put(tx, key, value)?;
            Ok(Some(value))
        }
        Op::Clear => {
            numbers.clear(tx)?;
            texts.clear(tx)?;
            Ok(None)
        }
    }
}

fn same(heap: &Heap<Tested, Root>, map: &HashMap<u64, u64>) {
    heap.read(|tx, root| {
        assert_eq!(root.numbers().len(tx)?, map.len());
        assert_eq!(root.texts().len(tx)?, map.len());
        let mut found = HashMap::new();
        for entry in root.numbers().iter(tx)? {
            let (key, value) = entry?;
            assert_eq!(found.insert(key, tx.get(value)?), None);
        }
        assert_eq!(found, *map);
        let mut found = BTreeMap::new();
        for entry in root.texts().iter(tx)? {
            let (key, slot) = entry?;
            assert_eq!(found.insert(key, tx.get(tx.load(slot)?.unwrap().value())?), None);
        }
        assert_eq!(found, map.iter().map(|(key, value)| (text(*key), *value)).collect());
        for (key, value) in map {
            assert_eq!(root.numbers().value(tx, key)?, Some(*value));
            assert!(root.texts().contains(tx, &text(*key))?);
            assert_eq!(root.numbers().contains(tx, &(key + 1))?, map.contains_key(&(key + 1)));
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn hash_maps_of_numbers_and_texts_are_as_hash_map() {
    let _turn = turn();
    let op = |random: &mut rand_xoshiro::Xoshiro256PlusPlus, map: &HashMap<u64, u64>| {
        let most = if map.len() > 400 { 800 } else { 4000 };
        let (key, value) = (random.random_range(0..most), random.random());
        match random.random_range(0..1000) {
            0..550 => Op::Insert(key, value),
            550..600 => Op::Replace(key, value),
            600..700 => Op::Count(key),
            700..850 => Op::Remove(key),
            850..997 => Op::Take(key),
            _ => Op::Clear,
        }
    };
    compare::<Tested, Root, HashMap<u64, u64>, _, _>(
        "hash",
        (1200, 20),
        HashMap::new(),
        op,
        model,
        change,
        same,
    );
}

#[test]
fn a_map_that_grows_over_several_sizes_has_everything_at_every_step() {
    let _turn = turn();
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        map: PHashMap<u64, u64>,
    }
    let place = Place::new();
    let mut heap = place.open::<Tested, Root>();
    let before = objects(&heap);
    for batch in 0..120_u64 {
        heap.write(|tx, root| {
            for key in 100 * batch..100 * batch + 100 {
                assert_eq!(root.map().replace(tx, &key, !key)?, None);
            }
            Ok(())
        })
        .unwrap();
        heap.read(|tx, root| {
            assert_eq!(root.map().len(tx)?, 100 * batch as usize + 100);
            for key in 0..100 * batch + 100 {
                assert_eq!(root.map().value(tx, &key)?, Some(!key), "{key} of {batch}");
            }
            assert_eq!(root.map().iter(tx)?.count(), 100 * batch as usize + 100);
            Ok(())
        })
        .unwrap();
        if batch % 10 == 0 {
            prove(&heap);
            drop(heap);
            heap = place.open();
        }
    }
    heap.write(|tx, root| {
        for key in (0..12_000).step_by(2) {
            assert_eq!(root.map().take(tx, &key)?, Some(!key));
        }
        Ok(())
    })
    .unwrap();
    heap.read(|tx, root| {
        assert_eq!(root.map().len(tx)?, 6000);
        for key in 0..12_000 {
            assert_eq!(root.map().contains(tx, &key)?, key % 2 == 1);
        }
        Ok(())
    })
    .unwrap();
    prove(&heap);
    heap.write(|tx, root| root.map().clear(tx)).unwrap();
    prove(&heap);
    assert_eq!(objects(&heap), before);
}

#[derive(Default, Persist)]
#[repr(C)]
struct Emptied {
    map: PHashMap<u64, u64>,
    texts: PHashMap<PString, PRc<Leaf>>,
}

/// Puts keys into both maps, or takes them out.
fn change_both(heap: &Heap<Tested, Emptied>, keys: &[u64], is_there: bool, there: &mut [bool]) {
    heap.write(|tx, root| {
        for key in keys {
            if is_there {
                assert_eq!(root.map().replace(tx, key, !key)?, None);
                let slot = root.texts().insert(tx, &text(*key), PRc::null())?;
                let leaf = tx.alloc(Leaf { value: *key })?;
                tx.link(slot, leaf)?;
            } else {
                assert_eq!(root.map().take(tx, key)?, Some(!key));
                assert!(root.texts().remove(tx, &text(*key))?);
            }
        }
        Ok(())
    })
    .unwrap();
    keys.iter().for_each(|key| there[*key as usize] = is_there);
}

fn assert_has(heap: &Heap<Tested, Emptied>, there: &[bool]) {
    heap.read(|tx, root| {
        let count = there.iter().filter(|is_there| **is_there).count();
        assert_eq!((root.map().len(tx)?, root.texts().len(tx)?), (count, count));
        assert_eq!((root.map().iter(tx)?.count(), root.texts().iter(tx)?.count()), (count, count));
        for (key, is_there) in (0..).zip(there) {
            assert_eq!(root.map().value(tx, &key)?, is_there.then_some(!key), "{key}");
            assert_eq!(root.texts().contains(tx, &text(key))?, *is_there, "{key}");
        }
        Ok(())
    })
    .unwrap();
}

/// The map becomes smaller while it is emptied, in every state of it: while it grows, while it shrinks, and
/// with insertions in between.
#[test]
fn a_map_that_is_emptied_has_everything_at_every_step_and_gives_its_buckets_back() {
    let _turn = turn();
    const KEYS: u64 = 30_000;
    let place = Place::new();
    let mut heap = place.open::<Tested, Emptied>();
    let mut there = vec![false; KEYS as usize];
    for keys in (0..KEYS).collect::<Vec<_>>().chunks(500) {
        change_both(&heap, keys, true, &mut there);
    }
    let full = objects(&heap);
    // 7 and the number of keys have no common divisor.
    for (batch, keys) in (0..KEYS - 300).map(|i| i * 7 % KEYS).collect::<Vec<_>>().chunks(300).enumerate() {
        change_both(&heap, keys, false, &mut there);
        if batch % 3 == 0 {
            // Some come back, and go again.
            change_both(&heap, &keys[..100], true, &mut there);
            assert_has(&heap, &there);
            change_both(&heap, &keys[..100], false, &mut there);
        }
        if batch % 25 == 0 {
            prove(&heap);
            drop(heap);
            heap = place.open();
        }
    }
    assert_has(&heap, &there);
    prove(&heap);
    let left: Vec<u64> = (0..KEYS).filter(|key| there[*key as usize]).collect();
    assert_eq!(left.len(), 300);
    // Each text entry takes two objects or three, and its map has 1024 buckets in five segments at most.
    assert!(full > 2 * KEYS + 60 && objects(&heap) < 3 * 300 + 40, "{full} {}", objects(&heap));
    change_both(&heap, &left, false, &mut there);
    assert_has(&heap, &there);
    prove(&heap);
}

/// A map of a size at which it has just grown, or just shrunk, does neither again for a few changes.
#[test]
fn a_map_does_not_grow_and_shrink_by_turns() {
    let _turn = turn();
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        map: PHashMap<u64, u64>,
    }
    let mut place = Place::new();
    place.options = place.options.count(true);
    let heap = place.open::<Tested, Root>();
    for key in 0..3000 {
        heap.write(|tx, root| root.map().replace(tx, &key, key)).unwrap();
        // The last of them, over and over.
        if key % 50 == 0 {
            let before = snapshot();
            for _ in 0..20 {
                heap.write(|tx, root| root.map().take(tx, &key)).unwrap();
                heap.write(|tx, root| root.map().replace(tx, &key, key)).unwrap();
            }
            let words = (snapshot() - before).words;
            assert!(words < 20 * 2 * 60 + 2 * 2300, "{words} at {key}");
        }
    }
    prove(&heap);
}

#[test]
fn an_insertion_into_a_large_map_writes_a_bounded_number_of_words() {
    let _turn = turn();
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        map: PHashMap<u64, u64>,
    }
    let mut place = Place::new();
    place.options = place.options.count(true);
    let heap = place.open::<Tested, Root>();
    let (mut most, mut all) = (Counts::default(), Counts::default());
    const KEYS: u64 = 40_000;
    for key in 0..KEYS {
        let before = snapshot();
        heap.write(|tx, root| root.map().replace(tx, &key, key)).unwrap();
        let cost = snapshot() - before;
        all.words += cost.words;
        all.fences += cost.fences;
        most.words = most.words.max(cost.words);
    }
    println!("at most {} words, on average {}", most.words, all.words / KEYS);
    // Two buckets are divided at most, so that two segments are made at most, of 2048 words each.
    assert!(most.words < 2 * 2048 + 256, "{}", most.words);
    assert!(all.words / KEYS < 60, "{}", all.words / KEYS);
    assert!(all.fences < KEYS + KEYS / 50, "{}", all.fences);
    prove(&heap);
    (most, all) = (Counts::default(), Counts::default());
    for key in 0..KEYS {
        let before = snapshot();
        heap.write(|tx, root| root.map().take(tx, &key)).unwrap();
        let cost = snapshot() - before;
        all.words += cost.words;
        all.fences += cost.fences;
        most.words = most.words.max(cost.words);
    }
    println!("a removal: at most {} words, on average {}", most.words, all.words / KEYS);
    // Four buckets' entries move at most, and what dies is given back in bounded parts.
    assert!(most.words < 512, "{}", most.words);
    assert!(all.words / KEYS < 60, "{}", all.words / KEYS);
    assert!(all.fences < 2 * KEYS, "{}", all.fences);
    prove(&heap);
}

#[test]
fn places_of_values_harm_nothing_when_they_are_kept_for_too_long() {
    let _turn = turn();
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        map: PHashMap<u64, PRc<Leaf>>,
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
            let mut keys = root.map().iter(tx)?.map(|entry| Ok(entry?.0)).collect::<Result<Vec<_>>>()?;
            keys.sort_unstable();
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

/// Keys that belong into the first of 2^12 buckets, whatever the map's size up to that.
fn keys_of_one_bucket(count: usize) -> Vec<u64> {
    (0_u64..).filter(|key| <u64 as MapKey>::hash(key).trailing_zeros() >= 12).take(count).collect()
}

#[test]
fn entries_of_one_bucket_lie_in_others_behind_it_which_go_when_they_are_empty() {
    let _turn = turn();
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        map: PHashMap<u64, u64>,
        pointers: PHashMap<u64, PRc<Leaf>>,
    }
    let place = Place::new();
    let heap = place.open::<Tested, Root>();
    let mut keys = keys_of_one_bucket(41);
    let last = keys.pop().unwrap();
    for others in [0..0, 0..1000_u64, 1000..3000] {
        heap.write(|tx, root| {
            for key in others.clone().filter(|key| !keys.contains(key) && *key != last) {
                root.map().insert(tx, &key, 1)?;
                root.pointers().insert(tx, &key, PRc::null())?;
            }
            Ok(())
        })
        .unwrap();
        let count =
            |heap: &Heap<Tested, Root>| (objects(heap), heap.read(|tx, root| root.map().len(tx)).unwrap());
        for key in &keys {
            heap.write(|tx, root| {
                assert_eq!(root.map().replace(tx, key, !key)?, None);
                let place = root.pointers().insert(tx, key, PRc::null())?;
                let leaf = tx.alloc(Leaf { value: *key })?;
                tx.link(place, leaf)
            })
            .unwrap();
        }
        prove(&heap);
        let (full, len) = count(&heap);
        heap.read(|tx, root| {
            for key in &keys {
                assert_eq!(root.map().value(tx, key)?, Some(!key));
                let leaf = tx.load(root.pointers().get(tx, key)?.unwrap())?.unwrap();
                assert_eq!(tx.get(leaf.value())?, *key);
            }
            assert_eq!((root.map().value(tx, &last)?, root.map().iter(tx)?.count()), (None, len));
            Ok(())
        })
        .unwrap();
        // In another order than they came.
        for (at, key) in keys.iter().enumerate().map(|(i, _)| (i, keys[i * 7 % keys.len()])) {
            heap.write(|tx, root| {
                assert_eq!(root.map().take(tx, &key)?, Some(!key), "{at}");
                assert!(root.pointers().remove(tx, &key)?);
                Ok(())
            })
            .unwrap();
        }
        prove(&heap);
        // Forty leaves, and at least ten buckets behind the first of each map, as three entries fit into one.
        let (left, len_left) = count(&heap);
        assert!(full - left >= 40 + 2 * 10, "{full} {left}");
        assert_eq!(len - len_left, keys.len());
    }
}

#[test]
fn hashes_are_what_they_were_when_heaps_were_written() {
    let _turn = turn();
    assert_eq!(<u64 as MapKey>::hash(&0x0102_0304_0506_0708), 10_416_736_986_388_286_110);
    assert_eq!(<PString as MapKey>::hash("tembo"), 16_320_286_123_239_507_498);
}
