//! Count resolution: the new counts of a commit, and the objects that die by them.

use crate::error::{Error, ErrorKind, Result, corrupt};
use crate::handles::FoundSlot;
use crate::layout::{
    Counts, Kind, ORPHAN_SLOTS, PmHeap, PmOrphans, block_of, counts_off, is_tagged, kind_off, value_off,
};
use crate::objects::type_info::PointerKind;
use crate::objects::types::for_each_pointer;
use crate::stm::commit_buffers::{NewCounts, NewOrphan};
use crate::stm::orec::Orecs;
use crate::stm::pending::PointerDelta;
use crate::stm::shared::HeapShared;
use crate::stm::writer::WriterContext;
use tembo_pmem::offset_of;

pub(super) fn try_lock(records: &Orecs, index: u32, number: u64) -> bool {
    let seen = records.load(index);
    seen.owner() == 0 && records.try_own(index, seen, number)
}

pub(crate) struct CountResolver<'c> {
    pub shared: &'c HeapShared,
    pub writer: &'c mut WriterContext,
    pub budget: usize,
}

impl CountResolver<'_> {
    /// A word of an object as the commit leaves it.
    fn word(&self, off: u64) -> Result<u64> {
        match self.writer.ptx.stored_lines().word(off) {
            Some(word) => Ok(word),
            None => Ok(self.shared.region().load_u64(off)?),
        }
    }

    /// The counts of an older object, whose record is owned.
    fn counts(&mut self, object: u64) -> Result<&mut NewCounts> {
        if self.writer.buffers.counts.get(object).is_none() {
            let kind = Kind(self.shared.region().load_u64(kind_off(object))?);
            let old = Counts::decode(self.shared.region().load_u64(counts_off(object))?);
            let new = NewCounts { kind, old, new: old, is_freed: false };
            self.writer.buffers.counts.get_or_insert_with(object, || new);
        }
        Ok(self.writer.buffers.counts.get_or_insert_with(object, || unreachable!("inserted above")))
    }

    fn is_held(&self, object: u64) -> bool {
        self.writer.held.iter().any(|claim| claim.off() == object) || self.shared.handles.holds(object)
    }

    fn change(&mut self, object: u64, strong: i64, weak: i64) -> Result<NewCounts> {
        let counts = self.counts(object)?;
        let before = counts.new;
        match before.changed(strong, weak) {
            Some(after) => {
                counts.new = after;
                Ok(*counts)
            }
            None if strong > 0 || weak > 0 => Err(ErrorKind::TooManyPointers { off: object }.into()),
            None => {
                Err(corrupt("the counts of an object", object, "as many as pointers", format!("{before:?}")))
            }
        }
    }

    /// Frees the objects that have moved, with their pointers in their copies. Each has one pointer, which
    /// this commit has led to the copy; anything more that leads there is a conflict.
    pub(super) fn free_moved(&mut self) -> Result<()> {
        for i in 0..self.writer.moved.len() {
            let object = self.writer.moved[i];
            let counts = *self.counts(object)?;
            if !is_unique(counts.kind, counts.old)
                || self.is_held(object)
                || self.shared.handles.slot_of(object).is_some()
            {
                return Err(ErrorKind::Conflict.into());
            }
            self.free(object)?;
        }
        Ok(())
    }

    pub(super) fn apply_deltas(&mut self) -> Result<()> {
        for i in 0..self.writer.deltas.len() {
            let (object, delta) = self.writer.deltas.entry(i);
            let delta = *delta;
            if delta.is_any() {
                self.change(object, delta.strong, delta.weak)?;
                self.resolve(object)?;
            }
        }
        for i in 0..self.writer.fresh.len() {
            let (object, fresh) = self.writer.fresh.entry(i);
            if fresh.pointers.strong == 0 {
                self.resolve_fresh(object)?;
            }
        }
        for i in 0..self.writer.held.len() {
            let object = self.writer.held[i].off();
            if self.writer.fresh.get(object).is_none() {
                let counts = *self.counts(object)?;
                if counts.kind.is_dying() || counts.kind.is_shell() {
                    // The object has died since it was read.
                    return Err(ErrorKind::Conflict.into());
                }
            }
        }
        self.keep_slots()?;
        for i in 0..self.writer.buffers.abandoned.len() {
            let object = self.writer.buffers.abandoned[i];
            if self.shared.handles.slot_of(object).is_some() && !self.writer.buffers.adopted.contains(&object)
            {
                self.resolve(object)?;
            }
        }
        for i in 0..self.writer.buffers.finished.len() {
            let object = self.writer.buffers.finished[i];
            let kind = self.counts(object)?.kind;
            self.writer.buffers.ended.push((object, kind));
        }
        Ok(())
    }

    /// Decides the state of an older object after its counts have changed.
    fn resolve(&mut self, object: u64) -> Result<()> {
        let counts = *self.counts(object)?;
        if counts.kind.is_shell() && counts.new.weak == 0 {
            return self.free(object);
        }
        if counts.kind.is_shell() || counts.kind.is_dying() {
            if counts.new.strong > counts.old.strong {
                return Err(ErrorKind::Conflict.into());
            }
            return Ok(());
        }
        if counts.new.strong > 0 {
            if self.shared.handles.slot_of(object).is_some() {
                self.adopt(object)?;
            }
        } else if self.is_held(object) {
            self.make_orphan(object)?;
        } else if counts.kind.successor().is_none() {
            if self.shared.handles.slot_of(object).is_some() {
                self.adopt(object)?;
            }
            self.writer.buffers.deaths.push(object);
        }
        Ok(())
    }

    /// Decides the state of a new object without strong pointers.
    fn resolve_fresh(&mut self, object: u64) -> Result<()> {
        if self.writer.held.iter().any(|claim| claim.off() == object) {
            return self.make_orphan(object);
        }
        self.writer.buffers.deaths.push(object);
        Ok(())
    }

    /// Keeps an orphan slot for each object that handles of this transaction hold.
    fn keep_slots(&mut self) -> Result<()> {
        for i in 0..self.writer.held.len() {
            let object = self.writer.held[i].off();
            let buffers = &self.writer.buffers;
            if buffers.orphaned.iter().chain(&buffers.spare).any(|new| new.object == object) {
                continue;
            }
            let new = match self.shared.handles.find_spare(object) {
                FoundSlot::HasOne => continue,
                FoundSlot::Free(slot) => NewOrphan { object, slot, is_new_slot: false },
                FoundSlot::NoneFree => NewOrphan { object, slot: self.new_slot()?, is_new_slot: true },
            };
            self.writer.buffers.spare.push(new);
        }
        Ok(())
    }

    /// Empties an orphan's slot: a pointer leads to it again, or it dies.
    fn adopt(&mut self, object: u64) -> Result<()> {
        if let Some(slot) = self.shared.handles.slot_of(object) {
            self.writer.ptx.lines().store_words(slot, &[0])?;
            self.writer.buffers.adopted.push(object);
        }
        Ok(())
    }

    /// Restores the slot of an orphan that this commit has emptied: the object that linked it has died.
    fn keep_slot(&mut self, object: u64) -> Result<()> {
        let adopted = &mut self.writer.buffers.adopted;
        if let Some(at) = adopted.iter().position(|adopted| *adopted == object)
            && let Some(slot) = self.shared.handles.slot_of(object)
        {
            adopted.swap_remove(at);
            self.writer.ptx.lines().store_words(slot, &[object])?;
        }
        Ok(())
    }

    fn make_orphan(&mut self, object: u64) -> Result<()> {
        let spare = &mut self.writer.buffers.spare;
        if let Some(at) = spare.iter().position(|new| new.object == object) {
            let new = spare.swap_remove(at);
            return self.orphan(new);
        }
        let new = match self.shared.handles.find_slot(object) {
            FoundSlot::HasOne => {
                return self.keep_slot(object);
            }
            FoundSlot::Free(slot) => NewOrphan { object, slot, is_new_slot: false },
            FoundSlot::NoneFree => NewOrphan { object, slot: self.new_slot()?, is_new_slot: true },
        };
        self.orphan(new)
    }

    fn orphan(&mut self, new: NewOrphan) -> Result<()> {
        self.writer.buffers.orphaned.push(new);
        let ptx = &mut self.writer.ptx;
        Ok(if new.is_new_slot {
            ptx.store(new.slot, new.object)
        } else {
            ptx.lines().store_words(new.slot, &[new.object])
        }?)
    }

    /// A slot of a block that this commit makes.
    fn new_slot(&mut self) -> Result<u64> {
        if self.writer.buffers.new_slots.is_empty() {
            // Whoever owns this word's record owns the chain of blocks until the commit is over.
            if !self.can_change(self.shared.off) {
                return Err(ErrorKind::Conflict.into());
            }
            let head = self.shared.off + offset_of!(PmHeap, orphans) as u64;
            let next = self.word(head)?;
            let writer = &mut *self.writer;
            let block = writer.ptx.alloc(size_of::<PmOrphans>() as u64)?;
            // The zeros are part of the commit, as slots in use would be.
            writer.ptx.write_fresh(block, &[0; size_of::<PmOrphans>()])?;
            writer.ptx.store(block, next)?;
            writer.ptx.lines().store_words(head, &[block])?;
            let slots = block + offset_of!(PmOrphans, slots) as u64;
            writer.buffers.new_slots.extend((0..ORPHAN_SLOTS).map(|i| slots + 8 * i));
        }
        Ok(self.writer.buffers.new_slots.pop().expect("a slot of the new block"))
    }

    /// Releases an object without strong pointers, now or later.
    pub(super) fn destroy(&mut self, object: u64) -> Result<()> {
        let is_fresh = self.writer.fresh.get(object).is_some();
        let kind = match self.writer.fresh.get(object) {
            Some(fresh) => Kind::new(fresh.type_number, fresh.is_array),
            None => self.counts(object)?.kind,
        };
        let info = self.shared.types.get(kind.type_number()).ok_or_else(|| unknown_type(object, kind))?;
        if !info.pointers.is_empty() {
            if self.budget == 0 || kind.is_array() || !(is_fresh || self.own(value_off(object))) {
                return self.defer(object, kind);
            }
            self.budget -= 1;
            let value = value_off(object);
            let mut pointers = std::mem::take(&mut self.writer.buffers.pointers);
            pointers.clear();
            for_each_pointer(info, &|off| self.word(value + off), |off, pointer| {
                let target = self.word(value + off)?;
                if target != 0 {
                    pointers.push((target, pointer.kind));
                }
                Ok(())
            })?;
            let all = pointers.iter().all(|(target, _)| self.can_change(*target));
            if all {
                for (target, kind) in &pointers {
                    self.release(*target, *kind)?;
                }
            }
            self.writer.buffers.pointers = pointers;
            if !all {
                return self.defer(object, kind);
            }
        }
        self.writer.buffers.ended.push((object, kind));
        Ok(())
    }

    /// Frees dead objects, or makes them shells if weak pointers lead to them.
    pub(super) fn end_all(&mut self) -> Result<()> {
        for i in 0..self.writer.buffers.ended.len() {
            let (object, kind) = self.writer.buffers.ended[i];
            self.end(object, kind)?;
        }
        Ok(())
    }

    fn end(&mut self, object: u64, kind: Kind) -> Result<()> {
        let fresh = self.writer.fresh.get(object).copied();
        let weak = match fresh {
            Some(fresh) => fresh.pointers.weak as u64,
            None => u64::from(self.counts(object)?.new.weak),
        };
        if weak == 0 {
            return self.free(object);
        }
        self.set_kind(object, kind.shell(), fresh.is_some())
    }

    /// Owns the data record of a key if it gets it without waiting, so that reads there stay valid.
    pub(crate) fn own(&mut self, key: u64) -> bool {
        let index = self.shared.orecs.index(key);
        let seen = self.shared.orecs.load(index);
        if seen.owner() == self.writer.number || !self.shared.isolates() {
            return true;
        }
        let owns = seen.owner() == 0 && self.shared.orecs.try_own(index, seen, self.writer.number);
        if owns {
            self.writer.owned.push(index);
        }
        owns
    }

    /// Owns the count record of an object if it gets it without waiting.
    fn can_change(&mut self, object: u64) -> bool {
        if self.writer.fresh.get(object).is_some() || !self.shared.isolates() {
            return true;
        }
        let index = self.shared.count_orecs.index(object);
        if self.shared.count_orecs.load(index).owner() == self.writer.number {
            return true;
        }
        let owns = try_lock(&self.shared.count_orecs, index, self.writer.number);
        if owns {
            self.writer.buffers.locks.push(index);
        }
        owns
    }

    /// Removes a pointer to an object whose count record is owned.
    fn release(&mut self, object: u64, kind: PointerKind) -> Result<()> {
        let (strong, weak) = if kind == PointerKind::Weak { (0, -1) } else { (-1, 0) };
        if let Some(fresh) = self.writer.fresh.get_mut(object) {
            fresh.pointers.strong += strong;
            fresh.pointers.weak += weak;
            if strong != 0 && fresh.pointers.strong == 0 {
                self.resolve_fresh(object)?;
            }
            return Ok(());
        }
        let counts = self.change(object, strong, weak)?;
        let is_last =
            if strong != 0 { counts.new.strong == 0 } else { counts.kind.is_shell() && counts.new.weak == 0 };
        if is_last { self.resolve(object) } else { Ok(()) }
    }

    fn free(&mut self, object: u64) -> Result<()> {
        self.writer.ptx.free(block_of(object))?;
        if self.writer.fresh.get(object).is_none() {
            self.counts(object)?.is_freed = true;
        }
        Ok(())
    }

    /// Puts an object into the lane's list of dying ones.
    fn defer(&mut self, object: u64, kind: Kind) -> Result<()> {
        let dying = kind.dying(self.writer.dying_first);
        let is_fresh = self.writer.fresh.get(object).is_some();
        self.set_kind(object, dying, is_fresh)?;
        if !is_fresh {
            self.counts(object)?.kind = dying;
        }
        self.writer.dying_first = object;
        self.writer.ptx.lines().store_words(self.writer.dying_off, &[object])?;
        Ok(())
    }

    fn set_kind(&mut self, object: u64, kind: Kind, is_fresh: bool) -> Result<()> {
        let ptx = &mut self.writer.ptx;
        match is_fresh {
            true if is_tagged(object) => ptx.set_tag_word(block_of(object), 0, kind.0)?,
            true => ptx.store(object, kind.0)?,
            false => ptx.lines().store_words(kind_off(object), &[kind.0])?,
        }
        Ok(())
    }

    pub(super) fn write_counts(&mut self) -> Result<()> {
        let WriterContext { buffers, fresh, ptx, .. } = &mut *self.writer;
        for (object, counts) in buffers.counts.iter() {
            if !counts.is_freed && counts.new != counts.old {
                ptx.lines().store_words(counts_off(object), &[counts.new.encode()])?;
            }
        }
        for (object, fresh) in fresh.iter() {
            let PointerDelta { strong, weak } = fresh.pointers;
            if (strong, weak) == (1, 0) {
                continue;
            }
            let counts = Counts { strong: 0, weak: 0 }.changed(strong, weak);
            let counts = counts.ok_or(ErrorKind::TooManyPointers { off: object })?;
            // A store to a block that this transaction also frees is harmless.
            match is_tagged(object) {
                true => ptx.set_tag_word(block_of(object), 1, counts.encode())?,
                false => ptx.store(counts_off(object), counts.encode())?,
            }
        }
        Ok(())
    }
}

/// Whether an object with this head is alive, and one pointer leads to it.
pub(crate) fn is_unique(kind: Kind, counts: Counts) -> bool {
    let is_plain = !kind.is_dying() && !kind.is_shell() && kind.successor().is_none();
    is_plain && counts == Counts { strong: 1, weak: 0 }
}

#[cold]
pub(crate) fn unknown_type(object: u64, kind: Kind) -> Error {
    corrupt("the type of an object", object, "a type of the heap", kind.type_number())
}
