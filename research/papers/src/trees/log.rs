//! The log of the trees: redo, undo-redo and allocation records, in one area that is used again and again.
//!
//! A line of the area has two slots of three words, or four slots of two, by the [`Form`] of the log, so that
//! no record crosses a line. A record's first word is its tag, stored last: the stores of a line reach media
//! in program order, so a record whose tag is there is there in full.
//!
//! ```text
//! tag   word number of the home location : 36 | epoch : 25 | last of its operation : 1 | kind : 2
//! redo       tag, new value
//! undo-redo  tag, new value, old value
//! allocation tag (the node's first word)
//! ```
//!
//! An operation's records begin at a line and follow one another; the last one says so. Those of the current
//! epoch, from the start of the area up to the first gap, are what recovery acts on: complete operations are
//! redone in their order, the incomplete one at the end is undone as far as its records know old values.
//! Advancing the epoch empties the log; before that, home locations must be durable. Tags stand at fixed
//! places, so no value can be mistaken for one.
//!
//! Where each operation has an epoch of its own, the halves of the area take turns, so that the records of an
//! epoch are overwritten only when the next one is durable: else a new value could meet an old tag.

use crate::mem::Mem;
use tembo_pmem::{LINE_BYTES, WORD_BYTES};

const KIND_BITS: u32 = 2;
const KIND_REDO: u64 = 1;
const KIND_UNDO_REDO: u64 = 2;
const KIND_ALLOCATION: u64 = 3;
const LAST: u64 = 1 << KIND_BITS;
const EPOCH_SHIFT: u32 = KIND_BITS + 1;
const EPOCH_BITS: u32 = 25;
const HOME_SHIFT: u32 = EPOCH_SHIFT + EPOCH_BITS;
/// The largest epoch; after it the area is cleared and epochs begin again.
pub(crate) const MAX_EPOCH: u64 = (1 << EPOCH_BITS) - 1;
/// The epoch while the area is being cleared; no record has it.
const CLEARING: u64 = 0;
/// The first epoch.
pub(crate) const FIRST_EPOCH: u64 = 1;
/// Memory that records can refer to.
pub(crate) const MAX_MEM_BYTES: u64 = WORD_BYTES << (64 - HOME_SHIFT);

/// The records of a log, which decide how many fit in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Redo and undo-redo records: two a line.
    UndoRedo,
    /// Redo and allocation records: four a line.
    Redo,
    /// Redo records, four a line, of one operation an epoch, in halves that take turns.
    RedoByTurns,
}

impl Form {
    /// Bytes of area that hold `records` records.
    pub(crate) fn bytes(self, records: u64) -> u64 {
        records.div_ceil(self.slots_per_line()) * LINE_BYTES * self.parts()
    }

    /// How many parts of the area take turns.
    fn parts(self) -> u64 {
        if self == Form::RedoByTurns { 2 } else { 1 }
    }

    fn slots_per_line(self) -> u64 {
        match self {
            Form::UndoRedo => 2,
            Form::Redo | Form::RedoByTurns => 4,
        }
    }

    fn slot_bytes(self) -> u64 {
        match self {
            Form::UndoRedo => 3 * WORD_BYTES,
            Form::Redo | Form::RedoByTurns => 2 * WORD_BYTES,
        }
    }
}

/// The volatile side of a log.
#[derive(Debug)]
pub struct Log {
    form: Form,
    /// Where the epoch is on media.
    epoch_off: u64,
    base: u64,
    /// Slots of a part.
    slot_count: u64,
    epoch: u64,
    /// Where the part of the current epoch is.
    part: u64,
    /// The next slot.
    slot: u64,
    /// The first slot that is not flushed.
    unflushed: u64,
}

/// A record as recovery reads it.
#[derive(Clone, Copy)]
struct Record {
    kind: u64,
    is_last: bool,
    home: u64,
    slot: u64,
}

impl Log {
    /// The log in the area `base..base + bytes`, of which both are whole lines. The epoch is not read yet.
    pub(crate) fn new(form: Form, epoch_off: u64, base: u64, bytes: u64) -> Log {
        let slot_count = bytes / LINE_BYTES / form.parts() * form.slots_per_line();
        let mut log = Log { form, epoch_off, base, slot_count, epoch: 0, part: base, slot: 0, unflushed: 0 };
        log.begin_epoch(FIRST_EPOCH);
        log
    }

