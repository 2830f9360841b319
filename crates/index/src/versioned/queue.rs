//! The queues of dead blocks: a block that has left the newest version waits until no held version needs it.
//!
//! A transaction takes items off the front, but none that it has put there itself, and puts new ones at the
//! back. An empty queue begins again at the start of its chunk. In a map without snapshots every version
//! takes off the items of the one before, so the queue stays in one chunk.

use super::layout::{CHUNK_BYTES, CHUNK_ITEMS, PmVersionedDead, at};
use super::readers::Retained;
use super::view::region;
use crate::error::{Result, corrupt};
use std::sync::atomic::Ordering;
use tembo_pmem::Region;
use tembo_pool::Tx;

/// The kind of block that an item of a queue stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeadKind {
    Record = 0,
    /// A node alone.
    Node = 1,
    /// A node with everything below it in its last version.
    Subtree = 3,
}

/// A dead block, or a dead subtree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dead {
    pub(crate) off: u64,
    pub(crate) kind: DeadKind,
    /// For a subtree, the birth of its uppermost node.
    pub(crate) birth: u64,
    pub(crate) death: u64,
}

impl Dead {
    pub(crate) fn record(off: u64, birth: u64, death: u64) -> Dead {
        Dead { off, kind: DeadKind::Record, birth, death }
    }

    pub(crate) fn node(off: u64, birth: u64, death: u64) -> Dead {
        Dead { off, kind: DeadKind::Node, birth, death }
    }

    pub(crate) fn subtree(off: u64, birth: u64, death: u64) -> Dead {
        Dead { off, kind: DeadKind::Subtree, birth, death }
    }

    /// Reads the item that lies at `item`.
    pub(crate) fn decode(item: u64, [block, birth, death]: [u64; 3]) -> Result<Dead> {
        let kind = match block & 15 {
            0 => DeadKind::Record,
            1 => DeadKind::Node,
            3 => DeadKind::Subtree,
            other => return Err(corrupt("a dead block", item, "a record, a node or a subtree", other)),
        };
        Ok(Dead { off: block & !15, kind, birth, death })
    }

    fn encode(&self) -> [u64; 3] {
        [self.off | self.kind as u64, self.birth, self.death]
    }
}

/// How a structure describes its dead subtrees.
pub trait Reclaim: Sized + 'static {
    /// The last version that changed something in a dead subtree.
    fn last_change(region: &Region, dead: &Dead) -> Result<u64>;

    /// The parts of a dead subtree: its uppermost node, and the blocks that it leads to in its last version.
    fn parts(region: &Region, dead: &Dead) -> Result<Vec<Dead>>;
}

/// The words of a queue's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueWords {
    pub(crate) first: u64,
    pub(crate) first_idx: u64,
    pub(crate) last: u64,
    pub(crate) last_idx: u64,
    pub(crate) count: u64,
}

impl QueueWords {
    const WORDS: usize = 5;

    /// Reads a queue's head.
    pub(crate) fn load(region: &Region, off: u64) -> Result<QueueWords> {
        let words = region.words(off, Self::WORDS as u64)?;
        let [first, first_idx, last, last_idx, count] =
            std::array::from_fn(|i| words[i].load(Ordering::Acquire));
        let queue = QueueWords { first, first_idx, last, last_idx, count };
        if first_idx > CHUNK_ITEMS
            || last_idx > CHUNK_ITEMS
            || (first == 0) != (last == 0)
            || (first == 0 && count > 0)
        {
            return Err(corrupt("the head of a queue", off, "places in chunks", format!("{queue:?}")));
        }
        Ok(queue)
    }

    fn words(&self) -> [u64; Self::WORDS] {
        [self.first, self.first_idx, self.last, self.last_idx, self.count]
    }
}

/// The offset of an item in a chunk.
pub(crate) fn item_off(chunk: u64, idx: u64) -> u64 {
    chunk.saturating_add(at!(PmVersionedChunk.items) + idx * size_of::<PmVersionedDead>() as u64)
}

/// A queue in a transaction.
#[derive(Debug)]
pub(crate) struct Queue {
    off: u64,
    before: QueueWords,
    now: QueueWords,
    /// The number of items from before the transaction that it has not popped.
    poppable: u64,
    /// Whether the chunk for the next item is new in the transaction.
    is_last_new: bool,
}

impl Queue {
    /// The queue at `off`, to which the transaction has not stored yet.
    pub(crate) fn open(tx: &Tx<'_>, off: u64) -> Result<Queue> {
        let before = QueueWords::load(region(tx), off)?;
        Ok(Queue { off, before, now: before, poppable: before.count, is_last_new: false })
    }

    /// The number of items from before the transaction that it has not popped.
    pub(crate) fn poppable(&self) -> u64 {
        self.poppable
    }

    /// The number of items.
    pub(crate) fn count(&self) -> u64 {
        self.now.count
    }

    /// The oldest item from before the transaction.
    pub(crate) fn front(&self, tx: &Tx<'_>) -> Result<Option<Dead>> {
        if self.poppable == 0 {
            return Ok(None);
        }
        let (chunk, idx) = match self.now.first_idx {
            CHUNK_ITEMS => (self.next_chunk(tx)?, 0),
            idx => (self.now.first, idx),
        };
        let (off, region) = (item_off(chunk, idx), region(tx));
        // The item can be read from media: the transaction does not overwrite items that it may take off.
        Dead::decode(off, [region.load_u64(off)?, region.load_u64(off + 8)?, region.load_u64(off + 16)?])
            .map(Some)
    }

