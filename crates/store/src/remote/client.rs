//! The client's side: the connection, and what is reached through it.

use super::FRAME_BYTES_MAX;
use super::entries::RemoteEntries;
use super::message::{KeptAs, Reply, Request, VERSION, Which};
use super::transaction::RemoteTransaction;
use super::wire::{receive, send};
use crate::check::SnapshotReport;
use crate::error::{Error, Result};
use crate::retention::{Retention, unix_ns};
use crate::retry::retry;
use crate::snapshot::Kept;
use crate::store::KeyVersion;
use crate::transaction::check_lengths;
use parking_lot::Mutex;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How long a greeting may take.
const GREETING_MAX: Duration = Duration::from_secs(10);

/// A store of another process, which serves it ([`Store::serve`](crate::Store::serve)). Cheap to clone; all
/// clones share one connection, which answers one request at a time.
#[derive(Clone)]
pub struct RemoteStore {
    pub(super) link: Arc<Link>,
}

/// A connection to the owner.
pub(super) struct Link {
    /// None after it has failed.
    stream: Mutex<Option<UnixStream>>,
    name: String,
    owner: u32,
}

/// A keyspace of a [`RemoteStore`]. Cheap to clone.
#[derive(Clone)]
pub struct RemoteKeyspace {
    link: Arc<Link>,
    name: Arc<str>,
    pub(super) id: u64,
    retention: Retention,
}

/// The contents of a [`RemoteStore`] after a commit. The owner keeps them as long as this lives, and the
/// connection does. Cheap to clone.
#[derive(Clone)]
pub struct RemoteSnapshot {
    pub(super) opened: Arc<Opened>,
}

/// A snapshot or a transaction that is open at the owner's.
pub(super) struct Opened {
    pub(super) link: Arc<Link>,
    pub(super) id: u64,
    pub(super) number: u64,
}

/// The value of a reply of the kind that was expected.
macro_rules! value_of {
    ($reply:expr, $kind:pat => $value:expr) => {
        match $reply? {
            $kind => Ok($value),
            _ => Err($crate::remote::client::other_reply()),
        }
    };
}
pub(super) use value_of;

/// The error that a reply is of another kind than its request asks for.
pub(super) fn other_reply() -> Error {
    Error::Refused { why: "the reply is not one to the request".to_owned() }
}

impl Link {
    fn connect(path: &Path, name: &str) -> Result<Link> {
        let failed = |source| Error::Disconnected { doing: "connecting to the owner", source };
        let mut stream = UnixStream::connect(path).map_err(failed)?;
        let set = |stream: &UnixStream, timeout| {
            stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout)).map_err(failed)
        };
        set(&stream, Some(GREETING_MAX))?;
        let greeting = Request::Hello { version: VERSION, store: name };
        let owner = match exchange(&mut stream, &greeting)? {
            Reply::Welcome { version: VERSION, pid } => pid,
            Reply::Welcome { version, .. } => {
                let why = format!("it speaks version {version} of the protocol, and this program {VERSION}");
                return Err(Error::Refused { why });
            }
            Reply::Fault(e) => return Err(e),
            _ => return Err(other_reply()),
        };
        set(&stream, None)?;
        Ok(Link { stream: Mutex::new(Some(stream)), name: name.to_owned(), owner })
    }

    /// Sends a request and waits for its reply. After a failure, the connection is not used again: a late
    /// reply would be taken for that of the next request.
    pub(super) fn ask(&self, request: &Request<'_>) -> Result<Reply> {
        let mut stream = self.stream.lock();
        let Some(open) = stream.as_mut() else {
            let source = io::ErrorKind::NotConnected.into();
            return Err(Error::Disconnected { doing: "sending a message", source });
        };
        match exchange(open, request) {
            Ok(Reply::Fault(e)) => Err(e),
            Ok(reply) => Ok(reply),
            // Nothing of it was sent.
            Err(e @ Error::FrameTooLarge { .. }) => Err(e),
            Err(e) => {
                *stream = None;
                Err(e)
            }
        }
    }
}

/// One request and its reply.
fn exchange(stream: &mut UnixStream, request: &Request<'_>) -> Result<Reply> {
    let sent = match send(stream, &request.encode()) {
        Err(e @ Error::FrameTooLarge { .. }) => return Err(e),
        outcome => outcome,
    };
    let too_large = |e| match e {
        Error::FrameTooLarge { bytes, .. } => {
            Error::Refused { why: format!("the reply claims to have {bytes} bytes") }
        }
        other => other,
    };
    // An owner that closes the connection without reading may have said why.
    let frame = match (receive(stream, FRAME_BYTES_MAX), sent) {
        (Ok(Some(frame)), _) => frame,
        (_, Err(e)) => return Err(e),
        (outcome, Ok(())) => outcome.map_err(too_large)?.ok_or_else(closed)?,
    };
    Ok(Reply::decode(&frame)?)
}

