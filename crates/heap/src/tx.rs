//! Transactions as programs see them: reading, writing, and following pointers.

use crate::brand::{Brand, SameHeap};
use crate::core::Core;
use crate::error::{Error, Result, corrupt};
use crate::layout::{
    Counts, Kind, LINE, OBJECT_HEAD_BYTES, array_head_bytes, counts_off, has_line, head_bytes, kind_off,
    tagged_object,
};
use crate::node::Room;
use crate::persist::{Persist, Plain};
use crate::place::{Arr, FRESH, Obj, Ref, Target, Tie};
use crate::session::{
    COUNT_RECORD, Care, Delta, FreshObject, Session, State, load_all, word_by_record, words_by_record,
};
use crate::slots::{PArr, PRc, PWeak};
use std::cell::RefMut as CellMut;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU64;
use tembo_pmem::LoadableWords;

/// Lines of a value that is going to be written that are fetched before.
const FETCHED_LINES_MAX: u64 = 4;

/// The part of the word before an array's elements that is its length.
const LEN_MASK: u64 = 0xFFFF_FFFF;

/// A transaction that reads. What it sees is one state of the heap, with nothing in it that a crash could take back.
///
/// Every read may end in [`Error::Conflict`]: give that back with `?`, and the transaction is run again.
pub struct ReadTx<'t, B: Brand> {
    pub(crate) core: &'t Core,
    pub(crate) state: &'t State,
    /// Those of the core's region; none if the transaction has had something to look after from the start.
    words: LoadableWords<'t>,
    tie: Tie<'t, B, ()>,
}

/// A transaction that may also write. Nothing of it is visible to others before it is durable, as a whole.
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

impl<B: Brand> std::fmt::Debug for ReadTx<'_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadTx").field("clock", &self.state.rv()).finish_non_exhaustive()
    }
}

impl<B: Brand> std::fmt::Debug for Tx<'_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tx").field("clock", &self.state.rv()).finish_non_exhaustive()
    }
}

impl<'t, B: Brand> ReadTx<'t, B> {
    #[inline(always)]
    pub(crate) fn new(core: &'t Core, state: &'t State) -> Self {
        // Who cannot read in quiet anyway is not to look at the clock, which others advance.
        let words = if state.is_quiet() { core.region().loadable_words() } else { LoadableWords::none() };
        ReadTx { core, state, words, tie: PhantomData }
    }

    /// The same again, for functions that are rarely called: what takes a reference needs it in memory, where each transaction would have to be
    /// stored to.
    #[inline(always)]
    pub(crate) fn copied(&self) -> Self {
        ReadTx { core: self.core, state: self.state, words: self.words, tie: PhantomData }
    }

