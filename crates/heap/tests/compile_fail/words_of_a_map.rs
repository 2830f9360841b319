//! A key does not get at the words that a map looks at: as atomics they could be stored to. Twin:
//! `a_type_with_methods_of_its_own_is_a_key`.
use std::sync::atomic::{AtomicU64, Ordering};
use tembo_heap::collections::MapKey;
use tembo_heap::{Brand, Persist, ReadTx, Ref, Result, Tx};

#[derive(Persist)]
#[repr(C)]
struct Key {
    number: u64,
}

impl MapKey for Key {
    type Query = u64;
    type Owned = u64;

    fn hash(query: &u64) -> u64 {
        *query
    }
    fn hash_at<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, Self>) -> Result<u64> {
        tx.get(place.number())
    }
    fn is<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, Self>, query: &u64) -> Result<bool> {
        Ok(tx.get(place.number())? == *query)
    }
    fn is_in(words: &[AtomicU64], _: usize, _: &u64) -> Option<bool> {
        words[1].store(0xDEAD_0000, Ordering::Relaxed);
        None
    }
    fn new(query: &u64) -> Key {
        Key { number: *query }
    }
    fn complete<'t, B: Brand>(_: &mut Tx<'t, B>, _: Ref<'t, B, Self>, _: &u64) -> Result<()> {
        Ok(())
    }
    fn get<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, Self>) -> Result<u64> {
        tx.get(place.number())
    }
}

fn main() {}
