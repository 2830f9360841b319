//! Scans: records in order, as of one moment.

use super::create::{Tree, U64Tree};
use super::fingerprints::bits;
use super::get::SearchEnd;
use super::layout::{NODE_BYTES, NODE_WORDS, SLOTS, key_off, key_word, value_off, value_word};
use super::lock::{Locked, Version, begin, is_unchanged};
use super::node::{Leaf, Order, Structure};
use crate::direction::Direction;
use crate::error::{Error, Result};
use smallvec::SmallVec;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use tembo_pmem::{LINE_BYTES, Region, WORD_BYTES};
use tembo_pool::BriefPin;

/// A leaf as a scan read it.
struct Seen<'g> {
    leaf: &'g Leaf,
    version: Version,
    /// Key word and value of the slot that the version names.
    changing: Option<(u64, u64)>,
}

/// A leaf that a scan comes to.
enum Station<'g> {
    Known(&'g Leaf),
    /// A leaf at or below the cold node at this offset, as read from media.
    Cold(u64, Box<Leaf>),
}

/// The outcome of reading a leaf.
enum Read {
    /// The key at which the scan continues, if there is more in its direction.
    Next(Option<u64>),
    /// Another thread changed the leaf.
    Changed,
}

const WORDS: usize = NODE_WORDS as usize;

/// The number of tries without a lock.
const FREE_TRIES: usize = 16;

impl U64Tree {
    /// Appends the first `limit` records from the key `from` on, in ascending order, as of one moment. It
    /// keeps the records that were in the collection before, even if it fails.
    ///
    /// Starts again if one of the leaves changed meanwhile, or if another thread made one of them known. A
    /// scan of many leaves might never end while writers are at work; after some tries it makes them wait,
    /// and waits itself for those in the middle of a change. [`range`](Self::range) rarely comes to this,
    /// since it fetches only some dozens of records at a time.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn scan(&self, from: u64, limit: usize, records: &mut impl Records) -> Result<()> {
        self.tree.scan((from, u64::MAX), limit, Direction::Up, records)
    }

    /// As [`scan`](Self::scan), downwards.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn scan_back(&self, from: u64, limit: usize, records: &mut impl Records) -> Result<()> {
        self.tree.scan((0, from), limit, Direction::Down, records)
    }
}

/// A collection that a scan appends records to.
pub trait Records {
    /// The number of records.
    fn count(&self) -> usize;

    /// Removes all records but the first `count`.
    fn truncate(&mut self, count: usize);

    /// Makes room for `more` records.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`].
    fn reserve(&mut self, more: usize) -> Result<()>;

    /// Appends a record; room was made for it.
    fn push(&mut self, key: u64, value: u64);

    /// Appends records; room was made for them.
    #[inline]
    fn append(&mut self, records: impl ExactSizeIterator<Item = (u64, u64)>) {
        records.for_each(|(key, value)| self.push(key, value));
    }
}

impl Records for Vec<(u64, u64)> {
    #[inline]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn truncate(&mut self, count: usize) {
        self.truncate(count);
    }

    #[inline]
    fn reserve(&mut self, more: usize) -> Result<()> {
        let bytes = (self.len() as u64 + more as u64) * size_of::<(u64, u64)>() as u64;
        self.try_reserve(more).map_err(|_| Error::OutOfMemory { bytes })
    }

    #[inline]
    fn push(&mut self, key: u64, value: u64) {
        self.push((key, value));
    }

    #[inline]
    fn append(&mut self, records: impl ExactSizeIterator<Item = (u64, u64)>) {
        self.extend(records);
    }
}

impl Tree {
    /// Appends records with keys in `keys`, both ends included.
    pub(super) fn scan(
        &self,
        keys: (u64, u64),
        limit: usize,
        direction: Direction,
        records: &mut impl Records,
    ) -> Result<()> {
        let start = records.count();
        let outcome = self.scan_until_it_holds(keys, limit, direction, records);
        if outcome.is_err() {
            records.truncate(start);
        }
        outcome
    }

