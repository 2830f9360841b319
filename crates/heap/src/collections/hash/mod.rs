//! A hash table whose buckets are cache lines. It grows a little with every insertion, and shrinks a little
//! with every removal.
//!
//! # Media layout
//!
//! `PHashMap` leads to an array of segments. A segment is an array of [`SEGMENT`] buckets; a small map has
//! one with fewer. A bucket is a line: a word with a tag for each slot, the pointer to another bucket for
//! entries without room, and slots. A slot holds a small entry, so that a lookup misses the cache once, or
//! else the pointer to an entry that is an object. The tallies (`tally.rs`) hold the number of entries.
//!
//! # Invariants
//!
//! - I1: `size.buckets` is a power of two. The low bits of a key's hash name a bucket, and the entry is in
//!   that bucket or its list. While the map grows or shrinks, the bucket is one of `size.buckets` or one of
//!   twice as many.
//! - I2: while the map grows or shrinks, the first `grown` buckets of each tally's part are divided: their
//!   entries are where they belong among twice as many buckets. While it shrinks, the others have all entries
//!   of theirs, and the buckets that lie `size.buckets` further on have none, or no segment. One exception: a
//!   bucket for all of whose entries there was no space to be joined is joined in part, and counts as
//!   divided.
//! - I3: a slot's tag is zero, or its highest bit is set and the others are seven bits of the hash of the
//!   slot's key.
//! - I4: pointers in slots without an entry are null (`value_move.rs`), or were linked by a program through a
//!   place that it kept for too long.
//!
//! # Growth
//!
//! Up to [`SMALL_MAX`] buckets the map becomes eight times as large in one transaction. A larger map doubles:
//! the array of segments is made anew, and each insertion divides a few buckets of its tally's part and makes
//! the segments that it needs. During growth a lookup visits at most two buckets and their lists.
//!
//! # Shrinking
//!
//! A larger map of which less than a quarter is in use becomes half as large, by the same steps backwards:
//! each removal or insertion joins a few buckets of its tally's part with those that they were divided from,
//! and frees segments. The array of segments keeps its length. If an entry that moves finds no space, its
//! bucket is joined in part, and the next change continues with it. Builds without this feature open the pool
//! for reading only (`Feature::WideClasses`, which pools with chunks below 16 KiB do not have), and read a
//! map that shrinks as one that grows.
//!
//! # Commit point
//!
//! The transaction's.
//!
//! # Recovery
//!
//! The pool's alone.
//!
//! # Concurrency
//!
//! The heap's. Each bucket, with the entries in it, conflicts separately; so do each larger entry and each
//! tally. The map itself changes only at the beginning and end of growth.
//!
//! # Source
//!
//! Linear hashing (Litwin). Buckets are lines with tags, as in tables in DRAM. D1: one growth position for
//! each tally instead of a single one, so that insertions of several threads do not conflict there. D2: slots
//! are at most two thirds full on average, with overflow buckets in lists, so entries move only when the map
//! grows.

pub(super) mod entries;
mod grow;
#[expect(unsafe_code, reason = "an implementation of an unsafe trait")]
pub(crate) mod node;
mod shrink;
mod values;

use super::keys::MapKey;
use super::tally::{self, Tally, TallyFields, tallies};
use crate::error::{Result, corrupt};
use crate::objects::brand::Brand;
use crate::objects::place::{Arr, Obj, Ref};
use crate::objects::slots::{PArr, PRc};
use crate::tx::bulk_read::BulkWords;
use crate::tx::{ReadTx, Tx};
use crate::{Persist, Plain};
use node::{
    Bucket, BucketFields, Entry, EntryFields, Seen, Slots, absent, first_slot, present, tag_of, with_tag,
};
use std::mem::offset_of;

/// The offset of the segments in a map, after its size.
const SEGMENTS_OFF: u64 = 8;
/// Buckets of a segment, which takes 16 KiB with its head.
const SEGMENT: usize = 255;
/// Buckets of a new map.
const FIRST: usize = 2;
/// The factor by which a small map grows.
const SMALL_STEP: usize = 8;
/// A map with fewer buckets grows in one step. Less than a segment.
const SMALL_MAX: usize = 128;
/// Tallies of a map of [`SMALL_MAX`] buckets and more.
const TALLIES: usize = 16;
/// Buckets that an insertion divides while the map grows, and a change joins while it shrinks.
const DIVIDED: u64 = 2;
/// The most buckets.
const MOST: usize = 1 << 31;

