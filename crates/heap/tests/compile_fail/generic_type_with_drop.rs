//! As for any type with `Drop`. Twin: `dead_objects_take_what_they_own_along`.
use tembo_heap::Persist;

#[derive(Persist)]
#[repr(C)]
struct Ticket<T> {
    of: T,
}

impl<T> Drop for Ticket<T> {
    fn drop(&mut self) {}
}

fn main() {}
