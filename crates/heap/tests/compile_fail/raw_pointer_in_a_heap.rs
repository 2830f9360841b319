//! Neither do raw pointers mean anything in the next process. Twin: `an_object_leads_to_another`.
use std::ptr::NonNull;
use tembo_heap::Persist;

#[derive(Persist)]
#[repr(C)]
struct Node {
    next: *mut Node,
    previous: Option<NonNull<Node>>,
}

fn main() {}