#[derive(Debug, Clone, Copy, Default, Persist, Plain)]
#[persist(crate = crate, name = "PHashMap::Size")]
#[repr(C)]
struct Size {
    buckets: u32,
    /// The [`State`].
    is_growing: u32,
}

/// Whether the number of buckets changes. The numbers are on media; any other means `Growing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Whole = 0,
    Growing = 1,
    Shrinking = 2,
}

impl State {
    #[inline(always)]
    fn of(size: Size) -> State {
        match size.is_growing {
            0 => State::Whole,
            2 => State::Shrinking,
            _ => State::Growing,
        }
    }
}

/// A map from `K` to `V` in no order: as a field of a type of your own, or in an object of its own.
///
/// The methods are those of its place, `Ref<'t, B, PHashMap<K, V>>`. Keys are given by reference: `&u64` for
/// a map with keys of type `u64`, `&str` for [`PString`](super::PString).
///
/// ```
/// # use tembo_heap::{Error, Heap, Options, Persist, collections::{PHashMap, PString}};
/// #[derive(Default, Persist)]
/// #[repr(C)]
/// struct Words { counts: PHashMap<PString, u64> }
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let options = Options::new().create(true);
/// # Heap::<_, Words>::with(dir.path().join("words.heap"), &options, |heap| {
/// heap.write(|tx, words| {
///     for word in "to be or not to be".split(' ') {
///         let count = words.counts().get_or_insert_with(tx, word, || 0)?;
///         *tx.get_mut(count)? += 1;
///     }
///     assert_eq!(words.counts().value(tx, "to")?, Some(2));
///     assert_eq!(words.counts().len(tx)?, 4);
///     Ok(())
/// })
/// # }).unwrap();
/// ```
///
/// # Cost and conflicts
///
/// An operation visits one bucket, which is a line with two to six entries, or pointers to larger ones, and
/// one time in ten another. An insertion writes to it, and allocates if the entry takes more than 24 bytes or
/// the bucket is full. In a growing map it moves a few others, and so does a removal in a shrinking one. No
/// transaction moves more than some hundreds of entries, however large the map.
///
/// Two transactions conflict if one changes what the other reads: an entry of the same bucket; the same
/// count, for one insertion or removal in sixteen; or the object that the map is a field of.
/// [`len`](Ref::len) conflicts with all insertions and removals.
///
/// A map of more than 8 KiB that is mostly empty gives memory back with each removal, and needs none for it.
///
/// # Places
///
/// The place of a value is valid until an entry is inserted or removed. Afterwards another entry may be
/// there, or none.
#[derive(Debug, Persist)]
#[persist(crate = crate)]
#[repr(C)]
pub struct PHashMap<K: MapKey, V: Persist> {
    size: Size,
    segments: PArr<PArr<Bucket<K, V>>>,
    tallies: PArr<Tally>,
}

impl<K: MapKey, V: Persist> PHashMap<K, V> {
    /// An empty map, which takes no memory besides itself.
    pub const fn new() -> PHashMap<K, V> {
        PHashMap { size: Size { buckets: 0, is_growing: 0 }, segments: PArr::null(), tallies: PArr::null() }
    }
}

impl<K: MapKey, V: Persist> Default for PHashMap<K, V> {
    fn default() -> PHashMap<K, V> {
        PHashMap::new()
    }
}

type Segments<'t, B, K, V> = Arr<'t, B, PArr<Bucket<K, V>>>;

/// A map that has buckets.
struct Table<'t, B: Brand, K: MapKey, V: Persist> {
    buckets: usize,
    state: State,
    segments: Segments<'t, B, K, V>,
}

