//! A place in a variant cannot be made good again by a program: only `variant` looks which one lies there.
//! Twin: `enums_tell_their_variants`.
use tembo_heap::{Brand, Heap, Persist, Result};

#[derive(Default, Persist)]
#[repr(u64)]
enum Either {
    #[default]
    Nothing,
    Number(u64),
}

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    either: Either,
}

fn revive<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    heap.write(|tx, root| {
        let EitherRef::Number(number) = root.either().variant(tx)? else { return Ok(()) };
        tx.put(root.either(), Either::Nothing)?;
        let number = number.__as_now(tx);
        tx.set(number, 1)
    })
}

fn main() {}
