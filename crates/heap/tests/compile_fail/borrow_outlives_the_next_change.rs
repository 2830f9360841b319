//! While a value is borrowed nothing else changes the heap. Twin: `a_field_is_read_set_and_borrowed`.
use tembo_heap::{Brand, Heap, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
}

fn change<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    heap.write(|tx, root| {
        let count = tx.get_mut(root.count())?;
        tx.set(root.count(), 7)?;
        assert_eq!(*count, 7);
        Ok(())
    })
}

fn main() {}
