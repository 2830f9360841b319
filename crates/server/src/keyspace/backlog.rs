//! The backlog: the last bytes of the stream, for replicas that were away.
//!
//! # Media layout
//!
//! In a pool with a journal, a file beside it: [`stream_file`](super::stream_file). In others, where no byte
//! is written twice, the map "db.backlog", beside "db.replication":
//!
//! ```text
//!   offset_be -> bytes        8 bytes: where in the stream the bytes begin
//! ```
//!
//! A commit adds the bytes that its commands have in the stream, as one record, or several if they are many.
//!
//! # Invariants
//!
//! Those of [`format`](super::format): I12. Each record begins where the one before ends, and the last one
//! ends at the offset of the position. A backlog may be empty: then the next bytes of the stream are its
//! first. Without a position it is empty. Where the position has the extent of a file, the map is empty.
//!
//! # Commit point
//!
//! The commit of the batch. The bytes, the position behind them, and the data that they tell of are in one
//! commit: a stream that is resumed has neither a byte without its effect nor an effect without its bytes.
//! (Those of a file are written before, and the commit names them.) The same commit gives up the oldest
//! bytes, as far as the rest is as long as it is to be. Where the bytes find no room, the same commit clears
//! the backlog instead, so that removals work in a full pool; replicas that lack the bytes then take a whole
//! copy.
//!
//! # Recovery
//!
//! None of the map. A pool that was open without a journal before, or with one, gives up what is kept in the
//! other place.

use std::io;
use std::path::PathBuf;
use tembo::{Map, Pool};
use tembo_wire::{Limits, Parsed, RequestParser};

use super::batch::Batch;
use super::format::BACKLOG;
use super::history::Position;
use super::stream_file::{Extent, StreamFile};
use crate::fault::{Answer, Fault};

/// The longest record. At least one record is removed at a time.
const RECORD_BYTES_MAX: usize = 64 << 10;
/// Records that are looked at for a harmless tail.
const TAIL_RECORDS_MAX: usize = 64;
/// Commands of the stream that change nothing.
pub(in crate::keyspace) const HARMLESS: [&[u8]; 4] = [b"ping", b"select", b"publish", b"replconf"];
/// Records that a commit removes at most, beyond as many as it adds.
const TRIMMED_MAX: usize = 64;
/// Bytes of a commit that are read to find out from where on its commands change nothing.
const HARMLESS_BYTES_MAX: usize = 4096;

/// The part of a backlog that is in DRAM.
#[derive(Default)]
pub(crate) struct Backlog {
    pub(in crate::keyspace) map: Option<Map>,
    /// The pool, if the bytes lie in a file beside it.
    beside: Option<PathBuf>,
    file: Option<Box<StreamFile>>,
    /// The extent of that file which the pool had when it was opened.
    found: Option<Extent>,
    /// The map has bytes from a time without a journal.
    has_old_records: bool,
    /// The batch removes them.
    drops_old_records: bool,
    /// The place of the backlog's first byte in the stream, as the batch has it.
    pub(in crate::keyspace) first: u64,
    pub(in crate::keyspace) committed: u64,
    /// How many bytes the backlog keeps.
    pub(crate) bytes_max: u64,
    /// A replica that is connected lacks the bytes from here on.
    pub(crate) kept_from: Option<u64>,
    /// How often the backlog was cleared because there was no room.
    pub(crate) cleared: u64,
}

impl Backlog {
    pub(super) fn find(
        pool: &Pool,
        position: Option<Position>,
        found: Option<Extent>,
    ) -> Result<Self, tembo::Error> {
        let map = pool.find_map(BACKLOG)?;
        let first = map.as_ref().map(Map::first).transpose()?.flatten();
        let first = first.and_then(|entry| Some(u64::from_be_bytes(entry.key().try_into().ok()?)));
        let beside = pool.path().filter(|_| pool.journal_stats().is_some()).map(|path| path.to_owned());
        let has_old_records = beside.is_some() && first.is_some();
        let first = first.filter(|_| !has_old_records);
        let first = first.unwrap_or(position.map_or(0, |position| position.offset));
        let bytes_max = 1 << 20;
        let committed = first;
        Ok(Backlog { map, beside, found, has_old_records, first, committed, bytes_max, ..Backlog::default() })
    }

    /// The place of the first byte in the stream.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Bytes of the backlog that the pool has, up to an offset.
    pub(crate) fn bytes_in_pool(&self, end: u64) -> u64 {
        if self.beside.is_some() { 0 } else { end.saturating_sub(self.first) }
    }