impl<B: Brand, K: MapKey, V: Persist> Copy for Table<'_, B, K, V> {}
impl<B: Brand, K: MapKey, V: Persist> Clone for Table<'_, B, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<'t, B: Brand, K: MapKey, V: Persist> Table<'t, B, K, V> {
    /// The bucket of an entry with this hash, or while the map grows or shrinks the second of two.
    #[inline(always)]
    fn index(self, hash: u64) -> usize {
        let buckets = if self.changes() { 2 * self.buckets } else { self.buckets };
        hash as usize & (buckets - 1)
    }

    /// Whether the map grows or shrinks.
    #[inline(always)]
    fn changes(self) -> bool {
        self.state != State::Whole
    }

    /// A bucket, unless its segment does not exist yet.
    #[inline(always)]
    fn bucket(self, tx: &ReadTx<'t, B>, index: usize) -> Result<Option<Ref<'t, B, Bucket<K, V>>>> {
        let Some(slot) = self.segments.get(index / SEGMENT) else { return Err(self.damage()) };
        match tx.array(slot)? {
            Some(segment) => segment.get(index % SEGMENT).map(Some).ok_or_else(|| self.damage()),
            None if self.changes() && index >= self.buckets => Ok(None),
            None => Err(self.damage()),
        }
    }

    #[cold]
    fn damage(self) -> crate::Error {
        corrupt("a hash map's segments", self.segments.off, self.buckets, "fewer buckets")
    }

    /// The entry of a key. If the key's own code has changed the heap meanwhile, the result must be dropped,
    /// even an error of damage.
    #[inline]
    fn find(self, tx: &ReadTx<'t, B>, hash: u64, key: &K::Query) -> Result<Option<EntryPlace<'t, B, K, V>>> {
        let begun = tx.writers_begun();
        let found = self.search(tx, hash, key);
        tx.check_undisturbed(begun)?;
        found
    }

    #[inline(always)]
    fn search(
        self,
        tx: &ReadTx<'t, B>,
        hash: u64,
        key: &K::Query,
    ) -> Result<Option<EntryPlace<'t, B, K, V>>> {
        let index = self.index(hash);
        let first = self.bucket(tx, index)?;
        let Some(old) = index.checked_sub(self.buckets) else {
            return first.map_or(Ok(None), |bucket| find_in(tx, bucket, hash, key));
        };
        let second = self.bucket(tx, old)?.ok_or_else(|| self.damage())?;
        // Both lines are prefetched at once.
        tx.fetch(second);
        if let Some(first) = first
            && let Some(found) = find_in(tx, first, hash, key)?
        {
            return Ok(Some(found));
        }
        find_in(tx, second, hash, key)
    }
}

/// The entry of a key in a map that may have no buckets.
#[inline]
fn find<'t, B: Brand, K: MapKey, V: Persist>(
    tx: &ReadTx<'t, B>,
    table: Option<Table<'t, B, K, V>>,
    hash: u64,
    key: &K::Query,
) -> Result<Option<EntryPlace<'t, B, K, V>>> {
    table.map_or(Ok(None), |table| table.find(tx, hash, key))
}

/// The position of an entry.
struct EntryPlace<'t, B: Brand, K: MapKey, V: Persist> {
    entry: Ref<'t, B, Entry<K, V>>,
    bucket: Ref<'t, B, Bucket<K, V>>,
    slot: usize,
    /// The pointer to the bucket, unless the bucket is the first of its list.
    before: Option<Ref<'t, B, PRc<Bucket<K, V>>>>,
}

/// A walk along a list of buckets. If damage has made the list a circle, the walk ends with an error after at
/// most three times as many steps as there are buckets (Brent, "An improved Monte Carlo factorization
/// algorithm", 1980, section 2).
#[derive(Debug, Clone, Copy)]
struct Walk {
    /// An earlier bucket of the walk.
    mark: u64,
    /// Steps until the mark moves, and the number of them after the last move.
    left: u64,
    steps: u64,
}

