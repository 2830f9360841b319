//! A transaction that only reads: values, pointers, and the ways to load a word, from the fastest to the most
//! general.

use crate::error::{Error, ErrorKind, Result, corrupt};
use crate::layout::{Counts, Kind, OBJECT_HEAD_BYTES, counts_off, head_bytes, kind_off};
use crate::objects::brand::Brand;
use crate::objects::persist::{Persist, Plain};
use crate::objects::place::{Arr, FRESH, Obj, Ref, Tie};
use crate::objects::slots::{PArr, PRc, PWeak};
use crate::objects::value_buffer::ValueBuffer;
use crate::stm::active_tx::ActiveTx;
use crate::stm::hazards::ReadHazards;
use crate::stm::read_list::COUNT_RECORD;
use crate::stm::shared::HeapShared;
use crate::stm::validate::{load_all, word_by_record, words_by_record};
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use tembo_pmem::LoadableWords;

/// The bits of an array's length word that hold the length.
const LEN_MASK: u64 = 0xFFFF_FFFF;

/// A transaction that only reads. It sees one state of the heap, and nothing that a crash could undo.
///
/// Every read may end in [`ErrorKind::Conflict`]. Return it with `?`, and the transaction is run again.
pub struct ReadTx<'t, B: Brand> {
    pub(crate) shared: &'t HeapShared,
    pub(crate) active: &'t ActiveTx,
    /// The words of the heap's region; none if the transaction has had a hazard from the start.
    words: LoadableWords<'t>,
    tie: Tie<'t, B, ()>,
}

impl<B: Brand> std::fmt::Debug for ReadTx<'_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadTx").field("clock", &self.active.rv()).finish_non_exhaustive()
    }
}

impl<'t, B: Brand> ReadTx<'t, B> {
    #[inline(always)]
    pub(crate) fn new(shared: &'t HeapShared, active: &'t ActiveTx) -> Self {
        // A transaction that cannot read quietly must not load the clock, which others advance.
        let words = if active.is_quiet() { shared.region().loadable_words() } else { LoadableWords::none() };
        ReadTx { shared, active, words, tie: PhantomData }
    }

    /// Returns a copy for out-of-line slow paths. Passing `&self` would force the transaction out of
    /// registers.
    #[inline(always)]
    pub(crate) fn copied(&self) -> Self {
        ReadTx { shared: self.shared, active: self.active, words: self.words, tie: PhantomData }
    }

    /// The value at a place.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`]; corruption if the bytes there are none of `T`.
    #[inline(always)]
    pub fn get<T: Plain>(&self, place: Ref<'t, B, T>) -> Result<T> {
        self.check_stamp(place.stamp)?;
        let mut buffer = ValueBuffer::<T>::new();
        let mut words = buffer.zeroed();
        if let ([word], 8) = (words.words_mut(), align_of::<T>()) {
            *word = self.read_word(place.key, place.off)?;
            return words.value().ok_or_else(|| bad_value::<T>(place.off));
        }
        if place.off.is_multiple_of(8) {
            self.read_words(place.key, place.off, words.words_mut())?;
        } else {
            self.copied().read_bytes(place.key, place.off, words.value_bytes_mut())?;
        }
        words.value().ok_or_else(|| bad_value::<T>(place.off))
    }

