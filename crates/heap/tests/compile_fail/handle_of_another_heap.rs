//! A handle of one heap has no object in another. Twin: `handles_keep_objects_for_later_transactions`.
use tembo_heap::{Handle, Heap, PRc, Persist, Result, brand};

brand!(Books);
brand!(Readers);

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    first: PRc<u64>,
}

fn lend(readers: &Heap<Readers, Root>, book: Handle<Books, u64>) -> Result<()> {
    readers.write(|tx, root| {
        let object = tx.enter(&book)?;
        tx.link(root.first(), object)
    })
}

fn main() {}
