//! A heap can be sent to a machine with another width. Twin: `numbers_of_every_width_are_there_again`.
use tembo_heap::Persist;

#[derive(Persist)]
#[repr(C)]
struct Size {
    rows: usize,
    shift: isize,
    columns: u64,
}

fn main() {}
