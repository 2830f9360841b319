//! An object is its transaction's, and so its thread's. Twin: `handles_are_sent_to_other_threads`.
use tembo_heap::{Brand, Heap, PRc, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    first: PRc<u64>,
}

fn send<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    heap.write(|_, root| {
        std::thread::scope(|scope| {
            scope.spawn(move || println!("{root:?}"));
        });
        Ok(())
    })
}

fn main() {}
