//! Transactions: changes that become durable together, with one fence.

mod commit;
mod gather;
mod lines;
mod slabs;
mod unlogged;

use commit::commit;

use crate::alloc::classes::MAX_SLAB_CHUNKS;
use crate::alloc::slab::SlabRef;
use crate::alloc::{Block, Room, Wanted};
use crate::layout::{PmEntry, PmRecord, PmZone, TAG_BYTES, tag_off};
use crate::log::lane::{Lane, LaneHold, Tail};
use crate::log::lines::StoredLines;
use crate::log::record::Change;
use crate::pool::{Pool, PoolInner};
use crate::{Error, Result};
use slabs::BitChange;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use tembo_pmem::{LINE_BYTES, Region, offset_of, size_of};
use tembo_sync::hash_u64_to_bits;

/// New data up to this many bytes is covered by the record's checksum; more is fenced before the record.
/// At about 10 bytes per nanosecond this much costs as long to sum as a fence takes.
const COVERED_MAX_BYTES: u64 = 2048;
/// As [`COVERED_MAX_BYTES`], where a fence synchronises with a device: that takes as long as summing megabytes.
pub(crate) const COVERED_MAX_SYNCED_BYTES: u64 = 8 << 20;
/// Writes of new data from this length on are flushed at once, past the caches where that is possible.
const WRITE_THROUGH_BYTES: usize = 1024;
/// For the lines of blocks from this size on, room is made before the commit, which cannot fail for the want of memory.
const LARGE_BYTES: u64 = 1 << 20;
/// Up to this many steps or blocks are searched one by one; beyond, an index is kept.
const SEARCH_MAX: usize = 16;
/// So much of what the touch table says of a commit's lines is fetched while the record is made.
const PREFETCHED_MAX: usize = 64;
/// A longer list of lines is not kept for the lane's next transaction.
const TOUCHED_KEPT: usize = 1 << 16;
/// More blocks than this are filtered before they are searched.
const FILTER_MIN: usize = 3;

/// A block allocated in the transaction.
#[derive(Debug)]
struct Fresh {
    block: Block,
    /// Freed again in the same transaction.
    cancelled: bool,
    /// What was written: covered by the record, or fenced before it.
    written: (u64, u64),
    /// What of it was not flushed yet.
    unflushed: (u64, u64),
}

impl Fresh {
    /// Extends what was written, to whole words (which lie in one line). A gap between two writes is covered as well,
    /// hence has to be flushed.
    fn note_written(&mut self, start: u64, end: u64) {
        if start == end {
            return;
        }
        let (start, end) = (start & !7, end.next_multiple_of(8));
        let (old_start, old_end) = self.written;
        if old_start != old_end {
            let gap = if start > old_end { (old_end, start) } else { (end, old_start) };
            if gap.0 < gap.1 {
                self.unflushed = union(self.unflushed, gap);
            }
        }
        self.written = union(self.written, (start, end));
    }
}

/// A step of the transaction, so that it can be taken back.
#[derive(Debug)]
enum Step {
    /// A word that the record will change. `previous` is an earlier step for the same word.
    Redo { off: u64, value: u64, previous: Option<u32>, superseded: bool },
    /// A word of this transaction's own memory, changed in place.
    Direct { off: u64, old: u64 },
    /// A block of this transaction was freed in it.
    Cancel { fresh: usize },
}

/// The volatile state of a transaction. Kept in the lane, so that its buffers are reused.
#[derive(Debug, Default)]
pub(crate) struct TxWork {
    steps: Vec<Step>,
    /// A bit for each hashed word that a step changes by the record: of most words it tells that none does.
    redo_filter: u64,
    /// Word to its last step; complete only beyond [`SEARCH_MAX`] steps.
    step_index: hashbrown::HashMap<u64, u32, foldhash::fast::FixedState>,
    fresh: Vec<Fresh>,
    /// Start of a block to its number in `fresh`; complete only beyond [`SEARCH_MAX`] blocks.
    fresh_index: BTreeMap<u64, u32>,
    fresh_filter: FreshFilter,
    freed: Vec<Block>,
    /// Words that are stored without a step for each.
    stored_lines: StoredLines,
    /// Scratch of the commit.
    lines: Vec<u64>,
    home_lines: Vec<u64>,
    touched: Vec<u64>,
    bits: Vec<BitChange>,
    pub(super) new_slabs: Vec<SlabRef>,
    homes: Vec<(u64, Change)>,
}

/// Says of most offsets that they lie in no block of the transaction: a bit per hashed 512 bytes.
#[derive(Debug)]
struct FreshFilter {
    bits: [u64; 64],
    used: bool,
}

impl Default for FreshFilter {
    fn default() -> Self {
        FreshFilter { bits: [0; 64], used: false }
    }
}

