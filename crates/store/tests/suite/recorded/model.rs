//! The model: every version of every key, in DRAM.

use super::record::{Id, Key, Op, SPACES, Space, Walk, Writes};
use std::collections::BTreeMap;

/// The versions of a key: the number of the commit, and the value or none, ascending.
type Versions = Vec<(u64, Option<Id>)>;

#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    spaces: [BTreeMap<Key, Versions>; SPACES.len()],
}

impl Model {
    /// The version that a snapshot has.
    pub(crate) fn version(&self, space: Space, key: Key, at: u64) -> Option<(u64, Option<Id>)> {
        let versions = self.spaces[usize::from(space)].get(&key)?;
        let count = versions.partition_point(|(number, _)| *number <= at);
        count.checked_sub(1).map(|last| versions[last])
    }

    pub(crate) fn value(&self, space: Space, key: Key, at: u64) -> Option<Id> {
        self.version(space, key, at)?.1
    }

    /// The first commit above `after` that gave a key this value, or none.
    pub(crate) fn first_with(&self, space: Space, key: Key, value: Option<Id>, after: u64) -> Option<u64> {
        let versions = self.spaces[usize::from(space)].get(&key)?;
        let mut later = versions.iter().filter(|(number, _)| *number > after);
        later.find(|(_, found)| *found == value).map(|(number, _)| *number)
    }

    /// Whether a commit wrote a key.
    pub(crate) fn has(&self, space: Space, key: Key, number: u64) -> bool {
        self.version(space, key, number).is_some_and(|(found, _)| found == number)
    }

    /// The contents of a keyspace in a snapshot.
    pub(crate) fn contents(&self, space: Space, at: u64) -> Vec<(Key, Id)> {
        self.view(&Writes::new(), space, (0, Key::MAX), at)
    }

    fn view(&self, own: &Writes, space: Space, (low, high): (Key, Key), at: u64) -> Vec<(Key, Id)> {
        if low >= high {
            return Vec::new();
        }
        let keys = self.spaces[usize::from(space)].range(low..high);
        let mut all: BTreeMap<Key, Id> =
            keys.filter_map(|(key, _)| Some((*key, self.value(space, *key, at)?))).collect();
        for ((_, key), value) in own.range((space, low)..(space, high)) {
            match value {
                Some(id) => _ = all.insert(*key, *id),
                None => _ = all.remove(key),
            }
        }
        all.into_iter().collect()
    }

    /// The operations with the answers that they have in a snapshot, and what they write.
    pub(crate) fn perform(&self, ops: &[Op], at: u64) -> (Vec<Op>, Writes) {
        let (mut own, mut savepoints) = (Writes::new(), Vec::new());
        let mut answered = Vec::with_capacity(ops.len());
        for op in ops {
            let mut op = op.clone();
            match &mut op {
                Op::Get { space, key, found } => {
                    let mine = own.get(&(*space, *key)).copied();
                    *found = mine.unwrap_or_else(|| self.value(*space, *key, at));
                }
                Op::Range { space, low, high, walk, limit, found } => {
                    *found = self.view(&own, *space, (*low, *high), at);
                    match walk {
                        Walk::Forwards => found.truncate(*limit),
                        Walk::Backwards => _ = found.drain(..found.len().saturating_sub(*limit)),
                        Walk::Both => {}
                    }
                }
                Op::Put { space, key, id } => _ = own.insert((*space, *key), Some(*id)),
                Op::Delete { space, key } => _ = own.insert((*space, *key), None),
                Op::DeleteRange { space, low, high, count } => {
                    let found = self.view(&own, *space, (*low, *high), at);
                    *count = found.len() as u64;
                    own.extend(found.into_iter().map(|(key, _)| ((*space, key), None)));
                }
                Op::Savepoint => savepoints.push(own.clone()),
                Op::Rollback => own = savepoints.last().cloned().unwrap_or_default(),
            }
            answered.push(op);
        }
        (answered, own)
    }

    /// Adds the versions of a commit, which must be the last one. To delete what is not there is no version.
    pub(crate) fn commit(&mut self, writes: &Writes, number: u64) {
        for ((space, key), value) in writes {
            if value.is_some() || self.value(*space, *key, u64::MAX).is_some() {
                self.spaces[usize::from(*space)].entry(*key).or_default().push((number, *value));
            }
        }
    }

    /// Takes the versions of a commit away.
    pub(crate) fn without(mut self, number: u64) -> Model {
        for versions in self.spaces.iter_mut().flat_map(|space| space.values_mut()) {
            versions.retain(|(found, _)| *found != number);
        }
        self
    }

    /// All versions of a keyspace: key, number, value.
    pub(crate) fn versions(&self, space: Space) -> impl Iterator<Item = (Key, u64, Option<Id>)> + '_ {
        let all = self.spaces[usize::from(space)].iter();
        all.flat_map(|(key, versions)| versions.iter().map(|(number, value)| (*key, *number, *value)))
    }

    /// A keyspace is dropped, and made again.
    pub(crate) fn clear(&mut self, space: Space) {
        self.spaces[usize::from(space)].clear();
    }

    /// Forgets the versions that no snapshot from `horizon` on has.
    pub(crate) fn forget(&mut self, space: Space, horizon: u64) {
        self.spaces[usize::from(space)].retain(|_, versions| {
            let needed = versions.partition_point(|(number, _)| *number <= horizon).saturating_sub(1);
            versions.drain(..needed);
            // The tombstone of the last writer stays: somebody may be older than it, if not than this.
            versions.len() > 1 || versions.first().is_some_and(|(number, v)| v.is_some() || *number > horizon)
        });
    }
}
