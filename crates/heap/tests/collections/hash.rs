//! `PHashMap`.

use crate::{Place, compare, objects, prove};
use rand::Rng;
use std::collections::{BTreeMap, HashMap};
use tembo_heap::collections::{MapKey, PHashMap, PString};
use tembo_heap::{Error, Heap, Obj, PRc, Persist, Result, Tx, brand};
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

brand!(Hashed);

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

fn change<'t>(tx: &mut Tx<'t, Hashed>, root: Obj<'t, Hashed, Root>, op: &Op) -> Result<Option<u64>> {
    let (numbers, texts) = (root.numbers(), root.texts());
    let put = |tx: &mut Tx<'t, Hashed>, key: u64, value: u64| {
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

fn same(heap: &Heap<Hashed, Root>, map: &HashMap<u64, u64>) {
    heap.read::<_, Error>(|tx, root| {
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
    compare::<Hashed, Root, HashMap<u64, u64>, _, _>(
        "hash",
        (1200, 20),
        HashMap::new(),
        op,
        model,
        change,
        same,
    );
}

brand!(Large);

#[test]
fn a_map_that_grows_over_several_sizes_has_everything_at_every_step() {
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        map: PHashMap<u64, u64>,
    }
    let place = Place::new();
    let mut heap = place.open::<Large, Root>();
    let before = objects(&heap);
    for batch in 0..120_u64 {
        heap.write::<_, Error>(|tx, root| {
            for key in 100 * batch..100 * batch + 100 {
                assert_eq!(root.map().replace(tx, &key, !key)?, None);
            }
            Ok(())
        })
        .unwrap();
        heap.read::<_, Error>(|tx, root| {
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
    heap.write::<_, Error>(|tx, root| {
        for key in (0..12_000).step_by(2) {
            assert_eq!(root.map().take(tx, &key)?, Some(!key));
        }
        Ok(())
    })
    .unwrap();
    heap.read::<_, Error>(|tx, root| {
        assert_eq!(root.map().len(tx)?, 6000);
        for key in 0..12_000 {
            assert_eq!(root.map().contains(tx, &key)?, key % 2 == 1);
        }
        Ok(())
    })
    .unwrap();
    prove(&heap);
    heap.write::<_, Error>(|tx, root| root.map().clear(tx)).unwrap();
    prove(&heap);
    assert_eq!(objects(&heap), before);
}

brand!(Counted);

#[test]
fn an_insertion_into_a_large_map_writes_a_bounded_number_of_words() {
    #[derive(Default, Persist)]
    #[repr(C)]
    struct Root {
        map: PHashMap<u64, u64>,
    }
    let mut place = Place::new();
    place.options.region.count = true;
    let heap = place.open::<Counted, Root>();
    let (mut most, mut all) = (Counts::default(), Counts::default());
    const KEYS: u64 = 40_000;
    for key in 0..KEYS {
        let before = snapshot();
        heap.write::<_, Error>(|tx, root| root.map().replace(tx, &key, key)).unwrap();
        let cost = snapshot() - before;
        all.words += cost.words;
        all.fences += cost.fences;
        most.words = most.words.max(cost.words);
    }
    println!("at most {} words, on average {}", most.words, all.words / KEYS);
    // Up to a segment's worth of entries move at once, each of which changes three pointers.
    assert!(most.words < 4096, "{}", most.words);
    assert!(all.words / KEYS < 100, "{}", all.words / KEYS);
    assert!(all.fences < KEYS + KEYS / 50, "{}", all.fences);
    prove(&heap);
}

#[test]
fn hashes_are_what_they_were_when_heaps_were_written() {
    assert_eq!(<u64 as MapKey>::hash(&0x0102_0304_0506_0708), 10_416_736_986_388_286_110);
    assert_eq!(<PString as MapKey>::hash("tembo"), 16_320_286_123_239_507_498);
}