    fn scan_until_it_holds(
        &self,
        keys: (u64, u64),
        limit: usize,
        direction: Direction,
        records: &mut impl Records,
    ) -> Result<()> {
        self.pool.check_process()?;
        let pin = self.pool.pin_briefly();
        let start = records.count();
        for _ in 0..FREE_TRIES {
            if self.try_scan(keys, limit, direction, records, &pin, None)? {
                return Ok(());
            }
            records.truncate(start);
            std::hint::spin_loop();
        }
        // A long scan might never end while writers are at work. With the lock, one try is enough.
        let structure = self.lock_structure();
        let _last = self.last_lock.lock();
        while !self.try_scan(keys, limit, direction, records, &pin, Some(&structure))? {
            records.truncate(start);
        }
        Ok(())
    }

    /// Scans once; false if something changed meanwhile. With the lock of structure changes it also locks its
    /// leaves until it ends. That cannot be a deadlock: a thread that has a leaf's lock waits for another
    /// leaf's only if it has the lock of structure changes.
    pub(super) fn try_scan(
        &self,
        (low, high): (u64, u64),
        limit: usize,
        direction: Direction,
        records: &mut impl Records,
        pin: &BriefPin<'_>,
        structure: Option<&Structure<'_>>,
    ) -> Result<bool> {
        let mut locks = Vec::new();
        let full = records.count().saturating_add(limit);
        let last_record = self.last.get(pin);
        let last = if high == u64::MAX { self.last(pin).map(|value| (u64::MAX, value)) } else { None };
        // Mostly enough for a scan of some dozens of records.
        let mut seen: SmallVec<[Seen<'_>; 4]> = SmallVec::new();
        // Cold nodes, and the keys that led to them.
        let mut cold: SmallVec<[(u64, u64); 4]> = SmallVec::new();
        let mut from = if direction == Direction::Up { low } else { high.min(u64::MAX - 1) };
        if direction == Direction::Down && records.count() < full {
            add(records, last)?;
        }
        let mut more = low != u64::MAX; // The largest key is in no leaf.
        while more && records.count() < full {
            make_room(&mut seen)?;
            let station = match structure {
                Some(lock) => Some(self.lock_for_scan(from, lock, &mut locks)?),
                None => self.leaf_at(from, &seen, cold.is_empty(), pin)?,
            };
            let Some(station) = station else { return Ok(false) };
            let range = if direction == Direction::Up { (from, high) } else { (low, from) };
            let read = match &station {
                Station::Known(leaf) => {
                    let version = begin(&leaf.version);
                    seen.push(Seen { leaf, version, changing: self.changing(leaf, version)? });
                    self.read_leaf((leaf, version), range, full, direction, records, pin)?
                }
                Station::Cold(off, leaf) => {
                    let has_read = !(seen.is_empty() && cold.is_empty());
                    if has_read && !begins_at(leaf, from, direction) {
                        return Ok(false);
                    }
                    make_room(&mut cold)?;
                    cold.push((*off, from));
                    self.read_leaf((leaf, begin(&leaf.version)), range, full, direction, records, pin)?
                }
            };
            match read {
                Read::Changed => return Ok(false),
                Read::Next(Some(next)) if (low..=high).contains(&next) => from = next,
                Read::Next(_) => more = false,
            }
        }
        if direction == Direction::Up && records.count() < full {
            add(records, last)?;
        }
        if !self.is_as_read(&seen, &cold, pin)? {
            return Ok(false);
        }
        Ok(self.last.get(pin).map(std::ptr::from_ref) == last_record.map(std::ptr::from_ref))
    }

    /// The leaf for a key, locked until the scan ends.
    fn lock_for_scan<'g>(
        &'g self,
        key: u64,
        structure: &'g Structure<'_>,
        locks: &mut Vec<Locked<'g>>,
    ) -> Result<Station<'g>> {
        let leaf = self.path(key, structure)?.leaf;
        locks.try_reserve(1).map_err(|_| no_memory::<Locked<'_>>(locks.len()))?;
        locks.extend(Locked::new(leaf, &self.bias));
        Ok(Station::Known(leaf))
    }

