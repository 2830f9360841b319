//! Freed blocks wait for records and readers, and come back.

use super::lanes::{MANY, pool_with_words, store};
use super::{image_of, open, tiny_pool, word};
use crate::{Lane, Pool};

/// Frees 40 blocks in one transaction; returns how many wait in limbo then.
fn free_40(pool: &Pool, lane: &mut Lane, words: u64) -> u64 {
    free(pool, lane, words, 40)
}

/// As `free_40`, with this many blocks.
fn free(pool: &Pool, lane: &mut Lane, words: u64, count: u64) -> u64 {
    let mut tx = lane.begin();
    let blocks: Vec<u64> = (0..count).map(|_| tx.alloc(64).unwrap()).collect();
    tx.commit().unwrap();
    let mut tx = lane.begin();
    blocks.iter().for_each(|block| tx.free(*block).unwrap());
    tx.commit().unwrap();
    let waiting = pool.limbo_bytes() / 64;
    // These stores make the lane switch halves, so that the record of the frees dies.
    (0..4).for_each(|value| store(lane, words, MANY, value));
    waiting
}

/// A look through limbo frees the blocks that dead records freed, and none that live ones freed (L2).
#[test]
fn blocks_that_live_records_freed_stay_in_limbo() {
    let (pool, words) = pool_with_words();
    let mut lane = pool.lane().unwrap();
    assert_eq!([(); 4].map(|()| free_40(&pool, &mut lane, words)), [40; 4]);
}

/// A look through limbo costs a barrier of all threads. After a futile look, because of a reader, the next
/// commits do not look again; blocks that a look finds leave in parts.
#[test]
fn limbo_is_not_looked_through_again_before_it_has_grown() {
    let (pool, words) = pool_with_words();
    let mut lane = pool.lane().unwrap();
    let reader = pool.pin();
    assert_eq!([(); 2].map(|()| free_40(&pool, &mut lane, words)), [40, 80]);
    drop(reader);
    assert_eq!([(); 3].map(|()| free_40(&pool, &mut lane, words)), [120, 80, 40]);
}

/// Blocks that readers have kept in limbo leave it soon, also if little is freed afterwards.
#[test]
fn a_backlog_leaves_limbo_with_few_commits() {
    let (pool, words) = pool_with_words();
    let mut lane = pool.lane().unwrap();
    let reader = pool.pin();
    let waiting = [(); 25].map(|()| free_40(&pool, &mut lane, words));
    assert_eq!(waiting[24], 1000);
    drop(reader);
    let waiting = [(); 100].map(|()| free(&pool, &mut lane, words, 1));
    assert!(waiting[99] < 100, "{waiting:?}");
    let left = waiting.iter().position(|waiting| *waiting < 100).unwrap();
    let asked = waiting.iter().position(|waiting| *waiting < 1000).unwrap();
    assert!(left - asked <= 15, "{waiting:?}");
}

/// A look at readers tells nothing about blocks that were freed afterwards.
#[test]
fn what_is_freed_after_a_look_at_limbo_waits_for_readers_who_came_before() {
    let (pool, words) = pool_with_words();
    let mut lane = pool.lane().unwrap();
    // Nobody reads, so limbo is emptied, but for the blocks of the last frees.
    (0..4).for_each(|_| _ = free_40(&pool, &mut lane, words));
    let left = pool.limbo_bytes() / 64;
    let reader = pool.pin();
    let waiting = [(); 6].map(|()| free_40(&pool, &mut lane, words));
    assert!(left < 200 && waiting[5] >= 240, "{left} {waiting:?}");
    drop(reader);
    let waiting = [(); 6].map(|()| free_40(&pool, &mut lane, words));
    assert!(waiting[5] < 200, "{waiting:?}");
}

/// Allocates blocks of this many bytes, each in a commit of its own, until there is no more room.
fn fill(pool: &Pool, lane: &mut Lane, bytes: u64) -> Vec<u64> {
    std::iter::from_fn(|| {
        let _pin = pool.pin();
        let mut tx = lane.begin();
        match tx.alloc(bytes) {
            Ok(off) => {
                tx.commit().unwrap();
                Some(off)
            }
            Err(e) if e.is_full() => None,
            Err(e) => panic!("{e}"),
        }
    })
    .collect()
}

