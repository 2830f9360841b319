//! The messages: requests of a client, and the owner's replies.

use super::fault;
use super::wire::{Decoded, Malformed, Reader, Writer};
use crate::backup::BackupSummary;
use crate::changes::Change as Changed;
use crate::check::SnapshotReport;
use crate::entries::Entry;
use crate::error::Error;
use crate::snapshot::Kept;
use crate::store::KeyVersion;
use std::ops::Bound;

/// The version of the protocol.
pub(super) const VERSION: u16 = 2;
/// The beginning of the first message.
const MAGIC: &[u8] = b"TEMBO store";

/// A key, and its value; none to take it off.
pub(super) type Change<'a> = (&'a [u8], Option<&'a [u8]>);

/// A kept snapshot, or one to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeptAs<'a> {
    Name(&'a str),
    Number(u64),
}

/// A snapshot that is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which<'a> {
    Current,
    At(u64),
    /// Nanoseconds since 1970.
    AtTime(u64),
    AtName(&'a str),
}

/// A request of a client. `open` is the id of a snapshot or a transaction that the client has open, and a
/// keyspace is named by its id, which the client asks for first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request<'a> {
    /// The first message; the store has no name if only the names are wanted.
    Hello {
        version: u16,
        store: &'a str,
    },
    Stores,
    Keyspaces,
    /// `make`: the retention of a keyspace that is made if it is not there.
    Keyspace {
        name: &'a str,
        make: Option<u64>,
    },
    DropKeyspace {
        name: &'a str,
    },
    Retain {
        keyspace: u64,
        retention: u64,
    },
    Open(Which<'a>),
    Begin {
        at: Option<u64>,
        is_serializable: bool,
    },
    Close {
        open: u64,
    },
    /// Without an id, of the current snapshot.
    Get {
        open: Option<u64>,
        keyspace: u64,
        key: &'a [u8],
    },
    Page {
        open: u64,
        keyspace: u64,
        bounds: (Bound<&'a [u8]>, Bound<&'a [u8]>),
        is_back: bool,
        is_first: bool,
    },
    Commit {
        open: u64,
        writes: Vec<(u64, Vec<Change<'a>>)>,
    },
    Change {
        keyspace: u64,
        change: Change<'a>,
    },
    Keep {
        number: u64,
        name: Option<&'a str>,
    },
    DeleteKept(KeptAs<'a>),
    Kept,
    Versions {
        keyspace: u64,
        key: &'a [u8],
    },
    Collect {
        tables: u32,
    },
    Check {
        open: u64,
    },
    /// Changes between two snapshots, after a key.
    Changes {
        from: u64,
        to: u64,
        keyspace: u64,
        after: Option<&'a [u8]>,
    },
    /// Its replies are the parts of a stream, and one after them.
    Backup {
        open: u64,
        base: Option<u64>,
    },
}

/// A reply of the owner.
#[derive(Debug)]
pub(super) enum Reply {
    Fault(Error),
    /// The process that owns the store.
    Welcome {
        version: u16,
        pid: u32,
    },
    Done,
    Flag(bool),
    Number(u64),
    Names(Vec<String>),
    /// The id and the retention of a keyspace.
    Keyspace(Option<(u64, u64)>),
    Opened {
        open: u64,
        number: u64,
    },
    Value(Option<Vec<u8>>),
    Page {
        entries: Vec<Entry>,
        has_more: bool,
    },
    Kept(Vec<Kept>),
    Versions(Vec<KeyVersion>),
    Checked(SnapshotReport),
    /// `next`: the key after which to go on.
    Changes {
        changes: Vec<Changed>,
        next: Option<Vec<u8>>,
    },
    Part(Vec<u8>),
    BackedUp(BackupSummary),
}

impl Request<'_> {
    pub(super) fn encode(&self) -> Writer {
        let mut out = Writer::default();
        match self {
            Request::Hello { version, store } => {
                out.u8(1);
                out.bytes(MAGIC);
                out.u16(*version);
                out.bytes(store.as_bytes());
            }
            Request::Stores => out.u8(2),
            Request::Keyspaces => out.u8(3),
            Request::Keyspace { name, make } => {
                out.u8(4);
                out.bytes(name.as_bytes());
                out.option(*make, Writer::u64);
            }
            Request::DropKeyspace { name } => {
                out.u8(5);
                out.bytes(name.as_bytes());
            }
            Request::Retain { keyspace, retention } => {
                out.u8(6);
                out.u64(*keyspace);
                out.u64(*retention);
            }
            Request::Open(which) => {
                out.u8(7);
                encode_which(&mut out, *which);
            }
            Request::Begin { at, is_serializable } => {
                out.u8(8);
                out.option(*at, Writer::u64);
                out.flag(*is_serializable);
            }
            Request::Close { open } => {
                out.u8(9);
                out.u64(*open);
            }
            other => other.encode_work(&mut out),
        }
        out
    }

    /// The requests that concern keys and kept snapshots.
    fn encode_work(&self, out: &mut Writer) {
        match self {
            Request::Get { open, keyspace, key } => {
                out.u8(10);
                out.option(*open, Writer::u64);
                out.u64(*keyspace);
                out.bytes(key);
            }
            Request::Page { open, keyspace, bounds, is_back, is_first } => {
                out.u8(11);
                out.u64(*open);
                out.u64(*keyspace);
                out.bound(bounds.0);
                out.bound(bounds.1);
                out.flag(*is_back);
                out.flag(*is_first);
            }
            Request::Commit { open, writes } => {
                out.u8(12);
                out.u64(*open);
                out.list(writes, |out, (keyspace, changes)| {
                    out.u64(*keyspace);
                    out.list(changes, |out, change| encode_change(out, *change));
                });
            }
            Request::Change { keyspace, change } => {
                out.u8(13);
                out.u64(*keyspace);
                encode_change(out, *change);
            }
            Request::Keep { number, name } => {
                out.u8(14);
                out.u64(*number);
                out.option(*name, |out, name| out.bytes(name.as_bytes()));
            }
            Request::DeleteKept(KeptAs::Name(name)) => {
                out.u8(15);
                out.bytes(name.as_bytes());
            }
            Request::DeleteKept(KeptAs::Number(number)) => {
                out.u8(16);
                out.u64(*number);
            }
            Request::Kept => out.u8(17),
            Request::Versions { keyspace, key } => {
                out.u8(18);
                out.u64(*keyspace);
                out.bytes(key);
            }
            Request::Collect { tables } => {
                out.u8(19);
                out.u32(*tables);
            }
            other => other.encode_of_snapshots(out),
        }
    }

    /// The requests that read whole snapshots.
    fn encode_of_snapshots(&self, out: &mut Writer) {
        match self {
            Request::Check { open } => {
                out.u8(20);
                out.u64(*open);
            }
            Request::Changes { from, to, keyspace, after } => {
                out.u8(21);
                [from, to, keyspace].into_iter().for_each(|id| out.u64(*id));
                out.option(*after, Writer::bytes);
            }
            Request::Backup { open, base } => {
                out.u8(22);
                out.u64(*open);
                out.option(*base, Writer::u64);
            }
            _ => {}
        }
    }

    /// The request that the bytes of a frame are.
    pub(super) fn decode(bytes: &[u8]) -> Decoded<Request<'_>> {
        let mut from = Reader::new(bytes);
        let from = &mut from;
        let request = match from.u8()? {
            1 => {
                if from.bytes()? != MAGIC {
                    return Err(Malformed("it is not the first message of a Tembo store's client"));
                }
                Request::Hello { version: from.u16()?, store: from.text()? }
            }
            2 => Request::Stores,
            3 => Request::Keyspaces,
            4 => Request::Keyspace { name: from.text()?, make: from.option(Reader::u64)? },
            5 => Request::DropKeyspace { name: from.text()? },
            6 => Request::Retain { keyspace: from.u64()?, retention: from.u64()? },
            7 => Request::Open(decode_which(from)?),
            8 => Request::Begin { at: from.option(Reader::u64)?, is_serializable: from.flag()? },
            9 => Request::Close { open: from.u64()? },
            10 => Request::Get { open: from.option(Reader::u64)?, keyspace: from.u64()?, key: from.bytes()? },
            11 => Request::Page {
                open: from.u64()?,
                keyspace: from.u64()?,
                bounds: (from.bound()?, from.bound()?),
                is_back: from.flag()?,
                is_first: from.flag()?,
            },
            12 => Request::Commit {
                open: from.u64()?,
                writes: from.list(|from| Ok((from.u64()?, from.list(decode_change)?)))?,
            },
            13 => Request::Change { keyspace: from.u64()?, change: decode_change(from)? },
            14 => Request::Keep { number: from.u64()?, name: from.option(Reader::text)? },
            15 => Request::DeleteKept(KeptAs::Name(from.text()?)),
            16 => Request::DeleteKept(KeptAs::Number(from.u64()?)),
            17 => Request::Kept,
            18 => Request::Versions { keyspace: from.u64()?, key: from.bytes()? },
            19 => Request::Collect { tables: from.u32()? },
            20 => Request::Check { open: from.u64()? },
            21 => Request::Changes {
                from: from.u64()?,
                to: from.u64()?,
                keyspace: from.u64()?,
                after: from.option(Reader::bytes)?,
            },
            22 => Request::Backup { open: from.u64()?, base: from.option(Reader::u64)? },
            _ => return Err(Malformed("a request of an unknown kind")),
        };
        from.end()?;
        Ok(request)
    }
}

