//! Pointers change by `link`, which counts, and cannot be swapped past it. Twin:
//! `pointers_are_exchanged_by_linking`.
use tembo_heap::{Brand, Heap, PRc, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    left: PRc<u64>,
    right: PRc<u64>,
}

fn slots<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    heap.write(|tx, root| {
        let mut left = tx.get_mut(root.left())?;
        std::mem::swap(&mut *left, &mut PRc::null());
        Ok(())
    })
}

fn whole_values<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    heap.write(|tx, root| {
        let mut value = tx.get_mut(*root)?;
        std::mem::swap(&mut value.left, &mut value.right);
        Ok(())
    })
}

fn main() {}
