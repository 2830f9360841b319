//! The token of an outer transaction does not get into an inner one as it is; what gets it there is refused
//! when it runs (`reentry/tokens.rs`). Twin: `a_transaction_in_a_transaction_is_part_of_it`.
use tembo_heap::{Brand, Heap, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
}

fn nest<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    heap.write(|outer, root| heap.write(|_, _| outer.set(root.count(), 1)))
}

fn main() {}