    /// The object that a pointer leads to.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`].
    #[inline(always)]
    pub fn load<T: Persist>(&self, slot: Ref<'t, B, PRc<T>>) -> Result<Option<Obj<'t, B, T>>> {
        self.check_stamp(slot.stamp)?;
        if let Some(off) = self.word_at_once(slot.key, slot.off) {
            return Ok((off != 0).then(|| ReadTx::object_before(off)));
        }
        let off = self.copied().read_word_slow(slot.key, slot.off)?;
        Ok((off != 0).then(|| self.object(off)))
    }

    /// The object to which a never-null pointer leads: for pointers that the program links in the transaction
    /// that makes them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NullPointer`] if it is null after all, which ends the transaction with nothing changed;
    /// [`ErrorKind::Conflict`].
    #[inline(always)]
    pub fn follow<T: Persist>(&self, slot: Ref<'t, B, PRc<T>>) -> Result<Obj<'t, B, T>> {
        self.load(slot)?.ok_or_else(|| null_pointer(slot))
    }

    /// As [`follow`](Self::follow), for the pointer to an array.
    ///
    /// # Errors
    ///
    /// As for [`follow`](Self::follow).
    #[inline(always)]
    pub fn follow_array<T: Persist>(&self, slot: Ref<'t, B, PArr<T>>) -> Result<Arr<'t, B, T>> {
        self.array(slot)?.ok_or_else(|| null_pointer(slot))
    }

    /// The object that a weak pointer leads to, if it is still alive.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`].
    pub fn upgrade<T: Persist>(&self, slot: Ref<'t, B, PWeak<T>>) -> Result<Option<Obj<'t, B, T>>> {
        self.check_stamp(slot.stamp)?;
        let off = self.read_word(slot.key, slot.off)?;
        if off == 0 {
            return Ok(None);
        }
        let object = self.object(off);
        if object.key == FRESH || self.is_alive(off)? {
            return Ok(Some(object));
        }
        Ok(None)
    }

    /// The array that a pointer leads to.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`].
    #[inline(always)]
    pub fn array<T: Persist>(&self, slot: Ref<'t, B, PArr<T>>) -> Result<Option<Arr<'t, B, T>>> {
        self.check_stamp(slot.stamp)?;
        // One load of the clock covers both reads. If the clock has moved, `off` may be no pointer and `len`
        // no length: `off` then leads to any word of the region or outside of it, and `len` is dropped.
        if let Some(off) = self.words.load(slot.off)
            && off != 0
            && let Some(len) = self.words.load(off.wrapping_add(OBJECT_HEAD_BYTES))
            && self.shared.clock.stands_at(self.active.quiet_at())
        {
            return Ok(Some(Arr::new(off, len & LEN_MASK, false)));
        }
        let off = match word_by_record(self.shared, self.active, slot.key, slot.off) {
            Some(off) => off,
            None => self.copied().read_word_slow(slot.key, slot.off)?,
        };
        self.array_at(off)
    }

    /// The array that a pointer with this value leads to.
    #[inline(always)]
    pub(crate) fn array_at<T: Persist>(&self, off: u64) -> Result<Option<Arr<'t, B, T>>> {
        if off == 0 {
            return Ok(None);
        }
        // The length never changes, and the pin keeps the memory from being reused.
        let len = self.shared.region().load_u64(off.wrapping_add(OBJECT_HEAD_BYTES))? & LEN_MASK;
        Ok(Some(Arr::new(off, len, self.is_fresh(off))))
    }

    /// The error for an enum with the tag of no variant. For code that `#[derive(Persist)]` makes.
    #[doc(hidden)]
    #[cold]
    pub fn unknown_variant<T: Persist>(&self, place: Ref<'t, B, T>, tag: u64) -> Error {
        corrupt("an enum's tag", place.off, format!("one of {}", T::name()), tag)
    }

    /// The number that [`check_undisturbed`](Self::check_undisturbed) compares.
    #[inline(always)]
    pub(crate) fn writers_begun(&self) -> u64 {
        self.active.writers_begun()
    }

    /// Refuses to go on with earlier reads if a program's own code, such as a comparison of its keys, has
    /// begun a nested transaction that may write.
    #[inline(always)]
    pub(crate) fn check_undisturbed(&self, begun: u64) -> Result<()> {
        if self.active.writers_begun() == begun { Ok(()) } else { Err(ErrorKind::MapChanged.into()) }
    }

    /// Refuses a place in a variant if a value with variants was written since.
    #[inline(always)]
    pub(crate) fn check_stamp(&self, stamp: u64) -> Result<()> {
        if stamp != 0 && stamp != self.active.stamp() {
            return Err(ErrorKind::StaleVariant.into());
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn object<T>(&self, off: u64) -> Obj<'t, B, T> {
        let value = off.wrapping_add(head_bytes::<T>());
        Obj::new(value, if self.is_fresh(off) { FRESH } else { value })
    }

    /// An object from before the transaction.
    #[inline(always)]
    pub(crate) fn object_before<T>(off: u64) -> Obj<'t, B, T> {
        let value = off.wrapping_add(head_bytes::<T>());
        Obj::new(value, value)
    }

    #[inline(always)]
    fn is_fresh(&self, off: u64) -> bool {
        self.active.has(ReadHazards::FRESH) && self.copied().allocated(off)
    }

    #[inline(never)]
    fn allocated(self, off: u64) -> bool {
        self.active.writer.borrow().as_ref().is_some_and(|writer| writer.fresh.get(off).is_some())
    }

    /// Whether an object from before the transaction is alive.
    pub(crate) fn is_alive(&self, off: u64) -> Result<bool> {
        let (active, records) = (self.active, &self.shared.count_orecs);
        if active.has(ReadHazards::DOOMED) {
            return Err(active.refusal());
        }
        let index = records.index(off);
        let mut round = 0;
        loop {
            let seen = records.load(index);
            if self.shared.isolates() && (seen.is_committing() || seen.owner() != 0) {
                active.wait(&mut round)?;
                continue;
            }
            if seen.version() > active.rv() {
                active.extend(self.shared, seen.version())?;
                continue;
            }
            let kind = Kind(self.shared.region().load_u64(kind_off(off))?);
            let counts = Counts::decode(self.shared.region().load_u64(counts_off(off))?);
            let is_alive =
                !kind.is_dying() && !kind.is_shell() && (counts.strong > 0 || self.shared.handles.holds(off));
            let again = records.load_again(index);
            if again == seen {
                active.note_read(index | COUNT_RECORD, seen.version());
                return Ok(is_alive);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn read_word(&self, key: u64, off: u64) -> Result<u64> {
        // The common case: no other transaction stores, and this one has not written.
        match self.word_at_once(key, off) {
            Some(word) => Ok(word),
            None => self.copied().read_word_slow(key, off),
        }
    }

    /// A word that can be read without waiting.
    #[inline(always)]
    fn word_at_once(&self, key: u64, off: u64) -> Option<u64> {
        self.quiet_word(off)
            .or_else(|| self.word_beside_own(off))
            .or_else(|| word_by_record(self.shared, self.active, key, off))
    }

    /// A word in a line without own writes, if own writes are the only hazard, and the clock has not moved.
    /// (The transaction has allocated nothing either.)
    #[inline(always)]
    fn word_beside_own(&self, off: u64) -> Option<u64> {
        if !self.active.is_quiet_beside_own(off) {
            return None;
        }
        let word = self.words.load(off)?;
        self.shared.clock.stands_at(self.active.rv()).then_some(word)
    }

    /// A word, if there are no hazards and the clock has not moved. (The transaction has allocated nothing
    /// either.)
    #[inline(always)]
    fn quiet_word(&self, off: u64) -> Option<u64> {
        let word = self.words.load(off)?;
        self.shared.clock.stands_at(self.active.quiet_at()).then_some(word)
    }

    /// A word that is valid only if [`is_still_quiet`](Self::is_still_quiet) holds afterwards. Until then it
    /// may have any value.
    #[inline(always)]
    pub(crate) fn word_if_quiet(&self, off: u64) -> Option<u64> {
        self.words.load(off)
    }

    /// Whether no commit has begun to store since the transaction began, and it has written nothing itself.
    #[inline(always)]
    pub(crate) fn is_still_quiet(&self) -> bool {
        self.shared.clock.stands_at(self.active.quiet_at())
    }

    /// Words that are valid only if the clock is [`ActiveTx::quiet_at`] after they were loaded.
    #[inline(always)]
    pub(crate) fn quiet_words(&self, off: u64, count: u64) -> Option<&'t [AtomicU64]> {
        if self.active.is_quiet() { self.words.words(off, count) } else { None }
    }

    #[inline(never)]
    fn read_word_slow(self, key: u64, off: u64) -> Result<u64> {
        let active = self.active;
        if key == FRESH && !active.has(ReadHazards::DOOMED) {
            return Ok(self.shared.region().load_u64(off)?);
        }
        if key != FRESH
            && active.hazards().is_at_most(&[ReadHazards::NOTES, ReadHazards::WRITTEN, ReadHazards::FRESH])
            && let Some(word) = self.shared.region().loadable_words().load(off)
            && self.shared.clock.stands_at(active.rv())
        {
            if active.has(ReadHazards::NOTES) {
                let index = self.shared.orecs.index(key);
                if active.may_write {
                    // A word that is read is often written next.
                    self.shared.orecs.prefetch(index);
                }
                active.note_read(index, active.rv());
            }
            return Ok(if active.has(ReadHazards::WRITTEN) {
                self.own_word(off).unwrap_or(word)
            } else {
                word
            });
        }
        self.read_word_as_words(key, off)
    }

    #[inline(never)]
    fn read_word_as_words(self, key: u64, off: u64) -> Result<u64> {
        let mut word = [0];
        self.read_words_slow(key, off, &mut word)?;
        Ok(word[0])
    }

    /// The transaction's own write to the word at `off`.
    #[inline(always)]
    fn own_word(&self, off: u64) -> Option<u64> {
        self.active.writer.borrow().as_ref()?.ptx.stored_lines().word(off)
    }

    /// Reads words from `off` on, all of which belong to `key`.
    #[inline(always)]
    pub(crate) fn read_words(&self, key: u64, off: u64, out: &mut [u64]) -> Result<()> {
        if let Some(words) = self.quiet_words(off, out.len() as u64) {
            load_all(words, out);
            if self.shared.clock.stands_at(self.active.quiet_at()) {
                return Ok(());
            }
        } else if words_by_record(self.shared, self.active, key, off, out) {
            return Ok(());
        }
        self.copied().read_words_slow(key, off, out)
    }

    #[inline(never)]
    fn read_words_slow(self, key: u64, off: u64, out: &mut [u64]) -> Result<()> {
        let (active, shared) = (self.active, self.shared);
        if active.has(ReadHazards::DOOMED) {
            return Err(active.refusal());
        }
        if key == FRESH {
            return self.load_words(off, out);
        }
        if active.is_bare() {
            self.load_words(off, out)?;
            return if active.has(ReadHazards::WRITTEN) { self.overlay_own(off, out) } else { Ok(()) };
        }
        let index = shared.orecs.index(key);
        if !active.has(ReadHazards::RECORDS) {
            self.load_words(off, out)?;
            if shared.clock.stands_at(active.rv()) {
                active.note_read(index, active.rv());
                return if active.has(ReadHazards::WRITTEN) { self.overlay_own(off, out) } else { Ok(()) };
            }
            active.end_quiet()?;
        }
        self.read_by_record(index, off, out)
    }

    /// As [`read_words`](Self::read_words), when others are committing.
    #[inline(never)]
    fn read_by_record(&self, index: u32, off: u64, out: &mut [u64]) -> Result<()> {
        let (active, shared) = (self.active, self.shared);
        let mut round = 0;
        loop {
            let seen = shared.orecs.load(index);
            if seen.owner() != 0 && seen.owner() == active.number.get() {
                self.load_words(off, out)?;
                return self.overlay_own(off, out);
            }
            if seen.is_committing() {
                active.wait(&mut round)?;
                continue;
            }
            if seen.version() > active.rv() {
                active.extend(shared, seen.version())?;
                continue;
            }
            self.load_words(off, out)?;
            let again = shared.orecs.load_again(index);
            if again.version() == seen.version() && !again.is_committing() {
                active.note_read(index, seen.version());
                return if active.has(ReadHazards::WRITTEN) { self.overlay_own(off, out) } else { Ok(()) };
            }
        }
    }

    #[inline(always)]
    fn load_words(&self, off: u64, out: &mut [u64]) -> Result<()> {
        let region = self.shared.region();
        if let [word] = out {
            *word = region.load_u64(off)?;
            return Ok(());
        }
        load_all(region.words(off, out.len() as u64)?, out);
        Ok(())
    }

    /// Overlays the transaction's own writes.
    #[inline(never)]
    fn overlay_own(&self, off: u64, out: &mut [u64]) -> Result<()> {
        let writer = self.active.writer.borrow();
        let Some(writer) = writer.as_ref() else { return Ok(()) };
        for (i, out) in out.iter_mut().enumerate() {
            if let Some(word) = writer.ptx.stored_lines().word(off + 8 * i as u64) {
                *out = word;
            }
        }
        Ok(())
    }

    /// Reads bytes that may begin and end inside words.
    #[inline(never)]
    pub(crate) fn read_bytes(self, key: u64, off: u64, out: &mut [u8]) -> Result<()> {
        let first = off & !7;
        let at = (off - first) as usize;
        let count = (at + out.len()).div_ceil(8);
        let mut few = [0; 4];
        let mut many = Vec::new();
        let words = match few.get_mut(..count) {
            Some(words) => words,
            None => {
                many.resize(count, 0);
                &mut many[..]
            }
        };
        self.read_words(key, first, words)?;
        for (i, out) in out.iter_mut().enumerate() {
            *out = words[(at + i) / 8].to_ne_bytes()[(at + i) % 8];
        }
        Ok(())
    }
}

#[cold]
fn bad_value<T: Persist>(off: u64) -> Error {
    corrupt("a value", off, format!("a {}", T::name()), "bytes that are none")
}

#[cold]
fn null_pointer<B: Brand, P: Persist>(slot: Ref<'_, B, P>) -> Error {
    ErrorKind::NullPointer { pointer: format!("{slot:?}") }.into()
}
