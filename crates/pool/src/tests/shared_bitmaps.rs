//! Lanes that change bits of the same bitmap words at once.

use super::{image_of, open};
use crate::{Geometry, Lane, Pool};
use std::sync::{Arc, Barrier};
use tembo_pmem::{Observer, Region, ThreadTag};

/// Delays each store, so that other threads act between a thread's load and its store.
struct Slow;

impl Observer for Slow {
    fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {
        (0..if cfg!(miri) { 1 } else { 100 }).for_each(|_| std::hint::spin_loop());
    }
    fn flush(&self, _: ThreadTag, _: u64) {}
    fn fence(&self, _: ThreadTag) {}
}

/// Lanes that free blocks of the same bitmap words at the same time lose no bit, whether a commit changes one
/// word or many.
#[test]
fn bits_of_one_word_that_several_lanes_change_at_once_are_all_there() {
    const LANES: usize = 3;
    let region = Region::simulated(&vec![0; 4 << 20], 4 << 20, Some(Arc::new(Slow))).unwrap();
    let pool = Pool::create_in(region, &Geometry::tiny()).unwrap();
    let mut lanes: Vec<Lane> = (0..LANES).map(|_| pool.lane().unwrap()).collect();
    for round in 0..if cfg!(miri) { 2 } else { 200 } {
        let (count, each) = if round % 2 == 0 { (60, 1) } else { (64 * 60, 640) };
        let mut tx = lanes[0].begin();
        let blocks: Vec<u64> = (0..count).map(|_| tx.alloc(16).unwrap()).collect();
        tx.commit().unwrap();
        let start = Barrier::new(LANES);
        std::thread::scope(|scope| {
            for (number, lane) in lanes.iter_mut().enumerate() {
                let (pool, start) = (&pool, &start);
                let own: Vec<u64> = blocks.iter().skip(number).step_by(LANES).copied().collect();
                scope.spawn(move || {
                    start.wait();
                    for some in own.chunks(each) {
                        let _pin = pool.pin();
                        let mut tx = lane.begin();
                        some.iter().for_each(|off| tx.free(*off).unwrap());
                        tx.commit().unwrap();
                    }
                });
            }
        });
        pool.marks().unwrap().finish().unwrap();
        pool.inner.reclaim_all().unwrap();
    }
    open(&image_of(&pool)).marks().unwrap().finish().unwrap();
}

/// As above, but one lane sets bits of a word and another clears some. (Checked after each round, because a
/// later store to the word could hide a lost one.)
#[test]
fn bits_of_one_word_that_lanes_set_and_clear_at_once_are_all_there() {
    let region = Region::simulated(&vec![0; 4 << 20], 4 << 20, Some(Arc::new(Slow))).unwrap();
    let pool = Pool::create_in(region, &Geometry::tiny()).unwrap();
    let (mut setter, mut clearer) = (pool.lane().unwrap(), pool.lane().unwrap());
    for _ in 0..if cfg!(miri) { 2 } else { 300 } {
        let mut tx = setter.begin();
        let first: Vec<u64> = (0..20).map(|_| tx.alloc(16).unwrap()).collect();
        tx.commit().unwrap();
        let start = Barrier::new(2);
        let mut kept = Vec::new();
        std::thread::scope(|scope| {
            let (pool, start, clearer) = (&pool, &start, &mut clearer);
            scope.spawn(move || {
                start.wait();
                for off in first {
                    let _pin = pool.pin();
                    let mut tx = clearer.begin();
                    tx.free(off).unwrap();
                    tx.commit().unwrap();
                }
            });
            start.wait();
            for _ in 0..20 {
                let _pin = pool.pin();
                let mut tx = setter.begin();
                kept.push(tx.alloc(16).unwrap());
                tx.commit().unwrap();
            }
        });
        let mut marks = pool.marks().unwrap();
        kept.iter().for_each(|off| marks.reach(*off, 16).unwrap());
        marks.finish().unwrap();
        let mut tx = setter.begin();
        kept.iter().for_each(|off| tx.free(*off).unwrap());
        tx.commit().unwrap();
        pool.inner.reclaim_all().unwrap();
    }
}
