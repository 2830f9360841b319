//! A hash table that grows a little with every insertion.
//!
//! # Media layout
//!
//! `PHashMap` leads to an array of segments, each an array of buckets: a bucket is the pointer to the first of its nodes, which are objects. A
//! map of at most [`SEGMENT`] buckets has one segment of as many. The tallies (`tally.rs`) say how many entries there are.
//!
//! # Invariants
//!
//! - I1: a node is in the bucket that the low bits of its key's hash say, out of `size.buckets`, which is a power of two; while the map
//!   grows, out of twice as many or out of `size.buckets`.
//! - I2: while it grows, the first `grown` buckets of each tally's part of the buckets have been divided: of these, nodes are in the right one of
//!   twice as many.
//!
//! # Growth
//!
//! Up to a segment the map becomes eight times as large in one transaction. Beyond, it doubles: the array of
//! segments is made anew, and each insertion divides a few buckets of its tally's part, and makes the segments that
//! it needs. Who looks for a key meanwhile looks at two buckets at most.
//!
//! # Commit point
//!
//! The transaction's, as everything that it does.
//!
//! # Recovery
//!
//! The pool's alone.
//!
//! # Concurrency
//!
//! The heap's: buckets are in conflict by lines of eight, nodes each alone, tallies each alone. The map itself changes only when it
//! begins or ends growing.
//!
//! # Source
//!
//! Linear hashing (Litwin), D1: with one position for each tally instead of one, so that insertions of several threads do not meet
//! there.

use super::keys::MapKey;
use super::tally::{self, Tally, TallyFields, tallies};
use crate::brand::Brand;
use crate::error::{Result, corrupt};
use crate::look::{value_in, word_in};
use crate::place::{Arr, Obj, Ref};
use crate::slots::{PArr, PRc};
use crate::tx::{ReadTx, Tx};
use crate::{Persist, Plain};
use std::mem::offset_of;
use std::sync::atomic::AtomicU64;

/// Buckets of a segment.
const SEGMENT: usize = 512;
/// Buckets of a new map.
const FIRST: usize = 8;
/// How much larger a map of less than a segment becomes.
const SMALL_STEP: usize = 8;
/// Tallies of a map of several segments.
const TALLIES: usize = 16;
/// Buckets that an insertion divides while the map grows.
const DIVIDED: u64 = 4;
/// Values of so many bytes are looked at together with their keys.
const VALUE_AT_ONCE: usize = 64;
/// Most buckets.
const MOST: usize = 1 << 31;

/// An entry.
#[derive(Debug, Persist)]
#[persist(crate = crate, name = "PHashMap::Node")]
#[repr(C)]
pub(crate) struct Node<K: Persist, V: Persist> {
    next: PRc<Node<K, V>>,
    key: K,
    value: V,
}

#[derive(Debug, Clone, Copy, Default, Persist, Plain)]
#[persist(crate = crate, name = "PHashMap::Size")]
#[repr(C)]
struct Size {
    buckets: u32,
    is_growing: u32,
}

/// A map from `K` to `V` in no order: as a field of a type of your own, or in an object of its own.
///
/// The methods are those of its place, `Ref<'t, B, PHashMap<K, V>>`. Keys are given by reference: `&u64` for a map with keys
/// of type `u64`, `&str` for [`PString`](super::PString).
///
/// ```
/// # use tembo_heap::{Error, Heap, Options, Persist, collections::{PHashMap, PString}};
/// #[derive(Default, Persist)]
/// #[repr(C)]
/// struct Words { counts: PHashMap<PString, u64> }
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let mut options = Options::new();
/// # options.create = true;
/// # Heap::<_, Words>::with(dir.path().join("words.heap"), &options, |heap| {
/// heap.write::<_, Error>(|tx, words| {
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
/// An operation looks at one bucket with one entry on average; an insertion allocates a node, and in a map that is
/// growing moves a few others. No transaction moves more than some hundreds of entries, however large the map.
///
/// Two transactions are in conflict if one changes what the other looks at: the same entry, or buckets in the same line, or, for one insertion
/// or removal in sixteen, the same count; or the object that the map is a field of. [`len`](Ref::len) is in conflict with all insertions and
/// removals. The map takes no more room for entries once it has it: `clear` gives it back.
#[derive(Debug, Persist)]
#[persist(crate = crate)]
#[repr(C)]
pub struct PHashMap<K: MapKey, V: Persist> {
    size: Size,
    segments: PArr<PArr<PRc<Node<K, V>>>>,
    tallies: PArr<Tally>,
}

