//! Nothing in a heap borrows. Twin: `text_lies_in_arrays`.
use tembo_heap::Persist;

#[derive(Persist)]
#[repr(C)]
struct City<'a> {
    name: &'a [u8],
}

fn main() {}
