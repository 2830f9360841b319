//! Contents: whatever is done to an index, it holds what a `BTreeMap` would.

use super::ranges::remove_from;
use super::{Bench, Model, OrderedIndex};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::Bound;
use tembo_index::Error;

#[derive(Debug, Clone)]
enum Operation {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Insert(Vec<u8>, Vec<u8>),
    Update(Vec<u8>, Vec<u8>),
    /// Expects what the key has, if that is wanted, or else the value given.
    Swap(Vec<u8>, bool, Option<Vec<u8>>, Option<Vec<u8>>),
    Modify(Vec<u8>, Option<Vec<u8>>),
    PopFirst,
    PopLast,
    RemoveRange(Bound<Vec<u8>>, Bound<Vec<u8>>),
    Clear,
    Reclaim(usize),
    /// Does the operations inside, then takes them back.
    Undone(Vec<Operation>),
    Commit,
    Abort,
}

/// Keys from few bytes, so that they collide, share prefixes and are prefixes of each other.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let letters = prop::sample::select(vec![0u8, 1, b'a', b'b', 0xFF]);
    let tail = prop::collection::vec(letters, 0..4);
    let head = prop::sample::select(vec![0usize, 7, 8, 9, 15, 16, 17, 64, 70]);
    (head, tail, 0u16..300).prop_map(|(head, tail, number)| {
        let mut key = vec![b'k'; head];
        key.extend(tail);
        if number < 250 {
            key.extend(number.to_be_bytes());
        }
        key
    })
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        8 => key().prop_map(Bound::Included),
        8 => key().prop_map(Bound::Excluded),
        1 => Just(Bound::Unbounded),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let value = || prop::collection::vec(any::<u8>(), 0..40);
    let option = || prop::option::of(value());
    let simple = prop_oneof![
        60 => (key(), value()).prop_map(|(k, v)| Operation::Put(k, v)),
        30 => key().prop_map(Operation::Remove),
        10 => (key(), value()).prop_map(|(k, v)| Operation::Insert(k, v)),
        10 => (key(), value()).prop_map(|(k, v)| Operation::Update(k, v)),
        10 => (key(), any::<bool>(), option(), option()).prop_map(|(k, t, o, n)| Operation::Swap(k, t, o, n)),
        10 => (key(), option()).prop_map(|(k, v)| Operation::Modify(k, v)),
        3 => Just(Operation::PopFirst),
        3 => Just(Operation::PopLast),
        1 => (bound(), bound()).prop_map(|(low, high)| Operation::RemoveRange(low, high)),
        1 => Just(Operation::Clear),
        2 => (0usize..4).prop_map(Operation::Reclaim),
    ];
    let undone = prop::collection::vec(simple.clone(), 1..30).prop_map(Operation::Undone);
    prop_oneof![90 => simple, 3 => undone, 10 => Just(Operation::Commit), 1 => Just(Operation::Abort)]
}

pub(crate) fn random_operations_agree_with_a_model<I: OrderedIndex>() {
    let mut runner = TestRunner::new(Config { cases: 48, source_file: Some(file!()), ..Config::default() });
    let operations = prop::collection::vec(operation(), 1..700);
    runner
        .run(&operations, |operations| {
            run_operations::<I>(&operations);
            Ok(())
        })
        .unwrap();
}

fn run_operations<I: OrderedIndex>(operations: &[Operation]) {
    let mut bench = Bench::<I>::new();
    let mut committed = Model::new();
    for part in operations.split_inclusive(|o| matches!(o, Operation::Commit | Operation::Abort)) {
        let mut model = committed.clone();
        let mut tx = bench.lane.begin();
        for operation in part {
            apply(&bench.index, &mut tx, &mut model, operation);
        }
        if matches!(part.last(), Some(Operation::Abort)) {
            drop(tx);
        } else {
            tx.commit().unwrap();
            committed = model;
        }
    }
    bench.compare(&committed);
}

