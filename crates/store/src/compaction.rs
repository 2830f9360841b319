//! Moves blocks of the store to other places, for a compaction of the pool.
//!
//! A step goes to one leaf of one tree. Records and nodes of indexes move as [`WbTree::compact_at`] says, a
//! version table with the record of its key. Then the vectors of the leaf's tables move, and then their
//! values: each by a copy, and by one word that leads to the copy, in one record of the pool. A crash leaves
//! the old block or the new one.
//!
//! # Readers and writers
//!
//! A step keeps all lanes from committing, so nobody changes words of a table while it moves. A reader holds
//! a pin from its lookup to the end of its reading. In an old table or an old vector it finds what was there
//! when it was replaced: no later commit stores there, and the blocks to which these words lead are not
//! reused before the pin has ended. A snapshot that is registered therefore finds its versions, and a reader
//! that is not finds those of the number that it has loaded before.
//!
//! The heads of the store, of its trees, keyspaces and log do not move: handles know where they lie.

use crate::error::Result;
use crate::handle::{Store, StoreInner};
use crate::keyspace::KeyspaceInner;
use crate::layout::{VALUE_HEAD_BYTES, VECTOR_HEAD_BYTES, VERSION_BYTES, ValueWord, field};
use crate::versions::{Table, value_bytes};
use std::ops::Bound;
use std::sync::Arc;
use tembo_index::WbTree;
use tembo_pool::{Compaction, KeptSpace, Tx};

/// A step stops after the block with which it has copied this many bytes.
const BYTES_PER_STEP: u64 = 128 << 10;
/// Words that one record exchanges, at most.
const MOVES_PER_RECORD: usize = 64;

/// Where a compaction of a store goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorePlace {
    part: Part,
    /// The key in the part's tree.
    from: Vec<u8>,
}

/// The parts of a store, in the order in which they are compacted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Names,
    Kept,
    Log,
    /// The first keyspace with this name or a later one.
    Keyspace(String),
}

/// The progress of one step of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreCompactionStep {
    /// How many bytes of records, nodes, vectors and values were copied.
    pub moved_bytes: u64,
    /// Where the next step goes on; `None` at the end of the store.
    pub next: Option<StorePlace>,
}

impl StoreCompactionStep {
    fn go_on(moved_bytes: u64, part: Part, from: Vec<u8>) -> StoreCompactionStep {
        StoreCompactionStep { moved_bytes, next: Some(StorePlace { part, from }) }
    }
}

impl Store {
    /// Moves the blocks that lie in the compaction's slabs and that one leaf of one of the store's trees
    /// leads to. Begins at `place`, whose default is the beginning of the store, and says where to go on. The
    /// contents do not change, for no snapshot. Waits until nobody commits; commits wait until it returns,
    /// readers never. Copies up to 128 KiB and one block.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) if the pool is full, damaged, open for reading only, or its device
    /// failed. Everything is where it was, or where the step has moved it.
    ///
    /// # Panics
    ///
    /// If the compaction is one of another pool.
    pub fn compact_at(&self, compaction: &Compaction, place: &StorePlace) -> Result<StoreCompactionStep> {
        self.check_writable()?;
        let inner = &self.inner;
        let mut lead = inner.commits.lead();
        let tx = &mut lead.tx;
        let outcome = inner.compact_part(tx, compaction, place);
        tx.use_kept_space(KeptSpace::None);
        match &outcome {
            Ok(step) if step.next.is_none() => tx.give_up_slabs(),
            Ok(_) => {}
            Err(_) => tx.roll_back(),
        }
        outcome
    }
}

impl StoreInner {
    fn compact_part(
        self: &Arc<StoreInner>,
        tx: &mut Tx<'_>,
        compaction: &Compaction,
        StorePlace { part, from }: &StorePlace,
    ) -> Result<StoreCompactionStep> {
        let (tree, after) = match part {
            Part::Names => (Some(self.names.clone()), Part::Kept),
            Part::Kept => (Some(self.kept.clone()), Part::Log),
            Part::Log => {
                (self.history.log.get().map(|log| log.tree().clone()), Part::Keyspace(String::new()))
            }
            Part::Keyspace(name) => return self.compact_keyspace(tx, compaction, name, from),
        };
        let Some(tree) = tree else { return Ok(StoreCompactionStep::go_on(0, after, Vec::new())) };
        let (moved_bytes, next) = compact_leaf(tx, &tree, compaction, from)?;
        Ok(match next {
            Some(next) => StoreCompactionStep::go_on(moved_bytes, part.clone(), next),
            None => StoreCompactionStep::go_on(moved_bytes, after, Vec::new()),
        })
    }

