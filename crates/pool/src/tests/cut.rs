//! Tests of cuts: the file's end goes when it is free, and nothing alive goes with it.

use super::model::{self, Model};
use super::tiny_options;
use crate::alloc::CutRule;
use crate::layout::{COMMITTED_BITS, PAGE_BYTES, PmHeader, seal};
use crate::{Geometry, Options, Pool};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tembo_pmem::{Durability, offset_of};

const MIB: u64 = 1 << 20;
/// A journal whose records reach the device with a write-back only.
const NEVER_SYNCHRONISED: Durability = Durability::Relaxed { interval_ms: 3_600_000 };

/// Bytes that the file has on the disk.
fn allocated(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

fn length(path: &Path) -> u64 {
    path.metadata().unwrap().len()
}

/// Lanes are long enough for the records of the test, so that they hold no space.
fn options(durability: Durability) -> Options {
    let geometry = Geometry { lane_bytes: 16 << 10, ..Geometry::tiny() };
    let options = tiny_options().geometry(geometry).durability(durability).min_bytes(0);
    Options { journal_bytes: Some(64 << 10), ..options }
}

/// Puts `count` blocks of `bytes` bytes from link `first` on.
fn put(pool: &Pool, table: u64, first: u64, count: u64, bytes: u64) {
    let mut lane = pool.lane().unwrap();
    for link in first..first + count {
        let mut tx = lane.begin();
        model::put(&mut tx, table, link, bytes, link).unwrap();
        tx.commit().unwrap();
    }
}

fn remove(pool: &Pool, table: u64, links: impl Iterator<Item = u64>) {
    let mut lane = pool.lane().unwrap();
    for link in links {
        let mut tx = lane.begin();
        model::remove(&mut tx, table, link).unwrap();
        tx.commit().unwrap();
    }
}

fn new_table(pool: &Pool) -> u64 {
    model::make_table(&mut pool.lane().unwrap()).unwrap()
}

fn cut(pool: &Pool) -> u64 {
    pool.trim().unwrap();
    pool.cut(1, 0).unwrap()
}

/// The file grows over several zones, shrinks to what is alive, and grows again, in each domain that can be
/// cut; another opening finds everything.
#[test]
fn the_file_follows_what_is_alive() {
    let usual = [Durability::PageCache, Durability::Synced, Durability::Emulated];
    for durability in usual.into_iter().chain([NEVER_SYNCHRONISED, Durability::Journaled]) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.pool");
        let pool = Pool::open(&path, &options(durability)).unwrap();
        let table = new_table(&pool);
        put(&pool, table, 0, 4, 100);
        for round in 0..3 {
            put(&pool, table, 10, 8, 900_000);
            let grown = length(&path);
            assert!(grown > 7 * MIB && pool.stats().pool_bytes == grown, "{durability:?}: {grown}");
            remove(&pool, table, 10..18);
            let gone = cut(&pool);
            let after = length(&path);
            assert!(after == pool.stats().pool_bytes && after == grown - gone, "{after} of {grown}");
            assert!(after < MIB, "{durability:?}, round {round}: {after}");
            assert_eq!(cut(&pool), 0);
            pool.marks().unwrap();
        }
        let before: Model = model::read(&pool).unwrap();
        drop(pool);
        let pool = Pool::open(&path, &options(durability)).unwrap();
        assert_eq!(model::read(&pool).unwrap(), before);
        put(&pool, table, 10, 3, 900_000);
        pool.marks().unwrap();
    }
}

/// A cut in steps ends where one at once does, also across zones, and each step is short.
#[test]
fn steps_lead_where_one_cut_does() {
    let geometry = Geometry::tiny();
    let zone = geometry.zone_bytes();
    for most in [geometry.chunk(), 5 * geometry.chunk(), zone / 2, zone, 3 * zone] {
        let dir = tempfile::tempdir().unwrap();
        let lengths = [most, u64::MAX].map(|most| {
            let pool =
                Pool::open(dir.path().join(format!("{most}.pool")), &options(Durability::PageCache)).unwrap();
            let table = new_table(&pool);
            put(&pool, table, 0, 4, 100);
            put(&pool, table, 10, 40, 20_000);
            remove(&pool, table, 10..50);
            pool.trim().unwrap();
            let mut steps = 0;
            loop {
                let before = pool.stats().pool_bytes;
                let gone = pool.cut_by(1, 0, most).unwrap();
                assert_eq!(before - gone, pool.stats().pool_bytes);
                if gone == 0 {
                    break;
                }
                steps += 1;
                let head = geometry.zone_header_chunks() * geometry.chunk();
                assert!(gone <= most.saturating_add(head + geometry.chunk()), "{gone} bytes, not {most}");
                pool.marks().unwrap();
            }
            assert!(steps > 1 || most > zone, "{most}");
            put(&pool, table, 10, 40, 20_000);
            remove(&pool, table, 10..50);
            pool.marks().unwrap();
            cut(&pool);
            pool.stats().pool_bytes
        });
        assert_eq!(lengths[0], lengths[1], "{most}");
    }
}