impl<K: MapKey, V: Persist> PHashMap<K, V> {
    /// A map of nothing, which takes no memory beside itself.
    pub const fn new() -> PHashMap<K, V> {
        PHashMap { size: Size { buckets: 0, is_growing: 0 }, segments: PArr::null(), tallies: PArr::null() }
    }
}

impl<K: MapKey, V: Persist> Default for PHashMap<K, V> {
    fn default() -> PHashMap<K, V> {
        PHashMap::new()
    }
}

/// A bucket, or a node's pointer to the next.
type Slot<'t, B, K, V> = Ref<'t, B, PRc<Node<K, V>>>;
type Segments<'t, B, K, V> = Arr<'t, B, PArr<PRc<Node<K, V>>>>;

/// A map that has buckets.
struct Table<'t, B: Brand, K: MapKey, V: Persist> {
    buckets: usize,
    is_growing: bool,
    segments: Segments<'t, B, K, V>,
}

impl<B: Brand, K: MapKey, V: Persist> Copy for Table<'_, B, K, V> {}
impl<B: Brand, K: MapKey, V: Persist> Clone for Table<'_, B, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<'t, B: Brand, K: MapKey, V: Persist> Table<'t, B, K, V> {
    /// The bucket where a new node with this hash goes.
    fn index(self, hash: u64) -> usize {
        let buckets = if self.is_growing { 2 * self.buckets } else { self.buckets };
        hash as usize & (buckets - 1)
    }

    /// A bucket, unless its segment was not made yet.
    #[inline(always)]
    fn bucket(self, tx: &ReadTx<'t, B>, index: usize) -> Result<Option<Slot<'t, B, K, V>>> {
        let Some(slot) = self.segments.get(index / SEGMENT) else { return Err(self.damage()) };
        match tx.array(slot)? {
            Some(segment) => segment.get(index % SEGMENT).map(Some).ok_or_else(|| self.damage()),
            None if self.is_growing && index >= self.buckets => Ok(None),
            None => Err(self.damage()),
        }
    }

    #[cold]
    fn damage(self) -> crate::Error {
        corrupt("a hash map's segments", self.segments.off, self.buckets, "fewer buckets")
    }

    /// A bucket, whose segment is made if it was not there.
    fn make_bucket(self, tx: &mut Tx<'t, B>, index: usize) -> Result<Slot<'t, B, K, V>> {
        if let Some(slot) = self.bucket(tx, index)? {
            return Ok(slot);
        }
        let segment = tx.alloc_blanks(SEGMENT)?;
        let slot = self.segments.get(index / SEGMENT).ok_or_else(|| self.damage())?;
        tx.link_array(slot, segment)?;
        Ok(segment.at(index % SEGMENT))
    }

    /// The node of a key, and the pointer that leads to it.
    #[inline]
    fn find(self, tx: &ReadTx<'t, B>, hash: u64, key: &K::Query) -> Result<Option<Found<'t, B, K, V>>> {
        let index = self.index(hash);
        if let Some(bucket) = self.bucket(tx, index)?
            && let Some(found) = find_in(tx, bucket, key)?
        {
            return Ok(Some(found));
        }
        if index >= self.buckets
            && let Some(bucket) = self.bucket(tx, index - self.buckets)?
        {
            return find_in(tx, bucket, key);
        }
        Ok(None)
    }

    /// Has the first nodes of buckets brought into the cache, all at once.
    fn fetch(self, tx: &ReadTx<'t, B>, from: usize, to: usize) -> Result<()> {
        for index in from..to {
            if let Some(bucket) = self.bucket(tx, index)?
                && let Some(node) = tx.load(bucket)?
            {
                tx.fetch(*node);
            }
        }
        Ok(())
    }

    /// Divides a bucket: nodes that belong into the one that is `buckets` further go there.
    fn divide(self, tx: &mut Tx<'t, B>, index: usize) -> Result<()> {
        let Some(mut slot) = self.bucket(tx, index)? else { return Ok(()) };
        while let Some(node) = tx.load(slot)? {
            let to = self.index(K::hash_at(tx, node.key())?);
            if to == index {
                slot = node.next();
            } else {
                let target = self.make_bucket(tx, to)?;
                move_node(tx, slot, node, target)?;
            }
        }
        Ok(())
    }
}

/// The node of a key in a map that may not have any buckets.
#[inline]
fn find<'t, B: Brand, K: MapKey, V: Persist>(
    tx: &ReadTx<'t, B>,
    table: Option<Table<'t, B, K, V>>,
    hash: u64,
    key: &K::Query,
) -> Result<Option<Found<'t, B, K, V>>> {
    table.map_or(Ok(None), |table| table.find(tx, hash, key))
}

