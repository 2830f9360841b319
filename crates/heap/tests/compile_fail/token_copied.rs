//! There is one token of a transaction. Twin: `a_token_is_lent_to_functions`.
use tembo_heap::{Brand, Heap, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
}

fn copy<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    heap.write(|tx, root| {
        let mut again = *tx;
        again.set(root.count(), 1)
    })
}

fn clone<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    heap.write(|tx, root| {
        let mut again = Clone::clone(&*tx);
        again.set(root.count(), 1)
    })
}

fn main() {}
