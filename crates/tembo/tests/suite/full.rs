//! Pools that are full to the last byte: whatever gives space back works in them, and the space is used
//! again.
//!
//! The story: what keeps versions copies what it changes, so that in a full pool nothing could be removed
//! from it; and a large group found no room for its record.
#![forbid(unsafe_code)]

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tembo::{Error, FixedMap, HashTable, Map, MapOptions, Options, Pool};

const POOL_BYTES: u64 = 16 << 20;

/// The contents of a pool.
#[derive(Clone)]
enum Kind {
    Map(Map),
    Table(HashTable),
    Fixed(FixedMap),
}

const KINDS: [&str; 4] = ["plain", "versioned", "table", "fixed"];

fn open(pool: &Pool, name: &str) -> Kind {
    match name {
        "plain" => Kind::Map(pool.open_map(name).unwrap()),
        "versioned" => Kind::Map(pool.open_map_with(name, MapOptions::new().versioned(true)).unwrap()),
        "table" => Kind::Table(pool.open_hash_table(name).unwrap()),
        _ => Kind::Fixed(pool.open_fixed_map(name).unwrap()),
    }
}

impl Kind {
    fn put(&self, key: u64, value: &[u8]) -> Result<(), Error> {
        let bytes = key.to_be_bytes();
        match self {
            Kind::Map(map) => map.put(bytes, value).map(drop),
            Kind::Table(table) => table.put(bytes, value).map(drop),
            Kind::Fixed(map) => map.put(key, value.len() as u64).map(drop),
        }
    }

    fn remove(&self, key: u64) -> Result<bool, Error> {
        let bytes = key.to_be_bytes();
        match self {
            Kind::Map(map) => map.remove(bytes),
            Kind::Table(table) => table.remove(bytes),
            Kind::Fixed(map) => Ok(map.remove(key)?.is_some()),
        }
    }

    fn clear(&self) -> Result<(), Error> {
        match self {
            Kind::Map(map) => map.clear(),
            Kind::Table(table) => table.clear(),
            Kind::Fixed(map) => map.remove_range(..).map(drop),
        }
    }

    fn collect_all(&self) -> Result<(), Error> {
        match self {
            Kind::Map(map) if map.is_versioned() => while map.collect(1000)? {},
            Kind::Table(table) => while table.collect(1000)? {},
            _ => {}
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        match self {
            Kind::Map(map) => map.len().unwrap(),
            Kind::Table(table) => table.len(),
            Kind::Fixed(map) => map.count().unwrap(),
        }
    }

    fn keep_snapshot(&self, name: &str) -> Result<(), Error> {
        match self {
            Kind::Map(map) => map.snapshot()?.keep(name),
            Kind::Table(table) => table.snapshot().keep(name),
            Kind::Fixed(_) => Ok(()),
        }
    }

    fn drop_snapshot(&self, name: &str) -> Result<bool, Error> {
        match self {
            Kind::Map(map) => map.drop_snapshot(name),
            Kind::Table(table) => table.drop_snapshot(name),
            Kind::Fixed(_) => Ok(true),
        }
    }
}

/// Puts records of mixed lengths, up to `largest`, until not even the shortest finds room; returns their
/// keys, and the bytes of their values.
fn fill(kind: &Kind, seed: u64, largest: usize) -> (Vec<u64>, u64) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut keys, mut bytes, mut most, mut refused) = (Vec::new(), 0, largest, 0);
    loop {
        let (key, len) = (rng.random::<u64>(), rng.random_range(0..=most));
        match kind.put(key, &vec![key as u8; len]) {
            Ok(()) => {
                keys.push(key);
                bytes += 8 + if matches!(kind, Kind::Fixed(_)) { 8 } else { len as u64 };
            }
            Err(Error::Full { .. }) if most > 0 => most /= 2,
            Err(Error::Full { .. }) if refused < 20 => refused += 1,
            Err(Error::Full { .. }) => return (keys, bytes),
            Err(e) => panic!("{e}"),
        }
    }
}

type Way = fn(&Pool, &Kind, &[u64]) -> Result<(), Error>;

fn one_by_one(_: &Pool, kind: &Kind, keys: &[u64]) -> Result<(), Error> {
    keys.iter().try_for_each(|key| kind.remove(*key).map(|was_there| assert!(was_there)))
}

fn at_once(_: &Pool, kind: &Kind, _: &[u64]) -> Result<(), Error> {
    kind.clear()
}

fn by_ranges(pool: &Pool, kind: &Kind, keys: &[u64]) -> Result<(), Error> {
    match kind {
        Kind::Map(map) => {
            let half = (u64::MAX / 2).to_be_bytes();
            map.remove_range(&half[..]..)?;
            map.remove_range::<&[u8]>(..).map(drop)
        }
        Kind::Fixed(map) => map.remove_range(..).map(drop),
        Kind::Table(_) => one_by_one(pool, kind, keys),
    }
}

fn by_ends(pool: &Pool, kind: &Kind, keys: &[u64]) -> Result<(), Error> {
    let Kind::Map(map) = kind else { return one_by_one(pool, kind, keys) };
    while map.pop_first()?.is_some() && map.pop_last()?.is_some() {}
    Ok(())
}

