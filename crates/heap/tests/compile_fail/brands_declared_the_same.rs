//! No program can say of two heaps that they are one, and so link them. Twin:
//! `heaps_with_names_are_open_at_once`.
use tembo_heap::{SameHeap, brand};

brand!(Books);
brand!(Readers);

impl SameHeap<Books> for Readers {}

fn main() {}
