//! Making a version: the changes of one transaction, gathered in memory and stored when it commits.
//!
//! A node that changes is loaded into a draft; what it becomes is stored by the commit's record, or, if the node is new, written
//! to a fresh block. Nothing is allocated for a node that is made and given up in one version.

use super::collect::OldScan;
use super::create::{Shared, Version, load_version};
use super::draft::{Draft, Fences, NEW, Slot};
use super::layout::{
    Form, INLINE_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES, MAX_VERSION, NO_END, RECORD_HEAD_BYTES, RootWord, at,
};
use super::node::{CHANGED_WORD, Node, Record, after};
use super::queue::{Dead, Queue};
use super::readers::Retained;
use super::view::{Goal, choose};
use crate::error::{Error, Result, corrupt};
use crate::wbtree::bytes::{fingerprint, prefix8};
use std::collections::HashMap;
use tembo_pmem::{LINE_BYTES, Region};
use tembo_pool::Tx;

/// Items that a version takes off the queue of the young beyond two for each that it puts there.
const YOUNG_STEPS: usize = 2;
/// Up to this many drafts are searched one by one; beyond, an index is kept.
const SEARCH_MAX: usize = 12;
/// Records up to this size are composed on the stack and written at once.
const SMALL_RECORD_BYTES: usize = 512;

/// A version in the making.
///
/// It belongs to a transaction, which is its owner's, and which every call is given: transactions may make versions of several trees.
pub(crate) struct Work {
    pub(crate) header: u64,
    /// Its number.
    pub(crate) version: u64,
    pub(crate) retained: Retained,
    /// The root's offset, or its number if it is new; 0 if there is none.
    pub(crate) root: u64,
    pub(crate) root_level: usize,
    before: Version,
    pub(crate) length: u64,
    pub(crate) drafts: Vec<Draft>,
    /// The numbers of drafts by their offsets, once there are more than can be searched.
    by_off: HashMap<u64, usize>,
    /// Nodes above changed ones, some of them more than once.
    stamps: Vec<u64>,
    pub(crate) dead: Vec<Dead>,
    is_changed: bool,
    /// A change failed half-way.
    is_broken: bool,
}

/// The way from the root to a leaf.
#[derive(Debug)]
pub(crate) struct Path {
    /// The nodes, the root first.
    pub(crate) ids: Vec<u64>,
    /// The place of each of them that leads to the next.
    pub(crate) slots: Vec<usize>,
}

impl Work {
    /// The caller holds the tree's lock until the transaction has ended.
    pub(crate) fn begin(shared: &Shared) -> Result<Work> {
        let (version, retained) = shared.intend();
        if version > MAX_VERSION {
            return Err(corrupt(
                "the version of a tree",
                shared.header,
                format!("up to {MAX_VERSION}"),
                version,
            ));
        }
        let before = load_version(shared.region(), shared.header)?;
        let root_level = before.view(shared.region()).root_level()?;
        Ok(Work {
            header: shared.header,
            version,
            retained,
            root: before.root.node(),
            root_level,
            before,
            length: before.length,
            drafts: Vec::new(),
            by_off: HashMap::new(),
            stamps: Vec::new(),
            dead: Vec::new(),
            is_changed: false,
            is_broken: false,
        })
    }

    /// Puts a key; returns whether it was there. After an error nothing of the version can be committed.
    pub(crate) fn put(&mut self, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        check_lengths(key, value)?;
        self.is_broken = true;
        let was_there = self.put_checked(tx, key, value)?;
        self.is_broken = false;
        Ok(was_there)
    }

    fn put_checked(&mut self, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        self.is_changed = true;
        if self.root == 0 {
            self.root = self.new_draft(0, Fences { low: Vec::new(), high: None });
            self.root_level = 0;
        }
        let path = self.path_to(tx, key)?;
        let leaf = self.draft(tx, path.leaf(), 0)?;
        let found = self.find(tx, leaf, key)?;
        let entry = self.entry(tx, leaf, key, value)?;
        if let Some(slot) = found {
            self.end_record(tx, leaf, slot)?;
        }
        match self.drafts[leaf].free_slot(&self.retained) {
            Some(slot) => self.drafts[leaf].fill(slot, entry),
            None => self.divide_leaf(tx, &path, key, entry)?,
        }
        self.length = self.length.saturating_add(u64::from(found.is_none()));
        self.stamp(&path);
        Ok(found.is_some())
    }

