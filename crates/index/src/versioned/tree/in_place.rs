//! A change in place, without drafts: the only change of its version.
//!
//! The key is looked up before the version begins, so the lookup does not wait for the previous version's
//! fence. A change that only ends an entry of a leaf, fills a place, or does both is made in place: the
//! changed words follow from the leaf on media, to which nobody else stores, and only these are stored. Other
//! changes, and several changes in one version, use drafts (`edit.rs`).

use super::super::layout::Form;
use super::super::node::Record;
use super::super::readers::Retained;
use super::super::view::View;
use super::super::view::region;
use super::draft::{DraftEntry, child_off};
use super::drafts::TreeDrafts;
use super::layout::{Field, LIVE_MIN, NO_END, SLOTS, entry_word, stamp_off};
use super::lookup::{Goal, choose, hits};
use super::node::{Node, PRINTS_WORD};
use super::ordered::TreeBuilder;
use super::path::{NodePath, Sought};
use crate::error::Result;
use crate::record::MAX_KEY_BYTES;
use tembo_pmem::LINE_BYTES;
use tembo_pool::{Lane, Tx};

impl TreeDrafts {
    /// Looks for a key in the version before, to which the new version is still equal. Also prefetches the
    /// allocator's words for a record that will probably die.
    pub(super) fn seek(&mut self, before: &View<'_>, lane: &mut Lane, key: &[u8]) -> Result<()> {
        if self.root == 0 || key.len() as u64 > MAX_KEY_BYTES {
            return Ok(());
        }
        let mut sought = self.spare_sought.take().unwrap_or_default();
        sought.path.find(before, (self.root, self.root_level), Goal::At(key))?;
        let leaf = Node::open(before.region, sought.path.leaf(), 0)?;
        sought.slot = None;
        for slot in hits(before, &leaf, key)? {
            let is_it = match leaf.form(slot)? {
                Form::Block => {
                    let record = leaf.field(slot, Field::Value);
                    before.region.prefetch(record);
                    lane.prefetch_for_free(record);
                    Record::read(before.region, record)?.key == key
                }
                Form::Inline { key_bytes, .. } => key.len() == leaf.shared() + usize::from(key_bytes),
            };
            if is_it {
                sought.slot = Some(slot);
                break;
            }
        }
        self.sought = Some(sought);
        Ok(())
    }
}

impl NodePath {
    /// The nodes above the leaf, each with the place that leads on.
    #[inline]
    fn steps(&self) -> impl Iterator<Item = (u64, usize)> {
        let steps = self.ids.iter().zip(&self.slots).take(self.depth());
        steps.map(|(node, slot)| (*node, usize::from(*slot)))
    }

    /// The path from a root on media to a leaf.
    #[inline]
    pub(super) fn find(
        &mut self,
        view: &View<'_>,
        (root, level): (u64, usize),
        goal: Goal<'_>,
    ) -> Result<()> {
        self.begin(root);
        for level in (1..=level).rev() {
            let node = Node::open(view.region, self.leaf(), level)?;
            let slot = choose(&node, view.version, goal)?;
            let child = child_off(&node, slot)?;
            Node::prefetch(view.region, child);
            self.push(slot, child);
        }
        Ok(())
    }
}

/// The words of an entry that have to be stored, all in one line.
struct EntryWords {
    line_off: u64,
    mask: u8,
    words: [u64; 8],
}

impl EntryWords {
    /// The words in which an entry differs from the present contents of its place.
    fn new(leaf: &Node<'_>, slot: usize, entry: &DraftEntry) -> EntryWords {
        let first = entry_word(0, slot, Field::Start);
        let line_off = leaf.off + LINE_BYTES * (first as u64 / 8);
        let mut to = EntryWords { line_off, mask: 0, words: [0; 8] };
        for (i, word) in [entry.start.0, entry.key, entry.value, NO_END].into_iter().enumerate() {
            to.words[first % 8 + i] = word;
            to.mask |= u8::from(leaf.word(first + i) != word) << (first % 8 + i);
        }
        to
    }
}

/// An entry that ends.
struct Ended {
    slot: usize,
    /// Its record, if it has one, and its start.
    record: Option<(u64, u64)>,
}