fn encode_which(out: &mut Writer, which: Which<'_>) {
    match which {
        Which::Current => out.u8(0),
        Which::At(number) => {
            out.u8(1);
            out.u64(number);
        }
        Which::AtTime(time) => {
            out.u8(2);
            out.u64(time);
        }
        Which::AtName(name) => {
            out.u8(3);
            out.bytes(name.as_bytes());
        }
    }
}

fn decode_which<'a>(from: &mut Reader<'a>) -> Decoded<Which<'a>> {
    Ok(match from.u8()? {
        0 => Which::Current,
        1 => Which::At(from.u64()?),
        2 => Which::AtTime(from.u64()?),
        3 => Which::AtName(from.text()?),
        _ => return Err(Malformed("a snapshot of an unknown kind")),
    })
}

fn encode_change(out: &mut Writer, (key, value): Change<'_>) {
    out.bytes(key);
    out.option(value, |out, value| out.bytes(value));
}

fn decode_change<'a>(from: &mut Reader<'a>) -> Decoded<Change<'a>> {
    Ok((from.bytes()?, from.option(Reader::bytes)?))
}

impl Reply {
    pub(super) fn encode(&self) -> Writer {
        let mut out = Writer::default();
        match self {
            Reply::Fault(error) => {
                out.u8(0);
                fault::encode(&mut out, error);
            }
            Reply::Welcome { version, pid } => {
                out.u8(1);
                out.u16(*version);
                out.u32(*pid);
            }
            Reply::Done => out.u8(2),
            Reply::Flag(flag) => {
                out.u8(3);
                out.flag(*flag);
            }
            Reply::Number(number) => {
                out.u8(4);
                out.u64(*number);
            }
            Reply::Names(names) => {
                out.u8(5);
                out.list(names, |out, name| out.bytes(name.as_bytes()));
            }
            Reply::Keyspace(keyspace) => {
                out.u8(6);
                out.option(*keyspace, |out, (id, retention)| {
                    out.u64(id);
                    out.u64(retention);
                });
            }
            Reply::Opened { open, number } => {
                out.u8(7);
                out.u64(*open);
                out.u64(*number);
            }
            Reply::Value(value) => {
                out.u8(8);
                out.option(value.as_deref(), Writer::bytes);
            }
            other => other.encode_lists(&mut out),
        }
        out
    }

