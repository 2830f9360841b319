//! The work of a commit: it compares, and adds versions.
//!
//! For each transaction of a record, in their order: its keys' last versions are compared with its snapshot;
//! if one is newer, it gets [`Error::Conflict`], and nothing of it is in the record. Else its versions are
//! added under the next number. Transactions of one record see what was added before them, so that they
//! conflict with each other as with earlier commits.

use crate::active::Asked;
use crate::commit_queue::LazyLeft;
use crate::error::{Error, Result};
use crate::garbage::{COLLECTED_PER_RECORD, Garbage};
use crate::handle::StoreInner;
use crate::history::Noted;
use crate::keep::Keep;
use crate::layout::{NUMBER_MAX, ValueWord};
use crate::read_write_sets::{Change, Changes, Reads, check_conflict, only_deletes};
use crate::retention::now_unix_ns;
use crate::table_writer::{Loaded, write_value};
use crate::versions::{Table, Version};
use smallvec::SmallVec;
use tembo_index::{InsertHeld, InsertHint, WriterLocks};
use tembo_pool::{BriefPin, KeptSpace, Savepoint, Tx};

/// A transaction, with others that the same record is to make.
pub(crate) struct Member<'a> {
    pub(crate) changes: Changes<'a>,
    /// The snapshot that it has read. None: it conflicts with nobody.
    pub(crate) begin: Option<u64>,
    pub(crate) reads: Option<&'a Reads>,
    /// Set by the commit.
    pub(crate) outcome: Option<Result<u64>>,
}

