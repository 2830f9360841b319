//! Transactions: changes that become durable together, with one fence.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | the public [`Tx`]: logged words, commit |
//! | `writer.rs`, `lane.rs` | lanes as writers have them |
//! | `blocks.rs` | allocating, writing and freeing blocks |
//! | `lines.rs` | words stored by line |
//! | `roots.rs` | changes of the root directory |
//! | `savepoint.rs` | taking writes back |
//! | `write_set.rs`, `steps.rs`, `fresh.rs`, `fresh_index.rs` | the volatile state of a transaction |
//! | `commit.rs`, `gather.rs`, `bits.rs`, `slabs.rs` | the commit |
//! | `unlogged.rs` | commits without records, for measurements |
//! | `reserve.rs`, `chain.rs` | space for blocks and long records |

mod bits;
mod blocks;
mod chain;
mod commit;
mod fresh;
mod fresh_index;
mod gather;
pub(crate) mod lane;
mod lines;
mod reserve;
mod roots;
mod savepoint;
mod slabs;
mod steps;
#[cfg(feature = "research")]
mod unlogged;
mod write_set;
pub(crate) mod writer;

pub use lines::{LineStores, StoredLines};
pub use savepoint::Savepoint;

use crate::alloc::SlabPlace;
use crate::inner::{Pool, PoolInner};
use crate::{Error, Result};
use commit::commit;
use fresh::not_fresh;
use lane::{Lane, LaneHold};
use steps::Step;
use tembo_pmem::Region;
use write_set::WriteSet;

/// A transaction on a pool.
///
/// It has two ways to write words that others may see, with opposite contracts. *Logged words*
/// ([`store`](Self::store)) are seen by [`load`](Self::load) and taken back by
/// [savepoints](Self::rollback_to); [`logged_words`](Self::logged_words) lists them. *Words stored by line*
/// are cheaper, are **not** seen by `load` and **not** taken back by savepoints; they have handles of their
/// own, [`LineStores`] and [`StoredLines`]. No word is stored in both ways by one transaction.
///
/// Other threads see nothing of either before it is durable. Dropping the transaction takes everything back.
/// Isolation from other writers is the caller's task: no other lane may change the same words until
/// [`commit`](Self::commit) has returned.
pub struct Tx<'l> {
    lane: LaneHold<'l>,
}

/// The words of a pool as a transaction sees them ([`Tx::view`]): with its logged words, without those that
/// it stores by line.
#[derive(Clone, Copy)]
pub struct TxView<'t> {
    region: &'t Region,
    writes: &'t WriteSet,
}

impl TxView<'_> {
    /// As [`Tx::load`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the offset leads nowhere.
    #[inline(always)]
    pub fn load(self, off: u64) -> Result<u64> {
        match self.writes.steps.redo_step(off) {
            Some(step) => Ok(self.writes.steps.redo_value(step)),
            None => Ok(self.region.load_u64(off)?),
        }
    }
}

impl std::fmt::Debug for TxView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TxView").field("writes", &self.writes).finish_non_exhaustive()
    }
}

impl<'l> Tx<'l> {
    pub(crate) fn new(lane: LaneHold<'l>) -> Tx<'l> {
        let mut tx = Tx { lane };
        tx.lane.kept_space = lane::KeptSpace::None;
        if !tx.lane.writes.is_untouched() {
            // The transaction before was leaked.
            tx.take_back();
        }
        tx.lane.answer_recall();
        tx
    }

    /// The pool that the transaction changes.
    pub fn pool(&self) -> &Pool {
        &self.lane.pool
    }

    /// As [`Lane::give_up_slabs`](crate::Lane::give_up_slabs), in a transaction that has changed nothing.
    ///
    /// # Panics
    ///
    /// If it has.
    pub fn give_up_slabs(&mut self) {
        assert!(self.lane.writes.is_untouched(), "a transaction with changes may need its slabs");
        self.lane.give_up_slabs();
    }

    /// The number of its lane. Transactions that overlap have different lanes.
    #[inline]
    pub fn lane_number(&self) -> u32 {
        self.lane.number
    }

    fn inner(&self) -> &PoolInner {
        &self.lane.pool.inner
    }

    /// Loads a word as the transaction sees it: a logged word has the value that is going to be stored, a
    /// word stored by line its old value.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the offset leads nowhere.
    #[inline]
    pub fn load(&self, off: u64) -> Result<u64> {
        self.view().load(off)
    }

    /// The words as the transaction sees them, to load many of them.
    #[inline(always)]
    pub fn view(&self) -> TxView<'_> {
        let lane: &Lane = &self.lane;
        TxView { region: lane.pool.region(), writes: &lane.writes }
    }

