//! From maps and hash tables to a keyspace of a store, with their named snapshots.
//!
//! A conversion takes the named snapshots of a map from the oldest to the newest, and then the map as it is.
//! It brings the keyspace from each to the next, in commits of bounded size, and keeps a snapshot of the
//! store for each that has a name. The first and the last step compare all keys, those between the keys that
//! differ between two snapshots. A step passes over keys that have the wanted value already, so it may be
//! done again from its beginning.
//!
//! # After a crash
//!
//! A keyspace `converting NAME` has the name of the map as long as the conversion into `NAME` is not done,
//! and is dropped at its end. A step is done when its snapshot of the store is kept. An interrupted
//! conversion therefore continues with the step that it was in, when it is called again.

use crate::kinds::Kind;
use crate::{Change, Error, FixedMap, HashTable, Map, Pool, Result, Snapshot, TableSnapshot};
use std::collections::BTreeSet;
use tembo_store::{Error as StoreError, Keyspace, Retention, Store};

/// Most keys of a commit, and the bytes after which one is made, even if they are fewer.
const GROUP_KEYS: usize = 512;
const GROUP_BYTES: usize = 1 << 20;
/// The key under which the name of the map is noted.
const MAP_KEY: &str = "map";
/// Longest name of a snapshot of a store.
const NAME_BYTES_MAX: usize = 256;

/// A map that was converted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Converted {
    /// Keys that the map has now.
    pub keys: u64,
    /// The changes that were committed. If an earlier conversion was interrupted, only those since.
    pub changes: u64,
    /// The commits that made these changes.
    pub commits: u64,
    /// The snapshots of the store that are kept, from the oldest to the newest.
    pub snapshots: Vec<String>,
    /// Whether an earlier conversion had been interrupted.
    pub was_resumed: bool,
}

/// A map that is to be converted.
enum Source {
    Plain(Map),
    Tree(Map),
    Table(HashTable),
    Fixed(FixedMap),
}

