//! An object is known to its transaction only. Twin: `handles_keep_objects_for_later_transactions`.
use std::sync::Mutex;
use tembo_heap::{Brand, Heap, PRc, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    first: PRc<u64>,
}

fn smuggle<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    let kept = Mutex::new(None);
    heap.write(|_, root| {
        *kept.lock().unwrap() = Some(root);
        Ok(())
    })
}

fn main() {}
