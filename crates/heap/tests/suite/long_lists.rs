//! A list of many nodes dies: without a stack as deep as the list is long, and in records that are bounded.
//!
//! `TEMBO_LIST_NODES=10000000 cargo test --release -p tembo-heap --test suite -- long_lists --nocapture` is
//! the long form.

use std::time::Instant;
use tembo_heap::{Error, Heap, Options, PRc, Persist};
use tembo_pmem::{Counts, Durability, snapshot};

#[derive(Default, Persist)]
#[repr(C)]
struct Node {
    value: u64,
    next: PRc<Node>,
}

#[derive(Default, Persist)]
#[repr(C)]
struct List {
    first: PRc<Node>,
    turn: u64,
}

/// Nodes that a transaction adds.
const BATCH: u64 = 1000;
/// Words that a transaction stores which destroys nodes, at most, on average: its record and what is stored
/// at home.
const WORDS_MAX: u64 = 1000;

fn add<'t, B: tembo_heap::Brand>(
    tx: &mut tembo_heap::Tx<'t, B>,
    list: tembo_heap::Obj<'t, B, List>,
    value: u64,
) -> Result<(), Error> {
    let node = tx.alloc(Node { value, next: PRc::null() })?;
    let first = tx.load(list.first())?;
    tx.link(node.next(), first)?;
    tx.link(list.first(), node)
}

#[test]
fn a_long_list_dies_in_parts() {
    let nodes = std::env::var("TEMBO_LIST_NODES").map_or(100_000, |nodes| nodes.parse().expect("a number"));
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = Options::new().durability(Durability::Emulated).create(true).count(true);
    Heap::with(dir.path().join("list.heap"), &options, |heap: Heap<_, List>| {
        for batch in 0..nodes / BATCH {
            heap.write(|tx, list| (0..BATCH).try_for_each(|i| add(tx, list, batch * BATCH + i)))?;
        }
        let full = heap.stats();

        // A thread with little stack takes the only pointer to it away.
        let heap = &heap;
        let small = std::thread::Builder::new().stack_size(256 << 10);
        let (one, all, collecting) = std::thread::scope(|scope| {
            let dies = small.spawn_scoped(scope, move || {
                let before = snapshot();
                heap.write(|tx, list| tx.link(list.first(), None))?;
                let (one, begun) = (snapshot() - before, Instant::now());
                // Other transactions go on with it, each a bounded part; this is all of it.
                heap.collect()?;
                Ok::<_, Error>((one, snapshot() - before, begun.elapsed()))
            });
            dies.expect("a thread").join().expect("no overflow")
        })?;

        let Counts { words, lines, fences } = all;
        println!(
            "{nodes} nodes died in {fences} transactions, with {words} words and {lines} lines, in {} ms; \
             the first commit and what it collected: {one:?}",
            collecting.as_millis()
        );
        assert!(words / fences < WORDS_MAX, "{words} words in {fences} transactions");
        assert!(one.words < 100 * WORDS_MAX, "the commit took {one:?}");
        let empty = heap.stats();
        assert_eq!(empty.pool_bytes, full.pool_bytes, "the pool grew while the list died");
        let summary = heap.check()?;
        let left: u64 = summary.types.iter().map(|usage| usage.objects).sum();
        assert_eq!((left, summary.dying), (1, 0));
        Ok(())
    })
    .unwrap();
}