impl FreshFilter {
    const UNIT_SHIFT: u32 = 9;

    fn place(unit: u64) -> (usize, u64) {
        let hash = hash_u64_to_bits(unit, 12);
        ((hash / 64) as usize, 1 << (hash % 64))
    }

    fn add(&mut self, off: u64, bytes: u64) {
        self.used = true;
        let units = off >> Self::UNIT_SHIFT..=(off + bytes - 1) >> Self::UNIT_SHIFT;
        if units.end() - units.start() >= 4096 {
            self.bits = [u64::MAX; 64];
            return;
        }
        for unit in units {
            let (word, bit) = Self::place(unit);
            self.bits[word] |= bit;
        }
    }

    #[inline]
    fn may_have(&self, off: u64) -> bool {
        let (word, bit) = Self::place(off >> Self::UNIT_SHIFT);
        self.bits[word] & bit != 0
    }

    /// Forgets everything.
    #[cold]
    fn clear(&mut self) {
        *self = FreshFilter::default();
    }
}

/// How much a transaction may use of the space that is kept for those that give some back ([`Tx::use_kept_space`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeptSpace {
    /// Nothing of it.
    #[default]
    None,
    /// Half of it: for what will give space back, if not at once.
    Half,
    /// All of it: for what frees more than it takes.
    All,
}

/// A point in a transaction to which it can be taken back.
#[derive(Debug, Clone, Copy)]
pub struct Savepoint {
    steps: usize,
    fresh: usize,
    freed: usize,
}

/// The words of a pool as a transaction sees them ([`Tx::view`]).
#[derive(Clone, Copy)]
pub struct TxView<'t> {
    region: &'t Region,
    work: &'t TxWork,
}

impl TxView<'_> {
    /// As [`Tx::load`].
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the offset leads nowhere.
    #[inline(always)]
    pub fn load(self, off: u64) -> Result<u64> {
        match self.work.redo_step(off) {
            Some(step) => Ok(self.work.redo_value(step)),
            None => Ok(self.region.load_u64(off)?),
        }
    }
}

impl std::fmt::Debug for TxView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TxView").field("work", &self.work).finish_non_exhaustive()
    }
}

/// A transaction on a pool.
///
/// Loads see the transaction's own stores; other threads see nothing of it before it is durable. Dropping it
/// takes everything back. Isolation from other writers is the caller's: words that it changes must not be
/// changed through another lane until [`commit`](Self::commit) has returned.
pub struct Tx<'l> {
    lane: LaneHold<'l>,
}