impl Walk {
    /// Starts at this bucket.
    #[inline(always)]
    fn from<'t, B: Brand, K: MapKey, V: Persist>(first: Ref<'t, B, Bucket<K, V>>) -> Walk {
        Walk { mark: first.off, left: 1, steps: 1 }
    }

    /// Goes to the next bucket.
    fn step<'t, B: Brand, K: MapKey, V: Persist>(&mut self, next: Ref<'t, B, Bucket<K, V>>) -> Result<()> {
        if next.off == self.mark {
            return Err(corrupt(
                "a hash map's bucket",
                next.off,
                "a list that ends",
                "one that leads back to it",
            ));
        }
        self.left -= 1;
        if self.left == 0 {
            self.steps *= 2;
            *self = Walk { mark: next.off, left: self.steps, steps: self.steps };
        }
        Ok(())
    }

    /// Goes to the bucket to which a pointer leads, if there is one.
    fn follow<'t, B: Brand, K: MapKey, V: Persist>(
        &mut self,
        tx: &ReadTx<'t, B>,
        slot: Ref<'t, B, PRc<Bucket<K, V>>>,
    ) -> Result<Option<Ref<'t, B, Bucket<K, V>>>> {
        let next = tx.load(slot)?.map(|next| *next);
        next.map_or(Ok(()), |next| self.step(next))?;
        Ok(next)
    }
}

/// The entry of a key in a bucket or its list.
#[inline]
fn find_in<'t, B: Brand, K: MapKey, V: Persist>(
    tx: &ReadTx<'t, B>,
    mut bucket: Ref<'t, B, Bucket<K, V>>,
    hash: u64,
    key: &K::Query,
) -> Result<Option<EntryPlace<'t, B, K, V>>> {
    let mut before = None;
    let mut walk = Walk::from(bucket);
    loop {
        let (mut maybe, next) = match bucket.look_for(tx, tag_of(hash), key, |_, _| ())? {
            Seen::In(slot, ()) => {
                return Ok(Some(EntryPlace { entry: bucket.entry(tx, slot)?, bucket, slot, before }));
            }
            Seen::Maybe(slots, next) => (slots, next),
        };
        while maybe != 0 {
            let slot = first_slot(maybe);
            maybe &= maybe - 1;
            let entry = bucket.entry(tx, slot)?;
            if is_entry_of(tx, entry, key)? {
                return Ok(Some(EntryPlace { entry, bucket, slot, before }));
            }
        }
        if next == 0 {
            return Ok(None);
        }
        before = Some(bucket.next());
        bucket = *tx.object(next);
        walk.step(bucket)?;
    }
}

/// Whether an entry has this key.
#[inline]
fn is_entry_of<'t, B: Brand, K: MapKey, V: Persist>(
    tx: &ReadTx<'t, B>,
    entry: Ref<'t, B, Entry<K, V>>,
    key: &K::Query,
) -> Result<bool> {
    const { assert!(offset_of!(Entry<K, V>, key) == 0) };
    if !Slots::<K, V>::ARE_INLINE {
        let words = size_of::<K>().div_ceil(8);
        if let Some(is_it) =
            tx.bulk_read(entry.key, entry.off, words, |words| K::is_in(BulkWords(words), 0, key))?
        {
            return Ok(is_it);
        }
    }
    K::is(tx, entry.key(), key)
}

/// A slot without an entry.
struct Free<'t, B: Brand, K: MapKey, V: Persist> {
    bucket: Ref<'t, B, Bucket<K, V>>,
    slot: usize,
    /// The bucket's tags.
    tags: u64,
}

impl<'t, B: Brand, K: MapKey, V: Persist> Free<'t, B, K, V> {
    /// Marks the slot as used.
    fn take(self, tx: &mut Tx<'t, B>, tag: u64) -> Result<()> {
        tx.set(self.bucket.tags(), with_tag(self.tags, self.slot, tag))
    }
}

/// A free slot in a bucket or its list. Adds a bucket if there is none.
fn free_slot<'t, B: Brand, K: MapKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    first: Ref<'t, B, Bucket<K, V>>,
) -> Result<Free<'t, B, K, V>> {
    let mut bucket = first;
    let mut walk = Walk::from(first);
    loop {
        let tags = tx.get(bucket.tags())?;
        let free = absent::<K, V>(tags);
        if free != 0 {
            return Ok(Free { bucket, slot: first_slot(free), tags });
        }
        match walk.follow(tx, bucket.next())? {
            Some(next) => bucket = next,
            None => break,
        }
    }
    Ok(Free { bucket: add_bucket(tx, first)?, slot: 0, tags: 0 })
}

/// Adds a bucket to the list.
fn add_bucket<'t, B: Brand, K: MapKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    first: Ref<'t, B, Bucket<K, V>>,
) -> Result<Ref<'t, B, Bucket<K, V>>> {
    let new: Obj<'t, B, Bucket<K, V>> = tx.alloc(Bucket::empty())?;
    tx.link_before(first.next(), new, new.next())?;
    Ok(*new)
}

