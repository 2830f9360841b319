//! Copies of stores in other pools, with everything that they keep: all versions, kept snapshots, ids,
//! retentions, and the log of commits.
//!
//! A copy is made under a name that nobody asks for, as a restored store is (`backup`), and gets its name by
//! one record. Versions keep their numbers, and so do snapshots. Keyspaces that were dropped are not copied.

use crate::error::Result;
use crate::handle::{Store, StoreInner, last_number};
use crate::keyspace::{Keyspace, KeyspaceInner};
use crate::layout::{
    HAS_TOMBSTONE, INLINE_VERSIONS, PmHistory, PmVector, ROOT_KIND, TABLE_BYTES, VALUE_HEAD_BYTES, ValueWord,
    field,
};
use crate::table_writer::write_value;
use crate::versions::{Slots, Table, Words, append_value, read_value};
use std::sync::Arc;
use tembo_index::WbTree;
use tembo_pmem::Region;
use tembo_pool::{Pool, Tx};

/// Keys that are copied by one record, and bytes of values after which there are fewer.
const GROUP_KEYS: usize = 64;
const GROUP_BYTES: usize = 1 << 20;

impl Store {
    /// Makes a copy of the store under its name in another pool, with all that it keeps; `note` is told how
    /// many keys were copied. Commits to the store wait meanwhile.
    ///
    /// # Errors
    ///
    /// [`StoreExists`](crate::Error::StoreExists) if the other pool has something of that name; as for [`open`](Self::open) and
    /// commits. What was made is left under another name, which the next copy takes away.
    pub fn copy_to(&self, pool: &Pool, mut note: impl FnMut(u64)) -> Result<Store> {
        let name = self.name().to_owned();
        let hidden = crate::backup::hidden_store(pool, &name)?;
        let store = Store::open(pool, &hidden)?;
        let from = &self.inner;
        let lead = from.commits.hold();
        copy_names_of_snapshots(from, &store.inner)?;
        for keyspace in from.all_keyspaces()? {
            copy_keyspace(&keyspace.inner, &store.inner, &mut note)?;
        }
        copy_log(from, &store.inner)?;
        let mut to = store.inner.commits.lead();
        let (source, tx) = (from.pool.region(), &mut to.tx);
        let last_id = source.load_u64(from.off + field!(PmStore.last_keyspace))?;
        tx.store(store.inner.off + field!(PmStore.last_keyspace), last_id)?;
        tx.store(store.inner.off + field!(PmStore.last), last_number(source, from.off)?)?;
        tx.remove_root(&hidden)?;
        tx.set_root(&name, ROOT_KIND, store.inner.off)?;
        tx.commit_and_begin()?;
        drop((to, lead));
        // It is open under its other name until here, and knows nothing of what was copied.
        drop(store);
        Store::open(pool, &name)
    }