struct Found<'t, B: Brand, K: MapKey, V: Persist> {
    slot: Slot<'t, B, K, V>,
    node: Obj<'t, B, Node<K, V>>,
}

#[inline]
fn find_in<'t, B: Brand, K: MapKey, V: Persist>(
    tx: &ReadTx<'t, B>,
    slot: Slot<'t, B, K, V>,
    key: &K::Query,
) -> Result<Option<Found<'t, B, K, V>>> {
    Ok(find_with(tx, slot, key, 0, |_| ())?.map(|(found, ())| found))
}

/// The node of a key in a list, and what `look` says of its words, of which there are `more` after the key's.
#[inline(always)]
fn find_with<'t, B: Brand, K: MapKey, V: Persist, R>(
    tx: &ReadTx<'t, B>,
    mut slot: Slot<'t, B, K, V>,
    key: &K::Query,
    more: usize,
    look: impl Fn(&[AtomicU64]) -> R,
) -> Result<Option<(Found<'t, B, K, V>, R)>> {
    let key_off = offset_of!(Node<K, V>, key);
    let count = (key_off + size_of::<K>()).div_ceil(8) + more;
    let mut next = tx.load(slot)?;
    while let Some(node) = next {
        let (after, is_it, said) = tx.look(node.key, node.off, count, |words| {
            (word_in(words, 0), K::is_in(words, key_off, key), look(words))
        })?;
        let is_it = match is_it {
            Some(is_it) => is_it,
            None => K::is(tx, node.key(), key)?,
        };
        if is_it {
            return Ok(Some((Found { slot, node }, said)));
        }
        slot = node.next();
        next = after.filter(|off| *off != 0).map(|off| tx.object(off));
    }
    Ok(None)
}

/// The value of a node.
pub(crate) fn value_of<'t, B: Brand, K: MapKey, V: Persist>(node: Obj<'t, B, Node<K, V>>) -> Ref<'t, B, V> {
    node.value()
}

/// Gives a node of values of another type the key and the place in its bucket that a node has.
pub(crate) fn copy_but_value<'t, B: Brand, K: MapKey, Old: Persist, New: Persist>(
    tx: &mut Tx<'t, B>,
    from: Obj<'t, B, Node<K, Old>>,
    to: Obj<'t, B, Node<K, New>>,
) -> Result<()> {
    tx.carry(from.next(), to.next())?;
    tx.carry(from.key(), to.key())
}