fn apply<I: OrderedIndex>(index: &I, tx: &mut tembo_pool::Tx<'_>, model: &mut Model, operation: &Operation) {
    match operation {
        Operation::Put(key, value) => {
            let replaced = index.put(tx, key, value).unwrap();
            assert_eq!(replaced, model.insert(key.clone(), value.clone()).is_some());
            assert_eq!(index.get_in(tx, key).unwrap().as_ref(), Some(value));
        }
        Operation::Remove(key) => {
            assert_eq!(index.remove(tx, key).unwrap(), model.remove(key).is_some());
            assert_eq!(index.get_in(tx, key).unwrap(), None);
        }
        Operation::Insert(key, value) => {
            let is_new = !model.contains_key(key);
            assert_eq!(index.insert(tx, key, value).unwrap(), is_new);
            model.entry(key.clone()).or_insert_with(|| value.clone());
            assert_eq!(index.get_in(tx, key).unwrap().as_ref(), model.get(key));
        }
        Operation::Update(key, value) => {
            assert_eq!(index.update(tx, key, value).unwrap(), model.contains_key(key));
            model.entry(key.clone()).and_modify(|old| old.clone_from(value));
            assert_eq!(index.get_in(tx, key).unwrap().as_ref(), model.get(key));
        }
        Operation::Swap(key, rightly, other, new) => {
            let expected = if *rightly { model.get(key).cloned() } else { other.clone() };
            swap(index, tx, model, key, expected, new.as_deref());
        }
        Operation::Modify(key, new) => modify(index, tx, model, key, new),
        Operation::PopFirst => assert_eq!(index.pop_first(tx).unwrap(), model.pop_first()),
        Operation::PopLast => assert_eq!(index.pop_last(tx).unwrap(), model.pop_last()),
        Operation::RemoveRange(low, high) => {
            let bounds = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
            let removed = index.remove_range(tx, bounds).unwrap();
            assert_eq!(removed, remove_from(model, bounds));
        }
        Operation::Clear => {
            index.clear(tx).unwrap();
            model.clear();
        }
        Operation::Reclaim(steps) => _ = index.reclaim(tx, *steps).unwrap(),
        Operation::Undone(inner) => {
            let before = tx.savepoint();
            let mut other = model.clone();
            inner.iter().for_each(|o| apply(index, tx, &mut other, o));
            tx.rollback_to(before);
        }
        Operation::Commit | Operation::Abort => {}
    }
    assert_eq!(index.len_in(tx).unwrap(), model.len() as u64);
}

fn swap<I: OrderedIndex>(
    index: &I,
    tx: &mut tembo_pool::Tx<'_>,
    model: &mut Model,
    key: &[u8],
    expected: Option<Vec<u8>>,
    new: Option<&[u8]>,
) {
    let swapped = index.compare_and_swap(tx, key, expected.as_deref(), new).unwrap();
    assert_eq!(swapped, expected.as_ref() == model.get(key));
    if swapped {
        set(model, key, new.map(<[u8]>::to_vec));
    }
    assert_eq!(index.get_in(tx, key).unwrap().as_ref(), model.get(key));
}

fn modify<I: OrderedIndex>(
    index: &I,
    tx: &mut tembo_pool::Tx<'_>,
    model: &mut Model,
    key: &[u8],
    new: &Option<Vec<u8>>,
) {
    let old = model.get(key).cloned();
    let mut calls = Vec::new();
    let was = index.modify(tx, key, |seen| {
        calls.push(seen.map(<[u8]>::to_vec));
        new.clone()
    });
    assert_eq!(was.unwrap(), old.is_some());
    assert_eq!(calls, [old]);
    set(model, key, new.clone());
    assert_eq!(index.get_in(tx, key).unwrap().as_ref(), new.as_ref());
}

fn set(model: &mut Model, key: &[u8], value: Option<Vec<u8>>) {
    match value {
        Some(value) => _ = model.insert(key.to_vec(), value),
        None => _ = model.remove(key),
    }
}

/// Keys that differ only where comparisons are easily wrong.
pub(crate) fn awkward_keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> =
        vec![vec![], vec![0], vec![0, 0], b"a".to_vec(), b"a\0".to_vec(), b"a\0\0".to_vec()];
    for shared in [1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 200, 1000] {
        let head = vec![0x61; shared];
        keys.push(head.clone());
        for tail in [
            &[0][..],
            &[0, 0],
            &[0, 1],
            &[1],
            b"x",
            &[0xFF],
            &[0xFF, 0xFF],
            b"xxxxxxxx",
            b"xxxxxxxx\0",
            b"xxxxxxxxy",
        ] {
            keys.push([&head, tail].concat());
        }
        for number in 0..40u64 {
            keys.push([&head, number.to_be_bytes().as_slice()].concat());
            keys.push([&head, number.to_le_bytes().as_slice()].concat());
        }
    }
    for last in [0u8, 1, 0xFF] {
        keys.push([vec![0x62; 65_535], vec![last]].concat());
        keys.push([vec![0xFF; 40_000], vec![last]].concat());
    }
    keys.sort();
    keys.dedup();
    keys
}