    /// Whether another store has the same contents, history included: keyspaces with their ids and
    /// retentions, each version of each key with its number and value, kept snapshots, and the log.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if one of them is damaged.
    pub fn is_same(&self, other: &Store) -> Result<bool> {
        let (a, b) = (&self.inner, &other.inner);
        let _leads = (a.commits.hold(), b.commits.hold());
        let logs = (a.history.log.get(), b.history.log.get());
        let are_logs_same = match &logs {
            (None, None) => true,
            (Some(one), Some(other)) => {
                one.audit() == other.audit()
                    && log_words(a, one.head)? == log_words(b, other.head)?
                    && are_trees_same(one.tree(), other.tree())?
            }
            _ => false,
        };
        let numbers = (last_number(a.pool.region(), a.off)?, last_number(b.pool.region(), b.off)?);
        if !are_logs_same || numbers.0 != numbers.1 || !are_trees_same(&a.kept, &b.kept)? {
            return Ok(false);
        }
        let (ours, theirs) = (a.all_keyspaces()?, b.all_keyspaces()?);
        if ours.len() != theirs.len() {
            return Ok(false);
        }
        for (one, other) in ours.iter().zip(&theirs) {
            if !are_keyspaces_same(one, other)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The words of a log's head that do not say where anything lies.
fn log_words(store: &StoreInner, head: u64) -> Result<[u64; 3]> {
    let load = |off| store.pool.region().load_u64(head + off);
    Ok([
        load(field!(PmHistory.audit))?,
        load(field!(PmHistory.log_after))?,
        load(field!(PmHistory.log_bytes))?,
    ])
}

fn are_trees_same(one: &WbTree, other: &WbTree) -> Result<bool> {
    let (mut one, mut other) = (one.iter(), other.iter());
    loop {
        match (one.advance()?, other.advance()?) {
            (None, None) => return Ok(true),
            (a, b) if a == b => {}
            _ => return Ok(false),
        }
    }
}

fn keyspace_words(keyspace: &KeyspaceInner, region: &Region) -> Result<[u64; 3]> {
    let load = |off| region.load_u64(keyspace.head + off);
    Ok([
        load(field!(PmKeyspace.retention))?,
        load(field!(PmKeyspace.retained_from))?,
        load(field!(PmKeyspace.cut))?,
    ])
}

fn are_keyspaces_same(one: &Keyspace, other: &Keyspace) -> Result<bool> {
    let (a, b) = (&one.inner, &other.inner);
    let (ours, theirs) = (a.index.pool().region(), b.index.pool().region());
    if (a.id, &a.name) != (b.id, &b.name) || keyspace_words(a, ours)? != keyspace_words(b, theirs)? {
        return Ok(false);
    }
    let (mut one, mut other) = (a.index.iter(), b.index.iter());
    loop {
        let (one, other) = match (one.advance_place()?, other.advance_place()?) {
            (None, None) => return Ok(true),
            (Some(one), Some(other)) => (one, other),
            _ => return Ok(false),
        };
        if one.0 != other.0 || history(Table::at(one.1)?, ours)? != history(Table::at(other.1)?, theirs)? {
            return Ok(false);
        }
    }
}

/// The versions of a key: number, whether it was collected, and value.
fn history(table: Table, region: &Region) -> Result<Vec<(u64, bool, Option<Vec<u8>>)>> {
    let mut all = Vec::new();
    for version in table.versions(region)? {
        let is_collected = version.value == ValueWord::Collected;
        let value = if is_collected { None } else { read_value(region, version.value, table.off)? };
        all.push((version.number, is_collected, value));
    }
    Ok(all)
}

fn copy_names_of_snapshots(from: &StoreInner, to: &StoreInner) -> Result<()> {
    let mut lead = to.commits.lead();
    copy_tree(&from.kept, &to.kept, &mut lead.tx)
}

/// Copies the records of a tree that lead nowhere.
fn copy_tree(from: &WbTree, to: &WbTree, tx: &mut Tx<'_>) -> Result<()> {
    let (mut walk, mut keys, mut bytes) = (from.iter(), 0, 0);
    while let Some((key, value)) = walk.advance()? {
        to.put(tx, key, &[value])?;
        (keys, bytes) = (keys + 1, bytes + key.len() + value.len());
        if keys >= GROUP_KEYS || bytes >= GROUP_BYTES {
            tx.commit_and_begin()?;
            (keys, bytes) = (0, 0);
        }
    }
    Ok(tx.commit_and_begin()?)
}

fn copy_log(from: &StoreInner, to: &StoreInner) -> Result<()> {
    let Some(log) = from.history.log.get() else { return Ok(()) };
    let [audit, after, bytes] = log_words(from, log.head)?;
    let mut lead = to.commits.lead();
    let tx = &mut lead.tx;
    let tree = WbTree::create_unnamed(tx)?;
    let head = tx.alloc(size_of::<PmHistory>() as u64)?;
    let format = from.pool.region().load_u64(log.head)?;
    tx.write_fresh_words(head, &[format, tree.head(), audit, after, bytes], &[0; 3])?;
    tx.store(to.off + field!(PmStore.history), head)?;
    tx.commit_and_begin()?;
    copy_tree(log.tree(), &tree, tx)
}

fn copy_keyspace(from: &KeyspaceInner, to: &Arc<StoreInner>, note: &mut impl FnMut(u64)) -> Result<()> {
    let source = from.index.pool().region();
    let [_, retained_from, cut] = keyspace_words(from, source)?;
    let mut lead = to.commits.lead();
    let tx = &mut lead.tx;
    let head = Keyspace::create(tx, from.id, from.retention(), retained_from)?;
    tx.store(head + field!(PmKeyspace.cut), cut)?;
    to.names.put(tx, from.name.as_bytes(), &[&head.to_ne_bytes()])?;
    tx.commit_and_begin()?;
    let copy = Keyspace::open(&to.pool, Arc::downgrade(&to.active), &from.name, head)?.inner;
    let mut walk = from.index.iter();
    let (mut keys, mut bytes) = (0, 0);
    while let Some((key, place)) = walk.advance_place()? {
        bytes += copy_table(tx, Table::at(place)?, source, key, &copy.index)?;
        keys += 1;
        if keys >= GROUP_KEYS || bytes >= GROUP_BYTES {
            tx.commit_and_begin()?;
            note(keys as u64);
            (keys, bytes) = (0, 0);
        }
    }
    note(keys as u64);
    Ok(tx.commit_and_begin()?)
}

/// Copies the table of a key with its values; returns their bytes.
fn copy_table(tx: &mut Tx<'_>, table: Table, source: &Region, key: &[u8], to: &WbTree) -> Result<usize> {
    let slots = table.slots(source)?;
    let (mut words, mut bytes) = (Vec::new(), key.len() + TABLE_BYTES as usize);
    for index in 0..slots.capacity {
        let (pair, value_bytes) = copy_slot(tx, slots, index, source)?;
        words.extend(pair);
        bytes += value_bytes;
    }
    let mut image = [0; TABLE_BYTES as usize / 8];
    match table.vector(source)? {
        None => {
            image[0] = source.word(table.off)?;
            debug_assert!(image[0] == 0 || image[0] & HAS_TOMBSTONE != 0, "no vector");
            image[1..].copy_from_slice(&words[..2 * INLINE_VERSIONS as usize]);
        }
        Some(_) => {
            image[0] = tx.alloc(size_of::<PmVector>() as u64 + 8 * words.len() as u64)?;
            tx.write_fresh_words(image[0], &[slots.capacity, slots.spare], &words)?;
            bytes += 8 * words.len();
        }
    }
    Table::put_image(key, &image, |value| to.put(tx, key, value))?;
    Ok(bytes)
}

/// The words of a slot with a copy of its value; and its bytes.
fn copy_slot(tx: &mut Tx<'_>, slots: Slots, index: u64, source: &Region) -> Result<([u64; 2], usize)> {
    let words = slots.words(source, index)?;
    let Some(value @ ValueWord::Block(_)) = ValueWord::decode(words) else { return Ok((words, 0)) };
    let mut bytes = Vec::new();
    append_value(source, value, slots.at(index), &mut bytes)?;
    let copy = write_value(tx, Some(&bytes))?;
    Ok((copy.encode(crate::layout::number_of(words[0])), bytes.len() + VALUE_HEAD_BYTES as usize))
}