/// Commits transactions by one record, for a caller who keeps all lanes from committing. Each gets an
/// outcome, but those for whom there was no space, unless this is the last attempt.
pub(crate) fn commit_members(
    tx: &mut Tx<'_>,
    (left, is_due): (&mut LazyLeft<'_>, bool),
    store: &StoreInner,
    members: &mut [Member<'_>],
    is_last_attempt: bool,
) {
    let sequence = &store.active.sequence;
    sequence.catch_up_alone();
    let now = now_unix_ns();
    let needed = Asked::new(&store.active);
    let first = sequence.next_alone(now);
    let mut garbage = Vec::new();
    let mut noted = Noted::new(&store.history);
    let mut made: SmallVec<[(usize, u64); 1]> = SmallVec::new();
    for (at, member) in members.iter_mut().enumerate() {
        let number = first + made.len() as u64;
        let before = (tx.savepoint(), garbage.len(), noted.so_far());
        match apply(tx, store, member, number, (&needed, now), (&mut garbage, &mut noted)) {
            Ok(()) => made.push((at, number)),
            Err(e) => {
                tx.rollback_to(before.0);
                garbage.truncate(before.1);
                noted.take_back(before.2);
                if !e.is_full() || is_last_attempt {
                    member.outcome = Some(Err(e));
                }
            }
        }
        tx.use_kept_space(KeptSpace::None);
    }
    let Some(&(_, last)) = made.last() else { return tx.roll_back() };
    let (before, noted_before) = (tx.savepoint(), noted.so_far());
    let old = if is_due {
        left.get().collect_some(tx, store, &needed, COLLECTED_PER_RECORD, &noted.tally)
    } else {
        Ok(0)
    };
    if old.is_err() {
        noted.take_back(noted_before);
    }
    match finish(tx, store, last, before, old) {
        Ok(collected) => {
            if is_due {
                left.get().take_off(collected);
            }
            if !garbage.is_empty() {
                left.get().garbage.extend(garbage);
            }
            noted.enter();
            sequence.publish_alone(last);
            noted.wake();
            made.iter().for_each(|(at, number)| members[*at].outcome = Some(Ok(*number)));
        }
        // Each is tried by itself, as the record may have been too long.
        Err(e) if e.is_full() && !is_last_attempt => {}
        Err(e) => fail_all(members, &made, e),
    }
}

/// Writes the number of the last commit and commits the record; returns how many keys were collected.
fn finish(
    tx: &mut Tx<'_>,
    store: &StoreInner,
    last: u64,
    before_collecting: Savepoint,
    collected: Result<usize>,
) -> Result<usize> {
    // A failure to collect does not stop a commit.
    let collected = collected.unwrap_or_else(|_| {
        tx.rollback_to(before_collecting);
        0
    });
    store_last(tx, store, 0, last)?;
    tx.commit_and_begin()?;
    Ok(collected)
}

/// PERSIST(I1): in the record of the versions that have the number, and of those below it on this lane.
fn store_last(tx: &mut Tx<'_>, store: &StoreInner, lane: usize, number: u64) -> Result<()> {
    if number > NUMBER_MAX {
        return Err(Error::Group { reason: "the clock is wrong by more than a century".to_owned() });
    }
    Ok(tx.store(store.last_off(lane), number)?)
}

/// Gives everyone the error that one got.
fn fail_all(members: &mut [Member<'_>], made: &[(usize, u64)], error: Error) {
    let reason = error.to_string();
    let mut first = Some(error);
    for (at, _) in made {
        let error = first.take().unwrap_or_else(|| Error::Group { reason: reason.clone() });
        members[*at].outcome = Some(Err(error));
    }
}

/// Adds the versions of one transaction.
fn apply(
    tx: &mut Tx<'_>,
    store: &StoreInner,
    member: &Member<'_>,
    number: u64,
    (needed, now): (&Asked<'_>, u64),
    (garbage, noted): (&mut Vec<Garbage>, &mut Noted<'_>),
) -> Result<()> {
    check_snapshot(store, member.begin)?;
    if let (Some(reads), Some(begin)) = (member.reads, member.begin) {
        reads.validate(tx, begin)?;
    }
    let only_deletes = only_deletes(&member.changes);
    let accounts = &store.history.accounts;
    if !only_deletes {
        store.history.limits.check_kept(accounts)?;
    }
    tx.use_kept_space(if only_deletes { KeptSpace::Half } else { KeptSpace::None });
    for change in &member.changes {
        let keyspace = &change.keyspace.inner;
        keyspace.check_there()?;
        let key = keyspace.index.look_up_in(tx, change.key)?;
        let table = key.value().map(Table::at).transpose()?;
        let loaded = table.map(|table| table.load(tx)).transpose()?;
        match check(change, loaded, member.begin)? {
            KeyState::Nothing => {}
            KeyState::There(loaded) => {
                let (last, value) = (loaded.last(), write_value(tx, change.value)?);
                let version = Version { number, value };
                noted.change(tx, keyspace, (change.key, change.value), (last, version))?;
                let account = accounts.account(&noted.tally, keyspace, || Ok(change.key.to_vec()))?;
                let keep = Keep::new(needed, keyspace, now, account);
                add(tx, change, loaded, version, &keep, garbage)?;
            }
            KeyState::New => {
                let version = Version { number, value: write_value(tx, change.value)? };
                noted.change(tx, keyspace, (change.key, change.value), (None, version))?;
                Table::put_with(change.key, &[version], |value| key.insert(tx, value))?;
            }
        }
    }
    noted.end(tx, number, member.begin.unwrap_or_else(|| store.active.current()))
}

/// Refuses a transaction whose snapshot was revoked: what was written since may not be known any more.
#[inline]
fn check_snapshot(store: &StoreInner, begin: Option<u64>) -> Result<()> {
    match begin {
        Some(number) if store.active.is_revoked(number) => {
            Err(Error::SnapshotGone { number, current: store.active.current() })
        }
        _ => Ok(()),
    }
}

/// The finding of a change.
#[expect(clippy::large_enum_variant, reason = "there are few at a time, on the stack")]
enum KeyState {
    /// Nothing to delete. It conflicts with nobody, as a read of a missing key does not.
    Nothing,
    New,
    There(Loaded),
}

/// Refuses a conflict.
#[inline]
fn check(change: &Change<'_>, loaded: Option<Loaded>, begin: Option<u64>) -> Result<KeyState> {
    let last = loaded.as_ref().and_then(Loaded::last);
    if let Some(begin) = begin {
        check_conflict(&change.keyspace.inner, change.key, last, begin)?;
    }
    if change.value.is_none() && last.is_none_or(|last| last.value == ValueWord::Tombstone) {
        return Ok(KeyState::Nothing);
    }
    Ok(loaded.map_or(KeyState::New, KeyState::There))
}

/// Adds a version to the table of a key.
#[inline]
fn add(
    tx: &mut Tx<'_>,
    change: &Change<'_>,
    loaded: Loaded,
    version: Version,
    keep: &Keep<'_>,
    garbage: &mut Vec<Garbage>,
) -> Result<()> {
    let keyspace = &change.keyspace.inner;
    let left = loaded.add(tx, version, keep)?;
    if left.is_garbage(keyspace.retention()) {
        garbage.push(Garbage { number: version.number, keyspace: keyspace.clone(), key: change.key.into() });
    }
    Ok(())
}

/// The outcome of a commit beside those of other lanes.
pub(crate) enum Attempt {
    /// It is durable, and is to be waited for until readers see it.
    Made(u64),
    /// It has to be made while no other lane commits; nothing was done.
    NeedsAll,
}

/// Looks for the keys of changes, and refuses conflicts.
#[inline]
fn find_places(
    tx: &Tx<'_>,
    (locks, pin): (&WriterLocks, &BriefPin<'_>),
    changes: &[Change<'_>],
    begin: Option<u64>,
) -> Result<SmallVec<[(KeyState, InsertHint); 2]>> {
    let mut places = SmallVec::new();
    for change in changes {
        change.keyspace.inner.check_there()?;
        let (place, hint) = change.keyspace.inner.index.place_beside(pin, locks, change.key)?;
        let table = place.map(Table::at).transpose()?;
        places.push((check(change, table.map(|table| table.load(tx)).transpose()?, begin)?, hint));
    }
    Ok(places)
}

/// Commits a transaction beside those of other lanes. The caller holds the locks of its keys, and the pin
/// since before the lookups; `lane` is that of the transaction.
pub(crate) fn commit_beside(
    tx: &mut Tx<'_>,
    store: &StoreInner,
    (lane, locks, pin): (usize, &WriterLocks, &BriefPin<'_>),
    changes: &[Change<'_>],
    begin: Option<u64>,
    garbage: &mut Vec<Garbage>,
) -> Result<Attempt> {
    check_snapshot(store, begin)?;
    let places = find_places(tx, (locks, pin), changes, begin)?;
    // The locks of an insertion allow for no second one.
    if places.iter().filter(|(place, _)| matches!(place, KeyState::New)).count() > 1 {
        return Ok(Attempt::NeedsAll);
    }
    let needed = Asked::new(&store.active);
    tx.use_kept_space(if only_deletes(changes) { KeptSpace::Half } else { KeptSpace::None });
    let new = places.iter().position(|(place, _)| matches!(place, KeyState::New));
    // Waits for others, so it comes before the number: higher numbers wait for this one.
    let inserted: Option<InsertHeld<'_>> = new
        .map(|at| {
            let Change { keyspace, key, .. } = &changes[at];
            keyspace.inner.index.lock_to_insert(tx, locks, (key, places[at].1))
        })
        .transpose()?;
    // Decided, one way or the other, when it is dropped, which is after the commit has returned.
    let in_flight = store.active.sequence.take(lane, now_unix_ns());
    let (number, now) = (in_flight.number, in_flight.number);
    let outcome = changes.iter().zip(places).try_for_each(|(change, (place, _))| match (place, &inserted) {
        (KeyState::There(loaded), _) => {
            let version = Version { number, value: write_value(tx, change.value)? };
            // Nobody counts while commits run beside each other.
            let keep = Keep::new(&needed, &change.keyspace.inner, now, None);
            add(tx, change, loaded, version, &keep, garbage)
        }
        (KeyState::New, Some(inserted)) => {
            let version = Version { number, value: write_value(tx, change.value)? };
            Table::put_with(change.key, &[version], |value| inserted.insert(tx, value))
        }
        _ => Ok(()),
    });
    let outcome =
        outcome.and_then(|()| store_last(tx, store, lane, number)).and_then(|()| Ok(tx.commit_and_begin()?));
    if outcome.is_err() {
        tx.roll_back();
    }
    drop(inserted);
    match outcome {
        Ok(()) => Ok(Attempt::Made(number)),
        Err(e) if e.is_full() => {
            garbage.clear();
            Ok(Attempt::NeedsAll)
        }
        Err(e) => Err(e),
    }
}
