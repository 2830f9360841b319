//! Single attempts at a transaction, and how they end.

use crate::counts::commit::commit;
use crate::counts::dying::{COLLECT_MAX, collect};
use crate::error::{Error, ErrorKind, Result};
use crate::retry::quiet::{note_clock, seems_quiet};
use crate::stm::active_tx::ActiveTx;
use crate::stm::hazards::{ReadHazards, ValidationMode};
use crate::stm::shared::HeapShared;
use crate::stm::writer::WriterContext;
use std::mem::ManuallyDrop;
use tembo_pool::BriefPin;

/// The end of an attempt to write.
pub(super) enum AttemptEnd {
    /// Everything that it did is durable, and it holds no resources any more.
    Committed,
    /// The body returned an error.
    Aborted,
    /// The commit failed.
    Failed(Error),
    /// The attempt has to be made again, and the outcome of its body dropped.
    Conflicted {
        /// Whether it kept no list of its reads, so its reads may still hold.
        was_optimistic: bool,
    },
}

/// One attempt to write.
pub(super) struct WriteAttempt<'c> {
    shared: &'c HeapShared,
    /// Dropped by hand: after most attempts it owns nothing.
    pub active: ManuallyDrop<ActiveTx>,
    pin: Option<BriefPin<'c>>,
}

impl<'c> WriteAttempt<'c> {
    #[inline(always)]
    pub(super) fn begin(shared: &'c HeapShared, mode: ValidationMode) -> WriteAttempt<'c> {
        let pin = Some(shared.pool.pin_briefly());
        let active = ManuallyDrop::new(ActiveTx::begin(shared, true, mode, seems_quiet));
        WriteAttempt { shared, active, pin }
    }

    /// Commits the attempt, unless its body returned an error.
    #[inline(always)]
    pub(super) fn end(&mut self, is_ok: bool, deaths: usize) -> AttemptEnd {
        if self.active.has(ReadHazards::DOOMED) {
            return self.conflicted();
        }
        if !is_ok {
            return AttemptEnd::Aborted;
        }
        match commit_attempt(self.shared, &self.active, deaths) {
            Ok(()) => {
                if let Some(writer) = self.active.writer.get_mut().take() {
                    // The writer has nothing of this transaction left.
                    self.shared.put_writer(writer);
                }
                note_clock(self.active.rv());
                if self.active.may_have_list() {
                    self.active.forget_reads();
                }
                self.pin = None;
                AttemptEnd::Committed
            }
            Err(e) if e.is_conflict() => self.conflicted(),
            Err(e) => AttemptEnd::Failed(e),
        }
    }

    #[cold]
    fn conflicted(&self) -> AttemptEnd {
        AttemptEnd::Conflicted { was_optimistic: !self.active.has(ReadHazards::NOTES) }
    }

    #[cold]
    #[inline(never)]
    fn give_back(&mut self) {
        note_clock(self.active.rv());
        if let Some(mut writer) = self.active.writer.take() {
            writer.abort(&self.shared.orecs);
            self.shared.put_writer(writer);
        }
        self.active.forget_reads();
    }
}

/// Gives back everything that the attempt holds, however it ends.
impl Drop for WriteAttempt<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.give_back();
    }
}

/// One attempt to read.
pub(super) struct ReadAttempt<'c> {
    _pin: BriefPin<'c>,
    /// Dropped by hand: it never has a writer, and mostly nothing else.
    pub active: ManuallyDrop<ActiveTx>,
}

impl<'c> ReadAttempt<'c> {
    #[inline(always)]
    pub(super) fn begin(shared: &'c HeapShared, mode: ValidationMode) -> ReadAttempt<'c> {
        let _pin = shared.pool.pin_briefly();
        ReadAttempt { _pin, active: ManuallyDrop::new(ActiveTx::begin(shared, false, mode, seems_quiet)) }
    }

    /// Whether its outcome is valid. Otherwise it has to be made again.
    #[inline(always)]
    pub(super) fn end(&mut self) -> bool {
        note_clock(self.active.rv());
        !self.active.has(ReadHazards::DOOMED)
    }
}

impl Drop for ReadAttempt<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.active.may_have_list() {
            self.forget_list();
        }
    }
}

impl ReadAttempt<'_> {
    #[inline(never)]
    fn forget_list(&self) {
        self.active.forget_reads();
    }
}

/// Commits what an attempt has done.
#[inline(always)]
fn commit_attempt(shared: &HeapShared, active: &ActiveTx, deaths: usize) -> Result<()> {
    if active.nested_unfinished.get() > 0 {
        return Err(ErrorKind::NestedFailed.into());
    }
    let mut held = active.writer.borrow_mut();
    let Some(writer) = held.as_mut() else { return Ok(()) };
    if let Some(e) = writer.lost.take() {
        writer.abort(&shared.orecs);
        return Err(e);
    }
    commit(shared, active, writer, deaths)?;
    if writer.dying_first != 0 || shared.handles.is_busy() {
        go_on_collecting(shared, active, writer);
    }
    Ok(())
}

/// Releases a bounded number of dying objects. The transaction itself is committed, so an error here is kept
/// for [`Heap::left_behind`](crate::Heap::left_behind), and later commits try again.
#[cold]
fn go_on_collecting(shared: &HeapShared, active: &ActiveTx, writer: &mut WriterContext) {
    if let Err(e) = collect(shared, writer, COLLECT_MAX) {
        *shared.left.lock() = Some(e);
    }
    // These commits are the thread's own, so the heap stays quiet for it. If others have committed meanwhile,
    // the next transaction once takes the heap for quiet by mistake, which costs a retry at most.
    active.set_rv(shared.clock.now().count());
}
