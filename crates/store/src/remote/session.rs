//! The owner's side of one connection.

use super::FRAME_BYTES_MAX;
use super::host::{Host, ServeOptions};
use super::message::{Change, KeptAs, Reply, Request, VERSION, Which};
use super::wire::{check_frame, receive, send};
use crate::error::{Error, Result};
use crate::handle::Store;
use crate::keyspace::Keyspace;
use crate::retention::Retention;
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;
use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::Bound;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// A first message has no more bytes: its longest part is a name.
const HELLO_BYTES_MAX: u64 = 1024;
/// A page of a range ends when it has so many entries or so many bytes.
const PAGE_ENTRIES: usize = 512;
const PAGE_BYTES: usize = 128 << 10;
/// A page of changes ends after so many looks at the index, too, of some 64 keys each.
const PAGE_BATCHES: usize = 64;
/// Bytes of a backup that go with one message.
const PART_BYTES: usize = 128 << 10;
/// Keyspaces that a client can name.
const KEYSPACES_MAX: usize = 4096;
/// Keys that one request collects: commits wait meanwhile.
const COLLECTED_MAX: u32 = 1024;

/// The snapshots and transactions that a client has open.
enum Open {
    Snapshot(Snapshot),
    Transaction(Box<Transaction>),
}

/// A connection, with what is open on it.
pub(super) struct Session {
    host: Arc<dyn Host>,
    options: ServeOptions,
    store: Option<Store>,
    open: HashMap<u64, Open>,
    last_open: u64,
    keyspaces: HashMap<u64, Keyspace>,
}

impl Session {
    pub(super) fn new(host: Arc<dyn Host>, options: ServeOptions) -> Session {
        let (open, keyspaces) = (HashMap::new(), HashMap::new());
        Session { host, options, store: None, open, last_open: 0, keyspaces }
    }

    /// Answers requests until the connection ends, or bytes come that are no request.
    pub(super) fn run(mut self, mut stream: UnixStream) {
        let timeout = Some(self.options.hello_timeout);
        let is_limited =
            stream.set_read_timeout(timeout).is_ok() && stream.set_write_timeout(timeout).is_ok();
        if !is_limited || !self.greet(&mut stream) {
            return;
        }
        if stream.set_read_timeout(None).is_err() || stream.set_write_timeout(None).is_err() {
            return;
        }
        // An error of the connection is its end, whoever is to blame.
        while let Ok(Some(frame)) = receive(&mut stream, FRAME_BYTES_MAX) {
            let request = Request::decode(&frame);
            let is_malformed = request.is_err();
            let reply = request.map_err(Error::from).and_then(|request| match request {
                Request::Backup { open, base } => self.back_up(&mut stream, open, base),
                request => self.answer(request),
            });
            drop(frame);
            let mut reply = reply.unwrap_or_else(Reply::Fault).encode();
            if let Err(e) = check_frame(reply.0.len()) {
                reply = Reply::Fault(e).encode();
            }
            if send(&mut stream, &reply).is_err() || is_malformed {
                return;
            }
        }
    }

    /// Answers the first message; returns whether the connection goes on.
    fn greet(&mut self, stream: &mut UnixStream) -> bool {
        let Ok(Some(frame)) = receive(stream, HELLO_BYTES_MAX) else { return false };
        let outcome = match Request::decode(&frame) {
            Ok(Request::Hello { version: VERSION, store: "" }) => Ok(()),
            Ok(Request::Hello { version: VERSION, store }) => self.choose(store),
            Ok(Request::Hello { version, .. }) => Err(Error::Refused {
                why: format!("it speaks version {VERSION} of the protocol, and the client version {version}"),
            }),
            Ok(_) => Err(Error::Refused { why: "the first message has to be a greeting".to_owned() }),
            Err(e) => Err(e.into()),
        };
        let is_well = outcome.is_ok();
        let welcome = Reply::Welcome { version: VERSION, pid: std::process::id() };
        let reply = outcome.map_or_else(Reply::Fault, |()| welcome);
        send(stream, &reply.encode()).is_ok() && is_well
    }

    fn choose(&mut self, name: &str) -> Result<()> {
        let found = self.host.find(name)?;
        self.store = Some(found.ok_or_else(|| Error::NoSuchStore { name: name.to_owned() })?);
        Ok(())
    }

    fn store(&self) -> Result<Store> {
        let why = || "this connection has no store: its greeting named none".to_owned();
        self.store.clone().ok_or_else(|| Error::Refused { why: why() })
    }

