//! A box in a heap would lead to memory of a process that is gone. Twin: `an_object_leads_to_another`.
use tembo_heap::{PRc, Persist};

#[derive(Persist)]
#[repr(C)]
struct Node {
    key: u64,
    next: Option<Box<Node>>,
    other: Box<u64>,
    right: PRc<Node>,
}

fn main() {}
