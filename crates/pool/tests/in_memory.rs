//! The pool's parts once, in few steps and without a file: what Miri can run (docs/testing.md).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};

fn region(image: &[u8]) -> Region {
    // Little enough that looking at all of it takes Miri little time.
    Region::simulated(image, 512 << 10, None).unwrap()
}

fn pool() -> Pool {
    Pool::create_in(region(&[0; 64 << 10]), &Geometry::tiny()).unwrap()
}

/// The image that a crash at this moment leaves if it loses nothing.
fn image_of(pool: &Pool) -> Vec<u8> {
    let region = pool.region();
    // SAFETY: the test that uses this has no other thread.
    unsafe { region.bytes(0, region.len()).unwrap() }.to_vec()
}

/// Blocks of every size that a table with a word for each leads to, and nothing else, are allocated.
fn prove(pool: &Pool, sizes: &[u64]) {
    let mut marks = pool.marks().unwrap();
    let table = pool.root("table").unwrap().unwrap().off;
    marks.reach(table, 8 * sizes.len() as u64).unwrap();
    for (i, bytes) in sizes.iter().enumerate() {
        let block = pool.region().load_u64(table + 8 * i as u64).unwrap();
        if block != 0 {
            marks.reach(block, *bytes).unwrap();
        }
    }
    marks.finish().unwrap();
}

/// Blocks of slabs, of runs of chunks, and larger than the pool before it grows. The longer ones are fenced
/// before their record.
const SIZES: [u64; 8] = [16, 24, 64, 200, 1500, 3000, 9000, 20_000];

#[test]
fn blocks_of_all_sizes_are_there_after_a_crash_and_can_be_freed() {
    let pool = pool();
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let table = tx.alloc(8 * SIZES.len() as u64).unwrap();
    tx.write_fresh(table, &[0; 8 * SIZES.len()]).unwrap();
    tx.set_root("table", 1, table).unwrap();
    tx.commit().unwrap();
    for (i, bytes) in SIZES.iter().enumerate() {
        let mut tx = lane.begin();
        let block = tx.alloc(*bytes).unwrap();
        tx.write_fresh(block, &vec![i as u8 + 1; *bytes as usize]).unwrap();
        tx.store(table + 8 * i as u64, block).unwrap();
        let savepoint = tx.savepoint();
        let other = tx.alloc_zeroed(40).unwrap();
        tx.store(other, 1).unwrap();
        tx.store(table, other).unwrap();
        tx.rollback_to(savepoint);
        tx.commit().unwrap();
    }
    prove(&pool, &SIZES);
    let image = image_of(&pool);
    drop((lane, pool));

    let pool = Pool::open_in(region(&image)).unwrap();
    prove(&pool, &SIZES);
    let mut lane = pool.lane().unwrap();
    for (i, bytes) in SIZES.iter().enumerate() {
        let off = table + 8 * i as u64;
        let block = pool.region().load_u64(off).unwrap();
        // SAFETY: nobody stores to the block while the slice lives.
        let found = unsafe { pool.region().bytes(block, *bytes).unwrap() };
        assert!([0, bytes / 2, bytes - 1].iter().all(|at| found[*at as usize] == i as u8 + 1));
        let mut tx = lane.begin();
        tx.store(off, 0).unwrap();
        tx.free(block).unwrap();
        tx.commit().unwrap();
    }
    prove(&pool, &SIZES);
    drop(lane);
    pool.trim().unwrap();
    assert_eq!(pool.limbo_bytes(), 0);
}

/// Two threads replace blocks that two others look at: nothing that is found is written to while its finder
/// has a pin.
#[test]
fn blocks_are_not_used_again_under_those_who_look_at_them() {
    const ROUNDS: u64 = if cfg!(miri) { 40 } else { 4000 };
    // For this many commits a pin is held: in fewer, blocks that nobody waits for would be used again.
    const HELD: u64 = 16;
    let pool = pool();
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let table = tx.alloc(16).unwrap();
    tx.write_fresh(table, &[0; 16]).unwrap();
    tx.set_root("table", 1, table).unwrap();
    tx.commit().unwrap();
    drop(lane);
    let (done, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    let write = |me: u64| {
        let mut lane = pool.lane().unwrap();
        let off = table + 8 * me;
        for round in 1..=ROUNDS {
            let mut tx = lane.begin();
            let old = tx.load(off).unwrap();
            let block = tx.alloc(64).unwrap();
            tx.write_fresh(block, &round.to_ne_bytes().repeat(8)).unwrap();
            tx.store(off, block).unwrap();
            if old != 0 {
                tx.free(old).unwrap();
            }
            tx.commit().unwrap();
            commits.fetch_add(1, Ordering::Relaxed);
        }
        done.store(true, Ordering::Relaxed);
    };
    let look = |is_brief: bool| {
        let mut last = 0;
        while !done.load(Ordering::Relaxed) {
            let _pins = if is_brief { (Some(pool.pin_briefly()), None) } else { (None, Some(pool.pin())) };
            let block = pool.region().load_u64(table).unwrap();
            if block == 0 {
                continue;
            }
            // SAFETY: a block that a pin's owner finds is not written to before it is free again.
            let found = unsafe { pool.region().bytes(block, 64).unwrap() };
            let round = u64::from_ne_bytes(*found.first_chunk().unwrap());
            let until = commits.load(Ordering::Relaxed) + HELD;
            while commits.load(Ordering::Relaxed) < until && !done.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            assert!(round >= last && found.chunks(8).all(|word| word == round.to_ne_bytes()));
            last = round;
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| write(0));
        scope.spawn(|| write(1));
        scope.spawn(|| look(true));
        scope.spawn(|| look(false));
    });
    prove(&pool, &[64, 64]);
}