impl<'l> Tx<'l> {
    pub(crate) fn new(lane: LaneHold<'l>) -> Tx<'l> {
        let mut tx = Tx { lane };
        tx.lane.kept_space = KeptSpace::None;
        if !tx.lane.work.is_untouched() {
            // The one before was leaked.
            tx.take_back();
        }
        tx
    }

    /// The pool that the transaction changes.
    pub fn pool(&self) -> &Pool {
        &self.lane.pool
    }

    /// The number of the lane that it is written with. No two transactions that overlap have the same.
    #[inline]
    pub fn lane_number(&self) -> u32 {
        self.lane.number
    }

    fn inner(&self) -> &PoolInner {
        &self.lane.pool.inner
    }

    /// Reserves a block of at least `bytes` and returns its offset: a multiple of 16, of 64 if the block's size
    /// is. Its contents are arbitrary. The commit publishes it; costs no fence and at most one line.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if there is no room, [`Error::TooLarge`].
    #[inline]
    pub fn alloc(&mut self, bytes: u64) -> Result<u64> {
        self.alloc_wanted(Wanted::Bytes(bytes))
    }

    #[inline(always)]
    fn alloc_wanted(&mut self, wanted: Wanted) -> Result<u64> {
        let Lane { pool, arena, work, .. } = &mut *self.lane;
        match pool.inner.alloc.reserve_held(arena, wanted) {
            Some(block) => Ok(work.add_fresh(block)),
            None => self.alloc_slowly(wanted),
        }
    }

    #[cold]
    fn alloc_slowly(&mut self, wanted: Wanted) -> Result<u64> {
        let block = self.lane.reserve(wanted)?;
        Ok(self.lane.work.add_fresh(block))
    }

    /// Allocates a line, and two words somewhere else that go with it: its tag, at [`tag_off`]. For a value of 64 bytes with a
    /// head: who changes the value changes one line, and not two.
    ///
    /// All is as [`alloc`](Self::alloc) has it. The tag is allocated and freed with the line. In this transaction
    /// [`set_tag_word`](Self::set_tag_word) changes it, and nothing else must, as the record covers it; later on what changes other words.
    ///
    /// # Errors
    ///
    /// As for [`alloc`](Self::alloc).
    #[inline]
    pub fn alloc_tagged(&mut self, tag: [u64; 2]) -> Result<u64> {
        let off = self.alloc_wanted(Wanted::Tagged)?;
        self.inner().region.store_words(tag_off(off), &tag)?;
        Ok(off)
    }

    /// Changes a word of the tag, 0 or 1, of a line that this transaction has [allocated](Self::alloc_tagged). Not taken back by going back to a
    /// savepoint.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] if it has allocated no such line.
    ///
    /// # Panics
    ///
    /// If the tag has no such word.
    pub fn set_tag_word(&mut self, line_off: u64, word: usize, value: u64) -> Result<()> {
        assert!(word < 2, "word {word} of a tag");
        let fresh = self.lane.work.fresh_with(line_off, line_off.saturating_add(LINE_BYTES))?;
        let tag_off = fresh.block.tag_off().ok_or_else(|| not_fresh(line_off))?;
        Ok(self.inner().region.store_u64(tag_off + 8 * word as u64, value)?)
    }

    /// As [`alloc`](Self::alloc), but the block's contents are zero: durably after this thread's next fence. Costs nothing
    /// more for a block that was never in use; the others are written.
    ///
    /// The zeros are not part of the commit. A structure that changes such a block directly (and hence must not have it
    /// covered by a record) writes to it and fences before it commits.
    ///
    /// # Errors
    ///
    /// As for [`alloc`](Self::alloc).
    pub fn alloc_zeroed(&mut self, bytes: u64) -> Result<u64> {
        const ZEROS: [u8; 4096] = [0; 4096];
        let off = self.alloc(bytes)?;
        if self.lane.work.fresh.last().is_none_or(|fresh| !fresh.block.is_zero) {
            for at in (0..bytes).step_by(ZEROS.len()) {
                let part = &ZEROS[..(bytes - at).min(ZEROS.len() as u64) as usize];
                // SAFETY: the block is this transaction's own.
                unsafe { self.inner().region.write_and_flush(off + at, part)? };
            }
        }
        Ok(off)
    }

    /// Says how much the transaction may use, from now on, of the space that is kept for those that give some back; until it says otherwise,
    /// or another one of the lane is [begun](Lane::begin). A structure that copies what it changes says so before it allocates for a
    /// removal. (Room for its record a transaction that frees anything takes from there in any case.)
    #[inline(always)]
    pub fn use_kept_space(&mut self, use_of_it: KeptSpace) {
        self.lane.kept_space = use_of_it;
    }

    /// Frees the block at `off`, which the commit will make so. Its memory is used again only when no reader
    /// that is pinned now, and no record, can look at it: nor that of a transaction of another lane that is under way, pinned, and stores to it.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if no allocated block starts there.
    pub fn free(&mut self, off: u64) -> Result<()> {
        if let Some(number) = self.lane.work.fresh_at(off) {
            let fresh = &mut self.lane.work.fresh[number];
            if fresh.block.off != off || fresh.cancelled {
                return Err(Error::corrupt("a block", off, "a block of this transaction", "something else"));
            }
            fresh.cancelled = true;
            self.lane.work.push_step(Step::Cancel { fresh: number });
            return Ok(());
        }
        let Lane { pool, work, .. } = &mut *self.lane;
        let block = pool.inner.alloc.find_block(&pool.inner.region, off)?;
        let is_large = block.bytes >= LARGE_BYTES;
        work.freed.push(block);
        if is_large && let Err(e) = work.reserve_lines() {
            work.freed.pop();
            return Err(e);
        }
        Ok(())
    }

    /// Writes bytes into a block that was allocated in this transaction. No bytes lie in no block, so that the last part of what fills a block
    /// may be empty.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] if the range does not lie in such a block.
    pub fn write_fresh(&mut self, off: u64, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let end = off.saturating_add(data.len() as u64);
        let lane: &mut Lane = &mut self.lane;
        let (region, fresh) = (&lane.pool.inner.region, lane.work.fresh_with(off, end)?);
        fresh.note_written(off, end);
        if data.len() >= WRITE_THROUGH_BYTES {
            if data.len() as u64 >= LARGE_BYTES {
                lane.work.reserve_lines()?;
            }
            // SAFETY: the block is this transaction's own (found above), which no other thread knows of.
            unsafe { region.write_and_flush(off, data)? };
        } else {
            fresh.unflushed = union(fresh.unflushed, (off, end));
            // SAFETY: as above.
            unsafe { region.write(off, data)? };
        }
        Ok(())
    }

    /// As [`write_fresh`](Self::write_fresh), of words in two parts, from an offset that is a multiple of 8 on. They are loaded one by one, since most
    /// likely they have just been stored so: a processor that loads two such at once waits for all stores before them.
    ///
    /// # Errors
    ///
    /// As for [`write_fresh`](Self::write_fresh), and if the offset is no multiple of 8.
    #[inline]
    pub fn write_fresh_words(&mut self, off: u64, head: &[u64], body: &[u64]) -> Result<()> {
        if 8 * body.len() >= WRITE_THROUGH_BYTES {
            self.write_fresh(off, bytemuck::cast_slice(head))?;
            return self.write_fresh(off.saturating_add(8 * head.len() as u64), bytemuck::cast_slice(body));
        }
        if head.is_empty() && body.is_empty() {
            return Ok(());
        }
        let end = off.saturating_add(8 * (head.len() + body.len()) as u64);
        let lane: &mut Lane = &mut self.lane;
        let (region, fresh) = (&lane.pool.inner.region, lane.work.fresh_with(off, end)?);
        fresh.note_written(off, end);
        fresh.unflushed = union(fresh.unflushed, (off, end));
        region.store_words(off, head).map_err(|_| not_fresh(off))?;
        region.store_words(off + 8 * head.len() as u64, body).map_err(|_| not_fresh(off))
    }

    /// Loads a word as the transaction sees it.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the offset leads nowhere.
    #[inline]
    pub fn load(&self, off: u64) -> Result<u64> {
        self.view().load(off)
    }

    /// The words as the transaction sees them, to load many of them.
    #[inline(always)]
    pub fn view(&self) -> TxView<'_> {
        let lane: &Lane = &self.lane;
        TxView { region: &lane.pool.inner.region, work: &lane.work }
    }