pub(crate) fn awkward_keys_are_kept_apart<I: OrderedIndex>() {
    for order in 0..3 {
        let mut keys = awkward_keys();
        match order {
            0 => {}
            1 => keys.reverse(),
            _ => keys.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(7)),
        }
        let mut bench = Bench::<I>::new();
        let mut model = Model::new();
        for (i, key) in keys.iter().enumerate() {
            let value = i.to_le_bytes().to_vec();
            assert!(!bench.put(key, &value));
            model.insert(key.clone(), value);
        }
        bench.compare(&model);
        for absent in [&b"a\0\0\0"[..], &[0, 0, 0], &[0x61; 66], &[0x62; 65_535]] {
            assert_eq!(bench.get(absent), model.get(absent).cloned());
        }
        for key in keys.iter().step_by(2) {
            assert!(bench.remove(key));
            assert!(!bench.remove(key));
            model.remove(key);
        }
        bench.compare(&model);
        for key in keys.iter().skip(1).step_by(2) {
            assert!(bench.put(key, b""));
            assert!(bench.remove(key));
        }
        bench.compare(&Model::new());
    }
}

pub(crate) fn numbered(i: u32) -> Vec<u8> {
    format!("user:profile:{i:08}").into_bytes()
}

fn orders(count: u32) -> Vec<Vec<u32>> {
    let up: Vec<u32> = (0..count).collect();
    let down: Vec<u32> = (0..count).rev().collect();
    let inwards: Vec<u32> = (0..count).map(|i| if i % 2 == 0 { i / 2 } else { count - 1 - i / 2 }).collect();
    let outwards: Vec<u32> = inwards.iter().rev().copied().collect();
    let mut random = up.clone();
    random.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(11));
    vec![up, down, inwards, outwards, random]
}

pub(crate) fn sequences_in_every_order<I: OrderedIndex>() {
    for order in orders(4000) {
        let mut bench = Bench::<I>::new();
        let mut model = Model::new();
        for i in order {
            assert!(!bench.put(&numbered(i), &i.to_le_bytes()));
            model.insert(numbered(i), i.to_le_bytes().to_vec());
        }
        bench.compare(&model);
        assert_eq!(bench.get(&numbered(4000)), None);
    }
}

pub(crate) fn everything_can_be_removed_in_every_order<I: OrderedIndex>() {
    for (number, order) in orders(3000).into_iter().enumerate() {
        let mut bench = Bench::<I>::new();
        let mut model = Model::new();
        for i in orders(3000).swap_remove(4 - number) {
            bench.put(&numbered(i), b"value");
            model.insert(numbered(i), b"value".to_vec());
        }
        for (done, i) in order.into_iter().enumerate() {
            assert!(bench.remove(&numbered(i)), "{i} is gone");
            model.remove(&numbered(i));
            if done % 500 == 0 {
                bench.compare(&model);
            }
        }
        bench.compare(&Model::new());
        assert!(!bench.remove(&numbered(0)));
        bench.put(b"again", b"used");
        assert_eq!(bench.contents(), [(b"again".to_vec(), b"used".to_vec())]);
    }
}

pub(crate) fn long_and_short_values<I: OrderedIndex>() {
    let mut bench = Bench::<I>::new();
    let mut model = Model::new();
    for (i, bytes) in [0usize, 1, 7, 8, 500, 512, 513, 4096, 70_000, 3 << 20].into_iter().enumerate() {
        let value: Vec<u8> = (0..bytes).map(|b| (b * 31 + i) as u8).collect();
        bench.put(&[i as u8], &value);
        bench.put(b"", &value);
        model.insert(vec![i as u8], value.clone());
        model.insert(vec![], value);
        bench.compare(&model);
    }
    for i in 0..10u8 {
        assert!(bench.put(&[i], b"short again"));
        model.insert(vec![i], b"short again".to_vec());
    }
    bench.compare(&model);
}

pub(crate) fn limits_are_refused<I: OrderedIndex>() {
    let mut bench = Bench::<I>::new();
    bench.put(&vec![1; 65_536], b"the longest key");
    let before = bench.contents();
    let mut tx = bench.lane.begin();
    let key_error = bench.index.put(&mut tx, &vec![1; 65_537], b"").unwrap_err();
    assert!(matches!(key_error, Error::KeyTooLong { bytes: 65_537, max_bytes: 65_536 }), "{key_error}");
    assert_eq!(bench.index.get_in(&tx, &vec![1; 65_537]).unwrap(), None);
    assert!(!bench.index.remove(&mut tx, &vec![1; 65_537]).unwrap());
    tx.commit().unwrap();
    assert_eq!(bench.contents(), before);
}

