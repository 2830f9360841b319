//! Lookups: no lock, no store, no wait.

use super::create::{Tree, U64Tree};
use super::fingerprints::{NOWHERE, bits, fingerprint, lines_of};
use super::layout::{SLOTS, SLOTS_PER_LINE, key_off, line_off, value_off};
use super::lock::{Version, begin, is_durable_since, is_unchanged};
use super::node::simd::{Operation, Portable, Search};
use super::node::{Child, ColdInner, ColdLeaf, Leaf, Word};
use crate::error::{Result, corrupt};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use tembo_pmem::WORD_BYTES;
use tembo_pool::BriefPin;

/// The end of a search.
pub(super) enum SearchEnd<'g> {
    Leaf(&'g Leaf),
    /// A cold node at this offset.
    Cold(u64),
}

/// The purpose for which the likely lines of a key's record are prefetched.
#[derive(Clone, Copy)]
pub(super) enum Fetch {
    ToLoad,
    ToStore,
}

/// The outcome of a lookup in one leaf.
enum LeafLookup {
    Found(Option<u64>),
    /// The key belongs further right.
    Right,
    Retry,
    /// The leaf has left the tree.
    Gone,
}

impl U64Tree {
    /// The value of a key.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when media is damaged, or the device failed.
    #[inline]
    pub fn get(&self, key: u64) -> Result<Option<u64>> {
        self.tree.pool.check_process()?;
        self.tree.best.run(Get { tree: &self.tree, key })
    }

    /// Whether the key is present.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn contains(&self, key: u64) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }
}

/// A lookup.
struct Get<'t> {
    tree: &'t Tree,
    key: u64,
}

impl Operation for Get<'_> {
    type Outcome = Result<Option<u64>>;

    #[inline(always)]
    fn run_by<S: Search>(self, search: S) -> Result<Option<u64>> {
        let Get { tree, key } = self;
        // This path makes no call but the last: a call would save registers, and these stores wait for the
        // last fence in a store buffer that is soon full. It also has few instructions, so that the processor
        // begins the next lookup while this one waits for memory.
        if key != u64::MAX
            && let Some(pin) = tree.pool.try_pin_briefly()
            && let SearchEnd::Leaf(leaf) = tree.find_place_by(search, key, &pin, Fetch::ToLoad)
            && let Some(found) = tree.glance(search, leaf, key)
        {
            return Ok(found);
        }
        tree.get_again(key)
    }
}

/// A lookup on the slow path.
struct GetAgain<'t> {
    tree: &'t Tree,
    key: u64,
}

impl Operation for GetAgain<'_> {
    type Outcome = Result<Option<u64>>;

    #[inline(always)]
    fn run_by<S: Search>(self, search: S) -> Result<Option<u64>> {
        let GetAgain { tree, key } = self;
        let pin = tree.pool.pin_briefly();
        if key == u64::MAX {
            return Ok(tree.last(&pin));
        }
        loop {
            let found = match tree.find_place_by(search, key, &pin, Fetch::ToLoad) {
                SearchEnd::Leaf(leaf) => match tree.glance(search, leaf, key) {
                    None => tree.look_from(leaf, key, &pin)?,
                    found => found,
                },
                SearchEnd::Cold(_) if tree.try_warm(key)? => None,
                SearchEnd::Cold(off) => tree.get_cold(off, key, &pin)?,
            };
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }
}

/// The search for the leaf of a key.
struct FindPlace<'g, 'p> {
    tree: &'g Tree,
    key: u64,
    pin: &'g BriefPin<'p>,
}

impl<'g> Operation for FindPlace<'g, '_> {
    type Outcome = SearchEnd<'g>;

    #[inline(always)]
    fn run_by<S: Search>(self, search: S) -> SearchEnd<'g> {
        self.tree.find_place_by(search, self.key, self.pin, Fetch::ToLoad)
    }
}

impl Tree {
    /// The value of the largest key.
    pub(super) fn last(&self, pin: &BriefPin<'_>) -> Option<u64> {
        self.last.get(pin).copied().flatten()
    }

