//! Lookups, without locks and without allocation.

use super::WbTree;
use super::layout::LeafState;
use super::node::{Leaf, Media, Record, View};
use super::search::{Found, Goal, Probe, descend, descend_together, find, likely_record};
use crate::error::Result;
use tembo_pool::{Pin, Tx};

/// The most keys of one [`WbTree::prefetch`]: about as many as the line fetches that a core can have
/// outstanding.
pub const PREFETCH_KEYS_MAX: usize = 16;
/// The part of a record that is requested if it may be on a disk only. Its length is in its first line.
const ASKED_BYTES: u64 = 2048;

/// A record that lies near a key.
#[derive(Debug, Clone, Copy)]
pub struct NearRecord<'t> {
    /// The key.
    pub key: &'t [u8],
    /// The value.
    pub value: &'t [u8],
    /// How many records the leaf has from which it was chosen, itself included.
    pub leaf_count: u32,
}

impl WbTree {
    /// The value of `key`, borrowed in place. It stays readable as long as the pin lives. A concurrent change
    /// is seen in full or not at all. O(log n); no allocation, no lock.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the tree is damaged on the way to the key.
    ///
    /// # Panics
    ///
    /// If the pin is not of this tree's pool.
    #[inline]
    pub fn get<'p>(&'p self, pin: &'p Pin, key: &[u8]) -> Result<Option<&'p [u8]>> {
        self.assert_pins(pin);
        self.find_value(Media(self.region()), key)
    }

    #[inline]
    pub(crate) fn find_value<'m>(&self, view: Media<'m>, key: &[u8]) -> Result<Option<&'m [u8]>> {
        let tree = self.root(view)?;
        if tree.is_empty() {
            return Ok(None);
        }
        let probe = Probe::new(key);
        let leaf = descend(view, tree, Goal::At(key), |_, _| ())?;
        Ok(find_stable(view, &leaf, probe)?.map(|found| found.entry.value()))
    }

    /// The value of `key` as the transaction sees it, with its own changes. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn get_in<'t>(&'t self, tx: &'t Tx<'_>, key: &[u8]) -> Result<Option<&'t [u8]>> {
        self.assert_writes(tx);
        Ok(self.find_place(tx, Probe::new(key))?.found.map(|found| found.entry.value()))
    }

    /// A record of the leaf in which `key` lies, or would lie: number `choice`, modulo their count, in no
    /// particular order. With random keys and choices that is about a random record, at the price of a
    /// lookup. A leaf with few records favours them; `leaf_count` lets the caller correct that. `None` if the
    /// leaf is empty. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn neighbour_in<'t>(
        &'t self,
        tx: &'t Tx<'_>,
        key: &[u8],
        choice: u64,
    ) -> Result<Option<NearRecord<'t>>> {
        self.assert_writes(tx);
        let view = self.pending(tx);
        let tree = self.root(view)?;
        if tree.is_empty() {
            return Ok(None);
        }
        let leaf = descend(view, tree, Goal::At(key), |_, _| ())?;
        let mut live = leaf.state(view)?.bitmap();
        let leaf_count = live.count_ones();
        if leaf_count == 0 {
            return Ok(None);
        }
        for _ in 0..choice % u64::from(leaf_count) {
            live &= live - 1;
        }
        let found = Record::read(self.region(), view.load(leaf.record_off(live.trailing_zeros() as usize))?)?;
        Ok(Some(NearRecord { key: found.key, value: found.value(), leaf_count }))
    }

    /// Prefetches the memory that looking up or writing `keys` will touch. It arrives during other work, and
    /// for all keys in parallel, whereas successive lookups would wait for each. Changes nothing; nodes that
    /// the transaction itself has written are not followed. Takes up to [`PREFETCH_KEYS_MAX`] keys, and a
    /// fraction of a microsecond for each.
    ///
    /// The method is known as group prefetching (Chen et al., "Improving hash join performance through
    /// prefetching", 2004); here its stages are the levels of inner nodes, leaves and records.
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn prefetch<'k>(&self, tx: &Tx<'_>, keys: impl IntoIterator<Item = &'k [u8]>) {
        self.assert_writes(tx);
        let view = Media(self.region());
        let Ok(tree) = self.root(view) else { return };
        if tree.is_empty() {
            return;
        }
        let mut places = [(0, &[][..]); PREFETCH_KEYS_MAX];
        let mut count = 0;
        for key in keys.into_iter().take(PREFETCH_KEYS_MAX) {
            places[count] = (tree.node(), key);
            count += 1;
        }
        let places = descend_together(view, tree, &mut places[..count]);
        for &(leaf, key) in &*places {
            let record = Leaf::open(self.region(), leaf).and_then(|leaf| likely_record(view, &leaf, key));
            if let Ok(Some(record)) = record {
                self.region().ask_for(record, ASKED_BYTES);
                self.region().prefetch(record);
            }
        }
    }
}

/// Looks for a key in a leaf that a writer may be changing.
///
/// The state is loaded first and again at the end. A miss counts only if the state did not change in between:
/// otherwise the entry may have moved to a slot that was already searched, or its fingerprint may have been
/// overwritten. A hit counts if the slot is still live at the end: the record was then in the tree at some
/// moment since the start, because a slot that is being refilled is not live before its new record is
/// complete.
///
/// ORDER: all loads acquire, so none moves before the first load of the state, and the last load of the state
/// does not move before any. The writer stores an entry before the state that makes it live, and stores the
/// state without an entry before it fills the slot again.
#[inline(always)]
pub(crate) fn find_stable<'m>(
    view: impl View<'m>,
    leaf: &Leaf,
    probe: Probe<'_>,
) -> Result<Option<Found<'m>>> {
    let mut state = leaf.state(view)?;
    loop {
        let found = find(view, view, leaf, state, probe);
        let now = leaf.state(view)?;
        if now == state || matches!(&found, Ok(Some(hit)) if is_live(now, hit.slot)) {
            return found;
        }
        state = now;
    }
}

#[inline(always)]
fn is_live(state: LeafState, slot: usize) -> bool {
    state.bitmap() >> slot & 1 == 1
}
