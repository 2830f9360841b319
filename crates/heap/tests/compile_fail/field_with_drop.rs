//! A field with `Drop` is as bad, and its type is not persistent. Twin:
//! `dead_objects_take_what_they_own_along`.
use tembo_heap::Persist;

struct Lease(u64);

impl Drop for Lease {
    fn drop(&mut self) {
        println!("{} is free again", self.0);
    }
}

#[derive(Persist)]
#[repr(u32)]
enum Seat {
    Free,
    Taken { lease: Lease },
}

fn main() {}