/// A state of a map.
enum Held<'s> {
    Plain(&'s Map),
    Tree(Snapshot),
    Table(TableSnapshot),
    Fixed(&'s FixedMap),
}

impl Pool {
    /// Copies a map of any kind, or a hash table, into a keyspace of a store, which may be in another pool;
    /// `None` if there is no map of this name. The map stays as it is, and can be dropped when this is done.
    ///
    /// Each snapshot of the map that has a name becomes a kept snapshot of the store, named `MAP@NAME`, from
    /// the oldest to the newest: of a map with versions, what was held by a name can be read as before. Keys
    /// and values of a [`FixedMap`] become eight bytes, the highest first, so that they keep their order.
    ///
    /// The keyspace is made, retaining versions as `retention` says. It is filled commit by commit: no other
    /// thread should write to it, or to the map, before this returns. After a crash, or an error, the same
    /// call continues with the snapshot at which it was. `advanced` gets the number of compared keys.
    ///
    /// # Errors
    ///
    /// [`Error::Occupied`] if the keyspace has keys, or another map is being converted into it;
    /// [`Error::OtherKind`] if the name is not one of a map; [`Error::Store`] if a name would be too long or
    /// is taken; [`Error::Full`]; and as for reading the map and committing.
    pub fn convert_map(
        &self,
        map: &str,
        (store, keyspace, retention): (&Store, &str, Retention),
        advanced: &mut dyn FnMut(u64),
    ) -> Result<Option<Converted>> {
        let Some(source) = Source::find(self, map)? else { return Ok(None) };
        let kept = source.kept()?;
        let name_in_store = |name: &str| format!("{map}@{name}");
        let names: BTreeSet<String> = store.kept()?.into_iter().filter_map(|kept| kept.name).collect();
        let converting = format!("converting {keyspace}");
        let was_resumed = begin(store, (map, keyspace, &converting))?;
        for (_, name) in &kept {
            let name = name_in_store(name);
            let bytes = name.len();
            if bytes > NAME_BYTES_MAX {
                let what = "snapshot";
                return Err(StoreError::Name { what, bytes, max_bytes: NAME_BYTES_MAX }.into());
            }
            if !was_resumed && names.contains(&name) {
                return Err(StoreError::SnapshotExists { name }.into());
            }
        }
        note(store, map, &converting)?;
        let keyspace = store.keyspace_with(keyspace, retention)?;
        let converted = Converted { was_resumed, ..Converted::default() };
        let mut copying = Copying { store, keyspace, changes: Vec::new(), bytes: 0, advanced, converted };
        let mut before: Option<Held<'_>> = None;
        for (version, name) in &kept {
            let (held, name) = (source.at(*version)?, name_in_store(name));
            if was_resumed && names.contains(&name) {
                // The step after it had begun, with whatever snapshots the map had then.
                before = None;
            } else {
                copying.bring_to(&held, before.as_ref())?;
                store.keep(store.snapshot().number(), &name)?;
                before = Some(held);
            }
            copying.converted.snapshots.push(name);
        }
        copying.bring_to(&source.now()?, None)?;
        store.drop_keyspace(&converting)?;
        Ok(Some(copying.converted))
    }
}

/// Looks whether a conversion may begin; returns whether it had begun already.
fn begin(store: &Store, (map, keyspace, converting): (&str, &str, &str)) -> Result<bool> {
    let occupied = |why: String| Err(Error::Occupied { keyspace: keyspace.to_owned(), why });
    if let Some(marks) = store.find_keyspace(converting)?
        && let Some(noted) = store.get(&marks, MAP_KEY)?
    {
        if noted != map.as_bytes() {
            let other = String::from_utf8_lossy(&noted).into_owned();
            return occupied(format!("is where the map {other:?} is being converted to; finish that first"));
        }
        return Ok(true);
    }
    match store.find_keyspace(keyspace)? {
        Some(there) if store.snapshot().iter(&there)?.next().transpose()?.is_some() => {
            occupied("has keys already; choose another".to_owned())
        }
        _ => Ok(false),
    }
}

/// Notes that a conversion has begun.
fn note(store: &Store, map: &str, converting: &str) -> Result<()> {
    let marks = store.keyspace(converting)?;
    store.put(&marks, MAP_KEY, map)?;
    Ok(())
}

impl Source {
    fn find(pool: &Pool, name: &str) -> Result<Option<Source>> {
        let found = match pool.look_up(name)? {
            Some(Kind::Map) => pool.find_map(name)?.map(Source::Plain),
            Some(Kind::VersionedMap) => pool.find_map(name)?.map(Source::Tree),
            Some(Kind::HashTable) => pool.find_hash_table(name)?.map(Source::Table),
            Some(Kind::FixedMap) => pool.find_fixed_map(name)?.map(Source::Fixed),
            None => None,
            Some(other) => {
                let (name, found) = (name.to_owned(), format!("a {}", other.in_words()));
                return Err(Error::OtherKind { name, found, expected: "a map".to_owned() });
            }
        };
        Ok(found)
    }

    /// The snapshots that have names, each with its version, from the oldest to the newest.
    fn kept(&self) -> Result<Vec<(u64, String)>> {
        let kept = match self {
            Source::Tree(map) => map.snapshots()?,
            Source::Table(table) => table.snapshots(),
            Source::Plain(_) | Source::Fixed(_) => Vec::new(),
        };
        let mut kept: Vec<(u64, String)> = kept.into_iter().map(|kept| (kept.version, kept.name)).collect();
        kept.sort();
        Ok(kept)
    }

    /// A version that has a name.
    fn at(&self, version: u64) -> Result<Held<'_>> {
        match self {
            Source::Tree(map) => Ok(Held::Tree(map.snapshot_at(version)?)),
            Source::Table(table) => Ok(Held::Table(table.snapshot_at(version)?)),
            Source::Plain(_) | Source::Fixed(_) => self.now(),
        }
    }

    fn now(&self) -> Result<Held<'_>> {
        Ok(match self {
            Source::Plain(map) => Held::Plain(map),
            Source::Tree(map) => Held::Tree(map.snapshot()?),
            Source::Table(table) => Held::Table(table.snapshot()),
            Source::Fixed(map) => Held::Fixed(map),
        })
    }
}

