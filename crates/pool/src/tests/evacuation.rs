//! Evacuations: the end of a pool, and runs of chunks in its middle, are emptied at the least cost.

use crate::alloc::{Tally, Unit, What};
use crate::{Compaction, Geometry, KeptSpace, Lane, Options, Pool};
use std::collections::{BTreeMap, BTreeSet};

const MIB: u64 = 1 << 20;

/// A pool with numbered blocks, which a table leads to.
struct Blocks {
    pool: Pool,
    lane: Lane,
    table: u64,
    blocks: BTreeMap<u64, u64>,
    /// The blocks that never move.
    fixed: BTreeSet<u64>,
    _dir: tempfile::TempDir,
}

const NUMBERS: u64 = 12_000;

impl Blocks {
    fn new(max_bytes: u64) -> Blocks {
        let dir = tempfile::tempdir().unwrap();
        let geometry = Geometry { zone_chunks: 1 << 12, lane_bytes: 4096, ..Geometry::tiny() };
        let options = Options::new()
            .create(true)
            .initial_bytes(512 << 10)
            .max_bytes(max_bytes)
            .geometry(geometry)
            .durability(tembo_pmem::Durability::PageCache);
        let pool = Pool::open(dir.path().join("a.pool"), &options.min_bytes(0)).unwrap();
        let mut lane = pool.lane().unwrap();
        let mut tx = lane.begin();
        let table = tx.alloc(8 * NUMBERS).unwrap();
        tx.write_fresh(table, &[0; 8 * NUMBERS as usize]).unwrap();
        tx.set_root("table", 1, table).unwrap();
        tx.commit().unwrap();
        Blocks { pool, lane, table, blocks: BTreeMap::new(), fixed: BTreeSet::new(), _dir: dir }
    }

    fn put(&mut self, number: u64, bytes: u64) -> crate::Result<()> {
        let mut tx = self.lane.begin();
        let off = tx.alloc(bytes)?;
        tx.write_fresh(off, &number.to_le_bytes())?;
        tx.store(self.table + 8 * number, off)?;
        tx.commit()?;
        self.blocks.insert(number, bytes);
        Ok(())
    }

    /// Puts blocks until the pool is full; returns the number of the last.
    fn fill(&mut self, first: u64, bytes: u64) -> u64 {
        (first..NUMBERS).find(|number| self.put(*number, bytes).is_err()).expect("the pool becomes full")
    }

    fn remove(&mut self, number: u64) {
        self.blocks.remove(&number).unwrap();
        let mut tx = self.lane.begin();
        tx.use_kept_space(KeptSpace::All);
        let off = tx.load(self.table + 8 * number).unwrap();
        tx.free(off).unwrap();
        tx.store(self.table + 8 * number, 0).unwrap();
        tx.commit().unwrap();
    }

    /// Moves the blocks of a compaction; returns their bytes.
    fn move_all(&mut self, compaction: &Compaction) -> u64 {
        let mut moved = 0;
        for (number, bytes) in self.blocks.iter().filter(|(number, _)| !self.fixed.contains(number)) {
            let word = self.table + 8 * number;
            let old = self.pool.region().load_u64(word).unwrap();
            if compaction.has(old) {
                let mut tx = self.lane.begin();
                tx.use_kept_space(KeptSpace::Half);
                let new = tx.alloc(*bytes).unwrap();
                assert!(!compaction.has(new));
                tx.write_fresh(new, &number.to_le_bytes()).unwrap();
                tx.store(word, new).unwrap();
                tx.free(old).unwrap();
                tx.commit().unwrap();
                moved += bytes;
            }
        }
        moved
    }

    /// One compaction, which the pool chooses; returns the bytes that it moved.
    fn compact(&mut self, of_tail: bool) -> Option<u64> {
        self.pool.recall_slabs();
        drop(self.lane.begin());
        let chosen = if of_tail { self.pool.tail_compaction() } else { self.pool.compaction() };
        let chosen = chosen.unwrap().unwrap();
        if chosen.is_empty() {
            return None;
        }
        let moved = self.move_all(&chosen);
        chosen.complete().unwrap();
        self.pool.trim().unwrap();
        Some(moved)
    }

    fn check(&self) {
        let mut marks = self.pool.marks().unwrap();
        marks.reach(self.table, 8 * NUMBERS).unwrap();
        for (number, bytes) in &self.blocks {
            let off = self.pool.region().load_u64(self.table + 8 * number).unwrap();
            assert_eq!(self.pool.region().load_u64(off).unwrap(), *number);
            marks.reach(off, *bytes).unwrap();
        }
        marks.finish().unwrap();
    }
}

