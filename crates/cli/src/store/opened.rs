//! A store to work with: in a pool that this process has opened, or at the process that serves it.

use super::name_in;
use crate::args::{Place, SnapshotChoice};
use crate::failure::{Failure, Outcome};
use crate::served::Served;
use crate::unclean;
use std::io::Write;
use std::ops::Bound;
use std::time::SystemTime;
use tembo::store::remote::{RemoteKeyspace, RemoteSnapshot, RemoteStore};
use tembo::store::{
    BackupSummary, Change, Kept, KeyVersion, Keyspace, Result, Retention, Snapshot, SnapshotReport, Store,
};
use tembo::{Options, Pool, Quoted};

/// A pool that is to be read.
pub(super) enum Reached {
    Own(Pool),
    Served(Served),
}

/// A store.
pub(crate) enum Opened {
    Own(Store),
    Served(RemoteStore),
}

/// Two snapshots of a store.
pub(super) enum Two {
    Own(Store, Snapshot, Snapshot),
    Served(RemoteStore, RemoteSnapshot, RemoteSnapshot),
}

/// A keyspace in a snapshot.
pub(super) enum View {
    Own(Snapshot, Keyspace),
    Served(RemoteSnapshot, RemoteKeyspace),
}

pub(super) type Pair = (Vec<u8>, Vec<u8>);

/// A store of this process and a served store have the same calls.
macro_rules! on {
    ($opened:expr, $store:ident => $value:expr) => {
        match $opened {
            Opened::Own($store) => $value,
            Opened::Served($store) => $value,
        }
    };
}

/// The snapshot that was named, of a store of this process or of a served one; `$current` is the current one.
macro_rules! chosen {
    ($store:expr, $at:expr, $current:expr) => {
        match $at {
            None => $current,
            Some(SnapshotChoice::Name(name)) => $store.at_name(name)?,
            Some(SnapshotChoice::Number(number)) => $store.at(*number)?,
            Some(SnapshotChoice::Ago(time)) => {
                let then = SystemTime::now().checked_sub(*time);
                $store.at_time(then.unwrap_or(SystemTime::UNIX_EPOCH))?
            }
        }
    };
}

impl Reached {
    /// Opens a pool for reading, or finds who serves it.
    pub(super) fn of(place: &Place) -> Outcome<Reached> {
        let options = Options::new().read_only(true).accept_unclean(place.accept_unclean);
        match unclean::open(&options, &place.pool) {
            Ok(pool) => Ok(Reached::Own(pool)),
            Err(failure) => Ok(Reached::Served(Served::of(&place.pool, failure)?)),
        }
    }

    pub(super) fn names(&self) -> Outcome<Vec<String>> {
        match self {
            Reached::Own(pool) => Ok(pool.store_names()?),
            Reached::Served(served) => Ok(served.names.clone()),
        }
    }

    /// The store of this name, if there is one.
    pub(super) fn open(&self, name: &str) -> Outcome<Option<Opened>> {
        match self {
            Reached::Own(pool) => Ok(pool.find_store(name)?.map(Opened::Own)),
            Reached::Served(served) if served.names.iter().any(|known| known == name) => {
                Ok(Some(Opened::Served(served.connect(name)?)))
            }
            Reached::Served(_) => Ok(None),
        }
    }

    /// The store that was asked for.
    pub(super) fn find(&self, place: &Place) -> Outcome<Opened> {
        let names = self.names()?;
        let name = name_in(names.clone(), place)?;
        self.open(&name)?.ok_or_else(|| no_store(place, &name, &names))
    }
}

/// The failure that a store is absent.
pub(super) fn no_store(place: &Place, name: &str, names: &[String]) -> Failure {
    let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let pool = place.pool.display();
    Failure::Failed(format!("{pool}: there is no store {}; there is {there}", Quoted(name)))
}

/// The snapshot of a store of this process that was named, or the current one.
pub(super) fn snapshot(store: &Store, at: Option<&SnapshotChoice>) -> Result<Snapshot> {
    Ok(chosen!(store, at, store.snapshot()))
}

