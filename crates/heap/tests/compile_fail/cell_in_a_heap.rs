//! Values change by transactions only. Twin: `a_field_is_read_set_and_borrowed`.
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use tembo_heap::Persist;

#[derive(Persist)]
#[repr(C)]
struct Counter {
    cell: Cell<u64>,
    atomic: AtomicU64,
    mutex: Mutex<u64>,
}

fn main() {}
