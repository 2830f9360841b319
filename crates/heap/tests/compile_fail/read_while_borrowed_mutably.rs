//! What is borrowed mutably is not read beside the borrow. Twin: `a_field_is_read_set_and_borrowed`.
use tembo_heap::{Brand, Heap, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
}

fn alias<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    heap.write(|tx, root| {
        let mut count = tx.get_mut(root.count())?;
        *count += tx.get(root.count())?;
        Ok(())
    })
}

fn main() {}
