//! Building a version: the changes of one transaction are gathered in memory and stored when it commits.
//!
//! A changed node is a *draft*: a copy in memory. Drafts get their blocks at the commit, so a node that is
//! made and given up in one version takes no block.

use super::deferred_stamps::DeferredStamps;
use super::layout::RootWord;
use super::layout::{MAX_VERSION, at};
use super::moves::Moves;
use super::old_scan::OldScan;
use super::queue::{Dead, Queues, Reclaim};
use super::readers::Retained;
use super::shared::Shared;
use super::version::{Version, load_version};
use super::view::View;
use crate::error::{Error, Result, corrupt};
use crate::record::{MAX_KEY_BYTES, check_lengths};
use tembo_pool::{KeptSpace, Lane, Tx};

/// A version takes this many items off the young queue, besides two for each item that it puts there.
const YOUNG_STEPS: usize = 2;
/// The most changes of a group, so that no transaction becomes too large.
pub(crate) const GROUP_MAX: usize = 64;

/// How a structure changes its keys in a version under construction.
pub trait BuildVersion: Reclaim {
    /// The drafts of a version under construction.
    type Drafts: Default + Send;

    /// Begins to change a version; `drafts` are those of an earlier one, whose memory is reused.
    fn begin(drafts: &mut Self::Drafts, before: View<'_>) -> Result<()>;

    /// Looks up the key of the only change that a version will have, in the version before it.
    fn seek(drafts: &mut Self::Drafts, before: &View<'_>, lane: &mut Lane, key: &[u8]) -> Result<()> {
        let _ = (drafts, before, lane, key);
        Ok(())
    }

    /// Puts a key, whose length was checked; returns whether it was there.
    fn put(builder: &mut VersionBuilder<Self>, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Removes a key; returns whether it was there. Calls [`VersionBuilder::change`] before it changes
    /// anything.
    fn remove(builder: &mut VersionBuilder<Self>, tx: &mut Tx<'_>, key: &[u8]) -> Result<bool>;

    /// The value of a key in the version that is being made.
    fn get_made(builder: &VersionBuilder<Self>, tx: &Tx<'_>, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Removes all records, in constant time.
    fn clear(builder: &mut VersionBuilder<Self>, tx: &mut Tx<'_>) -> Result<()>;

    /// Copies the blocks that `moves` selects. `from` is empty in the first call, then the result of the call
    /// before. Returns where the next call begins, or `None` at the end. Calls [`VersionBuilder::change`]
    /// before it changes anything.
    fn compact(
        builder: &mut VersionBuilder<Self>,
        tx: &mut Tx<'_>,
        moves: &mut Moves<'_>,
        from: &[u8],
    ) -> Result<Option<Vec<u8>>>;

    /// Writes and stores all changes except those of the head; returns the root.
    fn write(builder: &mut VersionBuilder<Self>, tx: &mut Tx<'_>) -> Result<RootWord>;
}

/// A version under construction.
///
/// It belongs to a transaction of the caller, which is passed to every call: one transaction may make
/// versions of several maps.
pub struct VersionBuilder<S: BuildVersion> {
    pub(crate) header: u64,
    /// The seed of the hashes; 0 in a tree.
    pub(crate) seed: u64,
    /// The number of the version.
    pub(crate) version: u64,
    pub(crate) retained: Retained,
    pub(crate) before: Version,
    /// The stamps that the version before has deferred, if they are needed by now.
    pub(crate) due: DeferredStamps,
    /// Stamps that this version defers.
    pub(crate) deferred: Vec<u64>,
    pub(crate) length: u64,
    pub(crate) drafts: S::Drafts,
    pub(crate) dead: Vec<Dead>,
    /// How many changes were begun.
    changes: usize,
    pub(crate) is_changed: bool,
    /// Whether a change failed half-way.
    pub(crate) is_broken: bool,
    /// Whether the version has only removed so far: everything that it allocates then serves to free space.
    pub(crate) only_removes: bool,
    /// Items of the queues to look at, besides those that every version looks at.
    pub(crate) more_steps: usize,
}

impl<S: BuildVersion> Default for VersionBuilder<S> {
    fn default() -> VersionBuilder<S> {
        VersionBuilder {
            header: 0,
            seed: 0,
            version: 0,
            retained: Retained::default(),
            before: Version::default(),
            due: DeferredStamps::default(),
            deferred: Vec::new(),
            length: 0,
            drafts: S::Drafts::default(),
            dead: Vec::new(),
            changes: 0,
            is_changed: false,
            is_broken: false,
            only_removes: true,
            more_steps: 0,
        }
    }
}

impl<S: BuildVersion> VersionBuilder<S> {
    /// Begins a version; reuses the memory of a finished one if there is one. The caller holds the map's lock
    /// until the transaction has ended.
    pub(crate) fn begin(
        shared: &Shared,
        spare: &mut Option<Box<VersionBuilder<S>>>,
    ) -> Result<Box<VersionBuilder<S>>> {
        let mut builder = spare.take().unwrap_or_default();
        builder.look(shared)?;
        builder.set_out(shared)?;
        Ok(builder)
    }

    /// As [`begin`](Self::begin), for a version with one change, of this key. The transaction will be one of
    /// `lane`.
    pub(crate) fn begin_one(
        shared: &Shared,
        spare: &mut Option<Box<VersionBuilder<S>>>,
        lane: &mut Lane,
        key: &[u8],
    ) -> Result<Box<VersionBuilder<S>>> {
        let mut builder = spare.take().unwrap_or_default();
        let before = builder.look(shared)?;
        S::seek(&mut builder.drafts, &shared.view(before), lane, key)?;
        builder.set_out(shared)?;
        Ok(builder)
    }

    /// Starts from the newest version, and returns it.
    #[inline(always)]
    fn look(&mut self, shared: &Shared) -> Result<Version> {
        (self.header, self.seed) = (shared.header, shared.seed);
        let before = load_version(shared.region(), shared.header)?;
        (self.before, self.length) = (before, before.length);
        S::begin(&mut self.drafts, shared.view(before))?;
        Ok(before)
    }

    fn set_out(&mut self, shared: &Shared) -> Result<()> {
        self.version = shared.intend(&mut self.retained);
        if self.version > MAX_VERSION {
            let expected = format!("up to {MAX_VERSION}");
            return Err(corrupt("the version of a map", shared.header, expected, self.version));
        }
        self.due = shared.due(&self.retained);
        self.deferred.clear();
        self.dead.clear();
        (self.changes, self.is_changed, self.is_broken, self.more_steps) = (0, false, false, 0);
        self.only_removes = true;
        Ok(())
    }

    /// Keeps the builder in `spare`, so that the next version reuses its memory, unless that has become
    /// large.
    #[inline]
    pub(crate) fn leave(self: Box<Self>, spare: &mut Option<Box<VersionBuilder<S>>>) {
        if self.changes <= GROUP_MAX {
            *spare = Some(self);
        }
    }

    /// Puts a key; returns whether it was there. After an error the version cannot be committed.
    pub(crate) fn put(&mut self, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        check_lengths(key, &[value])?;
        self.check_whole()?;
        self.change();
        self.only_removes = false;
        let was_there = S::put(self, tx, key, value)?;
        self.length = self.length.saturating_add(u64::from(!was_there));
        self.is_broken = false;
        Ok(was_there)
    }

    /// Removes a key; returns whether it was there.
    pub(crate) fn remove(&mut self, tx: &mut Tx<'_>, key: &[u8]) -> Result<bool> {
        self.check_whole()?;
        if key.len() as u64 > MAX_KEY_BYTES || !S::remove(self, tx, key)? {
            return Ok(false);
        }
        self.length = self
            .length
            .checked_sub(1)
            .ok_or_else(|| corrupt("the length of a map", self.header, "at least 1", 0))?;
        self.is_broken = false;
        Ok(true)
    }

    /// The value of a key in the version that is being made.
    pub(crate) fn get(&self, tx: &Tx<'_>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if key.len() as u64 > MAX_KEY_BYTES {
            return Ok(None);
        }
        S::get_made(self, tx, key)
    }

    /// Refuses changes after one that failed half-way.
    pub(crate) fn check_whole(&self) -> Result<()> {
        if self.is_broken { Err(Error::Abandoned) } else { Ok(()) }
    }

    /// Notes that a change begins. If it fails, the version cannot be committed.
    pub(crate) fn change(&mut self) {
        self.changes += 1;
        self.is_changed = true;
        self.is_broken = true;
    }

    /// Queues or frees a record that has left the version. `start` is the version in which it was put.
    pub(crate) fn give_up_record(&mut self, tx: &mut Tx<'_>, off: u64, start: u64) -> Result<()> {
        if start == self.version {
            return Ok(tx.free(off)?);
        }
        self.dead.push(Dead::record(off, start, self.version));
        Ok(())
    }

    /// Makes the version part of its transaction; does nothing if there were no changes. The caller
    /// [shows](Shared::show) the version when the transaction is durable.
    pub(crate) fn finish(&mut self, tx: &mut Tx<'_>, scan: &mut OldScan) -> Result<Option<Version>> {
        self.check_whole()?;
        if !self.is_changed && self.more_steps == 0 {
            return Ok(None);
        }
        tx.use_kept_space(if self.only_removes { KeptSpace::Half } else { KeptSpace::None });
        if self.turn_queues(tx)? {
            scan.watch(&self.retained, self.before.number);
        }
        if !self.is_changed {
            return Ok(None);
        }
        self.due.store(tx)?;
        let root = S::write(self, tx)?;
        let version = Version { number: self.version, root, length: self.length };
        let (mut mask, mut words) = (0, [0; 8]);
        let mut store = |field: u64, now: u64, before: u64| {
            words[field as usize / 8] = now;
            mask |= u8::from(now != before) << (field / 8);
        };
        store(at!(PmVersionedHead.version), version.number, self.before.number);
        store(at!(PmVersionedHead.root), version.root.0, self.before.root.0);
        store(at!(PmVersionedHead.length), version.length, self.before.length);
        // PERSIST(I5): one redo record has these words and everything above, and covers the new blocks.
        tx.lines().store_line(self.header, mask, &words)?;
        Ok(Some(version))
    }

    /// Frees some of what died in earlier versions, and queues what died in this one.
    ///
    /// Returns whether a held version still needs some of it.
    fn turn_queues(&self, tx: &mut Tx<'_>) -> Result<bool> {
        let mut queues = Queues::open(tx, self.header)?;
        let steps = self.more_steps.saturating_add(YOUNG_STEPS + 2 * self.dead.len());
        let mut taken = 0;
        while taken < steps && queues.young.poppable() > 0 {
            let Some(dead) = queues.young.pop(tx)? else { break };
            taken += queues.free_or_keep::<S>(tx, dead, &self.retained)?;
        }
        for dead in &self.dead {
            queues.young.push(tx, dead)?;
        }
        queues.close(tx)
    }
}
