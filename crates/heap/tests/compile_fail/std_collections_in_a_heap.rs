//! Strings, vectors and counted pointers of `std` own memory of the process. Twin: `text_lies_in_arrays`.
use std::sync::Arc;
use tembo_heap::Persist;

#[derive(Persist)]
#[repr(C)]
struct Book {
    title: String,
    pages: Vec<u32>,
    author: Arc<[u8; 32]>,
}

fn main() {}
