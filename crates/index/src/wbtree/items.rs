//! Copies of a leaf's live entries, for sorting, dividing and joining.

use super::layout::{LEAF_BYTES, LEAF_SLOTS, LeafState, NodeKind, PmEntry, field, put_word};
use super::node::{Leaf, Record, View, after};
use crate::error::Result;
use crate::key_prefix::prefix8;

/// A copy of a live entry.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Item {
    pub(crate) prefix: u64,
    pub(crate) record: u64,
    pub(crate) fingerprint: u8,
}

/// Up to one entry more than a leaf holds, without allocation. Prefixes begin at `skip`.
#[derive(Clone)]
pub(crate) struct Items {
    items: [Item; LEAF_SLOTS + 1],
    len: usize,
    skip: usize,
}

impl Items {
    pub(crate) fn new(skip: usize) -> Items {
        Items { items: [Item::default(); LEAF_SLOTS + 1], len: 0, skip }
    }

    pub(crate) fn as_slice(&self) -> &[Item] {
        &self.items[..self.len]
    }

    pub(crate) fn push(&mut self, item: Item) {
        self.items[self.len] = item;
        self.len += 1;
    }

    /// Appends the entries of `leaf` that are live in `state`, with prefixes from this collection's skip.
    pub(crate) fn gather<'m>(&mut self, view: impl View<'m>, leaf: &Leaf, state: LeafState) -> Result<()> {
        let fingerprints = leaf.fingerprints(view)?.map(u64::to_ne_bytes);
        let first = self.len;
        let mut live = state.bitmap();
        while live != 0 {
            let slot = live.trailing_zeros() as usize;
            self.push(Item {
                prefix: view.load(leaf.prefix_off(slot))?,
                record: view.load(leaf.record_off(slot))?,
                fingerprint: fingerprints[slot / 8][slot % 8],
            });
            live &= live - 1;
        }
        if leaf.skip() != self.skip {
            let skip = self.skip;
            rebase(view, &mut self.items[first..self.len], skip)?;
        }
        Ok(())
    }

    /// Sorts by key: by prefix, and by the records' keys where prefixes are equal, which is rare.
    pub(crate) fn sort<'m>(&mut self, view: impl View<'m>) -> Result<()> {
        let items = &mut self.items[..self.len];
        items.sort_unstable_by_key(|item| item.prefix);
        items.chunk_by_mut(|a, b| a.prefix == b.prefix).try_for_each(|tied| sort_by_record(view, tied))
    }

    /// The entries in `range` as a separate collection, with prefixes from `skip` on.
    pub(crate) fn part<'m>(
        &self,
        view: impl View<'m>,
        range: std::ops::Range<usize>,
        skip: usize,
    ) -> Result<Items> {
        Items::of(view, &self.as_slice()[range], (self.skip, skip))
    }

    /// A collection of these entries, at most as many as a leaf holds, with prefixes from `skip` on instead
    /// of `before`.
    pub(crate) fn of<'m>(
        view: impl View<'m>,
        items: &[Item],
        (before, skip): (usize, usize),
    ) -> Result<Items> {
        let mut part = Items::new(skip);
        part.items[..items.len()].copy_from_slice(items);
        part.len = items.len();
        if skip != before {
            rebase(view, &mut part.items[..part.len], skip)?;
        }
        Ok(part)
    }

    /// Bytes of a leaf up to the last of these entries.
    pub(crate) fn media_bytes(&self) -> usize {
        field!(PmLeaf.entries) as usize + self.len * size_of::<PmEntry>()
    }

    /// A new leaf with these entries, ready to be written.
    pub(crate) fn image(&self) -> [u8; LEAF_BYTES as usize] {
        debug_assert!(self.len <= LEAF_SLOTS);
        let mut image = [0; LEAF_BYTES as usize];
        put_word(&mut image, field!(PmLeaf.state), LeafState::first(self.len).0);
        put_word(&mut image, field!(PmLeaf.kind), NodeKind::leaf(self.skip).0);
        for (slot, item) in self.as_slice().iter().enumerate() {
            image[field!(PmLeaf.fingerprints) as usize + slot] = item.fingerprint;
            let entry = field!(PmLeaf.entries) + (slot * size_of::<PmEntry>()) as u64;
            put_word(&mut image, entry + field!(PmEntry.prefix), item.prefix);
            put_word(&mut image, entry + field!(PmEntry.record), item.record);
        }
        image
    }
}

fn rebase<'m>(view: impl View<'m>, items: &mut [Item], skip: usize) -> Result<()> {
    for item in items {
        let record = Record::read(view.region(), item.record)?;
        item.prefix = prefix8(after(record.key, skip, item.record)?);
    }
    Ok(())
}

/// Sorts entries by the keys of their records, which are read once each. The keys are looked at before
/// anything is sorted, so that damage is an error and no order without rules.
fn sort_by_record<'m>(view: impl View<'m>, items: &mut [Item]) -> Result<()> {
    if items.len() < 2 {
        return Ok(());
    }
    let mut keyed = [(&[][..], Item::default()); LEAF_SLOTS + 1];
    let keyed = &mut keyed[..items.len()];
    for (to, item) in keyed.iter_mut().zip(&*items) {
        *to = (Record::read(view.region(), item.record)?.key, *item);
    }
    keyed.sort_unstable_by_key(|(key, _)| *key);
    keyed.iter().zip(items).for_each(|((_, item), to)| *to = *item);
    Ok(())
}