    /// Whether the leaves that a scan read, known and cold ones, are unchanged.
    #[inline]
    fn is_as_read(&self, seen: &[Seen<'_>], cold: &[(u64, u64)], pin: &BriefPin<'_>) -> Result<bool> {
        if !cold.iter().all(|(off, key)| self.is_still_cold(*off, *key, pin)) {
            return Ok(false);
        }
        for Seen { leaf, version, changing } in seen {
            // One slot of a leaf can change under one version. A thread that saw this change may then have
            // made one in a leaf that this scan read later. The slot must therefore be as it was when the
            // scan read it.
            if self.changing(leaf, *version)? != *changing || !is_unchanged(&leaf.version, *version) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Key word and value of the slot that a version names, if lookups consider that slot.
    fn changing(&self, leaf: &Leaf, version: Version) -> Result<Option<(u64, u64)>> {
        let Some(slot) = version.slot().filter(|slot| leaf.fingerprints.used() >> slot & 1 != 0) else {
            return Ok(None);
        };
        let region = self.region();
        Ok(Some((region.load_u64(key_off(leaf.off, slot))?, region.load_u64(value_off(leaf.off, slot))?)))
    }

    /// The leaf for a key; `None` if it could not be found now. Makes a cold leaf known if `may_warm` is set
    /// and no thread is changing the structure. A scan that has read a cold leaf must not do this, because
    /// both may lie below the same node.
    fn leaf_at<'g>(
        &'g self,
        key: u64,
        seen: &[Seen<'g>],
        may_warm: bool,
        pin: &'g BriefPin<'_>,
    ) -> Result<Option<Station<'g>>> {
        // In an ascending scan it is probably the right neighbour of the last leaf.
        if let Some(Seen { leaf: before, .. }) = seen.last()
            && let Some(right) = self.neighbour(&before.next, pin)
            && right.low == key
        {
            return Ok(Some(Station::Known(right)));
        }
        loop {
            match self.find_place(key, pin) {
                SearchEnd::Leaf(leaf) => {
                    let mut leaf = leaf;
                    while !key <= leaf.floor.load(Ordering::Acquire) {
                        match self.neighbour(&leaf.next, pin) {
                            Some(right) => leaf = right,
                            None => return Ok(None),
                        }
                    }
                    return Ok(Some(Station::Known(leaf)));
                }
                SearchEnd::Cold(_) if may_warm && self.try_warm(key)? => {}
                SearchEnd::Cold(off) => {
                    let leaf = self.load_cold(off, key, pin)?;
                    return Ok(leaf.map(|leaf| Station::Cold(off, Box::new(leaf))));
                }
            }
        }
    }

    /// Appends a leaf's records with keys in `keys`, until there are `full`.
    fn read_leaf(
        &self,
        (leaf, version): (&Leaf, Version),
        (low, high): (u64, u64),
        full: usize,
        direction: Direction,
        records: &mut impl Records,
        pin: &BriefPin<'_>,
    ) -> Result<Read> {
        let region = self.region();
        let floor = leaf.floor.load(Ordering::Acquire);
        let up = direction == Direction::Up;
        if version.is_obsolete() || !(if up { low } else { high }) <= floor {
            return Ok(Read::Changed);
        }
        self.fetch_leaf(leaf);
        let right = if up { self.neighbour(&leaf.next, pin) } else { None };
        right.inspect(|right| right.fetch());
        let mut own = None;
        let slots = self.order(leaf, version, &mut own, pin).slots();
        records.reserve(slots.len().min(full - records.count()))?;
        let wanted = Wanted { low, high, floor, full, up };
        let ahead = || {
            if let Some(right) = right {
                // The next leaf arrives while this one is read.
                self.fetch_leaf(right);
                right.order.fetch();
            }
        };
        let words = region.loadable_words().words(leaf.off, NODE_WORDS);
        match words.and_then(|words| words.first_chunk::<WORDS>()) {
            // ORDER: relaxed. The check of the version below, behind its fence, tells whether the loads
            // belong together. For the one slot that can change under one version, `try_scan` checks that at
            // its end.
            Some(words) => {
                // Every slot's words are within bounds; the remainder avoids the bounds check.
                let load = |word: usize| words[word % WORDS].load(Ordering::Relaxed);
                wanted.append(slots, load, records, ahead);
            }
            // The region reports loads.
            None => wanted.append(slots, |word| load_known(region, leaf, word), records, ahead),
        }
        if version.is_locked()
            && let Some(slot) = version.slot()
        {
            // I4: the records read may or may not include the change under way in that slot.
            self.persist_slot(leaf.off, slot)?;
        }
        // ORDER: the floor is loaded after the records. A division, under one version, publishes the new
        // floor before it removes records.
        if leaf.floor.load(Ordering::Acquire) != floor || !is_unchanged(&leaf.version, version) {
            return Ok(Read::Changed);
        }
        Ok(Read::Next(if up { Some(!floor).filter(|_| floor != 0) } else { leaf.low.checked_sub(1) }))
    }

    /// The slots in use, in the order of their keys. Uses the order that an earlier scan has left, or sorts
    /// now and leaves the order for later scans.
    fn order<'o>(
        &self,
        leaf: &Leaf,
        version: Version,
        own: &'o mut Option<Order>,
        pin: &'o BriefPin<'_>,
    ) -> &'o Order {
        if let Some(order) = leaf.order.get(pin)
            && order.version == version.0
        {
            return order;
        }
        let order = self.sorted_slots(leaf, version);
        if !version.is_locked() && is_unchanged(&leaf.version, version) {
            leaf.order.set(order.clone(), &self.garbage, &self.claim);
        }
        own.insert(order)
    }
}

