//! A transaction that writes: it owns places, and keeps what it writes in the pool's transaction until the
//! commit.

use crate::error::{Error, ErrorKind, Result};
use crate::layout::LINE;
use crate::objects::brand::Brand;
use crate::objects::persist::{Persist, Plain};
use crate::objects::place::{FRESH, Ref};
use crate::objects::value_buffer::ValueBuffer;
use crate::stm::active_tx::ActiveTx;
use crate::stm::hazards::ReadHazards;
use crate::stm::shared::HeapShared;
use crate::stm::writer::WriterContext;
use crate::tx::read::ReadTx;
use std::cell::RefMut as CellMut;
use std::ops::Deref;

/// Lines of a value that are prefetched before it is written.
const FETCHED_LINES_MAX: u64 = 4;

/// A transaction that may also write. Its writes become visible to others as a whole, when they are durable.
pub struct Tx<'t, B: Brand> {
    read: ReadTx<'t, B>,
}

impl<'t, B: Brand> Deref for Tx<'t, B> {
    type Target = ReadTx<'t, B>;
    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.read
    }
}

impl<B: Brand> std::fmt::Debug for Tx<'_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tx").field("clock", &self.active.rv()).finish_non_exhaustive()
    }
}

impl<'t, B: Brand> Tx<'t, B> {
    #[inline(always)]
    pub(crate) fn new(shared: &'t HeapShared, active: &'t ActiveTx) -> Self {
        Tx { read: ReadTx::new(shared, active) }
    }

    /// As [`ReadTx::copied`].
    #[inline(always)]
    pub(crate) fn copied(&self) -> Self {
        Tx { read: self.read.copied() }
    }

    /// Sets the value at a place.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`]; the pool's own.
    #[inline]
    pub fn set<T: Plain>(&mut self, place: Ref<'t, B, T>, value: T) -> Result<()> {
        self.own_place(place)?;
        self.write_value(place, &value)
    }

    /// Ends the transaction with nothing changed: return the error with `?` or `return Err`.
    pub fn cancel(&self) -> Error {
        ErrorKind::Cancelled.into()
    }

    /// Notes that the map at `off` gains or loses an entry, for iterators of an outer transaction over this
    /// map.
    #[inline(always)]
    pub(crate) fn note_reshaped(&mut self, off: u64) -> Result<()> {
        if self.active.nested_unfinished.get() == 0 { Ok(()) } else { self.note_reshaped_inside(off) }
    }

    #[cold]
    fn note_reshaped_inside(&mut self, off: u64) -> Result<()> {
        let map = (off, self.writers_begun());
        let reshaped = &mut self.writer()?.reshaped;
        if reshaped.last() != Some(&map) {
            reshaped.push(map);
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn write_value<T: Persist>(&mut self, place: Ref<'t, B, T>, value: &T) -> Result<()> {
        self.note_variants::<T>();
        let mut buffer = ValueBuffer::new();
        let words = buffer.of(value);
        if place.off.is_multiple_of(8) && size_of::<T>().is_multiple_of(8) {
            return self.write_words(place.key, place.off, words.words());
        }
        self.copied().write_bytes(place.key, place.off, words.value_bytes())
    }

    #[inline(always)]
    pub(crate) fn write_words(&mut self, key: u64, off: u64, words: &[u64]) -> Result<()> {
        let mut writer = self.writer()?;
        if key != FRESH {
            if let Ok(line) = words.try_into()
                && off.is_multiple_of(LINE)
            {
                self.active.note_written_line(off);
                return Ok(writer.ptx.lines().store_whole_line(off, line)?);
            }
            self.active.note_written(off, words.len());
            return Ok(writer.ptx.lines().store_words(off, words)?);
        }
        Ok(writer.ptx.write_fresh_words(off, &[], words)?)
    }

    /// Writes bytes that begin or end inside words.
    #[inline(never)]
    pub(crate) fn write_bytes(mut self, key: u64, off: u64, bytes: &[u8]) -> Result<()> {
        let mut at = off;
        let mut rest = bytes;
        while !rest.is_empty() {
            let word_off = at & !7;
            let start = (at - word_off) as usize;
            let count = rest.len().min(8 - start);
            let mut word = self.read_word(key, word_off)?.to_ne_bytes();
            word[start..start + count].copy_from_slice(&rest[..count]);
            self.write_words(key, word_off, &[u64::from_ne_bytes(word)])?;
            at += count as u64;
            rest = &rest[count..];
        }
        Ok(())
    }

    /// Prepares a write to a place.
    #[inline(always)]
    pub(crate) fn own_place<T>(&mut self, place: Ref<'t, B, T>) -> Result<()> {
        self.check_stamp(place.stamp)?;
        if place.key != FRESH {
            let lines = (size_of::<T>() as u64).div_ceil(LINE).min(FETCHED_LINES_MAX);
            // The last line is the one of the value's last word, if the value does not begin with a line.
            let last = (size_of::<T>() as u64).saturating_sub(8).min(LINE * FETCHED_LINES_MAX);
            (1..lines).for_each(|line| {
                self.shared.region().prefetch_for_store(place.off.wrapping_add(LINE * line))
            });
            if place.off % LINE + last >= LINE {
                self.shared.region().prefetch_for_store(place.off.wrapping_add(last));
            }
        }
        self.own(place.key, place.off)
    }

    /// Prepares a write at `off`, which belongs to `key`. No other transaction writes there during the
    /// commit; in a retry, none does from now on.
    #[inline(always)]
    pub(crate) fn own(&mut self, key: u64, off: u64) -> Result<()> {
        let (active, shared) = (self.active, self.shared);
        if active.has(ReadHazards::DOOMED) {
            return Err(active.refusal());
        }
        if key == FRESH {
            return Ok(());
        }
        // The commit stores there, and later instructions should not wait for the miss.
        shared.region().prefetch_for_store(off);
        if !shared.isolates() {
            return Ok(());
        }
        let index = shared.orecs.index(key);
        shared.orecs.prefetch(index);
        let mut writer = self.writer()?;
        writer.ptx.prefetch_for_store(off);
        if active.owns_early {
            return active.own(shared, &mut writer, index);
        }
        writer.want(index);
        Ok(())
    }

    /// Notes a write of a whole value. If it may have variants, earlier places in variants become invalid.
    #[inline(always)]
    pub(crate) fn note_variants<T: Persist>(&self) {
        if T::HAS_VARIANTS {
            self.active.note_variants();
        }
    }

    /// The writer, taken at the first change.
    #[inline(always)]
    pub(super) fn writer(&self) -> Result<CellMut<'_, WriterContext>> {
        writer_of(self.shared, self.active)
    }
}

/// The transaction's writer, taken at the first change.
#[inline(always)]
pub(crate) fn writer_of<'s>(shared: &HeapShared, active: &'s ActiveTx) -> Result<CellMut<'s, WriterContext>> {
    let mut writer = active.writer.borrow_mut();
    if writer.is_none() {
        if active.has(ReadHazards::DOOMED) {
            return Err(active.refusal());
        }
        if !active.may_write {
            return Err(ErrorKind::ReadTransaction.into());
        }
        let taken = shared.take_writer()?;
        active.number.set(taken.number);
        // The slot was empty, so there is nothing to drop.
        std::mem::forget(writer.replace(taken));
    }
    Ok(CellMut::map(writer, |writer| &mut **writer.as_mut().expect("taken above")))
}
