//! A place alone cannot be written to, nor with a token that is only lent for reading. Twin:
//! `a_field_is_read_set_and_borrowed`.
use tembo_heap::{Brand, Heap, Persist, Ref, Result, Tx};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
}

fn assign<'t, B: Brand>(root: Ref<'t, B, Root>) {
    *root.count() = 1;
    root.count = 1;
}

fn shared<'t, B: Brand>(tx: &Tx<'t, B>, root: Ref<'t, B, Root>) -> Result<()> {
    tx.set(root.count(), 1)
}

fn outside<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    heap.root().count().set(1)
}

fn main() {}