    fn compact_keyspace(
        self: &Arc<StoreInner>,
        tx: &mut Tx<'_>,
        compaction: &Compaction,
        name: &str,
        from: &[u8],
    ) -> Result<StoreCompactionStep> {
        let found = self.keyspace_names()?.into_iter().find(|found| found.as_str() >= name);
        let keyspace = found.map(|found| self.find(&found)).transpose()?.flatten();
        let Some(keyspace) = keyspace else { return Ok(StoreCompactionStep { moved_bytes: 0, next: None }) };
        // A keyspace that was dropped since the last step has left its place to the one after it.
        let from = if keyspace.name() == name { from } else { &[] };
        let part = Part::Keyspace(keyspace.name().to_owned());
        let (mut moved_bytes, next) = compact_leaf(tx, &keyspace.inner.index, compaction, from)?;
        if next.as_deref() == Some(from) {
            return Ok(StoreCompactionStep::go_on(moved_bytes, part, from.to_vec()));
        }
        let (of_tables, stopped_at) = compact_tables(tx, &keyspace.inner, compaction, from, next.as_deref())?;
        moved_bytes += of_tables;
        Ok(match stopped_at.or(next) {
            Some(next) => StoreCompactionStep::go_on(moved_bytes, part, next),
            // The name that follows this one.
            None => {
                let after = format!("{}\0", keyspace.name());
                StoreCompactionStep::go_on(moved_bytes, Part::Keyspace(after), Vec::new())
            }
        })
    }
}

/// Moves what lies at a leaf, durably; returns the bytes, and the key from which to go on, which is `from`
/// if there is more to be moved there.
fn compact_leaf(
    tx: &mut Tx<'_>,
    tree: &WbTree,
    compaction: &Compaction,
    from: &[u8],
) -> Result<(u64, Option<Vec<u8>>)> {
    let step = tree.compact_at(tx, compaction, from)?;
    tx.commit_and_begin()?;
    Ok((step.moved_bytes, step.next))
}

/// Moves the vectors and the values of the tables from `from` up to `end`; returns the bytes, and the key at
/// which it has stopped before the end.
fn compact_tables(
    tx: &mut Tx<'_>,
    keyspace: &KeyspaceInner,
    compaction: &Compaction,
    from: &[u8],
    end: Option<&[u8]>,
) -> Result<(u64, Option<Vec<u8>>)> {
    let mut tables = Vec::new();
    let mut walk =
        keyspace.index.range::<&[u8]>((Bound::Included(from), end.map_or(Bound::Unbounded, Bound::Excluded)));
    while let Some((key, place)) = walk.advance_place()? {
        tables.push((key.to_vec(), Table::at(place)?));
    }
    drop(walk);
    let mut moves = Moves { compaction, bytes: 0, in_record: 0 };
    for (key, table) in tables {
        tx.use_kept_space(KeptSpace::Half);
        let is_done = moves.move_table(tx, table)?;
        if !is_done || moves.bytes >= BYTES_PER_STEP {
            moves.commit(tx)?;
            return Ok((moves.bytes, Some(key)));
        }
    }
    moves.commit(tx)?;
    Ok((moves.bytes, None))
}

/// The moves of a step.
struct Moves<'c> {
    compaction: &'c Compaction,
    bytes: u64,
    /// Since the last commit.
    in_record: usize,
}

impl Moves<'_> {
    fn commit(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        if self.in_record > 0 {
            tx.commit_and_begin()?;
        }
        self.in_record = 0;
        Ok(())
    }

    fn note(&mut self, tx: &mut Tx<'_>, bytes: u64) -> Result<()> {
        self.bytes += bytes;
        self.in_record += 1;
        if self.in_record >= MOVES_PER_RECORD {
            self.commit(tx)?;
            tx.use_kept_space(KeptSpace::Half);
        }
        Ok(())
    }

    /// Moves the vector of a table, or else values of it; returns whether all are where they may stay.
    fn move_table(&mut self, tx: &mut Tx<'_>, table: Table) -> Result<bool> {
        if let Some(vector) = table.vector(tx)?.filter(|vector| self.compaction.has(*vector)) {
            let capacity = table.slots(tx)?.capacity;
            let bytes = VECTOR_HEAD_BYTES + capacity * VERSION_BYTES;
            let new = copy_block(tx, vector, bytes)?;
            // PERSIST(I2): the copy is durable before the table leads to it.
            tx.store(table.off + field!(PmTable.vector), new)?;
            tx.free(vector)?;
            self.note(tx, bytes)?;
            // Words of a vector in this record are not changed by it.
            self.commit(tx)?;
            tx.use_kept_space(KeptSpace::Half);
        }
        let slots = table.slots(tx)?;
        for index in 0..slots.capacity {
            let Some(ValueWord::Block(block)) = ValueWord::decode(slots.words(tx, index)?) else { continue };
            if !self.compaction.has(block) {
                continue;
            }
            let bytes = VALUE_HEAD_BYTES + value_bytes(tx.pool().region(), block)?;
            let new = copy_block(tx, block, bytes)?;
            // PERSIST(I2): the copy is durable before the version leads to it.
            tx.store(slots.at(index) + field!(PmVersion.value), new)?;
            tx.free(block)?;
            self.note(tx, bytes)?;
            if self.bytes >= BYTES_PER_STEP {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Copies a block that nobody changes into a new one.
fn copy_block(tx: &mut Tx<'_>, from: u64, bytes: u64) -> Result<u64> {
    use std::sync::atomic::Ordering;
    let pool = tx.pool().clone();
    let words = pool.region().words(from, bytes.div_ceil(8))?;
    let words: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
    let to = tx.alloc(8 * words.len() as u64)?;
    tx.write_fresh_words(to, &[], &words)?;
    Ok(to)
}