    /// Which words of a range, outside of its own blocks, the transaction [stores](Self::store). Takes no longer than to look at each
    /// word, or at each store.
    pub fn stored_words(&self, off: u64, bytes: u64) -> Vec<u64> {
        let work = &self.lane.work;
        if work.steps.len() as u64 > bytes / 8 {
            let words = (off..off.saturating_add(bytes)).step_by(8);
            return words.filter(|word| work.redo_step(*word).is_some()).collect();
        }
        redo_words(&work.steps).map(|(word, _)| word).filter(|word| word.wrapping_sub(off) < bytes).collect()
    }

    /// Stores a word. Other threads see it after the commit; words become visible in the order in which they
    /// were stored (last stored, for a word stored twice).
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the offset leads nowhere, to the pool's own header or lanes, or is not aligned.
    #[inline]
    pub fn store(&mut self, off: u64, value: u64) -> Result<()> {
        let lane: &mut Lane = &mut self.lane;
        if let Some(number) = lane.work.fresh_at(off) {
            return store_fresh(lane, number, off, value);
        }
        let inner: &PoolInner = &lane.pool.inner;
        if off < inner.first_zone_off {
            return Err(lines::outside_blocks(off));
        }
        inner.region.check_word(off)?;
        debug_assert!(!lane.work.has_tag_at(off), "the tag of a new line is changed by `set_tag_word` (L4)");
        lane.work.push_redo(off, value);
        Ok(())
    }

    /// As [`store`](Self::store) of a word outside of the transaction's own blocks, the root directory included.
    pub(crate) fn store_anywhere(&mut self, off: u64, value: u64) -> Result<()> {
        self.inner().region.check_word(off)?;
        self.lane.work.push_redo(off, value);
        Ok(())
    }

    /// Whether nothing has been done since the beginning, or nothing of it is left.
    pub fn is_empty(&self) -> bool {
        self.lane.work.is_untouched()
    }

    /// A point to which [`rollback_to`](Self::rollback_to) goes back.
    pub fn savepoint(&self) -> Savepoint {
        let work = &self.lane.work;
        Savepoint { steps: work.steps.len(), fresh: work.fresh.len(), freed: work.freed.len() }
    }

    /// Takes back everything since the savepoint, which must be of this transaction; but not what
    /// [`write_fresh`](Self::write_fresh) wrote into a block that was allocated before it.
    pub fn rollback_to(&mut self, to: Savepoint) {
        let Lane { pool, arena, work, .. } = &mut *self.lane;
        let inner: &PoolInner = &pool.inner;
        while work.steps.len() > to.steps {
            match work.steps.pop() {
                Some(Step::Redo { off, previous, .. }) => work.unpush_redo(off, previous),
                Some(Step::Direct { off, old }) => {
                    inner.region.store_u64(off, old).expect("a word that was stored before");
                }
                Some(Step::Cancel { fresh }) => work.fresh[fresh].cancelled = false,
                None => break,
            }
        }
        let kept = to.fresh.min(work.fresh.len());
        let undone = work.fresh.drain(kept..).map(|fresh| {
            work.fresh_index.remove(&fresh.block.off);
            fresh.block
        });
        // After the device failed, a record may or may not be durable: what it names is not to be written over.
        if inner.failed.load(Ordering::Acquire) {
            drop(undone);
        } else {
            inner.alloc.release(undone, Some(arena));
        }
        let kept = to.freed.min(work.freed.len());
        work.freed.drain(kept..).for_each(|block| block.unclaim());
    }

