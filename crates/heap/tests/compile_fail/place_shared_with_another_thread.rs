//! A place or an array is its transaction's, and so its thread's, also when it is only looked at. Twin:
//! `handles_are_sent_to_other_threads`.
use tembo_heap::{Arr, Brand, Heap, PArr, Persist, Result};

#[derive(Default, Persist)]
#[repr(C)]
struct Root {
    count: u64,
    numbers: PArr<u64>,
}

fn share<B: Brand>(heap: &Heap<B, Root>) -> Result<()> {
    heap.read(|_, root| {
        let count = root.count();
        std::thread::scope(|scope| {
            scope.spawn(|| println!("{count:?}"));
        });
        Ok(())
    })
}

fn send<B: Brand>(numbers: Arr<'static, B, u64>) {
    std::thread::scope(|scope| {
        scope.spawn(move || numbers.len());
    });
}

fn main() {}
