//! What a transaction gathers by key.

/// Maps keys to values of a transaction, and keeps the order in which they came. Emptied once for every transaction, so that this takes no time
/// as long as there were never more than a few entries, and not much after that.
#[derive(Debug)]
pub(crate) struct SmallMap<V> {
    entries: Vec<(u64, V)>,
    /// Number of the entry plus one, or 0, by the key's hash and linear probing; at most half of them are used. Empty until there were more
    /// than a few keys: those are searched one by one.
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
    /// The number of the key's entry, or the place in the table where it belongs.
    #[inline]
    fn find(&self, key: u64) -> Result<usize, usize> {
        if self.table.is_empty() {
            return self.entries.iter().position(|(known, _)| *known == key).ok_or(0);
        }
        let mask = self.table.len() - 1;
        let mut slot = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize & mask;
        loop {
            match self.table[slot] as usize {
                0 => return Err(slot),
                at if self.entries[at - 1].0 == key => return Ok(at - 1),
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<&V> {
        self.find(key).ok().map(|at| &self.entries[at].1)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        self.find(key).ok().map(|at| &mut self.entries[at].1)
    }

    #[inline]
    pub(crate) fn get_or_insert_with(&mut self, key: u64, value: impl FnOnce() -> V) -> &mut V {
        let at = match self.find(key) {
            Ok(at) => at,
            Err(slot) => {
                self.entries.push((key, value()));
                if let Some(place) = self.table.get_mut(slot) {
                    *place = self.entries.len() as u32;
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

    /// The entry that came as number `at`.
    #[inline]
    pub(crate) fn entry(&self, at: usize) -> (u64, &V) {
        let (key, value) = &self.entries[at];
        (*key, value)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entries, in the order in which they came.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &V)> + '_ {
        self.entries.iter().map(|(key, value)| (*key, value))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
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
