//! A pointer leads to an object, and a value is none. Twin: `an_object_leads_to_another`.
use tembo_heap::{Handle, Heap, PRc, Persist, Result, brand};

brand!(Lists);

#[derive(Default, Persist)]
#[repr(C)]
struct Node {
    key: u64,
    next: PRc<Node>,
}

fn push(heap: &Heap<Lists, Node>, held: Handle<Lists, Node>) -> Result<()> {
    heap.write(|tx, root| {
        tx.link(root.next(), Node::default())?;
        tx.link(root.next(), &held)
    })
}

fn main() {}