/// Moves the node that `slot` leads to, to the start of another list. What comes after it stays.
fn move_node<'t, B: Brand, K: MapKey, V: Persist>(
    tx: &mut Tx<'t, B>,
    slot: Slot<'t, B, K, V>,
    node: Obj<'t, B, Node<K, V>>,
    target: Slot<'t, B, K, V>,
) -> Result<()> {
    tx.swap(slot, node.next())?;
    tx.swap(node.next(), target)
}

impl<'t, B: Brand, K: MapKey, V: Persist> Ref<'t, B, PHashMap<K, V>> {
    #[inline(always)]
    fn table(self, tx: &ReadTx<'t, B>) -> Result<Option<Table<'t, B, K, V>>> {
        const { assert!(offset_of!(PHashMap<K, V>, size) == 0 && offset_of!(PHashMap<K, V>, segments) == 8) };
        tx.check_stamp(self.stamp)?;
        let mut words = [0; 2];
        tx.read_words(self.key, self.off, &mut words)?;
        let Some(segments) = tx.array_at(words[1])? else { return Ok(None) };
        let size = Size::decode(&words[0].to_ne_bytes()).unwrap_or_default();
        if !size.buckets.is_power_of_two() {
            return Err(corrupt("a hash map", self.off, "a power of two buckets", size.buckets));
        }
        Ok(Some(Table { buckets: size.buckets as usize, is_growing: size.is_growing != 0, segments }))
    }

    /// Number of entries. In conflict with every insertion and removal.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`](crate::Error::Conflict), as in all methods.
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
        let Some(table) = self.table(tx)? else { return Ok(None) };
        Ok(table.find(tx, K::hash(key), key)?.map(|found| found.node.value()))
    }

    /// Whether there is an entry with this key.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len).
    pub fn contains(self, tx: &ReadTx<'t, B>, key: &K::Query) -> Result<bool> {
        Ok(self.get(tx, key)?.is_some())
    }

