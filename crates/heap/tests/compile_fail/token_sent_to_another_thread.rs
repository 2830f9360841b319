//! A transaction belongs to one thread. Twin: `handles_are_sent_to_other_threads`.
use tembo_heap::{Brand, Heap, PRc, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    first: PRc<u64>,
}

fn send<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    heap.write(|tx, _| {
        std::thread::scope(|scope| {
            scope.spawn(|| drop(tx.alloc(1_u64)));
        });
        Ok(())
    })
}

fn main() {}