fn closed() -> Error {
    Error::Disconnected { doing: "waiting for a reply", source: io::ErrorKind::UnexpectedEof.into() }
}

impl RemoteStore {
    /// Connects to a store that its owner serves at a socket.
    ///
    /// # Errors
    ///
    /// [`Error::Disconnected`] if nobody listens there, or this user may not connect; [`Error::NoSuchStore`];
    /// [`Error::Refused`] if the owner takes no more clients, or speaks another version of the protocol.
    pub fn connect(path: impl AsRef<Path>, name: &str) -> Result<RemoteStore> {
        Ok(RemoteStore { link: Arc::new(Link::connect(path.as_ref(), name)?) })
    }

    /// The names of the stores that are served at a socket.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    pub fn names(path: impl AsRef<Path>) -> Result<Vec<String>> {
        let link = Link::connect(path.as_ref(), "")?;
        value_of!(link.ask(&Request::Stores), Reply::Names(names) => names)
    }

    /// The store's name.
    pub fn name(&self) -> &str {
        &self.link.name
    }

    /// The process that owns the store.
    pub fn owner(&self) -> u32 {
        self.link.owner
    }

    /// Opens the keyspace of this name, or makes it.
    ///
    /// # Errors
    ///
    /// As for [`Store::keyspace`](crate::Store::keyspace), and [`Error::Disconnected`] as for every call.
    pub fn keyspace(&self, name: &str) -> Result<RemoteKeyspace> {
        self.keyspace_with(name, Retention::None)
    }

    /// As [`keyspace`](Self::keyspace); a new one retains versions as given.
    ///
    /// # Errors
    ///
    /// As for [`keyspace`](Self::keyspace).
    pub fn keyspace_with(&self, name: &str, retention: Retention) -> Result<RemoteKeyspace> {
        self.ask_keyspace(name, Some(retention.encode()))?.ok_or_else(other_reply)
    }

    /// The keyspace of this name, if there is one.
    ///
    /// # Errors
    ///
    /// As for [`Store::find_keyspace`](crate::Store::find_keyspace).
    pub fn find_keyspace(&self, name: &str) -> Result<Option<RemoteKeyspace>> {
        self.ask_keyspace(name, None)
    }

    fn ask_keyspace(&self, name: &str, make: Option<u64>) -> Result<Option<RemoteKeyspace>> {
        let found = value_of!(self.ask(&Request::Keyspace { name, make }), Reply::Keyspace(found) => found)?;
        let Some((id, retention)) = found else { return Ok(None) };
        let retention = Retention::decode(retention).ok_or_else(other_reply)?;
        Ok(Some(RemoteKeyspace { link: self.link.clone(), name: name.into(), id, retention }))
    }

    /// Drops a keyspace, as [`Store::drop_keyspace`](crate::Store::drop_keyspace).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        value_of!(self.ask(&Request::DropKeyspace { name }), Reply::Flag(was_there) => was_there)
    }

    /// Chooses which versions a keyspace retains from now on.
    ///
    /// # Errors
    ///
    /// As for [`Store::set_retention`](crate::Store::set_retention).
    pub fn set_retention(&self, keyspace: &RemoteKeyspace, retention: Retention) -> Result<()> {
        keyspace.check(&self.link)?;
        let request = Request::Retain { keyspace: keyspace.id, retention: retention.encode() };
        value_of!(self.ask(&request), Reply::Done => ())
    }

    /// The names of all keyspaces, in their order.
    ///
    /// # Errors
    ///
    /// As for [`Store::keyspaces`](crate::Store::keyspaces).
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        value_of!(self.ask(&Request::Keyspaces), Reply::Names(names) => names)
    }

    /// The current snapshot.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if this connection has too many open, and [`Error::Disconnected`].
    pub fn snapshot(&self) -> Result<RemoteSnapshot> {
        self.open(Which::Current)
    }

    /// The store after the commit with this number, as [`Store::at`](crate::Store::at).
    ///
    /// # Errors
    ///
    /// As there, and as for [`snapshot`](Self::snapshot).
    pub fn at(&self, number: u64) -> Result<RemoteSnapshot> {
        self.open(Which::At(number))
    }

    /// The store as it was at a time, as [`Store::at_time`](crate::Store::at_time).
    ///
    /// # Errors
    ///
    /// As there, and as for [`snapshot`](Self::snapshot).
    pub fn at_time(&self, time: SystemTime) -> Result<RemoteSnapshot> {
        self.open(Which::AtTime(unix_ns(time)))
    }

    /// The snapshot that is kept under this name.
    ///
    /// # Errors
    ///
    /// As for [`Store::at_name`](crate::Store::at_name), and as for [`snapshot`](Self::snapshot).
    pub fn at_name(&self, name: &str) -> Result<RemoteSnapshot> {
        self.open(Which::AtName(name))
    }

    fn open(&self, which: Which<'_>) -> Result<RemoteSnapshot> {
        Ok(RemoteSnapshot { opened: Opened::ask(&self.link, &Request::Open(which))? })
    }

    /// Begins a transaction at the snapshot that is current at its first operation.
    pub fn begin(&self) -> RemoteTransaction {
        RemoteTransaction::new(&self.link, None, false)
    }

    /// Begins a serializable transaction, as [`Store::begin_serializable`](crate::Store::begin_serializable).
    /// The owner notes what it reads.
    pub fn begin_serializable(&self) -> RemoteTransaction {
        RemoteTransaction::new(&self.link, None, true)
    }

    /// Begins a transaction at an older snapshot.
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`] if the snapshot is one of another connection.
    pub fn begin_at(&self, snapshot: &RemoteSnapshot) -> Result<RemoteTransaction> {
        if !Arc::ptr_eq(&snapshot.opened.link, &self.link) {
            return Err(Error::OtherStore { name: snapshot.opened.link.name.clone() });
        }
        Ok(RemoteTransaction::new(&self.link, Some(snapshot.clone()), false))
    }

    /// Runs `body` in a transaction and commits it, as [`Store::transact`](crate::Store::transact).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn transact<T>(&self, mut body: impl FnMut(&mut RemoteTransaction) -> Result<T>) -> Result<(T, u64)> {
        retry(|| {
            let mut tx = self.begin();
            let value = body(&mut tx)?;
            Ok((value, tx.commit()))
        })
    }

    /// The value of a key in the current snapshot.
    ///
    /// # Errors
    ///
    /// As for [`Store::get`](crate::Store::get).
    pub fn get(&self, keyspace: &RemoteKeyspace, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        keyspace.check(&self.link)?;
        let request = Request::Get { open: None, keyspace: keyspace.id, key: key.as_ref() };
        value_of!(self.ask(&request), Reply::Value(value) => value)
    }

    /// Gives a key a value, by a transaction of its own; returns the number of the commit.
    ///
    /// # Errors
    ///
    /// As for [`Store::put`](crate::Store::put).
    pub fn put(
        &self,
        keyspace: &RemoteKeyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<u64> {
        self.change(keyspace, key.as_ref(), Some(value.as_ref()))
    }

    /// Takes the value off a key, by a transaction of its own; returns the number of the commit.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn delete(&self, keyspace: &RemoteKeyspace, key: impl AsRef<[u8]>) -> Result<u64> {
        self.change(keyspace, key.as_ref(), None)
    }

    fn change(&self, keyspace: &RemoteKeyspace, key: &[u8], value: Option<&[u8]>) -> Result<u64> {
        keyspace.check(&self.link)?;
        check_lengths(key, value)?;
        let request = Request::Change { keyspace: keyspace.id, change: (key, value) };
        value_of!(self.ask(&request), Reply::Number(number) => number)
    }

    /// Keeps a snapshot in the pool under a name, as [`Store::keep`](crate::Store::keep).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn keep(&self, number: u64, name: &str) -> Result<()> {
        value_of!(self.ask(&Request::Keep { number, name: Some(name) }), Reply::Done => ())
    }

    /// Keeps a snapshot by its number alone; returns whether that is new.
    ///
    /// # Errors
    ///
    /// As for [`keep`](Self::keep).
    pub fn keep_number(&self, number: u64) -> Result<bool> {
        value_of!(self.ask(&Request::Keep { number, name: None }), Reply::Flag(is_new) => is_new)
    }

    /// Deletes a kept snapshot.
    ///
    /// # Errors
    ///
    /// As for [`Store::delete_kept`](crate::Store::delete_kept).
    pub fn delete_kept(&self, name: &str) -> Result<()> {
        value_of!(self.ask(&Request::DeleteKept(KeptAs::Name(name))), Reply::Done => ())
    }

    /// Deletes a snapshot that is kept by its number alone; returns whether there was one.
    ///
    /// # Errors
    ///
    /// As for [`Store::delete_number`](crate::Store::delete_number).
    pub fn delete_number(&self, number: u64) -> Result<bool> {
        value_of!(self.ask(&Request::DeleteKept(KeptAs::Number(number))), Reply::Flag(was_there) => was_there)
    }

    /// The kept snapshots, in the order of their names.
    ///
    /// # Errors
    ///
    /// As for [`Store::kept`](crate::Store::kept).
    pub fn kept(&self) -> Result<Vec<Kept>> {
        value_of!(self.ask(&Request::Kept), Reply::Kept(kept) => kept)
    }

    /// The versions of a key that are still there, from the newest to the oldest.
    ///
    /// # Errors
    ///
    /// As for [`Store::versions`](crate::Store::versions).
    pub fn versions(&self, keyspace: &RemoteKeyspace, key: impl AsRef<[u8]>) -> Result<Vec<KeyVersion>> {
        keyspace.check(&self.link)?;
        let request = Request::Versions { keyspace: keyspace.id, key: key.as_ref() };
        value_of!(self.ask(&request), Reply::Versions(versions) => versions)
    }

    /// Collects what nobody needs any more, in up to `tables` keys (1024 at most in one call); returns
    /// whether there is more to do.
    ///
    /// # Errors
    ///
    /// As for [`Store::collect`](crate::Store::collect).
    pub fn collect(&self, tables: usize) -> Result<bool> {
        let tables = u32::try_from(tables).unwrap_or(u32::MAX);
        value_of!(self.ask(&Request::Collect { tables }), Reply::Flag(has_more) => has_more)
    }

    fn ask(&self, request: &Request<'_>) -> Result<Reply> {
        self.link.ask(request)
    }
}

impl RemoteKeyspace {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its id, which no other keyspace of the store has or had.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Which versions it retained when it was opened here.
    pub fn retention(&self) -> Retention {
        self.retention
    }

    /// Refuses a keyspace of another connection.
    pub(super) fn check(&self, link: &Arc<Link>) -> Result<()> {
        if Arc::ptr_eq(&self.link, link) {
            return Ok(());
        }
        Err(Error::OtherStore { name: self.name.to_string() })
    }
}

impl Opened {
    pub(super) fn ask(link: &Arc<Link>, request: &Request<'_>) -> Result<Arc<Opened>> {
        let (id, number) = value_of!(link.ask(request), Reply::Opened { open, number } => (open, number))?;
        Ok(Arc::new(Opened { link: link.clone(), id, number }))
    }

    pub(super) fn get(&self, keyspace: &RemoteKeyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let request = Request::Get { open: Some(self.id), keyspace: keyspace.id, key };
        value_of!(self.link.ask(&request), Reply::Value(value) => value)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Without a connection the owner has closed it.
        _ = self.link.ask(&Request::Close { open: self.id });
    }
}

impl RemoteSnapshot {
    /// Its number, as [`Snapshot::number`](crate::Snapshot::number).
    pub fn number(&self) -> u64 {
        self.opened.number
    }

    /// The value of a key, if it has one.
    ///
    /// # Errors
    ///
    /// As for [`Snapshot::get`](crate::Snapshot::get), and [`Error::Disconnected`].
    pub fn get(&self, keyspace: &RemoteKeyspace, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        keyspace.check(&self.opened.link)?;
        self.opened.get(keyspace, key.as_ref())
    }

    /// The keys in `bounds` that have a value, in their order, from both ends. The first page is fetched by
    /// the first step.
    ///
    /// # Errors
    ///
    /// [`Error::OtherStore`]; the walk gives the others.
    pub fn range<K: AsRef<[u8]>>(
        &self,
        keyspace: &RemoteKeyspace,
        bounds: impl RangeBounds<K>,
    ) -> Result<RemoteEntries> {
        keyspace.check(&self.opened.link)?;
        Ok(RemoteEntries::new(self.opened.clone(), keyspace.id, owned(&bounds), Vec::new()))
    }

    /// All keys that have a value, in their order.
    ///
    /// # Errors
    ///
    /// As for [`range`](Self::range).
    pub fn iter(&self, keyspace: &RemoteKeyspace) -> Result<RemoteEntries> {
        self.range::<Vec<u8>>(keyspace, ..)
    }

    /// Has the owner read all of it and look every key up, as [`Snapshot::check`](crate::Snapshot::check)
    /// does. The connection answers nothing else meanwhile.
    ///
    /// # Errors
    ///
    /// As there; damage comes as [`Error::Remote`].
    pub fn check(&self) -> Result<SnapshotReport> {
        let request = Request::Check { open: self.opened.id };
        value_of!(self.opened.link.ask(&request), Reply::Checked(report) => report)
    }
}

/// Bounds that own their keys.
pub(super) fn owned<K: AsRef<[u8]>>(bounds: &impl RangeBounds<K>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
    (owned(bounds.start_bound()), owned(bounds.end_bound()))
}

impl std::fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteStore").field("name", &self.link.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for RemoteKeyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteKeyspace").field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for RemoteSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteSnapshot").field("number", &self.number()).finish_non_exhaustive()
    }
}
