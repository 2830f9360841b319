//! Commits: from what a transaction has gathered to one durable record.
//!
//! # Order
//!
//! 1. Own the data records of what was written, but for those that are owned already; then the count records of all objects whose counts
//!    change, in their order. (A count record is owned during commits only, so that waiting for one ends. Nobody waits for a data record while
//!    it owns one of a count.)
//! 2. Work out the new counts, and who dies. A dying object's pointers are released in the same commit, as long as there
//!    are few and all records can be had at once; otherwise it goes to the lane's list of dying objects, which `collect.rs` goes
//!    through afterwards, a bounded part in each transaction.
//! 3. Mark all records as committing, get a number from the clock, validate what was read (`orec.rs`).
//! 4. Commit the pool's transaction: one fence.
//! 5. Release the records with the number.
//!
//! # Invariants
//!
//! - I1: an object's strong count is the number of strong slots that lead to it, of objects that are alive or in a list of dying ones (with a dying
//!   array only the elements that have not been released yet); weak likewise. The root object has one more.
//! - I2: an object with no strong pointer is an orphan (in an orphan slot), or dying (in exactly one list), or a shell (only weak pointers lead
//!   to it).
//! - I3: a list of dying objects is linked by the first words of their heads and ends.

use crate::core::Core;
use crate::describe::PointerKind;
use crate::error::{Error, Result, corrupt};
use crate::handle::{Claim, FoundSlot};
use crate::layout::{
    Counts, Kind, ORPHAN_SLOTS, PmHeap, PmOrphans, block_of, counts_off, is_tagged, kind_off, value_off,
};
use crate::orec::Orecs;
use crate::session::{Delta, Session, State};
use crate::types::for_each_pointer;
use tembo_pmem::offset_of;
use tembo_sync::{SmallMap, back_off};

/// Objects that one commit destroys, at most; the others wait in the lane's list.
pub(crate) const DEATHS_MAX: usize = 48;

/// The counts of an object that was there before.
#[derive(Debug, Clone, Copy)]
struct NewCounts {
    kind: Kind,
    old: Counts,
    new: Counts,
    /// It is freed, so that nothing of it is to be written.
    is_freed: bool,
}

/// Buffers of commits, kept in the session.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Count records that are owned.
    locks: Vec<u32>,
    counts: SmallMap<NewCounts>,
    deaths: Vec<u64>,
    pub pointers: Vec<(u64, PointerKind)>,
    /// Dying objects all of whose pointers are released.
    pub finished: Vec<u64>,
    /// All dead objects whose pointers are released: when that has been done for all of them, they are freed, or are shells.
    ended: Vec<(u64, Kind)>,
    /// Orphans that nobody holds any more.
    pub abandoned: Vec<u64>,
    /// Changes of the orphan slots: objects that are to get one, and that are to lose theirs.
    orphaned: Vec<NewOrphan>,
    /// Slots that are to be kept for objects that are held.
    spare: Vec<NewOrphan>,
    adopted: Vec<u64>,
    /// Slots of a block that this commit makes.
    new_slots: Vec<u64>,
}

/// An object that becomes an orphan, or may later. Nobody else is to know before that is committed.
#[derive(Debug, Clone, Copy)]
struct NewOrphan {
    object: u64,
    slot: u64,
    /// Whether the slot is in a block that the commit makes.
    is_new_slot: bool,
}

impl Scratch {
    /// Most of them are empty anyway, and storing that would wait for the commit's fence.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        fn clear<T>(list: &mut Vec<T>) {
            if !list.is_empty() {
                list.clear();
            }
        }
        clear(&mut self.locks);
        self.counts.clear();
        clear(&mut self.deaths);
        clear(&mut self.pointers);
        clear(&mut self.finished);
        clear(&mut self.ended);
        clear(&mut self.abandoned);
        clear(&mut self.orphaned);
        clear(&mut self.spare);
        clear(&mut self.adopted);
        clear(&mut self.new_slots);
    }
}