    /// Takes everything back: as if it had just begun.
    pub fn roll_back(&mut self) {
        self.take_back();
    }

    /// As [`commit`](Self::commit), and begins the next transaction of the lane. After an error too: what was not committed is
    /// taken back.
    ///
    /// # Errors
    ///
    /// As for [`commit`](Self::commit).
    #[inline]
    pub fn commit_and_begin(&mut self) -> Result<()> {
        self.lane.pool.check_process()?;
        // Not one `outcome` for both, whose every byte would be copied.
        match commit(&mut self.lane) {
            Ok(()) => {
                self.take_back();
                Ok(())
            }
            Err(e) => {
                self.take_back();
                Err(*e)
            }
        }
    }

    #[inline(always)]
    fn take_back(&mut self) {
        let lane: &Lane = &self.lane;
        if !(lane.work.is_as_new() && lane.arena.has_none_pending()) {
            self.take_back_what_is_there();
        }
    }

    #[inline(never)]
    fn take_back_what_is_there(&mut self) {
        if self.lane.pool.was_left_behind() {
            return;
        }
        // A commit that failed may have left them. They are not to be referred to once their blocks are released.
        self.lane.work.new_slabs.clear();
        if !self.lane.work.is_untouched() {
            self.rollback_to(Savepoint { steps: 0, fresh: 0, freed: 0 });
            self.lane.work.stored_lines.clear();
        }
        let Lane { pool, arena, work, .. } = &mut *self.lane;
        work.clear_indexes();
        pool.inner.alloc.put_pending(arena);
    }

    /// How many words the record will hold so far, roughly: for deciding when a group is large enough.
    pub fn pending_words(&self) -> usize {
        let work = &self.lane.work;
        2 * (work.steps.len() + work.fresh.len() + work.freed.len()) + 9 * work.stored_lines.len()
    }

    /// Makes the transaction durable, then visible. Costs nothing if it did nothing; otherwise one fence, or two
    /// if it wrote more than 2 KiB of new data.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if a large record finds no room (nothing was changed then), [`Error::Sync`] if the
    /// device fails (the outcome is unknown until the pool is opened again).
    #[inline]
    pub fn commit(mut self) -> Result<()> {
        let outcome = self.commit_and_begin();
        if matches!(self.lane, LaneHold::Borrowed(_)) {
            // Nothing is left to be dropped.
            std::mem::forget(self);
        }
        outcome
    }
}

impl std::fmt::Debug for Tx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tx").field("lane", &self.lane.number).field("work", &self.lane.work).finish()
    }
}

impl Drop for Tx<'_> {
    #[inline]
    fn drop(&mut self) {
        self.take_back();
    }
}

/// The words that steps change by the record, and their values, in the order in which they are to become visible.
#[inline(always)]
fn redo_words(steps: &[Step]) -> impl DoubleEndedIterator<Item = (u64, u64)> {
    steps.iter().filter_map(|step| match step {
        Step::Redo { off, value, superseded: false, .. } => Some((*off, *value)),
        _ => None,
    })
}

#[cold]
fn not_fresh(off: u64) -> Error {
    Error::internal("a write", off, "words of a block that this transaction has allocated", "other memory")
}

/// Stores a word of the transaction's own block with this number.
fn store_fresh(lane: &mut Lane, number: usize, off: u64, value: u64) -> Result<()> {
    let region = &lane.pool.inner.region;
    let old = region.load_u64(off).map_err(|_| not_fresh(off))?;
    region.store_u64(off, value).map_err(|_| not_fresh(off))?;
    let fresh = &mut lane.work.fresh[number];
    fresh.note_written(off, off + 8);
    fresh.unflushed = union(fresh.unflushed, (off, off + 8));
    lane.work.push_step(Step::Direct { off, old });
    Ok(())
}

/// The bit of a word in [`TxWork::redo_filter`].
#[inline(always)]
fn redo_bit(off: u64) -> u64 {
    1 << hash_u64_to_bits(off, 6)
}

fn union(a: (u64, u64), b: (u64, u64)) -> (u64, u64) {
    if a.0 == a.1 { b } else { (a.0.min(b.0), a.1.max(b.1)) }
}

impl TxWork {
    /// Adds a block to those of the transaction. Returns its offset.
    #[inline(always)]
    fn add_fresh(&mut self, block: Block) -> u64 {
        let (off, bytes) = (block.off, block.bytes);
        self.fresh.push(Fresh { block, cancelled: false, written: (0, 0), unflushed: (0, 0) });
        if self.fresh.len() > FILTER_MIN {
            self.index_fresh(off, bytes);
        }
        off
    }

