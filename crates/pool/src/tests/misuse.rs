//! Careless callers: wrong offsets, sizes and savepoints are refused or do no harm.

use super::{model, tiny_options, tiny_pool};
use crate::{ErrorKind, Options, Pool};

#[test]
fn writes_at_impossible_offsets_are_refused() {
    let pool = tiny_pool(256 << 10);
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let block = tx.alloc(64).unwrap();
    for off in [u64::MAX, u64::MAX - 3, 1 << 63, 0, block + 63, block + 64] {
        assert!(tx.write_fresh(off, &[1; 8]).is_err(), "{off:#x}");
        assert!(tx.free(off).is_err(), "{off:#x}");
        assert!(off == block + 64 || tx.store(off, 1).is_err(), "{off:#x}");
    }
}

#[test]
fn what_ends_with_its_block_may_have_an_empty_last_part() {
    // An empty write at the end of a block was refused as if it lay in other memory, with an error that
    // called the pool damaged.
    let pool = tiny_pool(1 << 20);
    let mut lane = pool.lane().unwrap();
    for bytes in [16, 64, 80, 576, 1024, 4096, 32 << 10, 64 << 10, 128 << 10] {
        let mut tx = lane.begin();
        let block = tx.alloc(bytes).unwrap();
        tx.write_fresh(block, &[]).unwrap();
        tx.write_fresh(block, &vec![7; bytes as usize]).unwrap();
        tx.write_fresh(block + bytes, &[]).unwrap();
        tx.write_fresh_words(block + bytes, &[], &[]).unwrap();
        tx.write_fresh_words(block + bytes - 16, &[1, 2], &[]).unwrap();
        tx.write_fresh_words(block + bytes - 16, &[], &[1, 2]).unwrap();
        for off in [block - 8, block + bytes - 8, block + bytes] {
            let refused = [tx.write_fresh(off, &[1; 16]), tx.write_fresh_words(off, &[1], &[2])];
            assert!(
                refused.iter().all(
                    |outcome| matches!(outcome, Err(e) if matches!(e.kind(), ErrorKind::Internal { .. }))
                ),
                "{bytes}, {off:#x}: {refused:?}"
            );
        }
        let uneven = tx.write_fresh_words(block + 4, &[1], &[]).unwrap_err();
        assert!(uneven.to_string().contains("bug of the program, not damage"), "{uneven}");
        tx.roll_back();
    }
}

#[test]
fn the_header_and_the_lanes_are_not_to_be_stored_to() {
    let pool = tiny_pool(256 << 10);
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let geometry = *pool.geometry();
    for off in [0, 128, 192, geometry.lanes_off(), geometry.half_off(1, 0), geometry.lane_off(4) - 8] {
        assert!(matches!(tx.store(off, 1), Err(e) if e.is_corrupt()), "{off:#x}");
    }
    tx.set_root("a name", 1, 2).unwrap();
    tx.commit().unwrap();
}

#[test]
fn a_savepoint_that_is_gone_already_changes_nothing() {
    let pool = tiny_pool(256 << 10);
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let first = tx.savepoint();
    let block = tx.alloc(64).unwrap();
    tx.store(block, 1).unwrap();
    let second = tx.savepoint();
    tx.rollback_to(first);
    tx.rollback_to(second);
    tx.commit().unwrap();
    assert_eq!(pool.marks().unwrap().usage().allocated_blocks, 0);
}

#[test]
fn a_transaction_that_was_leaked_is_taken_back_by_the_next() {
    let pool = tiny_pool(256 << 10);
    let mut lane = pool.lane().unwrap();
    let table = model::make_table(&mut lane).unwrap();
    let mut tx = lane.begin();
    let block = tx.alloc(64).unwrap();
    tx.store(table, block).unwrap();
    std::mem::forget(tx);
    let tx = lane.begin();
    assert_eq!(tx.load(table).unwrap(), 0);
    tx.commit().unwrap();
    drop(lane);
    assert!(model::read(&pool).unwrap().is_empty());
}

/// Two lanes that free one block break their contract. Memory must stay sound even so, and one of them is
/// refused.
#[test]
fn a_block_is_freed_by_one_lane_only() {
    let pool = tiny_pool(256 << 10);
    let (mut a, mut b) = (pool.lane().unwrap(), pool.lane().unwrap());
    let table = model::make_table(&mut a).unwrap();
    let mut tx = a.begin();
    model::put(&mut tx, table, 0, 300, 1).unwrap();
    tx.commit().unwrap();
    let block = pool.region().load_u64(table).unwrap();
    let mut first = a.begin();
    let mut second = b.begin();
    first.free(block).unwrap();
    assert!(matches!(second.free(block), Err(e) if e.is_corrupt()));
    assert!(matches!(first.free(block), Err(e) if e.is_corrupt()));
    drop(first);
    // The first lane has rolled back.
    second.free(block).unwrap();
    second.store(table, 0).unwrap();
    second.commit().unwrap();
    drop((a, b));
    assert!(model::read(&pool).unwrap().is_empty());
}

#[test]
fn absurd_sizes_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("huge.pool");
    for initial_bytes in [u64::MAX, u64::MAX - 5000, 1 << 62] {
        let options = Options { initial_bytes, ..tiny_options() };
        assert!(Pool::open(&path, &options).is_err(), "{initial_bytes}");
    }
    let options = Options { max_bytes: Some(u64::MAX), ..tiny_options() };
    let pool = Pool::open(&path, &options).unwrap();
    let mut lane = pool.lane().unwrap();
    assert!(matches!(lane.begin().alloc(u64::MAX), Err(e) if matches!(e.kind(), ErrorKind::TooLarge { .. })));
}

/// Records as large as the largest block are not refused for want of a larger one.
#[test]
fn a_record_may_be_as_large_as_a_block() {
    let pool = tiny_pool(6 << 20);
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let block = tx.alloc(1 << 20).unwrap();
    tx.set_root("block", 1, block).unwrap();
    tx.commit().unwrap();
    let mut tx = lane.begin();
    for word in 0..(1 << 20) / 16 + 100 {
        tx.store(block + 8 * word, word).unwrap();
    }
    tx.commit().unwrap();
    assert_eq!(pool.region().load_u64(block + 800).unwrap(), 100);
}

/// The next commit does not look at the slabs that a failed one has noted: they may be gone by then.
#[test]
fn a_commit_that_failed_leaves_no_slabs_behind() {
    let pool = tiny_pool(512 << 10);
    let mut lane = pool.lane().unwrap();
    let _other = pool.lane().unwrap();
    let mut tx = lane.begin();
    let extent = tx.alloc(5 * 4096).unwrap();
    tx.set_root("extent", 1, extent).unwrap();
    tx.commit().unwrap();
    let mut tx = lane.begin();
    tx.alloc(64).unwrap();
    (0..2).for_each(|_| tx.free(extent).unwrap());
    assert!(tx.commit().unwrap_err().to_string().contains("freed twice"));
    assert!(lane.writes.gathered.new_slabs.is_empty());
    let mut tx = lane.begin();
    tx.lines().store_words(extent, &[1; 8]).unwrap();
    tx.commit().unwrap();
    assert_eq!(pool.region().load_u64(extent + 56).unwrap(), 1);
    pool.marks().unwrap();
}
