//! The token of one heap is none of another. Twin: `two_heaps_are_open_at_once`.
use tembo_heap::{Heap, Options, PRc, Persist, Result, Scoped};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    first: PRc<u64>,
}

fn main() -> Result<()> {
    Heap::<Scoped, Root>::with("a.pool", &Options::new(), |a| {
        Heap::<Scoped, Root>::with("b.pool", &Options::new(), |b| {
            a.write(|tx_a, _| {
                b.write(|tx_b, _| {
                    std::mem::swap(tx_a, tx_b);
                    Ok(())
                })
            })
        })
    })
}
