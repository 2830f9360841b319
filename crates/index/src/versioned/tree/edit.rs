//! Changes a tree in memory, and stores the changes.
//!
//! A node that changes is loaded into a draft. The commit's redo record stores its changed words; a new node
//! is written to a fresh block.

use super::super::layout::{Form, INLINE_BYTES, RootWord};
use super::super::node::{Record, bytes_of_word};
use super::super::queue::Dead;
use super::super::view::View;
use super::super::view::region;
use super::draft::{DraftEntry, Fences, NEW, NodeDraft};
use super::drafts::TreeDrafts;
use super::layout::FencesWord;
use super::lookup::{self, Goal, choose};
use super::node::{Node, after};
use super::ordered::TreeBuilder;
use super::path::NodePath;
use crate::error::{Result, corrupt, internal};
use crate::key_prefix::{fingerprint, prefix8};
use crate::record::{MAX_KEY_BYTES, write_record};
use tembo_pool::Tx;

/// Up to this many drafts are searched one by one; beyond, an index is kept.
const SEARCH_MAX: usize = 12;

impl TreeBuilder {
    pub(super) fn put_entry(&mut self, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        if self.drafts.root == 0 {
            self.drafts.root = self.new_draft(0, 0, Fences { low: Vec::new(), high: None });
            self.drafts.root_level = 0;
        }
        let print = fingerprint(key);
        if let Some(sought) = self.take_sought()
            && self.put_in_place(tx, &sought, (key, print), value)?
        {
            let was_there = sought.slot.is_some();
            self.drafts.spare_sought = Some(sought);
            return Ok(was_there);
        }
        let mut path = NodePath::default();
        self.find_path(tx, Goal::At(key), &mut path)?;
        let leaf = self.draft(tx, path.leaf(), 0)?;
        let found = self.find(tx, leaf, key, print)?;
        let node = &self.drafts.nodes[leaf];
        let entry = self.entry(tx, (node.id & !NEW, node.shared), (key, print), value)?;
        if let Some(slot) = found {
            self.end_entry(tx, leaf, slot)?;
        }
        match self.drafts.nodes[leaf].free_slot(&self.retained) {
            Some(slot) => self.drafts.nodes[leaf].fill(slot, entry),
            None => self.divide_leaf(tx, &path, entry)?,
        }
        self.touch(&path);
        Ok(found.is_some())
    }

    pub(super) fn remove_entry(&mut self, tx: &mut Tx<'_>, key: &[u8]) -> Result<bool> {
        if self.drafts.root == 0 {
            return Ok(false);
        }
        if let Some(sought) = self.take_sought() {
            let is_done = match sought.slot {
                Some(slot) => self.remove_in_place(tx, &sought, slot)?,
                None => true,
            };
            let was_there = sought.slot.is_some();
            self.drafts.spare_sought = Some(sought);
            if is_done {
                return Ok(was_there);
            }
        }
        let mut path = NodePath::default();
        self.find_path(tx, Goal::At(key), &mut path)?;
        let drafts = self.drafts.nodes.len();
        let leaf = self.draft(tx, path.leaf(), 0)?;
        let Some(slot) = self.find(tx, leaf, key, fingerprint(key))? else {
            self.drafts.unload(drafts);
            return Ok(false);
        };
        self.change();
        self.end_entry(tx, leaf, slot)?;
        self.mend(tx, &path, path.depth())?;
        self.touch(&path);
        Ok(true)
    }