    fn answer(&mut self, request: Request<'_>) -> Result<Reply> {
        match request {
            Request::Hello { .. } => Err(Error::Refused { why: "the greeting comes once".to_owned() }),
            Request::Stores => Ok(Reply::Names(self.host.names()?)),
            Request::Keyspaces => Ok(Reply::Names(self.store()?.keyspaces()?)),
            Request::Keyspace { name, make } => self.find(name, make),
            Request::DropKeyspace { name } => Ok(Reply::Flag(self.store()?.drop_keyspace(name)?)),
            Request::Retain { keyspace, retention } => {
                self.store()?.set_retention(self.keyspace(keyspace)?, decode_retention(retention)?)?;
                Ok(Reply::Done)
            }
            Request::Open(which) => self.open(which),
            Request::Begin { at, is_serializable } => self.begin(at, is_serializable),
            Request::Close { open } => {
                self.open.remove(&open);
                Ok(Reply::Done)
            }
            Request::Get { open, keyspace, key } => self.get(open, keyspace, key),
            Request::Page { open, keyspace, bounds, is_back, is_first } => {
                self.page((open, keyspace), bounds, is_back, is_first)
            }
            Request::Commit { open, writes } => self.commit(open, &writes),
            Request::Change { keyspace, change: (key, value) } => {
                let (store, keyspace) = (self.store()?, self.keyspace(keyspace)?);
                Ok(Reply::Number(match value {
                    Some(value) => store.put(keyspace, key, value)?,
                    None => store.delete(keyspace, key)?,
                }))
            }
            Request::Check { open } => Ok(Reply::Checked(self.snapshot(open)?.check()?)),
            Request::Changes { from, to, keyspace, after } => self.changes((from, to), keyspace, after),
            Request::Versions { keyspace, key } => {
                Ok(Reply::Versions(self.store()?.versions(self.keyspace(keyspace)?, key)?))
            }
            other => self.answer_kept(&other),
        }
    }

    /// Kept snapshots, and collecting.
    fn answer_kept(&self, request: &Request<'_>) -> Result<Reply> {
        let store = self.store()?;
        match *request {
            Request::Keep { number, name: Some(name) } => {
                store.keep(number, name)?;
                Ok(Reply::Done)
            }
            Request::Keep { number, name: None } => Ok(Reply::Flag(store.keep_number(number)?)),
            Request::DeleteKept(KeptAs::Name(name)) => {
                store.delete_kept(name)?;
                Ok(Reply::Done)
            }
            Request::DeleteKept(KeptAs::Number(number)) => Ok(Reply::Flag(store.delete_number(number)?)),
            Request::Kept => Ok(Reply::Kept(store.kept()?)),
            Request::Collect { tables } => {
                Ok(Reply::Flag(store.collect(tables.clamp(1, COLLECTED_MAX) as usize)?))
            }
            _ => Err(Error::Refused { why: "it has no answer to this request".to_owned() }),
        }
    }

    /// A keyspace that the client has asked for by its name.
    fn keyspace(&self, id: u64) -> Result<&Keyspace> {
        let why = || format!("keyspace {id} was not asked for by its name");
        self.keyspaces.get(&id).ok_or_else(|| Error::Refused { why: why() })
    }

    fn find(&mut self, name: &str, make: Option<u64>) -> Result<Reply> {
        let store = self.store()?;
        let found = match make {
            Some(retention) => Some(store.keyspace_with(name, decode_retention(retention)?)?),
            None => store.find_keyspace(name)?,
        };
        let Some(keyspace) = found else { return Ok(Reply::Keyspace(None)) };
        if self.keyspaces.len() >= KEYSPACES_MAX {
            self.keyspaces.retain(|_, known| known.inner.check_there().is_ok());
        }
        if self.keyspaces.len() >= KEYSPACES_MAX && !self.keyspaces.contains_key(&keyspace.id()) {
            return Err(Error::Refused {
                why: format!("a connection names {KEYSPACES_MAX} keyspaces at most"),
            });
        }
        let described = (keyspace.id(), keyspace.retention().encode());
        self.keyspaces.insert(keyspace.id(), keyspace);
        Ok(Reply::Keyspace(Some(described)))
    }

    fn open(&mut self, which: Which<'_>) -> Result<Reply> {
        self.check_open()?;
        let store = self.store()?;
        let snapshot = match which {
            Which::Current => store.snapshot(),
            Which::At(number) => store.at(number)?,
            Which::AtTime(time) => {
                store.at_time(UNIX_EPOCH.checked_add(Duration::from_nanos(time)).unwrap_or(UNIX_EPOCH))?
            }
            Which::AtName(name) => store.at_name(name)?,
        };
        let number = snapshot.number();
        Ok(self.enter(Open::Snapshot(snapshot), number))
    }

    fn begin(&mut self, at: Option<u64>, is_serializable: bool) -> Result<Reply> {
        self.check_open()?;
        let store = self.store()?;
        let mut tx = match at {
            _ if is_serializable => store.begin_serializable(),
            None => store.begin(),
            Some(open) => store.begin_at(self.snapshot(open)?)?,
        };
        let number = tx.snapshot().number();
        Ok(self.enter(Open::Transaction(Box::new(tx)), number))
    }

    fn check_open(&self) -> Result<()> {
        let max = self.options.open_max;
        if self.open.len() < max {
            return Ok(());
        }
        let why = format!("a client has {max} snapshots and transactions open at most; drop some");
        Err(Error::Refused { why })
    }