    /// Notes where the block is that was added last, of many.
    #[cold]
    fn index_fresh(&mut self, off: u64, bytes: u64) {
        let number = self.fresh.len() - 1;
        if number == FILTER_MIN {
            self.fresh.iter().for_each(|f| self.fresh_filter.add(f.block.off, f.block.bytes));
        } else {
            self.fresh_filter.add(off, bytes);
        }
        if number == SEARCH_MAX {
            self.fresh_index = self.fresh.iter().enumerate().map(|(i, f)| (f.block.off, i as u32)).collect();
        } else if number > SEARCH_MAX {
            self.fresh_index.insert(off, number as u32);
        }
    }

    #[inline]
    fn is_untouched(&self) -> bool {
        self.only_stores_lines() && self.stored_lines.is_empty()
    }

    /// Whether nothing is left of what was done or taken back.
    #[inline]
    fn is_as_new(&self) -> bool {
        self.is_untouched() && self.redo_filter == 0 && !self.fresh_filter.used
    }

    /// Makes room for what a commit notes of the lines of large blocks, and something more for all else.
    #[cold]
    fn reserve_lines(&mut self) -> Result<()> {
        const MORE: usize = 1024;
        let blocks = self.fresh.iter().map(|fresh| &fresh.block).chain(&self.freed);
        let large = blocks.map(|block| block.bytes).filter(|bytes| *bytes >= LARGE_BYTES);
        let lines = large.map(|bytes| bytes / LINE_BYTES + 2).sum::<u64>() as usize + MORE;
        let bytes = (lines * size_of::<u64>()) as u64;
        self.touched.try_reserve(lines).map_err(|_| Error::OutOfMemory { bytes })
    }

    /// Forgets where steps and blocks are, of which there are none any more.
    #[inline(always)]
    fn clear_indexes(&mut self) {
        if self.redo_filter != 0 {
            self.redo_filter = 0;
        }
        if self.fresh_filter.used {
            self.fresh_filter.clear();
        }
        if !self.step_index.is_empty() {
            self.step_index.clear();
        }
        if !self.fresh_index.is_empty() {
            self.fresh_index.clear();
        }
    }

    /// Whether it has done nothing but to store words by line.
    #[inline]
    fn only_stores_lines(&self) -> bool {
        self.steps.is_empty() && self.fresh.is_empty() && self.freed.is_empty()
    }

    /// The last step that changes the word at `off` by the record.
    #[inline(always)]
    fn redo_step(&self, off: u64) -> Option<usize> {
        if self.redo_filter & redo_bit(off) == 0 { None } else { self.search_redo_step(off) }
    }

    #[inline(never)]
    fn search_redo_step(&self, off: u64) -> Option<usize> {
        if self.steps.len() > SEARCH_MAX {
            return self.step_index.get(&off).map(|step| *step as usize);
        }
        self.steps
            .iter()
            .rposition(|s| matches!(s, Step::Redo { off: o, superseded: false, .. } if *o == off))
    }

    /// What such a step stores.
    #[inline]
    fn redo_value(&self, step: usize) -> u64 {
        match self.steps[step] {
            Step::Redo { value, .. } => value,
            Step::Direct { .. } | Step::Cancel { .. } => {
                unreachable!("not a step that changes a word by the record")
            }
        }
    }

    #[inline]
    fn push_redo(&mut self, off: u64, value: u64) {
        let is_first = self.redo_filter & redo_bit(off) == 0;
        self.redo_filter |= redo_bit(off);
        if is_first && self.steps.len() < SEARCH_MAX {
            self.steps.push(Step::Redo { off, value, previous: None, superseded: false });
        } else {
            self.push_another_redo(off, value);
        }
    }

    /// As [`push_redo`](Self::push_redo) where the word may have a step, or there are many steps.
    fn push_another_redo(&mut self, off: u64, value: u64) {
        let number = self.steps.len() as u32;
        let previous = self.search_redo_step(off).map(|step| step as u32);
        if let Some(step) = previous
            && let Step::Redo { superseded, .. } = &mut self.steps[step as usize]
        {
            *superseded = true;
        }
        self.push_step(Step::Redo { off, value, previous, superseded: false });
        if self.steps.len() > SEARCH_MAX {
            self.step_index.insert(off, number);
        }
    }

    /// Adds a step, and fills the index when the steps have just become too many to search.
    #[inline(always)]
    fn push_step(&mut self, step: Step) {
        self.steps.push(step);
        if self.steps.len() == SEARCH_MAX + 1 {
            self.index_steps();
        }
    }

    #[cold]
    fn index_steps(&mut self) {
        self.step_index.clear();
        for (i, step) in self.steps.iter().enumerate() {
            if let Step::Redo { off, superseded: false, .. } = step {
                self.step_index.insert(*off, i as u32);
            }
        }
    }

