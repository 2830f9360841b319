//! Dying objects: objects whose commit did not release them when they died, and orphans without handles. Each
//! lane has a list of them, and each later commit releases a bounded part.

use crate::counts::commit::{DEATHS_MAX, commit_work};
use crate::counts::resolve::{CountResolver, unknown_type};
use crate::error::{ErrorKind, Result, corrupt};
use crate::layout::{Kind, OBJECT_HEAD_BYTES, array_head_bytes, kind_off, value_off};
use crate::objects::place::element_key;
use crate::objects::type_info::{PointerKind, TypeInfo};
use crate::objects::types::for_each_pointer;
use crate::stm::running;
use crate::stm::shared::HeapShared;
use crate::stm::writer::WriterContext;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// The most that one transaction releases.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// Objects of the list.
    objects: usize,
    /// Elements of an array.
    elements: u64,
    /// Pointers of one object or element.
    pointers: usize,
    /// Objects that it destroys because it removes their last pointers.
    deaths: usize,
}

/// The steps, the largest first. In a full pool a redo record has to fit into half a lane, so smaller steps
/// are tried until one fits. The last fits into the smallest lane.
const STEPS: [Step; 5] = [
    Step { objects: 16, elements: 128, pointers: usize::MAX, deaths: DEATHS_MAX },
    Step { objects: 8, elements: 64, pointers: 64, deaths: 16 },
    Step { objects: 2, elements: 16, pointers: 16, deaths: 0 },
    Step { objects: 1, elements: 4, pointers: 4, deaths: 0 },
    Step { objects: 1, elements: 1, pointers: 1, deaths: 0 },
];

/// The most dying objects that a commit releases after its own work.
pub(crate) const COLLECT_MAX: usize = 2048;

