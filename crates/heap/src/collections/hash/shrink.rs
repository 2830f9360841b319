//! The shrinking of a hash map that removals have emptied.

use super::node::{BucketFields, Slots, first_slot, present};
use super::{
    DIVIDED, PHashMap, PHashMapPrivateFields, SEGMENT, SMALL_MAX, Size, State, Table, Walk, free_slot,
    grow::{go_on, move_entry, segments_of},
    part_of,
};
use crate::Persist;
use crate::collections::MapKey;
use crate::collections::tally::{Tally, TallyFields, tallies};
use crate::error::Result;
use crate::objects::brand::Brand;
use crate::objects::place::{Arr, Ref};
use crate::tx::{ReadTx, Tx};

/// Whether a part of a map with this many buckets may shrink: less than a quarter of its slots is in use, by
/// more than the parts of a map differ by chance. A map that has just become larger or smaller is far from
/// doing so again.
fn is_sparse<K: MapKey, V: Persist>(entries: i64, buckets: u64) -> bool {
    let entries = u64::try_from(entries).unwrap_or(0);
    let slots = Slots::<K, V>::COUNT as u64 * buckets;
    entries.saturating_add(4 * entries.isqrt()).saturating_mul(4) <= slots
}

impl<'t, B: Brand, K: MapKey, V: Persist> Table<'t, B, K, V> {
    /// Moves the entries of the bucket that lies `buckets` after the one at `index` there, with its list.
    fn join(self, tx: &mut Tx<'t, B>, index: usize) -> Result<()> {
        let Some(upper) = self.bucket(tx, index + self.buckets)? else { return Ok(()) };
        let lower = self.bucket(tx, index)?.ok_or_else(|| self.damage())?;
        let (mut bucket, mut before) = (upper, None);
        let mut walk = Walk::from(upper);
        loop {
            let mut left = present::<K, V>(tx.get(bucket.tags())?);
            while left != 0 {
                let slot = first_slot(left);
                left &= left - 1;
                let free = free_slot(tx, lower)?;
                move_entry(tx, (bucket, slot), free)?;
            }
            match go_on(tx, &mut walk, (bucket, before))? {
                Some((next, slot)) => (bucket, before) = (next, Some(slot)),
                None => return Ok(()),
            }
        }
    }

    /// Frees the segments that begin among these upper buckets, all of which are empty up to `end`.
    fn free_segments(self, tx: &mut Tx<'t, B>, begin: usize, until: usize, end: usize) -> Result<()> {
        let first = begin.div_ceil(SEGMENT).max(segments_of(self.buckets));
        for segment in first..until.div_ceil(SEGMENT) {
            if (segment + 1) * SEGMENT <= end {
                self.free_segment(tx, segment)?;
            }
        }
        Ok(())
    }

    fn free_segment(self, tx: &mut Tx<'t, B>, segment: usize) -> Result<()> {
        let slot = self.segments.get(segment).ok_or_else(|| self.damage())?;
        if tx.array(slot)?.is_some() {
            tx.link_array(slot, None)?;
        }
        Ok(())
    }
}

impl<'t, B: Brand, K: MapKey, V: Persist> Ref<'t, B, PHashMap<K, V>> {
    /// Makes the map a little smaller after the removal of an entry with this hash, if its part, in which
    /// `entries` are left, calls for it. A removal needs no space: what does not fit is tried again later.
    pub(super) fn give_room(
        self,
        tx: &mut Tx<'t, B>,
        table: Table<'t, B, K, V>,
        hash: u64,
        entries: i64,
    ) -> Result<()> {
        if table.state == State::Whole && table.buckets <= SMALL_MAX {
            return Ok(());
        }
        let tallies = tallies(tx, self.tallies())?;
        let (part, buckets) = (part_of(hash, tallies.len()), (table.buckets / tallies.len()) as u64);
        let outcome = match table.state {
            State::Shrinking => self.shrink(tx, table, tallies, part).map(drop),
            State::Whole if is_sparse::<K, V>(entries, buckets) => self.begin_shrinking(tx, table, tallies),
            // Growth ends before the map can shrink.
            State::Growing if is_sparse::<K, V>(entries, 2 * buckets) => {
                self.grow(tx, table, tallies, part).map(drop)
            }
            State::Whole | State::Growing => Ok(()),
        };
        match outcome {
            Err(error) if error.is_full() => Ok(()),
            outcome => outcome,
        }
    }

    /// The bucket of a new entry with this hash in a shrinking map: the one of fewer buckets, if it has been
    /// joined (I2).
    pub(super) fn home_in_shrinking(
        self,
        tx: &ReadTx<'t, B>,
        table: Table<'t, B, K, V>,
        hash: u64,
    ) -> Result<usize> {
        let tallies = tallies(tx, self.tallies())?;
        let (lower, part) = (hash as usize & (table.buckets - 1), table.buckets / tallies.len());
        let tally = tallies.get(lower / part.max(1)).ok_or_else(|| table.damage())?;
        let is_joined = (lower % part.max(1)) as u64 >= tx.get(tally.grown())?;
        Ok(if is_joined { lower } else { table.index(hash) })
    }

    fn begin_shrinking(
        self,
        tx: &mut Tx<'t, B>,
        table: Table<'t, B, K, V>,
        tallies: Arr<'t, B, Tally>,
    ) -> Result<()> {
        let buckets = table.buckets / 2;
        for i in 0..tallies.len() {
            tx.set(tallies.at(i).grown(), (buckets / tallies.len()) as u64)?;
        }
        tx.set(self.size(), Size { buckets: buckets as u32, is_growing: State::Shrinking as u32 })
    }

    /// Joins some buckets of a tally's part of a shrinking map, the last first. Returns the resulting map.
    pub(super) fn shrink(
        self,
        tx: &mut Tx<'t, B>,
        table: Table<'t, B, K, V>,
        tallies: Arr<'t, B, Tally>,
        part: usize,
    ) -> Result<Table<'t, B, K, V>> {
        let buckets = table.buckets / tallies.len();
        let grown = tallies.at(part).grown();
        let old = tx.get(grown)?.min(buckets as u64);
        if old == 0 {
            return Ok(table);
        }
        let new = old.saturating_sub(DIVIDED);
        let first = part * buckets;
        table.fetch(tx, first + new as usize, first + old as usize)?;
        for i in (new..old).rev() {
            if let Err(error) = table.join(tx, first + i as usize) {
                // I2: the buckets that were joined before it are. The next change continues with this one.
                tx.set(grown, i + 1)?;
                return Err(error);
            }
        }
        let upper = table.buckets + first;
        table.free_segments(tx, upper + new as usize, upper + old as usize, upper + buckets)?;
        let table = if new == 0 { self.end_shrinking(tx, table, tallies, part)? } else { table };
        tx.set(grown, new)?;
        Ok(table)
    }

    /// Ends the shrinking if this was the last part.
    fn end_shrinking(
        self,
        tx: &mut Tx<'t, B>,
        table: Table<'t, B, K, V>,
        tallies: Arr<'t, B, Tally>,
        last: usize,
    ) -> Result<Table<'t, B, K, V>> {
        for i in (0..tallies.len()).filter(|i| *i != last) {
            if tx.get(tallies.at(i).grown())? > 0 {
                return Ok(table);
            }
        }
        // Entries that reached over the borders of parts are left.
        for segment in segments_of(table.buckets)..segments_of(2 * table.buckets) {
            table.free_segment(tx, segment)?;
        }
        tx.set(self.size(), Size { buckets: table.buckets as u32, is_growing: State::Whole as u32 })?;
        Ok(Table { state: State::Whole, ..table })
    }
}