    fn unpush_redo(&mut self, off: u64, previous: Option<u32>) {
        self.step_index.remove(&off);
        if let Some(step) = previous {
            if let Step::Redo { superseded, .. } = &mut self.steps[step as usize] {
                *superseded = false;
            }
            if self.steps.len() > SEARCH_MAX {
                self.step_index.insert(off, step);
            }
        }
    }

    /// Whether a word is of the tag of one of the transaction's own lines.
    fn has_tag_at(&self, off: u64) -> bool {
        let tags = self.fresh.iter().filter_map(|fresh| fresh.block.tag_off());
        tags.into_iter().any(|tag| off.wrapping_sub(tag) < TAG_BYTES)
    }

    /// The transaction's own block that holds a range.
    #[inline]
    fn fresh_with(&mut self, off: u64, end: u64) -> Result<&mut Fresh> {
        let number = self.fresh_at(off);
        let fresh = number.map(|n| &mut self.fresh[n]).filter(|f| end <= f.block.off + f.block.bytes);
        fresh.ok_or_else(|| not_fresh(off))
    }

    /// The transaction's own block that holds `off`.
    #[inline]
    fn fresh_at(&self, off: u64) -> Option<usize> {
        let holds = |f: &Fresh| f.block.off <= off && off < f.block.off + f.block.bytes;
        // What is written is mostly the block that was allocated last, what is stored mostly in none.
        let last = self.fresh.len().checked_sub(1)?;
        if holds(&self.fresh[last]) {
            return Some(last);
        }
        if self.fresh.len() > FILTER_MIN && !self.fresh_filter.may_have(off) {
            return None;
        }
        if self.fresh.len() > SEARCH_MAX {
            let (_, number) = self.fresh_index.range(..=off).next_back()?;
            return holds(&self.fresh[*number as usize]).then_some(*number as usize);
        }
        self.fresh.iter().position(holds)
    }
}

impl Lane {
    /// Reserves a block; when space runs out, first by dissolving empty slabs, then by growing, and then by taking back what waits in limbo.
    fn reserve(&mut self, wanted: Wanted) -> Result<Block> {
        match self.reserve_or_grow(wanted) {
            Err(full @ Error::Full { .. }) => {
                let kept_space = self.kept_space;
                self.reclaim_and_reserve(wanted, full, kept_space)
            }
            outcome => outcome,
        }
    }

    fn reserve_or_grow(&mut self, wanted: Wanted) -> Result<Block> {
        let pool = self.pool.clone();
        let inner: &PoolInner = &pool.inner;
        let kept_chunks = inner.alloc.kept_chunks(&inner.region);
        let refuse = Room { grow: &|least, _| Err(no_chunk(inner, least)), kept_chunks };
        match inner.alloc.reserve(&inner.region, &mut self.arena, wanted, &refuse) {
            Err(Error::Full { .. }) => {}
            outcome => return outcome,
        }
        if self.dissolve_empty_slabs(false)? > 0
            && let Ok(block) = inner.alloc.reserve(&inner.region, &mut self.arena, wanted, &refuse)
        {
            return Ok(block);
        }
        let grow = Room { grow: &|least, wanted| inner.grow(least, wanted), kept_chunks };
        inner.alloc.reserve(&inner.region, &mut self.arena, wanted, &grow)
    }

    /// For a pool that has been found full.
    #[cold]
    fn reclaim_and_reserve(&mut self, wanted: Wanted, full: Error, kept_space: KeptSpace) -> Result<Block> {
        let pool = self.pool.clone();
        let inner: &PoolInner = &pool.inner;
        // The slabs that this lane holds for other sizes may be empty too.
        inner.alloc.put_arena(&mut self.arena);
        inner.reclaim_all()?;
        self.dissolve_empty_slabs(true)?;
        let kept_chunks = inner.alloc.kept_chunks(&inner.region);
        let mut room = Room { grow: &|least, _| Err(no_chunk(inner, least)), kept_chunks };
        match inner.alloc.reserve(&inner.region, &mut self.arena, wanted, &room) {
            Err(Error::Full { .. }) if kept_space != KeptSpace::None => {}
            outcome => return outcome.map_err(|_| full),
        }
        room.kept_chunks = if kept_space == KeptSpace::All { 0 } else { kept_chunks / 2 };
        match (inner.alloc.reserve(&inner.region, &mut self.arena, wanted, &room), wanted) {
            // Where no slab fits any more, a chunk may.
            (Err(Error::Full { .. }), Wanted::Bytes(bytes)) => {
                inner.alloc.reserve_whole_chunks(&inner.region, bytes, &room).map_err(|_| full)
            }
            (outcome, _) => outcome.map_err(|_| full),
        }
    }