    /// The offsets of the logged words ([`store`](Self::store)) in a range within one block. Takes time in
    /// proportion to the words of the range, or to the stores, whichever are fewer; the transaction's own
    /// blocks have none.
    pub fn logged_words(&self, off: u64, bytes: u64) -> Vec<u64> {
        let steps = &self.lane.writes.steps;
        if self.lane.writes.fresh.at(off).is_some() {
            return Vec::new();
        }
        if steps.len() as u64 > bytes / 8 {
            let words = (off..off.saturating_add(bytes)).step_by(8);
            return words.filter(|word| steps.redo_step(*word).is_some()).collect();
        }
        steps.redo_words().map(|(word, _)| word).filter(|word| word.wrapping_sub(off) < bytes).collect()
    }

    /// Stores a logged word. Other threads see it after the commit. Logged words become visible in the order
    /// in which they were stored; for a word that is stored twice, the last store counts.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if the offset leads nowhere, to the pool's own
    /// header or lanes, or is not aligned.
    #[inline]
    pub fn store(&mut self, off: u64, value: u64) -> Result<()> {
        let lane: &mut Lane = &mut self.lane;
        if let Some(number) = lane.writes.fresh.at(off) {
            return store_fresh(lane, number, off, value);
        }
        let inner: &PoolInner = &lane.pool.inner;
        if off < inner.first_zone_off {
            return Err(outside_blocks(off));
        }
        inner.log.region.check_word(off)?;
        debug_assert!(
            !lane.writes.fresh.has_tag_at(off),
            "the tag of a new line is changed by `set_tag_word` (L4)"
        );
        lane.writes.steps.push_redo(off, value);
        Ok(())
    }

    /// As [`store`](Self::store), for a word outside of the transaction's own blocks; the root directory is
    /// allowed.
    fn store_anywhere(&mut self, off: u64, value: u64) -> Result<()> {
        self.inner().log.region.check_word(off)?;
        self.lane.writes.steps.push_redo(off, value);
        Ok(())
    }

    /// Whether the transaction has done nothing, or everything was rolled back.
    pub fn is_empty(&self) -> bool {
        self.lane.writes.is_untouched()
    }

    /// Roughly the number of words in the record so far: for deciding when a group is large enough.
    pub fn pending_words(&self) -> usize {
        let writes = &self.lane.writes;
        2 * (writes.steps.len() + writes.fresh.len() + writes.freed.len()) + 9 * writes.lines.len()
    }

    /// As [`commit`](Self::commit), and begins the next transaction of the lane. It does so after an error
    /// too, once the uncommitted writes are undone.
    ///
    /// # Errors
    ///
    /// As for [`commit`](Self::commit).
    #[inline]
    pub fn commit_and_begin(&mut self) -> Result<()> {
        self.lane.pool.check_process()?;
        let outcome = commit(&mut self.lane);
        self.take_back();
        outcome
    }

    /// Makes the transaction durable, then visible. Costs nothing if it did nothing; otherwise one fence, or
    /// two if it wrote more than 2 KiB of new data.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Full`](crate::ErrorKind::Full) if a large record finds no room (nothing was changed
    /// then), [`ErrorKind::Sync`](crate::ErrorKind::Sync) if the device fails (the outcome is unknown until
    /// the pool is opened again).
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
        f.debug_struct("Tx").field("lane", &self.lane.number).field("writes", &self.lane.writes).finish()
    }
}

impl Tx<'_> {
    /// Frees the chunks of all slabs without blocks, at once, whether the transaction commits or not.
    pub(crate) fn dissolve_empty_slabs(&mut self) -> Result<()> {
        self.lane.dissolve_empty_slabs(true).map(drop)
    }

    /// As [`dissolve_empty_slabs`](Self::dissolve_empty_slabs), of some slabs from this place on; returns the
    /// place to go on at, if there may be more.
    pub(crate) fn dissolve_some(&mut self, from: SlabPlace) -> Result<Option<SlabPlace>> {
        self.lane.dissolve_some(from)
    }
}

impl Drop for Tx<'_> {
    #[inline]
    fn drop(&mut self) {
        self.take_back();
    }
}

/// Stores a word of the transaction's own block with this number.
fn store_fresh(lane: &mut Lane, number: usize, off: u64, value: u64) -> Result<()> {
    let region = lane.pool.region();
    let old = region.load_u64(off).map_err(|_| not_fresh(off))?;
    region.store_u64(off, value).map_err(|_| not_fresh(off))?;
    let fresh = lane.writes.fresh.get_mut(number);
    fresh.note_written(off, off + 8);
    fresh.note_unflushed(off, off + 8);
    lane.writes.steps.push(Step::Direct { off, old });
    Ok(())
}

#[cold]
fn outside_blocks(off: u64) -> Error {
    Error::corrupt("a store", off, "an offset in a block", "the pool's own structures")
}