    /// Goes to the start of an epoch's part.
    #[inline]
    fn begin_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.part = self.base + epoch % self.form.parts() * self.part_bytes();
        (self.slot, self.unflushed) = (0, 0);
    }

    fn part_bytes(&self) -> u64 {
        self.slot_count / self.form.slots_per_line() * LINE_BYTES
    }

    /// Stores the first epoch, for a log in memory of zeros. The caller flushes and fences.
    pub(crate) fn create<M: Mem>(&self, mem: &M) {
        mem.store_u64(self.epoch_off, FIRST_EPOCH);
    }

    /// Whether the area is large enough for operations of `records` records.
    pub(crate) fn can_hold(&self, records: u64) -> bool {
        records + self.form.slots_per_line() <= self.slot_count
    }

    /// Whether an operation of `records` records fits behind what is there.
    #[inline]
    pub(crate) fn has_room(&self, records: u64) -> bool {
        self.slot.next_multiple_of(self.form.slots_per_line()) + records <= self.slot_count
    }

    /// Begins the records of an operation, at a line.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.slot = self.slot.next_multiple_of(self.form.slots_per_line());
        self.unflushed = self.slot;
    }

    #[inline(always)]
    fn slot_off(&self, slot: u64) -> u64 {
        let per_line = self.form.slots_per_line();
        self.part + slot / per_line * LINE_BYTES + slot % per_line * self.form.slot_bytes()
    }

    #[inline(always)]
    fn tag(&self, home: u64, kind: u64, is_last: bool) -> u64 {
        let last = if is_last { LAST } else { 0 };
        (home / WORD_BYTES) << HOME_SHIFT | self.epoch << EPOCH_SHIFT | last | kind
    }

    /// Logs a new value.
    #[inline]
    pub(crate) fn redo<M: Mem>(&mut self, mem: &M, home: u64, new: u64, is_last: bool) {
        let at = self.slot_off(self.slot);
        mem.store_u64(at + WORD_BYTES, new);
        mem.store_u64(at, self.tag(home, KIND_REDO, is_last));
        self.slot += 1;
    }

    /// Logs an old and a new value.
    #[inline]
    pub(crate) fn undo_redo<M: Mem>(&mut self, mem: &M, home: u64, old: u64, new: u64, is_last: bool) {
        let at = self.slot_off(self.slot);
        mem.store_u64(at + WORD_BYTES, new);
        mem.store_u64(at + 2 * WORD_BYTES, old);
        mem.store_u64(at, self.tag(home, KIND_UNDO_REDO, is_last));
        self.slot += 1;
    }

    /// Logs that a node was taken. Recovery needs no such record here, since it rebuilds the free list from
    /// what the tree reaches; it is written because making an allocation durable is part of what shadowing
    /// costs in the paper.
    #[inline]
    pub(crate) fn note_allocation<M: Mem>(&mut self, mem: &M, node: u64) {
        mem.store_u64(self.slot_off(self.slot), self.tag(node, KIND_ALLOCATION, false));
        self.slot += 1;
    }

    /// Flushes the lines of the records that were written since the last call.
    #[inline]
    pub(crate) fn flush<M: Mem>(&mut self, mem: &M) {
        let first = self.slot_off(self.unflushed);
        mem.flush(first, self.slot_off(self.slot - 1) + WORD_BYTES - first);
        self.unflushed = self.slot;
    }

    /// Empties the log by advancing its epoch, and flushes that. Home locations must be durable.
    ///
    /// Without a fence of its own: the next operation's first one makes it durable. Until then recovery finds
    /// either epoch, and may redo the old one's records: they are still whole, and no durable store has made
    /// them out of date.
    #[inline]
    pub(crate) fn advance<M: Mem>(&mut self, mem: &M) {
        if self.epoch == MAX_EPOCH {
            self.clear(mem);
        } else {
            self.begin_epoch(self.epoch + 1);
            mem.store_u64(self.epoch_off, self.epoch);
            mem.flush(self.epoch_off, WORD_BYTES);
        }
    }

    /// Clears all tags, so that epochs can begin again.
    #[cold]
    fn clear<M: Mem>(&mut self, mem: &M) {
        mem.store_u64(self.epoch_off, CLEARING);
        mem.flush(self.epoch_off, WORD_BYTES);
        // PERSIST(I6): that no record counts, before the first of them is gone: half an operation would be
        // undone.
        mem.fence();
        for part in 0..self.form.parts() {
            self.begin_epoch(part);
            for slot in 0..self.slot_count {
                mem.store_u64(self.slot_off(slot), 0);
            }
            mem.flush(self.part, self.part_bytes());
        }
        // PERSIST(I6): that no old record is there, before the epoch under which one may have been written.
        mem.fence();
        self.begin_epoch(FIRST_EPOCH);
        mem.store_u64(self.epoch_off, self.epoch);
        mem.flush(self.epoch_off, WORD_BYTES);
    }

    /// The record at a slot, if it is of the current epoch.
    fn record<M: Mem>(&self, mem: &M, slot: u64) -> Option<Record> {
        if slot >= self.slot_count {
            return None;
        }
        let tag = mem.load_u64(self.slot_off(slot));
        let kind = tag & (LAST - 1);
        let epoch = tag >> EPOCH_SHIFT & MAX_EPOCH;
        let home = (tag >> HOME_SHIFT) * WORD_BYTES;
        (epoch == self.epoch && kind != 0).then_some(Record { kind, is_last: tag & LAST != 0, home, slot })
    }

    /// The records of operations from the start of the area, with the number of those that are complete.
    fn records<M: Mem>(&self, mem: &M) -> (Vec<Record>, usize) {
        let (mut found, mut complete, mut slot) = (Vec::new(), 0, 0);
        while let Some(record) = self.record(mem, slot) {
            found.push(record);
            slot += 1;
            if record.is_last {
                complete = found.len();
                slot = slot.next_multiple_of(self.form.slots_per_line());
            }
        }
        (found, complete)
    }

    /// Makes the home locations of all records durable and empties the log.
    pub(crate) fn checkpoint<M: Mem>(&mut self, mem: &M) {
        let mut flushed = u64::MAX;
        let mut slot = 0;
        while slot < self.slot {
            match self.record(mem, slot) {
                Some(record) => {
                    flush_home(mem, record, &mut flushed);
                    slot += 1;
                }
                None => slot = (slot + 1).next_multiple_of(self.form.slots_per_line()),
            }
        }
        // PERSIST(I6): the home locations, before the records that stand for them are gone.
        mem.fence();
        self.advance(mem);
        // PERSIST(I6): that the log is empty, before a node that it refers to is used again.
        mem.fence();
    }

    /// Redoes, undoes, and empties the log. Harmless to repeat: it depends on the records alone, and they
    /// stay until the home locations are durable.
    ///
    /// # Errors
    ///
    /// A record that cannot be one of this log.
    pub(crate) fn recover<M: Mem>(&mut self, mem: &M) -> Result<(), String> {
        let epoch = mem.load_u64(self.epoch_off);
        if epoch > MAX_EPOCH {
            return Err(format!("the log's epoch is {epoch:#x}"));
        }
        self.begin_epoch(epoch);
        if self.epoch == CLEARING {
            self.clear(mem);
            // PERSIST(I6): the first epoch, before records are written under it.
            mem.fence();
            return Ok(());
        }
        let (records, complete) = self.records(mem);
        let value = |record: &Record, word: u64| mem.load_u64(self.slot_off(record.slot) + word * WORD_BYTES);
        if let Some(wild) = records.iter().find(|r| r.home + WORD_BYTES > mem.len_bytes()) {
            return Err(format!("a log record is about {:#x}, which is not there", wild.home));
        }
        for record in records[..complete].iter().filter(|r| r.kind != KIND_ALLOCATION) {
            mem.store_u64(record.home, value(record, 1));
        }
        let unfinished = &records[complete..];
        for record in unfinished.iter().rev().filter(|r| r.kind == KIND_UNDO_REDO) {
            mem.store_u64(record.home, value(record, 2));
        }
        let mut flushed = u64::MAX;
        for record in &records {
            flush_home(mem, *record, &mut flushed);
        }
        // PERSIST(I6): the home locations, before the records that stand for them are gone.
        mem.fence();
        self.advance(mem);
        // PERSIST(I6): that the log is empty: records of a cut operation may lie behind a gap, and a new
        // operation of the same epoch must not complete them.
        mem.fence();
        Ok(())
    }
}

