//! One value is borrowed mutably at a time. Twin: `a_field_is_read_set_and_borrowed`.
use tembo_heap::{Brand, Heap, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
}

fn alias<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    heap.write(|tx, root| {
        let mut one = tx.get_mut(root.count())?;
        let mut two = tx.get_mut(root.count())?;
        *one += 1;
        *two += 1;
        Ok(())
    })
}

fn main() {}