pub(crate) fn a_batch_is_all_or_nothing<I: OrderedIndex>() {
    let mut bench = Bench::<I>::new();
    let mut model = Model::new();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    for round in 0..60 {
        let mut next = model.clone();
        let mut tx = bench.lane.begin();
        for _ in 0..random.random_range(1..300) {
            let key = numbered(random.random_range(0..600));
            if random.random_bool(0.6) {
                bench.index.put(&mut tx, &key, &[round]).unwrap();
                next.insert(key, vec![round]);
            } else {
                assert_eq!(bench.index.remove(&mut tx, &key).unwrap(), next.remove(&key).is_some());
            }
        }
        if random.random_bool(0.7) {
            tx.commit().unwrap();
            model = next;
        } else {
            drop(tx);
        }
        bench.compare(&model);
    }
}

pub(crate) fn a_rolled_back_part_leaves_no_trace<I: OrderedIndex>() {
    let mut bench = Bench::<I>::new();
    let mut model = Model::new();
    for round in 0..20u32 {
        let mut tx = bench.lane.begin();
        for i in 0..100 {
            bench.index.put(&mut tx, &numbered(round * 50 + i), b"kept").unwrap();
            model.insert(numbered(round * 50 + i), b"kept".to_vec());
        }
        let before = tx.savepoint();
        for i in 0..400 {
            bench.index.remove(&mut tx, &numbered(round * 50 + 99 - i % 100)).unwrap();
            bench.index.put(&mut tx, &numbered(5000 + i), b"dropped").unwrap();
        }
        bench.index.clear(&mut tx).unwrap();
        bench.index.put(&mut tx, b"after clear", b"dropped").unwrap();
        bench.index.reclaim(&mut tx, 100).unwrap();
        tx.rollback_to(before);
        bench.index.put(&mut tx, b"last", &round.to_le_bytes()).unwrap();
        model.insert(b"last".to_vec(), round.to_le_bytes().to_vec());
        tx.commit().unwrap();
        bench.compare(&model);
    }
}

pub(crate) fn one_batch_may_fill_and_empty_the_index<I: OrderedIndex>() {
    let mut bench = Bench::<I>::new();
    bench.put(b"before", b"");
    let mut tx = bench.lane.begin();
    for i in 0..3000 {
        bench.index.put(&mut tx, &numbered(i * 7919 % 3000), b"first").unwrap();
    }
    for i in 0..3000 {
        assert!(bench.index.put(&mut tx, &numbered(i), b"second").unwrap());
    }
    for i in 0..3000 {
        assert!(bench.index.remove(&mut tx, &numbered(i * 7907 % 3000)).unwrap());
    }
    assert!(bench.index.remove(&mut tx, b"before").unwrap());
    assert_eq!(bench.index.len_in(&tx).unwrap(), 0);
    bench.index.put(&mut tx, b"after", b"").unwrap();
    tx.commit().unwrap();
    bench.compare(&Model::from([(b"after".to_vec(), vec![])]));
}

pub(crate) fn conditions_are_told_apart<I: OrderedIndex>() {
    let mut bench = Bench::<I>::new();
    let long_key = vec![1; 65_537];
    // With nothing around it, and in a tree of several levels.
    for others in [0, 3000] {
        let mut tx = bench.lane.begin();
        (0..others).for_each(|i| _ = bench.index.put(&mut tx, &numbered(i), b"other").unwrap());
        tx.commit().unwrap();
        for (key, value) in [(&b""[..], &b""[..]), (b"", b"v"), (b"user:profile:00001000x", b"")] {
            let (index, mut tx) = (&bench.index, bench.lane.begin());
            assert!(!index.update(&mut tx, key, b"no").unwrap());
            assert!(!index.compare_and_swap(&mut tx, key, Some(b""), Some(b"no")).unwrap());
            assert!(index.compare_and_swap(&mut tx, key, None, None).unwrap(), "absent stays absent");
            assert_eq!(index.get_in(&tx, key).unwrap(), None);
            assert!(index.insert(&mut tx, key, value).unwrap());
            assert!(!index.insert(&mut tx, key, b"no").unwrap());
            assert!(!index.compare_and_swap(&mut tx, key, None, Some(b"no")).unwrap());
            assert!(!index.compare_and_swap(&mut tx, key, Some(b"other"), None).unwrap());
            assert_eq!(index.get_in(&tx, key).unwrap().as_deref(), Some(value));
            assert!(
                index.compare_and_swap(&mut tx, key, Some(value), Some(value)).unwrap(),
                "the same again"
            );
            assert!(index.update(&mut tx, key, b"").unwrap());
            assert!(index.modify(&mut tx, key, |old| Some([old.unwrap(), b"more"].concat())).unwrap());
            assert!(index.compare_and_swap(&mut tx, key, Some(b"more"), None).unwrap());
            assert!(!index.modify(&mut tx, key, |old| old.map(<[u8]>::to_vec)).unwrap());
            assert_eq!(index.len_in(&tx).unwrap(), u64::from(others));
            // A key that is too long cannot be put, but can be looked up.
            assert!(matches!(index.insert(&mut tx, &long_key, b""), Err(Error::KeyTooLong { .. })));
            assert!(matches!(
                index.modify(&mut tx, &long_key, |_| Some(vec![])),
                Err(Error::KeyTooLong { .. })
            ));
            assert!(!index.update(&mut tx, &long_key, b"").unwrap());
            assert!(!index.modify(&mut tx, &long_key, |_| None).unwrap());
            tx.commit().unwrap();
        }
        bench.check();
    }
}

