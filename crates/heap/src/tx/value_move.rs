//! Moves of whole values with their pointers, for collections: making room for values, moving them, and
//! releasing their pointers.
//!
//! A *blank* is a place whose pointers are null, but which need not hold a value of its type. A collection
//! that leaves blanks records how many values there are, and shows only those.
//!
//! Programs may have kept places from before a value moved, and links that they make there are counted like
//! others. Every overwrite of a place therefore releases the pointers that are there, blank or not.

use crate::error::Result;
use crate::layout::OBJECT_HEAD_BYTES;
use crate::objects::brand::Brand;
use crate::objects::persist::Persist;
use crate::objects::place::{Arr, FRESH, Obj, Ref};
use crate::objects::slots::PRc;
use crate::objects::type_info::{PointerKind, TypeInfo};
use crate::objects::types::for_each_pointer;
use crate::objects::value_buffer::{ValueBuffer, ValueWords};
use crate::tx::alloc::ArrayImage;
use crate::tx::read::ReadTx;
use crate::tx::write::Tx;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

thread_local! {
    /// Descriptions by the hash of the layout.
    static KNOWN: RefCell<HashMap<u64, Rc<TypeInfo>, foldhash::fast::FixedState>> = RefCell::default();
}

fn info_of<T: Persist>() -> Rc<TypeInfo> {
    KNOWN.with_borrow_mut(|known| {
        known.entry(T::HASH).or_insert_with(|| Rc::new(TypeInfo::of::<T>().0)).clone()
    })
}

impl<'t, B: Brand> ReadTx<'t, B> {
    /// The words of a value, without a check of them.
    #[inline]
    pub(crate) fn image<'r, T: Persist>(
        &self,
        place: Ref<'t, B, T>,
        buffer: &'r mut ValueBuffer<T>,
    ) -> Result<ValueWords<'r, T>> {
        self.check_stamp(place.stamp)?;
        let mut words = buffer.zeroed();
        if place.off.is_multiple_of(8) && size_of::<T>().is_multiple_of(8) {
            match words.words_mut() {
                [word] => *word = self.read_word(place.key, place.off)?,
                words => self.read_words(place.key, place.off, words)?,
            }
        } else {
            self.copied().read_bytes(place.key, place.off, words.value_bytes_mut())?;
        }
        Ok(words)
    }

    /// Prefetches a place.
    #[inline]
    pub(crate) fn fetch<T>(&self, place: Ref<'t, B, T>) {
        self.shared.region().prefetch(place.off);
    }

    /// The first words of an array whose elements never change once it is linked. Conflicts are detected at
    /// the pointer to it.
    pub(crate) fn constant_words(&self, array: Arr<'t, B, u64>, out: &mut [u64]) -> Result<()> {
        let count = out.len().min(array.len());
        if count == 0 {
            return Ok(());
        }
        self.read_words(FRESH, array.at(0).off, &mut out[..count])
    }
}

impl<'t, B: Brand> Tx<'t, B> {
    fn set_image<T: Persist>(&mut self, place: Ref<'t, B, T>, words: &ValueWords<'_, T>) -> Result<()> {
        self.note_variants::<T>();
        if place.off.is_multiple_of(8) && size_of::<T>().is_multiple_of(8) {
            return self.write_words(place.key, place.off, words.words());
        }
        self.copied().write_bytes(place.key, place.off, words.value_bytes())
    }

    /// Replaces a whole value, pointers included. The old pointers are released, and the new ones are null.
    ///
    /// # Errors
    ///
    /// As for [`set`](Self::set).
    pub fn put<T: Persist>(&mut self, place: Ref<'t, B, T>, value: T) -> Result<()> {
        self.own_place(place)?;
        self.let_go(place)?;
        self.write_value(place, &value)
    }

