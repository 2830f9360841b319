//! The volatile state of a running transaction.

use crate::error::{Error, ErrorKind, Result};
use crate::layout::LINE;
use crate::stm::clock::ClockReading;
use crate::stm::hazards::{ReadHazards, ValidationMode};
use crate::stm::read_list::{ReadList, keep_list, take_list, take_list_to_read};
use crate::stm::shared::HeapShared;
use crate::stm::writer::WriterContext;
use std::cell::{Cell, RefCell};

/// A running transaction. Its handles and the transactions nested in it share it, on one thread.
pub(crate) struct ActiveTx {
    /// The version of the heap that the transaction sees.
    rv: Cell<u64>,
    /// The clock of the transaction's start while there are no hazards; otherwise [`NEVER`]. A word loaded
    /// from its place is valid if the clock still has this value.
    quiet_at: Cell<u64>,
    /// The owner number, once it has a writer.
    pub number: Cell<u64>,
    /// A filter of the lines that it has written to: a clear bit shows that it has not.
    written: Cell<u64>,
    /// The hazards of its reads and writes: none in most transactions that only read.
    hazards: Cell<ReadHazards>,
    /// The number of nested transactions that may write and have not ended successfully. The transaction
    /// commits only if it is 0.
    pub nested_unfinished: Cell<u32>,
    /// Values that are borrowed mutably.
    pub borrowed: Cell<u32>,
    /// The number of nested transactions that may write, whether they have ended or not. If a callback of the
    /// program leaves it unchanged, values that were read before are still valid.
    writers_begun: Cell<u64>,
    /// The number of written values that may have variants.
    variants: Cell<u64>,
    pub may_write: bool,
    /// Whether it owns records from the first write on, not only from its commit on: see `orec.rs`.
    pub owns_early: bool,
    /// The records that it has read.
    pub(super) reads: RefCell<Option<Box<ReadList>>>,
    pub writer: RefCell<Option<Box<WriterContext>>>,
}

/// A wait for a committing or owning transaction spins this often, then yields up to the second limit, and
/// then becomes a conflict.
const SPINS: u32 = 100;
const YIELDS: u32 = SPINS + 20;

/// A value that the clock never has.
const NEVER: u64 = u64::MAX;

/// The filter bit of the line of `off`.
#[inline(always)]
fn line_bit(off: u64) -> u64 {
    1 << (off / LINE % 64)
}

impl ActiveTx {
    #[inline(always)]
    pub(crate) fn begin(
        shared: &HeapShared,
        may_write: bool,
        mode: ValidationMode,
        seems_quiet: impl FnOnce(&HeapShared, ClockReading) -> bool,
    ) -> ActiveTx {
        let mut now = shared.clock.now();
        // In busy times the test for storing owners would cost more than quiet reads save.
        let is_quiet = seems_quiet(shared, now) && !shared.storing.may_be_anyone();
        if !now.is_alone() {
            // Sharing may just have ended.
            now = shared.clock.now();
        }
        let rv = now.count();
        let hazards = if is_quiet && mode == ValidationMode::Optimistic && shared.isolates() {
            ReadHazards::NONE
        } else {
            ActiveTx::first_hazards(shared, may_write || !now.is_alone(), mode, is_quiet)
        };
        ActiveTx {
            rv: Cell::new(rv),
            quiet_at: Cell::new(if hazards == ReadHazards::NONE { rv } else { NEVER }),
            hazards: Cell::new(hazards),
            number: Cell::new(0),
            written: Cell::new(0),
            nested_unfinished: Cell::new(0),
            borrowed: Cell::new(0),
            writers_begun: Cell::new(0),
            variants: Cell::new(0),
            may_write,
            owns_early: may_write && mode == ValidationMode::Eager,
            reads: RefCell::new(match hazards.0 & ReadHazards::NOTES.0 {
                0 => None,
                _ if may_write => Some(take_list()),
                // Rare, and out of line, so that reading transactions stay short.
                _ => Some(take_list_to_read()),
            }),
            writer: RefCell::new(None),
        }
    }