impl Tree {
    /// Prefetches all lines of a leaf at once, since the records of consecutive keys lie anywhere in it.
    pub(super) fn fetch_leaf(&self, leaf: &Leaf) {
        (0..NODE_BYTES).step_by(LINE_BYTES as usize).for_each(|at| self.region().prefetch(leaf.off + at));
    }

    /// The keys in some slots of a leaf.
    fn keys_of(&self, leaf: &Leaf, slots: u128) -> [u64; SLOTS] {
        let (region, mut keys) = (self.region(), [0; SLOTS]);
        // As in `read_leaf`.
        match region.loadable_words().words(leaf.off, NODE_WORDS) {
            Some(words) => bits(slots).for_each(|i| keys[i] = !words[key_word(i)].load(Ordering::Relaxed)),
            None => bits(slots).for_each(|i| keys[i] = !load_known(region, leaf, key_word(i))),
        }
        keys
    }

    /// The slots in use, sorted by key. A key's distance from the leaf's least key and its slot are sorted as
    /// one word. The lowest bits of a long distance do not fit; a last pass repairs the order.
    fn sorted_slots(&self, leaf: &Leaf, version: Version) -> Order {
        const SLOT_BITS: u32 = 7;
        let used = leaf.fingerprints.used();
        let keys = self.keys_of(leaf, used);
        let (mut words, mut len) = ([0; SLOTS], 0);
        let span = (!leaf.floor.load(Ordering::Acquire)).wrapping_sub(leaf.low);
        let shift = SLOT_BITS.saturating_sub(span.leading_zeros());
        for slot in bits(used) {
            // Some keys may lie outside of the leaf's bounds: the key of a record that is being removed reads
            // as the largest, and divisions and joins move records step by step. Such keys must come last, in
            // any order.
            let distance = keys[slot].wrapping_sub(leaf.low).min(span);
            words[len] = distance >> shift << SLOT_BITS | slot as u64;
            len += 1;
        }
        let words = &mut words[..len];
        words.sort_unstable();
        let sorted = words.iter().map(|word| (word & ((1 << SLOT_BITS) - 1)) as u8);
        let mut order = Order::new(version.0, sorted);
        if shift > 0 {
            let slots = order.slots_mut();
            for i in 1..slots.len() {
                let mut at = i;
                while at > 0 && keys[slots[at - 1] as usize] > keys[slots[at] as usize] {
                    slots.swap(at - 1, at);
                    at -= 1;
                }
            }
        }
        order
    }
}

/// Appends the record of the largest key, if there is one.
fn add(records: &mut impl Records, record: Option<(u64, u64)>) -> Result<()> {
    if let Some((key, value)) = record {
        records.reserve(1)?;
        records.push(key, value);
    }
    Ok(())
}

