//! A transaction in a transaction has a token of its own, which does not reach the objects of the outer one.
//! Twin: `a_transaction_in_a_transaction_is_part_of_it`.
use tembo_heap::{Brand, Heap, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
}

fn nest<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    heap.write(|_, root| heap.write(|inner, _| inner.set(root.count(), 1)))
}

fn main() {}
