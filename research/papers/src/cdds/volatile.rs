//! The volatile B+-Tree with prefetching, as a side of [`tembo_goals::by_turns`].

use crate::mem::RealMem;
use crate::trees::{Config, Fixed, Tree, Volatile};
use tembo_goals::Error;
use tembo_goals::by_turns::{Bytes, Key, absent};
use tembo_pmem::Durability;

/// The volatile B+-Tree with prefetching: keys in its nodes, values in blocks of the ordinary allocator.
///
/// # Errors
///
/// When there is no memory.
pub fn volatile_btree(keys: usize) -> Result<Box<dyn Bytes>, Error> {
    let bytes = (keys as u64 * 96 + (16 << 20)).next_multiple_of(1 << 20);
    let mem = RealMem::anonymous(bytes, Durability::PageCache, false)?;
    Ok(Box::new(Plain { tree: Tree::create(mem, Config::lines(16))?, values: Vec::new(), free: Vec::new() }))
}

/// Keys are as good as their first 24 bytes, which lie in the nodes.
struct Plain {
    tree: Tree<RealMem, Fixed<[u8; 24]>, Volatile>,
    values: Vec<Box<[u8]>>,
    free: Vec<u64>,
}

fn inline(key: &Key) -> [u8; 24] {
    *key.first_chunk().expect("a key has more bytes")
}

impl Bytes for Plain {
    fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), Error> {
        let place = match self.free.pop() {
            Some(place) => {
                self.values[place as usize] = value.into();
                place
            }
            None => {
                self.values.push(value.into());
                self.values.len() as u64 - 1
            }
        };
        if self.tree.insert(inline(key), place)? { Ok(()) } else { Err("a key was put twice".into()) }
    }

    fn get(&self, key: &Key, look: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        look(&self.values[self.tree.get(inline(key)).ok_or_else(absent)? as usize]);
        Ok(())
    }

    fn delete(&mut self, key: &Key) -> Result<(), Error> {
        let place = self.tree.remove(inline(key))?.ok_or_else(absent)?;
        self.values[place as usize] = Box::default();
        self.free.push(place);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tembo_goals::by_turns::{by_turns, cdds, key};

    /// That keys and values are right, and are gone, is part of the run.
    #[test]
    fn it_runs_by_turns_with_others() {
        let mut sides = vec![cdds(Durability::PageCache).unwrap(), volatile_btree(12_000).unwrap()];
        for value_bytes in [8, 2048] {
            let results = by_turns(&mut sides, 6_000, value_bytes, 1).unwrap();
            assert!(results.iter().flatten().all(|ns| *ns > 0.0));
            assert!(sides.iter().all(|side| side.get(&key(5), &mut |_| ()).is_err()));
        }
    }
}
