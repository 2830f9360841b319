//! A function lies elsewhere in the next process. Twin: `what_to_do_is_an_enum`.
use tembo_heap::Persist;

#[derive(Persist)]
#[repr(C)]
struct Task {
    priority: u32,
    run: fn(u64) -> u64,
}

fn main() {}
