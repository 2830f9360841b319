//! Changes of many records, leaf by leaf.
//!
//! A *run* is a part of the keys of one leaf, in ascending order: one descent finds the leaf for all of them,
//! and the leaf, its length and its tallies change once. A run that does not fit into its leaf replaces it by
//! as many leaves as it takes, and the node above it by one copy, whatever the number of these leaves.
//!
//! Commit point, recovery and the order of the words are those of single changes (`mod.rs`): the entries of a
//! run are stored before the state that makes them live, and new nodes before the word that leads to them.

use super::WbTree;
use super::edit::{Edit, InnerDraft, Path};
use super::items::{Item, Items};
use super::layout::{FANOUT, LEAF_SLOTS, LeafState, TreeWord};
use super::node::{Leaf, Media, Record, View, matches};
use super::search::{Found, Probe, TreePosition, find_matching};
use super::separator::{Separator, shared_bytes};
use super::split::separator_at;
use super::sums::Counting;
use crate::error::{Error, Result};
use crate::record::check_lengths;
use std::iter::Peekable;
use std::ops::Range;
use tembo_pool::Tx;

/// Entries of a leaf that a run makes, and children of an inner node: some room is left for single changes.
const LEAF_FILL: usize = LEAF_SLOTS * 6 / 7;
const INNER_FILL: usize = FANOUT * 6 / 7;

/// A leaf, and the records that a run puts into it.
struct Run<'m, 'b> {
    path: Path<'m>,
    state: LeafState,
    fingerprints: [u64; 4],
    /// The run's first key.
    first: &'b [u8],
    records: &'b mut Records<'m>,
}

/// The records of a run, which are written, and linked nowhere.
#[derive(Default)]
struct Records<'m> {
    /// The fence above the leaf; nothing if there is none.
    high: Vec<u8>,
    /// Those of new keys, in their order.
    new: Vec<Item>,
    /// Those of keys that are there, with the entries that they replace.
    replacing: Vec<(Found<'m>, u64)>,
}

