//! The token of one heap is none of another. Twin: `two_heaps_are_open_at_once`.
use tembo_heap::{Brand, Tx};

fn brands<'t, A: Brand, B: Brand>(a: &mut Tx<'t, A>, b: &mut Tx<'t, B>) {
    std::mem::swap(a, b);
}

fn transactions<'t, 'u, B: Brand>(one: &mut Tx<'t, B>, other: &mut Tx<'u, B>) {
    std::mem::swap(one, other);
}

fn main() {}
