//! Readers beside a writer: they find what is there, whole, and never what is not durable yet.

use super::{ALL, Bench, OrderedIndex};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::atomic::{AtomicBool, Ordering};
use tembo_index::Result;
use tembo_pool::Pool;

const STAYING: u32 = 600;
const ROUNDS: u32 = 30;

/// Keys that stay, each between two that come and go.
fn key(i: u32) -> Vec<u8> {
    format!("shared/prefix/{i:06}").into_bytes()
}

/// A value that says which key it belongs to and is wrong in parts if it is torn.
fn value(i: u32, version: u32) -> Vec<u8> {
    let length = 8 + (i + version) as usize % 60 * 4;
    [i.to_le_bytes(), version.to_le_bytes()].concat().repeat(length / 8)
}

fn assert_whole(i: u32, found: &[u8]) {
    let version = u32::from_le_bytes(*found[4..].first_chunk().unwrap());
    assert_eq!(found, value(i, version));
}

/// Lets a writer replace, insert and remove around the keys that stay, while `reader` runs again and again.
fn beside_a_writer<I: OrderedIndex>(reader: impl Fn(&I, &Pool, &mut Xoshiro256PlusPlus) + Sync) {
    let mut bench = Bench::<I>::new();
    for i in 0..STAYING {
        bench.put(&key(3 * i), &value(3 * i, 0));
    }
    let Bench { pool, lane, index } = bench;
    let mut lane = lane;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (pool, index, reader, done) = (pool.clone(), index.clone(), &reader, &done);
            scope.spawn(move || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
                while !done.load(Ordering::Relaxed) {
                    reader(&index, &pool, &mut random);
                }
            });
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(99);
        for round in 1..=ROUNDS {
            write_round(&index, &mut lane, round, &mut random);
        }
        done.store(true, Ordering::Relaxed);
    });
    Bench { pool, lane, index }.check();
}

fn write_round<I: OrderedIndex>(
    index: &I,
    lane: &mut tembo_pool::Lane,
    round: u32,
    random: &mut Xoshiro256PlusPlus,
) {
    let grow = round % 2 == 1;
    for step in 0..STAYING {
        let mut tx = lane.begin();
        for _ in 0..random.random_range(1..4) {
            let i = random.random_range(0..STAYING) * 3;
            index.put(&mut tx, &key(i), &value(i, round * 1000 + step)).unwrap();
            let passing = random.random_range(0..STAYING) * 3 + random.random_range(1..3);
            if grow {
                index.put(&mut tx, &key(passing), &value(passing, round)).unwrap();
            } else {
                index.remove(&mut tx, &key(passing)).unwrap();
            }
        }
        tx.commit().unwrap();
    }
}

pub(crate) fn readers_always_find_what_stays<I: OrderedIndex>() {
    beside_a_writer::<I>(|index, pool, random| {
        let i = random.random_range(0..STAYING * 3);
        match index.get(&pool.pin(), &key(i)).unwrap() {
            Some(found) => assert_whole(i, &found),
            None => assert_ne!(i % 3, 0, "key {i} stays, and was not found"),
        }
    });
}

pub(crate) fn walks_always_meet_what_stays<I: OrderedIndex>() {
    beside_a_writer::<I>(|index, _, random| {
        let down = random.random_bool(0.5);
        let walk = index.walk(ALL);
        let met: Vec<_> =
            if down { walk.rev().map(Result::unwrap).collect() } else { walk.map(Result::unwrap).collect() };
        let ordered = met.windows(2).all(|two| if down { two[0].0 > two[1].0 } else { two[0].0 < two[1].0 });
        assert!(ordered, "the walk is out of order, or met a key twice");
        let mut staying = 0;
        for (found, content) in &met {
            let i: u32 = std::str::from_utf8(&found[14..]).unwrap().parse().unwrap();
            assert_whole(i, content);
            staying += u32::from(i.is_multiple_of(3));
        }
        assert_eq!(staying, STAYING, "a key that stays was missed");
    });
}

pub(crate) fn a_pinned_value_outlives_its_removal<I: OrderedIndex>() {
    let mut bench = Bench::<I>::within(4 << 20);
    for i in 0..200 {
        bench.put(&key(i), &value(i, 0));
    }
    let walk = bench.index.walk(ALL);
    // The walk holds a pin from here on, and copied nothing yet.
    for i in 0..5000u32 {
        let mut tx = bench.lane.begin();
        bench.index.put(&mut tx, &key(i % 200), &value(i % 200, 1)).unwrap();
        tx.commit().unwrap();
    }
    for record in walk {
        let (found, content) = record.unwrap();
        assert_whole(std::str::from_utf8(&found[14..]).unwrap().parse().unwrap(), &content);
    }
}

pub(crate) fn nothing_is_visible_before_the_commit<I: OrderedIndex>() {
    let mut bench = Bench::<I>::new();
    for i in 0..100 {
        bench.put(&key(i), b"old");
    }
    let before = bench.contents();
    let mut tx = bench.lane.begin();
    for i in 0..100 {
        bench.index.put(&mut tx, &key(i), b"new").unwrap();
        bench.index.put(&mut tx, &key(1000 + i), b"new").unwrap();
    }
    for i in 0..50 {
        bench.index.remove(&mut tx, &key(i * 2)).unwrap();
    }
    let during: Vec<_> = bench.index.walk(ALL).map(Result::unwrap).collect();
    assert!(during == before);
    assert_eq!(bench.index.len().unwrap(), 100);
    tx.commit().unwrap();
    assert_eq!(bench.index.len().unwrap(), 150);
    assert_eq!(bench.contents().len(), 150);
}