    /// The replies with entries, snapshots and versions.
    fn encode_lists(&self, out: &mut Writer) {
        match self {
            Reply::Page { entries, has_more } => {
                out.u8(9);
                out.list(entries, |out, (key, value)| {
                    out.bytes(key);
                    out.bytes(value);
                });
                out.flag(*has_more);
            }
            Reply::Kept(kept) => {
                out.u8(10);
                out.list(kept, |out, kept| {
                    out.u64(kept.number);
                    out.option(kept.name.as_deref(), |out, name| out.bytes(name.as_bytes()));
                });
            }
            Reply::Versions(versions) => {
                out.u8(11);
                out.list(versions, |out, version| {
                    out.u64(version.number);
                    out.option(version.value.as_deref(), Writer::bytes);
                });
            }
            Reply::Checked(SnapshotReport { number, keyspaces, not_retained, keys, bytes }) => {
                out.u8(12);
                [number, keyspaces, not_retained, keys, bytes].into_iter().for_each(|count| out.u64(*count));
            }
            Reply::Changes { changes, next } => {
                out.u8(13);
                out.list(changes, |out, change| {
                    out.bytes(&change.key);
                    out.option(change.before.as_deref(), Writer::bytes);
                    out.option(change.after.as_deref(), Writer::bytes);
                });
                out.option(next.as_deref(), Writer::bytes);
            }
            Reply::Part(part) => {
                out.u8(14);
                out.bytes(part);
            }
            Reply::BackedUp(BackupSummary { keyspaces, changes }) => {
                out.u8(15);
                out.u64(*keyspaces);
                out.u64(*changes);
            }
            _ => {}
        }
    }

