//! An `Option` has the layout that the compiler likes; those of small values are written down here. Twin:
//! `small_values_may_be_absent`.
use tembo_heap::{PRc, Persist, Plain};

#[derive(Clone, Copy, Persist, Plain)]
#[repr(C)]
struct Point {
    x: f64,
    y: f64,
}

#[derive(Persist)]
#[repr(C)]
struct Node {
    key: Option<u32>,
    next: Option<PRc<Node>>,
    place: Option<Point>,
    name: Option<String>,
    size: Option<usize>,
}

fn main() {}
