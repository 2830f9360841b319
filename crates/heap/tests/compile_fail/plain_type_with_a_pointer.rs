//! Whoever could copy a pointer could copy it past the counts. Twin:
//! `fields_of_a_type_with_pointers_are_reached_one_by_one`.
use tembo_heap::{PRc, Persist, Plain};

#[derive(Persist, Plain)]
#[repr(C)]
struct NotCopied {
    key: u64,
}

#[derive(Clone, Copy, Persist, Plain)]
#[repr(C)]
struct Node {
    key: u64,
    next: PRc<Node>,
}

fn main() {}