/// Releases about `budget` objects of the writer's list, and of orphans without handles. Returns whether all
/// are released.
///
/// If the record of a step finds no room, a smaller step is tried.
pub(crate) fn collect(shared: &HeapShared, writer: &mut WriterContext, budget: usize) -> Result<bool> {
    let mut done = 0;
    while done < budget {
        let at = shared.step.load(Ordering::Relaxed).min(STEPS.len() - 1);
        match collect_step(shared, writer, &STEPS[at]) {
            Ok(Collected::All) => {
                shared.step.store(0, Ordering::Relaxed);
                return Ok(true);
            }
            Ok(Collected::Some(objects)) => done += objects + STEPS[at].deaths,
            Ok(Collected::Busy) => return Ok(false),
            Err(e) if e.is_full() && at + 1 < STEPS.len() => shared.step.store(at + 1, Ordering::Relaxed),
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

/// Releases all dying objects, including those in lists without a writer.
pub(crate) fn collect_all(shared: &HeapShared) -> Result<()> {
    shared.pool.check_process()?;
    if running::of(shared).is_some() {
        // The call would wait for the ownership records of its own transaction.
        return Err(ErrorKind::InsideTransaction { what: "`collect`" }.into());
    }
    let mut writer = shared.take_writer()?;
    let outcome = collect_list(shared, &mut writer).and_then(|()| collect_leftovers(shared, &mut writer));
    shared.put_writer(writer);
    outcome?;
    // A writer that is in use releases its own list.
    while let Some(mut writer) = shared.take_writer_with_dying() {
        let outcome = collect_list(shared, &mut writer);
        shared.put_writer(writer);
        outcome?;
    }
    Ok(())
}

fn collect_list(shared: &HeapShared, writer: &mut WriterContext) -> Result<()> {
    let mut stuck = 0;
    while !collect(shared, writer, COLLECT_MAX)? {
        stuck += 1;
        if stuck > 1000 {
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// Releases the lists of an earlier process that no writer of this one has taken over.
fn collect_leftovers(shared: &HeapShared, writer: &mut WriterContext) -> Result<()> {
    loop {
        let mut leftovers = shared.leftovers.lock();
        let Some(slot) = leftovers.last().copied() else { return Ok(()) };
        let left_off = shared.dying_off(slot)?;
        let left = (left_off, shared.region().load_u64(left_off)?);
        let own = (writer.dying_off, writer.dying_first);
        (writer.dying_off, writer.dying_first) = left;
        let outcome = collect(shared, writer, COLLECT_MAX);
        let is_empty = writer.dying_first == 0;
        (writer.dying_off, writer.dying_first) = own;
        if is_empty {
            leftovers.pop();
        }
        outcome?;
    }
}

/// The outcome of a step.
enum Collected {
    /// There is nothing left to do.
    All,
    /// This many objects, or parts of some, are released.
    Some(usize),
    /// Other transactions own records that the step needs.
    Busy,
}

fn collect_step(shared: &HeapShared, writer: &mut WriterContext, step: &Step) -> Result<Collected> {
    writer.buffers.abandoned = shared.handles.take_abandoned(step.objects);
    let (abandoned, first) = (writer.buffers.abandoned.clone(), writer.dying_first);
    let outcome = match take_dying(shared, writer, step) {
        Ok(0) if abandoned.is_empty() => {
            return Ok(if writer.dying_first == 0 { Collected::All } else { Collected::Busy });
        }
        Ok(taken) => match commit_work(shared, None, writer, step.deaths) {
            Ok(()) => return Ok(Collected::Some(taken.max(1))),
            Err(e) if e.is_conflict() => Ok(Collected::Busy),
            Err(e) => Err(e),
        },
        Err(e) => {
            writer.abort(&shared.orecs);
            writer.buffers.clear();
            Err(e)
        }
    };
    writer.dying_first = first;
    shared.handles.put_abandoned(abandoned);
    outcome
}

/// Releases pointers of the list's first objects, in an empty transaction. Returns the number of these
/// objects; 0 if another transaction still writes to the first.
fn take_dying(shared: &HeapShared, writer: &mut WriterContext, step: &Step) -> Result<usize> {
    let mut taken = 0;
    while writer.dying_first != 0 && taken < step.objects {
        let dying = Dying::read(shared, writer.dying_first)?;
        if !dying.own(shared, writer, step.elements) {
            if taken == 0 {
                writer.abort(&shared.orecs);
            }
            return Ok(taken);
        }
        taken += 1;
        if !dying.release(shared, writer, step)? {
            return Ok(taken);
        }
        writer.buffers.finished.push(dying.object);
        writer.dying_first = dying.kind.next_dying();
        writer.ptx.lines().store_words(writer.dying_off, &[writer.dying_first])?;
    }
    Ok(taken)
}

/// The first object of a list of dying ones.
struct Dying<'c> {
    object: u64,
    kind: Kind,
    info: &'c TypeInfo,
    /// The number of elements whose pointers are released; the next field is the number of all. An object
    /// that is no array counts as one element.
    released: u64,
    len: u64,
}

impl<'c> Dying<'c> {
    fn read(shared: &'c HeapShared, object: u64) -> Result<Dying<'c>> {
        let kind = Kind(shared.region().load_u64(kind_off(object))?);
        if !kind.is_dying() {
            let found = format!("{:#x}", kind.0);
            return Err(corrupt("a list of dying objects", object, "a dying object", found));
        }
        let info = shared.types.get(kind.type_number()).ok_or_else(|| unknown_type(object, kind))?;
        let (released, len) = match kind.is_array() {
            true => {
                let word = shared.region().load_u64(object + OBJECT_HEAD_BYTES)?;
                (word >> 32, word & 0xFFFF_FFFF)
            }
            false => (0, 1),
        };
        Ok(Dying { object, kind, info, released, len })
    }

    /// The elements that this step releases.
    fn elements(&self, most: u64) -> Range<u64> {
        let most = if self.info.pointers.is_empty() { self.len } else { most };
        self.released..self.released + self.len.saturating_sub(self.released).min(most)
    }

    fn value_off(&self, element: u64) -> u64 {
        match self.kind.is_array() {
            true => self.object + array_head_bytes(self.info.bytes) + element * self.info.bytes,
            false => value_off(self.object),
        }
    }

    /// Owns these elements if it gets them without waiting; returns whether it did.
    fn own(&self, shared: &HeapShared, writer: &mut WriterContext, most: u64) -> bool {
        let mut resolver = CountResolver { shared, writer, budget: 0 };
        self.elements(most).all(|element| {
            let value = self.value_off(element);
            resolver.own(match self.kind.is_array() {
                true => element_key(self.object, value, self.info.bytes),
                false => value,
            })
        })
    }

    /// Releases pointers of these elements. Returns whether all pointers of the object are released.
    fn release(&self, shared: &HeapShared, writer: &mut WriterContext, step: &Step) -> Result<bool> {
        let elements = self.elements(step.elements);
        let mut pointers = std::mem::take(&mut writer.buffers.pointers);
        let mut noted = 0;
        let mut end = elements.end;
        for element in elements {
            let value = self.value_off(element);
            pointers.clear();
            let mut slots = Vec::new();
            let word = |off| Ok(shared.region().load_u64(value + off)?);
            for_each_pointer(self.info, &word, |off, pointer| {
                let target = shared.region().load_u64(value + off)?;
                if target != 0 {
                    pointers.push((target, pointer.kind));
                    slots.push(value + off);
                }
                Ok(())
            })?;
            let all = pointers.len() <= step.pointers;
            if noted > 0 && noted + pointers.len() > step.pointers {
                end = element;
                break;
            }
            pointers.truncate(step.pointers);
            for (target, kind) in &pointers {
                let delta = writer.deltas.get_or_insert_with(*target, Default::default);
                if *kind == PointerKind::Weak { delta.weak -= 1 } else { delta.strong -= 1 }
            }
            noted += pointers.len();
            if !all {
                // Released pointers become null, so that the next step finds the others.
                for slot in &slots[..step.pointers] {
                    writer.ptx.lines().store_words(*slot, &[0])?;
                }
                end = element;
                break;
            }
        }
        writer.buffers.pointers = pointers;
        if end < self.len && end > self.released {
            writer.ptx.lines().store_words(self.object + OBJECT_HEAD_BYTES, &[self.len | end << 32])?;
        }
        Ok(end >= self.len)
    }
}
