//! HashTable: looks for an integer in a hash table with chains; inserts it if it is not there, and removes it
//! otherwise.

use super::{Fault, Program, Random, choose_key, halves, lock};
use std::sync::Mutex;
use tembo_heap::{Brand, Error, Heap, PArr, PRc, Persist};

/// An entry of a chain.
#[derive(Persist)]
#[repr(C)]
struct Entry {
    key: u64,
    next: PRc<Entry>,
}

/// The root object of the program's heap.
#[derive(Default, Persist)]
#[repr(C)]
pub(super) struct Root {
    buckets: PArr<PRc<Entry>>,
}

/// The bucket of a key.
fn bucket_of(key: u64, count: usize) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % count
}

/// The program on a heap.
pub(super) struct HashTable<B: Brand> {
    heap: Heap<B, Root>,
    keys: u64,
    buckets: usize,
}

impl<B: Brand> HashTable<B> {
    /// Opens the table, or makes one with every second key: as many as there are on average later.
    pub(super) fn open(heap: Heap<B, Root>, keys: u64) -> Result<Self, Fault> {
        let table = HashTable { heap, keys, buckets: buckets_for(keys) };
        let is_new = table.heap.write(|tx, root| {
            let is_new = tx.array(root.buckets())?.is_none();
            if is_new {
                let buckets = tx.alloc_array(table.buckets, |_| PRc::null())?;
                tx.link_array(root.buckets(), buckets)?;
            }
            Ok(is_new)
        })?;
        if is_new {
            halves(keys).try_for_each(|key| table.toggle(key))?;
        }
        Ok(table)
    }

    fn toggle(&self, key: u64) -> Result<(), Error> {
        let bucket = bucket_of(key, self.buckets);
        self.heap.write(|tx, root| {
            let Some(buckets) = tx.array(root.buckets())? else { return Err(tx.cancel()) };
            let mut slot = buckets.at(bucket);
            while let Some(entry) = tx.load(slot)? {
                if tx.get(entry.key())? == key {
                    let next = tx.load(entry.next())?;
                    tx.link(slot, next)?;
                    return tx.delete_by_hand(entry);
                }
                slot = entry.next();
            }
            let entry = tx.alloc(Entry { key, next: PRc::null() })?;
            tx.link(slot, entry)
        })
    }
}

/// Buckets for a table that has half of so many keys.
fn buckets_for(keys: u64) -> usize {
    (keys as usize / 2).max(1)
}

impl<B: Brand> Program for HashTable<B> {
    fn run(&self, operations: usize, random: &mut Random) -> Result<(), Fault> {
        for _ in 0..operations {
            self.toggle(choose_key(random, self.keys))?;
        }
        Ok(())
    }

    fn state(&self) -> Result<Vec<u64>, Fault> {
        let chains = self.heap.read(|tx, root| {
            let mut chains = Vec::new();
            let Some(buckets) = tx.array(root.buckets())? else { return Ok(chains) };
            for bucket in 0..buckets.len() {
                let mut slot = buckets.at(bucket);
                while let Some(entry) = tx.load(slot)? {
                    chains.push((bucket, tx.get(entry.key())?));
                    slot = entry.next();
                }
            }
            Ok(chains)
        })?;
        keys_of(chains, self.buckets)
    }
}

/// The keys of a table, given with their buckets, in order; if each is in its bucket and there once.
fn keys_of(chains: Vec<(usize, u64)>, buckets: usize) -> Result<Vec<u64>, Fault> {
    if let Some((bucket, key)) = chains.iter().find(|(bucket, key)| bucket_of(*key, buckets) != *bucket) {
        return Err(format!("the key {key} is in bucket {bucket}").into());
    }
    let mut keys: Vec<u64> = chains.into_iter().map(|(_, key)| key).collect();
    keys.sort_unstable();
    match keys.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("the key {} is there twice", pair[0]).into()),
        None => Ok(keys),
    }
}

/// The program in ordinary memory.
pub(super) struct InDram {
    buckets: Mutex<Vec<Chain>>,
    keys: u64,
}

type Chain = Option<Box<EntryInDram>>;

struct EntryInDram {
    key: u64,
    next: Chain,
}

fn toggle_in(buckets: &mut [Chain], key: u64) {
    let bucket = bucket_of(key, buckets.len());
    let mut slot = &mut buckets[bucket];
    while slot.as_ref().is_some_and(|entry| entry.key != key) {
        slot = &mut slot.as_mut().expect("looked at above").next;
    }
    *slot = match slot.take() {
        Some(entry) => entry.next,
        None => Some(Box::new(EntryInDram { key, next: None })),
    };
}

impl InDram {
    pub(super) fn new(keys: u64) -> InDram {
        let mut buckets: Vec<Chain> = (0..buckets_for(keys)).map(|_| None).collect();
        halves(keys).for_each(|key| toggle_in(&mut buckets, key));
        InDram { buckets: Mutex::new(buckets), keys }
    }
}

impl Program for InDram {
    fn run(&self, operations: usize, random: &mut Random) -> Result<(), Fault> {
        let mut buckets = lock(&self.buckets);
        for _ in 0..operations {
            toggle_in(&mut buckets, choose_key(random, self.keys));
        }
        Ok(())
    }

    fn state(&self) -> Result<Vec<u64>, Fault> {
        let buckets = lock(&self.buckets);
        let mut chains = Vec::new();
        for (bucket, first) in buckets.iter().enumerate() {
            let mut next = first;
            while let Some(entry) = next {
                chains.push((bucket, entry.key));
                next = &entry.next;
            }
        }
        keys_of(chains, buckets.len())
    }
}