/// In a full pool, a transaction that begins after a commit gets the blocks that the commit freed, whatever
/// is pinned by then.
#[test]
fn what_is_freed_in_a_full_pool_is_had_by_the_next() {
    for (bytes, beside) in [64, 1000, 40_000].into_iter().flat_map(|bytes| [(bytes, false), (bytes, true)]) {
        let pool = tiny_pool(1 << 20);
        let mut lane = pool.lane().unwrap();
        let _claim = beside.then(|| pool.claim(4096).unwrap());
        let mut blocks = fill(&pool, &mut lane, bytes);
        for _ in 0..20 {
            {
                let _pin = pool.pin();
                let mut tx = lane.begin();
                tx.free(blocks.pop().unwrap()).unwrap();
                tx.commit().unwrap();
            }
            let _pin = pool.pin();
            let mut tx = lane.begin();
            blocks.push(tx.alloc(bytes).unwrap());
            tx.commit().unwrap();
        }
    }
}

/// As above, but the lane that has freed the block does nothing else, and another lane asks for a block.
#[test]
fn what_a_lane_that_idles_has_freed_in_a_full_pool_is_had_by_another() {
    let pool = tiny_pool(1 << 20);
    let (mut idle, mut lane) = (pool.lane().unwrap(), pool.lane().unwrap());
    let blocks = fill(&pool, &mut idle, 40_000);
    let mut tx = idle.begin();
    tx.free(blocks[0]).unwrap();
    tx.commit().unwrap();
    for _ in 0..3 {
        let _pin = pool.pin();
        let mut tx = lane.begin();
        tx.alloc(40_000).unwrap();
    }
}

/// A reader that came after the commit, but before the word in memory that leads to the block was changed,
/// still finds it.
#[test]
fn a_block_that_was_unlinked_late_waits_for_readers_from_before_that() {
    let pool = tiny_pool(256 << 10);
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let block = tx.alloc(64).unwrap();
    tx.set_root("block", 1, block).unwrap();
    tx.commit().unwrap();
    let writer = pool.pin();
    let mut tx = lane.begin();
    tx.remove_root("block").unwrap();
    tx.free(block).unwrap();
    tx.commit().unwrap();
    let reader = pool.pin();
    lane.defer_frees_to_current_epoch();
    drop(writer);
    pool.inner.reclaim_all().unwrap();
    assert_eq!(pool.limbo_bytes(), 64, "the reader may look at it");
    drop(reader);
    pool.inner.reclaim_all().unwrap();
    assert_eq!(pool.limbo_bytes(), 0);
}

/// A transaction that began before a block was freed may store to it, and be committed after that.
#[test]
fn a_block_that_was_stored_to_while_it_was_freed_waits_for_that_record() {
    let pool = tiny_pool(256 << 10);
    let (mut writer, mut freer) = (pool.lane().unwrap(), pool.lane().unwrap());
    let mut tx = writer.begin();
    let block = tx.alloc(64).unwrap();
    tx.write_fresh(block, &[1; 64]).unwrap();
    tx.commit().unwrap();
    let pin = pool.pin();
    let mut late = writer.begin();
    late.store(block, 7).unwrap();
    let mut tx = freer.begin();
    tx.free(block).unwrap();
    tx.commit().unwrap();
    late.commit().unwrap();
    pool.inner.log.reclaim(&pool.inner.alloc, freer.number).unwrap();
    assert_eq!(pool.limbo_bytes(), 64, "it is not over");
    drop(pin);
    pool.inner.log.reclaim(&pool.inner.alloc, freer.number).unwrap();
    assert_eq!(pool.limbo_bytes(), 0);
    // The lane that has the late record gets the block again.
    let mut tx = writer.begin();
    let again: Vec<u64> = (0..64).map(|_| tx.alloc(64).unwrap()).take_while(|off| *off != block).collect();
    assert!(again.len() < 64, "it is handed out again");
    tx.write_fresh(block, &[2; 64]).unwrap();
    tx.commit().unwrap();
    assert_eq!(word(&image_of(&open(&image_of(&pool))), block), 0x0202_0202_0202_0202);
}