    /// Exchanges two values, pointers included: no count changes, and no object dies.
    ///
    /// # Errors
    ///
    /// As for [`set`](Self::set).
    #[inline(always)]
    pub fn swap<T: Persist>(&mut self, a: Ref<'t, B, T>, b: Ref<'t, B, T>) -> Result<()> {
        if a.off == b.off {
            return Ok(());
        }
        // Both lines are fetched while the transaction takes the places. The prefetches come before the call,
        // since a call stores.
        self.shared.region().prefetch_for_store(a.off);
        self.shared.region().prefetch_for_store(b.off);
        self.exchange(a, b)
    }

    fn exchange<T: Persist>(&mut self, a: Ref<'t, B, T>, b: Ref<'t, B, T>) -> Result<()> {
        self.own_place(a)?;
        self.own_place(b)?;
        let (mut buffer_a, mut buffer_b) = (ValueBuffer::new(), ValueBuffer::new());
        let (in_a, in_b) = (self.image(a, &mut buffer_a)?, self.image(b, &mut buffer_b)?);
        self.set_image(a, &in_b)?;
        self.set_image(b, &in_a)
    }

    /// Links a new object in front of the one to which a pointer leads: the pointer then leads to the new
    /// object, and the new object's pointer `next`, which was null, to the old one.
    #[inline]
    pub(crate) fn link_before<T: Persist>(
        &mut self,
        slot: Ref<'t, B, PRc<T>>,
        new: Obj<'t, B, T>,
        next: Ref<'t, B, PRc<T>>,
    ) -> Result<()> {
        self.own_place(slot)?;
        let before = self.read_word(slot.key, slot.off)?;
        let object = new.object_off();
        if before != 0 {
            self.write_words(next.key, next.off, &[before])?;
        }
        self.count(object, PointerKind::Strong, 1)?;
        self.write_words(slot.key, slot.off, &[object])
    }