    /// Sets the value of a key, whether it was there or not, and returns its place. Pointers of a value that was there let go of what
    /// they led to.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len); the pool's own, when it is full.
    pub fn insert(self, tx: &mut Tx<'t, B>, key: &K::Query, value: V) -> Result<Ref<'t, B, V>> {
        let hash = K::hash(key);
        let table = self.table(tx)?;
        if let Some(found) = find(tx, table, hash, key)? {
            tx.put(found.node.value(), value)?;
            return Ok(found.node.value());
        }
        self.insert_new(tx, table, hash, key, value)
    }

    /// The place of a key's value, which is made if there is none.
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
            return Ok(found.node.value());
        }
        self.insert_new(tx, table, hash, key, value())
    }

    fn insert_new(
        self,
        tx: &mut Tx<'t, B>,
        table: Option<Table<'t, B, K, V>>,
        hash: u64,
        key: &K::Query,
        value: V,
    ) -> Result<Ref<'t, B, V>> {
        let table = match table {
            Some(table) => table,
            None => self.begin(tx)?,
        };
        let bucket = table.make_bucket(tx, table.index(hash))?;
        let node = tx.alloc(Node { next: PRc::null(), key: K::new(key), value })?;
        K::complete(tx, node.key(), key)?;
        tx.link_before(bucket, node, node.next())?;
        self.count_one_more(tx, table, hash)?;
        Ok(node.value())
    }

    /// The first buckets of a map.
    fn begin(self, tx: &mut Tx<'t, B>) -> Result<Table<'t, B, K, V>> {
        let segments = tx.alloc_blanks(1)?;
        let first = tx.alloc_blanks(FIRST)?;
        tx.link_array(segments.at(0), first)?;
        tx.link_array(self.segments(), segments)?;
        tx.set(self.size(), Size { buckets: FIRST as u32, is_growing: 0 })?;
        tally::spread(tx, self.tallies(), 1, 0)?;
        Ok(Table { buckets: FIRST, is_growing: false, segments })
    }

    /// Counts an insertion, and lets the map grow.
    fn count_one_more(self, tx: &mut Tx<'t, B>, table: Table<'t, B, K, V>, hash: u64) -> Result<()> {
        let tallies = tallies(tx, self.tallies())?;
        let part = part_of(hash, tallies.len());
        let place = tallies.at(part);
        let count = tx.get(place.count())?;
        tx.set(place.count(), count + 1)?;
        let buckets = (table.buckets / tallies.len()) as u64;
        if table.is_growing {
            let grown = tx.get(place.grown())?;
            if grown < buckets {
                let end = buckets.min(grown + DIVIDED);
                tx.set(place.grown(), end)?;
                let first = part * buckets as usize;
                table.fetch(tx, first + grown as usize, first + end as usize)?;
                for i in grown..end {
                    table.divide(tx, first + i as usize)?;
                }
                if end == buckets {
                    self.end_growth(tx, table, tallies)?;
                }
            }
            return Ok(());
        }
        if count < buckets as i64 || table.buckets >= MOST {
            return Ok(());
        }
        if table.buckets < SEGMENT {
            self.grow_small(tx, table)
        } else {
            self.begin_growth(tx, table, tallies)
        }
    }

    /// Makes a map of less than a segment larger.
    fn grow_small(self, tx: &mut Tx<'t, B>, table: Table<'t, B, K, V>) -> Result<()> {
        let buckets = SEGMENT.min(table.buckets * SMALL_STEP);
        let segment = tx.alloc_blanks(buckets)?;
        for index in 0..table.buckets {
            let Some(bucket) = table.bucket(tx, index)? else { continue };
            while let Some(node) = tx.load(bucket)? {
                let to = K::hash_at(tx, node.key())? as usize & (buckets - 1);
                move_node(tx, bucket, node, segment.at(to))?;
            }
        }
        tx.link_array(table.segments.at(0), segment)?;
        tx.set(self.size(), Size { buckets: buckets as u32, is_growing: 0 })?;
        if buckets == SEGMENT {
            let count = tally::sum(tx, tallies(tx, self.tallies())?)?;
            tally::spread(tx, self.tallies(), TALLIES, count)?;
        }
        Ok(())
    }

    fn begin_growth(
        self,
        tx: &mut Tx<'t, B>,
        table: Table<'t, B, K, V>,
        tallies: Arr<'t, B, Tally>,
    ) -> Result<()> {
        for i in 0..tallies.len() {
            tx.set(tallies.at(i).grown(), 0)?;
        }
        let count = table.buckets / SEGMENT;
        if table.segments.len() != count {
            return Err(table.damage());
        }
        let segments = tx.grow_array(table.segments, 2 * count)?;
        tx.link_array(self.segments(), segments)?;
        tx.set(self.size(), Size { buckets: table.buckets as u32, is_growing: 1 })
    }

    /// Ends the growth if all parts are done.
    fn end_growth(
        self,
        tx: &mut Tx<'t, B>,
        table: Table<'t, B, K, V>,
        tallies: Arr<'t, B, Tally>,
    ) -> Result<()> {
        let buckets = (table.buckets / tallies.len()) as u64;
        for i in 0..tallies.len() {
            if tx.get(tallies.at(i).grown())? < buckets {
                return Ok(());
            }
        }
        // No node may have been in a bucket of the new half yet.
        for index in (table.buckets..2 * table.buckets).step_by(SEGMENT) {
            table.make_bucket(tx, index)?;
        }
        tx.set(self.size(), Size { buckets: 2 * table.buckets as u32, is_growing: 0 })
    }

    /// Removes the entry of a key. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    pub fn remove(self, tx: &mut Tx<'t, B>, key: &K::Query) -> Result<bool> {
        let hash = K::hash(key);
        let Some(table) = self.table(tx)? else { return Ok(false) };
        let Some(Found { slot, node }) = table.find(tx, hash, key)? else { return Ok(false) };
        // What comes after the node takes its place, and no count but the node's own changes.
        tx.swap(slot, node.next())?;
        tx.link(node.next(), None)?;
        let tallies = tallies(tx, self.tallies())?;
        *tx.get_mut(tallies.at(part_of(hash, tallies.len())).count())? -= 1;
        Ok(true)
    }

    /// Removes all entries, and gives the buckets back. They die a bounded part with each commit, so that the size does not matter.
    ///
    /// # Errors
    ///
    /// As for [`insert`](Self::insert).
    pub fn clear(self, tx: &mut Tx<'t, B>) -> Result<()> {
        tx.set(self.size(), Size::default())?;
        tx.link_array(self.segments(), None)?;
        tx.link_array(self.tallies(), None)
    }

    /// All entries, in no order: copies of the keys, and the places of the values.
    ///
    /// # Errors
    ///
    /// As for [`len`](Self::len); so may each step.
    pub fn iter<'x>(self, tx: &'x ReadTx<'t, B>) -> Result<Entries<'x, 't, B, K, V>> {
        let table = self.table(tx)?;
        Ok(Entries { tx, table, index: 0, slot: None })
    }
}

