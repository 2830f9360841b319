//! Pointers between heaps cannot be made: here of two heaps that are open for a while. Twin:
//! `two_heaps_are_open_at_once`.
use tembo_heap::{Heap, Options, PRc, Persist, Result, Scoped};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    first: PRc<u64>,
}

fn main() -> Result<()> {
    Heap::<Scoped, Root>::with("a.pool", Options::new(), |a| {
        Heap::<Scoped, Root>::with("b.pool", Options::new(), |b| {
            a.write(|_, root_a| {
                b.write(|tx, root_b| {
                    let object = tx.load(root_b.first())?;
                    tx.link(root_a.first(), object)
                })
            })
        })
    })
}
