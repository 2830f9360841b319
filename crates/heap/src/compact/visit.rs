//! The visit of some objects by a walk, in one transaction.

use crate::counts::resolve::{is_unique, unknown_type};
use crate::error::{Result, corrupt};
use crate::layout::{
    Counts, Kind, LINE, OBJECT_HEAD_BYTES, array_head_bytes, block_of, counts_off, is_tagged, kind_off,
    value_off,
};
use crate::objects::brand::Brand;
use crate::objects::place::element_key;
use crate::objects::type_info::{PointerKind, TypeInfo};
use crate::objects::types::for_each_pointer;
use crate::stm::running::Running;
use crate::stm::shared::HeapShared;
use crate::tx::{Tx, writer_of};
use std::collections::HashSet;
use tembo_pool::{Compaction, KeptSpace, Pin};

/// A visit ends after the object with which it has copied this many bytes.
const BYTES_PER_STEP: u64 = 128 << 10;
/// Elements of an array that count as one visit.
const ELEMENTS_PER_VISIT: u64 = 64;

/// The brand of heaps in which objects move.
#[derive(Debug)]
pub(super) enum Walked {}

impl Brand for Walked {}

/// An object that is to be visited; of an array, the element from which on it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    pub object: u64,
    element: u64,
}

impl Spot {
    pub(super) fn first(object: u64) -> Spot {
        Spot { object, element: 0 }
    }
}

/// The facts that a visit needs.
pub(super) struct Moving<'m> {
    pub shared: &'m HeapShared,
    /// The walk's pin.
    pub pin: &'m Pin,
    pub chosen: &'m Compaction,
    /// Shared objects that it has met.
    pub met: &'m HashSet<u64, foldhash::fast::FixedState>,
}

/// The findings of a visit.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub left: Vec<Spot>,
    pub met: HashSet<u64, foldhash::fast::FixedState>,
    pub moved_bytes: u64,
}

/// Visits objects, the last first. With `moves`, moves the objects that they own out of the compaction's
/// blocks.
pub(super) fn visit(
    moving: &Moving<'_>,
    running: &Running<'_>,
    spots: &[Spot],
    moves: bool,
) -> Result<Findings> {
    let tx = Tx::new(moving.shared, running.active());
    let mut visit = Visit { moving, tx, moves, found: Findings::default() };
    let mut left = spots.iter().rev();
    while visit.found.moved_bytes < BYTES_PER_STEP
        && let Some(spot) = left.next()
    {
        visit.object(*spot)?;
    }
    let mut found = visit.found;
    // Unvisited objects are appended after the newly found ones, which keeps the list short.
    found.left.splice(0..0, left.rev().copied());
    Ok(found)
}

struct Visit<'v, 't> {
    moving: &'v Moving<'v>,
    tx: Tx<'t, Walked>,
    moves: bool,
    found: Findings,
}

/// A place of a pointer, and its target.
#[derive(Debug, Clone, Copy)]
struct PointerPlace {
    /// The record's key.
    key: u64,
    slot: u64,
    target: u64,
}

impl Visit<'_, '_> {
    fn word(&self, off: u64) -> Result<u64> {
        Ok(self.moving.shared.region().load_u64(off)?)
    }

    fn type_of(&self, object: u64) -> Result<(Kind, &TypeInfo)> {
        let kind = Kind(self.word(kind_off(object))?);
        let info = self.moving.shared.types.get(kind.type_number());
        Ok((kind, info.ok_or_else(|| unknown_type(object, kind))?))
    }

    fn object(&mut self, spot: Spot) -> Result<()> {
        let Spot { object, element } = spot;
        // C4: in this order.
        if !self.tx.is_alive(object)? {
            return Ok(());
        }
        let mut leads = Vec::new();
        let rest = self.read_leads(spot, &mut leads)?;
        if !self.moving.shared.pool.is_still_allocated(self.moving.pin, block_of(object))? {
            return Ok(());
        }
        if let Some(rest) = rest {
            debug_assert!(rest > element, "it goes on");
            self.found.left.push(Spot { object, element: rest });
        }
        leads.into_iter().try_for_each(|lead| self.follow(lead))
    }

    /// Reads the strong pointers of an object, or of some elements of an array. Returns the element to go on
    /// with.
    fn read_leads(&self, spot: Spot, leads: &mut Vec<PointerPlace>) -> Result<Option<u64>> {
        let (kind, info) = self.type_of(spot.object)?;
        if info.pointers.is_empty() || kind.successor().is_some() {
            return Ok(None);
        }
        if !kind.is_array() {
            let value = value_off(spot.object);
            return self.read_value(info, value, value, leads).map(|()| None);
        }
        let len = self.array_len(spot.object, info)?;
        let end = len.min(spot.element + ELEMENTS_PER_VISIT);
        let first = spot.object + array_head_bytes(info.bytes);
        for element in spot.element..end {
            let value = first + element * info.bytes;
            self.read_value(info, element_key(spot.object, value, info.bytes), value, leads)?;
        }
        Ok((end < len).then_some(end))
    }

