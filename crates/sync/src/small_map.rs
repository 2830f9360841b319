//! A map of a few entries that is emptied often.

use crate::hash_u64;

/// Maps 8-byte keys to values and keeps the order of insertion. Made for the bookkeeping of a transaction,
/// which empties it each time: emptying costs nothing while it never held more than a few entries, and little
/// after that. Insertion and lookup are O(1).
#[derive(Debug)]
pub struct SmallMap<V> {
    entries: Vec<(u64, V)>,
    /// Hash table with linear probing: the entry's number plus one, or 0. At most half full. Empty until
    /// there are more than a few keys, which are searched one by one.
    table: Vec<u32>,
}

const FEW: usize = 8;
/// A larger table is not kept for the next transaction.
const KEPT_MAX: usize = 256;

impl<V> Default for SmallMap<V> {
    fn default() -> Self {
        SmallMap { entries: Vec::new(), table: Vec::new() }
    }
}

impl<V> SmallMap<V> {
    /// The number of the key's entry, or the slot of the table where it belongs.
    #[inline]
    fn find(&self, key: u64) -> Result<usize, usize> {
        if self.table.is_empty() {
            return self.entries.iter().position(|(known, _)| *known == key).ok_or(0);
        }
        let mask = self.table.len() - 1;
        let mut slot = (hash_u64(key) >> 32) as usize & mask;
        loop {
            match self.table[slot] as usize {
                0 => return Err(slot),
                at if self.entries[at - 1].0 == key => return Ok(at - 1),
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    /// The value of `key`.
    #[inline]
    pub fn get(&self, key: u64) -> Option<&V> {
        self.find(key).ok().map(|at| &self.entries[at].1)
    }

    /// The value of `key`, to be changed.
    #[inline]
    pub fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        self.find(key).ok().map(|at| &mut self.entries[at].1)
    }

    /// The value of `key`, which is inserted first if it is missing.
    #[inline]
    pub fn get_or_insert_with(&mut self, key: u64, value: impl FnOnce() -> V) -> &mut V {
        let at = match self.find(key) {
            Ok(at) => at,
            Err(slot) => {
                self.entries.push((key, value()));
                if let Some(entry) = self.table.get_mut(slot) {
                    *entry = self.entries.len() as u32;
                }
                if self.entries.len() > FEW.max(self.table.len() / 2) {
                    self.grow();
                }
                self.entries.len() - 1
            }
        };
        &mut self.entries[at].1
    }

    #[cold]
    fn grow(&mut self) {
        self.table = vec![0; 8 * self.entries.len().next_power_of_two()];
        for at in 0..self.entries.len() {
            if let Err(slot) = self.find(self.entries[at].0) {
                self.table[slot] = at as u32 + 1;
            }
        }
    }

    /// The entry that was inserted as number `at`.
    ///
    /// # Panics
    ///
    /// If there are fewer entries.
    #[inline]
    pub fn entry(&self, at: usize) -> (u64, &V) {
        let (key, value) = &self.entries[at];
        (*key, value)
    }

    /// The number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entries, in order of insertion.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (u64, &V)> + '_ {
        self.entries.iter().map(|(key, value)| (*key, value))
    }

    /// Whether there are no entries.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes all entries.
    #[inline(always)]
    pub fn clear(&mut self) {
        if self.entries.is_empty() {
            return;
        }
        self.entries.clear();
        if !self.table.is_empty() {
            self.clear_table();
        }
    }

    #[cold]
    fn clear_table(&mut self) {
        match self.table.len() {
            0..=KEPT_MAX => self.table.fill(0),
            _ => self.table = Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_map_that_keeps_the_order_whatever_its_size() {
        let mut map = SmallMap::default();
        for len in [0, 1, FEW, FEW + 1, 64, 65, 3, 400, 5, FEW + 1] {
            for key in 0..len as u64 {
                assert_eq!(map.get(key * 48), None);
                *map.get_or_insert_with(key * 48, || 0) += key;
                *map.get_or_insert_with(key * 48, || unreachable!("it is there")) += 1;
            }
            assert_eq!((map.len(), map.is_empty()), (len, len == 0));
            let all: Vec<_> = map.iter().map(|(key, value)| (key, *value)).collect();
            assert!(all.iter().enumerate().all(|(i, entry)| *entry == (i as u64 * 48, i as u64 + 1)));
            assert!(
                (0..len as u64)
                    .all(|key| map.get(key * 48) == Some(&(key + 1)) && map.get(key * 48 + 8).is_none())
            );
            map.clear();
            assert!(map.table.len() <= KEPT_MAX);
        }
    }
}