    /// The value at a place.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`]; corruption if the bytes there are none of `T`.
    #[inline(always)]
    pub fn get<T: Plain>(&self, place: Ref<'t, B, T>) -> Result<T> {
        self.check_stamp(place.stamp)?;
        let mut room = Room::<T>::new();
        let mut words = room.zeroed();
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
    /// [`Error::Conflict`].
    #[inline(always)]
    pub fn load<T: Persist>(&self, slot: Ref<'t, B, PRc<T>>) -> Result<Option<Obj<'t, B, T>>> {
        self.check_stamp(slot.stamp)?;
        if let Some(off) = self.word_at_once(slot.key, slot.off) {
            return Ok((off != 0).then(|| ReadTx::object_before(off)));
        }
        let off = self.copied().read_word_with_care(slot.key, slot.off)?;
        Ok((off != 0).then(|| self.object(off)))
    }

    /// The object that a pointer leads to which the program never leaves null: where every value that is made is linked before the transaction
    /// ends, there is nothing to ask.
    ///
    /// # Errors
    ///
    /// [`Error::NullPointer`] if it is null after all, which ends the transaction with nothing changed; [`Error::Conflict`].
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
    /// [`Error::Conflict`].
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
    /// [`Error::Conflict`].
    #[inline(always)]
    pub fn array<T: Persist>(&self, slot: Ref<'t, B, PArr<T>>) -> Result<Option<Arr<'t, B, T>>> {
        self.check_stamp(slot.stamp)?;
        // One look at the clock for both: what is no length is thrown away, and what is no pointer leads to some word or to none.
        if let Some(off) = self.words.load(slot.off)
            && off != 0
            && let Some(len) = self.words.load(off.wrapping_add(OBJECT_HEAD_BYTES))
            && self.core.clock.stands_at(self.state.quiet_at())
        {
            return Ok(Some(Arr::new(off, len & LEN_MASK, false)));
        }
        let off = match word_by_record(self.core, self.state, slot.key, slot.off) {
            Some(off) => off,
            None => self.copied().read_word_with_care(slot.key, slot.off)?,
        };
        self.array_at(off)
    }

    /// The array that a pointer with this value leads to.
    #[inline(always)]
    pub(crate) fn array_at<T: Persist>(&self, off: u64) -> Result<Option<Arr<'t, B, T>>> {
        if off == 0 {
            return Ok(None);
        }
        // The length never changes, and the pin keeps the memory from being used for anything else.
        let len = self.core.region().load_u64(off.wrapping_add(OBJECT_HEAD_BYTES))? & LEN_MASK;
        Ok(Some(Arr::new(off, len, self.is_fresh(off))))
    }

    /// The error for an enum whose tag is none of its variants'. For code that `#[derive(Persist)]` makes.
    #[doc(hidden)]
    #[cold]
    pub fn unknown_variant<T: Persist>(&self, place: Ref<'t, B, T>, tag: u64) -> Error {
        corrupt("an enum's tag", place.off, format!("one of {}", T::name()), tag)
    }

    /// What tells [`check_undisturbed`](Self::check_undisturbed) when it began.
    #[inline(always)]
    pub(crate) fn writers_begun(&self) -> u64 {
        self.state.writers_begun()
    }

    /// Refuses to go on with what was read before a program's own code ran, such as a comparison of its keys, if that has begun a transaction
    /// that may write, which became a part of this one.
    #[inline(always)]
    pub(crate) fn check_undisturbed(&self, begun: u64) -> Result<()> {
        if self.state.writers_begun() == begun { Ok(()) } else { Err(Error::MapChanged) }
    }

    /// Refuses a place in a variant if a value with variants was written since.
    #[inline(always)]
    pub(crate) fn check_stamp(&self, stamp: u64) -> Result<()> {
        if stamp != 0 && stamp != self.state.stamp() {
            return Err(Error::StaleVariant);
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn object<T>(&self, off: u64) -> Obj<'t, B, T> {
        let value = off.wrapping_add(head_bytes::<T>());
        Obj::new(value, if self.is_fresh(off) { FRESH } else { value })
    }

    /// An object that was there before the transaction.
    #[inline(always)]
    pub(crate) fn object_before<T>(off: u64) -> Obj<'t, B, T> {
        let value = off.wrapping_add(head_bytes::<T>());
        Obj::new(value, value)
    }

    #[inline(always)]
    fn is_fresh(&self, off: u64) -> bool {
        self.state.cares(Care::FRESH) && self.copied().allocated(off)
    }

    #[inline(never)]
    fn allocated(self, off: u64) -> bool {
        self.state.session.borrow().as_ref().is_some_and(|session| session.fresh.get(off).is_some())
    }

    /// Whether an object that was there before the transaction is alive.
    pub(crate) fn is_alive(&self, off: u64) -> Result<bool> {
        let (state, records) = (self.state, &self.core.count_orecs);
        if state.cares(Care::DOOMED) {
            return Err(state.refusal());
        }
        let index = records.index(off);
        let mut round = 0;
        loop {
            let seen = records.load(index);
            if self.core.parts.isolates && (seen.is_committing() || seen.owner() != 0) {
                state.wait(&mut round)?;
                continue;
            }
            if seen.version() > state.rv() {
                state.extend(self.core, seen.version())?;
                continue;
            }
            let kind = Kind(self.core.region().load_u64(kind_off(off))?);
            let counts = Counts::decode(self.core.region().load_u64(counts_off(off))?);
            let is_alive =
                !kind.is_dying() && !kind.is_shell() && (counts.strong > 0 || self.core.handles.holds(off));
            let again = records.load_again(index);
            if again == seen {
                state.note_read(index | COUNT_RECORD, seen.version());
                return Ok(is_alive);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn read_word(&self, key: u64, off: u64) -> Result<u64> {
        // What most reads are: nobody stores anything, and this transaction has not either.
        match self.word_at_once(key, off) {
            Some(word) => Ok(word),
            None => self.copied().read_word_with_care(key, off),
        }
    }

    /// A word that nothing is in the way of reading.
    #[inline(always)]
    fn word_at_once(&self, key: u64, off: u64) -> Option<u64> {
        self.quiet_word(off)
            .or_else(|| self.word_beside_own(off))
            .or_else(|| word_by_record(self.core, self.state, key, off))
    }

    /// A word of which the transaction has written nothing, nor of its line, if there is nothing to look after but that, and the clock still stands
    /// where it stood. (It has allocated nothing either.)
    #[inline(always)]
    fn word_beside_own(&self, off: u64) -> Option<u64> {
        if !self.state.is_quiet_beside_own(off) {
            return None;
        }
        let word = self.words.load(off)?;
        self.core.clock.stands_at(self.state.rv()).then_some(word)
    }

    /// A word, if there is nothing to look after and the clock still stands where it stood. (The transaction has allocated nothing either then.)
    #[inline(always)]
    fn quiet_word(&self, off: u64) -> Option<u64> {
        let word = self.words.load(off)?;
        self.core.clock.stands_at(self.state.quiet_at()).then_some(word)
    }

    /// A word that may be looked at, and is good if [`is_still_quiet`](Self::is_still_quiet) then: until that is asked, anything may be in it.
    #[inline(always)]
    pub(crate) fn word_if_quiet(&self, off: u64) -> Option<u64> {
        self.words.load(off)
    }

    /// Whether nobody has changed anything since the transaction began, nor has it written anything.
    #[inline(always)]
    pub(crate) fn is_still_quiet(&self) -> bool {
        self.core.clock.stands_at(self.state.quiet_at())
    }

    /// Words that may be looked at, and are good if the clock stands at [`State::quiet_at`] then.
    #[inline(always)]
    pub(crate) fn quiet_words(&self, off: u64, count: u64) -> Option<&'t [AtomicU64]> {
        if self.state.is_quiet() { self.words.words(off, count) } else { None }
    }

    #[inline(never)]
    fn read_word_with_care(self, key: u64, off: u64) -> Result<u64> {
        let state = self.state;
        if key == FRESH && !state.cares(Care::DOOMED) {
            return Ok(self.core.region().load_u64(off)?);
        }
        if key != FRESH
            && state.care().is_at_most(&[Care::NOTES, Care::WRITTEN, Care::FRESH])
            && let Some(word) = self.core.region().loadable_words().load(off)
            && self.core.clock.stands_at(state.rv())
        {
            if state.cares(Care::NOTES) {
                let index = self.core.orecs.index(key);
                if state.may_write {
                    // What is read is often what is written next.
                    self.core.orecs.prefetch(index);
                }
                state.note_read(index, state.rv());
            }
            return Ok(if state.cares(Care::WRITTEN) { self.own_word(off).unwrap_or(word) } else { word });
        }
        self.read_word_as_words(key, off)
    }

    #[inline(never)]
    fn read_word_as_words(self, key: u64, off: u64) -> Result<u64> {
        let mut word = [0];
        self.read_words_with_care(key, off, &mut word)?;
        Ok(word[0])
    }

    /// The word at `off` as the transaction has written it.
    #[inline(always)]
    fn own_word(&self, off: u64) -> Option<u64> {
        self.state.session.borrow().as_ref()?.ptx.line_word(off)
    }

    /// Reads words from `off` on, all of which belong to `key`.
    #[inline(always)]
    pub(crate) fn read_words(&self, key: u64, off: u64, out: &mut [u64]) -> Result<()> {
        if let Some(words) = self.quiet_words(off, out.len() as u64) {
            load_all(words, out);
            if self.core.clock.stands_at(self.state.quiet_at()) {
                return Ok(());
            }
        } else if words_by_record(self.core, self.state, key, off, out) {
            return Ok(());
        }
        self.copied().read_words_with_care(key, off, out)
    }

    #[inline(never)]
    fn read_words_with_care(self, key: u64, off: u64, out: &mut [u64]) -> Result<()> {
        let (state, core) = (self.state, self.core);
        if state.cares(Care::DOOMED) {
            return Err(state.refusal());
        }
        if key == FRESH {
            return self.load_words(off, out);
        }
        if state.cares(Care::BARE) {
            self.load_words(off, out)?;
            return if state.cares(Care::WRITTEN) { self.overlay_own(off, out) } else { Ok(()) };
        }
        let index = core.orecs.index(key);
        if !state.cares(Care::RECORDS) {
            self.load_words(off, out)?;
            if core.clock.stands_at(state.rv()) {
                state.note_read(index, state.rv());
                return if state.cares(Care::WRITTEN) { self.overlay_own(off, out) } else { Ok(()) };
            }
            state.end_quiet()?;
        }
        self.read_by_record(index, off, out)
    }

    /// As [`read_words`](Self::read_words), when others are committing.
    #[inline(never)]
    fn read_by_record(&self, index: u32, off: u64, out: &mut [u64]) -> Result<()> {
        let (state, core) = (self.state, self.core);
        let mut round = 0;
        loop {
            let seen = core.orecs.load(index);
            if seen.owner() != 0 && seen.owner() == state.number.get() {
                self.load_words(off, out)?;
                return self.overlay_own(off, out);
            }
            if seen.is_committing() {
                state.wait(&mut round)?;
                continue;
            }
            if seen.version() > state.rv() {
                state.extend(core, seen.version())?;
                continue;
            }
            self.load_words(off, out)?;
            let again = core.orecs.load_again(index);
            if again.version() == seen.version() && !again.is_committing() {
                state.note_read(index, seen.version());
                return if state.cares(Care::WRITTEN) { self.overlay_own(off, out) } else { Ok(()) };
            }
        }
    }

    #[inline(always)]
    fn load_words(&self, off: u64, out: &mut [u64]) -> Result<()> {
        let region = self.core.region();
        if let [word] = out {
            *word = region.load_u64(off)?;
            return Ok(());
        }
        load_all(region.words(off, out.len() as u64)?, out);
        Ok(())
    }

    /// Replaces those words that the transaction has written by what it has written.
    #[inline(never)]
    fn overlay_own(&self, off: u64, out: &mut [u64]) -> Result<()> {
        let session = self.state.session.borrow();
        let Some(session) = session.as_ref() else { return Ok(()) };
        for (i, out) in out.iter_mut().enumerate() {
            if let Some(word) = session.ptx.line_word(off + 8 * i as u64) {
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
    Error::NullPointer { pointer: format!("{slot:?}").into() }
}

impl<'t, B: Brand> Tx<'t, B> {
    #[inline(always)]
    pub(crate) fn new(core: &'t Core, state: &'t State) -> Self {
        Tx { read: ReadTx::new(core, state) }
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
    /// [`Error::Conflict`]; the pool's own.
    #[inline]
    pub fn set<T: Plain>(&mut self, place: Ref<'t, B, T>, value: T) -> Result<()> {
        self.own_place(place)?;
        self.write_value(place, &value)
    }

    /// Borrows the value at a place. What the borrow is changed to is there when it ends.
    ///
    /// # Errors
    ///
    /// As for [`set`](Self::set).
    #[inline]
    pub fn get_mut<'a, T: Plain>(&'a mut self, place: Ref<'t, B, T>) -> Result<RefMut<'a, 't, B, T>> {
        self.own_place(place)?;
        let value = self.get(place)?;
        self.state.borrowed.set(self.state.borrowed.get() + 1);
        Ok(RefMut { tx: self, place, value })
    }

    /// Replaces a whole value, pointers and all: those that were there let go of their objects, and the new ones are null.
    ///
    /// # Errors
    ///
    /// As for [`set`](Self::set).
    pub fn put<T: Persist>(&mut self, place: Ref<'t, B, T>, value: T) -> Result<()> {
        self.own_place(place)?;
        self.let_go(place)?;
        self.write_value(place, &value)
    }

    /// Allocates an object. It dies with the commit unless it is linked, or [held](Self::hold).
    ///
    /// Costs no fence of its own.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownType`] if no pointer of the root's type leads to a `T`; the pool's own.
    #[inline]
    pub fn alloc<T: Persist>(&mut self, value: T) -> Result<Obj<'t, B, T>> {
        let type_number = self.core.types.number_of::<T>()?;
        let mut room = Room::new();
        self.alloc_object(type_number, room.of(&value).words())
    }

    /// Allocates an object of these words, which are those of a `T`.
    #[inline(always)]
    pub(crate) fn alloc_object<T>(&mut self, type_number: u16, words: &[u64]) -> Result<Obj<'t, B, T>> {
        let off = match has_line::<T>() {
            true => self.alloc_line(type_number, words)?,
            false => self.alloc_words(type_number, false, words)?,
        };
        Ok(Obj::new(off + head_bytes::<T>(), FRESH))
    }

    /// As [`alloc_words`](Self::alloc_words), of the words of a line, whose head is its tag.
    fn alloc_line(&mut self, type_number: u16, words: &[u64]) -> Result<u64> {
        let mut session = self.session()?;
        let line_off = session.ptx.alloc_tagged(first_head(type_number, false))?;
        session.ptx.write_fresh_words(line_off, &[], words)?;
        self.state.care_for(Care::FRESH);
        let off = tagged_object(line_off);
        let pointers = Delta::default();
        session.fresh.get_or_insert_with(off, || FreshObject { type_number, is_array: false, pointers });
        Ok(off)
    }

    /// Allocates an object of these words, behind a head.
    pub(crate) fn alloc_words(&mut self, type_number: u16, is_array: bool, words: &[u64]) -> Result<u64> {
        let mut session = self.session()?;
        let off = session.ptx.alloc(OBJECT_HEAD_BYTES + 8 * words.len() as u64)?;
        session.ptx.write_fresh_words(off, &first_head(type_number, is_array), words)?;
        self.state.care_for(Care::FRESH);
        let pointers = Delta::default();
        session.fresh.get_or_insert_with(off, || FreshObject { type_number, is_array, pointers });
        Ok(off)
    }

    /// Allocates an array of `len` values, which `value` makes.
    ///
    /// # Errors
    ///
    /// As for [`alloc`](Self::alloc), and [`Error::ArrayTooLong`].
    pub fn alloc_array<T: Persist>(
        &mut self,
        len: usize,
        mut value: impl FnMut(usize) -> T,
    ) -> Result<Arr<'t, B, T>> {
        let type_number = self.core.types.number_of::<T>()?;
        let mut image = ArrayImage::new::<T>(len)?;
        for (i, out) in image.elements_mut().chunks_exact_mut(size_of::<T>().max(1)).enumerate() {
            value(i).encode(out);
        }
        let off = self.alloc_words(type_number, true, &image.words)?;
        Ok(Arr::new(off, len as u64, true))
    }

    /// Lets a pointer lead to an object, or to nothing. The object that it led to before dies with the commit if no other
    /// pointer leads to it.
    ///
    /// # Errors
    ///
    /// As for [`set`](Self::set).
    pub fn link<H: SameHeap<B>, T: Persist>(
        &mut self,
        slot: Ref<'t, H, PRc<T>>,
        to: impl Target<Obj<'t, B, T>>,
    ) -> Result<()> {
        let to = to.target().map_or(0, Obj::object_off);
        self.check_stamp(slot.stamp)?;
        self.link_slot(slot.key, slot.off, to, crate::describe::PointerKind::Strong)
    }

    /// As [`link`](Self::link), with a weak pointer.
    ///
    /// # Errors
    ///
    /// As for [`set`](Self::set).
    pub fn link_weak<H: SameHeap<B>, T: Persist>(
        &mut self,
        slot: Ref<'t, H, PWeak<T>>,
        to: impl Target<Obj<'t, B, T>>,
    ) -> Result<()> {
        let to = to.target().map_or(0, Obj::object_off);
        self.check_stamp(slot.stamp)?;
        self.link_slot(slot.key, slot.off, to, crate::describe::PointerKind::Weak)
    }

    /// As [`link`](Self::link), with an array.
    ///
    /// # Errors
    ///
    /// As for [`set`](Self::set).
    pub fn link_array<H: SameHeap<B>, T: Persist>(
        &mut self,
        slot: Ref<'t, H, PArr<T>>,
        to: impl Target<Arr<'t, B, T>>,
    ) -> Result<()> {
        let to = to.target().map_or(0, |array| array.off);
        self.check_stamp(slot.stamp)?;
        self.link_slot(slot.key, slot.off, to, crate::describe::PointerKind::Array)
    }

    /// Frees an object that nothing leads to any more, where the heap runs without counts ([`Layer::Base`](crate::Layer::Base)); else
    /// does nothing, since it dies by itself.
    ///
    /// # Errors
    ///
    /// The pool's own.
    #[cfg(feature = "layers")]
    #[inline]
    pub fn delete_by_hand<T: Persist>(&mut self, object: Obj<'t, B, T>) -> Result<()> {
        if self.core.parts.counts {
            return Ok(());
        }
        Ok(self.session()?.ptx.free(crate::layout::block_of(object.object_off()))?)
    }

    /// Ends the transaction with nothing changed: give the error back with `?` or `return Err`.
    pub fn cancel(&self) -> Error {
        Error::Cancelled
    }

    fn link_slot(&mut self, key: u64, off: u64, to: u64, kind: crate::describe::PointerKind) -> Result<()> {
        self.own(key, off)?;
        let old = if key == FRESH { self.core.region().load_u64(off)? } else { self.read_word(key, off)? };
        if old == to {
            return Ok(());
        }
        self.count(old, kind, -1)?;
        self.count(to, kind, 1)?;
        self.write_words(key, off, &[to])
    }

    /// Notes that the map that begins at `off` gets or loses an entry, where iterators of an outer transaction may be at it.
    #[inline(always)]
    pub(crate) fn note_reshaped(&mut self, off: u64) -> Result<()> {
        if self.state.nested_unfinished.get() == 0 { Ok(()) } else { self.note_reshaped_inside(off) }
    }

    #[cold]
    fn note_reshaped_inside(&mut self, off: u64) -> Result<()> {
        let map = (off, self.writers_begun());
        let reshaped = &mut self.session()?.reshaped;
        if reshaped.last() != Some(&map) {
            reshaped.push(map);
        }
        Ok(())
    }

    /// Notes one pointer more or less to an object.
    #[inline(always)]
    pub(crate) fn count(&mut self, object: u64, kind: crate::describe::PointerKind, by: i64) -> Result<()> {
        if object == 0 || !self.core.parts.counts { Ok(()) } else { self.count_one(object, kind, by) }
    }

    fn count_one(&mut self, object: u64, kind: crate::describe::PointerKind, by: i64) -> Result<()> {
        let mut session = self.session()?;
        let delta = session.pointers_to(object);
        match kind {
            crate::describe::PointerKind::Weak => delta.weak += by,
            _ => delta.strong += by,
        }
        Ok(())
    }

    #[inline(always)]
    fn write_value<T: Persist>(&mut self, place: Ref<'t, B, T>, value: &T) -> Result<()> {
        self.note_variants::<T>();
        let mut room = Room::new();
        let words = room.of(value);
        if place.off.is_multiple_of(8) && size_of::<T>().is_multiple_of(8) {
            return self.write_words(place.key, place.off, words.words());
        }
        self.copied().write_bytes(place.key, place.off, words.value_bytes())
    }

    #[inline(always)]
    pub(crate) fn write_words(&mut self, key: u64, off: u64, words: &[u64]) -> Result<()> {
        let mut session = self.session()?;
        if key != FRESH {
            if let Ok(line) = words.try_into()
                && off.is_multiple_of(LINE)
            {
                self.state.note_written_line(off);
                return Ok(session.ptx.store_whole_line(off, line)?);
            }
            self.state.note_written(off, words.len());
            return Ok(session.ptx.store_line_words(off, words)?);
        }
        Ok(session.ptx.write_fresh_words(off, &[], words)?)
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

    /// Says that a place is going to be written.
    #[inline(always)]
    pub(crate) fn own_place<T>(&mut self, place: Ref<'t, B, T>) -> Result<()> {
        self.check_stamp(place.stamp)?;
        if place.key != FRESH {
            let lines = (size_of::<T>() as u64).div_ceil(LINE).min(FETCHED_LINES_MAX);
            // The last of them is that of the value's last word, where it does not begin with a line.
            let last = (size_of::<T>() as u64).saturating_sub(8).min(LINE * FETCHED_LINES_MAX);
            (1..lines)
                .for_each(|line| self.core.region().prefetch_for_store(place.off.wrapping_add(LINE * line)));
            if place.off % LINE + last >= LINE {
                self.core.region().prefetch_for_store(place.off.wrapping_add(last));
            }
        }
        self.own(place.key, place.off)
    }

    /// Says that what a key stands for is going to be written, at `off` among others. Nobody else writes there from the commit's beginning to
    /// its end; or from now on, if the transaction has met a conflict before.
    #[inline(always)]
    pub(crate) fn own(&mut self, key: u64, off: u64) -> Result<()> {
        let (state, core) = (self.state, self.core);
        if state.cares(Care::DOOMED) {
            return Err(state.refusal());
        }
        if key == FRESH {
            return Ok(());
        }
        // The commit stores there, and what comes next should not have to wait for that.
        core.region().prefetch_for_store(off);
        if !core.parts.isolates {
            return Ok(());
        }
        let index = core.orecs.index(key);
        core.orecs.prefetch(index);
        let mut session = self.session()?;
        session.ptx.prefetch_for_store(off);
        if state.owns_early {
            return session.own(core, state, index);
        }
        session.want(index);
        Ok(())
    }

    /// Notes that a whole value is being written: if it may have variants, places in variants are known no longer.
    #[inline(always)]
    pub(crate) fn note_variants<T: Persist>(&self) {
        if T::HAS_VARIANTS {
            self.state.note_variants();
        }
    }

    /// The session, taken when the first change wants it.
    #[inline(always)]
    fn session(&self) -> Result<CellMut<'_, Session>> {
        session_of(self.core, self.state)
    }
}

/// Tells an iterator of a map whether a transaction that ran between two of its steps has changed the map's entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch {
    writers_begun: u64,
    reshaped: usize,
}

impl Watch {
    pub(crate) fn begin<B: Brand>(tx: &ReadTx<'_, B>) -> Watch {
        let reshaped = tx.state.session.borrow().as_ref().map_or(0, |session| session.reshaped.len());
        Watch { writers_begun: tx.writers_begun(), reshaped }
    }

    /// Refuses to go on if the map that begins at `off` has changed.
    #[inline(always)]
    pub(crate) fn check<B: Brand>(&mut self, tx: &ReadTx<'_, B>, off: u64) -> Result<()> {
        if tx.writers_begun() == self.writers_begun { Ok(()) } else { self.look(tx, off) }
    }

    #[cold]
    fn look<B: Brand>(&mut self, tx: &ReadTx<'_, B>, off: u64) -> Result<()> {
        let before = self.reshaped;
        *self = Watch::begin(tx);
        let session = tx.state.session.borrow();
        let reshaped = session.as_ref().map_or(&[][..], |session| &session.reshaped);
        if reshaped.get(before..).is_some_and(|new| new.iter().any(|(map, _)| *map == off)) {
            return Err(Error::MapChanged);
        }
        Ok(())
    }
}

/// The transaction's session, taken when the first change wants it.
#[inline(always)]
pub(crate) fn session_of<'s>(core: &Core, state: &'s State) -> Result<CellMut<'s, Session>> {
    let mut session = state.session.borrow_mut();
    if session.is_none() {
        if state.cares(Care::DOOMED) {
            return Err(state.refusal());
        }
        if !state.may_write {
            return Err(Error::ReadTransaction);
        }
        let taken = core.take_session()?;
        state.number.set(taken.number);
        // There was none, of which something would have to be dropped.
        std::mem::forget(session.replace(taken));
    }
    Ok(CellMut::map(session, |session| &mut **session.as_mut().expect("taken above")))
}

/// The head of a new object, with the counts that most have when the transaction commits; the others are corrected then.
#[inline(always)]
pub(crate) fn first_head(type_number: u16, is_array: bool) -> [u64; 2] {
    [Kind::new(type_number, is_array).0, Counts { strong: 1, weak: 0 }.encode()]
}

/// What follows the head of an array of `len` elements: its length, and zeros.
pub(crate) struct ArrayImage {
    pub(crate) words: Vec<u64>,
    /// Where the elements lie in them, in bytes.
    elements: std::ops::Range<usize>,
}

impl ArrayImage {
    pub(crate) fn new<T>(len: usize) -> Result<ArrayImage> {
        let too_long = || Error::ArrayTooLong { len: len as u64 };
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(too_long)?;
        u32::try_from(len).map_err(|_| too_long())?;
        let first = (array_head_bytes(size_of::<T>() as u64) - OBJECT_HEAD_BYTES) as usize;
        let mut words = vec![0; (first + bytes).div_ceil(8)];
        words[0] = len as u64;
        Ok(ArrayImage { words, elements: first..first + bytes })
    }

