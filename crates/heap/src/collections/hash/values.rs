//! Whole values of a hash map, for types without pointers.

use super::node::{BUCKET_WORDS, Bucket, EntryFields, Seen, Slots, look_for, tag_of};
use super::{PHashMap, SEGMENT, SEGMENTS_OFF, Size, find};
use crate::Plain;
use crate::collections::keys::MapKey;
use crate::error::Result;
use crate::objects::brand::Brand;
use crate::objects::place::{Arr, Ref};
use crate::objects::slots::PArr;
use crate::tx::bulk_read::value_in;
use crate::tx::{ReadTx, Tx};

impl<'t, B: Brand, K: MapKey, V: Plain> Ref<'t, B, PHashMap<K, V>> {
    /// The value of a key.
    ///
    /// # Errors
    ///
    /// As for [`len`](Ref::len).
    #[inline(always)]
    pub fn value(self, tx: &ReadTx<'t, B>, key: &K::Query) -> Result<Option<V>> {
        let hash = K::hash(key);
        match self.quick_value(tx, hash, key) {
            Some(value) => Ok(value),
            None => self.value_slow(tx.copied(), hash, key),
        }
    }

    #[inline(never)]
    fn value_slow(self, tx: ReadTx<'t, B>, hash: u64, key: &K::Query) -> Result<Option<V>> {
        let Some(table) = self.table(&tx)? else { return Ok(None) };
        table.find(&tx, hash, key)?.map(|found| tx.get(found.entry.value())).transpose()
    }

    /// The value of a key, if quiet reads of all lines on the path suffice, under one check of the clock; the
    /// inner `None` stands for an absent key. Until that check any word may be invalid.
    #[inline(always)]
    fn quick_value(self, tx: &ReadTx<'t, B>, hash: u64, key: &K::Query) -> Option<Option<V>> {
        if !Slots::<K, V>::ARE_INLINE || self.stamp != 0 {
            return None;
        }
        let size = Size::decode(&tx.word_if_quiet(self.off)?.to_ne_bytes())?;
        // The number of buckets determines the number of segments and the buckets in each. The words that
        // state these numbers lie in lines that a lookup needs for nothing else. In a damaged map a bucket is
        // some line of the pool, or none.
        let segments = tx.word_if_quiet(self.off.wrapping_add(SEGMENTS_OFF))?;
        if segments == 0 || !size.buckets.is_power_of_two() {
            return None;
        }
        // The offset of a bucket, or none if its segment does not exist yet.
        let bucket = |index: usize| {
            let segment = Arr::<B, PArr<Bucket<K, V>>>::new(segments, u64::MAX, false).at(index / SEGMENT);
            let segment = tx.word_if_quiet(segment.off)?;
            let bucket = Arr::<B, Bucket<K, V>>::new(segment, SEGMENT as u64, false).at(index % SEGMENT);
            Some((segment != 0).then_some(bucket.off))
        };
        let look = |bucket: Option<u64>| {
            let Some(off) = bucket else { return Some(Seen::Maybe(0, 0)) };
            let words = tx.quiet_words(off, BUCKET_WORDS as u64)?;
            Some(look_for::<K, V, _>(words, tag_of(hash), key, value_in))
        };
        let (buckets, is_growing) = (size.buckets as usize, size.is_growing != 0);
        let index = hash as usize & (buckets << usize::from(is_growing)).wrapping_sub(1);
        let mut seen = None;
        if is_growing && index >= buckets {
            // Both lines are prefetched at once.
            let (new, old) = (bucket(index)?, bucket(index - buckets)?);
            tx.fetch_bytes(old?, 1);
            seen = Some(look(new)?).filter(|seen| !matches!(seen, Seen::Maybe(0, 0)));
            if seen.is_none() {
                seen = Some(look(old)?);
            }
        }
        let seen = match seen {
            Some(seen) => seen,
            None => look(Some(bucket(index)??))?,
        };
        match seen {
            _ if !tx.is_still_quiet() => None,
            Seen::In(_, Some(value)) => Some(Some(value)),
            Seen::Maybe(0, 0) => Some(None),
            _ => None,
        }
    }

    /// Sets the value of a key, and returns the one that it had.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Ref::insert).
    pub fn replace(self, tx: &mut Tx<'t, B>, key: &K::Query, value: V) -> Result<Option<V>> {
        let hash = K::hash(key);
        let table = self.table(tx)?;
        if let Some(found) = find(tx, table, hash, key)? {
            let place = found.entry.value();
            let old = tx.get(place)?;
            tx.set(place, value)?;
            return Ok(Some(old));
        }
        self.insert_new(tx, table, hash, key, value)?;
        Ok(None)
    }

    /// Removes the entry of a key, and returns its value.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Ref::insert).
    pub fn take(self, tx: &mut Tx<'t, B>, key: &K::Query) -> Result<Option<V>> {
        let value = self.value(tx, key)?;
        if value.is_some() {
            self.remove(tx, key)?;
        }
        Ok(value)
    }
}