/// The tally that counts entries with this hash: by other bits than buckets.
fn part_of(hash: u64, parts: usize) -> usize {
    (hash >> 56) as usize & (parts - 1)
}

impl<'t, B: Brand, K: MapKey, V: Plain> Ref<'t, B, PHashMap<K, V>> {
    /// The value of a key.
    ///
    /// # Errors
    ///
    /// As for [`len`](Ref::len).
    #[inline]
    pub fn value(self, tx: &ReadTx<'t, B>, key: &K::Query) -> Result<Option<V>> {
        let Some(table) = self.table(tx)? else { return Ok(None) };
        if table.is_growing || size_of::<V>() > VALUE_AT_ONCE {
            return self.get(tx, key)?.map(|place| tx.get(place)).transpose();
        }
        let Some(bucket) = table.bucket(tx, table.index(K::hash(key)))? else { return Ok(None) };
        let key_end = (offset_of!(Node<K, V>, key) + size_of::<K>()).div_ceil(8);
        let more = (size_of::<Node<K, V>>() / 8).saturating_sub(key_end);
        let look = |words: &[AtomicU64]| value_in(words, offset_of!(Node<K, V>, value));
        match find_with(tx, bucket, key, more, look)? {
            Some((_, Some(value))) => Ok(Some(value)),
            // The words are none of a value: this says which.
            Some((found, None)) => tx.get(found.node.value()).map(Some),
            None => Ok(None),
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
            let place = found.node.value();
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

/// The entries of a [`PHashMap`].
pub struct Entries<'x, 't, B: Brand, K: MapKey, V: Persist> {
    tx: &'x ReadTx<'t, B>,
    table: Option<Table<'t, B, K, V>>,
    /// The next bucket.
    index: usize,
    /// The pointer to the next entry of the bucket before.
    slot: Option<Slot<'t, B, K, V>>,
}

impl<B: Brand, K: MapKey, V: Persist> std::fmt::Debug for Entries<'_, '_, B, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entries").field("index", &self.index).finish_non_exhaustive()
    }
}

impl<'t, B: Brand, K: MapKey, V: Persist> Entries<'_, 't, B, K, V> {
    fn advance(&mut self) -> Result<Option<(K::Owned, Ref<'t, B, V>)>> {
        let Some(table) = self.table else { return Ok(None) };
        let buckets = if table.is_growing { 2 * table.buckets } else { table.buckets };
        loop {
            if let Some(slot) = self.slot.take()
                && let Some(node) = self.tx.load(slot)?
            {
                self.slot = Some(node.next());
                return Ok(Some((K::get(self.tx, node.key())?, node.value())));
            }
            if self.index == buckets {
                return Ok(None);
            }
            self.slot = table.bucket(self.tx, self.index)?;
            self.index += 1;
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
