//! The iterator over a hash map's entries.

use super::node::{Bucket, BucketFields, EntryFields, first_slot, present};
use super::{PHashMap, Table, Walk};
use crate::Persist;
use crate::collections::keys::MapKey;
use crate::error::Result;
use crate::objects::brand::Brand;
use crate::objects::place::Ref;
use crate::tx::{MapWatch, ReadTx};

/// The entries of a [`PHashMap`].
pub struct Entries<'x, 't, B: Brand, K: MapKey, V: Persist> {
    tx: &'x ReadTx<'t, B>,
    table: Option<Table<'t, B, K, V>>,
    watch: MapWatch,
    /// The next bucket that is the first of its list.
    index: usize,
    bucket: Option<(Ref<'t, B, Bucket<K, V>>, Walk)>,
    /// The slots of the present bucket that are still to be yielded.
    slots: u64,
}

impl<B: Brand, K: MapKey, V: Persist> std::fmt::Debug for Entries<'_, '_, B, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entries").field("index", &self.index).finish_non_exhaustive()
    }
}

impl<'t, B: Brand, K: MapKey, V: Persist> Entries<'_, 't, B, K, V> {
    fn advance(&mut self) -> Result<Option<(K::Owned, Ref<'t, B, V>)>> {
        let Some(table) = self.table else { return Ok(None) };
        self.watch.check(self.tx, table.segments.off)?;
        let buckets = if table.changes() { 2 * table.buckets } else { table.buckets };
        loop {
            if let Some((bucket, mut walk)) = self.bucket {
                if self.slots != 0 {
                    let entry = bucket.entry(self.tx, first_slot(self.slots))?;
                    self.slots &= self.slots - 1;
                    return Ok(Some((K::get(self.tx, entry.key())?, entry.value())));
                }
                self.bucket = walk.follow(self.tx, bucket.next())?.map(|next| (next, walk));
            }
            if self.bucket.is_none() {
                if self.index == buckets {
                    return Ok(None);
                }
                self.bucket = table.bucket(self.tx, self.index)?.map(|bucket| (bucket, Walk::from(bucket)));
                self.index += 1;
            }
            if let Some((bucket, _)) = self.bucket {
                self.slots = present::<K, V>(self.tx.get(bucket.tags())?);
            }
        }
    }
}

impl<'t, B: Brand, K: MapKey, V: Persist> Iterator for Entries<'_, 't, B, K, V> {
    type Item = Result<(K::Owned, Ref<'t, B, V>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.advance();
        if next.is_err() {
            self.table = None;
        }
        next.transpose()
    }
}

impl<'t, B: Brand, K: MapKey, V: Persist> Ref<'t, B, PHashMap<K, V>> {
    /// All entries, in no order: copies of the keys, and the places of the values.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len). Each step may fail in the same way, and also with
    /// [`ErrorKind::MapChanged`](crate::ErrorKind::MapChanged) if a nested transaction has inserted into this
    /// map or removed from it since the last step.
    pub fn iter<'x>(self, tx: &'x ReadTx<'t, B>) -> Result<Entries<'x, 't, B, K, V>> {
        let table = self.table(tx)?;
        Ok(Entries { tx, table, watch: MapWatch::begin(tx), index: 0, bucket: None, slots: 0 })
    }
}
