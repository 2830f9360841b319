//! A transaction may be run again, so it changes nothing outside. Twin:
//! `results_leave_a_transaction_by_value`.
use tembo_heap::{Brand, Heap, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
}

fn local<B: Brand>(heap: &Heap<B, Root>) -> Result<u64> {
    let mut seen = 0;
    heap.write(|tx, root| {
        seen += tx.get(root.count())?;
        Ok(())
    })?;
    Ok(seen)
}

fn parameter<B: Brand>(heap: &Heap<B, Root>, seen: &mut Vec<u64>) -> Result<()> {
    heap.read(|tx, root| {
        seen.push(tx.get(root.count())?);
        Ok(())
    })
}

fn main() {}