    /// Lends its state to a nested transaction until [`take_back`](Self::take_back). The outer transaction's
    /// tokens are refused meanwhile: the nested one could reach them, through a mutex for example, and change
    /// values that are borrowed through its own tokens.
    pub(crate) fn lend(&self) -> ActiveTx {
        ActiveTx {
            rv: self.rv.clone(),
            quiet_at: self.quiet_at.replace(NEVER).into(),
            number: self.number.clone(),
            written: self.written.clone(),
            hazards: self.hazards.replace(ReadHazards(ReadHazards::LENT.0 | ReadHazards::DOOMED.0)).into(),
            nested_unfinished: self.nested_unfinished.clone(),
            borrowed: self.borrowed.clone(),
            writers_begun: self.writers_begun.clone(),
            variants: self.variants.clone(),
            may_write: self.may_write,
            owns_early: self.owns_early,
            reads: RefCell::new(self.reads.take()),
            writer: RefCell::new(self.writer.take()),
        }
    }

    /// Takes back the lent state, as the nested transaction leaves it.
    pub(crate) fn take_back(&self, inner: &ActiveTx) {
        self.rv.set(inner.rv.get());
        self.quiet_at.set(inner.quiet_at.get());
        self.number.set(inner.number.get());
        self.written.set(inner.written.get());
        self.hazards.set(inner.hazards.get());
        self.nested_unfinished.set(inner.nested_unfinished.get());
        self.borrowed.set(inner.borrowed.get());
        self.writers_begun.set(inner.writers_begun.get());
        self.variants.set(inner.variants.get());
        self.reads.replace(inner.reads.take());
        self.writer.replace(inner.writer.take());
    }

    /// The error for a read or write of a transaction that is [`DOOMED`](ReadHazards::DOOMED).
    #[cold]
    pub(crate) fn refusal(&self) -> Error {
        let is_lent = self.has(ReadHazards::LENT);
        if is_lent { ErrorKind::InnerRuns.into() } else { ErrorKind::Conflict.into() }
    }

    /// Notes that a nested transaction begins that may write.
    pub(crate) fn begin_writer(&self) {
        self.nested_unfinished.update(|count| count + 1);
        self.writers_begun.update(|count| count + 1);
    }

    /// A number that changes when a nested transaction that may write begins.
    #[inline(always)]
    pub(crate) fn writers_begun(&self) -> u64 {
        self.writers_begun.get()
    }

    #[inline(never)]
    fn first_hazards(
        shared: &HeapShared,
        may_note: bool,
        mode: ValidationMode,
        is_quiet: bool,
    ) -> ReadHazards {
        let is_bare = !shared.isolates();
        let notes = match mode {
            ValidationMode::Optimistic => may_note && (!is_quiet || is_bare),
            ValidationMode::Validated | ValidationMode::Eager => true,
        };
        let hazards = ReadHazards::NONE.with(ReadHazards::RECORDS, !is_quiet).with(ReadHazards::NOTES, notes);
        #[cfg(feature = "research")]
        let hazards = hazards.with(ReadHazards::BARE, is_bare);
        hazards
    }

    #[inline(always)]
    pub(crate) fn rv(&self) -> u64 {
        self.rv.get()
    }

    pub(crate) fn set_rv(&self, rv: u64) {
        self.rv.set(rv);
        self.quiet_at.set(if self.hazards.get() == ReadHazards::NONE { rv } else { NEVER });
    }

    /// A word loaded from its place is valid if the clock has this value afterwards. While there are hazards
    /// the clock never has it.
    #[inline(always)]
    pub(crate) fn quiet_at(&self) -> u64 {
        self.quiet_at.get()
    }

