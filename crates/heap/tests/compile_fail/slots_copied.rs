//! A pointer cannot be copied out of the heap, nor in. Twin:
//! `fields_of_a_type_with_pointers_are_reached_one_by_one`.
use tembo_heap::{Brand, Heap, PRc, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    left: PRc<u64>,
    right: PRc<u64>,
}

#[derive(Clone, Persist)]
#[repr(C)]
struct Cloned {
    left: PRc<u64>,
}

fn slots<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    heap.write(|tx, root| {
        let left = tx.get(root.left())?;
        tx.set(root.right(), left)
    })
}

fn whole_values<B: Brand>(heap: &Heap<B, Root>) -> Result<Root> {
    heap.read(|tx, root| tx.get(*root))
}

fn main() {}
