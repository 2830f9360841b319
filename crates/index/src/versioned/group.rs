//! Changes by any number of threads. Changes that wait for the writer become one version, with one fence.
//!
//! A thread that finds the writer's lock taken leaves its change in a list and then waits for the lock. The
//! thread that gets it makes all changes in the list. The others, when they get the lock in turn, find
//! their change made, or abandoned because the thread that made them panicked.

use super::builder::{GROUP_MAX, VersionBuilder};
use super::map::{VersionedMap, Writing};
use super::requests::{Change, Group, Request, TakeBack};
use super::structure::VersionedStructure;
use super::tree::TreeStructure;
use crate::error::Result;
use crate::key_edit::KeyEdit;
use crate::record::check_lengths;
use crate::turns::HeldHere;
use parking_lot::Mutex;
use std::sync::Arc;
use tembo_pool::Tx;

/// Makes a change of one key in a version under construction.
fn make<S: VersionedStructure, B: AsRef<[u8]>>(
    change: &Change<B>,
    builder: &mut VersionBuilder<S>,
    tx: &mut Tx<'_>,
) -> Result<bool> {
    match change {
        Change::Put(key, value) => builder.put(tx, key.as_ref(), value.as_ref()),
        Change::Insert(key, value) => builder.insert(tx, key.as_ref(), value.as_ref()),
        Change::Update(key, value) => builder.update(tx, key.as_ref(), value.as_ref()),
        Change::Swap { key, expected, new } => {
            let [expected, new] = [expected, new].map(|value| value.as_ref().map(AsRef::as_ref));
            builder.compare_and_swap(tx, key.as_ref(), expected, new)
        }
        Change::Remove(key) => builder.remove(tx, key.as_ref()),
    }
}

/// Changes that become one version ([`VersionedMap::batch`]).
pub struct VersionedBatch<'b, 'l, S: VersionedStructure = TreeStructure> {
    builder: &'b mut VersionBuilder<S>,
    tx: &'b mut Tx<'l>,
}

impl<S: VersionedStructure> VersionedBatch<'_, '_, S> {
    /// Puts a key; returns whether it was there. O(log n).
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong),
    /// [`Error::ValueTooLong`](crate::Error::ValueTooLong), after which the batch can go on;
    /// [`Error::Pool`](crate::Error::Pool) when the pool is full or damaged, after which nothing of the
    /// batch is kept.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.builder.put(self.tx, key, value)
    }

    /// Removes a key; returns whether it was there. O(log n).
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn remove(&mut self, key: &[u8]) -> Result<bool> {
        self.builder.remove(self.tx, key)
    }

    /// Removes everything, in time that does not depend on the size of the map; see [`VersionedMap::clear`].
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn clear(&mut self) -> Result<()> {
        S::clear(self.builder, self.tx)
    }

    /// The value of a key, with the changes of the batch so far. O(log n).
    ///
    /// # Errors
    ///
    /// [`Error::Pool`](crate::Error::Pool) when the map is damaged on the way to the key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.builder.get(self.tx, key)
    }

    /// How many keys there are, with the changes of the batch so far.
    pub fn len(&self) -> u64 {
        self.builder.length
    }

    /// Whether there are no keys, with the changes of the batch so far.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The version that the batch makes, if it changes anything.
    pub fn version(&self) -> u64 {
        self.builder.version
    }
}

impl<S: VersionedStructure> std::fmt::Debug for VersionedBatch<'_, '_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VersionedBatch").field("version", &self.version()).finish_non_exhaustive()
    }
}

