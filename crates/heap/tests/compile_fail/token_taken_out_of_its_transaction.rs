//! A token ends with its transaction. Twin: `a_token_is_lent_to_functions`.
use std::sync::Mutex;
use tembo_heap::{Brand, Heap, Persist, Result, Tx};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
}

fn keep<'k, B: Brand>(heap: &Heap<B, Root>, kept: &Mutex<Option<&'k mut Tx<'k, B>>>) -> Result<()> {
    heap.write(|tx, _| {
        *kept.lock().unwrap() = Some(tx);
        Ok(())
    })
}

fn main() {}
