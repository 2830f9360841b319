//! Removing ranges: what a `BTreeMap` would lose is gone, and nothing else.

use super::model::{awkward_keys, numbered};
use super::{ALL, Bench, KeyBounds, Model, OrderedIndex};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::{Bound, RangeBounds};
use tembo_index::Error;
use tembo_pool::Writer;

/// Removes a range from a model, which may be an inverted one; returns how many records.
pub(crate) fn remove_from(model: &mut Model, bounds: KeyBounds<'_>) -> u64 {
    let before = model.len();
    model.retain(|key, _| !RangeBounds::<&[u8]>::contains(&bounds, &key.as_slice()));
    (before - model.len()) as u64
}

fn bench_of<I: OrderedIndex>(keys: impl IntoIterator<Item = Vec<u8>>) -> (Bench<I>, Model) {
    let (mut bench, mut model) = (Bench::<I>::new(), Model::new());
    let mut tx = bench.lane.begin();
    for (i, key) in keys.into_iter().enumerate() {
        bench.index.put(&mut tx, &key, &i.to_le_bytes()).unwrap();
        model.insert(key, i.to_le_bytes().to_vec());
    }
    tx.commit().unwrap();
    (bench, model)
}

/// Every kind of bounds between any two of some keys, the ends and the reverse included, each taken back
/// afterwards.
pub(crate) fn every_pair_of_bounds_is_removed<I: OrderedIndex>() {
    let keys: Vec<Vec<u8>> = awkward_keys().into_iter().filter(|key| key.len() < 100).collect();
    let mut probes: Vec<Vec<u8>> = keys.iter().step_by(40).cloned().collect();
    probes.extend([b"".to_vec(), b"a\0\0\0\0".to_vec(), vec![0xFF; 3], b"aaaaaaaay".to_vec()]);
    let (mut bench, full) = bench_of::<I>(keys);
    let kinds = |key| [Bound::Included(key), Bound::Excluded(key), Bound::Unbounded];
    for (low, high) in probes.iter().flat_map(|low| probes.iter().map(move |high| (low, high))) {
        for (low, high) in kinds(low.as_slice()).into_iter().flat_map(|l| kinds(high).map(|h| (l, h))) {
            let mut model = full.clone();
            let mut tx = bench.lane.begin();
            let removed = bench.index.remove_range(&mut tx, (low, high)).unwrap();
            assert_eq!(removed, remove_from(&mut model, (low, high)), "{low:?} {high:?}");
            assert_eq!(bench.index.len_in(&tx).unwrap(), model.len() as u64);
            for key in full.keys() {
                let found = bench.index.get_in(&tx, key).unwrap();
                assert_eq!(found.as_ref(), model.get(key), "{low:?} {high:?}: {}", key.escape_ascii());
            }
        }
    }
    bench.compare(&full);
}

/// Ranges across many leaves and many groups, beside records that stay.
pub(crate) fn groups_remove_what_one_transaction_does<I: OrderedIndex>() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(41);
    let mut order: Vec<u32> = (0..6000).collect();
    order.shuffle(&mut random);
    let (bench, mut model) = bench_of::<I>(order.iter().map(|i| numbered(*i)));
    let Bench { pool, lane, index } = bench;
    let writer = Writer::new(lane);
    let mut ranges = vec![(0, 1), (5999, 6000), (7000, 9000), (3000, 2000), (100, 100), (500, 2500)];
    ranges.extend((0..10).map(|_| {
        let low = random.random_range(0..6000);
        (low, low + random.random_range(0..900))
    }));
    let (other_pool_lane, mut transactions) = (pool.lane().unwrap(), 0);
    let bench_with = |lane| Bench { pool: pool.clone(), lane, index: index.clone() };
    let bench = bench_with(other_pool_lane);
    for (low, high) in ranges {
        let (low, high) = (numbered(low), numbered(high));
        let bounds = (Bound::Excluded(low.as_slice()), Bound::Included(high.as_slice()));
        let begin = || {
            transactions += 1;
            writer.begin()
        };
        let removed = index.remove_range_in_groups(bounds, begin).unwrap();
        assert_eq!(removed, remove_from(&mut model, bounds), "{bounds:?}");
        bench.compare(&model);
    }
    assert!(transactions > 25, "{transactions} groups");
    assert_eq!(index.remove_range_in_groups(ALL, || writer.begin()).unwrap(), model.len() as u64);
    bench.compare(&Model::new());
    assert_eq!(index.remove_range_in_groups(ALL, || writer.begin()).unwrap(), 0);
}

