//! A tuple is a value that is read as a whole, and no pointer is. Twin: `small_values_may_be_absent`.
use tembo_heap::{PRc, Persist};

#[derive(Persist)]
#[repr(C)]
struct Node {
    size: (u32, u32),
    next: (u32, PRc<Node>),
    name: (u32, String),
}

fn main() {}
