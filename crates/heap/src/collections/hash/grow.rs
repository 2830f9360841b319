//! The growth of a hash map.

use super::node::{
    BUCKET_WORDS, Bucket, BucketFields, EntryFields, Slots, absent, first_slot, present, with_tag,
};
use super::{
    Counted, DIVIDED, FIRST, Free, MOST, PHashMap, PHashMapPrivateFields, SEGMENT, SMALL_MAX, SMALL_STEP,
    Size, State, TALLIES, Table, Walk, add_bucket, free_slot, part_of, unlink_bucket,
};
use crate::Persist;
use crate::collections::MapKey;
use crate::collections::tally::{self, Tally, TallyFields, tallies};
use crate::error::Result;
use crate::objects::brand::Brand;
use crate::objects::place::{Arr, Ref};
use crate::objects::slots::PRc;
use crate::tx::Tx;

/// The pointer to a bucket of a list.
type Pointer<'t, B, K, V> = Ref<'t, B, PRc<Bucket<K, V>>>;
/// A bucket, and the pointer to it.
type Linked<'t, B, K, V> = (Ref<'t, B, Bucket<K, V>>, Pointer<'t, B, K, V>);

/// The segments of a map with this many buckets.
pub(super) fn segments_of(buckets: usize) -> usize {
    buckets.div_ceil(SEGMENT)
}

/// Whether a map, or a part of it, with this many buckets has to grow: two thirds of its slots are in use.
fn is_full<K: MapKey, V: Persist>(entries: i64, buckets: u64) -> bool {
    u64::try_from(entries)
        .is_ok_and(|entries| entries.saturating_mul(3) >= 2 * Slots::<K, V>::COUNT as u64 * buckets)
}

impl<'t, B: Brand, K: MapKey, V: Persist> Table<'t, B, K, V> {
    /// The bucket at `index`; makes its segment if there is none.
    pub(super) fn make_bucket(self, tx: &mut Tx<'t, B>, index: usize) -> Result<Ref<'t, B, Bucket<K, V>>> {
        if let Some(bucket) = self.bucket(tx, index)? {
            return Ok(bucket);
        }
        let segment = tx.alloc_blanks(SEGMENT)?;
        let slot = self.segments.get(index / SEGMENT).ok_or_else(|| self.damage())?;
        tx.link_array(slot, segment)?;
        Ok(segment.at(index % SEGMENT))
    }

    /// Divides a bucket and its list: some entries move to the bucket that lies `buckets` further on.
    fn divide(self, tx: &mut Tx<'t, B>, index: usize) -> Result<()> {
        let Some(first) = self.bucket(tx, index)? else { return Ok(()) };
        if Slots::<K, V>::MOVE_AS_WORDS && self.divide_words(tx, index, first)? {
            return Ok(());
        }
        let begun = tx.writers_begun();
        let (mut bucket, mut before) = (first, None);
        let mut walk = Walk::from(first);
        loop {
            let mut left = present::<K, V>(tx.get(bucket.tags())?);
            while left != 0 {
                let slot = first_slot(left);
                left &= left - 1;
                let to = self.index(K::hash_at(tx, bucket.entry(tx, slot)?.key())?);
                tx.check_undisturbed(begun)?;
                if to != index {
                    let target = self.make_bucket(tx, to)?;
                    let free = free_slot(tx, target)?;
                    move_entry(tx, (bucket, slot), free)?;
                } else if before.is_some() {
                    let tags = tx.get(first.tags())?;
                    let free = absent::<K, V>(tags);
                    if free != 0 {
                        let free = Free { bucket: first, slot: first_slot(free), tags };
                        move_entry(tx, (bucket, slot), free)?;
                    }
                }
            }
            match go_on(tx, &mut walk, (bucket, before))? {
                Some((next, slot)) => (bucket, before) = (next, Some(slot)),
                None => return Ok(()),
            }
        }
    }

    /// As [`divide`](Self::divide), if only words of two lines change; otherwise moves no entry. Returns
    /// whether it divided the bucket.
    fn divide_words(self, tx: &mut Tx<'t, B>, index: usize, from: Ref<'t, B, Bucket<K, V>>) -> Result<bool> {
        let begun = tx.writers_begun();
        let mut old = [0; BUCKET_WORDS];
        tx.read_words(from.key, from.off, &mut old)?;
        let (mut stay, mut go) = (old, None);
        let mut left = present::<K, V>(old[0]);
        if old[1] != 0 {
            return Ok(false);
        }
        while left != 0 {
            let slot = first_slot(left);
            left &= left - 1;
            if self.index(K::hash_at(tx, from.entry(tx, slot)?.key())?) == index {
                continue;
            }
            let (_, words) = match &mut go {
                Some(go) => go,
                None => {
                    let target = self.make_bucket(tx, index + self.buckets)?;
                    let mut words = [0; BUCKET_WORDS];
                    tx.read_words(target.key, target.off, &mut words)?;
                    go.insert((target, words))
                }
            };
            let free = absent::<K, V>(words[0]);
            if free == 0 {
                return Ok(false);
            }
            let (range, to) = (Bucket::<K, V>::words_of(slot), Bucket::<K, V>::words_of(first_slot(free)));
            words[to].copy_from_slice(&old[range.clone()]);
            words[0] = with_tag(words[0], first_slot(free), old[0] >> (8 * slot) & 0xFF);
            stay[range].fill(0);
            stay[0] = with_tag(stay[0], slot, 0);
        }
        tx.check_undisturbed(begun)?;
        if let Some((target, words)) = go {
            tx.note_variants::<Bucket<K, V>>();
            for (bucket, words) in [(from, &stay), (target, &words)] {
                tx.own_place(bucket)?;
                tx.write_words(bucket.key, bucket.off, words)?;
            }
        }
        Ok(true)
    }

    /// Prefetches buckets.
    pub(super) fn fetch(self, tx: &Tx<'t, B>, from: usize, to: usize) -> Result<()> {
        for index in (from..to).chain(from + self.buckets..to + self.buckets) {
            if let Some(bucket) = self.bucket(tx, index)? {
                tx.fetch(bucket);
            }
        }
        Ok(())
    }
}

/// The next bucket of a list whose entries move, and the pointer to it. Takes an empty bucket out of the
/// list, unless it is the first.
pub(super) fn go_on<'t, B: Brand, K: MapKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    walk: &mut Walk,
    (bucket, before): (Ref<'t, B, Bucket<K, V>>, Option<Pointer<'t, B, K, V>>),
) -> Result<Option<Linked<'t, B, K, V>>> {
    let slot = match before {
        Some(before) if present::<K, V>(tx.get(bucket.tags())?) == 0 => {
            unlink_bucket(tx, before, bucket)?;
            before
        }
        _ => bucket.next(),
    };
    Ok(walk.follow(tx, slot)?.map(|next| (next, slot)))
}

