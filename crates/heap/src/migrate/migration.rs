//! A running migration: steps 2 to 5.

use crate::check::objects;
use crate::counts::dying;
use crate::error::{ErrorKind, Result, corrupt};
use crate::layout::{
    Kind, MAGIC, OBJECT_HEAD_BYTES, PmHeap, PmType, array_head_bytes, block_of, kind_off, value_off,
};
use crate::migrate::convert::{Moving, Step};
use crate::objects::type_info::PointerKind;
use crate::objects::types::for_each_pointer;
use crate::retry;
use crate::stm::shared::HeapShared;
use crate::tx::{Tx, writer_of};
use std::sync::Arc;
use tembo_pmem::{OfProcess, offset_of};

/// The most pointers that one transaction changes, and objects that it frees.
const BATCH: usize = 128;

/// A heap that is being migrated.
pub(super) struct Migration<'m> {
    pub shared: Arc<OfProcess<HeapShared>>,
    /// The steps whose old types are in the heap.
    pub steps: Vec<&'m Step>,
}

/// A change of a pointer.
#[derive(Debug, Clone, Copy)]
struct PointerChange {
    slot: u64,
    kind: PointerKind,
    from: u64,
    to: u64,
}

impl Migration<'_> {
    /// Does everything that is left to do.
    pub(super) fn finish(&self) -> Result<u64> {
        dying::collect_all(&self.shared)?;
        let mut converted = 0;
        for object in objects(&self.shared.pool)? {
            converted += u64::from(self.convert(object)?);
        }
        let objects = objects(&self.shared.pool)?;
        self.lead(&objects)?;
        let mut moved = Vec::new();
        for object in &objects {
            moved.extend(self.kind(*object)?.successor().map(|successor| (*object, successor)));
        }
        self.empty(&moved)?;
        self.free(&moved)?;
        dying::collect_all(&self.shared)?;
        self.write(|tx| {
            self.remove_types(tx)?;
            store(tx, self.shared.off + offset_of!(PmHeap, magic) as u64, MAGIC)
        })?;
        Ok(converted)
    }

    fn write<T>(&self, body: impl for<'t> Fn(&mut Tx<'t, Moving>) -> Result<T>) -> Result<T> {
        retry::write(&self.shared, |running| body(&mut Tx::new(&self.shared, running.active())))
    }

    fn kind(&self, object: u64) -> Result<Kind> {
        Ok(Kind(self.shared.region().load_u64(kind_off(object))?))
    }

    /// Makes a new object of an old one. Returns whether there was anything to do.
    fn convert(&self, object: u64) -> Result<bool> {
        let kind = self.kind(object)?;
        let info = self.shared.types.get(kind.type_number());
        let step = self.steps.iter().find(|step| info.is_some_and(|info| info.hash == step.old));
        let Some(step) = step.filter(|_| kind.successor().is_none()) else { return Ok(false) };
        let Some(convert) = step.convert else { return Ok(false) };
        if kind.is_shell() {
            let number = self.shared.types.look_up(step.new);
            let number = number.ok_or_else(|| corrupt("a type", object, "added before", "none"))?;
            self.write(|tx| store(tx, kind_off(object), kind.with_type(number).0))?;
            return Ok(false);
        }
        let len = match kind.is_array() {
            true => Some(self.shared.region().load_u64(object + OBJECT_HEAD_BYTES)? & 0xFFFF_FFFF),
            false => None,
        };
        self.write(|tx| {
            let new = convert(tx, object, len)?;
            // Older objects must stay as they are, and alive: they may be converted later, and this attempt
            // may be retried.
            if writer_of(tx.shared, tx.active)?.wants_any() {
                return Err(ErrorKind::MigrationChanges.into());
            }
            tx.count(new, PointerKind::Strong, 1)?;
            store(tx, kind_off(object), kind.moved(new).0)
        })?;
        Ok(true)
    }

    /// Leads the pointers to moved objects to their successors, except those in moved objects.
    fn lead(&self, objects: &[u64]) -> Result<()> {
        let mut leads = Vec::new();
        let root = self.shared.off + offset_of!(PmHeap, root) as u64;
        leads.extend(self.to_successor(root, PointerKind::Strong)?);
        for object in objects {
            if self.kind(*object)?.successor().is_none() {
                self.for_each_pointer(*object, &mut leads, |slot, kind| self.to_successor(slot, kind))?;
            }
        }
        self.lead_some(&mut leads)
    }

    fn to_successor(&self, slot: u64, kind: PointerKind) -> Result<Option<PointerChange>> {
        let from = self.shared.region().load_u64(slot)?;
        let to = if from == 0 { None } else { self.kind(from)?.successor() };
        Ok(to.map(|to| PointerChange { slot, kind, from, to }))
    }

    /// Removes the pointers in moved objects.
    fn empty(&self, moved: &[(u64, u64)]) -> Result<()> {
        let mut leads = Vec::new();
        for (object, _) in moved {
            self.for_each_pointer(*object, &mut leads, |slot, kind| {
                let from = self.shared.region().load_u64(slot)?;
                Ok((from != 0).then_some(PointerChange { slot, kind, from, to: 0 }))
            })?;
        }
        self.lead_some(&mut leads)
    }

    /// Visits the pointers of an object, and makes the changes that `lead` asks for as soon as there are
    /// enough.
    fn for_each_pointer(
        &self,
        object: u64,
        leads: &mut Vec<PointerChange>,
        lead: impl Fn(u64, PointerKind) -> Result<Option<PointerChange>>,
    ) -> Result<()> {
        let kind = self.kind(object)?;
        let Some(info) = self.shared.types.get(kind.type_number()) else { return Ok(()) };
        if info.pointers.is_empty() || kind.is_shell() {
            return Ok(());
        }
        let (first, count) = match kind.is_array() {
            false => (value_off(object), 1),
            true => {
                let len = self.shared.region().load_u64(object + OBJECT_HEAD_BYTES)?;
                (object + array_head_bytes(info.bytes), len & 0xFFFF_FFFF)
            }
        };
        for value in (0..count).map(|i| first + i * info.bytes) {
            let word = |off| Ok(self.shared.region().load_u64(value + off)?);
            for_each_pointer(info, &word, |off, pointer| {
                leads.extend(lead(value + off, pointer.kind)?);
                Ok(())
            })?;
            if leads.len() >= BATCH {
                self.lead_some(leads)?;
            }
        }
        Ok(())
    }

    fn lead_some(&self, leads: &mut Vec<PointerChange>) -> Result<()> {
        self.write_parts(leads, &|tx, PointerChange { slot, kind, from, to }| {
            tx.count(from, kind, -1)?;
            tx.count(to, kind, 1)?;
            store(tx, slot, to)
        })?;
        leads.clear();
        Ok(())
    }

    /// Makes changes in one transaction, or in several if its redo record finds no room.
    fn write_parts<T: Copy>(
        &self,
        changes: &[T],
        change: &impl for<'t> Fn(&mut Tx<'t, Moving>, T) -> Result<()>,
    ) -> Result<()> {
        match self.write(|tx| changes.iter().try_for_each(|one| change(tx, *one))) {
            Err(e) if e.is_full() && changes.len() > 1 => {
                let (first, rest) = changes.split_at(changes.len() / 2);
                self.write_parts(first, change)?;
                self.write_parts(rest, change)
            }
            outcome => outcome,
        }
    }

    /// Frees moved objects, to which no pointer leads any more.
    fn free(&self, moved: &[(u64, u64)]) -> Result<()> {
        for some in moved.chunks(BATCH) {
            self.write_parts(some, &|tx, (object, successor)| {
                tx.count(successor, PointerKind::Strong, -1)?;
                Ok(writer_of(tx.shared, tx.active)?.ptx.free(block_of(object))?)
            })?;
        }
        Ok(())
    }

    /// Removes the records of the old types from the list.
    fn remove_types(&self, tx: &mut Tx<'_, Moving>) -> Result<()> {
        let region = self.shared.region();
        let mut slot = self.shared.off + offset_of!(PmHeap, types) as u64;
        let mut record = region.load_u64(slot)?;
        while record != 0 {
            let next = region.load_u64(record + offset_of!(PmType, next) as u64)?;
            let hash = region.load_u64(record + offset_of!(PmType, hash) as u64)?;
            if self.steps.iter().any(|step| step.old == hash) {
                store(tx, slot, next)?;
                writer_of(tx.shared, tx.active)?.ptx.free(record)?;
            } else {
                slot = record + offset_of!(PmType, next) as u64;
            }
            record = next;
        }
        Ok(())
    }
}

/// Stores a word that no other transaction uses.
fn store(tx: &mut Tx<'_, Moving>, off: u64, word: u64) -> Result<()> {
    tx.own(off, off)?;
    tx.write_words(off, off, &[word])
}
