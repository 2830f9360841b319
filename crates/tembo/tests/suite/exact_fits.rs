//! Records of every length, so that some fill their blocks to the last byte, by every operation that writes
//! one.
//!
//! The story: `APPEND k ""` failed with "the pool is damaged" where the new record filled its block, since
//! the empty last part was written at the block's end. So did a key of 568 bytes with an empty value, in
//! every kind of map.
#![forbid(unsafe_code)]

use tembo::{Batch, HashTable, Map, MapOptions, Options, Pool, Result};

/// Bytes in front of a record's key.
const HEAD_BYTES: usize = 8;
const KEY_BYTES_MAX: usize = tembo::MAX_KEY_BYTES as usize;

/// A value of every length is a part of it.
fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + seed) as u8).collect()
}

/// Lengths of records at which blocks end, or next to that: every size class above 8 KiB, every multiple of a
/// chunk, and limits up to 1 MiB.
fn large_lengths() -> Vec<usize> {
    let classes = (8..64).map(|quarter| 1024 * quarter).chain((1..=16).map(|chunk| chunk << 16));
    classes.flat_map(|bytes| bytes - HEAD_BYTES - 2..=bytes - HEAD_BYTES + 1).collect()
}

/// The operations that all kinds of maps have.
trait Kind {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool>;
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool>;
    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool>;
    fn swap(&self, key: &[u8], from: Option<&[u8]>, to: Option<&[u8]>) -> Result<bool>;
    fn modify(&self, key: &[u8], to: Option<&[u8]>) -> Result<bool>;
    fn remove(&self, key: &[u8]) -> Result<bool>;
    /// In groups, in as many ways as there are.
    fn grouped(&self, key: &[u8], value: &[u8]) -> Result<()>;
}

macro_rules! single_changes {
    () => {
        fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
            self.0.put(key, value)
        }
        fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
            self.0.get(key).unwrap().map(|value| value.to_vec())
        }
        fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
            self.0.insert(key, value)
        }
        fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
            self.0.update(key, value)
        }
        fn swap(&self, key: &[u8], from: Option<&[u8]>, to: Option<&[u8]>) -> Result<bool> {
            self.0.compare_and_swap(key, from, to)
        }
        fn modify(&self, key: &[u8], to: Option<&[u8]>) -> Result<bool> {
            self.0.modify(key, |_| to)
        }
        fn remove(&self, key: &[u8]) -> Result<bool> {
            self.0.remove(key)
        }
    };
}

struct Ordered<'p>(Map, &'p Pool);
struct Hashed(HashTable);

impl Kind for Ordered<'_> {
    single_changes!();

    fn grouped(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let (map, half) = (&self.0, value.len() / 2);
        let mut batch: Batch<'_> = self.1.batch()?;
        for parts in [
            &[value, &[]][..],
            &[&[], value],
            &[&value[..half], &[], &value[half..], &[]],
            &[&[], &[], value, &[], &[]],
        ] {
            batch.put_parts(map, key, parts)?;
            assert_eq!(batch.get(map, key)?, Some(value));
        }
        batch.modify(map, key, |_| Some(&value[..half]))?;
        batch.update(map, key, value)?;
        batch.compare_and_swap(map, key, Some(value), None)?;
        batch.insert(map, key, value)?;
        batch.commit()
    }
}

impl Kind for Hashed {
    single_changes!();

    fn grouped(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.batch(|batch| {
            batch.put(key, &value[..value.len() / 2])?;
            batch.put(key, value)?;
            batch.remove(key)?;
            batch.put(key, value)
        })?;
        Ok(())
    }
}

/// Writes a record by all operations; those that are told apart by a number alone where `turn` chooses it,
/// all where there is none.
fn write_everyway(kind: &dyn Kind, key: &[u8], len: usize, turn: Option<usize>) {
    let (value, other) = (bytes(len, len), bytes(len + 1, len));
    let case = || format!("a key of {} bytes and a value of {len}", key.len());
    let is = |wanted: &[u8]| assert_eq!(kind.get(key).as_deref(), Some(wanted), "{}", case());
    let ok = |outcome: Result<bool>| outcome.unwrap_or_else(|e| panic!("{}: {e}", case()));
    let takes = |way: usize| turn.is_none_or(|turn| turn % 6 == way);
    ok(kind.put(key, &value));
    is(&value);
    if takes(0) {
        ok(kind.put(key, &other));
        is(&other);
    }
    if takes(1) {
        ok(kind.modify(key, Some(&other)));
        is(&other);
    }
    if takes(2) {
        ok(kind.update(key, &other));
        is(&other);
    }
    if takes(3) {
        assert!(ok(kind.swap(key, Some(&value.clone()), Some(&other))) || turn.is_none() || value == other);
    }
    if takes(4) {
        ok(kind.remove(key));
        assert!(ok(kind.insert(key, &other)));
        is(&other);
        ok(kind.swap(key, Some(&other), None));
        assert!(ok(kind.swap(key, None, Some(&value))));
        is(&value);
    }
    if takes(5) {
        kind.grouped(key, &other).unwrap_or_else(|e| panic!("{} in a group: {e}", case()));
        is(&other);
    }
    assert!(ok(kind.remove(key)), "{}", case());
}

fn with_kinds(test: impl Fn(&dyn Kind)) {
    let dir = tempfile::tempdir().unwrap();
    let pool = Options::new().create(true).open(dir.path().join("exact.pool")).unwrap();
    let plain = pool.open_map("plain").unwrap();
    let versioned = pool.open_map_with("versioned", MapOptions::new().versioned(true)).unwrap();
    let table = pool.open_hash_table("table").unwrap();
    for kind in [&Ordered(plain, &pool) as &dyn Kind, &Ordered(versioned, &pool), &Hashed(table)] {
        test(kind);
        pool.check().unwrap();
    }
}

#[test]
fn values_of_every_length_up_to_9000_are_written() {
    with_kinds(|kind| {
        for len in 0..=9000 {
            // At the ends of blocks by all operations, and between them by one after the other.
            let near_end = (HEAD_BYTES + 1 + len + 1) % 16 < 3;
            write_everyway(kind, b"k", len, (!near_end || len % 64 > 56 && len > 4096).then_some(len));
        }
    });
}

#[test]
fn keys_of_every_length_have_empty_and_short_values() {
    with_kinds(|kind| {
        for len in 1..=9000 {
            write_everyway(kind, &bytes(1, len), len % 2 * (len % 9), Some(len));
        }
    });
}

#[test]
fn records_around_every_larger_block_are_written() {
    with_kinds(|kind| {
        for len in large_lengths() {
            write_everyway(kind, b"", len, Some(len));
            write_everyway(kind, b"key", len - 3, Some(len + 1));
            if len <= KEY_BYTES_MAX {
                write_everyway(kind, &bytes(1, len), 0, Some(len));
            }
            for key_bytes in [KEY_BYTES_MAX - 1, KEY_BYTES_MAX] {
                if let Some(rest) = len.checked_sub(key_bytes) {
                    write_everyway(kind, &bytes(1, key_bytes), rest, Some(len));
                }
            }
        }
        write_everyway(kind, &bytes(1, KEY_BYTES_MAX), 0, None);
    });
}
