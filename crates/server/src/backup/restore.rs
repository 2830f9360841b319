//! Backups into a pool that is empty.
//!
//! A full backup is imported like a file of Redis, but with the keys whose deadline has come: the stream that
//! follows may take the deadline away. Incremental ones are applied like the stream of a master, unit by
//! unit, so that a pool that is left in the middle is at some point in time.
//!
//! The last commit gives the pool its place in a history: a new one, or the one of the backup, where the pool
//! is that of a replica.

use std::io::Read;

use tembo::Pool;
use tembo_rdb::Reader as Copy;

use super::container::Reader;
use super::verify::{expect_end, fault_of_copy, summary_of};
use super::{BackupError, BackupKind, BackupSummary, expect_chain};
use crate::config::Config;
use crate::executor::Executor;
use crate::fault::{Fault, shown};
use crate::import::{ImportError, Importing, MOVES_AUX};
use crate::keyspace::Keyspace;
use crate::keyspace::cluster::prepare;
use crate::keyspace::format::DATABASES;
use crate::keyspace::history::{Master, Position};
use crate::machine::boot_id;
use crate::replica::applied_stream::AppliedStream;
use crate::replica::handshake::Failure;
use crate::state::State;

/// How a pool is to be restored.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Restoring {
    /// The pool becomes that of a replica of this master, which continues the stream where the backup ends.
    pub replica_of: Option<Master>,
    /// The stream is applied up to the last command, or EXEC, that ends at this offset or before.
    pub to_offset: Option<u64>,
}

/// The outcome of a restore.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Restored {
    /// The backups, in order.
    pub backups: Vec<BackupSummary>,
    /// The number of keys of the full backup.
    pub keys: u64,
    /// Bytes of the stream that were applied.
    pub applied_bytes: u64,
    /// The offset of the data.
    pub offset: u64,
    /// The replication id that the pool has.
    pub id: String,
}

fn failed(fault: &Fault) -> BackupError {
    BackupError::Restore(shown(fault))
}

impl From<ImportError> for BackupError {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Pool(error) => BackupError::Pool(error),
            ImportError::File(error) => BackupError::Copy(error),
            error => BackupError::Restore(error.to_string()),
        }
    }
}

impl From<Failure> for BackupError {
    fn from(failure: Failure) -> Self {
        BackupError::Restore(failure.why)
    }
}

/// Restores backups, a full one and those that follow it, into a pool without keys. `progress` gets the
/// number of bytes read from each file, at intervals.
///
/// The pool is durable when it returns. After an error it has a part of the data and no place in a history:
/// it is to be thrown away.
///
/// # Errors
/// Those of [`verify`](super::verify()), for the files are proved as they are read; those of the pool; and
/// [`BackupError::Chain`] with the number of the file that does not follow the one before.
pub fn restore<R: Read>(
    pool: &Pool,
    sources: impl IntoIterator<Item = R>,
    restoring: &Restoring,
    progress: &mut dyn FnMut(usize, u64),
) -> Result<Restored, (usize, BackupError)> {
    let mut sources = sources.into_iter();
    let first = sources.next().ok_or_else(|| (0, BackupError::Chain("no backup was named".to_owned())))?;
    let is_of_replica = restoring.replica_of.is_some();
    let copied = copy(pool, first, is_of_replica, &mut |at| progress(0, at));
    let (summary, position) = copied.map_err(|error| (0, error))?;
    let (keys, mut applied_bytes) = (summary.keys.unwrap_or(0), 0);
    let mut backups = vec![summary];
    let mut state = State::new(Config::default(), "127.0.0.1:0".parse().expect("an address"), pool);
    let opened = Keyspace::open(pool).map_err(|error| (0, BackupError::Pool(error)));
    let mut executor = Executor::new(opened?, &mut state);
    executor.keys.adopt_position(position).map_err(|fault| (0, failed(&fault)))?;
    for (number, source) in sources.enumerate() {
        let number = number + 1;
        let applied =
            apply(&mut executor, source, backups.last(), restoring.to_offset, &mut |at| progress(number, at));
        let (summary, bytes) = applied.map_err(|error| (number, error))?;
        applied_bytes += bytes;
        backups.push(summary);
    }
    let last = backups.len() - 1;
    expect_reached(&backups, restoring.to_offset).map_err(|error| (last, error))?;
    let position = finish(&mut executor, restoring).map_err(|error| (last, error))?;
    let id = String::from_utf8_lossy(&position.id).into_owned();
    Ok(Restored { backups, keys, applied_bytes, offset: position.offset, id })
}

/// Whether the backups reach an offset.
fn expect_reached(backups: &[BackupSummary], to_offset: Option<u64>) -> Result<(), BackupError> {
    let (Some(first), Some(last), Some(wanted)) = (backups.first(), backups.last(), to_offset) else {
        return Ok(());
    };
    let (first, last) = (first.to.offset, last.to.offset);
    if (first..=last).contains(&wanted) {
        return Ok(());
    }
    let why = format!("--to-offset {wanted} is not among the offsets of these backups, {first} to {last}");
    Err(BackupError::Restore(why))
}