    /// Copies a whole value, pointers included, to a place of a type with the same name and layout: a
    /// [`Migrate`](crate::Migrate) carries over the fields that stay as they are. The pointers lead to the
    /// same objects, and to their successors when the migration is over.
    ///
    /// Anything else does not compile:
    ///
    /// ```compile_fail,E0080
    /// # use tembo_heap::{Brand, Ref, Result, Tx};
    /// fn widen<'t, B: Brand>(tx: &mut Tx<'t, B>, from: Ref<'t, B, u32>, to: Ref<'t, B, u64>) -> Result<()> {
    ///     tx.carry(from, to)
    /// }
    /// # tembo_heap::brand!(Any);
    /// # type Widen = for<'t> fn(&mut Tx<'t, Any>, Ref<'t, Any, u32>, Ref<'t, Any, u64>) -> Result<()>;
    /// # fn main() {
    /// #     std::hint::black_box::<Widen>(widen::<Any>);
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`set`](Self::set).
    pub fn carry<Old: Persist, New: Persist>(
        &mut self,
        from: Ref<'t, B, Old>,
        to: Ref<'t, B, New>,
    ) -> Result<()> {
        const {
            assert!(
                Old::HASH == New::HASH,
                "only what has the same name and the same layout is carried as it is"
            );
        }
        let mut buffer = ValueBuffer::new();
        let words = self.image(from, &mut buffer)?;
        let to = to.part::<Old>(0);
        self.own_place(to)?;
        self.let_go(to)?;
        self.set_image(to, &words)?;
        for (off, kind) in self.pointers_in(to)? {
            let target = self.read_word(to.key, off)?;
            self.count(target, kind, 1)?;
        }
        Ok(())
    }

    /// Moves a value, and leaves a blank. The pointers that it overwrites are released; no other count
    /// changes.
    pub(crate) fn move_value<T: Persist>(&mut self, from: Ref<'t, B, T>, to: Ref<'t, B, T>) -> Result<()> {
        if from.off == to.off {
            return Ok(());
        }
        self.own_place(from)?;
        self.own_place(to)?;
        self.let_go(to)?;
        let mut buffer = ValueBuffer::new();
        let words = self.image(from, &mut buffer)?;
        self.set_image(to, &words)?;
        self.forget_pointers(from)
    }

    /// Releases a value's pointers, and leaves a blank.
    pub(crate) fn clear_value<T: Persist>(&mut self, place: Ref<'t, B, T>) -> Result<()> {
        self.own_place(place)?;
        self.let_go(place)?;
        self.forget_pointers(place)
    }

    /// Removes the pointers of an owned value from the counts, before it is overwritten.
    pub(crate) fn let_go<T: Persist>(&mut self, place: Ref<'t, B, T>) -> Result<()> {
        for (off, kind) in self.pointers_in(place)? {
            let target = self.read_word(place.key, off)?;
            self.count(target, kind, -1)?;
        }
        Ok(())
    }

    /// Sets the pointers of an owned value to null, without a change of counts.
    fn forget_pointers<T: Persist>(&mut self, place: Ref<'t, B, T>) -> Result<()> {
        for (off, _) in self.pointers_in(place)? {
            self.write_words(place.key, off, &[0])?;
        }
        Ok(())
    }

    /// The offsets of the pointers of a value that are not null.
    fn pointers_in<T: Persist>(&self, place: Ref<'t, B, T>) -> Result<Vec<(u64, PointerKind)>> {
        let mut found = Vec::new();
        if T::HAS_POINTERS {
            let info = info_of::<T>();
            let word = |off| self.read_word(place.key, place.off.wrapping_add(off));
            for_each_pointer(&info, &word, |off, pointer| {
                if word(off)? != 0 {
                    found.push((place.off.wrapping_add(off), pointer.kind));
                }
                Ok(())
            })?;
        }
        Ok(found)
    }

    /// Allocates an object with the words of a value; zeros make a blank. The value's pointers are counted
    /// already.
    pub(crate) fn alloc_image<T: Persist>(&mut self, image: &[u64]) -> Result<Obj<'t, B, T>> {
        assert_eq!(image.len(), ValueBuffer::<T>::COUNT, "the words of {}", T::name());
        let type_number = self.shared.types.number_of::<T>()?;
        self.alloc_object(type_number, image)
    }

    /// Allocates an array of blanks.
    pub(crate) fn alloc_blanks<T: Persist>(&mut self, len: usize) -> Result<Arr<'t, B, T>> {
        self.alloc_elements(len, &[])
    }

    /// Allocates an array that begins with these elements, followed by blanks.
    fn alloc_elements<T: Persist>(&mut self, len: usize, first: &[u8]) -> Result<Arr<'t, B, T>> {
        let type_number = self.shared.types.number_of::<T>()?;
        let mut image = ArrayImage::new::<T>(len)?;
        image.elements_mut()[..first.len()].copy_from_slice(first);
        let off = self.alloc_words(type_number, true, &image.words)?;
        Ok(Arr::new(off, len as u64, true))
    }

    /// Moves the elements of an array to the start of one of `len` elements, whose other elements are blanks.
    ///
    /// The transaction removes the only pointer to `from`, and no place in it is in use.
    pub(crate) fn grow_array<T: Persist>(
        &mut self,
        from: Arr<'t, B, T>,
        len: usize,
    ) -> Result<Arr<'t, B, T>> {
        let each = size_of::<T>();
        let mut first = vec![0; from.len() * each];
        let mut buffer = ValueBuffer::new();
        for (i, out) in first.chunks_exact_mut(each.max(1)).enumerate() {
            out.copy_from_slice(self.image(from.at(i), &mut buffer)?.value_bytes());
        }
        let to = self.alloc_elements(len, &first)?;
        // The elements count as released, as in a dying array, so that their targets keep their counts.
        let released = from.len | from.len << 32;
        let key = if from.is_fresh { FRESH } else { from.off | 1 };
        let head = Ref::<'t, B, u64>::new(from.off + OBJECT_HEAD_BYTES, key);
        self.own_place(head)?;
        self.write_words(head.key, head.off, &[released])?;
        Ok(to)
    }
}
