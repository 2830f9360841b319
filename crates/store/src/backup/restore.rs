//! Making a store from backups.

use super::frames::{FrameReader, Parts};
use super::{CHANGES, DELETED, END, HEADER, KEYSPACE};
use crate::error::{Error, Result};
use crate::handle::Store;
use crate::keyspace::Keyspace;
use crate::layout::ROOT_KIND;
use crate::retention::Retention;
use crate::transaction::Transaction;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use tembo_pool::Pool;
use xxhash_rust::xxh3::xxh3_64;

/// Changes of one commit, at most.
const GROUP_CHANGES: u64 = 256;
/// Bytes of keys and values after which a commit is made, even if they are fewer.
const GROUP_BYTES: usize = 512 << 10;
/// Steps of giving space back in one call.
const RECLAIMED: usize = 1000;

/// A store that is being made from backups: nobody sees it before it is [finished](Self::finish).
///
/// Dropped without that, or after a crash, it stays in the pool as a store with a name of its own, which
/// begins with `restoring-`, until it is [aborted](Self::abort) or a store is restored to the same name
/// again.
#[derive(Debug)]
pub struct Restoring {
    pool: Pool,
    name: String,
    /// The name of the store until it is finished.
    hidden: String,
    store: Store,
    /// The backup that was read last.
    position: Option<Position>,
    has_failed: bool,
    /// The keyspaces, with the ids that they have in the backups.
    keyspaces: BTreeMap<String, (u64, Keyspace)>,
}

/// The snapshot that a backup brings a store to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Position {
    pool: [u8; 16],
    store: String,
    number: u64,
}

impl Store {
    /// Makes a store from a [backup](crate::Snapshot::backup) and from
    /// [differences](crate::Snapshot::backup_since) that follow it, and opens it. Needs memory for one piece
    /// of a backup, or for its longest value.
    ///
    /// It is there when all streams were read to their ends, by one commit. A stream that is cut off, damaged
    /// or not the next one leaves nothing. Snapshots have other numbers than in the store that was backed up.
    ///
    /// # Errors
    ///
    /// [`Error::StoreExists`], [`Error::DamagedBackup`], [`Error::BackupVersion`], [`Error::BackupOrder`],
    /// [`Error::Io`] of a reader; [`Error::InUse`] if a store is being restored to this name; as for
    /// [`open`](Self::open) and commits.
    pub fn restore<R: Read>(pool: &Pool, name: &str, backups: impl IntoIterator<Item = R>) -> Result<Store> {
        let mut restoring = Restoring::begin(pool, name)?;
        for backup in backups {
            if let Err(e) = restoring.read(backup) {
                // The first error says more than one of clearing up.
                let _ = restoring.abort();
                return Err(e);
            }
        }
        restoring.finish()
    }
}

impl Restoring {
    /// Begins to make a store.
    ///
    /// # Errors
    ///
    /// As for [`Store::restore`].
    pub fn begin(pool: &Pool, name: &str) -> Result<Restoring> {
        let hidden = hidden_store(pool, name)?;
        let store = Store::open(pool, &hidden)?;
        Ok(Restoring {
            pool: pool.clone(),
            name: name.to_owned(),
            hidden,
            store,
            position: None,
            has_failed: false,
            keyspaces: BTreeMap::new(),
        })
    }

    /// Reads a backup to its end: the whole one first, then differences. Buffers no more than its pieces;
    /// give it a buffered reader.
    ///
    /// # Errors
    ///
    /// As for [`Store::restore`]. After an error, [`abort`](Self::abort) is all that is left to do.
    pub fn read(&mut self, backup: impl Read) -> Result<()> {
        if self.has_failed {
            return Err(failed());
        }
        let outcome = self.apply(backup);
        self.has_failed = outcome.is_err();
        outcome
    }

    fn apply(&mut self, backup: impl Read) -> Result<()> {
        let mut frames = FrameReader::new(backup)?;
        let (kind, contents) = frames.read()?;
        let header = if kind == HEADER { read_header(contents) } else { None };
        let (base, position) = header.ok_or_else(|| frames.damaged("it does not begin with a header"))?;
        self.check_order(base, &position)?;
        let mut seen = BTreeSet::new();
        let mut group = Group::new(&self.store);
        let (mut keyspace, mut changes) = (None, 0);
        loop {
            let (kind, contents) = frames.read()?;
            let applied = match kind {
                KEYSPACE => match read_keyspace(contents) {
                    Some((id, retention, name)) => {
                        group.commit()?;
                        seen.insert(name.clone());
                        keyspace = Some(self.turn_to(id, retention, name)?);
                        Some(())
                    }
                    None => None,
                },
                CHANGES => match &keyspace {
                    Some(keyspace) => group.take(keyspace, contents, &mut changes)?,
                    None => None,
                },
                END => {
                    let mut parts = Parts(contents);
                    let counts = (parts.number(), parts.number());
                    if counts == (Some(seen.len() as u64), Some(changes)) {
                        break;
                    }
                    None
                }
                _ => None,
            };
            applied.ok_or_else(|| frames.damaged("a frame that cannot be there"))?;
        }
        group.commit()?;
        frames.finish()?;
        self.drop_others(&seen)?;
        self.position = Some(position);
        Ok(())
    }

    /// Refuses a backup that is not the next one.
    fn check_order(&self, base: u64, next: &Position) -> Result<()> {
        let why = match &self.position {
            None if base == 0 => return Ok(()),
            None => format!("it is a difference to snapshot {base}, and comes first"),
            Some(_) if base == 0 => "it is a whole backup, and another was read before".to_owned(),
            Some(last) if (last.pool, &last.store) != (next.pool, &next.store) => {
                format!("it is one of another store, which was named {}", tembo_pool::Quoted(&next.store))
            }
            Some(last) if last.number != base => {
                format!("it is a difference to snapshot {base}, and the one before is of {}", last.number)
            }
            Some(_) => return Ok(()),
        };
        Err(Error::BackupOrder { why })
    }