fn remote_snapshot(store: &RemoteStore, at: Option<&SnapshotChoice>) -> Result<RemoteSnapshot> {
    Ok(chosen!(store, at, store.snapshot()?))
}

impl Opened {
    pub(super) fn name(&self) -> &str {
        on!(self, store => store.name())
    }

    /// The process that serves the store.
    pub(super) fn owner(&self) -> Option<u32> {
        match self {
            Opened::Own(_) => None,
            Opened::Served(store) => Some(store.owner()),
        }
    }

    /// The number of the last commit.
    pub(super) fn number(&self) -> Result<u64> {
        Ok(match self {
            Opened::Own(store) => store.snapshot().number(),
            Opened::Served(store) => store.snapshot()?.number(),
        })
    }

    /// The keyspaces, each with what it retains.
    pub(super) fn keyspaces(&self) -> Result<Vec<(String, Retention)>> {
        let mut all = Vec::new();
        for name in on!(self, store => store.keyspaces())? {
            let retention =
                on!(self, store => store.find_keyspace(&name)?.map(|keyspace| keyspace.retention()));
            all.extend(retention.map(|retention| (name, retention)));
        }
        Ok(all)
    }

    pub(super) fn kept(&self) -> Result<Vec<Kept>> {
        on!(self, store => store.kept())
    }

    pub(super) fn no_keyspace(&self, name: &str) -> Failure {
        match on!(self, store => store.keyspaces()) {
            Ok(names) => {
                let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                Failure::Failed(format!("there is no keyspace {}; there is {there}", Quoted(name)))
            }
            Err(e) => e.into(),
        }
    }

    /// A keyspace that has to be there, in a snapshot.
    pub(super) fn view(&self, keyspace: &str, at: Option<&SnapshotChoice>) -> Outcome<View> {
        let view = match self {
            Opened::Own(store) => match store.find_keyspace(keyspace)? {
                Some(keyspace) => Some(View::Own(snapshot(store, at)?, keyspace)),
                None => None,
            },
            Opened::Served(store) => match store.find_keyspace(keyspace)? {
                Some(keyspace) => Some(View::Served(remote_snapshot(store, at)?, keyspace)),
                None => None,
            },
        };
        view.ok_or_else(|| self.no_keyspace(keyspace))
    }

    /// Two snapshots, the second one the current one if none is named.
    pub(super) fn two(&self, from: &SnapshotChoice, to: Option<&SnapshotChoice>) -> Result<Two> {
        Ok(match self {
            Opened::Own(store) => Two::Own(store.clone(), snapshot(store, Some(from))?, snapshot(store, to)?),
            Opened::Served(store) => {
                let (from, to) = (remote_snapshot(store, Some(from))?, remote_snapshot(store, to)?);
                Two::Served(store.clone(), from, to)
            }
        })
    }

    /// Writes a backup of a snapshot, or of what has changed since another one; returns their numbers.
    pub(super) fn back_up(
        &self,
        (at, since): (Option<&SnapshotChoice>, Option<&SnapshotChoice>),
        to: impl Write,
    ) -> Result<(u64, Option<u64>, BackupSummary)> {
        let Some(since) = since else {
            return match self {
                Opened::Own(store) => {
                    let whole = snapshot(store, at)?;
                    Ok((whole.number(), None, whole.backup(to)?))
                }
                Opened::Served(store) => {
                    let whole = remote_snapshot(store, at)?;
                    Ok((whole.number(), None, whole.backup(to)?))
                }
            };
        };
        match self.two(since, at)? {
            Two::Own(_, since, at) => Ok((at.number(), Some(since.number()), at.backup_since(&since, to)?)),
            Two::Served(_, since, at) => {
                Ok((at.number(), Some(since.number()), at.backup_since(&since, to)?))
            }
        }
    }

    /// The names of its keyspaces.
    pub(super) fn keyspace_names(&self) -> Result<Vec<String>> {
        on!(self, store => store.keyspaces())
    }

