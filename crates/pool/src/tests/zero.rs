//! Blocks that read as zero (I7).

use super::{image_of, tiny_pool};
use crate::layout::{Geometry, PmZone};
use crate::{Pool, Tx};
use tembo_pmem::{Region, offset_of, snapshot};

const BYTES: u64 = 2048;

fn reads_as_zero(tx: &Tx, off: u64) -> bool {
    (0..BYTES).step_by(8).all(|at| tx.load(off + at).unwrap() == 0)
}

fn reopen(pool: &Pool) -> Pool {
    let image = image_of(pool);
    Pool::open_in(Region::simulated(&image, image.len() as u64, None).unwrap()).unwrap()
}

#[test]
fn a_block_that_was_never_used_costs_nothing_to_zero() {
    let pool = tiny_pool(512 << 10);
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    tx.alloc_zeroed(BYTES).unwrap();
    let before = snapshot();
    let blocks: Vec<u64> = (0..40).map(|_| tx.alloc_zeroed(BYTES).unwrap()).collect();
    assert_eq!((snapshot() - before).lines, 0);
    assert!(blocks.iter().all(|off| reads_as_zero(&tx, *off)));
}

#[test]
fn what_was_written_without_a_commit_is_zeroed() {
    for crash in [false, true] {
        let mut pool = tiny_pool(512 << 10);
        let mut lane = pool.lane().unwrap();
        let mut tx = lane.begin();
        let dirty: Vec<u64> = (0..60).map(|_| tx.alloc(BYTES).unwrap()).collect();
        dirty.iter().for_each(|off| tx.write_fresh(*off, &[0xFF; BYTES as usize]).unwrap());
        drop(tx);
        if crash {
            drop(lane);
            pool = reopen(&pool);
            lane = pool.lane().unwrap();
        }
        let before = snapshot();
        let mut tx = lane.begin();
        let blocks: Vec<u64> = (0..70).map(|_| tx.alloc_zeroed(BYTES).unwrap()).collect();
        assert!(blocks.iter().any(|off| dirty.contains(off)), "crash {crash}: the test meets used memory");
        assert!(blocks.iter().all(|off| reads_as_zero(&tx, *off)), "crash {crash}");
        assert!((snapshot() - before).lines >= 60 * BYTES / 64, "crash {crash}: zeros are flushed");
    }
}

#[test]
fn a_frontier_past_the_part_that_is_not_zero_is_damage() {
    let pool = tiny_pool(512 << 10);
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let block = tx.alloc(BYTES).unwrap();
    tx.set_root("block", 1, block).unwrap();
    tx.commit().unwrap();
    drop(lane);
    let zero_from_off = Geometry::tiny().zone_off(0) + offset_of!(PmZone, zero_from) as u64;
    reopen(&pool).marks().unwrap();
    pool.region().store_u64(zero_from_off, 1).unwrap();
    let damaged = reopen(&pool);
    assert!(damaged.marks().is_err());
}
