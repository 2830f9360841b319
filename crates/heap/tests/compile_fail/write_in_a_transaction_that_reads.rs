//! A transaction that reads has no token to write with. Twin:
//! `a_transaction_that_reads_sees_what_was_written`.
use tembo_heap::{Brand, Heap, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
}

fn write<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    heap.read(|tx, root| tx.set(root.count(), 1))
}

fn main() {}
