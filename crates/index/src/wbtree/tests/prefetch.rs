//! A prefetch requests the lines that lookups then touch.

use super::{Bench, Media};
use crate::PREFETCH_KEYS_MAX;
use crate::wbtree::search::{Goal, Probe, descend, find};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tembo_pmem::{LINE_BYTES, Observer, Region, ThreadTag};

/// The lines that prefetches asked for.
#[derive(Default)]
struct Asked(Mutex<BTreeSet<u64>>);

impl Observer for Asked {
    fn store(&self, _: ThreadTag, _: u64, _: &[u8]) {}
    fn flush(&self, _: ThreadTag, _: u64) {}
    fn fence(&self, _: ThreadTag) {}
    fn wants_loads(&self) -> bool {
        true
    }
    fn load(&self, _: ThreadTag, _: u64, _: u64) {}
    fn prefetch(&self, _: ThreadTag, line: u64) {
        self.0.lock().unwrap().insert(line);
    }
}

#[test]
fn leaves_and_records_of_all_keys_are_asked_for() {
    let asked = Arc::new(Asked::default());
    let region = Region::simulated(&vec![0; 1 << 20], 1 << 28, Some(asked.clone())).unwrap();
    let mut bench = Bench::in_region(region);
    let key = |i: usize| format!("key {i:05}").into_bytes();
    let tx = bench.lane.begin();
    bench.tree.prefetch(&tx, [&b"in an empty tree"[..]]);
    drop(tx);
    (0..2000).for_each(|i| bench.put(&key(i)));

    let keys: Vec<Vec<u8>> = (0..PREFETCH_KEYS_MAX + 1).map(|i| key(i * 100)).collect();
    let tx = bench.lane.begin();
    asked.0.lock().unwrap().clear();
    bench.tree.prefetch(&tx, keys.iter().map(Vec::as_slice).chain([&b"key 00000 and no key"[..]]));
    let asked = std::mem::take(&mut *asked.0.lock().unwrap());
    let view = Media(bench.tree.region());
    let mut hits = 0;
    for (i, key) in keys.iter().enumerate() {
        let leaf = descend(view, bench.tree.root(view).unwrap(), Goal::At(key), |_, _| ()).unwrap();
        let found = find(view, view, &leaf, leaf.state(view).unwrap(), Probe::new(key)).unwrap().unwrap();
        let lines = [leaf.off / LINE_BYTES, found.record / LINE_BYTES];
        if i < PREFETCH_KEYS_MAX {
            assert!(asked.contains(&lines[0]), "the leaf of key {i}");
            hits += usize::from(asked.contains(&lines[1]));
        }
    }
    // Two keys of a leaf may have the same fingerprint; then the first record is prefetched.
    assert!(hits >= PREFETCH_KEYS_MAX - 2, "{hits} records");
}