    pub(crate) fn elements_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[self.elements.clone()]
    }
}

/// A borrowed value of a heap. Changes of it are written when it is dropped.
pub struct RefMut<'a, 't, B: Brand, T: Plain> {
    tx: &'a mut Tx<'t, B>,
    place: Ref<'t, B, T>,
    value: T,
}

impl<B: Brand, T: Plain> Deref for RefMut<'_, '_, B, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<B: Brand, T: Plain> DerefMut for RefMut<'_, '_, B, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<B: Brand, T: Plain> Drop for RefMut<'_, '_, B, T> {
    fn drop(&mut self) {
        self.tx.state.borrowed.set(self.tx.state.borrowed.get() - 1);
        let still_there = self.tx.check_stamp(self.place.stamp);
        if let Err(e) = still_there.and_then(|()| self.tx.write_value(self.place, &self.value)) {
            self.lost(e);
        }
    }
}

impl<B: Brand, T: Plain> RefMut<'_, '_, B, T> {
    /// It cannot be told here that the value was not written, and must not be committed without.
    #[cold]
    fn lost(&mut self, e: Error) {
        if let Ok(mut session) = session_of(self.tx.core, self.tx.state) {
            session.lost.get_or_insert(e);
        } else {
            self.tx.state.care_for(Care::DOOMED);
        }
    }
}

impl<B: Brand, T: Plain + std::fmt::Debug> std::fmt::Debug for RefMut<'_, '_, B, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value.fmt(f)
    }
}