/// A trim in steps gives back as much as one at once does.
#[test]
fn a_trim_in_steps_gives_all_back() {
    let dir = tempfile::tempdir().unwrap();
    let given_back = [false, true].map(|in_steps| {
        let path = dir.path().join(format!("{in_steps}.pool"));
        let pool = Pool::open(&path, &options(Durability::PageCache)).unwrap();
        let table = new_table(&pool);
        put(&pool, table, 0, 40, 20_000);
        put(&pool, table, 40, 16, 900_000);
        put(&pool, table, 60, 4, 40);
        remove(&pool, table, 0..56);
        let blocks = allocated(&path);
        let (mut sum, mut steps) = (0, 0);
        if in_steps {
            let mut next = Some(pool.begin_trim().unwrap());
            while let Some(place) = next {
                let bytes;
                (bytes, next) = pool.trim_step(None, place).unwrap();
                assert!(bytes <= 4 * MIB, "{bytes} in a step");
                (sum, steps) = (sum + bytes, steps + 1);
            }
            assert!(steps > 4, "{steps}");
        } else {
            sum = pool.trim().unwrap();
        }
        assert!(sum > 12 * MIB && allocated(&path) + sum <= blocks + MIB, "{sum} of {blocks}");
        pool.marks().unwrap();
        (sum, pool.stats().unused_bytes, allocated(&path))
    });
    assert_eq!(given_back[0], given_back[1]);
}

/// The records of a journal have no lines of a part that was cut off, or given back: a later write-back does
/// not make the file longer, or fill the hole, and a kill leaves the pool as it was.
#[test]
fn a_journal_does_not_bring_back_what_went() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    for durability in [NEVER_SYNCHRONISED, Durability::Journaled] {
        let _ = std::fs::remove_file(&path);
        let pool = Pool::open(&path, &options(durability)).unwrap();
        let table = new_table(&pool);
        put(&pool, table, 0, 8, 900_000);
        put(&pool, table, 10, 10, 100);
        remove(&pool, table, 3..8);
        let private = |pool: &Pool| pool.journal_stats().unwrap().private_bytes;
        let before = private(&pool);
        assert!(cut(&pool) > 4 * 900_000);
        assert!(private(&pool) + 4 * 900_000 < before, "{} of {before}", private(&pool));
        // These blocks lie in the middle of the file: when they are freed, they are a hole.
        put(&pool, table, 20, 4, 900_000);
        remove(&pool, table, 20..23);
        put(&pool, table, 30, 3, 100);
        let (blocks, before) = (allocated(&path), private(&pool));
        assert!(pool.trim().unwrap() > 2 * 900_000);
        assert!(allocated(&path) + 2 * 900_000 < blocks, "{} of {blocks}", allocated(&path));
        assert!(private(&pool) + 2 * 900_000 < before, "{} of {before}", private(&pool));
        let hole = allocated(&path);
        put(&pool, table, 33, 3, 100);
        pool.write_journal_home().unwrap();
        assert!(length(&path) == pool.stats().pool_bytes && allocated(&path) <= hole + (64 << 10));
        put(&pool, table, 36, 3, 100);
        let (killed, expected) = (std::fs::read(&path).unwrap(), model::read(&pool).unwrap());
        let committed = pool.stats().pool_bytes;
        drop(pool);
        std::fs::write(&path, &killed).unwrap();
        for durability in [durability, Durability::PageCache] {
            let pool = Pool::open(&path, &options(durability)).unwrap();
            assert_eq!((pool.stats().pool_bytes, length(&path)), (committed, committed));
            assert_eq!(model::read(&pool).unwrap(), expected);
            pool.marks().unwrap();
        }
    }
}