/// Small blocks behind large ones that are gone: the small ones move down, and nothing else.
#[test]
fn the_end_is_emptied_where_that_makes_the_file_much_shorter() {
    let mut blocks = Blocks::new(64 * MIB);
    (0..100).for_each(|number| blocks.put(number, 300).unwrap());
    (100..120).for_each(|number| blocks.put(number, 400_000).unwrap());
    (200..1200).for_each(|number| blocks.put(number, 300).unwrap());
    (1300..1303).for_each(|number| blocks.put(number, 100_000).unwrap());
    (100..120).for_each(|number| blocks.remove(number));
    let before = blocks.pool.stats().pool_bytes;
    // Nothing but the end: no slab is sparse.
    let moved = blocks.compact(false).unwrap();
    assert!((550_000..650_000).contains(&moved), "{moved}");
    let gone = blocks.pool.cut(1, 0).unwrap();
    assert!(before - gone < 3 * MIB / 2, "{gone} of {before}");
    assert_eq!((blocks.compact(false), blocks.compact(true)), (None, None));
    blocks.check();
}

/// A block of a slab, or an extent, that nobody moves: the end is not emptied in vain a second time, before
/// it is freed.
#[test]
fn what_stays_at_the_end_is_left_alone_until_it_is_freed() {
    for stays in [1000, 1302] {
        let mut blocks = Blocks::new(64 * MIB);
        (0..100).for_each(|number| blocks.put(number, 300).unwrap());
        (100..120).for_each(|number| blocks.put(number, 400_000).unwrap());
        (200..1200).for_each(|number| blocks.put(number, 300).unwrap());
        (1300..1303).for_each(|number| blocks.put(number, 100_000).unwrap());
        (100..120).for_each(|number| blocks.remove(number));
        blocks.fixed.insert(stays);
        blocks.pool.cut(1, 0).unwrap();
        assert!(blocks.compact(true).unwrap() > 400_000);
        assert_eq!((blocks.pool.cut(4 * MIB, 0).unwrap(), blocks.compact(true)), (0, None), "{stays}");
        // Another block there does not change that.
        blocks.put(1500, 300).unwrap();
        assert_eq!(blocks.compact(true), None, "{stays}");
        blocks.remove(stays);
        blocks.pool.trim().unwrap();
        blocks.compact(true);
        assert!(blocks.pool.cut(1, 0).unwrap() > 4 * MIB, "{stays}");
        blocks.check();
    }
}

/// A compaction that would gain little moves nothing, and none moves anything below the least length.
#[test]
fn the_end_stays_where_emptying_it_gains_little() {
    let mut blocks = Blocks::new(64 * MIB);
    (0..40).for_each(|number| blocks.put(number, 400_000).unwrap());
    (100..300).for_each(|number| blocks.put(number, 3000).unwrap());
    blocks.pool.cut(1, 0).unwrap();
    blocks.remove(20);
    assert_eq!(blocks.compact(true), None, "400 kB of 16 MB");
    (0..20).for_each(|number| blocks.remove(number));
    blocks.pool.set_min_bytes(blocks.pool.stats().pool_bytes - MIB / 2);
    assert_eq!(blocks.compact(true), None, "below the least length");
    blocks.pool.set_min_bytes(0);
    assert!(blocks.compact(true).unwrap() > 600_000);
    assert!(blocks.pool.cut(1, 0).unwrap() > 5 * MIB);
    blocks.check();
}

/// A pool full of small blocks, of which each slab has lost an eighth: a large block gets a run for which not
/// much more than its own length is moved.
#[test]
fn a_large_block_gets_the_run_that_costs_least() {
    let mut blocks = Blocks::new(8 * MIB);
    let count = blocks.fill(0, 1000);
    (0..count).filter(|number| number % 8 == 0).for_each(|number| blocks.remove(number));
    // The compaction moves little: for the last slab it finds no run, either.
    assert!(blocks.compact(false).unwrap() < 100_000);
    assert_eq!(blocks.compact(false), None, "no slab is sparse enough");
    // A part in which half is gone.
    (4001..4400).filter(|number| number % 2 == 1).for_each(|number| blocks.remove(number));
    blocks.put(NUMBERS - 1, 256 << 10).unwrap_err();
    assert!(blocks.pool.missed_run_bytes() > 0);
    let moved = blocks.compact(false).unwrap();
    assert!((100_000..400_000).contains(&moved), "{moved}");
    assert!(blocks.pool.missed_run_bytes() == 0 && blocks.pool.has_made_run());
    blocks.put(NUMBERS - 1, 256 << 10).unwrap();
    blocks.check();
}

/// The number of the chunk that a block lies in.
fn chunk_of(blocks: &Blocks, number: u64) -> u64 {
    let off = blocks.pool.region().load_u64(blocks.table + 8 * number).unwrap();
    off / u64::from(blocks.pool.geometry().chunk_bytes)
}