    /// The versions of a key, from the newest to the oldest.
    pub(super) fn versions(&self, keyspace: &str, key: &[u8]) -> Outcome<Vec<KeyVersion>> {
        on!(self, store => match store.find_keyspace(keyspace)? {
            Some(keyspace) => Ok(store.versions(&keyspace, key)?),
            None => Err(self.no_keyspace(keyspace)),
        })
    }

    /// Reads a snapshot and looks each of its keys up.
    pub(super) fn check(&self, at: Option<&SnapshotChoice>) -> Result<SnapshotReport> {
        match self {
            Opened::Own(store) => snapshot(store, at)?.check(),
            Opened::Served(store) => remote_snapshot(store, at)?.check(),
        }
    }

    /// Gives a key a value; makes the keyspace if it is absent.
    pub(super) fn put(&self, keyspace: &str, key: &[u8], value: &[u8]) -> Result<u64> {
        on!(self, store => store.put(&store.keyspace(keyspace)?, key, value))
    }

    /// Deletes the value of a key; returns the number of the commit if there was a value.
    pub(super) fn delete(&self, keyspace: &str, key: &[u8]) -> Outcome<Option<u64>> {
        on!(self, store => {
            let Some(found) = store.find_keyspace(keyspace)? else {
                return Err(self.no_keyspace(keyspace));
            };
            let (was_there, number) = store.transact(|tx| {
                let was_there = tx.get(&found, key)?.is_some();
                tx.delete(&found, key)?;
                Ok(was_there)
            })?;
            Ok(was_there.then_some(number))
        })
    }

    /// Keeps a snapshot under a name; returns its number.
    pub(super) fn keep(&self, name: &str, at: Option<&SnapshotChoice>) -> Result<u64> {
        match self {
            Opened::Own(store) => {
                let snapshot = snapshot(store, at)?;
                store.keep(snapshot.number(), name)?;
                Ok(snapshot.number())
            }
            Opened::Served(store) => {
                let snapshot = remote_snapshot(store, at)?;
                store.keep(snapshot.number(), name)?;
                Ok(snapshot.number())
            }
        }
    }

    /// Deletes a kept snapshot, and gives its space back.
    pub(super) fn delete_kept(&self, name: &str) -> Result<()> {
        on!(self, store => {
            store.delete_kept(name)?;
            while store.collect(1000)? {}
            Ok(())
        })
    }
}

impl Two {
    /// The keys of a keyspace that differ; `None` if there is no such keyspace.
    pub(super) fn changes(&self, keyspace: &str) -> Result<Option<Box<dyn Iterator<Item = Result<Change>>>>> {
        Ok(match self {
            Two::Own(store, from, to) => match store.find_keyspace(keyspace)? {
                Some(keyspace) => Some(Box::new(store.changes(from, to, &keyspace)?)),
                None => None,
            },
            Two::Served(store, from, to) => match store.find_keyspace(keyspace)? {
                Some(keyspace) => Some(Box::new(store.changes(from, to, &keyspace)?)),
                None => None,
            },
        })
    }
}

impl View {
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self {
            View::Own(snapshot, keyspace) => snapshot.get(keyspace, key),
            View::Served(snapshot, keyspace) => snapshot.get(keyspace, key),
        }
    }

    /// The keys in bounds with their values, in their order or against it.
    pub(super) fn range(
        &self,
        bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        reverse: bool,
    ) -> Result<Box<dyn Iterator<Item = Result<Pair>>>> {
        fn ordered<I: DoubleEndedIterator<Item = Result<Pair>> + 'static>(
            entries: I,
            reverse: bool,
        ) -> Box<dyn Iterator<Item = Result<Pair>>> {
            if reverse { Box::new(entries.rev()) } else { Box::new(entries) }
        }
        Ok(match self {
            View::Own(snapshot, keyspace) => ordered(snapshot.range(keyspace, bounds)?, reverse),
            View::Served(snapshot, keyspace) => ordered(snapshot.range(keyspace, bounds)?, reverse),
        })
    }
}
