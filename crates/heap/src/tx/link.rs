//! Links: pointers that a transaction sets, and the changes of counts that follow from them.

use crate::error::Result;
use crate::objects::brand::{Brand, SameHeap};
use crate::objects::persist::Persist;
use crate::objects::place::{Arr, FRESH, Obj, Ref, Target};
use crate::objects::slots::{PArr, PRc, PWeak};
use crate::objects::type_info::PointerKind;
use crate::tx::write::Tx;

impl<'t, B: Brand> Tx<'t, B> {
    /// Makes a pointer lead to an object, or null. The object to which it led before dies with the commit if
    /// no other pointer leads to it.
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
        self.link_slot(slot.key, slot.off, to, PointerKind::Strong)
    }

    /// As [`link`](Self::link), for a weak pointer.
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
        self.link_slot(slot.key, slot.off, to, PointerKind::Weak)
    }

    /// As [`link`](Self::link), for a pointer to an array.
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
        self.link_slot(slot.key, slot.off, to, PointerKind::Array)
    }

    /// Frees an object without pointers in a heap without counts ([`Layer::Base`](crate::Layer::Base)). Does
    /// nothing in other heaps, where the object dies by itself.
    ///
    /// # Errors
    ///
    /// The pool's own.
    #[cfg(feature = "research")]
    #[inline]
    pub fn delete_by_hand<T: Persist>(&mut self, object: Obj<'t, B, T>) -> Result<()> {
        if self.shared.counts_pointers() {
            return Ok(());
        }
        Ok(self.writer()?.ptx.free(crate::layout::block_of(object.object_off()))?)
    }

    fn link_slot(&mut self, key: u64, off: u64, to: u64, kind: PointerKind) -> Result<()> {
        self.own(key, off)?;
        let old = if key == FRESH { self.shared.region().load_u64(off)? } else { self.read_word(key, off)? };
        if old == to {
            return Ok(());
        }
        self.count(old, kind, -1)?;
        self.count(to, kind, 1)?;
        self.write_words(key, off, &[to])
    }

    /// Notes that an object gains or loses pointers.
    #[inline(always)]
    pub(crate) fn count(&mut self, object: u64, kind: PointerKind, by: i64) -> Result<()> {
        if object == 0 || !self.shared.counts_pointers() { Ok(()) } else { self.count_one(object, kind, by) }
    }

    fn count_one(&mut self, object: u64, kind: PointerKind, by: i64) -> Result<()> {
        let mut writer = self.writer()?;
        let delta = writer.pointers_to(object);
        match kind {
            PointerKind::Weak => delta.weak += by,
            _ => delta.strong += by,
        }
        Ok(())
    }
}
