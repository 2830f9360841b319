//! The only pointer that can be made is null. Twin: `fields_of_a_type_with_pointers_are_reached_one_by_one`.
use tembo_heap::PRc;

fn pointer() -> PRc<u64> {
    PRc { off: 4096, target: std::marker::PhantomData }
}

fn main() {}