    /// Whether quiet reads are possible.
    #[inline(always)]
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet_at() != NEVER
    }

    #[inline(always)]
    pub(crate) fn hazards(&self) -> ReadHazards {
        self.hazards.get()
    }

    /// Whether the transaction has this hazard.
    #[inline(always)]
    pub(crate) fn has(&self, what: ReadHazards) -> bool {
        self.hazards.get().0 & what.0 != 0
    }

    /// Whether the heap runs without isolation.
    #[inline(always)]
    pub(crate) fn is_bare(&self) -> bool {
        #[cfg(feature = "research")]
        return self.has(ReadHazards::BARE);
        #[cfg(not(feature = "research"))]
        false
    }

    /// Adds a hazard.
    #[inline(always)]
    pub(crate) fn add_hazard(&self, what: ReadHazards) {
        self.hazards.set(self.hazards.get().with(what, true));
        self.quiet_at.set(NEVER);
    }

    /// Notes a write of words from `off` on.
    #[inline(always)]
    pub(crate) fn note_written(&self, off: u64, words: usize) {
        let last = off.wrapping_add(8 * words.saturating_sub(1) as u64);
        let lines = (last / LINE).wrapping_sub(off / LINE);
        self.note_written_lines(if lines < 2 { line_bit(off) | line_bit(last) } else { u64::MAX });
    }

    /// As [`note_written`](Self::note_written), for words of one line.
    #[inline(always)]
    pub(crate) fn note_written_line(&self, off: u64) {
        self.note_written_lines(line_bit(off));
    }

    #[inline(always)]
    fn note_written_lines(&self, bits: u64) {
        self.written.set(self.written.get() | bits);
        self.add_hazard(ReadHazards::WRITTEN);
    }

    /// Whether it reads by records, and no other hazard prevents that.
    #[inline(always)]
    pub(super) fn reads_records(&self) -> bool {
        let hazards = self.hazards.get();
        hazards.0 & ReadHazards::RECORDS.0 != 0
            && hazards.is_at_most(&[
                ReadHazards::RECORDS,
                ReadHazards::NOTES,
                ReadHazards::WRITTEN,
                ReadHazards::FRESH,
            ])
    }

    /// Whether it may have written to one of the lines of words from `off` on.
    #[inline(always)]
    pub(super) fn may_have_written(&self, off: u64, words: usize) -> bool {
        let last = off.wrapping_add(8 * words.saturating_sub(1) as u64);
        let far = (last / LINE).wrapping_sub(off / LINE) > 1;
        self.written.get() & (line_bit(off) | line_bit(last)) != 0 || far && self.written.get() != 0
    }

    /// Whether its own writes are its only hazard, and none of them is in the line of `off`.
    #[inline(always)]
    pub(crate) fn is_quiet_beside_own(&self, off: u64) -> bool {
        self.hazards.get() == ReadHazards::WRITTEN && self.written.get() & line_bit(off) == 0
    }

    #[cold]
    pub(crate) fn conflict<T>(&self) -> Result<T> {
        self.add_hazard(ReadHazards::DOOMED);
        Err(ErrorKind::Conflict.into())
    }

    /// Waits a little for the holder of a record. Too long a wait is a conflict.
    #[cold]
    pub(crate) fn wait(&self, round: &mut u32) -> Result<()> {
        *round += 1;
        match *round {
            0..SPINS => std::hint::spin_loop(),
            SPINS..YIELDS => std::thread::yield_now(),
            _ => return self.conflict(),
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn note_read(&self, index: u32, version: u64) {
        if self.has(ReadHazards::NOTES) {
            let mut reads = self.reads.borrow_mut();
            let reads = reads.get_or_insert_with(take_list);
            if reads.last() != Some(&(index, version)) {
                reads.push((index, version));
            }
        }
    }

    /// As [`note_read`](Self::note_read), if the list has room; returns whether it had. It calls nothing, so
    /// that its callers save no registers.
    #[inline(always)]
    pub(super) fn try_note_read(&self, index: u32, version: u64) -> bool {
        if !self.has(ReadHazards::NOTES) {
            return true;
        }
        let Ok(mut reads) = self.reads.try_borrow_mut() else { return false };
        let Some(reads) = reads.as_deref_mut() else { return false };
        if reads.last() != Some(&(index, version)) {
            if reads.len() == reads.capacity() {
                return false;
            }
            reads.push((index, version));
        }
        true
    }

    /// Whether there may be a list of reads.
    #[inline(always)]
    pub(crate) fn may_have_list(&self) -> bool {
        self.has(ReadHazards::NOTES)
    }

    /// Drops the list of reads.
    #[inline(always)]
    pub(crate) fn forget_reads(&self) {
        if let Some(mut reads) = self.reads.take() {
            reads.clear();
            keep_list(reads);
        }
    }

    /// A number, never 0, that changes when a value that may have variants is written.
    #[inline(always)]
    pub(crate) fn stamp(&self) -> u64 {
        self.variants.get() + 1
    }

    #[inline(always)]
    pub(crate) fn note_variants(&self) {
        self.variants.set(self.variants.get() + 1);
    }

    /// Ends quiet reads: the clock has moved, so other commits may have stored.
    #[cold]
    pub(crate) fn end_quiet(&self) -> Result<()> {
        if self.may_write && !self.has(ReadHazards::NOTES) {
            return self.conflict();
        }
        self.add_hazard(ReadHazards::RECORDS);
        Ok(())
    }
}