impl WbTree {
    /// Gives new values to many keys, one after the other: `decide` gets the number of each key and its
    /// present value, and returns the new one, or `None` if the key is to stay as it is. An unchanged value
    /// is not written again. The keys may have any order; keys in ascending order take the least time.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put), but the transaction may hold a part of the changes: the caller must roll it
    /// back to a savepoint from before the call, or drop it.
    ///
    /// # Panics
    ///
    /// If the transaction is not of this tree's pool.
    pub fn put_many_without_undo<'k, V: AsRef<[u8]>>(
        &self,
        tx: &mut Tx<'_>,
        keys: impl IntoIterator<Item = &'k [u8]>,
        mut decide: impl FnMut(usize, Option<&[u8]>) -> Option<V>,
    ) -> Result<()> {
        self.assert_writes(tx);
        let mut keys = keys.into_iter().enumerate().peekable();
        let mut records = Records::default();
        while let Some((number, first)) = keys.peek().copied() {
            self.change_without_undo(tx, |tx| {
                let tree = self.root(self.pending(tx))?;
                if tree.is_empty() {
                    keys.next();
                    return self.put_first(tx, tree, first, decide(number, None));
                }
                let run = self.write_run(tx, tree, &mut keys, &mut decide, &mut records)?;
                run.map_or(Ok(()), |run| self.put_run(tx, run))
            })?;
        }
        Ok(())
    }

    /// Puts the first record of an empty tree.
    fn put_first(
        &self,
        tx: &mut Tx<'_>,
        tree: TreeWord,
        key: &[u8],
        value: Option<impl AsRef<[u8]>>,
    ) -> Result<()> {
        let Some(value) = value else { return Ok(()) };
        let record = self.write_checked(tx, key, value.as_ref())?;
        let place = TreePosition { tree, leaf: None, found: None, held: None };
        self.put_record(tx, &place, Probe::new(key), record).map(drop)
    }

    fn write_checked(&self, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<u64> {
        let value = [value];
        let value_bytes = check_lengths(key, &value)?;
        self.counting.check_length(value_bytes)?;
        self.write_record(tx, key, &value, value_bytes)
    }

    /// Finds the leaf of the next key, and writes the records for all keys that follow in this leaf. Returns
    /// nothing if nothing is to be put.
    #[inline(always)]
    fn write_run<'m, 'k: 'b, 'b, V: AsRef<[u8]>>(
        &'m self,
        tx: &mut Tx<'_>,
        tree: TreeWord,
        keys: &mut Peekable<impl Iterator<Item = (usize, &'k [u8])>>,
        decide: &mut impl FnMut(usize, Option<&[u8]>) -> Option<V>,
        records: &'b mut Records<'m>,
    ) -> Result<Option<Run<'m, 'b>>> {
        let Some((_, first)) = keys.peek().copied() else { return Ok(None) };
        let path = Path::to_key(self.pending(tx), tree, first)?;
        let leaf = path.leaf;
        let (state, fingerprints) = (leaf.state(self.pending(tx))?, leaf.fingerprints(self.pending(tx))?);
        records.begin(&path, first)?;
        let mut last = None;
        while let Some((number, key)) = keys.next_if(|(_, key)| records.has_next(last, key)) {
            last = Some(key);
            let probe = Probe::new(key);
            let candidates = matches(fingerprints, probe.fingerprint) & state.bitmap();
            let view = self.pending(tx);
            let found = find_matching(view, view, &leaf, candidates, probe)?;
            let old = found.map(|found| found.entry.value());
            let Some(value) = decide(number, old) else { continue };
            if old == Some(value.as_ref()) {
                continue;
            }
            let record = self.write_checked(tx, key, value.as_ref())?;
            match found {
                Some(found) => records.replacing.push((found, record)),
                None => {
                    let prefix = leaf.prefix_of(key)?;
                    records.new.push(Item { prefix, record, fingerprint: probe.fingerprint });
                }
            }
        }
        if records.new.is_empty() && records.replacing.is_empty() {
            return Ok(None);
        }
        Ok(Some(Run { path, state, fingerprints, first, records }))
    }

    /// Links the records of a run.
    fn put_run(&self, tx: &mut Tx<'_>, run: Run<'_, '_>) -> Result<()> {
        let Run { path, state, fingerprints, first, records } = run;
        let leaf = &path.leaf;
        let by = self.weight_of_run(records)?;
        self.add_to_tallies(tx, path.tree, first, by)?;
        self.add_to_leaf(tx, leaf, by)?;
        for (found, record) in &records.replacing {
            self.replace_entry(tx, leaf, state, found, *record)?;
        }
        if records.new.is_empty() {
            return Ok(());
        }
        let home = leaf.state(Media(self.region()))?;
        let taken = state.bitmap() | home.bitmap();
        if records.new.len() <= LEAF_SLOTS - taken.count_ones() as usize {
            self.fill_slots(tx, leaf, (state, taken), fingerprints, &records.new)?;
        } else {
            let mut edit = Edit::new(self, tx, None);
            edit.replace_leaf(&path, first, &records.new)?;
            edit.finish()?;
        }
        self.change_len(tx, records.new.len() as i64)
    }

    /// The sum of the weights that a run adds.
    fn weight_of_run(&self, records: &Records<'_>) -> Result<i64> {
        if self.counting == Counting::Nothing {
            return Ok(0);
        }
        let weight = |record| self.counting.weight(self.region(), record);
        let mut by = 0u64;
        for item in &records.new {
            by = by.wrapping_add(weight(item.record)?);
        }
        for (old, record) in &records.replacing {
            by = by.wrapping_add(weight(*record)?).wrapping_sub(weight(old.record)?);
        }
        Ok(by as i64)
    }

    /// Puts new entries into slots that are free on media too (see [`free_slot`](Self::free_slot)).
    ///
    /// PERSIST(I5): the records are durable before any of these words is stored, and one redo record has all
    /// of them. ORDER: readers find the entries through the state, which is stored last.
    fn fill_slots(
        &self,
        tx: &mut Tx<'_>,
        leaf: &Leaf,
        (state, mut taken): (LeafState, u32),
        mut fingerprints: [u64; 4],
        new: &[Item],
    ) -> Result<()> {
        let (mut bitmap, before) = (state.bitmap(), fingerprints);
        let (first_off, _) = leaf.fingerprint_place(0);
        for item in new {
            let slot = taken.trailing_ones() as usize;
            (taken, bitmap) = (taken | 1 << slot, bitmap | 1 << slot);
            tx.store(leaf.prefix_off(slot), item.prefix)?;
            tx.store(leaf.record_off(slot), item.record)?;
            let (word_off, shift) = leaf.fingerprint_place(slot);
            let word = &mut fingerprints[(word_off - first_off) as usize / 8];
            *word = *word & !(0xFF << shift) | u64::from(item.fingerprint) << shift;
        }
        for (i, (word, before)) in fingerprints.iter().zip(before).enumerate() {
            if *word != before {
                tx.store(first_off + 8 * i as u64, *word)?;
            }
        }
        Ok(tx.store(leaf.off, state.next(bitmap).0)?)
    }
}

impl Records<'_> {
    fn begin(&mut self, path: &Path<'_>, key: &[u8]) -> Result<()> {
        self.new.clear();
        self.replacing.clear();
        self.high.clear();
        if let (_, Some(high)) = path.fences(path.steps.len(), key)? {
            high.write_to(&mut self.high);
        }
        Ok(())
    }

    /// Whether a key belongs to the run, of which `last` is the last one so far. No separator is empty.
    #[inline(always)]
    fn has_next(&self, last: Option<&[u8]>, key: &[u8]) -> bool {
        let Some(last) = last else { return true };
        last < key && (self.high.is_empty() || key < &self.high[..])
    }
}

