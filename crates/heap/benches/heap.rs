//! The costs of transactions on objects.
//!
//! `cargo bench -p tembo-heap --bench heap -- [page-cache|emulated|synced] [directory]`
//!
//! A third argument is the number of keys of the hash table, a fourth a part of the names of the rows that
//! are wanted.
//!
//! Times depend on the machine; beside them stands the time of a bare flush and fence of one line in the same
//! run, which is the floor of any durable operation.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;
use tembo_heap::{Brand, Error, Heap, Obj, Options, PArr, PRc, Persist, Plain, ReadTx, Tx};
use tembo_pmem::{Durability, Region};
use tembo_pool::Pool;

const OBJECTS: u64 = 1 << 16;

#[derive(Clone, Copy, Persist, Plain)]
#[repr(C)]
struct Line {
    words: [u64; 8],
}

#[derive(Persist)]
#[repr(C)]
struct Node {
    key: u64,
    value: u64,
    next: PRc<Node>,
}

#[derive(Persist)]
#[repr(C)]
struct Linked {
    line: Line,
    next: PRc<Linked>,
}

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    lines: PArr<PRc<Line>>,
    buckets: PArr<PRc<Node>>,
    first: PRc<Linked>,
}

/// Nanoseconds per call, the best of five runs.
fn per_call(rounds: u64, mut body: impl FnMut(u64) -> Result<(), Error>) -> Result<f64, Error> {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for round in 0..rounds {
            body(round)?;
        }
        best = best.min(start.elapsed().as_nanos() as f64 / rounds as f64);
    }
    Ok(best)
}

fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x ^ x >> 32
}

fn run(path: &Path, durability: Durability, keys: u64) -> Result<(), Error> {
    let pool = Pool::open(path, &Options::new().durability(durability).create_new(true))?;
    Heap::<_, Root>::with_pool(pool.clone(), |heap| {
        let region = pool.region();
        println!(
            "domain {}, flush {:?}, lines past the caches {}, best of 5",
            region.domain(),
            region.flush_instruction(),
            region.streams_single_lines(),
        );
        make_lines(&heap)?;
        let floor = flush_and_fence(region)?;
        let row = |what: &str, ns: f64| println!("{what:<48} {ns:>8.1} ns {:>6.2} x floor", ns / floor);
        row("floor: flush and fence one random line", floor);
        row("an empty transaction", per_call(1_000_000, |_| heap.write(|_, _| Ok(())))?);
        row("an empty reading transaction", per_call(1_000_000, |_| heap.read(|_, _| Ok(())))?);
        row("write one random object of 64 bytes", write_lines(&heap, 1)?);
        row("write ten random objects of 64 bytes", write_lines(&heap, 10)?);
        row("allocate and link into a list", push_on_list(&heap)?);
        row("allocate, link, and free what was there", replace_lines(&heap)?);
        hash_table(&heap, keys)
    })
}