fn by_changes(pool: &Pool, kind: &Kind, keys: &[u64]) -> Result<(), Error> {
    let mut odd = false;
    for key in keys {
        let bytes = key.to_be_bytes();
        odd = !odd;
        match kind {
            Kind::Map(map) if odd => map.modify(bytes, |_| None::<&[u8]>).map(drop)?,
            Kind::Table(table) if odd => table.modify(bytes, |_| None::<&[u8]>).map(drop)?,
            Kind::Map(map) => {
                let old = map.get(bytes)?.map(|value| value.to_vec());
                assert!(map.compare_and_swap(bytes, old.as_deref(), None)?);
            }
            Kind::Table(table) => {
                let old = table.get(bytes)?.map(|value| value.to_vec());
                assert!(table.compare_and_swap(bytes, old.as_deref(), None)?);
            }
            Kind::Fixed(_) => return one_by_one(pool, kind, keys),
        }
    }
    Ok(())
}

fn by_groups(pool: &Pool, kind: &Kind, keys: &[u64]) -> Result<(), Error> {
    for group in keys.chunks(100) {
        match kind {
            Kind::Map(map) => {
                let mut batch = pool.batch()?;
                group.iter().try_for_each(|key| batch.remove(map, &key.to_be_bytes()).map(drop))?;
                batch.commit()?;
            }
            Kind::Table(table) => table
                .batch(|batch| group.iter().try_for_each(|key| batch.remove(key.to_be_bytes()).map(drop)))?,
            Kind::Fixed(_) => return one_by_one(pool, kind, keys),
        }
    }
    Ok(())
}

fn by_a_group_that_clears(pool: &Pool, kind: &Kind, keys: &[u64]) -> Result<(), Error> {
    match kind {
        Kind::Map(map) => {
            let mut batch = pool.batch()?;
            batch.remove(map, &keys[0].to_be_bytes())?;
            batch.clear(map)?;
            while batch.pending_words() < 200 && batch.reclaim(map, 1)? {}
            batch.commit()
        }
        Kind::Table(table) => table.batch(|batch| batch.clear()),
        Kind::Fixed(_) => kind.clear(),
    }
}

const WAYS: [(&str, Way); 7] = [
    ("one by one", one_by_one),
    ("at once", at_once),
    ("by ranges", by_ranges),
    ("by ends", by_ends),
    ("by changes", by_changes),
    ("by groups", by_groups),
    ("by a group that clears", by_a_group_that_clears),
];

fn new_pool(dir: &tempfile::TempDir) -> Pool {
    let options = Options::new().create(true).initial_bytes(1 << 20).max_bytes(POOL_BYTES);
    options.open(dir.path().join("full.pool")).unwrap()
}

/// Fills, empties and fills again.
fn turn_over(pool: &Pool, kind: &Kind, (name, seed, largest): (&str, u64, usize), (way, empty): (&str, Way)) {
    let failed = |e| panic!("{name}, {way}: {e}");
    let (keys, bytes) = fill(kind, seed, largest);
    println!("{name}: {} records with {bytes} bytes are removed {way}", keys.len());
    empty(pool, kind, &keys).unwrap_or_else(failed);
    assert_eq!(kind.len(), 0);
    pool.check().unwrap();
    // Dead blocks are freed when space is needed.
    let (keys, again) = fill(kind, seed, largest);
    assert!(again >= bytes / 100 * 90, "{name}, {way}: {again} bytes were put, after {bytes}");
    one_by_one(pool, kind, &keys).unwrap_or_else(failed);
    kind.collect_all().unwrap_or_else(failed);
}

#[test]
fn a_full_pool_is_emptied_every_way_and_filled_again() {
    for name in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let pool = new_pool(&dir);
        let kind = open(&pool, name);
        // A map of short records has very many of them, and two ways.
        let ways = if name == "fixed" { 2 } else { WAYS.len() };
        for (round, way) in WAYS.into_iter().take(ways).enumerate() {
            turn_over(&pool, &kind, (name, round as u64, [20_000, 1000, 100_000][round % 3]), way);
        }
        pool.check().unwrap();
    }
}

/// Fills a pool in which a snapshot holds the first half, overwritten later; returns all keys.
fn fill_under_snapshot(kind: &Kind) -> Vec<u64> {
    let mut keys: Vec<u64> = (0..3000).collect();
    keys.iter().for_each(|key| kind.put(*key, &[1; 2000]).unwrap());
    kind.keep_snapshot("first").unwrap();
    let more = keys.iter().try_for_each(|key| kind.put(*key, &[2; 1000]));
    assert!(matches!(more, Ok(()) | Err(Error::Full { .. })), "{more:?}");
    keys.extend(fill(kind, 1, 3000).0);
    keys
}