/// Moves an entry to a free slot.
pub(super) fn move_entry<'t, B: Brand, K: MapKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    (from, slot): (Ref<'t, B, Bucket<K, V>>, usize),
    to: Free<'t, B, K, V>,
) -> Result<()> {
    if Slots::<K, V>::ARE_INLINE {
        tx.move_value(from.inline_entry(slot), to.bucket.inline_entry(to.slot))?;
    } else {
        tx.move_value(from.lead(slot), to.bucket.lead(to.slot))?;
    }
    let tags = tx.get(from.tags())?;
    tx.set(from.tags(), with_tag(tags, slot, 0))?;
    to.take(tx, tags >> (8 * slot) & 0xFF)
}

impl<'t, B: Brand, K: MapKey, V: Persist> Ref<'t, B, PHashMap<K, V>> {
    /// The first buckets of a map, for an entry with this hash.
    pub(super) fn begin(self, tx: &mut Tx<'t, B>, hash: u64) -> Result<(Table<'t, B, K, V>, Counted<'t, B>)> {
        // Allocations come first, because they may find no room.
        let segments = tx.alloc_blanks(1)?;
        let first = tx.alloc_blanks(FIRST)?;
        tally::spread(tx, self.tallies(), 1, 0)?;
        tx.link_array(segments.at(0), first)?;
        tx.link_array(self.segments(), segments)?;
        tx.set(self.size(), Size { buckets: FIRST as u32, is_growing: State::Whole as u32 })?;
        Ok((Table { buckets: FIRST, state: State::Whole, segments }, self.counted(tx, hash)?))
    }

    /// Makes the map grow, if it has to, before an entry with this hash is inserted. Returns the resulting
    /// map, and the count that the entry is part of.
    pub(super) fn make_room(
        self,
        tx: &mut Tx<'t, B>,
        table: Table<'t, B, K, V>,
        hash: u64,
    ) -> Result<(Table<'t, B, K, V>, Counted<'t, B>)> {
        let tallies = tallies(tx, self.tallies())?;
        let part = part_of(hash, tallies.len());
        let place = tallies.at(part);
        let counted = Counted { place: place.count(), count: tx.get(place.count())? };
        let buckets = (table.buckets / tallies.len()) as u64;
        if table.state == State::Shrinking {
            return Ok((self.shrink(tx, table, tallies, part)?, counted));
        }
        if table.state == State::Growing {
            return Ok((self.grow(tx, table, tallies, part)?, counted));
        }
        if !is_full::<K, V>(counted.count, buckets) || table.buckets >= MOST {
            return Ok((table, counted));
        }
        if table.buckets < SMALL_MAX {
            let table = self.grow_small(tx, table)?;
            // Another thread may have made the map grow meanwhile.
            return Ok((table, self.counted(tx, hash)?));
        }
        Ok((self.begin_growth(tx, table, tallies)?, counted))
    }

