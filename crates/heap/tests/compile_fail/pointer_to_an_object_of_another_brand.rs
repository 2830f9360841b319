//! Pointers between heaps cannot be made: here of two heaps with names. Twin:
//! `heaps_with_names_are_open_at_once`.
use tembo_heap::{Heap, PRc, Persist, Result, brand};

brand!(Books);
brand!(Readers);

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    first: PRc<u64>,
}

fn lend(books: &Heap<Books, Root>, readers: &Heap<Readers, Root>) -> Result<()> {
    books.write(|_, books| {
        readers.write(|tx, readers| {
            let object = tx.alloc(7)?;
            tx.link(books.first(), object)
        })
    })
}

fn main() {}
