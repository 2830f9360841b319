//! A borrow ends with its transaction. Twin: `a_field_is_read_set_and_borrowed`.
use tembo_heap::{Brand, Heap, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
}

fn guard<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    let mut count = heap.write(|tx, root| tx.get_mut(root.count()))?;
    *count += 1;
    Ok(())
}

fn reference<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    let count: &mut u64 = heap.write(|tx, root| Ok(&mut *tx.get_mut(root.count())?))?;
    *count += 1;
    Ok(())
}

fn main() {}