    /// Divides some buckets of a tally's part of a growing map. Returns the resulting map.
    pub(super) fn grow(
        self,
        tx: &mut Tx<'t, B>,
        table: Table<'t, B, K, V>,
        tallies: Arr<'t, B, Tally>,
        part: usize,
    ) -> Result<Table<'t, B, K, V>> {
        let buckets = (table.buckets / tallies.len()) as u64;
        let place = tallies.at(part);
        let grown = tx.get(place.grown())?;
        if grown >= buckets {
            return Ok(table);
        }
        let end = buckets.min(grown + DIVIDED);
        let first = part * buckets as usize;
        table.fetch(tx, first + grown as usize, first + end as usize)?;
        for i in grown..end {
            table.divide(tx, first + i as usize)?;
        }
        let table = if end == buckets { self.end_growth(tx, table, tallies, part)? } else { table };
        // Set last: if an allocation has failed before this, the next change repeats this part.
        tx.set(place.grown(), end)?;
        Ok(table)
    }

    /// Makes a small map larger.
    fn grow_small(self, tx: &mut Tx<'t, B>, table: Table<'t, B, K, V>) -> Result<Table<'t, B, K, V>> {
        let buckets = SMALL_MAX.min(table.buckets * SMALL_STEP);
        let is_last = buckets == SMALL_MAX;
        let segment: Arr<'t, B, Bucket<K, V>> = tx.alloc_blanks(if is_last { SEGMENT } else { buckets })?;
        // All allocations come before any move. If one failed later, moved entries would be lost with the
        // segment, which is not linked yet.
        if is_last {
            let count = tally::sum(tx, tallies(tx, self.tallies())?)?;
            tally::spread(tx, self.tallies(), TALLIES, count)?;
        }
        let begun = tx.writers_begun();
        let mut moves = Vec::new();
        let mut entries_of = vec![0_usize; buckets];
        for index in 0..table.buckets {
            let mut next = table.bucket(tx, index)?.map(|first| (first, Walk::from(first)));
            while let Some((bucket, mut walk)) = next {
                let mut left = present::<K, V>(tx.get(bucket.tags())?);
                while left != 0 {
                    let slot = first_slot(left);
                    left &= left - 1;
                    let to = K::hash_at(tx, bucket.entry(tx, slot)?.key())? as usize & (buckets - 1);
                    if entries_of[to] > 0 && entries_of[to].is_multiple_of(Slots::<K, V>::COUNT) {
                        add_bucket(tx, segment.at(to))?;
                    }
                    entries_of[to] += 1;
                    moves.push((bucket, slot, to));
                }
                next = walk.follow(tx, bucket.next())?.map(|next| (next, walk));
            }
        }
        tx.check_undisturbed(begun)?;
        for (bucket, slot, to) in moves {
            let to = free_slot(tx, segment.at(to))?;
            move_entry(tx, (bucket, slot), to)?;
        }
        tx.link_array(table.segments.at(0), segment)?;
        tx.set(self.size(), Size { buckets: buckets as u32, is_growing: State::Whole as u32 })?;
        Ok(Table { buckets, ..table })
    }

    fn begin_growth(
        self,
        tx: &mut Tx<'t, B>,
        table: Table<'t, B, K, V>,
        tallies: Arr<'t, B, Tally>,
    ) -> Result<Table<'t, B, K, V>> {
        for i in 0..tallies.len() {
            tx.set(tallies.at(i).grown(), 0)?;
        }
        if table.segments.len() < segments_of(table.buckets) {
            return Err(table.damage());
        }
        let mut segments = table.segments;
        // After a shrinking the array is still as long as it was.
        if segments.len() < segments_of(2 * table.buckets) {
            segments = tx.grow_array(table.segments, segments_of(2 * table.buckets))?;
            tx.link_array(self.segments(), segments)?;
        }
        tx.set(self.size(), Size { buckets: table.buckets as u32, is_growing: State::Growing as u32 })?;
        Ok(Table { state: State::Growing, segments, ..table })
    }

    /// Ends the growth if this was the last part.
    fn end_growth(
        self,
        tx: &mut Tx<'t, B>,
        table: Table<'t, B, K, V>,
        tallies: Arr<'t, B, Tally>,
        last: usize,
    ) -> Result<Table<'t, B, K, V>> {
        let buckets = (table.buckets / tallies.len()) as u64;
        for i in (0..tallies.len()).filter(|i| *i != last) {
            if tx.get(tallies.at(i).grown())? < buckets {
                return Ok(table);
            }
        }
        // A new segment may not have received any entry yet.
        for segment in table.buckets / SEGMENT..segments_of(2 * table.buckets) {
            table.make_bucket(tx, (segment * SEGMENT).max(table.buckets))?;
        }
        let table = Table { buckets: 2 * table.buckets, state: State::Whole, ..table };
        tx.set(self.size(), Size { buckets: table.buckets as u32, is_growing: State::Whole as u32 })?;
        Ok(table)
    }
}