    fn read_value(&self, info: &TypeInfo, key: u64, value: u64, leads: &mut Vec<PointerPlace>) -> Result<()> {
        for_each_pointer(info, &|off| self.tx.read_word(key, value + off), |off, pointer| {
            let slot = value + off;
            let target = if pointer.kind == PointerKind::Weak { 0 } else { self.tx.read_word(key, slot)? };
            if target != 0 {
                leads.push(PointerPlace { key, slot, target });
            }
            Ok(())
        })
    }

    /// The length of an array, whose elements lie in the pool.
    fn array_len(&self, array: u64, info: &TypeInfo) -> Result<u64> {
        let len = self.word(array + OBJECT_HEAD_BYTES)? & 0xFFFF_FFFF;
        let bytes = len * info.bytes + array_head_bytes(info.bytes);
        match array.checked_add(bytes).is_some_and(|end| end <= self.moving.shared.region().len()) {
            true => Ok(len),
            false => Err(corrupt("an array's length", array, "elements in the pool", len)),
        }
    }

    /// Moves the target of a pointer, if it is to be moved and can be, and queues it for a visit.
    fn follow(&mut self, lead: PointerPlace) -> Result<()> {
        let PointerPlace { target, .. } = lead;
        let (kind, info) = self.type_of(target)?;
        let leads_on = !info.pointers.is_empty();
        let counts = Counts::decode(self.word(counts_off(target))?);
        let handles = &self.moving.shared.handles;
        let is_unique =
            is_unique(kind, counts) && !handles.holds(target) && handles.slot_of(target).is_none();
        let mut at = target;
        if is_unique && self.moves && self.moving.chosen.has(block_of(target)) {
            at = self.relocate(lead)?;
        }
        let is_known = !is_unique && (self.moving.met.contains(&target) || !self.found.met.insert(target));
        if leads_on && !is_known {
            self.found.left.push(Spot::first(at));
        }
        Ok(())
    }

    /// Makes a copy of a unique object in the place of its pointer, and returns it.
    fn relocate(&mut self, lead: PointerPlace) -> Result<u64> {
        let old = lead.target;
        let (kind, info) = self.type_of(old)?;
        let words = if kind.is_array() { self.array_words(old, info)? } else { self.value_words(old, info)? };
        self.found.moved_bytes += OBJECT_HEAD_BYTES + 8 * words.len() as u64;
        self.use_kept_space(KeptSpace::Half)?;
        let new = match is_tagged(old) {
            true => self.tx.alloc_line(kind.type_number(), &words),
            false => self.tx.alloc_words(kind.type_number(), kind.is_array(), &words),
        };
        self.use_kept_space(KeptSpace::None)?;
        let new = new?;
        self.tx.own(lead.key, lead.slot)?;
        self.tx.write_words(lead.key, lead.slot, &[new])?;
        let mut writer = writer_of(self.tx.shared, self.tx.active)?;
        writer.pointers_to(new).strong += 1;
        writer.moved.push(old);
        Ok(new)
    }

    fn use_kept_space(&self, use_of_it: KeptSpace) -> Result<()> {
        writer_of(self.tx.shared, self.tx.active)?.ptx.use_kept_space(use_of_it);
        Ok(())
    }

    fn value_words(&self, object: u64, info: &TypeInfo) -> Result<Vec<u64>> {
        let value = value_off(object);
        let mut words = vec![0; info.bytes.div_ceil(8) as usize];
        if !words.is_empty() {
            self.tx.read_words(value, value, &mut words)?;
        }
        Ok(words)
    }

    /// The words of an array after its head: its length and its elements, those of each record together.
    fn array_words(&self, array: u64, info: &TypeInfo) -> Result<Vec<u64>> {
        let (len, bytes) = (self.array_len(array, info)?, info.bytes);
        let head = array_head_bytes(bytes) - OBJECT_HEAD_BYTES;
        let mut words = vec![0; (head + len * bytes).div_ceil(8) as usize];
        words[0] = len;
        let first = array + array_head_bytes(bytes);
        let mut element = 0;
        while element < len && bytes > 0 {
            let start = first + element * bytes;
            let count = elements_of_record(start, bytes).min(len - element);
            let at = ((head + element * bytes) / 8) as usize;
            let end = ((head + (element + count) * bytes).div_ceil(8) as usize).min(words.len());
            self.tx.read_words(element_key(array, start, bytes), start, &mut words[at..end])?;
            element += count;
        }
        Ok(words)
    }
}

/// The elements from the one at `start` on that share its record ([`element_key`]).
fn elements_of_record(start: u64, bytes: u64) -> u64 {
    match bytes {
        1 | 2 | 4 => (LINE - start % LINE) / bytes,
        _ if !bytes.is_multiple_of(8) => u64::MAX,
        0..LINE => (LINE - start % LINE).div_ceil(bytes),
        _ => 1,
    }
}
