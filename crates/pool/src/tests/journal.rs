//! Pool files with a journal.

use super::{model, tiny_options};
use crate::feature::Feature;
use crate::file::opening::{OPENING_OFF, moved};
use crate::layout::{JOURNAL_BITS, JOURNAL_OFF, unseal};
use crate::{Ending, ErrorKind, Options, Pool};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tembo_pmem::{Domain, Durability, is_in_memory};

const RELAXED: Durability = Durability::Relaxed { interval_ms: 20 };
const JOURNAL_BYTES: u64 = 64 << 10;

fn options(durability: Durability) -> Options {
    Options { journal_bytes: Some(JOURNAL_BYTES), ..tiny_options().durability(durability) }
}

fn put(pool: &Pool, table: u64, link: u64, bytes: u64) {
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    model::put(&mut tx, table, link, bytes, 4 * link).unwrap();
    tx.commit().unwrap();
}

fn table_of(pool: &Pool) -> u64 {
    pool.roots().unwrap()[0].off
}

/// A pool with some entries, open.
fn filled(path: &Path, durability: Durability) -> Pool {
    let pool = Pool::open(path, &options(durability)).unwrap();
    let table = model::make_table(&mut pool.lane().unwrap()).unwrap();
    (0..40).for_each(|link| put(&pool, table, link, 100 + link));
    pool
}

fn expected() -> model::Model {
    (0..40).map(|link| (link, (100 + link, 4 * link))).collect()
}

#[test]
fn a_pool_gets_a_journal_once_and_is_opened_in_every_domain_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = filled(&path, RELAXED);
    assert_eq!(pool.region().domain(), Domain::Relaxed);
    let (off, stats) = (pool.journal_off().unwrap().unwrap(), pool.journal_stats().unwrap());
    assert!(stats.ring_bytes > JOURNAL_BYTES / 2 && stats.written_bytes > 0, "{stats:?}");
    drop(pool);
    let domains = [Durability::Journaled, Durability::PageCache, Durability::Synced, RELAXED];
    for durability in domains {
        let pool = Pool::open(&path, &options(durability)).unwrap();
        assert_eq!(pool.last_ending(), Ending::Closed, "{durability}");
        assert_eq!(pool.journal_off().unwrap(), Some(off), "{durability}");
        assert_eq!(pool.journal_stats().is_some(), durability.needs_journal());
        assert_eq!(model::read(&pool).unwrap(), expected(), "{durability}");
    }
    // A closed pool does not need the contents of its journal.
    let mut bytes = fs::read(&path).unwrap();
    let word = u64::from_le_bytes(bytes[JOURNAL_OFF as usize..][..8].try_into().unwrap());
    assert_eq!(unseal(word, JOURNAL_BITS), Some(off));
    bytes[off as usize + 8192..][..8192].fill(0);
    fs::write(&path, bytes).unwrap();
    let pool = Pool::open(&path, &options(Durability::PageCache)).unwrap();
    assert_eq!(model::read(&pool).unwrap(), expected());
}

#[test]
fn a_pool_from_before_journals_gets_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    drop(filled(&path, Durability::PageCache));
    assert_eq!(Pool::open(&path, &options(Durability::PageCache)).unwrap().journal_off().unwrap(), None);
    for durability in [Durability::Journaled, RELAXED] {
        let pool = Pool::open(&path, &options(durability)).unwrap();
        assert!(pool.has(Feature::Journal));
        assert_eq!(model::read(&pool).unwrap(), expected());
    }
}

/// The record that gives a pool its journal was taken for a forged one: a kill between its commit and the
/// closing that follows left a pool that nobody could open.
#[test]
fn a_kill_right_after_a_pool_got_its_journal_leaves_it_with_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = filled(&path, Durability::PageCache);
    pool.add_journal(&options(RELAXED)).unwrap();
    let (killed, off) = (fs::read(&path).unwrap(), pool.journal_off().unwrap());
    drop(pool);
    for durability in [Durability::PageCache, Durability::Journaled, RELAXED] {
        fs::write(&path, &killed).unwrap();
        let pool = Pool::open(&path, &options(durability)).unwrap();
        assert!(pool.recovery().records_replayed > 0, "{durability}");
        assert_eq!((pool.journal_off().unwrap(), model::read(&pool).unwrap()), (off, expected()));
    }
}