/// Imports a full backup; returns the position at which the stream continues.
fn copy<R: Read>(
    pool: &Pool,
    source: R,
    is_of_replica: bool,
    progress: &mut dyn FnMut(u64),
) -> Result<(BackupSummary, Position), BackupError> {
    let mut reader = Reader::new(source)?;
    if reader.head().kind == BackupKind::Incremental {
        let why = "it is an incremental backup: a full one is needed before it";
        return Err(BackupError::Chain(why.to_owned()));
    }
    prepare(pool, reader.head().is_node).map_err(|error| BackupError::Restore(error.to_string()))?;
    let keys = Keyspace::open(pool)?;
    let mut importing = Importing::into(keys, Config::default().encodings)?;
    importing.keys.now_ms = 0;
    let mut database = 0;
    let mut copy = match Copy::new(&mut reader) {
        Ok(copy) => copy,
        Err(error) => return Err(fault_of_copy(error, &mut reader)),
    };
    let outcome = loop {
        match copy.next() {
            Ok(None) => break Ok(()),
            Ok(Some(tembo_rdb::Event::Aux { name: b"repl-stream-db", value })) => {
                let number = tembo_wire::number::parse_u64(value);
                database = number.filter(|number| *number < DATABASES as u64).unwrap_or(0) as u8;
            }
            // Such a copy is refused: the records of moves would continue a stream whose earlier part is
            // missing.
            Ok(Some(tembo_rdb::Event::Aux { name: MOVES_AUX, value }))
                if is_of_replica && !value.trim_ascii().is_empty() =>
            {
                let why = "the node moved slots when the backup was taken, which a replica would not know; \
                           take another full backup when no slots move, or restore without --replica-of";
                return Err(BackupError::Restore(why.to_owned()));
            }
            Ok(Some(event)) => {
                let is_key = matches!(event, tembo_rdb::Event::KeyEnd);
                importing.take(event)?;
                if is_key {
                    progress(copy.offset());
                }
            }
            Err(error) => break Err(error),
        }
    };
    let bytes = copy.offset();
    outcome.map_err(|error| fault_of_copy(error, &mut reader))?;
    expect_end(&mut reader, bytes)?;
    importing.keys.commit()?;
    let imported = importing.into_imported();
    if !imported.left_out.is_empty() {
        let reasons: Vec<_> = imported.left_out.keys().map(ToString::to_string).collect();
        return Err(BackupError::LeftOut(reasons.join("; ")));
    }
    let Some(end) = reader.end() else { return Err(BackupError::Cut { offset: reader.offset() }) };
    let summary = summary_of(reader.head(), end, Some(imported.keys.total()));
    Ok((summary, Position { id: end.to.id, offset: end.to.offset, database }))
}

/// Applies an incremental backup, up to an offset; returns how many of its bytes were applied.
fn apply<R: Read>(
    executor: &mut Executor<'_, '_>,
    source: R,
    before: Option<&BackupSummary>,
    to_offset: Option<u64>,
    progress: &mut dyn FnMut(u64),
) -> Result<(BackupSummary, u64), BackupError> {
    let mut reader = Reader::new(source)?;
    let from = reader.head().from;
    if let Some(before) = before {
        // The end is not known yet, and does not matter for the earlier files.
        let begins = BackupSummary { kind: reader.head().kind, from, ..before.clone() };
        expect_chain(before, &begins)?;
    }
    let nobody = "127.0.0.1:1".parse().expect("an address");
    let mut stream = AppliedStream::new(executor, nobody, nobody);
    let mut room = to_offset.map_or(u64::MAX, |offset| offset.saturating_sub(from.offset));
    let reached = |executor: &Executor<'_, '_>| {
        executor.keys.replication.position.map_or(from.offset, |position| position.offset)
    };
    let begun = reached(executor);
    while let Some(data) = reader.data()? {
        let taken = (data.len() as u64).min(room);
        room -= taken;
        stream.input.extend_from_slice(&data[..taken as usize]);
        while stream.is_waiting() {
            executor.apply(&mut stream)?;
            executor.commit_batch(None);
            executor.expect_no_way_back()?;
            executor.keys.reclaim().map_err(|fault| failed(&fault))?;
        }
        progress(reader.offset());
    }
    stream.end(executor);
    executor.commit_batch(None);
    let Some(end) = reader.end() else { return Err(BackupError::Cut { offset: reader.offset() }) };
    let (applied, summary) = (reached(executor), summary_of(reader.head(), end, None));
    let is_whole = applied == end.to.offset;
    if !is_whole && to_offset.is_none_or(|offset| offset >= end.to.offset) {
        let why = format!("the stream ends at offset {applied}, and the backup says {}", end.to.offset);
        return Err(BackupError::Restore(why));
    }
    if is_whole
        && let Some(position) = &mut executor.keys.replication.position
        && position.id != end.to.id
    {
        // The history got another name meanwhile; the next backup of the chain has that.
        position.id = end.to.id;
    }
    Ok((summary, applied - begun))
}

/// Gives the pool its place in a history.
fn finish(executor: &mut Executor<'_, '_>, restoring: &Restoring) -> Result<Position, BackupError> {
    let failed = |fault: Fault| failed(&fault);
    while executor.keys.is_reclaiming() {
        executor.keys.reclaim().map_err(failed)?;
    }
    let id = executor.state.random_id();
    let keys = &mut executor.keys;
    let mut position =
        keys.replication.position.ok_or_else(|| BackupError::Restore("no position".to_owned()))?;
    match &restoring.replica_of {
        Some(master) => {
            keys.adopt_position(position).map_err(failed)?;
            keys.store_master(Some(master), id).map_err(failed)?;
        }
        None => {
            (position.id, position.database) = (id, 0);
            keys.adopt_position(position).map_err(failed)?;
            keys.store_boot(&boot_id(), true).map_err(failed)?;
        }
    }
    keys.pool().make_durable()?;
    Ok(position)
}