    /// Makes the chunks of slabs without blocks free, with a record of its own. Returns their number. `all` looks
    /// at every slab of the pool.
    pub(crate) fn dissolve_empty_slabs(&mut self, all: bool) -> Result<usize> {
        let pool = self.pool.clone();
        let inner: &PoolInner = &pool.inner;
        let slabs = inner.alloc.take_empty_slabs(&inner.region, all)?;
        let mut done = 0;
        // A few at a time, so that the record fits into its lane.
        let room = inner.geometry.half_bytes() - size_of::<PmRecord>() as u64;
        let group_len = room / (MAX_SLAB_CHUNKS * size_of::<PmEntry>() as u64);
        for group in slabs.chunks(group_len.clamp(1, 8) as usize) {
            let outcome = self.with_work_aside(|lane| {
                for slab in group {
                    for (chunk, _) in slab.chunk_words() {
                        lane.work.push_redo(inner.geometry.chunk_word_off(slab.zone, chunk), 0);
                    }
                }
                commit(lane).map_err(|e| *e)?;
                // L2: the chunk words and bitmaps may be in live records, and the chunks are reused at once.
                inner.lanes[lane.number as usize].settle(inner).map(drop)
            });
            if let Err(e) = outcome {
                inner.alloc.restore_slabs(slabs[done..].to_vec());
                return Err(e);
            }
            inner.alloc.forget_slabs(group);
            done += group.len();
        }
        Ok(done)
    }

    /// Runs a transaction of the pool's own while one of the user's is under way.
    fn with_work_aside<T>(&mut self, body: impl FnOnce(&mut Lane) -> T) -> T {
        let aside = std::mem::take(&mut self.work);
        let outcome = body(self);
        self.work = aside;
        outcome
    }

    /// Finds room for a payload that does not fit into the lane; 0 if it does.
    #[inline]
    fn prepare_chain(&mut self) -> Result<u64> {
        let bytes = self.image.payload_bytes();
        // Without the lane's lock, which would wait for the last fence: what this looks at, only commits change.
        if !self.tail.must_chain(&self.pool.inner.geometry, bytes) {
            return Ok(0);
        }
        self.find_chain(bytes)
    }

    #[cold]
    fn find_chain(&mut self, bytes: u64) -> Result<u64> {
        let pool = self.pool.clone();
        let inner: &PoolInner = &pool.inner;
        let slot = &inner.lanes[self.number as usize];
        let state = slot.lock();
        if let Some(block) = &state.chains[state.place(&inner.geometry, 0, true).chain()]
            && block.bytes >= bytes
        {
            return Ok(block.off);
        }
        drop(state);
        let image = std::mem::take(&mut self.image);
        let roomy = bytes.next_power_of_two().min(inner.alloc.max_block_bytes()).max(bytes);
        let wanted = Wanted::Bytes(roomy);
        let reserved = match self.reserve_or_grow(wanted) {
            Err(Error::Full { .. }) if self.leave_half(bytes)? => {
                self.image = image;
                return Ok(0);
            }
            Err(full @ Error::Full { .. }) => {
                let frees = if self.work.freed.is_empty() { self.kept_space } else { KeptSpace::All };
                self.reclaim_and_reserve(Wanted::Bytes(bytes), full, frees)
            }
            outcome => outcome,
        };
        self.image = image;
        let block = reserved?;
        // Making room may have committed a record of its own, and have switched halves with that.
        let mut state = slot.lock();
        let chain = state.place(&inner.geometry, 0, true).chain();
        let off = block.off;
        if let Some(old) = state.chains[chain].replace(block) {
            inner.alloc.release(std::iter::once(old), None);
        }
        Ok(off)
    }

    /// Sees to it that the next record may switch to the other half, if that has room for a payload of so many bytes: a half that has but one record gets
    /// another, which changes nothing. Tells whether there is room.
    fn leave_half(&mut self, payload_bytes: u64) -> Result<bool> {
        let geometry = self.pool.inner.geometry;
        if Tail::must_chain_in_new_half(&geometry, payload_bytes) {
            return Ok(false);
        }
        if self.tail.must_chain(&geometry, payload_bytes) {
            // Always zero.
            let word = geometry.zone_off(0) + offset_of!(PmZone, reserved) as u64;
            self.with_work_aside(|lane| {
                lane.work.push_redo(word, 0);
                commit(lane).map_err(|e| *e)
            })?;
        }
        Ok(!self.tail.must_chain(&geometry, payload_bytes))
    }
}

fn no_chunk(inner: &PoolInner, least_bytes: u64) -> Error {
    Error::Full {
        needed_bytes: least_bytes.saturating_sub(inner.region.len()),
        why: "no free chunk".to_owned(),
    }
}

impl PoolInner {
    /// Takes back what waits in the limbos of all lanes, as far as readers allow.
    pub(crate) fn reclaim_all(&self) -> Result<()> {
        self.lanes.iter().try_for_each(|lane| lane.reclaim(self))
    }
}
