//! Commits: from the changes that a transaction has gathered to one durable record.
//!
//! # Order
//!
//! 1. Own the data records of all written places that are not owned yet. Then own the count records of all
//!    objects whose counts change, in the order of their numbers. (Commits alone own count records, so that a
//!    wait for one ends. No commit waits for a data record while it owns a count record.)
//! 2. Compute the new counts and the deaths (`resolve.rs`). The commit releases a dying object's pointers
//!    itself if they are few and it gets all records without waiting. Otherwise the object is added to the
//!    lane's list of dying objects; later transactions release a bounded part of it each (`dying.rs`).
//! 3. Mark all records as committing, get a number from the clock, and validate the reads (`orec.rs`).
//! 4. Commit the pool's transaction: one fence.
//! 5. Release the records with the number.
//!
//! # Invariants
//!
//! - I1: an object's strong count is the number of strong pointers that lead to it, from objects that are
//!   alive or in a list of dying ones. In a dying array only elements that have not been released count. The
//!   same holds for weak counts. The root object has one strong pointer more.
//! - I2: an object with no strong pointer is an orphan (in an orphan slot), or dying (in exactly one list),
//!   or a shell (only weak pointers lead to it).
//! - I3: a list of dying objects is linked by the first words of their heads, and ends.

use crate::counts::resolve::{CountResolver, try_lock};
use crate::error::{ErrorKind, Result};
use crate::handles::NewHandle;
use crate::stm::active_tx::ActiveTx;
use crate::stm::shared::HeapShared;
use crate::stm::writer::WriterContext;
use tembo_sync::back_off;

/// The most objects that one commit destroys; the others wait in the lane's list.
pub(crate) const DEATHS_MAX: usize = 48;

/// Makes a transaction durable, then visible.
///
/// It destroys at most `deaths` of the objects that die with it; later commits destroy the others.
pub(crate) fn commit(
    shared: &HeapShared,
    active: &ActiveTx,
    writer: &mut WriterContext,
    deaths: usize,
) -> Result<()> {
    if !writer.has_work() {
        writer.abort(&shared.orecs);
        return Ok(());
    }
    if let Err(e) = active.own_wanted(shared, writer) {
        writer.abort(&shared.orecs);
        return Err(e);
    }
    if !writer.only_writes() {
        return commit_work(shared, Some(active), writer, deaths);
    }
    // No count changes and no object dies: most transactions that change fields.
    match publish(shared, Some(active), writer) {
        Ok(version) => {
            writer.release_owned(&shared.orecs, version);
            shared.storing.end(writer.number);
            writer.forget_reshaped();
            Ok(())
        }
        Err(e) => {
            writer.abort(&shared.orecs);
            shared.storing.end(writer.number);
            Err(e)
        }
    }
}

#[inline(never)]
pub(crate) fn commit_work(
    shared: &HeapShared,
    active: Option<&ActiveTx>,
    writer: &mut WriterContext,
    deaths: usize,
) -> Result<()> {
    let dying_first = writer.dying_first;
    let outcome = prepare(shared, active, writer, deaths).and_then(|()| publish(shared, active, writer));
    match outcome {
        Ok(version) => {
            // Handles are confirmed before any record is released: until then no other commit reaches the new
            // objects, so none decides about their deaths without their handles.
            writer.held.iter().for_each(|claim| {
                shared.handles.hold(claim.off());
                claim.confirm();
            });
            let buffers = &mut writer.buffers;
            if !(buffers.adopted.is_empty() && buffers.new_slots.is_empty()) {
                buffers.adopted.iter().for_each(|object| shared.handles.forget_orphan(*object));
                shared.handles.add_slots(buffers.new_slots.drain(..));
            }
            buffers.spare.iter().for_each(|new| shared.handles.put_slot(new.object, new.slot));
            buffers.orphaned.iter().for_each(|new| shared.handles.make_orphan(new.object, new.slot));
            writer.release_owned(&shared.orecs, version);
            writer.buffers.locks.iter().for_each(|index| shared.count_orecs.release(*index, version));
        }
        Err(_) => {
            // The rollback is done first: no other commit may free a block while this one still claims it.
            writer.ptx.roll_back();
            writer.dying_first = dying_first;
            let unused = writer.buffers.orphaned.iter().chain(&writer.buffers.spare);
            unused
                .filter(|new| !new.is_new_slot)
                .for_each(|new| shared.handles.put_slot(new.object, new.slot));
            writer.buffers.locks.drain(..).for_each(|index| shared.count_orecs.give_back(index));
            writer.owned.drain(..).for_each(|index| shared.orecs.give_back(index));
        }
    }
    shared.storing.end(writer.number);
    writer.buffers.clear();
    writer.forget();
    match outcome {
        Ok(_) => Ok(()),
        Err(e) => Err(e),
    }
}

/// The second half of step 1, and step 2.
fn prepare(
    shared: &HeapShared,
    active: Option<&ActiveTx>,
    writer: &mut WriterContext,
    deaths: usize,
) -> Result<()> {
    if !shared.counts_pointers() {
        return Ok(());
    }
    lock_counts(shared, writer);
    // A transaction that has read outdated pointers would count objects that have died since. From here on
    // none of its objects can die.
    if let Some(active) = active
        && !shared.clock.stands_at(active.rv())
        && !active.reads_hold(shared)
    {
        return Err(ErrorKind::Conflict.into());
    }
    let mut resolver = CountResolver { shared, writer, budget: deaths };
    resolver.free_moved()?;
    resolver.apply_deltas()?;
    while let Some(object) = resolver.writer.buffers.deaths.pop() {
        resolver.destroy(object)?;
    }
    resolver.end_all()?;
    resolver.write_counts()
}

fn lock_counts(shared: &HeapShared, writer: &mut WriterContext) {
    let WriterContext { deltas, fresh, held, moved, buffers, number, .. } = writer;
    let mut add = |object: u64| buffers.locks.push(shared.count_orecs.index(object));
    deltas.iter().filter(|(_, delta)| delta.is_any()).for_each(|(object, _)| add(object));
    held.iter().map(NewHandle::off).filter(|object| fresh.get(*object).is_none()).for_each(&mut add);
    buffers.finished.iter().chain(&buffers.abandoned).chain(&*moved).for_each(|object| add(*object));
    if buffers.locks.len() > 1 {
        buffers.locks.sort_unstable();
        buffers.locks.dedup();
    }
    if !shared.isolates() {
        buffers.locks.clear();
    }
    for index in &buffers.locks {
        let mut round = 0_u32;
        while !try_lock(&shared.count_orecs, *index, *number) {
            round += 1;
            back_off(round);
        }
    }
}

/// Steps 3 and 4. Returns the version.
#[inline(always)]
fn publish(shared: &HeapShared, active: Option<&ActiveTx>, writer: &mut WriterContext) -> Result<u64> {
    writer.owned.iter().for_each(|index| shared.orecs.mark_committing(*index));
    writer.buffers.locks.iter().for_each(|index| shared.count_orecs.mark_committing(*index));
    let mut version = 0;
    if shared.isolates() {
        let number = shared.clock.number(&shared.storing, writer.number);
        if let Some(active) = active
            && !number.follows(active.rv())
        {
            shared.clock.share();
            if !active.reads_hold(shared) {
                return Err(ErrorKind::Conflict.into());
            }
        }
        version = number.version;
    }
    // Cleared in either outcome, and before the fence, because later stores would wait for it.
    writer.deltas.clear();
    writer.fresh.clear();
    writer.ptx.commit_and_begin()?;
    if let Some(active) = active {
        active.set_rv(version);
    }
    Ok(version)
}
