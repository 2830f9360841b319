//! Pointers between heaps cannot be made: of no kind, and from neither side. Twin:
//! `heaps_with_names_are_open_at_once`.
use tembo_heap::{Arr, Obj, PArr, PWeak, Persist, Result, Tx, brand};

brand!(Books);
brand!(Readers);

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    seen: PWeak<Root>,
    numbers: PArr<u64>,
}

fn lend<'t>(tx: &mut Tx<'t, Readers>, book: Obj<'t, Books, Root>, reader: Obj<'t, Readers, Root>) -> Result<()> {
    tx.link_weak(reader.seen(), book)?;
    tx.link_weak(book.seen(), reader)
}

fn count<'t>(tx: &mut Tx<'t, Readers>, numbers: Arr<'t, Books, u64>, reader: Obj<'t, Readers, Root>) -> Result<()> {
    tx.link_array(reader.numbers(), numbers)
}

fn main() {}