/// The domain that `Auto` chooses in a folder, for a new pool, for one that is opened again, and for one that
/// was made in the page cache.
fn domains_by_medium(dir: &Path, options: &Options) -> [Domain; 3] {
    let options = options.clone().durability(Durability::Auto);
    let domain = |name: &str| Pool::open(dir.join(name), &options).unwrap().region().domain();
    drop(filled(&dir.join("old.pool"), Durability::PageCache));
    let domains = [domain("new.pool"), domain("new.pool"), domain("old.pool")];
    let old = Pool::open(dir.join("old.pool"), &options).unwrap();
    assert_eq!(model::read(&old).unwrap(), expected());
    domains
}

#[test]
fn auto_is_relaxed_on_a_disk_and_the_page_cache_in_memory() {
    let on_disk = |dir: &Path| !is_in_memory(&fs::File::open(dir).unwrap()).unwrap();
    // A file system in memory, if this system has one here.
    for dir in [tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap()] {
        let expected = if on_disk(dir.path()) { Domain::Relaxed } else { Domain::PageCache };
        assert_eq!(domains_by_medium(dir.path(), &options(Durability::Auto)), [expected; 3], "{dir:?}");
    }
    let file = tempfile::tempfile().unwrap();
    let expected = if is_in_memory(&file).unwrap() { Domain::PageCache } else { Domain::Relaxed };
    let pool = Pool::create_in_file(&file, "a.pool", &options(Durability::Auto)).unwrap();
    assert_eq!(pool.region().domain(), expected);
}

#[test]
fn auto_leaves_a_pool_without_room_for_a_journal_in_the_page_cache() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let open = |durability| {
        let options = Options { max_bytes: Some(256 << 10), ..options(durability) };
        Pool::open(&path, &options).unwrap()
    };
    let pool = open(Durability::PageCache);
    let table = model::make_table(&mut pool.lane().unwrap()).unwrap();
    let puts = |link: &u64| {
        let mut lane = pool.lane().unwrap();
        let mut tx = lane.begin();
        model::put(&mut tx, table, *link, 8 << 10, *link).and_then(|_| tx.commit()).is_ok()
    };
    let count = (0..).take_while(puts).count() as u64;
    assert!(count > 10, "{count}");
    drop(pool);
    for _ in 0..2 {
        let pool = open(Durability::Auto);
        assert_eq!((pool.last_ending(), pool.region().domain()), (Ending::Closed, Domain::PageCache));
        assert_eq!(pool.journal_off().unwrap(), None);
        assert_eq!(model::read(&pool).unwrap().len() as u64, count);
    }
}

/// Between the opening that makes the journal and the one that uses it, another process could open the pool.
#[test]
fn a_pool_that_gets_a_journal_is_locked_all_the_time() {
    const ROUNDS: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    let path = |round: usize| dir.path().join(format!("{round}.pool"));
    let (round, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let now = round.load(Ordering::Relaxed);
                if now == ROUNDS {
                    return;
                }
                let simply = Options { create: false, ..options(Durability::PageCache) };
                let opened = Pool::open(path(now), &simply);
                // The round, and its pool, may have ended.
                assert!(opened.is_err() || round.load(Ordering::Relaxed) > now, "opened in round {now}");
                let is_locked = |e: &crate::Error| matches!(e.kind(), ErrorKind::Locked { .. });
                refused.fetch_add(usize::from(opened.is_err_and(|e| is_locked(&e))), Ordering::Relaxed);
            }
        });
        for now in 0..ROUNDS {
            let pool = Pool::open(path(now), &options(RELAXED)).unwrap();
            round.fetch_add(1, Ordering::Relaxed);
            drop(pool);
        }
    });
    println!("refused {refused:?} times");
}

#[test]
fn a_pool_is_created_in_a_file_that_has_no_name_yet() {
    let dir = tempfile::tempdir().unwrap();
    let file = tempfile::tempfile_in(dir.path()).unwrap();
    let pool = Pool::create_in_file(&file, dir.path().join("a.pool"), &options(RELAXED)).unwrap();
    assert_eq!(pool.region().domain(), Domain::Relaxed);
    let table = model::make_table(&mut pool.lane().unwrap()).unwrap();
    put(&pool, table, 3, 50);
    assert_eq!(model::read(&pool).unwrap(), [(3, (50, 12))].into());
}