/// A kill after the commit of the shorter length, while the ring has records of the part that is cut off. The
/// next opening finds these records, and cuts the file; the opening after it finds a whole pool.
#[test]
fn a_kill_inside_of_a_cut_leaves_a_pool_that_opens() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = Pool::open(&path, &options(NEVER_SYNCHRONISED).journal_bytes(256 << 10)).unwrap();
    let table = new_table(&pool);
    put(&pool, table, 0, 4, 100);
    put(&pool, table, 10, 3, 20_000);
    put(&pool, table, 20, 4, 20_000);
    remove(&pool, table, 20..24);
    let expected = model::read(&pool).unwrap();
    pool.inner.reclaim_all().unwrap();
    let rule = CutRule { floor_bytes: 0, slack_bytes: 0, least_bytes: 1, most_bytes: u64::MAX };
    let killed_here = pool.inner.log.while_quiet(|| {
        pool.inner.alloc.cut(pool.region(), rule, |length| {
            assert!(length + (60 << 10) < pool.region().len());
            pool.inner.commit_length(length)?;
            Err(crate::ErrorKind::Forked.into())
        })
    });
    assert!(killed_here.is_err());
    let mut image = std::fs::read(&path).unwrap();
    drop(pool);
    for durability in [NEVER_SYNCHRONISED, NEVER_SYNCHRONISED, Durability::PageCache] {
        std::fs::write(&path, &image).unwrap();
        let pool = Pool::open(&path, &options(durability)).unwrap();
        assert_eq!(length(&path), pool.stats().pool_bytes);
        assert_eq!(model::read(&pool).unwrap(), expected);
        pool.marks().unwrap();
        image = std::fs::read(&path).unwrap();
    }
}

/// A mutant of the moment without live records that left out the watermark had no test that failed: a record
/// of a chunk that was cut off would be replayed behind the pool's end. An image from within has no record to
/// replay, and one from before has; numbers of later records stand above the watermark.
#[test]
fn no_record_is_live_in_a_quiet_moment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = Pool::open(&path, &options(Durability::Emulated)).unwrap();
    let table = new_table(&pool);
    let mut lanes = [pool.lane().unwrap(), pool.lane().unwrap()];
    let mut put = |lane: usize, link: u64| {
        let mut tx = lanes[lane].begin();
        model::put(&mut tx, table, link, 100, link).unwrap();
        tx.commit().unwrap();
    };
    let replayed = |image: Vec<u8>| {
        let copy = dir.path().join("copy.pool");
        std::fs::write(&copy, image).unwrap();
        let options = Options { accept_unclean: true, ..options(Durability::PageCache) };
        let pool = Pool::open(&copy, &options).unwrap();
        (pool.recovery().records_replayed, model::read(&pool).unwrap())
    };
    (0..6).for_each(|link| put(link as usize % 2, link));
    let expected = model::read(&pool).unwrap();
    let (before, found) = replayed(std::fs::read(&path).unwrap());
    assert!(before > 0 && found == expected, "{before}");
    let within = pool.inner.log.while_quiet(|| Ok(std::fs::read(&path).unwrap())).unwrap();
    assert_eq!(replayed(within), (0, expected));
    // One of a lane that has written nothing since, and one of the other.
    put(1, 7);
    let expected = model::read(&pool).unwrap();
    assert_eq!(replayed(std::fs::read(&path).unwrap()), (1, expected));
}

/// A block at the end keeps the file from being cut, wherever the holes are. So does a reserved block, and a
/// block that a reader may look at.
#[test]
fn nothing_that_somebody_uses_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = Pool::open(&path, &options(Durability::PageCache)).unwrap();
    let table = new_table(&pool);
    put(&pool, table, 0, 6, 900_000);
    remove(&pool, table, 0..5);
    let before = length(&path);
    cut(&pool);
    assert!(length(&path) > 5 * 900_000, "{} of {before}", length(&path));
    let last = model::read(&pool).unwrap();
    // A reader that began before the removal.
    let pin = pool.pin();
    remove(&pool, table, 5..6);
    cut(&pool);
    assert!(length(&path) > 5 * 900_000);
    assert_eq!(last.len(), 1);
    drop(pin);
    // A transaction that has not committed yet.
    cut(&pool);
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let block = (0..4).map(|_| tx.alloc(900_000).unwrap()).last().unwrap();
    cut(&pool);
    assert!(length(&path) > block + 900_000);
    tx.set_root("block", 1, block).unwrap();
    drop(tx);
    drop(lane);
    assert!(cut(&pool) > 3 * 900_000);
}

