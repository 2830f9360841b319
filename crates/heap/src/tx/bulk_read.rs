//! Reads of many words of an object, under a single check of its ownership record.

use crate::error::Result;
use crate::layout::LINE;
use crate::objects::brand::Brand;
use crate::objects::persist::Plain;
use crate::objects::place::FRESH;
use crate::objects::value_buffer::ValueBuffer;
use crate::stm::active_tx::ActiveTx;
use crate::stm::hazards::ReadHazards;
use crate::stm::orec::Orec;
use crate::stm::shared::HeapShared;
use crate::tx::read::ReadTx;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a bulk read. The type is sealed: as plain atomics they could be stored to.
#[derive(Debug, Clone, Copy)]
pub struct BulkWords<'w>(pub(crate) &'w [AtomicU64]);

/// A word of a bulk read; `None` after the end.
#[inline(always)]
pub(crate) fn word_in(words: &[AtomicU64], at: usize) -> Option<u64> {
    // ORDER: acquire, since a commit may be storing.
    words.get(at).map(|word| word.load(Ordering::Acquire))
}

/// The value at an offset in `words`; `None` past the end, or if the bytes are no value.
#[inline(always)]
pub(crate) fn value_in<T: Plain>(words: &[AtomicU64], off: usize) -> Option<T> {
    let mut buffer = ValueBuffer::<T>::new();
    let mut value = buffer.zeroed();
    let bytes = size_of::<T>();
    if align_of::<T>() == 8 {
        for (i, out) in value.words_mut().iter_mut().enumerate() {
            *out = word_in(words, off / 8 + i)?;
        }
    } else if bytes > 0 {
        let mut from = word_in(words, off / 8)?.to_ne_bytes();
        for (i, out) in value.value_bytes_mut().iter_mut().enumerate() {
            let at = off + i;
            if i > 0 && at.is_multiple_of(8) {
                from = word_in(words, at / 8)?.to_ne_bytes();
            }
            *out = from[at % 8];
        }
    }
    value.value()
}

/// Words that another thread may be storing to.
struct CheckedWords<'t> {
    words: &'t [AtomicU64],
    /// A copy with the transaction's own writes; empty if it has none there.
    copy: Vec<AtomicU64>,
    index: u32,
    seen: Orec,
    is_mine: bool,
    is_quiet: bool,
    round: u32,
}

impl CheckedWords<'_> {
    fn words(&self) -> &[AtomicU64] {
        if self.copy.is_empty() { self.words } else { &self.copy }
    }

    /// Whether the words were valid; notes the read.
    #[inline(never)]
    fn still_holds(&self, shared: &HeapShared, active: &ActiveTx) -> Result<bool> {
        if self.is_mine {
            return Ok(true);
        }
        if self.is_quiet {
            if !shared.clock.stands_at(active.rv()) {
                active.end_quiet()?;
                return Ok(false);
            }
            active.note_read(self.index, active.rv());
            return Ok(true);
        }
        let again = shared.orecs.load_again(self.index);
        let holds = again.version() == self.seen.version() && !again.is_committing();
        if holds {
            active.note_read(self.index, self.seen.version());
        }
        Ok(holds)
    }
}

impl<'t, B: Brand> ReadTx<'t, B> {
    /// Evaluates `count` words from `off` on, all of which belong to `key`.
    ///
    /// Other threads may be storing to the words meanwhile. `evaluate` is then called again, and the earlier
    /// result dropped. It must end, and not panic, whatever the words are.
    #[inline(always)]
    pub(crate) fn bulk_read<R>(
        &self,
        key: u64,
        off: u64,
        count: usize,
        evaluate: impl Fn(&[AtomicU64]) -> R,
    ) -> Result<R> {
        let quiet = self.quiet_words(off, count as u64);
        // Set if quiet reads are not possible. (One call of `evaluate` serves both ways, so that the compiler
        // inlines it.)
        let mut checked = None;
        if quiet.is_none() {
            checked = Some(self.copied().prepare_bulk_read(key, off, count, 0)?);
        }
        loop {
            let said = evaluate(match &checked {
                Some(checked) => checked.words(),
                None => quiet.unwrap_or_default(),
            });
            let is_good = match &checked {
                Some(checked) => checked.still_holds(self.shared, self.active)?,
                None => self.shared.clock.stands_at(self.active.quiet_at()),
            };
            if is_good {
                return Ok(said);
            }
            let round = checked.map_or(0, |checked| checked.round);
            checked = Some(self.copied().prepare_bulk_read(key, off, count, round)?);
        }
    }

    /// The words, once no commit is storing to them. `round` counts the waits so far.
    #[inline(never)]
    fn prepare_bulk_read(self, key: u64, off: u64, count: usize, mut round: u32) -> Result<CheckedWords<'t>> {
        let (active, shared) = (self.active, self.shared);
        if active.has(ReadHazards::DOOMED) {
            return Err(active.refusal());
        }
        let words = shared.region().words(off, count as u64)?;
        let index = shared.orecs.index(key);
        loop {
            let is_quiet =
                !active.has(ReadHazards::RECORDS) && !active.has(ReadHazards::WRITTEN) && key != FRESH;
            let seen = if is_quiet { Orec::default() } else { shared.orecs.load(index) };
            let is_mine =
                key == FRESH || seen.owner() != 0 && seen.owner() == active.number.get() || active.is_bare();
            if !is_mine && seen.is_committing() {
                active.wait(&mut round)?;
                continue;
            }
            if !is_mine && seen.version() > active.rv() {
                active.extend(shared, seen.version())?;
                continue;
            }
            let has_own = active.has(ReadHazards::WRITTEN) && key != FRESH;
            let copy = if has_own { self.copy_own(off, words) } else { Vec::new() };
            return Ok(CheckedWords { words, copy, index, seen, is_mine, is_quiet, round });
        }
    }

    /// A copy of the words with the transaction's own writes. Empty if it has written none of them.
    #[inline(never)]
    fn copy_own(&self, off: u64, words: &[AtomicU64]) -> Vec<AtomicU64> {
        let mut copy: Vec<u64> = Vec::new();
        let writer = self.active.writer.borrow();
        let end = off + 8 * words.len() as u64;
        for line_off in (off & !(LINE - 1)..end).step_by(LINE as usize) {
            let stored = writer.as_ref().and_then(|writer| writer.ptx.stored_lines().words_of_line(line_off));
            let Some((mask, line)) = stored else { continue };
            if copy.is_empty() {
                copy = words.iter().map(|word| word.load(Ordering::Acquire)).collect();
            }
            for (i, word) in line.iter().enumerate() {
                let at = line_off + 8 * i as u64;
                if mask >> i & 1 != 0 && (off..end).contains(&at) {
                    copy[((at - off) / 8) as usize] = *word;
                }
            }
        }
        copy.into_iter().map(AtomicU64::new).collect()
    }

    /// Prefetches the lines of these bytes.
    #[inline(always)]
    pub(crate) fn fetch_bytes(&self, off: u64, bytes: u64) {
        for line in 0..bytes.div_ceil(LINE) {
            self.shared.region().prefetch(off.wrapping_add(LINE * line));
        }
    }
}