fn make_lines<B: Brand>(heap: &Heap<B, Root>) -> Result<(), Error> {
    for at in (0..OBJECTS).step_by(256) {
        heap.write(|tx, root| {
            let lines = match tx.array(root.lines())? {
                Some(lines) => lines,
                None => {
                    let lines = tx.alloc_array(OBJECTS as usize, |_| PRc::null())?;
                    tx.link_array(root.lines(), lines)?;
                    lines
                }
            };
            for i in at..at + 256 {
                let line = tx.alloc(Line { words: [i; 8] })?;
                tx.link(lines.at(i as usize), line)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn flush_and_fence(region: &Region) -> Result<f64, Error> {
    let table = (region.len() / 2) & !63;
    per_call(200_000, |round| {
        let line = table + 64 * (mix(round) % OBJECTS);
        region.flush(line, 8);
        region.fence().map_err(tembo_pool::Error::from)?;
        Ok(())
    })
}

fn write_lines<B: Brand>(heap: &Heap<B, Root>, count: u64) -> Result<f64, Error> {
    per_call(100_000, |round| {
        heap.write(|tx, root| {
            let lines = tx.array(root.lines())?.expect("made at first");
            for i in 0..count {
                let slot = lines.at((mix(round * count + i) % OBJECTS) as usize);
                let line = tx.load(slot)?.expect("made at first");
                tx.set(*line, Line { words: [round + 1; 8] })?;
            }
            Ok(())
        })
    })
}

fn push_on_list<B: Brand>(heap: &Heap<B, Root>) -> Result<f64, Error> {
    per_call(100_000, |round| {
        heap.write(|tx, root| {
            let line = tx.alloc(Linked { line: Line { words: [round; 8] }, next: PRc::null() })?;
            let first = tx.load(root.first())?;
            tx.link(line.next(), first)?;
            tx.link(root.first(), line)
        })
    })
}

fn replace_lines<B: Brand>(heap: &Heap<B, Root>) -> Result<f64, Error> {
    per_call(100_000, |round| {
        heap.write(|tx, root| {
            let lines = tx.array(root.lines())?.expect("made at first");
            let line = tx.alloc(Line { words: [round; 8] })?;
            tx.link(lines.at((mix(round) % OBJECTS) as usize), line)
        })
    })
}

/// A hash table with a list for each bucket, made of the heap's own objects.
fn hash_table<B: Brand>(heap: &Heap<B, Root>, keys: u64) -> Result<(), Error> {
    let buckets = (keys * 2).next_power_of_two();
    heap.write(|tx, root| {
        let table = tx.alloc_array(buckets as usize, |_| PRc::null())?;
        tx.link_array(root.buckets(), table)
    })?;
    let bucket = |key: u64| (mix(key ^ 0x5bd1) & (buckets - 1)) as usize;
    let timed = |what: &str, body: &dyn Fn(u64) -> Result<(), Error>| {
        let start = Instant::now();
        for i in 0..keys {
            body(mix(i + 1))?;
        }
        println!("{what:<48} {:>8.1} ns", start.elapsed().as_nanos() as f64 / keys as f64);
        Ok(())
    };
    timed("hash table: insert", &|key| heap.write(|tx, root| insert(tx, root, bucket(key), key)))?;
    timed("hash table: lookup", &|key| {
        let found = heap.read(|tx, root| match find(tx, root, bucket(key), key)? {
            Some(node) => tx.get(node.value()).map(Some),
            None => Ok(None),
        });
        assert_eq!(black_box(found?), Some(key));
        Ok(())
    })?;
    timed("hash table: update", &|key| {
        heap.write(|tx, root| match find(tx, root, bucket(key), key)? {
            Some(node) => tx.set(node.value(), key + 1),
            None => Ok(()),
        })
    })?;
    timed("hash table: remove", &|key| heap.write(|tx, root| remove(tx, root, bucket(key), key)))
}

fn insert<'t, B: Brand>(
    tx: &mut Tx<'t, B>,
    root: Obj<'t, B, Root>,
    bucket: usize,
    key: u64,
) -> Result<(), Error> {
    let table = tx.array(root.buckets())?.expect("made at first");
    let slot = table.at(bucket);
    let first = tx.load(slot)?;
    let node = tx.alloc(Node { key, value: key, next: PRc::null() })?;
    tx.link(node.next(), first)?;
    tx.link(slot, node)
}

fn find<'t, B: Brand>(
    tx: &ReadTx<'t, B>,
    root: Obj<'t, B, Root>,
    bucket: usize,
    key: u64,
) -> Result<Option<Obj<'t, B, Node>>, Error> {
    let table = tx.array(root.buckets())?.expect("made at first");
    let mut next = tx.load(table.at(bucket))?;
    while let Some(node) = next {
        if tx.get(node.key())? == key {
            return Ok(Some(node));
        }
        next = tx.load(node.next())?;
    }
    Ok(None)
}

fn remove<'t, B: Brand>(
    tx: &mut Tx<'t, B>,
    root: Obj<'t, B, Root>,
    bucket: usize,
    key: u64,
) -> Result<(), Error> {
    let table = tx.array(root.buckets())?.expect("made at first");
    let mut slot = table.at(bucket);
    while let Some(node) = tx.load(slot)? {
        if tx.get(node.key())? == key {
            let next = tx.load(node.next())?;
            return tx.link(slot, next);
        }
        slot = node.next();
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let durability = match arguments.first().map(String::as_str) {
        Some("page-cache") => Durability::PageCache,
        Some("synced") => Durability::Synced,
        Some("emulated") | None => Durability::Emulated,
        Some(other) => return Err(format!("page-cache, emulated or synced, not {other}").into()),
    };
    let directory = match arguments.get(1) {
        Some(directory) => tempfile::tempdir_in(directory)?,
        None => tempfile::tempdir()?,
    };
    let keys = arguments.get(2).map_or(Ok(1_000_000), |keys| keys.parse())?;
    Ok(run(&directory.path().join("bench.heap"), durability, keys)?)
}
