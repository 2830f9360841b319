//! A field that cannot be seen cannot be reached. Twin: `fields_are_reached_by_those_who_see_them`.
mod account {
    use tembo_heap::Persist;

    #[derive(Default, Persist)]
    #[repr(C)]
    pub struct Account {
        pub owner: u64,
        balance: i64,
    }
}

use account::*;
use tembo_heap::{Brand, Heap, Result};

fn steal<B: Brand>(heap: &Heap<B, Account>) -> Result<()> {
    heap.write(|tx, account| {
        tx.set(account.owner(), 7)?;
        tx.set(account.balance(), -7)
    })
}

fn main() {}