    pub(super) fn value_of<'w>(&'w self, tx: &'w Tx<'_>, key: &[u8]) -> Result<Option<&'w [u8]>> {
        if self.drafts.root == 0 || key.len() as u64 > MAX_KEY_BYTES {
            return Ok(None);
        }
        let leaf = self.path(tx, Goal::At(key))?.leaf();
        if let Some(leaf) = self.draft_of(leaf) {
            let found = self.find(tx, leaf, key, fingerprint(key))?;
            return found.map(|slot| value_in(tx, &self.drafts.nodes[leaf], slot)).transpose();
        }
        Ok(lookup::get(self.leaf_before(tx, leaf), key)?.and_then(|value| value.in_place()))
    }

    /// A leaf of the version before.
    fn leaf_before<'t>(&self, tx: &'t Tx<'_>, leaf: u64) -> View<'t> {
        View {
            region: region(tx),
            version: self.before.number,
            root: RootWord::new(leaf, 0),
            seed: 0,
            size_hint: None,
        }
    }

    /// The path to the leaf of a key, or to the last leaf.
    pub(crate) fn path(&self, tx: &Tx<'_>, goal: Goal<'_>) -> Result<NodePath> {
        let mut path = NodePath::default();
        self.find_path(tx, goal, &mut path)?;
        Ok(path)
    }

    /// As [`path`](Self::path), into an empty path, which avoids a copy.
    fn find_path(&self, tx: &Tx<'_>, goal: Goal<'_>, path: &mut NodePath) -> Result<()> {
        let (region, has_drafts) = (region(tx), !self.drafts.nodes.is_empty());
        let mut id = self.drafts.root;
        path.begin(id);
        for level in (1..=self.drafts.root_level).rev() {
            let slot;
            (slot, id) = match if has_drafts { self.draft_of(id) } else { None } {
                Some(draft) => {
                    let slot = self.choose(tx, draft, goal)?;
                    (slot, self.drafts.nodes[draft].value(slot))
                }
                None => {
                    let node = Node::open(region, id, level)?;
                    let slot = choose(&node, self.before.number, goal)?;
                    (slot, super::draft::child_off(&node, slot)?)
                }
            };
            Node::prefetch(region, id);
            path.push(slot, id);
        }
        Ok(())
    }

    /// The live entry of an inner node that leads to a key, or to the last leaf.
    fn choose(&self, tx: &Tx<'_>, draft: usize, goal: Goal<'_>) -> Result<usize> {
        let node = &self.drafts.nodes[draft];
        let key = match goal {
            Goal::At(key) => Some(key),
            _ => None,
        };
        let wanted = key.map_or(Ok(u64::MAX), |key| after(key, node.shared, node.id).map(prefix8))?;
        let mut best: Option<usize> = None;
        for slot in node.live().filter(|slot| node.key(*slot) <= wanted) {
            let prefix = node.key(slot);
            if let Some(key) = key.filter(|_| prefix == wanted)
                && *self.child_low(tx, draft, slot)? > *key
            {
                continue;
            }
            let is_better = match best.map(|best| (best, node.key(best))) {
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
    #[inline]
    pub(crate) fn draft_of(&self, id: u64) -> Option<usize> {
        if id & NEW != 0 {
            return Some((id & !NEW) as usize);
        }
        if self.drafts.nodes.len() <= SEARCH_MAX {
            return self.drafts.nodes.iter().position(|draft| draft.id == id);
        }
        self.drafts.by_off.get(&id).copied()
    }

    /// The draft of a node, loaded if there is none.
    pub(crate) fn draft(&mut self, tx: &Tx<'_>, id: u64, level: usize) -> Result<usize> {
        if let Some(draft) = self.draft_of(id) {
            if self.drafts.nodes[draft].level != level || self.drafts.nodes[draft].is_gone {
                let at_fault = if id & NEW == 0 { corrupt } else { internal };
                return Err(at_fault(
                    "a tree node",
                    id & !NEW,
                    format!("a node of level {level}"),
                    "another",
                ));
            }
            self.set_aside(draft);
            return Ok(draft);
        }
        let draft = NodeDraft::load(&Node::open(region(tx), id, level)?, self.drafts.words())?;
        self.push_draft(draft);
        Ok(self.drafts.nodes.len() - 1)
    }

    /// A new node, whose keys share at least `shared` bytes; returns a reference to it.
    pub(crate) fn new_draft(&mut self, level: usize, shared: usize, fences: Fences) -> u64 {
        let id = NEW | self.drafts.nodes.len() as u64;
        let words = self.drafts.words();
        self.push_draft(NodeDraft::new(id, level, shared, self.version, fences, words));
        id
    }

    fn push_draft(&mut self, draft: NodeDraft) {
        let next = self.drafts.nodes.len();
        if next == SEARCH_MAX {
            self.drafts.by_off =
                self.drafts.nodes.iter().enumerate().map(|(i, draft)| (draft.id, i)).collect();
        }
        if next >= SEARCH_MAX {
            self.drafts.by_off.insert(draft.id, next);
        }
        self.drafts.nodes.push(draft);
    }

    /// The fences of a draft.
    pub(crate) fn fences(&self, tx: &Tx<'_>, draft: usize) -> Result<Fences> {
        let draft = &self.drafts.nodes[draft];
        if let Some(fences) = &draft.fences {
            return Ok(fences.clone());
        }
        let node = Node::open(region(tx), draft.id, draft.level)?;
        Ok(Fences { low: node.low()?.to_vec(), high: node.high()?.map(<[u8]>::to_vec) })
    }

    /// The lower fence of a node.
    pub(crate) fn low<'w>(&'w self, tx: &'w Tx<'_>, id: u64, level: usize) -> Result<&'w [u8]> {
        if let Some(draft) = self.draft_of(id)
            && let Some(fences) = &self.drafts.nodes[draft].fences
        {
            return Ok(&fences.low);
        }
        Node::open(region(tx), id, level)?.low()
    }

    /// The lower fence of a child.
    pub(crate) fn child_low<'w>(&'w self, tx: &'w Tx<'_>, draft: usize, slot: usize) -> Result<&'w [u8]> {
        let node = &self.drafts.nodes[draft];
        let level = node
            .level
            .checked_sub(1)
            .ok_or_else(|| corrupt("a tree node", node.id & !NEW, "an inner node", "a leaf"))?;
        self.low(tx, node.value(slot), level)
    }

    /// The live entry of a leaf with this key, whose hash byte is `print`.
    fn find(&self, tx: &Tx<'_>, leaf: usize, key: &[u8], print: u8) -> Result<Option<usize>> {
        let node = &self.drafts.nodes[leaf];
        let prefix = prefix8(after(key, node.shared, node.id & !NEW)?);
        for slot in node.live_with(print) {
            if node.key(slot) != prefix {
                continue;
            }
            let is_it = match node.form(slot)? {
                Form::Block => Record::read(region(tx), node.value(slot))?.key == key,
                Form::Inline { key_bytes, .. } => key.len() == node.shared + usize::from(key_bytes),
            };
            if is_it {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    /// The entry of a key in a leaf whose keys share `shared` bytes. Writes a record if key and value do not
    /// fit into the entry.
    pub(super) fn entry(
        &self,
        tx: &mut Tx<'_>,
        (leaf, shared): (u64, usize),
        (key, print): (&[u8], u8),
        value: &[u8],
    ) -> Result<DraftEntry> {
        let rest = after(key, shared, leaf)?;
        let (form, word) = if rest.len() <= INLINE_BYTES && value.len() <= INLINE_BYTES {
            let mut word = [0; 8];
            word[..value.len()].copy_from_slice(value);
            let form = Form::Inline { key_bytes: rest.len() as u8, value_bytes: value.len() as u8 };
            (form, u64::from_ne_bytes(word))
        } else {
            (Form::Block, write_record(tx, key, &[value], value.len() as u64)?)
        };
        Ok(DraftEntry::new(self.version, form, prefix8(rest), word, print))
    }

    /// Ends a key's entry, and frees or queues its record.
    fn end_entry(&mut self, tx: &mut Tx<'_>, leaf: usize, slot: usize) -> Result<()> {
        let node = &self.drafts.nodes[leaf];
        if node.form(slot)? == Form::Block {
            let (value, start) = (node.value(slot), node.start(slot));
            if self.drafts.moved_out.contains(&value) {
                // No earlier version has this record.
                tx.free(value)?;
            } else {
                self.give_up_record(tx, value, start)?;
            }
        }
        self.drafts.nodes[leaf].end(slot, self.version);
        Ok(())
    }

    /// Removes a node from the version.
    pub(crate) fn retire(&mut self, draft: usize) {
        let node = &mut self.drafts.nodes[draft];
        node.is_gone = true;
        if !node.is_new() {
            self.dead.push(Dead::node(node.id, node.birth(), self.version));
        }
    }

    /// Gives new nodes their blocks and writes them; returns the root.
    pub(super) fn write_new_nodes(&mut self, tx: &mut Tx<'_>) -> Result<RootWord> {
        let TreeDrafts { root, root_level, nodes, touched, .. } = &mut self.drafts;
        if !nodes.iter().any(NodeDraft::is_new) {
            return Ok(root_word(*root, *root_level));
        }
        let mut places = vec![0; nodes.len()];
        for (draft, place) in nodes.iter().zip(&mut places) {
            if let (Some(fences), false) = (&draft.fences, draft.is_gone) {
                let lengths = FencesWord::new(fences.low.len(), fences.high.as_ref().map(Vec::len));
                *place = tx.alloc(lengths.node_bytes(draft.level))?;
            }
        }
        let resolve = |id: u64| if id & NEW == 0 { id } else { places[(id & !NEW) as usize] };
        for (draft, place) in nodes.iter_mut().zip(&places).filter(|(draft, _)| !draft.is_gone) {
            if draft.level > 0 {
                draft.resolve(resolve);
                draft.raise(touched.in_node(draft.id), self.version);
            }
            if let Some(fences) = &draft.fences {
                draft.write(fences, *place, tx)?;
            }
        }
        Ok(root_word(resolve(*root), *root_level))
    }

    /// Stores the changed words of nodes that are older than this version.
    pub(super) fn store_changed_nodes(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        let changed = |draft: &&NodeDraft| !draft.is_new() && !draft.is_gone && draft.is_changed();
        self.drafts.nodes.iter().filter(changed).try_for_each(|draft| draft.store(tx))?;
        self.store_stamps(tx)
    }
}

fn root_word(root: u64, level: usize) -> RootWord {
    if root == 0 { RootWord::EMPTY } else { RootWord::new(root, level) }
}

/// The value of a live entry of a leaf.
pub(super) fn value_in<'w>(tx: &'w Tx<'_>, leaf: &'w NodeDraft, slot: usize) -> Result<&'w [u8]> {
    Ok(match leaf.form(slot)? {
        Form::Block => Record::read(region(tx), leaf.value(slot))?.value,
        Form::Inline { value_bytes, .. } => bytes_of_word(leaf.value_ref(slot), value_bytes),
    })
}
