//! A heap does not hand out its pool, with which anything could be written anywhere. Twin:
//! `a_heap_says_how_large_and_how_sound_it_is`.
use tembo_heap::{Brand, Heap, Persist};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
}

fn forge<B: Brand>(heap: &Heap<B, Root>) {
    heap.pool().lane();
}

fn main() {}