impl<S: VersionedStructure> VersionedMap<S> {
    /// Puts a key; returns whether it was there. Makes a version, alone or together with changes of other
    /// threads. On return the version is durable, and readers see it. O(log n), one fence.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`](crate::Error::KeyTooLong), [`Error::ValueTooLong`](crate::Error::ValueTooLong),
    /// and [`Error::Pool`](crate::Error::Pool) when the pool is full, damaged, or open for reading only;
    /// [`Error::Abandoned`](crate::Error::Abandoned) when another thread panicked while it made the change
    /// together with its own. After an error nothing has changed.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        check_lengths(key, &[value])?;
        self.make_one(&Change::Put(key, value))
    }

    /// Puts a key if it is absent; returns whether it was. If it was not, the call costs no more than a
    /// lookup. Otherwise as [`put`](Self::put).
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        if self.reader().get(key)?.is_some() {
            return Ok(false);
        }
        self.make_one(&Change::Insert(key, value))
    }

    /// Replaces the value of a key if the key exists; returns whether it did. Otherwise as
    /// [`put`](Self::put).
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.make_one(&Change::Update(key, value))
    }

    /// Replaces the value of a key by `new` if it is `expected`; returns whether it was. `None` stands for an
    /// absent key. Otherwise as [`put`](Self::put).
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn compare_and_swap(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<bool> {
        self.make_one(&Change::Swap { key, expected, new })
    }

    /// Replaces the value of a key by the result of `change`, which gets the present value; returns whether
    /// the key was there. `None` stands for an absent key. `change` is called once, under the map's lock: it
    /// may read the map, but must not change it. If it panics, nothing has changed. An unchanged value is not
    /// written again. Otherwise as [`put`](Self::put), but never together with changes of other threads.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn modify<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<bool> {
        let decide = |old: Option<&[u8]>| change(old).map_or(KeyEdit::Remove, KeyEdit::Put);
        self.write_alone(|builder, tx| builder.decide(tx, key, decide))
    }

    /// Makes a version of the changes of `body` only, without those of other threads.
    pub(super) fn write_alone<T>(
        &self,
        body: impl FnOnce(&mut VersionBuilder<S>, &mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let change = || {
            let mut writing = self.lock_writer()?;
            let _held = HeldHere::note(self.shared.key(), S::IN_CLOSURE);
            self.write(&mut writing, body)
        };
        self.with_room_after(change).map(|(outcome, _)| outcome)
    }

    /// Runs a change that cannot be repeated. If it finds no space, frees dead blocks, so that the next
    /// attempt finds some.
    fn with_room_after<T>(&self, change: impl FnOnce() -> Result<T>) -> Result<T> {
        change().inspect_err(|e| {
            if e.is_full() {
                self.make_room();
            }
        })
    }

    /// Removes a key; returns whether it was there. Costs no fence if it was not. Otherwise as
    /// [`put`](Self::put).
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        self.make_one(&Change::Remove(key))
    }

    /// Removes everything, in time that does not depend on the size of the map. Makes a version of its own.
    /// Later changes and [`collect`](Self::collect) free the blocks step by step.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn clear(&self) -> Result<()> {
        self.write_alone(|builder, tx| S::clear(builder, tx))
    }

    /// Makes the changes of `body` one version: all of them are durable when this returns, with one fence
    /// (two if they have more than 2 KiB of new data), or none of them is made. Other writers wait meanwhile,
    /// so `body` must change the map through the batch only.
    ///
    /// # Errors
    ///
    /// The error of `body`; [`Error::Abandoned`](crate::Error::Abandoned) if `body` continues after a change
    /// that failed half-way; [`Error::Pool`](crate::Error::Pool). After an error nothing has changed.
    pub fn batch<T>(&self, body: impl FnOnce(&mut VersionedBatch<'_, '_, S>) -> Result<T>) -> Result<T> {
        self.write_alone(|builder, tx| body(&mut VersionedBatch { builder, tx }))
    }

    /// Makes a version of the changes of `body`. Returns also the newest version after that.
    pub(super) fn write<T>(
        &self,
        writing: &mut Writing<S>,
        body: impl FnOnce(&mut VersionBuilder<S>, &mut Tx<'_>) -> Result<T>,
    ) -> Result<(T, u64)> {
        let Writing { lane, spare, .. } = &mut *writing;
        if lane.is_none() {
            return Err(tembo_pool::ErrorKind::ReadOnly.into());
        }
        let builder = VersionBuilder::begin(&self.shared, spare)?;
        self.complete(writing, builder, body)
    }

    /// As [`write`](Self::write), for a single change of a key.
    fn write_one(&self, writing: &mut Writing<S>, change: &Change<&[u8]>) -> Result<bool> {
        let Writing { lane, spare, .. } = &mut *writing;
        let Some(lane) = lane else { return Err(tembo_pool::ErrorKind::ReadOnly.into()) };
        let builder = VersionBuilder::begin_one(&self.shared, spare, lane, change.key())?;
        self.complete(writing, builder, |builder, tx| make(change, builder, tx)).map(|(outcome, _)| outcome)
    }

    fn complete<T>(
        &self,
        writing: &mut Writing<S>,
        mut builder: Box<VersionBuilder<S>>,
        body: impl FnOnce(&mut VersionBuilder<S>, &mut Tx<'_>) -> Result<T>,
    ) -> Result<(T, u64)> {
        let Writing { lane, scan, spare } = writing;
        let Some(lane) = lane else { return Err(tembo_pool::ErrorKind::ReadOnly.into()) };
        let mut tx = lane.begin();
        let outcome = body(&mut builder, &mut tx)?;
        if let Some(version) = builder.finish(&mut tx, scan)? {
            tx.commit()?;
            self.shared.show(version, &builder.deferred);
        }
        builder.leave(spare);
        Ok((outcome, self.shared.current()))
    }

    /// Makes a change, alone or together with those of other threads. If there is no space, frees dead blocks
    /// and tries once more.
    #[inline]
    fn make_one(&self, change: &Change<&[u8]>) -> Result<bool> {
        match self.try_one(change) {
            Err(e) if e.is_full() && self.make_room() => self.try_one(change),
            outcome => outcome,
        }
    }

    /// Frees dead blocks that no version needs; returns whether there were any to look at.
    #[doc(hidden)]
    #[cold]
    pub fn make_room(&self) -> bool {
        let mut has_any = false;
        while let Ok((looked_at, has_more)) = self.collect_once() {
            has_any |= looked_at > 0;
            if !has_more || looked_at == 0 {
                break;
            }
        }
        has_any
    }

    fn try_one(&self, change: &Change<&[u8]>) -> Result<bool> {
        self.shared.pool.check_process()?;
        match self.writer.try_lock() {
            Some(mut writing) => self.write_one(&mut writing, change),
            None => {
                self.expect_other()?;
                match change.to_owned() {
                    Ok(change) => self.join(change),
                    // Without memory for a copy of the change, which another thread could make, this thread
                    // waits for its own turn.
                    Err(_) => self.write_one(&mut *self.lock_writer()?, change),
                }
            }
        }
    }

    /// Leaves a change to the next thread that gets the writer's lock, which may be this one.
    fn join(&self, change: Change) -> Result<bool> {
        let outcome = Arc::new(Mutex::new(None));
        self.shared.waiting.0.lock().push(Request { change, outcome: outcome.clone() });
        let _unless_panicking = TakeBack { waiting: &self.shared.waiting, outcome: &outcome };
        loop {
            let mut writing = self.writer.lock();
            if let Some(outcome) = outcome.lock().take() {
                return outcome;
            }
            let group = {
                let mut waiting = self.shared.waiting.0.lock();
                let count = waiting.len().min(GROUP_MAX);
                Group(waiting.drain(..count).collect())
            };
            self.make(&mut writing, &group.0);
        }
    }

    /// Makes the changes of a group as one version. If that fails, makes each by itself, because a single
    /// change may be the cause.
    fn make(&self, writing: &mut Writing<S>, group: &[Request]) {
        let together = self.write(writing, |builder, tx| {
            group.iter().map(|request| make(&request.change, builder, tx)).collect::<Result<Vec<bool>>>()
        });
        match together {
            Ok((outcomes, _)) => {
                group
                    .iter()
                    .zip(outcomes)
                    .for_each(|(request, outcome)| *request.outcome.lock() = Some(Ok(outcome)));
            }
            Err(e) if group.len() == 1 => *group[0].outcome.lock() = Some(Err(e)),
            Err(_) => group.iter().for_each(|request| self.make(writing, std::slice::from_ref(request))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::VersionedSnapshot;
    use super::super::tree::VersionedTree;
    use super::*;
    use tembo_pool::{Options, Pool};

    fn new_tree() -> (VersionedTree, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::new();
        options.create = true;
        let pool = Pool::open(dir.path().join("test.pool"), &options).unwrap();
        (VersionedTree::create(&pool, "tree").unwrap(), dir)
    }

    /// A snapshot is made during the only change of a version, which then has deferred stamps for it.
    #[test]
    fn a_version_that_comes_to_be_held_while_one_change_is_made_misses_nothing() {
        let (tree, _dir) = new_tree();
        let key = |i: u32| i.to_be_bytes();
        (0..2000).for_each(|i| _ = tree.put(&key(i), b"before").unwrap());
        let make_beside_a_snapshot = |change: Change<&[u8]>| {
            let mut writing = tree.lock_writer().unwrap();
            let Writing { lane, spare, .. } = &mut *writing;
            let builder =
                VersionBuilder::begin_one(&tree.shared, spare, lane.as_mut().unwrap(), change.key()).unwrap();
            let earlier = tree.snapshot();
            assert_eq!(earlier.version() + 1, builder.version);
            let (was_there, made) =
                tree.complete(&mut writing, builder, |builder, tx| make(&change, builder, tx)).unwrap();
            assert!(was_there && made == earlier.version() + 1);
            earlier
        };
        let differ = |from: &VersionedSnapshot<TreeStructure>| -> Vec<Vec<u8>> {
            let changes = tree.diff(from.version(), tree.snapshot().version()).unwrap();
            changes.into_iter().map(|change| change.key).collect()
        };
        for (i, is_removed) in [(100, false), (700, true), (1500, false)] {
            let (changed, value) = (key(i), b"after".as_slice());
            let change =
                if is_removed { Change::Remove(&changed[..]) } else { Change::Put(&changed[..], value) };
            let earlier = make_beside_a_snapshot(change);
            assert_eq!(differ(&earlier), [changed.to_vec()]);
            // This key lies in another leaf, so it raises no stamp for the first one.
            tree.put(&key(i + 300), b"after").unwrap();
            assert_eq!(differ(&earlier), [changed.to_vec(), key(i + 300).to_vec()]);
        }
    }
}
