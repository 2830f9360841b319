//! A generic type is persistent if its parameters are. Twin: `generic_types_lie_in_heaps`.
use tembo_heap::{PRc, Persist};

#[derive(Persist)]
#[repr(C)]
struct Pair<T: Persist> {
    left: T,
    right: PRc<T>,
}

#[derive(Persist)]
#[repr(C)]
struct Names {
    all: Pair<String>,
}

fn main() {}