impl Node<'_> {
    /// An entry of a leaf that is about to end.
    fn ended(&self, slot: usize) -> Result<Ended> {
        let has_record = self.form(slot)? == Form::Block;
        let record = has_record.then(|| (self.field(slot, Field::Value), self.start(slot).version()));
        Ok(Ended { slot, record })
    }

    /// Whether a leaf has at least `least` live entries.
    fn has_live(&self, least: usize) -> bool {
        let mut live = 0;
        (0..SLOTS).any(|slot| {
            live += usize::from(self.leaf_field(slot, Field::End) == NO_END);
            live >= least
        })
    }

    /// A free place of a leaf, as in [`NodeDraft::free_slot`](super::draft::NodeDraft::free_slot).
    fn free_slot(&self, retained: &Retained) -> Option<usize> {
        (0..SLOTS).find(|slot| {
            let end = self.leaf_field(*slot, Field::End);
            end == 0 || end != NO_END && !retained.any_in(self.start(*slot).version(), end)
        })
    }
}

impl TreeBuilder {
    /// Takes the result of [`TreeDrafts::seek`], for the first change of the version.
    pub(super) fn take_sought(&mut self) -> Option<Box<Sought>> {
        self.drafts.sought.take()
    }

    /// Whether all changes of nodes are stored already: there were none, or one in place, whose stamps are
    /// only deferred.
    pub(super) fn is_in_place(&self) -> bool {
        self.drafts.nodes.is_empty()
            && self.drafts.touched.len() == 0
            && self.drafts.root == self.before.root.node()
    }

    /// Removes the key that was found, if no node has to be rebuilt for this; returns whether it did so.
    pub(super) fn remove_in_place(&mut self, tx: &mut Tx<'_>, sought: &Sought, slot: usize) -> Result<bool> {
        let leaf = Node::open(region(tx), sought.path.leaf(), 0)?;
        if sought.path.depth() > 0 && !leaf.has_live(LIVE_MIN + 2) {
            return Ok(false);
        }
        let ended = leaf.ended(slot)?;
        self.change();
        self.end_in_place(tx, sought.path.leaf(), &ended)?;
        self.touch_in_place(&sought.path);
        Ok(true)
    }

    /// Puts the key that was looked for, if its leaf has a free place; returns whether it did so.
    pub(super) fn put_in_place(
        &mut self,
        tx: &mut Tx<'_>,
        sought: &Sought,
        (key, print): (&[u8], u8),
        value: &[u8],
    ) -> Result<bool> {
        let off = sought.path.leaf();
        let leaf = Node::open(region(tx), off, 0)?;
        let Some(slot) = leaf.free_slot(&self.retained) else { return Ok(false) };
        let (shared, ended) = (leaf.shared(), sought.slot.map(|slot| leaf.ended(slot)).transpose()?);
        let entry = self.entry(tx, (off, shared), (key, print), value)?;
        let leaf = Node::open(region(tx), off, 0)?;
        let (prints_word, words) = (PRINTS_WORD + slot / 8, EntryWords::new(&leaf, slot, &entry));
        let prints_before = leaf.word(prints_word);
        let mut prints = prints_before.to_ne_bytes();
        prints[slot % 8] = print;
        if let Some(ended) = ended {
            self.end_in_place(tx, off, &ended)?;
        }
        if u64::from_ne_bytes(prints) != prints_before {
            tx.lines().store_words(off + 8 * prints_word as u64, &[u64::from_ne_bytes(prints)])?;
        }
        // Words of one line become visible in order: a place's start before its other words, and its end
        // after them (I4).
        tx.lines().store_line(words.line_off, words.mask, &words.words)?;
        self.touch_in_place(&sought.path);
        Ok(true)
    }

    /// Ends an entry of a leaf on media, and frees or queues its record.
    fn end_in_place(&mut self, tx: &mut Tx<'_>, off: u64, ended: &Ended) -> Result<()> {
        if let Some((record, start)) = ended.record {
            self.give_up_record(tx, record, start)?;
        }
        Ok(tx.lines().store_words(off + 8 * entry_word(0, ended.slot, Field::End) as u64, &[self.version])?)
    }

    /// As [`touch`](Self::touch). If no version is held, the stamps are only deferred.
    fn touch_in_place(&mut self, path: &NodePath) {
        if !self.retained.held().is_empty() {
            return self.touch(path);
        }
        self.deferred.extend(path.steps().map(|(node, slot)| stamp_off(node, slot)));
    }
}