/// Flushes the line of a record's home location, unless it is the one flushed last.
fn flush_home<M: Mem>(mem: &M, record: Record, flushed: &mut u64) {
    let line = record.home / LINE_BYTES;
    if record.kind != KIND_ALLOCATION && line != *flushed {
        mem.flush(record.home, WORD_BYTES);
        *flushed = line;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::RealMem;
    use tembo_pmem::Region;

    const HOME: u64 = 2048;

    fn setup(form: Form) -> (RealMem, Log) {
        let mem = RealMem::new(Region::simulated(&[0; 4096], 4096, None).unwrap());
        let log = Log::new(form, 0, 64, 512);
        log.create(&mem);
        (mem, log)
    }

    fn recovered(mem: &RealMem, form: Form) -> Log {
        let mut log = Log::new(form, 0, 64, 512);
        log.recover(mem).unwrap();
        log
    }

    #[test]
    fn a_record_takes_its_words_and_never_crosses_a_line() {
        for form in [Form::Redo, Form::UndoRedo] {
            let (mem, mut log) = setup(form);
            log.begin();
            for i in 0..form.slots_per_line() * 8 {
                assert!(log.has_room(form.slots_per_line()) || i > form.slots_per_line() * 7);
                let before = mem.counts();
                log.redo(&mem, HOME, i, false);
                log.flush(&mem);
                let cost = mem.counts() - before;
                assert_eq!((cost.words, cost.lines), (2, 1));
            }
            assert!(!log.has_room(1));
        }
    }

    #[test]
    fn complete_operations_are_redone_and_the_last_incomplete_one_is_undone() {
        let (mem, mut log) = setup(Form::UndoRedo);
        mem.store_u64(HOME + 8, 99);
        log.begin();
        log.redo(&mem, HOME, 1, false);
        log.undo_redo(&mem, HOME + 8, 99, 2, true);
        log.begin();
        log.undo_redo(&mem, HOME, 1, 10, false);
        log.undo_redo(&mem, HOME, 10, 20, false);
        log.redo(&mem, HOME + 16, 30, false);
        mem.store_u64(HOME, 20);
        recovered(&mem, Form::UndoRedo);
        assert_eq!([0, 8, 16].map(|at| mem.load_u64(HOME + at)), [1, 2, 0]);
        mem.store_u64(HOME, 5);
        recovered(&mem, Form::UndoRedo);
        assert_eq!(mem.load_u64(HOME), 5, "the log was emptied");
    }

    #[test]
    fn records_behind_a_gap_do_not_count() {
        let (mem, mut log) = setup(Form::Redo);
        log.begin();
        for i in 0..6 {
            log.redo(&mem, HOME + 8 * i, 7, i == 5);
        }
        mem.store_u64(64 + 3 * 16, 0);
        recovered(&mem, Form::Redo);
        assert!((0..6).all(|i| mem.load_u64(HOME + 8 * i) == 0));
    }

    #[test]
    fn values_that_look_like_tags_are_not_taken_for_records() {
        let (mem, mut log) = setup(Form::Redo);
        let forged = log.tag(HOME + 8, KIND_REDO, true);
        log.begin();
        for i in 0..5 {
            log.redo(&mem, HOME, forged, i == 4);
        }
        recovered(&mem, Form::Redo);
        assert_eq!((mem.load_u64(HOME), mem.load_u64(HOME + 8)), (forged, 0));
    }

    #[test]
    fn epochs_begin_again_after_the_largest_with_a_cleared_area() {
        let (mem, mut log) = setup(Form::Redo);
        log.begin();
        log.redo(&mem, HOME, 7, true);
        mem.store_u64(0, MAX_EPOCH);
        let mut log = recovered(&mem, Form::Redo);
        assert_eq!((mem.load_u64(0), mem.load_u64(HOME)), (FIRST_EPOCH, 0), "an old record is not redone");
        log.begin();
        log.redo(&mem, HOME, 8, true);
        mem.store_u64(0, CLEARING);
        recovered(&mem, Form::Redo);
        assert_eq!((mem.load_u64(0), mem.load_u64(HOME)), (FIRST_EPOCH, 0));
    }

    #[test]
    fn damaged_logs_are_told_apart() {
        let (mem, log) = setup(Form::Redo);
        mem.store_u64(64, log.tag(8192, KIND_REDO, true));
        assert!(Log::new(Form::Redo, 0, 64, 512).recover(&mem).unwrap_err().contains("0x2000"));
        mem.store_u64(0, MAX_EPOCH + 1);
        assert!(Log::new(Form::Redo, 0, 64, 512).recover(&mem).unwrap_err().contains("epoch"));
    }
}
