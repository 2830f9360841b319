//! A linked list that outlives the program: each run adds an entry.
//!
//! `cargo run --example heap_list -- [file]`
//!
//! `docs/guide/heap.md` explains it step by step.

use std::path::Path;
use tembo::Options;
use tembo::heap::{Error, Heap, PRc, Persist, brand};

/// One number, and a pointer to the rest of the list.
#[derive(Persist)]
#[repr(C)]
struct Entry {
    value: u64,
    next: PRc<Entry>,
}

/// The root: what a program finds when it opens the heap.
#[derive(Default, Persist)]
#[repr(C)]
struct List {
    first: PRc<Entry>,
    len: u64,
}

brand!(Numbers);

type ListHeap = Heap<Numbers, List>;

fn open(path: &Path) -> Result<ListHeap, Error> {
    Heap::open(path, Options::new().create(true))
}

/// Adds a number at the front.
fn push(heap: &ListHeap, value: u64) -> Result<(), Error> {
    heap.write(|tx, list| {
        let entry = tx.alloc(Entry { value, next: PRc::null() })?;
        let first = tx.load(list.first())?;
        tx.link(entry.next(), first)?;
        tx.link(list.first(), entry)?;
        *tx.get_mut(list.len())? += 1;
        Ok(())
    })
}

/// All numbers, the last that was added first.
fn values(heap: &ListHeap) -> Result<Vec<u64>, Error> {
    heap.read(|tx, list| {
        let mut values = Vec::new();
        let mut next = tx.load(list.first())?;
        while let Some(entry) = next {
            values.push(tx.get(entry.value())?);
            next = tx.load(entry.next())?;
        }
        Ok(values)
    })
}

/// Removes the first entry with this number. Says whether there was one.
fn remove(heap: &ListHeap, value: u64) -> Result<bool, Error> {
    heap.write(|tx, list| {
        let mut slot = list.first();
        while let Some(entry) = tx.load(slot)? {
            if tx.get(entry.value())? == value {
                let rest = tx.load(entry.next())?;
                tx.link(slot, rest)?;
                *tx.get_mut(list.len())? -= 1;
                return Ok(true);
            }
            slot = entry.next();
        }
        Ok(false)
    })
}

/// Why a number was not added.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("the list has {0} entries already")]
    Full(u64),
    #[error(transparent)]
    Heap(#[from] Error),
}

/// As `push`, unless the list has this many entries already.
fn push_below(heap: &ListHeap, value: u64, most: u64) -> Result<(), Refusal> {
    heap.try_write(|tx, list| {
        push(heap, value)?;
        if tx.get(list.len())? > most { Err(Refusal::Full(most)) } else { Ok(()) }
    })
}

/// A number from a text.
fn push_text(heap: &ListHeap, text: &str) -> Result<(), Error> {
    heap.write(|_, _| push(heap, text.parse().map_err(Error::user)?))
}

/// Runs the example on a file.
pub(crate) fn run(path: &Path) -> Result<(), Error> {
    let heap = open(path)?;
    let before = values(&heap)?;
    push(&heap, before.len() as u64)?;
    println!("{} entries: {:?}", before.len() + 1, values(&heap)?);
    push(&heap, 1_000_000)?;
    assert!(remove(&heap, 1_000_000)?);
    assert!(!remove(&heap, 1_000_000)?);
    let refused = push_below(&heap, 7, 0);
    assert!(matches!(refused, Err(Refusal::Full(0))), "{refused:?}");
    let refused = push_text(&heap, "seven").unwrap_err();
    assert!(refused.downcast_ref::<std::num::ParseIntError>().is_some(), "{refused}");
    assert_eq!(values(&heap)?.len(), before.len() + 1);
    Ok(())
}

#[allow(dead_code, reason = "a test runs the example too")]
fn main() -> Result<(), Error> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "list.heap".to_owned());
    run(Path::new(&path))
}