    fn enter(&mut self, entered: Open, number: u64) -> Reply {
        self.last_open += 1;
        self.open.insert(self.last_open, entered);
        Reply::Opened { open: self.last_open, number }
    }

    fn snapshot(&self, open: u64) -> Result<&Snapshot> {
        match self.open.get(&open) {
            Some(Open::Snapshot(snapshot)) => Ok(snapshot),
            _ => Err(not_open(open)),
        }
    }

    fn get(&mut self, open: Option<u64>, keyspace: u64, key: &[u8]) -> Result<Reply> {
        let store = self.store()?;
        let keyspace = self.keyspace(keyspace)?.clone();
        Ok(Reply::Value(match open {
            None => store.get(&keyspace, key)?,
            Some(open) => match self.open.get_mut(&open).ok_or_else(|| not_open(open))? {
                Open::Snapshot(snapshot) => snapshot.get(&keyspace, key)?,
                // Which notes the key, if the transaction is serializable.
                Open::Transaction(tx) => tx.get(&keyspace, key)?,
            },
        }))
    }

    fn page(
        &mut self,
        (open, keyspace): (u64, u64),
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        is_back: bool,
        is_first: bool,
    ) -> Result<Reply> {
        let keyspace = self.keyspace(keyspace)?.clone();
        let mut walk = match self.open.get_mut(&open).ok_or_else(|| not_open(open))? {
            Open::Snapshot(snapshot) => snapshot.range::<&[u8]>(&keyspace, bounds)?,
            // The first page notes the range, if the transaction is serializable; the others lie in it.
            Open::Transaction(tx) if is_first => tx.range::<&[u8]>(&keyspace, bounds)?,
            Open::Transaction(tx) => tx.snapshot().range::<&[u8]>(&keyspace, bounds)?,
        };
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while entries.len() < PAGE_ENTRIES && bytes < PAGE_BYTES {
            let next = if is_back { walk.next_back() } else { walk.next() };
            let Some(entry) = next.transpose()? else {
                return Ok(Reply::Page { entries, has_more: false });
            };
            bytes += entry.0.len() + entry.1.len();
            entries.push(entry);
        }
        Ok(Reply::Page { entries, has_more: true })
    }

    fn changes(&self, (from, to): (u64, u64), keyspace: u64, after: Option<&[u8]>) -> Result<Reply> {
        let (from, to) = (self.snapshot(from)?, self.snapshot(to)?);
        let place = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.to_vec()));
        let mut walk = self.store()?.changes(from, to, self.keyspace(keyspace)?)?.after(place);
        let (mut changes, mut bytes) = (Vec::new(), 0);
        for _ in 0..PAGE_BATCHES {
            for change in walk.batch()? {
                let values = [&change.before, &change.after].into_iter().flatten();
                bytes += change.key.len() + values.map(Vec::len).sum::<usize>();
                changes.push(change);
            }
            if walk.place().is_none() || changes.len() >= PAGE_ENTRIES || bytes >= PAGE_BYTES {
                break;
            }
        }
        let next = match walk.place() {
            Some(Bound::Excluded(key)) => Some(key.clone()),
            _ => None,
        };
        Ok(Reply::Changes { changes, next })
    }

    /// Sends the parts of a backup; returns the reply after them.
    fn back_up(&self, stream: &mut UnixStream, open: u64, base: Option<u64>) -> Result<Reply> {
        let (snapshot, parts) = (self.snapshot(open)?, Parts { stream, waiting: Vec::new() });
        Ok(Reply::BackedUp(match base {
            Some(base) => snapshot.backup_since(self.snapshot(base)?, parts)?,
            None => snapshot.backup(parts)?,
        }))
    }

    fn commit(&mut self, open: u64, writes: &[(u64, Vec<Change<'_>>)]) -> Result<Reply> {
        let Some(Open::Transaction(mut tx)) = self.open.remove(&open) else { return Err(not_open(open)) };
        for (keyspace, changes) in writes {
            let keyspace = self.keyspace(*keyspace)?;
            for &(key, value) in changes {
                match value {
                    Some(value) => tx.put(keyspace, key, value)?,
                    None => tx.delete(keyspace, key)?,
                }
            }
        }
        tx.commit().map(Reply::Number)
    }
}

/// Sends what is written to it, in parts.
struct Parts<'s> {
    stream: &'s mut UnixStream,
    waiting: Vec<u8>,
}

impl Write for Parts<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PART_BYTES - self.waiting.len());
        self.waiting.extend_from_slice(&bytes[..count]);
        if self.waiting.len() == PART_BYTES {
            self.flush()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let part = std::mem::take(&mut self.waiting);
        send(self.stream, &Reply::Part(part).encode()).map_err(io::Error::other)
    }
}

fn not_open(open: u64) -> Error {
    Error::Refused { why: format!("nothing is open under {open}") }
}

fn decode_retention(word: u64) -> Result<Retention> {
    Retention::decode(word).ok_or_else(|| Error::Refused { why: format!("no retention is {word:#x}") })
}
