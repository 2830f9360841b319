//! A pointer leads to objects of its type. Twin: `an_object_leads_to_another`.
use tembo_heap::{Brand, Heap, PRc, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    first: PRc<u64>,
}

fn mix<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    heap.write(|tx, root| {
        let object = tx.alloc(7_u32)?;
        tx.link(root.first(), object)
    })
}

fn main() {}
