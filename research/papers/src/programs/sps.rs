//! SPS: swaps of random entries of an array of integers; and the updates of Figure 4.

use super::{Fault, Program, Random, choose_entries, lock};
use rand::Rng;
use std::sync::Mutex;
use tembo_heap::{Brand, Error, Heap, PArr, Persist};

/// The root object of the program's heap.
#[derive(Debug, Default, Persist)]
#[repr(C)]
pub struct Root {
    entries: PArr<u64>,
}

/// The program on a heap.
pub(super) struct Sps<B: Brand> {
    heap: Heap<B, Root>,
    len: usize,
}

/// Opens the array, or makes it: the numbers from 0 on.
fn open<B: Brand>(heap: &Heap<B, Root>, len: usize) -> Result<(), Error> {
    heap.write(|tx, root| {
        if tx.array(root.entries())?.is_none() {
            let entries = tx.alloc_array(len, |i| i as u64)?;
            tx.link_array(root.entries(), entries)?;
        }
        Ok(())
    })
}

fn entries<B: Brand>(heap: &Heap<B, Root>) -> Result<Vec<u64>, Error> {
    heap.read(|tx, root| {
        let Some(entries) = tx.array(root.entries())? else { return Ok(Vec::new()) };
        (0..entries.len()).map(|i| tx.get(entries.at(i))).collect()
    })
}

impl<B: Brand> Sps<B> {
    pub(super) fn open(heap: Heap<B, Root>, len: usize) -> Result<Self, Fault> {
        open(&heap, len)?;
        Ok(Sps { heap, len })
    }
}

impl<B: Brand> Program for Sps<B> {
    fn run(&self, operations: usize, random: &mut Random) -> Result<(), Fault> {
        for _ in 0..operations {
            let [a, b] = choose_entries(random, self.len);
            self.heap.write(|tx, root| {
                let Some(entries) = tx.array(root.entries())? else { return Err(tx.cancel()) };
                tx.swap(entries.at(a), entries.at(b))
            })?;
        }
        Ok(())
    }

    fn state(&self) -> Result<Vec<u64>, Fault> {
        permutation(entries(&self.heap)?)
    }
}

/// The entries, if each number is there once.
fn permutation(entries: Vec<u64>) -> Result<Vec<u64>, Fault> {
    let mut sorted = entries.clone();
    sorted.sort_unstable();
    match sorted.iter().zip(0..).find(|(entry, expected)| *entry != expected) {
        Some((_, missing)) => Err(format!("the entry {missing} is there twice or not at all").into()),
        None => Ok(entries),
    }
}

/// The program in ordinary memory.
pub(super) struct InDram {
    entries: Mutex<Vec<u64>>,
}

impl InDram {
    pub(super) fn new(len: usize) -> InDram {
        InDram { entries: Mutex::new((0..len as u64).collect()) }
    }
}

impl Program for InDram {
    fn run(&self, operations: usize, random: &mut Random) -> Result<(), Fault> {
        let mut entries = lock(&self.entries);
        let len = entries.len();
        for _ in 0..operations {
            let [a, b] = choose_entries(random, len);
            entries.swap(a, b);
        }
        Ok(())
    }

    fn state(&self) -> Result<Vec<u64>, Fault> {
        permutation(lock(&self.entries).clone())
    }
}

/// Transactions that update several random entries each.
pub struct Updates<B: Brand> {
    heap: Heap<B, Root>,
    len: usize,
    each: usize,
}

impl<B: Brand> std::fmt::Debug for Updates<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Updates of {} of {} entries", self.each, self.len)
    }
}

impl<B: Brand> Updates<B> {
    /// Updates of an array of `len` entries, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// The heap's.
    pub fn open(heap: Heap<B, Root>, len: usize) -> Result<Self, Fault> {
        open(&heap, len)?;
        Ok(Updates { heap, len, each: 1 })
    }

    /// From now on `each` entries in a transaction.
    pub fn set_each(&mut self, each: usize) {
        self.each = each;
    }
}

/// An operation is a transaction.
impl<B: Brand> Program for Updates<B> {
    fn run(&self, operations: usize, random: &mut Random) -> Result<(), Fault> {
        let mut chosen = vec![0; self.each];
        for _ in 0..operations {
            chosen.fill_with(|| random.random_range(0..self.len));
            let chosen = &chosen;
            self.heap.write(|tx, root| {
                let Some(entries) = tx.array(root.entries())? else { return Err(tx.cancel()) };
                for at in chosen {
                    *tx.get_mut(entries.at(*at))? += 1;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn state(&self) -> Result<Vec<u64>, Fault> {
        Ok(entries(&self.heap)?)
    }
}
