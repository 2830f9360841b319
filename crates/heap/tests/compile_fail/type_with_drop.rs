//! Nobody runs `Drop` when the process is killed, or an object dies after it. Twin:
//! `dead_objects_take_what_they_own_along`.
use tembo_heap::Persist;

#[derive(Persist)]
#[repr(C)]
struct Ticket {
    number: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        println!("ticket {} is free again", self.number);
    }
}

fn main() {}