    /// Takes the oldest item off.
    pub(crate) fn pop(&mut self, tx: &mut Tx<'_>) -> Result<Option<Dead>> {
        let Some(dead) = self.front(tx)? else { return Ok(None) };
        if self.now.first_idx == CHUNK_ITEMS {
            let next = self.next_chunk(tx)?;
            tx.free(self.now.first)?;
            (self.now.first, self.now.first_idx) = (next, 0);
        }
        self.now.first_idx += 1;
        self.now.count -= 1;
        self.poppable -= 1;
        if self.now.count == 0 {
            if self.now.first != self.now.last {
                let found = format!("{:?}", self.now);
                return Err(corrupt("the head of a queue", self.off, "an empty queue in one chunk", found));
            }
            (self.now.first_idx, self.now.last_idx) = (0, 0);
        }
        Ok(Some(dead))
    }

    fn next_chunk(&self, tx: &Tx<'_>) -> Result<u64> {
        match tx.load(self.now.first.saturating_add(at!(PmVersionedChunk.next)))? {
            0 => Err(corrupt("a queue", self.now.first, "another chunk", "the end")),
            next => Ok(next),
        }
    }

    /// Puts an item at the back.
    pub(crate) fn push(&mut self, tx: &mut Tx<'_>, dead: &Dead) -> Result<()> {
        if self.now.last == 0 || self.now.last_idx == CHUNK_ITEMS {
            let chunk = tx.alloc(CHUNK_BYTES)?;
            tx.write_fresh(chunk, &[0; at!(PmVersionedChunk.items) as usize])?;
            match self.now.last {
                0 => (self.now.first, self.now.first_idx) = (chunk, 0),
                // PERSIST(I5): the chunk is new in this transaction, which makes it durable before it
                // stores this link.
                last => tx.store(last.saturating_add(at!(PmVersionedChunk.next)), chunk)?,
            }
            (self.now.last, self.now.last_idx, self.is_last_new) = (chunk, 0, true);
        }
        let (off, item) = (item_off(self.now.last, self.now.last_idx), dead.encode());
        match self.is_last_new {
            true => tx.write_fresh(off, bytemuck::bytes_of(&item))?,
            false => tx.lines().store_words(off, &item)?,
        }
        self.now.last_idx += 1;
        self.now.count = self
            .now
            .count
            .checked_add(1)
            .ok_or_else(|| corrupt("the head of a queue", self.off, "fewer items", self.now.count))?;
        Ok(())
    }

    /// Stores the changed words of the head.
    pub(crate) fn close(self, tx: &mut Tx<'_>) -> Result<()> {
        if self.before == self.now {
            return Ok(());
        }
        let (mut mask, mut words) = (0, [0; 8]);
        for (i, (before, now)) in self.before.words().into_iter().zip(self.now.words()).enumerate() {
            words[i] = now;
            mask |= u8::from(before != now) << i;
        }
        Ok(tx.lines().store_line(self.off, mask, &words)?)
    }
}

/// Both queues of a map, in a transaction.
pub(crate) struct Queues {
    header: u64,
    pub(crate) young: Queue,
    /// Opened when it is first needed; most versions do not need it.
    old: Option<Queue>,
    /// Whether a held version was found to need an item.
    has_needed: bool,
}

impl Queues {
    pub(crate) fn open(tx: &Tx<'_>, header: u64) -> Result<Queues> {
        let young = Queue::open(tx, header + at!(PmVersionedHead.young))?;
        Ok(Queues { header, young, old: None, has_needed: false })
    }

    pub(crate) fn old(&mut self, tx: &Tx<'_>) -> Result<&mut Queue> {
        match &mut self.old {
            Some(old) => Ok(old),
            old => Ok(old.insert(Queue::open(tx, self.header + at!(PmVersionedHead.old))?)),
        }
    }

    /// Frees the block or subtree of an item, or puts the item into the old queue; returns how many blocks
    /// were looked at.
    pub(crate) fn free_or_keep<S: Reclaim>(
        &mut self,
        tx: &mut Tx<'_>,
        dead: Dead,
        retained: &Retained,
    ) -> Result<usize> {
        if dead.kind != DeadKind::Subtree {
            self.free_or_keep_block(tx, dead, retained)?;
            return Ok(1);
        }
        // Each version from the last change to the death has the whole subtree, so its parts need not be
        // looked at.
        if retained.any_in(dead.birth.max(S::last_change(region(tx), &dead)?), dead.death) {
            self.has_needed = true;
            self.old(tx)?.push(tx, &dead)?;
            return Ok(1);
        }
        let parts = S::parts(region(tx), &dead)?;
        for part in &parts {
            match part.kind {
                DeadKind::Subtree => self.young.push(tx, part)?,
                _ => self.free_or_keep_block(tx, *part, retained)?,
            }
        }
        Ok(parts.len())
    }

    fn free_or_keep_block(&mut self, tx: &mut Tx<'_>, dead: Dead, retained: &Retained) -> Result<()> {
        if retained.any_in(dead.birth, dead.death) {
            self.has_needed = true;
            return self.old(tx)?.push(tx, &dead);
        }
        Ok(tx.free(dead.off)?)
    }

    /// Stores the changed words; returns whether a held version was found to need an item.
    pub(crate) fn close(self, tx: &mut Tx<'_>) -> Result<bool> {
        self.young.close(tx)?;
        self.old.map_or(Ok(()), |old| old.close(tx))?;
        Ok(self.has_needed)
    }
}