/// Every second chunk is free, and some slabs are sparse: emptying these makes no run for a slab of several
/// chunks, and the compaction after that does, whether others are sparse by then or not.
#[test]
fn a_slab_that_found_no_run_gets_one_also_after_sparse_slabs_were_emptied() {
    for are_more_sparse in [false, true] {
        let mut blocks = Blocks::new(MIB + MIB / 4);
        let count = blocks.fill(0, 100);
        let mut left: Vec<u64> = (0..count).collect();
        let mut thin = |blocks: &mut Blocks, is_free: fn(u64) -> bool, sparse: u64| {
            left.retain(|number| {
                let chunk = chunk_of(blocks, *number);
                let goes = is_free(chunk) || chunk % 16 == sparse && number % 5 > 0;
                if goes {
                    blocks.remove(*number);
                }
                !goes
            });
            blocks.pool.trim().unwrap();
        };
        thin(&mut blocks, |chunk| chunk % 2 == 0, 1);
        blocks.put(NUMBERS - 1, 2000).unwrap_err();
        assert!(blocks.pool.missed_run_bytes() > 0);
        assert!(blocks.compact(false).is_some());
        assert!(blocks.pool.missed_run_bytes() > 0, "the first makes no run");
        if are_more_sparse {
            thin(&mut blocks, |_| false, 3);
        }
        assert!(blocks.compact(false).is_some());
        assert_eq!(blocks.pool.missed_run_bytes(), 0, "{are_more_sparse}");
        blocks.put(NUMBERS - 1, 2000).unwrap();
        blocks.check();
    }
}

/// Others fill the pool while a run is being emptied for a large block: the compaction is called off, and the
/// run is missed as before. The next one makes it once there is room.
#[test]
fn a_run_is_missed_again_after_its_compaction_was_called_off() {
    let mut blocks = Blocks::new(8 * MIB);
    let count = blocks.fill(0, 1000);
    (0..count).filter(|number| number % 8 == 0).for_each(|number| blocks.remove(number));
    while blocks.compact(false).is_some() {}
    (4001..4400).filter(|number| number % 2 == 1).for_each(|number| blocks.remove(number));
    blocks.put(NUMBERS - 1, 256 << 10).unwrap_err();
    let missed = blocks.pool.missed_run_bytes();
    assert!(missed >= 256 << 10);
    blocks.pool.recall_slabs();
    drop(blocks.lane.begin());
    let compaction = blocks.pool.compaction().unwrap().unwrap();
    assert!(!compaction.is_empty() && blocks.pool.missed_run_bytes() == 0);
    blocks.fill(count, 300);
    assert!(compaction.is_called_off());
    assert!(blocks.pool.missed_run_bytes() >= missed);
    compaction.complete().unwrap();
    (4000..6000).filter(|number| number % 8 > 0).for_each(|number| {
        if blocks.blocks.contains_key(&number) {
            blocks.remove(number);
        }
    });
    blocks.pool.trim().unwrap();
    while blocks.compact(false).is_some() {}
    blocks.put(NUMBERS - 1, 256 << 10).unwrap();
    blocks.check();
}

/// Free chunks that lie alone are no room for slabs of several chunks; runs of the same sum are.
#[test]
fn slabs_of_several_chunks_find_room_in_runs_only() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().create(true).geometry(Geometry::tiny()).initial_bytes(1 << 20);
    let options = options.max_bytes(1 << 20);
    let pool = Pool::open(dir.path().join("a.pool"), &options).unwrap();
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let class = pool.inner.alloc.classes.class_for(1500).unwrap();
    let shape = pool.inner.alloc.classes.get(class).unwrap();
    let blocks = 4 * shape.blocks;
    (0..blocks).for_each(|_| _ = tx.alloc(1500).unwrap());
    tx.commit().unwrap();
    drop(lane);
    let alloc = &pool.inner.alloc;
    let units = alloc.survey_all(pool.region()).unwrap();
    let of_class = |unit: &Unit| matches!(&unit.what, What::Slab { slab, .. } if slab.class_number == class);
    let inside: Vec<Unit> = units.into_iter().filter(of_class).collect();
    let moved: u64 = inside.iter().map(|unit| unit.chunks).sum();
    assert!(shape.chunks > 1 && moved >= 4 * shape.chunks);
    for (length, expected) in [(1, false), (shape.chunks - 1, false), (shape.chunks, true), (moved, true)] {
        let free = (0..moved.div_ceil(length)).map(|i| Unit {
            off: 0x100_0000 * (i + 1),
            chunks: length,
            what: What::Free,
        });
        let outside: Vec<Unit> = free.collect();
        let mut tally = Tally::new(alloc, &outside);
        inside.iter().for_each(|unit| tally.turn(unit, true));
        assert!(tally.fits(0));
        assert_eq!(tally.has_runs(), expected, "{length}");
        tally.turn(&outside[0], true);
        assert!(!tally.has_runs(), "{length}");
        tally.turn(&outside[0], false);
        assert_eq!(tally.has_runs(), expected, "{length}");
    }
}