#[test]
fn the_least_length_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let options = tiny_options().min_bytes(3 * MIB);
    let pool = Pool::open(&path, &options).unwrap();
    let table = new_table(&pool);
    put(&pool, table, 0, 8, 900_000);
    remove(&pool, table, 0..8);
    cut(&pool);
    assert!((3 * MIB..3 * MIB + (64 << 10)).contains(&length(&path)), "{}", length(&path));
    pool.set_min_bytes(0);
    assert_eq!(cut(&pool) / MIB, 2);
    drop(pool);
    // Without a choice, the length that a new pool would have.
    let pool = Pool::open(&path, &tiny_options()).unwrap();
    assert_eq!(pool.min_bytes(), tiny_options().initial_bytes);
}

/// A crash between the commit of the length and the cut of the file leaves a longer file, and one in front of
/// the commit a lower frontier.
#[test]
fn a_file_that_is_too_long_is_cut_when_it_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = Pool::open(&path, &options(Durability::PageCache)).unwrap();
    let table = new_table(&pool);
    put(&pool, table, 0, 8, 900_000);
    remove(&pool, table, 0..8);
    put(&pool, table, 1, 1, 50);
    drop(pool);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let grown = length(&path);
    let pool = Pool::open(&path, &options(Durability::PageCache)).unwrap();
    cut(&pool);
    let shorter = pool.stats().pool_bytes;
    drop(pool);
    file.set_len(grown).unwrap();
    // The remains of another pool, or anything.
    file.write_all_at(&[0xA5; 4096], shorter).unwrap();
    file.write_all_at(&[0xA5; 4096], options(Durability::PageCache).chosen_geometry().zone_off(1)).unwrap();
    let reader =
        Pool::open(&path, &Options { read_only: true, create: false, ..options(Durability::PageCache) });
    assert_eq!(reader.unwrap().stats().pool_bytes, shorter);
    assert_eq!(length(&path), grown, "an opening that only reads");
    let pool = Pool::open(&path, &options(Durability::PageCache)).unwrap();
    assert_eq!((length(&path), pool.stats().pool_bytes), (shorter, shorter));
    put(&pool, table, 10, 4, 900_000);
    pool.marks().unwrap();
    assert_eq!(model::read(&pool).unwrap().len(), 5);
    // The header has a length that the file has not: the cut came too early.
    drop(pool);
    let word = seal(2 * grown / PAGE_BYTES, COMMITTED_BITS);
    file.write_all_at(&word.to_le_bytes(), offset_of!(PmHeader, committed) as u64).unwrap();
    let refused = Pool::open(&path, &options(Durability::PageCache)).unwrap_err();
    assert!(matches!(refused.kind(), crate::ErrorKind::Truncated { .. }), "{refused}");
}

/// Threads write and grow the pool while another one cuts it.
#[test]
fn writers_go_on_while_the_file_is_cut() {
    [Durability::PageCache, Durability::Relaxed { interval_ms: 20 }].into_iter().for_each(cut_beside_writers);
}

fn cut_beside_writers(durability: Durability) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = Pool::open(&path, &options(durability)).unwrap();
    let table = new_table(&pool);
    let rounds = if cfg!(debug_assertions) { 40 } else { 200 };
    let cuts = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (pool, cuts) = (&pool, &cuts);
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                scope.spawn(move || {
                    // Beside other programs no cut may have come between yet.
                    let is_on = |round: &u64| *round < rounds || cuts.load(Ordering::Relaxed) == 0;
                    for round in (0..100 * rounds).take_while(is_on) {
                        put(pool, table, 20 * writer, 3, 10_000 + 7000 * (round % 9));
                        put(pool, table, 20 * writer + 5, 3, 40);
                        remove(pool, table, 20 * writer..20 * writer + 2);
                    }
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            cuts.fetch_add(u64::from(cut(pool) > 0), Ordering::Relaxed);
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert!(cuts.load(Ordering::Relaxed) > 0);
    });
    cut(&pool);
    pool.marks().unwrap();
    assert_eq!(model::read(&pool).unwrap().len(), 8);
}