/// The file of a killed process: reading finds the newest state and changes nothing, writing replays it.
#[test]
fn what_the_journal_has_is_found_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    for durability in [Durability::Journaled, Durability::Relaxed { interval_ms: 3_600_000 }] {
        let _ = fs::remove_file(&path);
        let pool = filled(&path, durability);
        assert!(pool.journal_stats().unwrap().used_bytes > 0, "something is to be replayed");
        let killed = fs::read(&path).unwrap();
        drop(pool);
        // The same file, so that the pool is not taken for a copy.
        fs::write(&path, &killed).unwrap();
        let read_only = Options { read_only: true, ..Options::default() };
        let pool = Pool::open(&path, &read_only).unwrap();
        assert_eq!((pool.last_ending(), model::read(&pool).unwrap()), (Ending::Killed, expected()));
        drop(pool);
        assert!(fs::read(&path).unwrap() == killed, "reading changed the file");
        for next in [Durability::PageCache, Durability::Synced, Durability::Journaled, RELAXED] {
            fs::write(&path, &killed).unwrap();
            let pool = Pool::open(&path, &options(next)).unwrap();
            assert_eq!(pool.last_ending(), Ending::Killed);
            assert_eq!(model::read(&pool).unwrap(), expected(), "{durability}, then {next}");
            let table = table_of(&pool);
            put(&pool, table, 41, 77);
            drop(pool);
            let pool = Pool::open(&path, &read_only).unwrap();
            assert_eq!(model::read(&pool).unwrap().len(), 41, "{durability}, then {next}");
        }
    }
}

/// A killed process leaves the page cache as it was: the next one in the same boot goes on in the ring, and
/// writes nothing home. One in another boot recovers the ring first.
#[test]
fn a_killed_pool_is_resumed_in_the_same_boot() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    for durability in [Durability::Journaled, Durability::Relaxed { interval_ms: 3_600_000 }] {
        let _ = fs::remove_file(&path);
        let mut pool = filled(&path, durability);
        let mut model = expected();
        for life in 0..4 {
            let used = pool.journal_stats().unwrap().used_bytes;
            assert!(used > 0, "life {life}");
            let killed = fs::read(&path).unwrap();
            drop(pool);
            fs::write(&path, &killed).unwrap();
            pool = Pool::open(&path, &options(durability)).unwrap();
            let stats = pool.journal_stats().unwrap();
            assert!(
                stats.used_bytes >= used && stats.write_backs == 0,
                "{durability}, life {life}: {stats:?}"
            );
            assert_eq!((pool.last_ending(), model::read(&pool).unwrap()), (Ending::Killed, model.clone()));
            let table = table_of(&pool);
            put(&pool, table, 41 + life, 60);
            model.insert(41 + life, (60, 4 * (41 + life)));
        }
        let mut killed = fs::read(&path).unwrap();
        drop(pool);
        // In another boot.
        let word = &mut killed[OPENING_OFF as usize..][..8];
        let moved = moved(u64::from_le_bytes((&*word).try_into().unwrap()), 1, 0);
        word.copy_from_slice(&moved.to_le_bytes());
        fs::write(&path, &killed).unwrap();
        let pool = Pool::open(&path, &options(durability)).unwrap();
        assert_eq!(pool.last_ending(), Ending::Killed);
        assert!(pool.journal_stats().unwrap().write_backs > 0, "the word was written home");
        assert_eq!(model::read(&pool).unwrap(), model);
    }
}