/// Divides a number into parts of about `fill`, as equal as can be.
fn parts_of(count: usize, fill: usize) -> impl Iterator<Item = Range<usize>> {
    let parts = count.div_ceil(fill);
    (0..parts).map(move |part| count * part / parts..count * (part + 1) / parts)
}

impl<'m> Edit<'m, '_, '_> {
    /// Replaces the leaf of a path by leaves that have its entries and new ones, which are in order, and
    /// whose prefixes begin at the leaf's skip.
    fn replace_leaf(&mut self, path: &Path<'m>, key: &[u8], new: &[Item]) -> Result<()> {
        let (leaf, view) = (path.leaf, self.view());
        let mut old = Items::new(leaf.skip());
        old.gather(view, &leaf, leaf.state(view)?)?;
        old.sort(view)?;
        let items = merged(view, old.as_slice(), new)?;
        let fill = if items.len() <= LEAF_SLOTS { LEAF_SLOTS } else { LEAF_FILL };
        let cuts = parts_of(items.len(), fill).skip(1).map(|part| part.start);
        let separators = cuts.map(|cut| separator_at(view, &items, cut)).collect::<Result<Vec<_>>>()?;
        let (low, high) = path.fences(path.steps.len(), key)?;
        let mut children = Vec::with_capacity(separators.len() + 1);
        for (i, part) in parts_of(items.len(), fill).enumerate() {
            let low = i.checked_sub(1).map(|left| &separators[left]).or(low.as_ref());
            let skip = shared_bytes(low, separators.get(i).or(high.as_ref()));
            let items = Items::of(self.view(), &items[part], (leaf.skip(), skip))?;
            children.push(self.build_leaf(&items)?);
        }
        self.retire_leaf(leaf.off)?;
        self.spread(path, key, InnerDraft { children, separators })
    }

    /// Replaces the leaf of a path by the nodes of `row`.
    fn spread<'a>(&mut self, path: &Path<'m>, key: &'a [u8], mut row: InnerDraft<'a>) -> Result<()>
    where
        'm: 'a,
    {
        let depth = path.steps.len();
        if let ([left, right], [separator]) = (&row.children[..], &row.separators[..]) {
            return self.grow(path, depth, key, (*left, *separator, *right));
        }
        for above in (0..depth).rev() {
            if let [only] = row.children[..] {
                return self.replace(path, above + 1, only);
            }
            let (parent, child) = path.steps[above];
            let mut draft = InnerDraft::of(self.view(), &parent, key)?;
            draft.children.splice(child..=child, row.children);
            draft.separators.splice(child..child, row.separators);
            self.retire_inner(&parent)?;
            let fences = path.fences(above, key)?;
            row = self.build_row(path.tree.level() - above, draft, fences)?;
        }
        let mut level = path.tree.level();
        while row.children.len() > 1 {
            level += 1;
            row = self.build_row(level, row, (None, None))?;
        }
        self.store_root(TreeWord::new(row.children[0], level))
    }

    /// Builds the nodes of a level over those of `below`.
    fn build_row<'a>(
        &mut self,
        level: usize,
        below: InnerDraft<'a>,
        (low, high): (Option<Separator<'a>>, Option<Separator<'a>>),
    ) -> Result<InnerDraft<'a>> {
        let count = below.children.len();
        let fill = if count <= FANOUT { FANOUT } else { INNER_FILL };
        let separators: Vec<_> =
            parts_of(count, fill).skip(1).map(|part| below.separators[part.start - 1]).collect();
        let mut children = Vec::with_capacity(separators.len() + 1);
        for (i, part) in parts_of(count, fill).enumerate() {
            let low = i.checked_sub(1).map(|left| &separators[left]).or(low.as_ref());
            let skip = shared_bytes(low, separators.get(i).or(high.as_ref()));
            children.push(self.build_inner(level, skip, below.part(part))?);
        }
        Ok(InnerDraft { children, separators })
    }
}

/// Two ordered lists of entries with prefixes from the same byte on, as one.
fn merged<'m>(view: impl View<'m>, old: &[Item], new: &[Item]) -> Result<Vec<Item>> {
    let key = |item: &Item| Ok::<_, Error>(Record::read(view.region(), item.record)?.key);
    let mut all = Vec::with_capacity(old.len() + new.len());
    let mut new = new.iter().peekable();
    for item in old {
        while let Some(next) = new.peek() {
            if next.prefix > item.prefix || next.prefix == item.prefix && key(next)? > key(item)? {
                break;
            }
            all.extend(new.next());
        }
        all.push(*item);
    }
    all.extend(new);
    Ok(all)
}
