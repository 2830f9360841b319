//! A transaction may be run again, so it changes nothing outside, not by cells either. Twin:
//! `results_leave_a_transaction_by_value`.
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tembo_heap::{Brand, Heap, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
}

fn cell<B: Brand>(heap: &Heap<B, Root>) -> Result<u64> {
    let seen = Cell::new(0);
    heap.write(|tx, root| {
        seen.set(tx.get(root.count())?);
        Ok(())
    })?;
    Ok(seen.get())
}

fn shared_cell<B: Brand>(heap: &Heap<B, Root>, seen: Rc<RefCell<Vec<u64>>>) -> Result<()> {
    heap.read(move |tx, root| {
        seen.borrow_mut().push(tx.get(root.count())?);
        Ok(())
    })
}

fn main() {}