/// Makes room for one more element in a list that a scan keeps of its leaves.
#[inline]
fn make_room<const N: usize, T>(list: &mut SmallVec<[T; N]>) -> Result<()>
where
    [T; N]: smallvec::Array<Item = T>,
{
    if list.len() < list.capacity() {
        return Ok(());
    }
    list.try_reserve(1).map_err(|_| no_memory::<T>(list.len()))
}

#[cold]
fn no_memory<T>(count: usize) -> Error {
    Error::OutOfMemory { bytes: (count as u64 + 1) * size_of::<T>() as u64 }
}

/// A word of a known leaf, which therefore lies in the region.
fn load_known(region: &Region, leaf: &Leaf, word: usize) -> u64 {
    let loaded = region.load_u64(leaf.off + WORD_BYTES * word as u64);
    debug_assert!(loaded.is_ok(), "a leaf that is known lies in the region");
    loaded.unwrap_or(0)
}

/// The records of a leaf that a scan wants.
struct Wanted {
    low: u64,
    high: u64,
    /// The floor of the leaf.
    floor: u64,
    /// The number of records at which the scan ends.
    full: usize,
    up: bool,
}

impl Wanted {
    /// Appends the records of a leaf; `slots` are in the order of their keys. Calls `ahead` first if the scan
    /// continues behind this leaf. `load` loads a word of the leaf.
    #[inline(always)]
    fn append(
        &self,
        slots: &[u8],
        load: impl Fn(usize) -> u64,
        records: &mut impl Records,
        ahead: impl FnOnce(),
    ) {
        let key_of = |slot: &u8| !load(key_word((*slot).into()));
        let value_of = |slot: &u8| load(value_word((*slot).into()));
        let first = || slots.partition_point(|slot| key_of(slot) < self.low);
        let end = || slots.partition_point(|slot| key_of(slot) <= self.high);
        // Most scans do not end in the leaf.
        let edge = if self.up { slots.last() } else { slots.first() };
        let ends = edge.map(key_of).is_some_and(|key| if self.up { key > self.high } else { key < self.low });
        let range = match (self.up, ends) {
            (true, false) => first()..slots.len(),
            (false, false) => 0..end(),
            (_, true) => first()..end(),
        };
        // The two searches may have seen different states, if a record was removed in between; the scan then
        // starts again.
        let slots = slots.get(range).unwrap_or_default();
        let room = self.full - records.count();
        if slots.len() < room && !ends {
            ahead();
        }
        // Keys beyond the range or the leaf's floor are not wanted. The key of a record that is being removed
        // reads as the largest.
        let width = self.high.min((!self.floor).wrapping_sub(1)).wrapping_sub(self.low);
        let is_wanted = |key: u64| key.wrapping_sub(self.low) <= width;
        // Mostly there are no such keys, so the loop does little for each record.
        let (before, mut all) = (records.count(), true);
        let record_in = |slot: &u8| {
            let key = key_of(slot);
            all &= is_wanted(key);
            (key, value_of(slot))
        };
        if self.up {
            records.append(slots[..room.min(slots.len())].iter().map(record_in));
        } else {
            records.append(slots[slots.len().saturating_sub(room)..].iter().rev().map(record_in));
        }
        if all {
            return;
        }
        records.truncate(before);
        let add = |slot: &u8| {
            let key = key_of(slot);
            if is_wanted(key) {
                if records.count() == self.full {
                    return ControlFlow::Break(());
                }
                records.push(key, value_of(slot));
            }
            ControlFlow::Continue(())
        };
        _ = if self.up { slots.iter().try_for_each(add) } else { slots.iter().rev().try_for_each(add) };
    }
}

/// Whether a cold leaf is the next one of a scan, by its bounds.
///
/// This is the only check of damaged bounds without the lock of structure changes. With that lock they are
/// compared with the nodes above.
fn begins_at(leaf: &Leaf, from: u64, direction: Direction) -> bool {
    match direction {
        Direction::Up => leaf.low == from,
        Direction::Down => !leaf.floor.load(Ordering::Relaxed) == from + 1,
    }
}