pub(crate) fn a_range_in_a_batch_is_all_or_nothing<I: OrderedIndex>() {
    let (mut bench, mut model) = bench_of::<I>((0..3000).map(numbered));
    let (low, high) = (numbered(300), numbered(2700));
    let bounds = (Bound::Included(low.as_slice()), Bound::Excluded(high.as_slice()));
    for commits in [false, true] {
        let mut tx = bench.lane.begin();
        // The range is that of the batch, not that of the readers.
        bench.index.put(&mut tx, b"user:profile:00000300 and a half", b"new").unwrap();
        bench.index.remove(&mut tx, &numbered(1000)).unwrap();
        let before = tx.savepoint();
        assert_eq!(bench.index.remove_range(&mut tx, ALL).unwrap(), 3000);
        assert_eq!(bench.index.pop_last(&mut tx).unwrap(), None);
        tx.rollback_to(before);
        assert_eq!(bench.index.remove_range(&mut tx, bounds).unwrap(), 2400);
        assert_eq!(bench.index.remove_range(&mut tx, bounds).unwrap(), 0);
        assert_eq!(bench.index.len().unwrap(), 3000, "nothing is visible yet");
        bench.index.put(&mut tx, &numbered(1500), b"again").unwrap();
        if commits {
            tx.commit().unwrap();
            remove_from(&mut model, bounds);
            model.insert(numbered(1500), b"again".to_vec());
        } else {
            drop(tx);
        }
        bench.compare(&model);
    }
}

pub(crate) fn removing_ranges_gives_everything_back<I: OrderedIndex>() {
    let (mut bench, mut model) = (Bench::<I>::new(), Model::new());
    let allocated = |bench: &Bench<I>| bench.pool.marks().unwrap().usage().allocated_blocks;
    let empty = allocated(&bench);
    // Keys of pairs that share much, so that some separators have blocks.
    let key = |i: u32| [vec![(i / 2 % 251) as u8; 100], i.to_be_bytes().to_vec()].concat();
    for i in 0..4000 {
        bench.put(&key(i), b"value");
        model.insert(key(i), b"value".to_vec());
    }
    for low in (0..=255u8).step_by(5) {
        let (low, high) = ([low], [low.saturating_add(3)]);
        let bounds = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
        let mut tx = bench.lane.begin();
        let removed = bench.index.remove_range(&mut tx, bounds).unwrap();
        tx.commit().unwrap();
        assert_eq!(removed, remove_from(&mut model, bounds));
        bench.check();
    }
    bench.compare(&model);
    let mut tx = bench.lane.begin();
    assert_eq!(bench.index.remove_range(&mut tx, ALL).unwrap(), model.len() as u64);
    tx.commit().unwrap();
    bench.compare(&Model::new());
    assert_eq!(allocated(&bench), empty);
}

/// In a pool without any room, where sparse leaves cannot be joined either.
pub(crate) fn ranges_go_in_a_full_pool<I: OrderedIndex>() {
    let mut bench = Bench::<I>::within(4 << 20);
    let mut model = Model::new();
    for value_bytes in [2000, 200, 20, 0] {
        for i in 0.. {
            let key = [numbered(i), vec![value_bytes as u8]].concat();
            let value = vec![i as u8; value_bytes];
            let mut tx = bench.lane.begin();
            match bench.index.put(&mut tx, &key, &value) {
                Ok(_) => _ = model.insert(key, value),
                Err(Error::Pool(e)) if e.is_full() => break,
                Err(other) => panic!("{other}"),
            }
            tx.commit().unwrap();
        }
    }
    let Bench { pool, lane, index } = bench;
    // A reader keeps everything that is freed meanwhile.
    let pin = pool.pin();
    let writer = Writer::new(lane);
    let high = numbered(700);
    let bounds = (Bound::Unbounded, Bound::Excluded(high.as_slice()));
    let removed = index.remove_range_in_groups(bounds, || writer.begin()).unwrap();
    assert_eq!(removed, remove_from(&mut model, bounds));
    assert!(removed > 500 && !model.is_empty(), "{removed} of {}", model.len());
    drop(pin);
    let bench = Bench { lane: pool.lane().unwrap(), pool, index };
    bench.compare(&model);
}
