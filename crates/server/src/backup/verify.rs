//! Reading backups to their ends.

use std::io::{Read, Seek};

use tembo_rdb::{Problem, Reader as Copy};

use super::container::{End, Head, Reader};
use super::units::Units;
use super::{BackupError, BackupKind, BackupSummary, damaged};
use crate::import::survey;

pub(super) fn summary_of(head: &Head, end: &End, keys: Option<u64>) -> BackupSummary {
    let &Head { kind, is_node, from, time_ms, .. } = head;
    let server = head.server.clone();
    BackupSummary { kind, from, to: end.to, time_ms, server, is_node, data_bytes: end.data_bytes, keys }
}

/// A fault of the copy, or of the records that it is in.
pub(super) fn fault_of_copy<R: Read>(error: tembo_rdb::Error, reader: &mut Reader<R>) -> BackupError {
    match reader.take_failure() {
        Some(failure) => failure,
        None if matches!(error.problem(), Problem::Io(_)) => BackupError::Connection(error.to_string()),
        None => BackupError::Copy(error),
    }
}

/// Reads a whole backup: each record, the copy in it value by value, or the stream command by command.
/// `progress` gets the number of bytes read from the file, at intervals.
///
/// Takes memory for the longest string of the copy.
///
/// # Errors
/// The first fault, with its place.
pub fn verify<R: Read>(source: R, progress: &mut dyn FnMut(u64)) -> Result<BackupSummary, BackupError> {
    let mut reader = Reader::new(source)?;
    let keys = match reader.head().kind {
        BackupKind::Full => Some(verify_copy(&mut reader, progress)?),
        BackupKind::Incremental => {
            verify_stream(&mut reader, progress)?;
            None
        }
    };
    match reader.end() {
        Some(end) => Ok(summary_of(reader.head(), end, keys)),
        None => Err(BackupError::Cut { offset: reader.offset() }),
    }
}

/// Returns how many keys the copy has.
fn verify_copy<R: Read>(reader: &mut Reader<R>, progress: &mut dyn FnMut(u64)) -> Result<u64, BackupError> {
    let surveyed =
        Copy::new(&mut *reader).and_then(|mut copy| Ok((survey(&mut copy, progress)?, copy.offset())));
    let (survey, bytes) = surveyed.map_err(|error| fault_of_copy(error, reader))?;
    expect_end(reader, bytes)?;
    Ok(survey.keys.total())
}

/// Reads up to the end of a backup whose copy has this many bytes.
pub(super) fn expect_end<R: Read>(reader: &mut Reader<R>, bytes: u64) -> Result<(), BackupError> {
    let at = reader.offset();
    // A reader of the copy may have taken more than the copy.
    while reader.data()?.is_some() {}
    match reader.end() {
        Some(end) if end.data_bytes == bytes => Ok(()),
        _ => Err(damaged(at, "bytes follow the end of the copy")),
    }
}

fn verify_stream<R: Read>(reader: &mut Reader<R>, progress: &mut dyn FnMut(u64)) -> Result<(), BackupError> {
    let mut units = Units::new();
    loop {
        let at = reader.offset();
        let Some(data) = reader.data()? else {
            let what = "the stream does not end with a whole command";
            return if units.is_between() { Ok(()) } else { Err(damaged(at, what)) };
        };
        let taken = units.take(data, u64::MAX);
        taken.map_err(|(offset, what)| damaged(at, format!("byte {offset} of the stream: {what}")))?;
        progress(reader.offset());
    }
}

/// Reads the head and the end of a backup, and nothing else.
///
/// # Errors
/// [`BackupError::Cut`] if there is no end, and those of the head.
pub fn summary_of_end<R: Read + Seek>(source: R) -> Result<BackupSummary, BackupError> {
    let reader = Reader::new(source)?;
    let head = reader.head().clone();
    let end = reader.skip_to_end()?;
    Ok(summary_of(&head, &end, None))
}

/// Whether a backup follows another one.
///
/// # Errors
/// [`BackupError::Chain`] if it does not.
pub fn expect_chain(before: &BackupSummary, next: &BackupSummary) -> Result<(), BackupError> {
    let why = match next.kind {
        BackupKind::Full => "it is a full backup, and follows none".to_owned(),
        BackupKind::Incremental if next.from == before.to => return Ok(()),
        BackupKind::Incremental if next.from.id == before.to.id => format!(
            "it begins at offset {}, and the one before ends at {}: one between them is missing, or the order \
             is wrong",
            next.from.offset, before.to.offset
        ),
        BackupKind::Incremental => format!(
            "it goes on in another history, {}, than the one before, which ends in {}",
            next.from.id(),
            before.to.id()
        ),
    };
    Err(BackupError::Chain(why))
}