pub(crate) fn a_change_that_panics_changes_nothing<I: OrderedIndex>() {
    let mut bench = Bench::<I>::new();
    bench.put(b"before", b"1");
    let mut tx = bench.lane.begin();
    bench.index.put(&mut tx, b"earlier in the batch", b"2").unwrap();
    for key in [&b"before"[..], b"absent", b"earlier in the batch"] {
        let panicking = std::panic::AssertUnwindSafe(|| {
            bench
                .index
                .modify(&mut tx, key, |_| -> Option<Vec<u8>> { std::panic::resume_unwind(Box::new(())) })
        });
        assert!(std::panic::catch_unwind(panicking).is_err());
    }
    bench.index.put(&mut tx, b"later in the batch", b"3").unwrap();
    tx.commit().unwrap();
    let model = [("before", "1"), ("earlier in the batch", "2"), ("later in the batch", "3")];
    bench.compare(&model.map(|(key, value)| (key.into(), value.into())).into());
}

pub(crate) fn two_indexes_share_a_batch<I: OrderedIndex>() {
    let mut bench = Bench::<I>::new();
    let mut tx = bench.lane.begin();
    let other = I::create(&mut tx, "other").unwrap();
    for i in 0..200 {
        bench.index.put(&mut tx, &numbered(i), b"one").unwrap();
        other.put(&mut tx, &numbered(i), b"other").unwrap();
        other.remove(&mut tx, &numbered(i / 2)).unwrap();
    }
    tx.commit().unwrap();
    let mut marks = bench.pool.marks().unwrap();
    bench.index.check(&mut marks).unwrap();
    other.check(&mut marks).unwrap();
    marks.finish().unwrap();
    assert_eq!((bench.index.len().unwrap(), other.len().unwrap()), (200, 100));
    let pin = bench.pool.pin();
    assert_eq!(bench.index.get(&pin, &numbered(150)).unwrap().unwrap(), b"one");
    assert_eq!(other.get(&pin, &numbered(150)).unwrap().unwrap(), b"other");
    assert_eq!(other.get(&pin, &numbered(50)).unwrap(), None);
}

pub(crate) fn contents_survive_reopening<I: OrderedIndex>() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    let mut options = tembo_pool::Options::new();
    options.create = true;
    options.initial_bytes = 4 << 20;
    let mut model = Model::new();
    for round in 0..5u8 {
        let pool = tembo_pool::Pool::open(&path, &options).unwrap();
        let mut lane = pool.lane().unwrap();
        let index = match I::open(&pool, "index").unwrap() {
            Some(index) => index,
            None => {
                assert_eq!(round, 0);
                let mut tx = lane.begin();
                let index = I::create(&mut tx, "index").unwrap();
                tx.commit().unwrap();
                index
            }
        };
        let mut bench = Bench { pool, lane, index };
        bench.compare(&model);
        for i in 0..500 {
            let key = numbered(i * u32::from(round + 1));
            bench.put(&key, &[round]);
            model.insert(key, vec![round]);
        }
        for i in 0..200 {
            bench.remove(&numbered(i * 3));
            model.remove(&numbered(i * 3));
        }
        bench.compare(&model);
    }
    let pool = tembo_pool::Pool::open(&path, &options).unwrap();
    assert!(I::open(&pool, "no such name").unwrap().is_none());
}