    /// The reply that the bytes of a frame are.
    pub(super) fn decode(bytes: &[u8]) -> Decoded<Reply> {
        let mut from = Reader::new(bytes);
        let from = &mut from;
        let owned = |from: &mut Reader<'_>| Ok(from.bytes()?.to_vec());
        let text = |from: &mut Reader<'_>| Ok(from.text()?.to_owned());
        let reply = match from.u8()? {
            0 => Reply::Fault(fault::decode(from)?),
            1 => Reply::Welcome { version: from.u16()?, pid: from.u32()? },
            2 => Reply::Done,
            3 => Reply::Flag(from.flag()?),
            4 => Reply::Number(from.u64()?),
            5 => Reply::Names(from.list(text)?),
            6 => Reply::Keyspace(from.option(|from| Ok((from.u64()?, from.u64()?)))?),
            7 => Reply::Opened { open: from.u64()?, number: from.u64()? },
            8 => Reply::Value(from.option(owned)?),
            9 => Reply::Page {
                entries: from.list(|from| Ok((owned(from)?, owned(from)?)))?,
                has_more: from.flag()?,
            },
            10 => Reply::Kept(from.list(|from| Ok(Kept { number: from.u64()?, name: from.option(text)? }))?),
            11 => Reply::Versions(
                from.list(|from| Ok(KeyVersion { number: from.u64()?, value: from.option(owned)? }))?,
            ),
            12 => Reply::Checked(SnapshotReport {
                number: from.u64()?,
                keyspaces: from.u64()?,
                not_retained: from.u64()?,
                keys: from.u64()?,
                bytes: from.u64()?,
            }),
            13 => Reply::Changes {
                changes: from.list(|from| {
                    let key = owned(from)?;
                    Ok(Changed { key, before: from.option(owned)?, after: from.option(owned)? })
                })?,
                next: from.option(owned)?,
            },
            14 => Reply::Part(owned(from)?),
            15 => Reply::BackedUp(BackupSummary { keyspaces: from.u64()?, changes: from.u64()? }),
            _ => return Err(Malformed("a reply of an unknown kind")),
        };
        from.end()?;
        Ok(reply)
    }
}
