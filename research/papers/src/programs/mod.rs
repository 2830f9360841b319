//! The programs of the NV-heaps paper (its Table 2), on heaps and in ordinary memory.
//!
//! A [`Kind`] says which program, a [`Size`] how large it is. [`on_heap`] runs one on the heap of a pool, by
//! the heap's public interface alone; [`in_dram`] is the same program with the same algorithm in ordinary
//! memory, changed in place: what it costs without persistence, transactions, counts and threads. Operations
//! are chosen by a seed, so that all forms of a program do the same and end in the same
//! [state](Program::state).

mod arena;
mod btree;
mod hash_table;
pub mod places;
mod rb_tree;
mod rmat;
mod six_degs;
pub mod sps;
mod ssca;
#[cfg(test)]
mod tests;
mod time;

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tembo_heap::{Heap, Layer};
use tembo_pool::Pool;

pub use ssca::verify_torus;
pub use time::{Load, Rate, rate, rate_alone};

/// The generator that chooses a program's operations.
pub type Random = Xoshiro256PlusPlus;

/// Why a program did not run, or that its state is not what it must be.
pub type Fault = crate::figures::Error;

/// A program that is ready to run.
pub trait Program: Sync {
    /// Does operations, which `random` alone chooses. Any number of threads may do so at once.
    ///
    /// # Errors
    ///
    /// Errors of the place where its data lie.
    fn run(&self, operations: usize, random: &mut Random) -> Result<(), Fault>;

    /// Everything that it holds, in an order that depends on that alone.
    ///
    /// # Errors
    ///
    /// When that is not what such a program can hold, or goes wrong.
    fn state(&self) -> Result<Vec<u64>, Fault>;
}

/// Which program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Swaps of random entries of an array.
    Sps,
    /// Paths of at most six edges in a graph that is changed meanwhile.
    SixDegs,
    /// Insertions and removals in a B-tree.
    BTree,
    /// Insertions and removals in a hash table with chains.
    HashTable,
    /// Insertions and removals in a red-black tree.
    RbTree,
    /// Betweenness centrality, as in SSCA 2.2.
    Ssca,
}

impl Kind {
    /// All of them, in the order of the paper's figures.
    pub const ALL: [Kind; 6] =
        [Kind::Sps, Kind::SixDegs, Kind::BTree, Kind::HashTable, Kind::RbTree, Kind::Ssca];

    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Sps => "SPS",
            Kind::SixDegs => "SixDegs",
            Kind::BTree => "BTree",
            Kind::HashTable => "HashTable",
            Kind::RbTree => "RBTree",
            Kind::Ssca => "SSCA",
        }
    }

    /// A description of one operation.
    pub fn operation(self) -> &'static str {
        match self {
            Kind::Sps => "swap",
            Kind::SixDegs => "search and change of an edge",
            Kind::BTree | Kind::HashTable | Kind::RbTree => "insertion or removal",
            Kind::Ssca => "source of the last kernel",
        }
    }
}

/// How large programs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Entries of the array of SPS.
    pub entries: usize,
    /// Numbers that keys are chosen from; a tree or table has half of them.
    pub keys: u64,
    /// Logarithm of the vertices of SixDegs.
    pub people_scale: u32,
    /// Logarithm of the vertices of SSCA.
    pub graph_scale: u32,
    /// The seed of graphs, and of the places where programs begin.
    pub seed: u64,
}

impl Size {
    /// The size of figures.
    pub fn full(seed: u64) -> Size {
        Size { entries: 16 << 20, keys: 2_000_000, people_scale: 13, graph_scale: 10, seed }
    }

    /// A small one, for finding out whether everything works.
    pub fn quick(seed: u64) -> Size {
        Size { entries: 1 << 12, keys: 2_000, people_scale: 6, graph_scale: 5, seed }
    }

    /// For people.
    pub fn note(&self) -> String {
        format!(
            "SPS: {} integers; BTree, HashTable, RBTree: half of {} keys; SixDegs: {} vertices; SSCA: {}",
            self.entries,
            self.keys,
            1_u64 << self.people_scale,
            1_u64 << self.graph_scale
        )
    }
}

/// Opens a program on the heap of a pool, or makes it there, and lets `body` run it.
///
/// # Errors
///
/// The heap's, and those of `body`.
pub fn on_heap<O>(
    kind: Kind,
    size: &Size,
    pool: Pool,
    body: impl FnOnce(&dyn Program) -> Result<O, Fault>,
) -> Result<O, Fault> {
    on_layer(kind, size, pool, Layer::ConcurrentTx, body)
}

/// As [`on_heap`], on a heap with some parts left out.
///
/// # Errors
///
/// As for [`on_heap`].
pub fn on_layer<O>(
    kind: Kind,
    size: &Size,
    pool: Pool,
    layer: Layer,
    body: impl FnOnce(&dyn Program) -> Result<O, Fault>,
) -> Result<O, Fault> {
    let Size { entries, keys, people_scale, graph_scale, seed } = *size;
    match kind {
        Kind::Sps => Heap::try_with_layer(pool, layer, |heap| body(&sps::Sps::open(heap, entries)?)),
        Kind::SixDegs => Heap::try_with_layer(pool, layer, |heap| {
            body(&six_degs::SixDegs::open(heap, people_scale, seed)?)
        }),
        Kind::BTree => Heap::try_with_layer(pool, layer, |heap| body(&btree::BTree::open(heap, keys)?)),
        Kind::HashTable => {
            Heap::try_with_layer(pool, layer, |heap| body(&hash_table::HashTable::open(heap, keys)?))
        }
        Kind::RbTree => Heap::try_with_layer(pool, layer, |heap| body(&rb_tree::RbTree::open(heap, keys)?)),
        Kind::Ssca => {
            Heap::try_with_layer(pool, layer, |heap| body(&ssca::Ssca::open(heap, graph_scale, seed)?))
        }
    }
}

/// The program in ordinary memory. Threads take turns.
///
/// # Errors
///
/// When its algorithm is wrong.
pub fn in_dram(kind: Kind, size: &Size) -> Result<Box<dyn Program>, Fault> {
    let Size { entries, keys, people_scale, graph_scale, seed } = *size;
    Ok(match kind {
        Kind::Sps => Box::new(sps::InDram::new(entries)),
        Kind::SixDegs => Box::new(six_degs::InDram::new(people_scale, seed)),
        Kind::BTree => Box::new(btree::InDram::new(keys)?),
        Kind::HashTable => Box::new(hash_table::InDram::new(keys)),
        Kind::RbTree => Box::new(rb_tree::InDram::new(keys)?),
        Kind::Ssca => Box::new(ssca::InDram::new(graph_scale, seed)?),
    })
}

/// The entries that an operation of SPS exchanges.
#[inline(always)]
pub fn choose_entries(random: &mut Random, len: usize) -> [usize; 2] {
    [random.random_range(0..len), random.random_range(0..len)]
}

/// The key that an operation of a tree or table inserts or removes.
#[inline(always)]
pub fn choose_key(random: &mut Random, keys: u64) -> u64 {
    random.random_range(0..keys)
}

/// Every second number of so many, in an order that is none: what trees and tables begin with.
pub fn halves(keys: u64) -> impl Iterator<Item = u64> {
    let count = keys.div_ceil(2);
    // A number without a divisor in common with any count below it: all remainders come, each once.
    const STEP: u64 = 1_000_000_007;
    (0..count).map(move |i| i * STEP % count * 2)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pointer that a program always has is null.
#[cold]
fn not_there() -> Fault {
    "a pointer leads nowhere that always leads somewhere".into()
}
