//! Pointers between heaps cannot be made: and neither in the other direction. Twin:
//! `two_heaps_are_open_at_once`.
use tembo_heap::{Heap, Options, PRc, Persist, Result, Scoped};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    first: PRc<Root>,
}

fn main() -> Result<()> {
    Heap::<Scoped, Root>::with("a.pool", Options::new(), |a| {
        Heap::<Scoped, Root>::with("b.pool", Options::new(), |b| {
            a.write(|_, root_a| {
                b.write(|tx, root_b| {
                    let object = tx.alloc(Root::default())?;
                    tx.link(object.first(), root_a)?;
                    tx.link(root_b.first(), object)
                })
            })
        })
    })
}