/// The tally that an entry belongs to, and its present count. (A read is faster before the transaction writes
/// there.)
struct Counted<'t, B: Brand> {
    place: Ref<'t, B, i64>,
    count: i64,
}

impl<'t, B: Brand> Counted<'t, B> {
    /// Adds to the count.
    fn add(self, tx: &mut Tx<'t, B>, entries: i64) -> Result<()> {
        tx.set(self.place, self.count.wrapping_add(entries))
    }
}

/// Removes an empty bucket from the list that `before` is in.
fn unlink_bucket<'t, B: Brand, K: MapKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    before: Ref<'t, B, PRc<Bucket<K, V>>>,
    bucket: Ref<'t, B, Bucket<K, V>>,
) -> Result<()> {
    // The next bucket takes its place, and only the bucket's own count changes.
    tx.swap(before, bucket.next())?;
    tx.link(bucket.next(), None)
}

impl<'t, B: Brand, K: MapKey, V: Persist> Ref<'t, B, PHashMap<K, V>> {
    #[inline(always)]
    fn table(self, tx: &ReadTx<'t, B>) -> Result<Option<Table<'t, B, K, V>>> {
        const {
            assert!(
                offset_of!(PHashMap<K, V>, size) == 0
                    && offset_of!(PHashMap<K, V>, segments) as u64 == SEGMENTS_OFF
            )
        };
        tx.check_stamp(self.stamp)?;
        let mut words = [0; 2];
        tx.read_words(self.key, self.off, &mut words)?;
        let Some(segments) = tx.array_at(words[1])? else { return Ok(None) };
        let size = Size::decode(&words[0].to_ne_bytes()).unwrap_or_default();
        if !size.buckets.is_power_of_two() {
            return Err(corrupt("a hash map", self.off, "a power of two buckets", size.buckets));
        }
        Ok(Some(Table { buckets: size.buckets as usize, state: State::of(size), segments }))
    }

    /// The number of entries. Conflicts with every insertion and removal.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict), as in all methods.
    pub fn len(self, tx: &ReadTx<'t, B>) -> Result<usize> {
        if self.table(tx)?.is_none() {
            return Ok(0);
        }
        Ok(tally::sum(tx, tallies(tx, self.tallies())?)?.max(0) as usize)
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn is_empty(self, tx: &ReadTx<'t, B>) -> Result<bool> {
        Ok(self.len(tx)? == 0)
    }

    /// The place of a key's value.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    #[inline]
    pub fn get(self, tx: &ReadTx<'t, B>, key: &K::Query) -> Result<Option<Ref<'t, B, V>>> {
        let hash = K::hash(key);
        let Some(table) = self.table(tx)? else { return Ok(None) };
        Ok(table.find(tx, hash, key)?.map(|found| found.entry.value()))
    }

    /// Whether there is an entry with this key.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn contains(self, tx: &ReadTx<'t, B>, key: &K::Query) -> Result<bool> {
        Ok(self.get(tx, key)?.is_some())
    }

    /// Sets the value of a key, present or not, and returns its place. The pointers of an old value are
    /// released.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len); the pool's own, when it is full.
    pub fn insert(self, tx: &mut Tx<'t, B>, key: &K::Query, value: V) -> Result<Ref<'t, B, V>> {
        let hash = K::hash(key);
        let table = self.table(tx)?;
        if let Some(found) = find(tx, table, hash, key)? {
            tx.put(found.entry.value(), value)?;
            return Ok(found.entry.value());
        }
        self.insert_new(tx, table, hash, key, value)
    }

    /// The place of a key's value; inserts the result of `value` if the key is absent. `value` may run
    /// transactions of its own, which become part of this one. If they give the key a value, it is replaced.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    pub fn get_or_insert_with(
        self,
        tx: &mut Tx<'t, B>,
        key: &K::Query,
        value: impl FnOnce() -> V,
    ) -> Result<Ref<'t, B, V>> {
        let hash = K::hash(key);
        let table = self.table(tx)?;
        if let Some(found) = find(tx, table, hash, key)? {
            return Ok(found.entry.value());
        }
        let begun = tx.writers_begun();
        let value = value();
        if tx.writers_begun() != begun {
            // `value` may have changed the map.
            return self.insert(tx, key, value);
        }
        self.insert_new(tx, table, hash, key, value)
    }

    fn insert_new(
        self,
        tx: &mut Tx<'t, B>,
        table: Option<Table<'t, B, K, V>>,
        hash: u64,
        key: &K::Query,
        value: V,
    ) -> Result<Ref<'t, B, V>> {
        let begun = tx.writers_begun();
        let (table, counted) = match table {
            Some(table) => {
                tx.note_reshaped(table.segments.off)?;
                self.make_room(tx, table, hash)?
            }
            None => self.begin(tx, hash)?,
        };
        let index = self.home(tx, table, hash)?;
        let first = table.make_bucket(tx, index)?;
        let free = free_slot(tx, first)?;
        let new = Entry { key: K::new(key), value };
        tx.check_undisturbed(begun)?;
        let entry = if Slots::<K, V>::ARE_INLINE {
            let entry = free.bucket.inline_entry(free.slot);
            tx.put(entry, new)?;
            entry
        } else {
            *tx.alloc(new)?
        };
        // The key is completed before the slot is marked as used: if there is no room for the rest of the
        // key, the slot stays free.
        K::complete(tx, entry.key(), key)?;
        tx.check_undisturbed(begun)?;
        if !Slots::<K, V>::ARE_INLINE {
            let entry: Obj<'t, B, Entry<K, V>> = Obj::new(entry.off, entry.key);
            tx.link(free.bucket.lead(free.slot), entry)?;
        }
        free.take(tx, tag_of(hash))?;
        counted.add(tx, 1)?;
        Ok(entry.value())
    }

