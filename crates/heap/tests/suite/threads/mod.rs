//! Threads that run transactions at once: what they see is one state of the heap, also in a transaction that
//! is going to be run again.
//!
//! `HEAP_ROUNDS=1000 cargo test --release -p tembo-heap --test suite threads::` is the long form.

mod attempts;
mod handles;
mod history;
mod links;
mod memory;
mod registers;
mod values;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use tembo_heap::{Heap, NamedBrand, Options, PArr, PRc, PWeak, Persist, Summary};
use tembo_pmem::Durability;

#[derive(Persist)]
#[repr(C)]
struct Node {
    id: u64,
    value: u64,
    next: PRc<Node>,
    back: PWeak<Node>,
}

fn new_node(id: u64) -> Node {
    Node { id, value: 0, next: PRc::null(), back: PWeak::null() }
}

#[derive(Persist, Default)]
#[repr(C)]
struct Root {
    first: PRc<Node>,
    look: PWeak<Node>,
    count: u64,
    nodes: PArr<PRc<Node>>,
    numbers: PArr<u64>,
    bytes: PArr<u8>,
}

struct Open<B: NamedBrand> {
    heap: Heap<B, Root>,
    _dir: tempfile::TempDir,
}

const THREADS: u64 = 4;

fn open<B: NamedBrand>() -> Open<B> {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().durability(Durability::Emulated).create(true).initial_bytes(8 << 20);
    Open { heap: Heap::open(dir.path().join("heap"), &options).unwrap(), _dir: dir }
}

/// A heap with nodes, whose numbers are their indices, and with numbers.
fn open_with<B: NamedBrand>(nodes: usize, numbers: usize) -> Open<B> {
    let open = open::<B>();
    let made = open.heap.write(|tx, root| {
        let array = tx.alloc_array(nodes, |_| PRc::null())?;
        for i in 0..nodes {
            let node = tx.alloc(new_node(i as u64))?;
            tx.link(array.at(i), node)?;
        }
        tx.link_array(root.nodes(), array)?;
        let array = tx.alloc_array(numbers, |_| 0)?;
        tx.link_array(root.numbers(), array)
    });
    made.unwrap();
    open
}

impl<B: NamedBrand> Open<B> {
    /// Everything that is dead is released, every count is exact, and nothing leaks.
    fn check(&self) -> Summary {
        self.heap.collect().unwrap();
        let summary = self.heap.check().unwrap();
        assert_eq!(summary.dying, 0, "{summary:?}");
        assert!(summary.circles.is_empty(), "{summary:?}");
        summary
    }

    /// Nodes of which more is left than the head.
    fn objects(&self) -> u64 {
        let summary = self.check();
        let nodes = summary.types.iter().filter(|usage| usage.name.ends_with("Node"));
        nodes.map(|usage| usage.objects).sum::<u64>() - summary.shells
    }
}

/// As many rounds as usual, or as `HEAP_ROUNDS` says.
fn rounds(usual: u64) -> u64 {
    std::env::var("HEAP_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Runs `work` on several threads, each with its number and a source of chance.
fn at_once(seed: u64, work: impl Fn(u64, &mut Xoshiro256PlusPlus) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let work = &work;
            scope.spawn(move || {
                work(thread, &mut Xoshiro256PlusPlus::seed_from_u64(seed * THREADS + thread));
            });
        }
    });
}

/// A chance for others to come between.
fn pause(chance: u64) {
    if chance.is_multiple_of(4) {
        std::thread::yield_now();
    }
}