    /// The map, for callers that free space.
    pub(super) fn map(&self) -> Option<&Map> {
        self.map.as_ref()
    }

    /// The extent of the file, which the position is stored with.
    pub(super) fn extent(&self) -> Option<Extent> {
        self.file.as_ref().map(|file| file.extent())
    }

    /// Opens the place of the bytes. There must be no batch.
    pub(super) fn open(&mut self, pool: &Pool, offset: u64) -> Answer {
        match &self.beside {
            Some(path) if self.file.is_none() => {
                let file = StreamFile::open(path, self.found.take(), offset, &crate::machine::boot_id());
                let file = file.map_err(|e| Fault::Quoting(format!("ERR {e}").into_bytes()))?;
                let shared = file.shared();
                pool.synchronise_before(move || shared.synchronise());
                (self.first, self.committed) = (file.extent().first, file.extent().first);
                self.file = Some(Box::new(file));
            }
            None if self.map.is_none() => {
                self.map = Some(pool.open_map(BACKLOG)?);
                (self.first, self.committed) = (offset, offset);
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds the bytes up to an offset of the stream, or clears the backlog where there is no room for them.
    pub(super) fn append(
        &mut self,
        batch: &mut Batch<'_>,
        end: u64,
        bytes: &[u8],
    ) -> Result<(), tembo::Error> {
        let floor = end.saturating_sub(self.bytes_max);
        let floor = self.kept_from.map_or(floor, |kept| kept.min(floor));
        if let Some(file) = &mut self.file {
            let written = file.append(end, bytes, harmful_part(bytes));
            if written.is_err() {
                self.cleared += 1;
                return self.clear(batch, end);
            }
            self.first = file.trim(floor, bytes.len());
            return Ok(());
        }
        let Some(map) = self.map.clone().filter(|_| self.beside.is_none()) else {
            // It could not be opened.
            return self.clear(batch, end);
        };
        let begin = batch.savepoint();
        let start = end - bytes.len() as u64;
        let added = bytes.chunks(RECORD_BYTES_MAX).enumerate().try_for_each(|(number, part)| {
            let at = start + (number * RECORD_BYTES_MAX) as u64;
            batch.put(&map, &at.to_be_bytes(), part).map(drop)
        });
        let trimmed =
            added.and_then(|()| self.trim(batch, &map, (floor, end), bytes.len() / RECORD_BYTES_MAX));
        match trimmed {
            Err(tembo::Error::Full { .. }) => {
                batch.rollback_to(begin);
                self.cleared += 1;
                self.clear(batch, end)
            }
            other => other,
        }
    }

    /// Lets the map be empty where a position with an extent is written.
    pub(super) fn drop_old_records(&mut self, batch: &mut Batch<'_>) -> Result<(), tembo::Error> {
        if let (true, Some(map), Some(_)) = (self.has_old_records, &self.map, &self.file) {
            batch.clear(map)?;
            self.drops_old_records = true;
        }
        Ok(())
    }

    /// Removes the oldest records, as far as those that are left are enough.
    fn trim(
        &mut self,
        batch: &mut Batch<'_>,
        map: &Map,
        (floor, end): (u64, u64),
        added: usize,
    ) -> Result<(), tembo::Error> {
        for _ in 0..TRIMMED_MAX + added {
            let key = self.first.to_be_bytes();
            let len = batch.get(map, &key)?.map_or(0, |bytes| bytes.len() as u64);
            let next = self.first + len;
            if len == 0 || next > floor || next >= end {
                return Ok(());
            }
            batch.remove(map, &key)?;
            self.first = next;
        }
        Ok(())
    }

    /// Drops all bytes. The next ones are those behind an offset.
    pub(super) fn clear(&mut self, batch: &mut Batch<'_>, offset: u64) -> Result<(), tembo::Error> {
        if let Some(file) = &mut self.file {
            file.clear(offset);
        }
        if let Some(map) = &self.map {
            batch.clear(map)?;
            self.drops_old_records = true;
        }
        self.first = offset;
        Ok(())
    }

    /// Notes the end of a commit.
    pub(super) fn note_end(&mut self, is_committed: bool) {
        self.has_old_records &= !(std::mem::take(&mut self.drops_old_records) && is_committed);
        if let Some(file) = &mut self.file {
            file.note_end(is_committed);
        }
        match is_committed {
            true => self.committed = self.first,
            false => self.first = self.committed,
        }
    }

    /// Appends committed bytes from an offset on, up to `most`; returns the offset behind them. The backlog
    /// has the byte at that offset, or it is the next of the stream.
    pub(crate) fn read(&self, from: u64, most: usize, out: &mut Vec<u8>) -> io::Result<u64> {
        match &self.file {
            Some(file) => file.read(from, most, out),
            None => self.read_map(from, most, out).map_err(io::Error::other),
        }
    }

    fn read_map(&self, from: u64, most: usize, out: &mut Vec<u8>) -> Result<u64, tembo::Error> {
        let Some(map) = self.map.as_ref().filter(|_| !self.has_old_records) else { return Ok(from) };
        let key = from.to_be_bytes();
        let last = match map.contains_key(key)? {
            true => Some(from),
            false => map.range(..=key).next_back().transpose()?.and_then(|entry| offset_of(entry.key())),
        };
        let Some(start) = last else { return Ok(from) };
        let (mut at, end) = (from, from.saturating_add(most as u64));
        for entry in map.range(start.to_be_bytes()..) {
            let entry = entry?;
            let begin = offset_of(entry.key()).unwrap_or(u64::MAX);
            let skipped = usize::try_from(at.wrapping_sub(begin)).unwrap_or(usize::MAX);
            let Some(bytes) = entry.value().get(skipped..) else { break };
            let taken = bytes.len().min((end - at) as usize);
            out.extend_from_slice(&bytes[..taken]);
            at += taken as u64;
            if at == end {
                break;
            }
        }
        Ok(at)
    }
}

/// The place in some bytes of the stream from which on commands change nothing. The bytes begin with a
/// command.
fn harmless_part(bytes: &[u8]) -> usize {
    let (mut at, mut from) = (0, 0);
    while at < bytes.len() {
        let mut parser = RequestParser::new();
        let Ok(Parsed::Request(request)) = parser.parse(&bytes[at..], &Limits::default()) else {
            // No command begins here.
            return bytes.len();
        };
        let is_harmless = HARMLESS.iter().any(|name| request.name().eq_ignore_ascii_case(name));
        at += request.consumed();
        from = if is_harmless { from } else { at };
    }
    from
}

/// How many of a commit's bytes may change something: those up to the end of its last command that does.
fn harmful_part(bytes: &[u8]) -> usize {
    match bytes.len() > HARMLESS_BYTES_MAX {
        true => bytes.len(),
        false => harmless_part(bytes),
    }
}

pub(in crate::keyspace) fn offset_of(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}

impl Backlog {
    /// An offset from which on committed commands change nothing, up to the end of the stream. There may be a
    /// lower one.
    pub(crate) fn harmless_from(&self, end: u64) -> Result<u64, tembo::Error> {
        if let Some(file) = &self.file {
            return Ok(file.harmless_from());
        }
        let Some(map) = &self.map else { return Ok(end) };
        let mut from = end;
        for entry in map.range::<&[u8]>(..).rev().take(TAIL_RECORDS_MAX) {
            let entry = entry?;
            let Some(begin) = offset_of(entry.key()) else { break };
            if begin + entry.value().len() as u64 != from {
                break;
            }
            let part = harmless_part(entry.value()) as u64;
            from = begin + part;
            if part > 0 {
                break;
            }
        }
        Ok(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(lines: &[&str]) -> (usize, usize) {
        let bytes = |lines: &[&str]| {
            let mut bytes = Vec::new();
            lines.iter().for_each(|line| {
                tembo_wire::write_request(&mut bytes, line.split(' ').collect::<Vec<_>>());
            });
            bytes
        };
        let harmful = lines.iter().rposition(|line| line.starts_with("SET") || line.starts_with("EXEC"));
        (harmless_part(&bytes(lines)), bytes(&lines[..harmful.map_or(0, |at| at + 1)]).len())
    }

    #[test]
    fn a_tail_is_harmless_behind_its_last_write() {
        for lines in [
            &["PING", "SELECT 3", "PUBLISH c m", "REPLCONF GETACK *"][..],
            &["PING", "SET a 1", "ping"],
            &["MULTI", "PUBLISH c m", "EXEC", "PING"],
            &["SET a 1"],
            &[],
        ] {
            let (found, expected) = from(lines);
            assert_eq!(found, expected, "{lines:?}");
        }
        assert_eq!(harmless_part(b"the middle of a long command"), 28);
        assert_eq!(harmless_part(b"*1\r\n$4\r\nPING\r\n*1"), 16, "nothing of it is known");
    }
}