impl Held<'_> {
    /// Calls `look` with each record.
    fn each(&self, look: &mut dyn FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        match self {
            Held::Plain(map) => map.iter().try_for_each(|entry| {
                let entry = entry?;
                look(entry.key(), entry.value())
            }),
            Held::Tree(snapshot) => snapshot.iter().try_for_each(|entry| {
                let entry = entry?;
                look(entry.key(), entry.value())
            }),
            Held::Table(snapshot) => snapshot.iter().try_for_each(|entry| {
                let entry = entry?;
                look(entry.key(), entry.value())
            }),
            Held::Fixed(map) => map.iter().try_for_each(|entry| {
                let (key, value) = entry?;
                look(&key.to_be_bytes(), &value.to_be_bytes())
            }),
        }
    }

    fn has(&self, key: &[u8]) -> Result<bool> {
        match self {
            Held::Plain(map) => map.contains_key(key),
            Held::Tree(snapshot) => snapshot.contains_key(key),
            Held::Table(snapshot) => snapshot.contains_key(key),
            Held::Fixed(map) => match <[u8; 8]>::try_from(key) {
                Ok(key) => map.contains_key(u64::from_be_bytes(key)),
                Err(_) => Ok(false),
            },
        }
    }

    /// The keys that differ, if both are snapshots of a map with versions.
    fn differences(&self, before: &Held<'_>) -> Result<Option<Vec<Change>>> {
        match (before, self) {
            (Held::Tree(before), Held::Tree(this)) => Ok(Some(before.diff(this)?)),
            (Held::Table(before), Held::Table(this)) => Ok(Some(before.diff(this)?)),
            _ => Ok(None),
        }
    }
}

/// A keyspace that is being filled.
struct Copying<'c> {
    store: &'c Store,
    keyspace: Keyspace,
    /// The changes of the next commit.
    changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    bytes: usize,
    advanced: &'c mut dyn FnMut(u64),
    converted: Converted,
}

impl Copying<'_> {
    /// Brings the keyspace to a state of the map, from another one if that is given.
    fn bring_to(&mut self, held: &Held<'_>, before: Option<&Held<'_>>) -> Result<()> {
        if let Some(differences) = before.map(|before| held.differences(before)).transpose()?.flatten() {
            for Change { key, after, .. } in differences {
                self.set(&key, after.as_deref())?;
            }
            return self.commit();
        }
        self.converted.keys = 0;
        held.each(&mut |key, value| {
            self.converted.keys += 1;
            self.set(key, Some(value))
        })?;
        self.commit()?;
        for entry in self.store.snapshot().iter(&self.keyspace)? {
            let (key, _) = entry?;
            if !held.has(&key)? {
                self.set(&key, None)?;
            }
        }
        self.commit()
    }

    /// Gives a key a value, or removes its value, unless that is so already.
    fn set(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        (self.advanced)(1);
        if self.store.get(&self.keyspace, key)?.as_deref() == value {
            return Ok(());
        }
        self.bytes += key.len() + value.map_or(0, <[u8]>::len);
        self.changes.push((key.to_vec(), value.map(<[u8]>::to_vec)));
        if self.changes.len() >= GROUP_KEYS || self.bytes >= GROUP_BYTES { self.commit() } else { Ok(()) }
    }

    fn commit(&mut self) -> Result<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        self.converted.changes += self.changes.len() as u64;
        self.converted.commits += 1;
        let mut tx = self.store.begin();
        for (key, value) in self.changes.drain(..) {
            match value {
                Some(value) => tx.put(&self.keyspace, key, value)?,
                None => tx.delete(&self.keyspace, key)?,
            }
        }
        tx.commit()?;
        self.bytes = 0;
        Ok(())
    }
}