    /// The node at which the search for a key ends.
    #[inline(always)]
    pub(super) fn find_place_by<'g, S: Search>(
        &'g self,
        search: S,
        key: u64,
        pin: &'g BriefPin<'_>,
        fetch: Fetch,
    ) -> SearchEnd<'g> {
        // No node holds the root's offset on media. If the root is a leaf, the lines at the start of the
        // region are prefetched instead of its own: that costs less than a check here.
        static NO_OFF: AtomicU64 = AtomicU64::new(0);
        let (mut word, mut off) = (&self.root, &NO_OFF);
        loop {
            match word.follow(pin) {
                Child::Inner(inner) => (word, off) = inner.way_by(search, key),
                Child::Leaf(leaf) => {
                    // These lines arrive together with the fingerprints.
                    let off = off.load(Ordering::Relaxed);
                    for line in lines_of(key).map(|line| off.wrapping_add(line_off(0, line))) {
                        match fetch {
                            Fetch::ToStore => self.region().prefetch_for_store(line),
                            Fetch::ToLoad if S::REPORTS => self.region().prefetch(line),
                            Fetch::ToLoad => self.region().prefetch_quietly(line),
                        }
                    }
                    return SearchEnd::Leaf(leaf);
                }
                Child::Cold(off) => return SearchEnd::Cold(off),
                Child::None => unreachable!("the words of the tree lead to nodes"),
            }
        }
    }

    /// The end of a search for a key, for callers that have not chosen an instruction set.
    pub(super) fn find_place<'g>(&'g self, key: u64, pin: &'g BriefPin<'_>) -> SearchEnd<'g> {
        self.best.run(FindPlace { tree: self, key, pin })
    }

    /// The value of a key, when the fast path could not decide: in a cold leaf, or during a change.
    #[cold]
    #[inline(never)]
    fn get_again(&self, key: u64) -> Result<Option<u64>> {
        self.best.run(GetAgain { tree: self, key })
    }

    /// Looks for a key in a leaf and those to its right; `None` if the search has to start again.
    fn look_from(&self, leaf: &Leaf, key: u64, pin: &BriefPin<'_>) -> Result<Option<Option<u64>>> {
        let mut leaf = leaf;
        loop {
            match self.look(leaf, key)? {
                LeafLookup::Found(found) => return Ok(Some(found)),
                LeafLookup::Retry => std::hint::spin_loop(),
                LeafLookup::Gone => return Ok(None),
                LeafLookup::Right => match self.neighbour(&leaf.next, pin) {
                    Some(right) => leaf = right,
                    None => return Ok(None),
                },
            }
        }
    }

    /// The leaf to which a link to the right leads, if it is not cold.
    pub(super) fn neighbour<'g>(&self, next: &Word, pin: &'g BriefPin<'_>) -> Option<&'g Leaf> {
        match next.follow(pin) {
            Child::Leaf(leaf) => Some(leaf),
            _ => None,
        }
    }

    /// The same as [`look`](Self::look), if nothing is changing and no other key has the same fingerprint;
    /// else `None`.
    #[inline(always)]
    fn glance<S: Search>(&self, search: S, leaf: &Leaf, key: u64) -> Option<Option<u64>> {
        let version = begin(&leaf.version);
        let matches = leaf.fingerprints.matches_by(search, fingerprint(key));
        let found = if matches == 0 {
            None
        } else {
            // A leaf that is known lies in the region.
            let slot = matches.trailing_zeros() as usize;
            let line = self.region().line(leaf.line_off(slot / SLOTS_PER_LINE)).ok()?;
            let load = |word: usize| if S::REPORTS { line.load(word) } else { line.load_quietly(word) };
            if load(slot % SLOTS_PER_LINE) != !key {
                return None;
            }
            Some(load(SLOTS_PER_LINE + slot % SLOTS_PER_LINE))
        };
        // ORDER: as below. While nothing is changing, a record with a fingerprint belongs to this leaf.
        let is_here = found.is_some() || !key > leaf.floor.load(Ordering::Acquire);
        (is_here && is_durable_since(&leaf.version, version)).then_some(found)
    }

    #[cold]
    #[inline(never)]
    fn look(&self, leaf: &Leaf, key: u64) -> Result<LeafLookup> {
        let version = begin(&leaf.version);
        let found = self.search(leaf, key)?;
        // ORDER: the floor is loaded after the search. A division publishes the new floor before anything can
        // change in the new leaf.
        if !key <= leaf.floor.load(Ordering::Acquire) {
            return Ok(LeafLookup::Right);
        }
        if !is_unchanged(&leaf.version, version) {
            return Ok(LeafLookup::Retry);
        }
        if version.is_obsolete() {
            return Ok(LeafLookup::Gone);
        }
        if version.is_locked() {
            self.persist_before_answer(leaf, version, found.map(|(slot, _)| slot))?;
        }
        Ok(LeafLookup::Found(found.map(|(_, value)| value)))
    }

    /// Makes a change that is under way durable if the answer depends on it: if the lookup found the key in
    /// the changing slot, or did not find it (I4).
    #[cold]
    fn persist_before_answer(&self, leaf: &Leaf, version: Version, found: Option<usize>) -> Result<()> {
        if let Some(slot) = version.slot()
            && found.is_none_or(|found| found == slot)
        {
            self.persist_slot(leaf.off, slot)?;
        }
        Ok(())
    }

    /// Makes a slot durable.
    pub(super) fn persist_slot(&self, leaf: u64, slot: usize) -> Result<()> {
        let region = self.region();
        region.flush(key_off(leaf, slot), WORD_BYTES);
        // PERSIST(I3): value and key are in the line that was flushed.
        region.fence().map_err(tembo_pool::Error::from)?;
        Ok(())
    }

    /// The slot and the value of a key in a leaf.
    pub(super) fn search(&self, leaf: &Leaf, key: u64) -> Result<Option<(usize, u64)>> {
        match self.other_slot(leaf, leaf.fingerprints.matches_by(Portable, fingerprint(key)), key) {
            NOWHERE => Ok(None),
            slot => Ok(Some((slot, self.region().load_u64(value_off(leaf.off, slot))?))),
        }
    }

    /// The one of some slots that has a key, or [`NOWHERE`]. A separate function, since it is seldom needed.
    #[inline(never)]
    pub(super) fn other_slot(&self, leaf: &Leaf, slots: u128, key: u64) -> usize {
        // A leaf that is known lies in the region.
        let has_key =
            |slot: &usize| self.region().load_u64(key_off(leaf.off, *slot)).is_ok_and(|word| word == !key);
        bits(slots).find(has_key).unwrap_or(NOWHERE)
    }

    /// Looks for a key in cold nodes, from the one at `off` on. `None` if another thread made that node known
    /// meanwhile: then the search has to start again.
    ///
    /// Nobody changes a cold node: writers make it known first. A known node never becomes cold again.
    fn get_cold(&self, off: u64, key: u64, pin: &BriefPin<'_>) -> Result<Option<Option<u64>>> {
        let outcome = self.search_cold(off, key);
        if self.is_still_cold(off, key, pin) { outcome } else { Ok(None) }
    }

    /// Whether the node at `off`, to which a key led, is still cold. If so, no thread has changed it or any
    /// node below it.
    pub(super) fn is_still_cold(&self, off: u64, key: u64, pin: &BriefPin<'_>) -> bool {
        // ORDER: earlier reads stay before the following check.
        fence(Ordering::Acquire);
        matches!(self.find_place(key, pin), SearchEnd::Cold(still) if still == off)
    }

    /// The leaf to which a key belongs, at or below the cold node at `off`, read from media for the caller
    /// only. `None` as for [`get_cold`](Self::get_cold).
    pub(super) fn load_cold(&self, off: u64, key: u64, pin: &BriefPin<'_>) -> Result<Option<Leaf>> {
        let region = self.region();
        let load = || -> Result<Option<Leaf>> {
            let leaf = self.cold_leaf_for(off, key)?;
            let (low, floor) = ColdLeaf { region, off: leaf }.bounds()?;
            // As in `search_cold`.
            if key < low || !key <= floor {
                return Ok(None);
            }
            Leaf::load(region, leaf, low).map(Some)
        };
        let leaf = load();
        if self.is_still_cold(off, key, pin) { leaf } else { Ok(None) }
    }

    /// The value of a key, at or below the cold node at `off`; `None` if the key belongs elsewhere.
    fn search_cold(&self, off: u64, key: u64) -> Result<Option<Option<u64>>> {
        let region = self.region();
        let leaf = self.cold_leaf_for(off, key)?;
        let (low, floor) = ColdLeaf { region, off: leaf }.bounds()?;
        // While a child is added to the node above, a search may arrive too far left.
        if key < low || !key <= floor {
            return Ok(None);
        }
        for slot in 0..SLOTS {
            if region.load_u64(key_off(leaf, slot))? == !key {
                return Ok(Some(Some(region.load_u64(value_off(leaf, slot))?)));
            }
        }
        Ok(Some(None))
    }

    /// The leaf on media to which a key belongs, at or below the node at `off`.
    fn cold_leaf_for(&self, off: u64, key: u64) -> Result<u64> {
        let region = self.region();
        let (mut off, mut below) = (off, u64::MAX);
        while region.load_u64(off)? != super::layout::LEAF_KIND {
            let inner = ColdInner { region, off };
            let level = inner.level()?;
            if level >= below {
                return Err(corrupt("the level of an inner node", off, format!("below {below}"), level));
            }
            let child = inner.child_for(key)?;
            (off, below) =
                (child.ok_or_else(|| corrupt("an inner node", off, "a child for every key", key))?.1, level);
        }
        Ok(off)
    }
}