    /// The bucket of a new entry with this hash.
    #[inline(always)]
    fn home(self, tx: &ReadTx<'t, B>, table: Table<'t, B, K, V>, hash: u64) -> Result<usize> {
        match table.state {
            State::Shrinking => self.home_in_shrinking(tx, table, hash),
            State::Whole | State::Growing => Ok(table.index(hash)),
        }
    }

    /// The count that an entry with this hash is part of.
    fn counted(self, tx: &ReadTx<'t, B>, hash: u64) -> Result<Counted<'t, B>> {
        let tallies = tallies(tx, self.tallies())?;
        let place = tallies.at(part_of(hash, tallies.len())).count();
        Ok(Counted { place, count: tx.get(place)? })
    }

    /// Removes the entry of a key. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    pub fn remove(self, tx: &mut Tx<'t, B>, key: &K::Query) -> Result<bool> {
        let hash = K::hash(key);
        let Some(table) = self.table(tx)? else { return Ok(false) };
        let Some(EntryPlace { bucket, slot, before, .. }) = table.find(tx, hash, key)? else {
            return Ok(false);
        };
        tx.note_reshaped(table.segments.off)?;
        let (tags, counted) = (tx.get(bucket.tags())?, self.counted(tx, hash)?);
        if Slots::<K, V>::ARE_INLINE {
            tx.clear_value(bucket.inline_entry(slot))?;
        } else {
            tx.link(bucket.lead(slot), None)?;
        }
        let left = with_tag(tags, slot, 0);
        tx.set(bucket.tags(), left)?;
        if let Some(before) = before.filter(|_| present::<K, V>(left) == 0) {
            unlink_bucket(tx, before, bucket)?;
        }
        let left = counted.count.wrapping_sub(1);
        counted.add(tx, -1)?;
        self.give_room(tx, table, hash, left)?;
        Ok(true)
    }

    /// Removes all entries, and frees the buckets. Each commit releases a bounded part of them, so the cost
    /// does not depend on the size.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    pub fn clear(self, tx: &mut Tx<'t, B>) -> Result<()> {
        if let Some(table) = self.table(tx)? {
            tx.note_reshaped(table.segments.off)?;
        }
        tx.set(self.size(), Size::default())?;
        tx.link_array(self.segments(), None)?;
        tx.link_array(self.tallies(), None)
    }
}

/// The tally of entries with this hash. It depends on other bits than the bucket.
fn part_of(hash: u64, parts: usize) -> usize {
    (hash >> 56) as usize & (parts - 1)
}
