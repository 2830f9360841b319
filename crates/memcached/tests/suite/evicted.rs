//! Eviction: a cache holds its limit, keeps what is used, and never runs full.

use crate::support::{Client, Served};
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tembo::{Options, Pool};
use tembo_memcached::{Config, LimitSource, MemoryLimit};

fn pool(dir: &tempfile::TempDir, max_bytes: u64) -> Pool {
    let options = Options::new().create(true).max_bytes(max_bytes).initial_bytes(4 << 20);
    options.durability(tembo::Durability::PageCache).open(dir.path().join("a.pool")).unwrap()
}

fn limited(bytes: u64, only_with_deadline: bool) -> Config {
    let mut config = Config::default();
    let limit = MemoryLimit { bytes, only_with_deadline };
    config.memory_limit = Some(LimitSource::new(move || Some(limit)));
    config
}

fn stat(client: &mut Client, name: &str) -> u64 {
    let stats = client.says("stats");
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    line.unwrap_or_else(|| panic!("{name}: {stats}")).parse().unwrap()
}

/// The bytes that are alive in the pool.
fn alive_bytes(pool: &Pool) -> u64 {
    pool.stats().used_bytes() - pool.spare_bytes() - pool.limbo_bytes()
}

fn set(client: &mut Client, keys: std::ops::Range<u32>, bytes: usize) {
    let value = "v".repeat(bytes);
    for first in keys.clone().step_by(100) {
        let part = first..keys.end.min(first + 100);
        let requests: String = part.map(|key| format!("set key{key} 0 0 {bytes}\r\n{value}\r\n")).collect();
        let replies = client.ask(requests);
        let replies = String::from_utf8_lossy(&replies);
        assert!(replies.lines().all(|line| line == "STORED"), "{first}: {replies}");
    }
}

#[test]
fn a_cache_holds_its_limit_and_keeps_what_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool(&dir, 64 << 20);
    let bytes = Arc::new(AtomicU64::new(16 << 20));
    let mut config = Config::default();
    let source = bytes.clone();
    config.memory_limit = Some(LimitSource::new(move || {
        Some(MemoryLimit { bytes: source.load(Ordering::Relaxed), only_with_deadline: false })
    }));
    let served = Served::start(pool.clone(), config.clone());
    let mut client = served.client();
    assert!(client.says("stats settings").contains("STAT evictions on\n"));
    set(&mut client, 0..200, 500);
    for round in 0..100 {
        set(&mut client, 1000 + 1000 * round..2000 + 1000 * round, 500);
        // These are used all the time.
        let keys: String = (0..200).map(|key| format!(" key{key}")).collect();
        let found = client.says(&format!("get{keys}")).matches("VALUE").count();
        // The hand lowers a counter that several items share more often, so that a few of these may go.
        assert!(found >= 195, "{found} of 200 after {round} rounds");
        set(&mut client, 0..200, 500);
    }
    // From here on none goes, so that those after the restart can be counted.
    bytes.store(u64::MAX, Ordering::Relaxed);
    let evicted = stat(&mut client, "evictions");
    let left = stat(&mut client, "curr_items");
    assert!(evicted > 60_000 && left > 15_000 && evicted + left <= 100_200 + 600, "{evicted} {left}");
    std::thread::sleep(Duration::from_millis(50));
    client.says("get key0");
    assert!(alive_bytes(&pool) < 18 << 20, "{}", alive_bytes(&pool));
    assert_eq!(stat(&mut client, "store_no_memory"), 0);
    drop(served);
    // A restart forgets the uses, and no item.
    let served = Served::start(pool.clone(), config);
    assert_eq!(stat(&mut served.client(), "curr_items"), left);
    bytes.store(16 << 20, Ordering::Relaxed);
    set(&mut served.client(), 0..3000, 500);
    drop(served);
    pool.check().unwrap();
}

