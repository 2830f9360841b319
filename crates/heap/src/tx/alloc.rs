//! Allocation of objects and arrays. They die with the commit unless they are linked or held.

use crate::error::{ErrorKind, Result};
use crate::layout::{Counts, Kind, OBJECT_HEAD_BYTES, array_head_bytes, has_line, head_bytes, tagged_object};
use crate::objects::brand::Brand;
use crate::objects::persist::Persist;
use crate::objects::place::{Arr, FRESH, Obj};
use crate::objects::value_buffer::ValueBuffer;
use crate::stm::hazards::ReadHazards;
use crate::stm::pending::{FreshObject, PointerDelta};
use crate::tx::write::Tx;

impl<'t, B: Brand> Tx<'t, B> {
    /// Allocates an object. It dies with the commit unless it is linked, or [held](Self::hold).
    ///
    /// Costs no fence of its own.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnknownType`] if no pointer of the root's type leads to a `T`; the pool's own.
    #[inline]
    pub fn alloc<T: Persist>(&mut self, value: T) -> Result<Obj<'t, B, T>> {
        let type_number = self.shared.types.number_of::<T>()?;
        let mut buffer = ValueBuffer::new();
        self.alloc_object(type_number, buffer.of(&value).words())
    }

    /// Allocates an object with the words of a `T`.
    #[inline(always)]
    pub(crate) fn alloc_object<T>(&mut self, type_number: u16, words: &[u64]) -> Result<Obj<'t, B, T>> {
        let off = match has_line::<T>() {
            true => self.alloc_line(type_number, words)?,
            false => self.alloc_words(type_number, false, words)?,
        };
        Ok(Obj::new(off + head_bytes::<T>(), FRESH))
    }

    /// As [`alloc_words`](Self::alloc_words), for a line whose head is its tag.
    pub(crate) fn alloc_line(&mut self, type_number: u16, words: &[u64]) -> Result<u64> {
        let mut writer = self.writer()?;
        let line_off = writer.ptx.alloc_tagged(first_head(type_number, false))?;
        writer.ptx.write_fresh_words(line_off, &[], words)?;
        self.active.add_hazard(ReadHazards::FRESH);
        let off = tagged_object(line_off);
        let pointers = PointerDelta::default();
        writer.fresh.get_or_insert_with(off, || FreshObject { type_number, is_array: false, pointers });
        Ok(off)
    }

    /// Allocates an object of these words, which follow its head.
    pub(crate) fn alloc_words(&mut self, type_number: u16, is_array: bool, words: &[u64]) -> Result<u64> {
        let mut writer = self.writer()?;
        let off = writer.ptx.alloc(OBJECT_HEAD_BYTES + 8 * words.len() as u64)?;
        writer.ptx.write_fresh_words(off, &first_head(type_number, is_array), words)?;
        self.active.add_hazard(ReadHazards::FRESH);
        let pointers = PointerDelta::default();
        writer.fresh.get_or_insert_with(off, || FreshObject { type_number, is_array, pointers });
        Ok(off)
    }

    /// Allocates an array of `len` values, which `value` makes.
    ///
    /// # Errors
    ///
    /// As for [`alloc`](Self::alloc), and [`ErrorKind::ArrayTooLong`].
    pub fn alloc_array<T: Persist>(
        &mut self,
        len: usize,
        mut value: impl FnMut(usize) -> T,
    ) -> Result<Arr<'t, B, T>> {
        let type_number = self.shared.types.number_of::<T>()?;
        let mut image = ArrayImage::new::<T>(len)?;
        for (i, out) in image.elements_mut().chunks_exact_mut(size_of::<T>().max(1)).enumerate() {
            value(i).encode(out);
        }
        let off = self.alloc_words(type_number, true, &image.words)?;
        Ok(Arr::new(off, len as u64, true))
    }
}

/// The head of a new object. Its counts have the usual values of a new object at its commit; the commit
/// corrects the others.
#[inline(always)]
pub(crate) fn first_head(type_number: u16, is_array: bool) -> [u64; 2] {
    [Kind::new(type_number, is_array).0, Counts { strong: 1, weak: 0 }.encode()]
}

/// The words after the head of an array of `len` elements: its length, and zeros.
pub(crate) struct ArrayImage {
    pub(crate) words: Vec<u64>,
    /// The bytes of the elements.
    elements: std::ops::Range<usize>,
}

impl ArrayImage {
    pub(crate) fn new<T>(len: usize) -> Result<ArrayImage> {
        let too_long = || ErrorKind::ArrayTooLong { len: len as u64 };
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
