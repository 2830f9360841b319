//! Reading the kept part of the stream: see [`super::backlog`].

use tembo::Pool;

use super::Keyspace;
use super::backlog::offset_of;
use super::batch::writer;
use super::check_report::CheckError;
use super::format::{BACKLOG, REPLICATION};
use super::history::{POSITION, Position};
use super::stream_file::kept_bytes;
use crate::fault::Answer;

impl Keyspace<'_> {
    /// Goes back in the stream to `offset`. No byte after `offset` may change data. There must be no batch.
    pub(crate) fn rewind(&mut self, offset: u64) -> Answer {
        let Some(position) = self.replication.position.as_mut().filter(|now| now.offset > offset) else {
            return Ok(());
        };
        position.offset = offset;
        // The bytes behind it belong to another history.
        writer(self.pool, &mut self.batch)?;
        self.dirty = true;
        Ok(self.commit().inspect_err(|_| self.abandon_batch())?)
    }

    /// Begins a history of this server's own, from which on the effects of commands are kept. There must be
    /// no batch.
    pub(crate) fn begin_history(&mut self, id: super::history::Id) -> Answer {
        self.open_backlog(0)?;
        writer(self.pool, &mut self.batch)?;
        self.replication.position = Some(Position { id, offset: 0, database: 0 });
        self.dirty = true;
        Ok(self.commit()?)
    }

    /// Lets the stream be kept from now on, if there is one. There must be no batch.
    pub(crate) fn keep_stream(&mut self) -> Answer {
        match self.replication.position {
            Some(position) => self.open_backlog(position.offset),
            None => Ok(()),
        }
    }

    fn open_backlog(&mut self, offset: u64) -> Answer {
        self.replication_map()?;
        self.replication.backlog.open(self.pool, offset)
    }
}

/// The backlog as a check finds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Bytes of it that are there.
    pub(crate) bytes: u64,
    /// Bytes that its file lacks.
    pub(crate) missing_bytes: u64,
}

/// Proves I12. A file that lacks bytes is no damage: a failure of power may leave it so.
pub(crate) fn check_backlog(pool: &Pool) -> Result<Kept, CheckError> {
    let map = pool.find_map(BACKLOG)?;
    let broken = |place: u64, what: &str| CheckError::Collection {
        place: format!("the backlog at {place}"),
        what: what.to_owned(),
    };
    let list = pool.find_map(REPLICATION)?;
    let stored = list.as_ref().map(|list| list.get(POSITION)).transpose()?.flatten();
    let stored = stored.and_then(|value| Position::decode(&value).ok());
    let (mut first, mut end) = (None, None);
    for entry in map.iter().flat_map(|map| map.iter()) {
        let entry = entry?;
        let at = offset_of(entry.key()).ok_or_else(|| broken(0, "a key is no offset"))?;
        if end.is_some_and(|end| end != at) {
            return Err(broken(at, "its bytes do not follow those before"));
        }
        if entry.value().is_empty() {
            return Err(broken(at, "a record is empty"));
        }
        first.get_or_insert(at);
        end = at.checked_add(entry.value().len() as u64);
        end.ok_or_else(|| broken(at, "an offset is beyond all"))?;
    }
    match (stored, first.zip(end)) {
        (None, None) => Ok(Kept::default()),
        (Some((_, Some(_))), Some((first, _))) => Err(broken(first, "it has records beside its file")),
        (Some((position, Some(extent))), None) => {
            let wanted = position.offset - extent.first;
            let found = pool.path().map(|path| kept_bytes(path, &extent, position.offset));
            let bytes = found.and_then(Result::ok).unwrap_or(0);
            Ok(Kept { bytes, missing_bytes: wanted - bytes })
        }
        (Some(_), None) => Ok(Kept::default()),
        (Some((position, None)), Some((first, end))) if position.offset == end => {
            Ok(Kept { bytes: end - first, missing_bytes: 0 })
        }
        (Some(_), Some((_, end))) => Err(broken(end, "it does not end at the position of the stream")),
        (None, Some((_, end))) => Err(broken(end, "there is no stream")),
    }
}