/// Why a commit came to nothing: an [`Error`] that goes in a register, so that one that succeeds stores nothing for it.
pub(crate) enum Failed {
    Conflict,
    By(Box<Error>),
}

impl From<Error> for Failed {
    fn from(e: Error) -> Failed {
        match e {
            Error::Conflict => Failed::Conflict,
            e => Failed::By(Box::new(e)),
        }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Error {
        match failed {
            Failed::Conflict => Error::Conflict,
            Failed::By(e) => *e,
        }
    }
}

/// Makes a transaction durable, then visible.
///
/// So many of the objects that die with it are destroyed by it, at most; the others later.
pub(crate) fn commit(
    core: &Core,
    state: &State,
    session: &mut Session,
    deaths: usize,
) -> std::result::Result<(), Failed> {
    if !session.has_work() {
        session.abort(core);
        return Ok(());
    }
    if let Err(e) = session.own_wanted(core, state) {
        session.abort(core);
        return Err(e.into());
    }
    if !session.only_writes() {
        return commit_work(core, Some(state), session, deaths);
    }
    // No count changes and nobody dies: most transactions that change fields.
    match publish(core, Some(state), session) {
        Ok(version) => {
            session.release_owned(core, version);
            core.storing.end(session.number);
            session.forget_reshaped();
            Ok(())
        }
        Err(e) => {
            session.abort(core);
            core.storing.end(session.number);
            Err(e.into())
        }
    }
}

#[inline(never)]
pub(crate) fn commit_work(
    core: &Core,
    state: Option<&State>,
    session: &mut Session,
    deaths: usize,
) -> std::result::Result<(), Failed> {
    let dying_first = session.dying_first;
    let outcome = prepare(core, state, session, deaths).and_then(|()| publish(core, state, session));
    match outcome {
        Ok(version) => {
            // Before any record is released: nobody can come to what this commit has allocated until then, and decide about it
            // without knowing its handles.
            session.held.iter().for_each(|claim| {
                core.handles.hold(claim.off());
                claim.confirm();
            });
            let scratch = &mut session.scratch;
            if !(scratch.adopted.is_empty() && scratch.new_slots.is_empty()) {
                scratch.adopted.iter().for_each(|object| core.handles.forget_orphan(*object));
                core.handles.add_slots(scratch.new_slots.drain(..));
            }
            scratch.spare.iter().for_each(|new| core.handles.put_slot(new.object, new.slot));
            scratch.orphaned.iter().for_each(|new| core.handles.make_orphan(new.object, new.slot));
            session.release_owned(core, version);
            session.scratch.locks.iter().for_each(|index| core.count_orecs.release(*index, version));
        }
        Err(_) => {
            // First of all: a block that was to be freed is not one that others can free before this is taken back.
            session.ptx.roll_back();
            session.dying_first = dying_first;
            let unused = session.scratch.orphaned.iter().chain(&session.scratch.spare);
            unused.filter(|new| !new.is_new_slot).for_each(|new| core.handles.put_slot(new.object, new.slot));
            session.scratch.locks.drain(..).for_each(|index| core.count_orecs.give_back(index));
            session.owned.drain(..).for_each(|index| core.orecs.give_back(index));
        }
    }
    core.storing.end(session.number);
    session.scratch.clear();
    session.forget();
    match outcome {
        Ok(_) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// The second half of step 1, and step 2.
fn prepare(core: &Core, state: Option<&State>, session: &mut Session, deaths: usize) -> Result<()> {
    if !core.parts.counts {
        return Ok(());
    }
    lock_counts(core, session);
    // Who has seen pointers that are gone would count objects that have died since. From here on none of those that it counts can.
    if let Some(state) = state
        && !core.clock.stands_at(state.rv())
        && !state.reads_hold(core)
    {
        return Err(Error::Conflict);
    }
    let mut of = Deaths { core, session, budget: deaths };
    of.apply_deltas()?;
    while let Some(object) = of.session.scratch.deaths.pop() {
        of.destroy(object)?;
    }
    of.end_all()?;
    of.write_counts()
}

fn lock_counts(core: &Core, session: &mut Session) {
    let Session { deltas, fresh, held, scratch, number, .. } = session;
    let mut add = |object: u64| scratch.locks.push(core.count_orecs.index(object));
    deltas.iter().filter(|(_, delta)| delta.is_any()).for_each(|(object, _)| add(object));
    held.iter().map(Claim::off).filter(|object| fresh.get(*object).is_none()).for_each(&mut add);
    scratch.finished.iter().chain(&scratch.abandoned).for_each(|object| add(*object));
    if scratch.locks.len() > 1 {
        scratch.locks.sort_unstable();
        scratch.locks.dedup();
    }
    if !core.parts.isolates {
        scratch.locks.clear();
    }
    for index in &scratch.locks {
        let mut round = 0_u32;
        while !try_lock(&core.count_orecs, *index, *number) {
            round += 1;
            back_off(round);
        }
    }
}

fn try_lock(records: &Orecs, index: u32, number: u64) -> bool {
    let seen = records.load(index);
    seen.owner() == 0 && records.try_own(index, seen, number)
}

pub(crate) struct Deaths<'c> {
    pub core: &'c Core,
    pub session: &'c mut Session,
    pub budget: usize,
}

impl Deaths<'_> {
    /// A word of an object as the commit is going to leave it.
    fn word(&self, off: u64) -> Result<u64> {
        match self.session.ptx.line_word(off) {
            Some(word) => Ok(word),
            None => Ok(self.core.region().load_u64(off)?),
        }
    }

    /// The counts of an object that was there before, whose record is owned.
    fn counts(&mut self, object: u64) -> Result<&mut NewCounts> {
        if self.session.scratch.counts.get(object).is_none() {
            let kind = Kind(self.core.region().load_u64(kind_off(object))?);
            let old = Counts::decode(self.core.region().load_u64(counts_off(object))?);
            let new = NewCounts { kind, old, new: old, is_freed: false };
            self.session.scratch.counts.get_or_insert_with(object, || new);
        }
        Ok(self.session.scratch.counts.get_or_insert_with(object, || unreachable!("inserted above")))
    }

    fn is_held(&self, object: u64) -> bool {
        self.session.held.iter().any(|claim| claim.off() == object) || self.core.handles.holds(object)
    }

    fn change(&mut self, object: u64, strong: i64, weak: i64) -> Result<NewCounts> {
        let counts = self.counts(object)?;
        let before = counts.new;
        match before.changed(strong, weak) {
            Some(after) => {
                counts.new = after;
                Ok(*counts)
            }
            None if strong > 0 || weak > 0 => Err(Error::TooManyPointers { off: object }),
            None => {
                Err(corrupt("the counts of an object", object, "as many as pointers", format!("{before:?}")))
            }
        }
    }

    fn apply_deltas(&mut self) -> Result<()> {
        for i in 0..self.session.deltas.len() {
            let (object, delta) = self.session.deltas.entry(i);
            let delta = *delta;
            if delta.is_any() {
                self.change(object, delta.strong, delta.weak)?;
                self.settle(object)?;
            }
        }
        for i in 0..self.session.fresh.len() {
            let (object, fresh) = self.session.fresh.entry(i);
            if fresh.pointers.strong == 0 {
                self.settle_fresh(object)?;
            }
        }
        for i in 0..self.session.held.len() {
            let object = self.session.held[i].off();
            if self.session.fresh.get(object).is_none() {
                let counts = *self.counts(object)?;
                if counts.kind.is_dying() || counts.kind.is_shell() {
                    // It died after it was read.
                    return Err(Error::Conflict);
                }
            }
        }
        self.keep_slots()?;
        for i in 0..self.session.scratch.abandoned.len() {
            let object = self.session.scratch.abandoned[i];
            if self.core.handles.slot_of(object).is_some() && !self.session.scratch.adopted.contains(&object)
            {
                self.settle(object)?;
            }
        }
        for i in 0..self.session.scratch.finished.len() {
            let object = self.session.scratch.finished[i];
            let kind = self.counts(object)?.kind;
            self.session.scratch.ended.push((object, kind));
        }
        Ok(())
    }

    /// Decides about an object that was there before, after its counts have changed.
    fn settle(&mut self, object: u64) -> Result<()> {
        let counts = *self.counts(object)?;
        if counts.kind.is_shell() && counts.new.weak == 0 {
            return self.free(object);
        }
        if counts.kind.is_shell() || counts.kind.is_dying() {
            if counts.new.strong > counts.old.strong {
                return Err(Error::Conflict);
            }
            return Ok(());
        }
        if counts.new.strong > 0 {
            if self.core.handles.slot_of(object).is_some() {
                self.adopt(object)?;
            }
        } else if self.is_held(object) {
            self.make_orphan(object)?;
        } else if counts.kind.successor().is_none() {
            if self.core.handles.slot_of(object).is_some() {
                self.adopt(object)?;
            }
            self.session.scratch.deaths.push(object);
        }
        Ok(())
    }

    /// Decides about an object of this transaction that no strong pointer leads to.
    fn settle_fresh(&mut self, object: u64) -> Result<()> {
        if self.session.held.iter().any(|claim| claim.off() == object) {
            return self.make_orphan(object);
        }
        self.session.scratch.deaths.push(object);
        Ok(())
    }

    /// Keeps a slot for each object that is held from now on.
    fn keep_slots(&mut self) -> Result<()> {
        for i in 0..self.session.held.len() {
            let object = self.session.held[i].off();
            let scratch = &self.session.scratch;
            if scratch.orphaned.iter().chain(&scratch.spare).any(|new| new.object == object) {
                continue;
            }
            let new = match self.core.handles.find_spare(object) {
                FoundSlot::HasOne => continue,
                FoundSlot::Free(slot) => NewOrphan { object, slot, is_new_slot: false },
                FoundSlot::NoneFree => NewOrphan { object, slot: self.new_slot()?, is_new_slot: true },
            };
            self.session.scratch.spare.push(new);
        }
        Ok(())
    }

    /// Takes an orphan's slot away.
    fn adopt(&mut self, object: u64) -> Result<()> {
        if let Some(slot) = self.core.handles.slot_of(object) {
            self.session.ptx.store_line_words(slot, &[0])?;
            self.session.scratch.adopted.push(object);
        }
        Ok(())
    }

    /// An orphan that this commit has taken the slot of is one again: what was linked to it has died.
    fn keep_slot(&mut self, object: u64) -> Result<()> {
        let adopted = &mut self.session.scratch.adopted;
        if let Some(at) = adopted.iter().position(|adopted| *adopted == object)
            && let Some(slot) = self.core.handles.slot_of(object)
        {
            adopted.swap_remove(at);
            self.session.ptx.store_line_words(slot, &[object])?;
        }
        Ok(())
    }

    fn make_orphan(&mut self, object: u64) -> Result<()> {
        let spare = &mut self.session.scratch.spare;
        if let Some(at) = spare.iter().position(|new| new.object == object) {
            let new = spare.swap_remove(at);
            return self.orphan(new);
        }
        let new = match self.core.handles.find_slot(object) {
            FoundSlot::HasOne => {
                return self.keep_slot(object);
            }
            FoundSlot::Free(slot) => NewOrphan { object, slot, is_new_slot: false },
            FoundSlot::NoneFree => NewOrphan { object, slot: self.new_slot()?, is_new_slot: true },
        };
        self.orphan(new)
    }

    fn orphan(&mut self, new: NewOrphan) -> Result<()> {
        self.session.scratch.orphaned.push(new);
        let ptx = &mut self.session.ptx;
        Ok(if new.is_new_slot {
            ptx.store(new.slot, new.object)
        } else {
            ptx.store_line_words(new.slot, &[new.object])
        }?)
    }

    /// A slot of a block that this commit makes.
    fn new_slot(&mut self) -> Result<u64> {
        if self.session.scratch.new_slots.is_empty() {
            // Its record stands for the chain of blocks, until the commit is over.
            if !self.can_change(self.core.off) {
                return Err(Error::Conflict);
            }
            let head = self.core.off + offset_of!(PmHeap, orphans) as u64;
            let next = self.word(head)?;
            let session = &mut *self.session;
            let block = session.ptx.alloc(size_of::<PmOrphans>() as u64)?;
            // The zeros are a part of the commit, as slots that are in use would be.
            session.ptx.write_fresh(block, &[0; size_of::<PmOrphans>()])?;
            session.ptx.store(block, next)?;
            session.ptx.store_line_words(head, &[block])?;
            let slots = block + offset_of!(PmOrphans, slots) as u64;
            session.scratch.new_slots.extend((0..ORPHAN_SLOTS).map(|i| slots + 8 * i));
        }
        Ok(self.session.scratch.new_slots.pop().expect("a slot of the new block"))
    }

    /// Releases an object that no strong pointer leads to any more, now or later.
    fn destroy(&mut self, object: u64) -> Result<()> {
        let is_fresh = self.session.fresh.get(object).is_some();
        let kind = match self.session.fresh.get(object) {
            Some(fresh) => Kind::new(fresh.type_number, fresh.is_array),
            None => self.counts(object)?.kind,
        };
        let info = self.core.types.get(kind.type_number()).ok_or_else(|| unknown_type(object, kind))?;
        if !info.pointers.is_empty() {
            if self.budget == 0 || kind.is_array() || !(is_fresh || self.own(value_off(object))) {
                return self.defer(object, kind);
            }
            self.budget -= 1;
            let value = value_off(object);
            let mut pointers = std::mem::take(&mut self.session.scratch.pointers);
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
            self.session.scratch.pointers = pointers;
            if !all {
                return self.defer(object, kind);
            }
        }
        self.session.scratch.ended.push((object, kind));
        Ok(())
    }

    /// Frees the dead, or makes them shells if weak pointers of what is left lead to them.
    fn end_all(&mut self) -> Result<()> {
        for i in 0..self.session.scratch.ended.len() {
            let (object, kind) = self.session.scratch.ended[i];
            self.end(object, kind)?;
        }
        Ok(())
    }

    fn end(&mut self, object: u64, kind: Kind) -> Result<()> {
        let fresh = self.session.fresh.get(object).copied();
        let weak = match fresh {
            Some(fresh) => fresh.pointers.weak as u64,
            None => u64::from(self.counts(object)?.new.weak),
        };
        if weak == 0 {
            return self.free(object);
        }
        self.set_kind(object, kind.shell(), fresh.is_some())
    }

    /// Owns the data record of a key, if that can be had at once, so that what is read there stays so.
    pub(crate) fn own(&mut self, key: u64) -> bool {
        let index = self.core.orecs.index(key);
        let seen = self.core.orecs.load(index);
        if seen.owner() == self.session.number || !self.core.parts.isolates {
            return true;
        }
        let owns = seen.owner() == 0 && self.core.orecs.try_own(index, seen, self.session.number);
        if owns {
            self.session.owned.push(index);
        }
        owns
    }

    /// Owns the count record of an object, if that can be had at once.
    fn can_change(&mut self, object: u64) -> bool {
        if self.session.fresh.get(object).is_some() || !self.core.parts.isolates {
            return true;
        }
        let index = self.core.count_orecs.index(object);
        if self.core.count_orecs.load(index).owner() == self.session.number {
            return true;
        }
        let owns = try_lock(&self.core.count_orecs, index, self.session.number);
        if owns {
            self.session.scratch.locks.push(index);
        }
        owns
    }

    /// Takes a pointer to an object away, whose count may be changed.
    fn release(&mut self, object: u64, kind: PointerKind) -> Result<()> {
        let (strong, weak) = if kind == PointerKind::Weak { (0, -1) } else { (-1, 0) };
        if let Some(fresh) = self.session.fresh.get_mut(object) {
            fresh.pointers.strong += strong;
            fresh.pointers.weak += weak;
            if strong != 0 && fresh.pointers.strong == 0 {
                self.settle_fresh(object)?;
            }
            return Ok(());
        }
        let counts = self.change(object, strong, weak)?;
        let is_last =
            if strong != 0 { counts.new.strong == 0 } else { counts.kind.is_shell() && counts.new.weak == 0 };
        if is_last { self.settle(object) } else { Ok(()) }
    }

    fn free(&mut self, object: u64) -> Result<()> {
        self.session.ptx.free(block_of(object))?;
        if self.session.fresh.get(object).is_none() {
            self.counts(object)?.is_freed = true;
        }
        Ok(())
    }

    /// Puts an object into the lane's list of dying ones.
    fn defer(&mut self, object: u64, kind: Kind) -> Result<()> {
        let dying = kind.dying(self.session.dying_first);
        let is_fresh = self.session.fresh.get(object).is_some();
        self.set_kind(object, dying, is_fresh)?;
        if !is_fresh {
            self.counts(object)?.kind = dying;
        }
        self.session.dying_first = object;
        self.session.ptx.store_line_words(self.session.dying_off, &[object])?;
        Ok(())
    }

    fn set_kind(&mut self, object: u64, kind: Kind, is_fresh: bool) -> Result<()> {
        let ptx = &mut self.session.ptx;
        match is_fresh {
            true if is_tagged(object) => ptx.set_tag_word(block_of(object), 0, kind.0)?,
            true => ptx.store(object, kind.0)?,
            false => ptx.store_line_words(kind_off(object), &[kind.0])?,
        }
        Ok(())
    }

    fn write_counts(&mut self) -> Result<()> {
        let Session { scratch, fresh, ptx, .. } = &mut *self.session;
        for (object, counts) in scratch.counts.iter() {
            if !counts.is_freed && counts.new != counts.old {
                ptx.store_line_words(counts_off(object), &[counts.new.encode()])?;
            }
        }
        for (object, fresh) in fresh.iter() {
            let Delta { strong, weak } = fresh.pointers;
            if (strong, weak) == (1, 0) {
                continue;
            }
            let counts = Counts { strong: 0, weak: 0 }.changed(strong, weak);
            let counts = counts.ok_or(Error::TooManyPointers { off: object })?;
            // A block that was freed again may be stored to as well.
            match is_tagged(object) {
                true => ptx.set_tag_word(block_of(object), 1, counts.encode())?,
                false => ptx.store(counts_off(object), counts.encode())?,
            }
        }
        Ok(())
    }
}

#[cold]
pub(crate) fn unknown_type(object: u64, kind: Kind) -> Error {
    corrupt("the type of an object", object, "a type of the heap", kind.type_number())
}

/// Steps 3 and 4. Returns the version.
#[inline(always)]
fn publish(core: &Core, state: Option<&State>, session: &mut Session) -> Result<u64> {
    session.owned.iter().for_each(|index| core.orecs.mark_committing(*index));
    session.scratch.locks.iter().for_each(|index| core.count_orecs.mark_committing(*index));
    let mut version = 0;
    if core.parts.isolates {
        let number = core.clock.number(&core.storing, session.number);
        if let Some(state) = state
            && !number.follows(state.rv())
        {
            core.clock.share();
            if !state.reads_hold(core) {
                return Err(Error::Conflict);
            }
        }
        version = number.version;
    }
    // Whether it succeeds or not; after its fence this would wait.
    session.deltas.clear();
    session.fresh.clear();
    session.ptx.commit_and_begin()?;
    if let Some(state) = state {
        state.set_rv(version);
    }
    Ok(version)
}
