//! What has died and was not released by the commit that took its last pointer away: a list of each lane, gone through by later commits, a bounded part
//! in each transaction; and orphans that no handle keeps any more.

use crate::commit::{DEATHS_MAX, Deaths, Failed, commit_work, unknown_type};
use crate::core::Core;
use crate::describe::{PointerKind, TypeInfo};
use crate::error::{Result, corrupt};
use crate::layout::{Kind, OBJECT_HEAD_BYTES, array_head_bytes, kind_off, value_off};
use crate::place::element_key;
use crate::session::Session;
use crate::types::for_each_pointer;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// How much of what is dying one transaction takes on, at most.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// Objects of the list.
    objects: usize,
    /// Elements of an array.
    elements: u64,
    /// Pointers of one object or element.
    pointers: usize,
    /// Objects that it destroys besides, since their last pointers go.
    deaths: usize,
}

/// The first where there is room. In a full pool a record has to fit into half a lane, so that smaller ones are taken until one does; the last
/// fits into the smallest lane that there is.
const STEPS: [Step; 5] = [
    Step { objects: 16, elements: 128, pointers: usize::MAX, deaths: DEATHS_MAX },
    Step { objects: 8, elements: 64, pointers: 64, deaths: 16 },
    Step { objects: 2, elements: 16, pointers: 16, deaths: 0 },
    Step { objects: 1, elements: 4, pointers: 4, deaths: 0 },
    Step { objects: 1, elements: 1, pointers: 1, deaths: 0 },
];

/// Goes on with the session's list of dying objects, and with abandoned orphans, until about `budget` objects are done. Returns whether all are.
///
/// Where there is no room for the record of a step, it takes smaller ones.
pub(crate) fn collect(core: &Core, session: &mut Session, budget: usize) -> Result<bool> {
    let mut done = 0;
    while done < budget {
        let at = core.step.load(Ordering::Relaxed).min(STEPS.len() - 1);
        match collect_step(core, session, &STEPS[at]) {
            Ok(Collected::All) => {
                core.step.store(0, Ordering::Relaxed);
                return Ok(true);
            }
            Ok(Collected::Some(objects)) => done += objects + STEPS[at].deaths,
            Ok(Collected::Busy) => return Ok(false),
            Err(e) if e.is_full() && at + 1 < STEPS.len() => core.step.store(at + 1, Ordering::Relaxed),
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

/// What came of a step.
enum Collected {
    /// There is nothing left to do.
    All,
    /// So many objects, or parts of some, are done.
    Some(usize),
    /// Others are in the way.
    Busy,
}

fn collect_step(core: &Core, session: &mut Session, step: &Step) -> Result<Collected> {
    session.scratch.abandoned = core.handles.take_abandoned(step.objects);
    let (abandoned, first) = (session.scratch.abandoned.clone(), session.dying_first);
    let outcome = match take_dying(core, session, step) {
        Ok(0) if abandoned.is_empty() => {
            return Ok(if session.dying_first == 0 { Collected::All } else { Collected::Busy });
        }
        Ok(taken) => match commit_work(core, None, session, step.deaths) {
            Ok(()) => return Ok(Collected::Some(taken.max(1))),
            Err(Failed::Conflict) => Ok(Collected::Busy),
            Err(e) => Err(e.into()),
        },
        Err(e) => {
            session.abort(core);
            session.scratch.clear();
            Err(e)
        }
    };
    session.dying_first = first;
    core.handles.put_abandoned(abandoned);
    outcome
}

/// Notes that pointers of the list's first objects are released, in a transaction that has done nothing so far. Returns how many objects
/// that concerns: none if somebody is still writing to the first.
fn take_dying(core: &Core, session: &mut Session, step: &Step) -> Result<usize> {
    let mut taken = 0;
    while session.dying_first != 0 && taken < step.objects {
        let dying = Dying::read(core, session.dying_first)?;
        if !dying.own(core, session, step.elements) {
            if taken == 0 {
                session.abort(core);
            }
            return Ok(taken);
        }
        taken += 1;
        if !dying.release(core, session, step)? {
            return Ok(taken);
        }
        session.scratch.finished.push(dying.object);
        session.dying_first = dying.kind.next_dying();
        session.ptx.store_line_words(session.dying_off, &[session.dying_first])?;
    }
    Ok(taken)
}

/// The first object of a list of dying ones.
struct Dying<'c> {
    object: u64,
    kind: Kind,
    info: &'c TypeInfo,
    /// Elements whose pointers are released already, and all of them. An object that is no array is one.
    released: u64,
    len: u64,
}

impl<'c> Dying<'c> {
    fn read(core: &'c Core, object: u64) -> Result<Dying<'c>> {
        let kind = Kind(core.region().load_u64(kind_off(object))?);
        if !kind.is_dying() {
            let found = format!("{:#x}", kind.0);
            return Err(corrupt("a list of dying objects", object, "a dying object", found));
        }
        let info = core.types.get(kind.type_number()).ok_or_else(|| unknown_type(object, kind))?;
        let (released, len) = match kind.is_array() {
            true => {
                let word = core.region().load_u64(object + OBJECT_HEAD_BYTES)?;
                (word >> 32, word & 0xFFFF_FFFF)
            }
            false => (0, 1),
        };
        Ok(Dying { object, kind, info, released, len })
    }

    /// The elements whose turn it is.
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

    /// Becomes the owner of these elements; whether that could be had at once.
    fn own(&self, core: &Core, session: &mut Session, most: u64) -> bool {
        let mut of = Deaths { core, session, budget: 0 };
        self.elements(most).all(|element| {
            let value = self.value_off(element);
            of.own(match self.kind.is_array() {
                true => element_key(self.object, value, self.info.bytes),
                false => value,
            })
        })
    }

    /// Releases pointers of these elements; whether all of the object's are released then.
    fn release(&self, core: &Core, session: &mut Session, step: &Step) -> Result<bool> {
        let elements = self.elements(step.elements);
        let mut pointers = std::mem::take(&mut session.scratch.pointers);
        let mut noted = 0;
        let mut end = elements.end;
        for element in elements {
            let value = self.value_off(element);
            pointers.clear();
            let mut slots = Vec::new();
            let word = |off| Ok(core.region().load_u64(value + off)?);
            for_each_pointer(self.info, &word, |off, pointer| {
                let target = core.region().load_u64(value + off)?;
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
                let delta = session.deltas.get_or_insert_with(*target, Default::default);
                if *kind == PointerKind::Weak { delta.weak -= 1 } else { delta.strong -= 1 }
            }
            noted += pointers.len();
            if !all {
                // Those that are released lead nowhere from now on, so that the next step finds the others.
                for slot in &slots[..step.pointers] {
                    session.ptx.store_line_words(*slot, &[0])?;
                }
                end = element;
                break;
            }
        }
        session.scratch.pointers = pointers;
        if end < self.len && end > self.released {
            session.ptx.store_line_words(self.object + OBJECT_HEAD_BYTES, &[self.len | end << 32])?;
        }
        Ok(end >= self.len)
    }
}
