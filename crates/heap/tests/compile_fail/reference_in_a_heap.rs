//! A reference in a heap would lead to memory of a process that is gone. Twin: `text_lies_in_arrays`.
use tembo_heap::Persist;

#[derive(Persist)]
#[repr(C)]
struct City {
    name: &'static str,
    zip: [u8; 5],
}

fn main() {}