/// The pages of a long journal are shared by threads, each with the lines of a page in their order.
#[test]
fn a_killed_pool_with_many_records_is_resumed_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let durability = Durability::Relaxed { interval_ms: 3_600_000 };
    let options = Options { journal_bytes: Some(32 << 20), initial_bytes: 64 << 20, ..Options::default() };
    let options = options.durability(durability).create(true);
    let pool = Pool::open(&path, &options).unwrap();
    let table = model::make_table(&mut pool.lane().unwrap()).unwrap();
    let mut expected = model::Model::new();
    let used = |pool: &Pool| pool.journal_stats().unwrap().used_bytes;
    for turn in (0..).take_while(|_| used(&pool) < 10 << 20) {
        let (link, bytes) = (turn % 40, 1_000 + turn * 7919 % 60_000);
        let mut lane = pool.lane().unwrap();
        let mut tx = lane.begin();
        model::put(&mut tx, table, link, bytes, turn).unwrap();
        tx.commit().unwrap();
        expected.insert(link, (bytes, turn));
    }
    let (killed, before) = (fs::read(&path).unwrap(), used(&pool));
    let memory = |pool: &Pool| -> Vec<u64> {
        let (off, words) = (pool.journal_off().unwrap().unwrap() / 8, pool.region().len() / 8);
        let words = pool.region().words(0, words).unwrap();
        words[..off as usize].iter().map(|word| word.load(Ordering::Relaxed)).collect()
    };
    drop(pool);
    fs::write(&path, &killed).unwrap();
    let pool = Pool::open(&path, &options).unwrap();
    assert!(used(&pool) >= before);
    assert_eq!(model::read(&pool).unwrap(), expected);
    // Recovery by one thread, into the file, comes to the same memory.
    let resumed = memory(&pool);
    drop(pool);
    fs::write(&path, &killed).unwrap();
    let options = options.durability(Durability::PageCache);
    let pool = Pool::open(&path, &options).unwrap();
    assert_eq!(pool.last_ending(), Ending::Killed);
    let recovered = memory(&pool);
    let differing = (64..recovered.len()).filter(|word| resumed[*word] != recovered[*word]).count();
    assert_eq!((resumed.len(), differing), (recovered.len(), 0));
}

/// An opening after a closing goes on in the ring, and waits for one synchronisation; the file says at once
/// that it is open.
#[test]
fn a_closed_pool_is_opened_without_a_write_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let word = || fs::read(&path).unwrap()[OPENING_OFF as usize..][..8].to_vec();
    for durability in [Durability::Journaled, Durability::Relaxed { interval_ms: 3_600_000 }] {
        let _ = fs::remove_file(&path);
        drop(filled(&path, durability));
        let closed = word();
        for closed_in in [durability, Durability::PageCache, Durability::Synced] {
            drop(Pool::open(&path, &options(closed_in)).unwrap());
            let pool = Pool::open(&path, &options(durability)).unwrap();
            let stats = pool.journal_stats().unwrap();
            assert_eq!((pool.last_ending(), stats.write_backs), (Ending::Closed, 0), "{durability}");
            assert_ne!(word(), closed, "{durability}, closed in {closed_in}");
            assert_eq!(model::read(&pool).unwrap(), expected());
            // The record of the word is made durable by itself.
            let begun = Instant::now();
            while pool.journal_stats().unwrap().behind_bytes > 0 {
                assert!(begun.elapsed().as_secs() < 60, "{durability}: not synchronised");
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// A copy of an open pool has neither all of its pages nor all of its journal.
#[test]
fn a_copy_of_an_open_pool_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("a.pool"), dir.path().join("copy.pool"));
    let pool = Pool::open(&path, &options(Durability::Relaxed { interval_ms: 3_600_000 })).unwrap();
    for records in ["with no records", "with records"] {
        fs::copy(&path, &copy).unwrap();
        let before = fs::read(&copy).unwrap();
        for durability in [Durability::PageCache, RELAXED] {
            let error = Pool::open(&copy, &options(durability)).expect_err(records);
            assert!(
                matches!(error.kind(), ErrorKind::Unclean { ending: Ending::Copy, .. }),
                "{records}: {error}"
            );
        }
        assert!(fs::read(&copy).unwrap() == before, "a refused file was changed");
        model::make_table(&mut pool.lane().unwrap()).unwrap();
    }
}

#[test]
fn a_pool_with_a_journal_grows_and_keeps_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    for durability in [Durability::Journaled, RELAXED] {
        let _ = fs::remove_file(&path);
        let pool = Pool::open(&path, &options(durability)).unwrap();
        let table = model::make_table(&mut pool.lane().unwrap()).unwrap();
        let bytes = pool.stats().pool_bytes;
        // Each is larger than a record, some than the ring.
        (0..40).for_each(|link| put(&pool, table, link, 9_000 + 2_000 * link));
        assert!(pool.stats().pool_bytes > 2 * bytes, "it grew");
        assert_eq!(pool.trim().unwrap(), 0, "nothing is given back while records could fill it");
        let killed = fs::read(&path).unwrap();
        drop(pool);
        for image in [None, Some(killed)] {
            if let Some(image) = image {
                fs::write(&path, image).unwrap();
            }
            let pool = Pool::open(&path, &options(durability)).unwrap();
            let model = model::read(&pool).unwrap();
            assert!(
                model.len() == 40 && model.iter().all(|(link, (bytes, _))| *bytes == 9_000 + 2_000 * link)
            );
        }
    }
}

