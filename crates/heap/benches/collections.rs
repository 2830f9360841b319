//! The costs of operations of collections, each in a transaction of its own.
//!
//! `cargo bench -p tembo-heap --bench collections -- [directory] [keys]`
//!
//! Times depend on the machine: compare them with those of the `heap` bench in the same run of it, whose hash
//! table has as many buckets as it needs from the start.

use std::hint::black_box;
use std::time::Instant;
use tembo_heap::collections::{PHashMap, PMap, PString, PVec};
use tembo_heap::{Brand, Error, Heap, Obj, Options, Persist, Tx};
use tembo_pmem::Durability;

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    hashed: PHashMap<u64, u64>,
    texts: PHashMap<PString, u64>,
    ordered: PMap<u64, u64>,
    list: PVec<u64>,
}

fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x ^ x >> 32
}

fn timed(what: &str, keys: u64, mut body: impl FnMut(u64) -> Result<(), Error>) -> Result<(), Error> {
    let start = Instant::now();
    for i in 0..keys {
        body(mix(i + 1))?;
    }
    println!("{what:<40} {:>8.1} ns", start.elapsed().as_nanos() as f64 / keys as f64);
    Ok(())
}

/// Writing transactions, one for each key.
fn writes<B: Brand>(
    heap: &Heap<B, Root>,
    what: &str,
    keys: u64,
    body: impl for<'t> Fn(&mut Tx<'t, B>, Obj<'t, B, Root>, u64) -> Result<(), Error> + std::panic::RefUnwindSafe,
) -> Result<(), Error> {
    timed(what, keys, |key| heap.write(|tx, root| body(tx, root, key)))
}

fn run<B: Brand>(heap: &Heap<B, Root>, keys: u64) -> Result<(), Error> {
    writes(heap, "hash map: insert", keys, |tx, root, key| root.hashed().insert(tx, &key, key).map(drop))?;
    timed("hash map: lookup", keys, |key| {
        let found = heap.read(|tx, root| root.hashed().value(tx, &key))?;
        assert_eq!(black_box(found), Some(key));
        Ok(())
    })?;
    writes(heap, "hash map: update", keys, |tx, root, key| {
        root.hashed().replace(tx, &key, key + 1).map(drop)
    })?;
    writes(heap, "hash map: remove", keys, |tx, root, key| root.hashed().remove(tx, &key).map(drop))?;
    writes(heap, "hash map: insert, at its full size", keys, |tx, root, key| {
        root.hashed().insert(tx, &key, key).map(drop)
    })?;
    writes(heap, "ordered map: insert", keys, |tx, root, key| {
        root.ordered().insert(tx, &key, key).map(drop)
    })?;
    timed("ordered map: lookup", keys, |key| {
        let found = heap.read(|tx, root| root.ordered().value(tx, &key))?;
        assert_eq!(black_box(found), Some(key));
        Ok(())
    })?;
    let start = Instant::now();
    let count = heap.read(|tx, root| Ok(root.ordered().iter(tx)?.count() as u64))?;
    assert_eq!(count, keys);
    println!(
        "{:<40} {:>8.1} ns",
        "ordered map: each entry of all",
        start.elapsed().as_nanos() as f64 / keys as f64
    );
    writes(heap, "ordered map: update", keys, |tx, root, key| root.ordered().replace(tx, &key, 1).map(drop))?;
    writes(heap, "ordered map: remove", keys, |tx, root, key| root.ordered().remove(tx, &key).map(drop))?;
    let text = |key: u64| format!("user:{key:x}");
    writes(heap, "hash map by text: insert", keys / 4, |tx, root, key| {
        root.texts().insert(tx, &text(key), key).map(drop)
    })?;
    timed("hash map by text: lookup", keys / 4, |key| {
        let found = heap.read(|tx, root| root.texts().value(tx, &text(key)))?;
        assert_eq!(black_box(found), Some(key));
        Ok(())
    })?;
    writes(heap, "vector: push", keys, |tx, root, key| root.list().push(tx, key).map(drop))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).filter(|a| a != "--bench");
    let directory = match arguments.next() {
        Some(directory) => tempfile::tempdir_in(directory)?,
        None => tempfile::tempdir()?,
    };
    let keys = arguments.next().map_or(Ok(1_000_000), |keys| keys.parse())?;
    let options = Options::new().durability(Durability::Emulated).create_new(true);
    Ok(Heap::<_, Root>::with(directory.path().join("bench.heap"), &options, |heap| run(&heap, keys))?)
}
