//! An object is known to its transaction only. Twin: `handles_keep_objects_for_later_transactions`.
use tembo_heap::{Brand, Heap, PRc, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    first: PRc<u64>,
}

fn smuggle<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    let first = heap.write(|tx, root| tx.load(root.first()))?;
    heap.write(|tx, root| tx.link(root.first(), first))
}

fn main() {}