#[test]
fn snapshots_are_given_up_in_a_full_pool_and_their_space_comes_back() {
    for name in ["versioned", "table"] {
        let dir = tempfile::tempdir().unwrap();
        let pool = new_pool(&dir);
        let kind = open(&pool, name);
        for with_removals in [false, true, true] {
            let keys = fill_under_snapshot(&kind);
            if with_removals {
                // Records that the snapshot does not have are freed; if that is not enough, there is an error
                // that says so.
                let removed = keys.iter().try_for_each(|key| kind.remove(*key).map(drop));
                assert!(matches!(removed, Ok(()) | Err(Error::Full { .. })), "{name}: {removed:?}");
            }
            assert!(kind.drop_snapshot("first").unwrap());
            kind.collect_all().unwrap_or_else(|e| panic!("{name}: {e}"));
            for key in &keys {
                kind.remove(*key).unwrap_or_else(|e| panic!("{name}: {e}"));
            }
            kind.collect_all().unwrap();
            assert_eq!(kind.len(), 0);
            pool.check().unwrap();
        }
        let (_, bytes) = fill(&kind, 2, 3000);
        assert!(bytes > POOL_BYTES / 100 * 70, "{name}: {bytes}");
    }
}

#[test]
fn batches_find_the_space_that_was_cleared() {
    // Blocks of a cleared map that a batch freed were taken back with it, so each batch found the pool as
    // full as before.
    for name in ["plain", "versioned", "table"] {
        let dir = tempfile::tempdir().unwrap();
        let pool = new_pool(&dir);
        let (kind, other) = (open(&pool, name), pool.open_map("other").unwrap());
        other.put("k", "0").unwrap();
        let (keys, _) = fill(&kind, 1, 1000);
        kind.clear().unwrap();
        let group = |round: u64| match &kind {
            Kind::Table(table) => table.batch(|batch| batch.put(round.to_be_bytes(), [1; 400]).map(drop)),
            Kind::Map(map) => {
                let mut batch = pool.batch()?;
                // Something else comes first, so that the batch is not for the map alone.
                batch.modify(&other, b"k", |_| Some(vec![b'1'; round as usize % 2]))?;
                batch.put(map, &round.to_be_bytes(), &[1; 400])?;
                batch.commit()
            }
            Kind::Fixed(_) => unreachable!("it has no batches"),
        };
        let mut refused = 0;
        for round in 0..keys.len() as u64 / 2 {
            match group(round) {
                Ok(()) => {}
                Err(Error::Full { .. }) => refused += 1,
                Err(e) => panic!("{name}: {e}"),
            }
        }
        assert!(refused < 100, "{name}: {refused} groups of {} were refused", keys.len() / 2);
        pool.check().unwrap();
    }
}

#[test]
fn all_kinds_beside_each_other_are_emptied_in_a_full_pool() {
    let dir = tempfile::tempdir().unwrap();
    let pool = new_pool(&dir);
    let kinds = KINDS.map(|name| open(&pool, name));
    for round in 0..2 {
        let mut keys = [const { Vec::new() }; 4];
        // In turn, until none of them takes the shortest record.
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(round);
        for most in [8000, 100, 0] {
            while kinds.iter().zip(&mut keys).any(|(kind, keys)| {
                let (key, len) = (rng.random::<u64>(), rng.random_range(0..=most));
                let was_put = kind.put(key, &vec![7; len]).is_ok();
                if was_put {
                    keys.push(key);
                }
                was_put
            }) {}
        }
        for (i, (kind, keys)) in kinds.iter().zip(&keys).enumerate().rev() {
            println!("{}: {} records", KINDS[i], keys.len());
            one_by_one(&pool, kind, keys).unwrap_or_else(|e| panic!("{}: {e}", KINDS[i]));
            kind.collect_all().unwrap();
            assert_eq!(kind.len(), 0);
        }
        pool.check().unwrap();
    }
}

/// Where a child finds the file system that it fills.
const CHILD_DIR: &str = "TEMBO_FULL_DIR";

/// Runs in a child whose file system has 16 MiB. Does nothing when it is run with the other tests.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD_DIR).map(std::path::PathBuf::from) else { return };
    for name in KINDS {
        let path = dir.join(format!("{name}.pool"));
        // It takes itself for one that may grow for ever.
        let pool = Options::new().create(true).initial_bytes(1 << 20).open(&path).unwrap();
        let kind = open(&pool, name);
        turn_over(&pool, &kind, (name, 1, 20_000), WAYS[0]);
        turn_over(&pool, &kind, (name, 2, 1000), WAYS[1]);
        pool.check().unwrap();
        drop((kind, pool));
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_pool_on_a_full_file_system_is_emptied_and_filled_again() {
    let dir = tempfile::tempdir().unwrap();
    let may_mount = std::process::Command::new("unshare").args(["-rm", "true"]).output();
    if !may_mount.is_ok_and(|output| output.status.success()) {
        println!(
            "skipped: `unshare -rm` is not allowed here, so that there is no file system of 16 MiB to fill"
        );
        return;
    }
    let (mount, program) = (dir.path().display(), std::env::current_exe().unwrap());
    let script = format!(
        "mount -t tmpfs -o size=16m tmpfs {mount} && exec {} --exact full::child --nocapture",
        program.display()
    );
    let output = std::process::Command::new("unshare")
        .args(["-rm", "bash", "-c", &script])
        .env(CHILD_DIR, dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