    /// The keyspace that the next changes belong to.
    fn turn_to(&mut self, id: u64, retention: Retention, name: String) -> Result<Keyspace> {
        if let Some((known, keyspace)) = self.keyspaces.get(&name) {
            if *known == id {
                if keyspace.retention() != retention {
                    self.store.set_retention(keyspace, retention)?;
                }
                return Ok(keyspace.clone());
            }
            self.store.drop_keyspace(&name)?;
        }
        let keyspace = self.store.keyspace_with(&name, retention)?;
        self.keyspaces.insert(name, (id, keyspace.clone()));
        Ok(keyspace)
    }

    /// Drops the keyspaces that the backup does not name.
    fn drop_others(&mut self, seen: &BTreeSet<String>) -> Result<()> {
        for name in self.keyspaces.keys().filter(|name| !seen.contains(*name)) {
            self.store.drop_keyspace(name)?;
        }
        self.keyspaces.retain(|name, _| seen.contains(name));
        Ok(())
    }

    /// Gives the store its name, by one commit, and opens it.
    ///
    /// # Errors
    ///
    /// [`Error::StoreExists`] if another got the name meanwhile; [`Error::BackupOrder`] if no backup was read
    /// to its end; as for commits. Then it is as if it had been dropped.
    pub fn finish(self) -> Result<Store> {
        let Restoring { pool, name, hidden, store, position, has_failed, .. } = self;
        if has_failed || position.is_none() {
            return Err(failed());
        }
        if pool.root(&name)?.is_some() {
            return Err(Error::StoreExists { name });
        }
        let mut lead = store.inner.commits.lead();
        lead.tx.remove_root(&hidden)?;
        lead.tx.set_root(&name, ROOT_KIND, store.inner.off)?;
        lead.tx.commit_and_begin()?;
        drop(lead);
        // It is open under its other name until here.
        drop(store);
        Store::open(&pool, &name)
    }

    /// Drops what was made, and gives its space back.
    ///
    /// # Errors
    ///
    /// As for [`Store::drop`]. Then it is as if this had been dropped.
    pub fn abort(self) -> Result<()> {
        let Restoring { pool, hidden, store, keyspaces, .. } = self;
        drop((store, keyspaces));
        Store::drop(&pool, &hidden)?;
        reclaim(&pool)
    }
}

/// The name under which a store is made that is to get another one; nothing has it. Refuses a name that is
/// taken.
pub(crate) fn hidden_store(pool: &Pool, name: &str) -> Result<String> {
    if pool.root(name)?.is_some() {
        return Err(Error::StoreExists { name: name.to_owned() });
    }
    let hidden = format!("restoring-{:016x}", xxh3_64(name.as_bytes()));
    if Store::drop(pool, &hidden)? {
        reclaim(pool)?;
    }
    Ok(hidden)
}

fn failed() -> Error {
    Error::BackupOrder { why: "no backup was read to its end".to_owned() }
}

/// Frees the space of stores that were dropped.
fn reclaim(pool: &Pool) -> Result<()> {
    while Store::reclaim_dropped(pool, RECLAIMED)? {}
    Ok(())
}

/// Changes that are to be committed together.
struct Group {
    store: Store,
    tx: Transaction,
    changes: u64,
    bytes: usize,
}

impl Group {
    fn new(store: &Store) -> Group {
        Group { store: store.clone(), tx: store.begin(), changes: 0, bytes: 0 }
    }

    /// Applies the changes of a frame; `None` if they are not whole.
    fn take(&mut self, keyspace: &Keyspace, contents: &[u8], count: &mut u64) -> Result<Option<()>> {
        let mut parts = Parts(contents);
        while !parts.0.is_empty() {
            let Some((key, value)) = read_change(&mut parts) else { return Ok(None) };
            self.bytes += key.len() + value.map_or(0, <[u8]>::len);
            match value {
                Some(value) => self.tx.put(keyspace, key, value)?,
                None => self.tx.delete(keyspace, key)?,
            }
            *count += 1;
            self.changes += 1;
            if self.changes >= GROUP_CHANGES || self.bytes >= GROUP_BYTES {
                self.commit()?;
            }
        }
        Ok(Some(()))
    }

    fn commit(&mut self) -> Result<()> {
        let tx = std::mem::replace(&mut self.tx, self.store.begin());
        tx.commit()?;
        (self.changes, self.bytes) = (0, 0);
        Ok(())
    }
}

/// The snapshot that it is a difference to, or 0, and the one that it brings a store to.
fn read_header(contents: &[u8]) -> Option<(u64, Position)> {
    let mut parts = Parts(contents);
    let pool = parts.bytes(16)?.try_into().ok()?;
    let (base, number) = (parts.number()?, parts.number()?);
    Some((base, Position { pool, store: parts.text()?, number }))
}

fn read_keyspace(contents: &[u8]) -> Option<(u64, Retention, String)> {
    let mut parts = Parts(contents);
    let (id, retention) = (parts.number()?, Retention::decode(parts.number()?)?);
    Some((id, retention, parts.text()?))
}

fn read_change<'c>(parts: &mut Parts<'c>) -> Option<(&'c [u8], Option<&'c [u8]>)> {
    let (key_bytes, value_bytes) = (parts.length()?, parts.length()?);
    let key = parts.bytes(key_bytes as usize)?;
    if value_bytes == DELETED {
        return Some((key, None));
    }
    Some((key, Some(parts.bytes(value_bytes as usize)?)))
}