#[test]
fn a_full_pool_gets_room_for_each_item() {
    let dir = tempfile::tempdir().unwrap();
    // The limit is beyond the pool, which is what counts then.
    let pool = pool(&dir, 8 << 20);
    let served = Served::start(pool.clone(), limited(1 << 30, false));
    let mut client = served.client();
    let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(3);
    for key in 0..6000 {
        let bytes = [10, 100, 1000, 20_000, 100_000][random.random_range(0..5)];
        let value = "v".repeat(bytes);
        assert_eq!(client.says(&format!("set key{key} 0 0 {bytes}\n{value}")), "STORED", "{key}");
        assert!(client.says(&format!("get key{key}")).ends_with("END"), "{key}");
        if key % 10 == 0 {
            assert_eq!(
                client.says(&format!("append key{key} 0 0 1\nx\nincr key{key} 1")).lines().next(),
                Some("STORED")
            );
        }
    }
    assert!(stat(&mut client, "evictions") > 3000);
    assert_eq!((stat(&mut client, "store_no_memory"), stat(&mut client, "total_items")), (0, 6600));
    // Small items make room for a large one, and not many more go than it takes.
    set(&mut client, 10_000..60_000, 100);
    let before = stat(&mut client, "curr_items");
    let large = "w".repeat(1 << 20);
    assert_eq!(client.says(&format!("set large 0 0 {}\n{large}", large.len())), "STORED");
    // None goes if compactions for the small ones left a piece that is long enough.
    let gone = before + 1 - stat(&mut client, "curr_items");
    assert!(gone < before * 2 / 3, "{gone} of {before}");
    assert!(client.says("get large").starts_with("VALUE large"));
    drop(served);
    pool.check().unwrap();
}

#[test]
fn items_without_a_deadline_stay_where_only_others_go() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool(&dir, 8 << 20);
    let served = Served::start(pool.clone(), limited(1 << 30, true));
    let mut client = served.client();
    set(&mut client, 0..1000, 1000);
    let value = "v".repeat(1000);
    for key in 0..20_000 {
        assert_eq!(client.says(&format!("set timed{key} 0 1000 1000\n{value}")), "STORED", "{key}");
    }
    for key in 0..1000 {
        assert!(client.says(&format!("get key{key}")).contains("VALUE"), "{key}");
    }
    // With nothing that may go, the pool is full.
    client.says("flush_all");
    let stored =
        (0..20_000).take_while(|key| client.says(&format!("set more{key} 0 0 1000\n{value}")) == "STORED");
    assert!((3000..12_000).contains(&stored.count()));
    assert!(stat(&mut client, "store_no_memory") > 0);
}

/// The limit may come, change and go while the server runs.
#[test]
fn a_new_limit_holds_from_the_next_command_on() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool(&dir, 64 << 20);
    let bytes = Arc::new(AtomicU64::new(0));
    let mut config = Config::default();
    let source = bytes.clone();
    config.memory_limit = Some(LimitSource::new(move || {
        let bytes = source.load(Ordering::Relaxed);
        (bytes > 0).then_some(MemoryLimit { bytes, only_with_deadline: false })
    }));
    let served = Served::start(pool.clone(), config);
    let mut client = served.client();
    set(&mut client, 0..40_000, 500);
    assert_eq!(stat(&mut client, "evictions"), 0);
    assert!(alive_bytes(&pool) > 20 << 20);
    bytes.store(10 << 20, Ordering::Relaxed);
    let until = Instant::now() + Duration::from_secs(60);
    while alive_bytes(&pool) > 11 << 20 {
        assert!(Instant::now() < until, "{}", alive_bytes(&pool));
        client.says("get key0");
    }
    bytes.store(0, Ordering::Relaxed);
    let evicted = stat(&mut client, "evictions");
    set(&mut client, 0..40_000, 500);
    assert_eq!(stat(&mut client, "evictions"), evicted);
    assert!(client.says("stats settings").contains("STAT evictions off\n"));
    pool.check().unwrap();
}