#[test]
fn records_reach_the_device_within_the_interval_and_are_written_back_before_the_ring_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let pool = filled(&dir.path().join("a.pool"), RELAXED);
    let wait_until = |what: &str, holds: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed().as_secs() < 60, "{what}");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    };
    let stats = || pool.journal_stats().unwrap();
    wait_until("not synchronised", &|| stats().behind_bytes == 0);
    let table = table_of(&pool);
    (0..400).for_each(|turn| put(&pool, table, turn % 40, 300));
    wait_until("not written back", &|| stats().used_bytes <= stats().ring_bytes / 2);
    assert!(stats().write_backs > 0 && stats().written_bytes > 2 * stats().ring_bytes);
}

/// A ring is short first, without space behind it, and grows while it is used.
#[test]
fn a_journal_grows_with_what_is_written() {
    const MIB: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let options = Options { initial_bytes: 8 * MIB, max_bytes: Some(80 * MIB), ..Options::default() };
    let options = options.durability(RELAXED).create(true);
    let pool = Pool::open(&path, &options).unwrap();
    let ring_bytes = |pool: &Pool| pool.journal_stats().unwrap().ring_bytes;
    let first_bytes = ring_bytes(&pool);
    assert!((3 * MIB..4 * MIB).contains(&first_bytes), "{first_bytes}");
    let table = model::make_table(&mut pool.lane().unwrap()).unwrap();
    let space = || 512 * path.metadata().unwrap().blocks();
    let before = space();
    assert!(before <= path.metadata().unwrap().len() - 5 * MIB, "space behind the ring");
    // The thread that lets the ring grow may be late, so the test waits.
    let started = Instant::now();
    let mut expected = model::Model::new();
    while ring_bytes(&pool) < 2 * first_bytes {
        assert!(started.elapsed() < Duration::from_secs(60), "it does not grow");
        for link in 0..40 {
            put(&pool, table, link, 20_000);
            expected.insert(link, (20_000, 4 * link));
        }
    }
    assert!(space() >= before + 3 * MIB, "the new part was not written");
    let longer_bytes = ring_bytes(&pool);
    // The file as a kill leaves it.
    let killed = fs::read(&path).unwrap();
    drop(pool);
    for killed in [None, Some(killed)] {
        killed.iter().for_each(|contents| fs::write(&path, contents).unwrap());
        let pool = Pool::open(&path, &options).unwrap();
        assert_eq!(ring_bytes(&pool), longer_bytes);
        assert_eq!(model::read(&pool).unwrap(), expected);
    }
}

#[test]
fn a_journal_of_a_length_that_the_pool_cannot_have_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    for bytes in [0, 4096, 1 << 40] {
        let options = Options { journal_bytes: Some(bytes), ..options(RELAXED) };
        let error = Pool::open(&path, &options).unwrap_err().to_string();
        assert!(error.contains("a journal of this pool has 65536 to"), "{error}");
    }
    // The pool has no journal.
    assert!(Pool::open(&path, &options(Durability::PageCache)).unwrap().journal_off().unwrap().is_none());
}

/// Damage of the journal of a pool that was not closed is told, and the file stays as it is.
#[test]
fn a_damaged_head_of_the_journal_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = filled(&path, Durability::Journaled);
    let off = pool.journal_off().unwrap().unwrap() as usize;
    let mut killed = fs::read(&path).unwrap();
    drop(pool);
    [0, 4096].iter().for_each(|copy| killed[off + copy + 20] ^= 1);
    fs::write(&path, &killed).unwrap();
    for options in
        [options(RELAXED), options(Durability::PageCache), Options { read_only: true, ..Options::default() }]
    {
        let error = Pool::open(&path, &options).unwrap_err().to_string();
        assert!(error.contains("journal") && error.contains("neither copy"), "{error}");
        assert!(fs::read(&path).unwrap() == killed, "changed");
    }
}