    /// Removes a key; returns whether it was there.
    pub(crate) fn remove(&mut self, tx: &mut Tx<'_>, key: &[u8]) -> Result<bool> {
        if self.root == 0 || key.len() as u64 > MAX_KEY_BYTES {
            return Ok(false);
        }
        let path = self.path_to(tx, key)?;
        if !self.has(tx, path.leaf(), key)? {
            return Ok(false);
        }
        self.is_broken = true;
        self.is_changed = true;
        let leaf = self.draft(tx, path.leaf(), 0)?;
        if let Some(slot) = self.find(tx, leaf, key)? {
            self.end_record(tx, leaf, slot)?;
            self.length = self
                .length
                .checked_sub(1)
                .ok_or_else(|| corrupt("the length of a tree", self.header, "at least 1", 0))?;
        }
        self.mend(tx, &path, path.ids.len() - 1)?;
        self.stamp(&path);
        self.is_broken = false;
        Ok(true)
    }

    /// The value of a key in the version that is being made.
    pub(crate) fn get(&self, tx: &Tx<'_>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.root == 0 || key.len() as u64 > MAX_KEY_BYTES {
            return Ok(None);
        }
        self.value_in(tx, self.path_to(tx, key)?.leaf(), key)
    }

    fn value_in(&self, tx: &Tx<'_>, leaf: u64, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(leaf) = self.draft_of(leaf) {
            return self.find(tx, leaf, key)?.map(|slot| self.value(tx, leaf, slot)).transpose();
        }
        let view = Version { root: RootWord::new(leaf, 0), ..self.before }.view(region(tx));
        Ok(view.get(key)?.map(|value| value.to_vec()))
    }

    fn has(&self, tx: &Tx<'_>, leaf: u64, key: &[u8]) -> Result<bool> {
        if let Some(leaf) = self.draft_of(leaf) {
            return Ok(self.find(tx, leaf, key)?.is_some());
        }
        let view = Version { root: RootWord::new(leaf, 0), ..self.before }.view(region(tx));
        Ok(view.get(key)?.is_some())
    }

    /// The value of a live entry of a leaf.
    pub(crate) fn value(&self, tx: &Tx<'_>, leaf: usize, slot: usize) -> Result<Vec<u8>> {
        let entry = &self.drafts[leaf].slots[slot];
        Ok(match entry.form {
            Form::Block => Record::read(region(tx), entry.value)?.value.to_vec(),
            Form::Inline { value_bytes, .. } => {
                entry.value.to_ne_bytes()[..usize::from(value_bytes).min(8)].to_vec()
            }
        })
    }

    /// The way to a key.
    pub(crate) fn path_to(&self, tx: &Tx<'_>, key: &[u8]) -> Result<Path> {
        let mut path = Path { ids: vec![self.root], slots: Vec::new() };
        let mut id = self.root;
        for level in (1..=self.root_level).rev() {
            let slot;
            (slot, id) = match self.draft_of(id) {
                Some(draft) => {
                    let slot = self.choose(tx, draft, key)?;
                    (slot, self.drafts[draft].slots[slot].value)
                }
                None => {
                    let node = Node::open(region(tx), id, level)?;
                    let slot = choose(&node, self.before.number, Goal::At(key))?;
                    (slot, super::draft::child_off(&node, slot)?)
                }
            };
            Node::prefetch(region(tx), id, level);
            path.slots.push(slot);
            path.ids.push(id);
        }
        Ok(path)
    }

    /// The live entry of an inner node that leads to a key.
    fn choose(&self, tx: &Tx<'_>, draft: usize, key: &[u8]) -> Result<usize> {
        let node = &self.drafts[draft];
        let wanted = prefix8(after(key, node.shared, node.id)?);
        let mut best: Option<usize> = None;
        for slot in node.live().filter(|slot| node.slots[*slot].key <= wanted) {
            let prefix = node.slots[slot].key;
            if prefix == wanted && *self.child_low(tx, draft, slot)? > *key {
                continue;
            }
            let is_better = match best.map(|best| (best, node.slots[best].key)) {
                None => true,
                Some((best, of_best)) if of_best == prefix => {
                    self.child_low(tx, draft, slot)? > self.child_low(tx, draft, best)?
                }
                Some((_, of_best)) => prefix > of_best,
            };
            if is_better {
                best = Some(slot);
            }
        }
        best.ok_or_else(|| {
            corrupt(
                "an inner node",
                node.id & !NEW,
                "a child for each of its keys",
                "none for one that is looked for",
            )
        })
    }

    /// The draft of a node, if there is one.
    pub(crate) fn draft_of(&self, id: u64) -> Option<usize> {
        if id & NEW != 0 {
            return Some((id & !NEW) as usize);
        }
        if self.drafts.len() <= SEARCH_MAX {
            return self.drafts.iter().position(|draft| draft.id == id);
        }
        self.by_off.get(&id).copied()
    }

    /// The draft of a node, which is loaded if there is none.
    pub(crate) fn draft(&mut self, tx: &Tx<'_>, id: u64, level: usize) -> Result<usize> {
        if let Some(draft) = self.draft_of(id) {
            if self.drafts[draft].level != level || self.drafts[draft].is_gone {
                return Err(corrupt("a tree node", id & !NEW, format!("a node of level {level}"), "another"));
            }
            return Ok(draft);
        }
        let draft = Draft::load(&Node::open(region(tx), id, level)?)?;
        self.push_draft(draft);
        Ok(self.drafts.len() - 1)
    }

    /// A new node; returns its number.
    pub(crate) fn new_draft(&mut self, level: usize, fences: Fences) -> u64 {
        let id = NEW | self.drafts.len() as u64;
        self.push_draft(Draft {
            id,
            level,
            shared: super::draft::shared_between(&fences),
            birth: self.version,
            slots: [Slot::UNUSED; super::layout::SLOTS],
            changed: 0,
            is_gone: false,
            fences: Some(fences),
        });
        id
    }

    fn push_draft(&mut self, draft: Draft) {
        let next = self.drafts.len();
        if next == SEARCH_MAX {
            self.by_off = self.drafts.iter().enumerate().map(|(i, draft)| (draft.id, i)).collect();
        }
        if next >= SEARCH_MAX {
            self.by_off.insert(draft.id, next);
        }
        self.drafts.push(draft);
    }

    /// The fences of a draft.
    pub(crate) fn fences(&self, tx: &Tx<'_>, draft: usize) -> Result<Fences> {
        let draft = &self.drafts[draft];
        if let Some(fences) = &draft.fences {
            return Ok(fences.clone());
        }
        let node = Node::open(region(tx), draft.id, draft.level)?;
        Ok(Fences { low: node.low()?.to_vec(), high: node.high()?.map(<[u8]>::to_vec) })
    }

    /// The lower fence of a node.
    pub(crate) fn low<'w>(&'w self, tx: &'w Tx<'_>, id: u64, level: usize) -> Result<&'w [u8]> {
        if let Some(draft) = self.draft_of(id)
            && let Some(fences) = &self.drafts[draft].fences
        {
            return Ok(&fences.low);
        }
        Node::open(region(tx), id, level)?.low()
    }

    /// The lower fence of a child.
    pub(crate) fn child_low<'w>(&'w self, tx: &'w Tx<'_>, draft: usize, slot: usize) -> Result<&'w [u8]> {
        let node = &self.drafts[draft];
        let level = node
            .level
            .checked_sub(1)
            .ok_or_else(|| corrupt("a tree node", node.id & !NEW, "an inner node", "a leaf"))?;
        self.low(tx, node.slots[slot].value, level)
    }

    /// The live entry of a leaf with this key.
    fn find(&self, tx: &Tx<'_>, leaf: usize, key: &[u8]) -> Result<Option<usize>> {
        let node = &self.drafts[leaf];
        let prefix = prefix8(after(key, node.shared, node.id & !NEW)?);
        let print = fingerprint(key);
        for slot in node.live() {
            let entry = &node.slots[slot];
            if entry.print != print || entry.key != prefix {
                continue;
            }
            let is_it = match entry.form {
                Form::Block => Record::read(region(tx), entry.value)?.key == key,
                Form::Inline { key_bytes, .. } => key.len() == node.shared + usize::from(key_bytes),
            };
            if is_it {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    /// An entry for a leaf, with a record if it has to have one.
    fn entry(&self, tx: &mut Tx<'_>, leaf: usize, key: &[u8], value: &[u8]) -> Result<Slot> {
        let (shared, id) = (self.drafts[leaf].shared, self.drafts[leaf].id & !NEW);
        let rest = after(key, shared, id)?;
        let (form, word) = if rest.len() <= INLINE_BYTES && value.len() <= INLINE_BYTES {
            let mut word = [0; 8];
            word[..value.len()].copy_from_slice(value);
            let form = Form::Inline { key_bytes: rest.len() as u8, value_bytes: value.len() as u8 };
            (form, u64::from_ne_bytes(word))
        } else {
            (Form::Block, write_record(tx, key, value)?)
        };
        let start = self.version;
        Ok(Slot { start, form, key: prefix8(rest), value: word, end: NO_END, print: fingerprint(key) })
    }

    /// Takes a key's entry out of the version, and sees to its record.
    fn end_record(&mut self, tx: &mut Tx<'_>, leaf: usize, slot: usize) -> Result<()> {
        let entry = self.drafts[leaf].slots[slot];
        self.drafts[leaf].end(slot, self.version);
        if entry.form != Form::Block {
            return Ok(());
        }
        if entry.start == self.version {
            return Ok(tx.free(entry.value)?);
        }
        self.dead.push(Dead { off: entry.value, is_node: false, birth: entry.start, death: self.version });
        Ok(())
    }

    /// Takes a node out of the version.
    pub(crate) fn retire(&mut self, draft: usize) {
        let node = &mut self.drafts[draft];
        node.is_gone = true;
        if !node.is_new() {
            self.dead.push(Dead { off: node.id, is_node: true, birth: node.birth, death: self.version });
        }
    }

    /// Notes that something below these nodes changed.
    fn stamp(&mut self, path: &Path) {
        self.stamps.extend(path.ids[..path.ids.len() - 1].iter().filter(|id| *id & NEW == 0));
    }

    /// Makes the version part of its transaction; nothing if there were no changes. When that is durable, the version is
    /// [shown](Shared::show).
    pub(crate) fn finish(mut self, tx: &mut Tx<'_>, scan: &mut OldScan) -> Result<Option<Version>> {
        if self.is_broken {
            return Err(Error::Abandoned);
        }
        if !self.is_changed {
            return Ok(None);
        }
        if self.turn_queues(tx)? {
            scan.watch(&self.retained, self.before.number);
        }
        let root = self.write_new_nodes(tx)?;
        self.store_changed_nodes(tx)?;
        let version = Version { number: self.version, root, length: self.length };
        let header = self.header;
        // PERSIST(I8): one record has these words, everything above, and the sums of the new blocks.
        tx.store(header + at!(PmCddsTree.version), version.number)?;
        if version.root != self.before.root {
            tx.store(header + at!(PmCddsTree.root), version.root.0)?;
        }
        if version.length != self.before.length {
            tx.store(header + at!(PmCddsTree.length), version.length)?;
        }
        Ok(Some(version))
    }

    /// Frees some of what died in earlier versions, and queues what died in this one.
    ///
    /// Returns whether some of it was found to be needed.
    fn turn_queues(&self, tx: &mut Tx<'_>) -> Result<bool> {
        let header = self.header;
        let mut young = Queue::open(tx, header + at!(PmCddsTree.young))?;
        let mut old = None;
        for _ in 0..YOUNG_STEPS + 2 * self.dead.len() {
            let Some(dead) = young.pop(tx)? else { break };
            if !self.retained.any_in(dead.birth, dead.death) {
                tx.free(dead.off)?;
                continue;
            }
            if old.is_none() {
                old = Some(Queue::open(tx, header + at!(PmCddsTree.old))?);
            }
            if let Some(old) = &mut old {
                old.push(tx, &dead)?;
            }
        }
        for dead in &self.dead {
            young.push(tx, dead)?;
        }
        young.close(tx)?;
        let has_kept = old.is_some();
        old.map_or(Ok(()), |old| old.close(tx))?;
        Ok(has_kept)
    }

    /// Gives new nodes their places and writes them; returns the root.
    fn write_new_nodes(&mut self, tx: &mut Tx<'_>) -> Result<RootWord> {
        let mut places = vec![0; self.drafts.len()];
        for (draft, place) in self.drafts.iter().zip(&mut places) {
            if let (Some(fences), false) = (&draft.fences, draft.is_gone) {
                let high_bytes = fences.high.as_ref().map(Vec::len);
                let bytes = super::layout::FencesWord::new(fences.low.len(), high_bytes).node_bytes();
                *place = tx.alloc(bytes)?;
            }
        }
        let resolve = |id: u64| if id & NEW == 0 { id } else { places[(id & !NEW) as usize] };
        for draft in self.drafts.iter_mut().filter(|draft| !draft.is_gone && draft.level > 0) {
            draft
                .slots
                .iter_mut()
                .filter(|slot| slot.end != 0)
                .for_each(|slot| slot.value = resolve(slot.value));
        }
        for (draft, place) in self.drafts.iter().zip(&places).filter(|(_, place)| **place != 0) {
            if let Some(fences) = &draft.fences {
                tx.write_fresh(*place, &draft.image(fences, self.version))?;
            }
        }
        let root = resolve(self.root);
        Ok(if root == 0 { RootWord::EMPTY } else { RootWord::new(root, self.root_level) })
    }

    /// Stores what changed of nodes that were there before.
    fn store_changed_nodes(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        let changed = |draft: &&Draft| !draft.is_new() && !draft.is_gone && draft.changed != 0;
        for draft in self.drafts.iter().filter(changed) {
            let node = Node::open(region(tx), draft.id, draft.level)?;
            let lines = draft.line_writes(&node, self.version);
            for (i, line) in lines.iter().enumerate().filter(|(_, line)| line.mask != 0) {
                // Word by word, lines and words in ascending order, in which they become visible (I7).
                for word in (0..8).filter(|word| line.mask >> word & 1 == 1) {
                    let off = draft.id + i as u64 * LINE_BYTES + 8 * word as u64;
                    tx.store_words(off, &line.words[word..=word])?;
                }
            }
        }
        let mut stamps = std::mem::take(&mut self.stamps);
        // In order, so that equal changes make equal records.
        stamps.sort_unstable();
        stamps.dedup();
        // A draft that changed has its stamp, and one that is gone needs none.
        stamps.retain(|node| {
            self.draft_of(*node)
                .is_none_or(|draft| !self.drafts[draft].is_gone && self.drafts[draft].changed == 0)
        });
        for node in stamps {
            tx.store_words(node + 8 * CHANGED_WORD as u64, &[self.version])?;
        }
        Ok(())
    }
}

impl Path {
    pub(crate) fn leaf(&self) -> u64 {
        self.ids[self.ids.len() - 1]
    }
}

/// Writes a record into a fresh block.
pub(crate) fn write_record(tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<u64> {
    let head = (key.len() as u64 | (value.len() as u64) << 32).to_ne_bytes();
    let bytes = RECORD_HEAD_BYTES as usize + key.len() + value.len();
    let off = tx.alloc(bytes as u64)?;
    if bytes <= SMALL_RECORD_BYTES {
        let mut image = [0; SMALL_RECORD_BYTES];
        image[..8].copy_from_slice(&head);
        image[8..8 + key.len()].copy_from_slice(key);
        image[8 + key.len()..bytes].copy_from_slice(value);
        tx.write_fresh(off, &image[..bytes])?;
        return Ok(off);
    }
    let mut at = off;
    for part in [&head, key, value] {
        tx.write_fresh(at, part)?;
        at += part.len() as u64;
    }
    Ok(off)
}

/// Where the trees of a transaction lie.
pub(crate) fn region<'t>(tx: &'t Tx<'_>) -> &'t Region {
    tx.pool().region()
}

pub(crate) fn check_lengths(key: &[u8], value: &[u8]) -> Result<()> {
    let (key_bytes, value_bytes) = (key.len() as u64, value.len() as u64);
    if key_bytes > MAX_KEY_BYTES {
        return Err(Error::KeyTooLong { bytes: key_bytes, max_bytes: MAX_KEY_BYTES });
    }
    if value_bytes > MAX_VALUE_BYTES {
        return Err(Error::ValueTooLong { bytes: value_bytes, max_bytes: MAX_VALUE_BYTES });
    }
    Ok(())
}
