//! A borrow ends with its transaction. Twin: `a_field_is_read_set_and_borrowed`.
use tembo_heap::{Brand, Error, Heap, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
}

fn guard<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    let mut count = heap.write::<_, Error>(|tx, root| tx.get_mut(root.count()))?;
    *count += 1;
    Ok(())
}

fn reference<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    let count: &mut u64 = heap.write::<_, Error>(|tx, root| Ok(&mut *tx.get_mut(root.count())?))?;
    *count += 1;
    Ok(())
}

fn main() {}
