//! Reading the kept part of the stream: see [`super::backlog`].

use tembo::Pool;

use super::Keyspace;
use super::backlog::offset_of;
use super::batch::writer;
use super::check_report::CheckError;
use super::format::{BACKLOG, REPLICATION};
use super::history::{POSITION, Position};
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
        Ok(self.replication.backlog.open(self.pool, offset)?)
    }
}

/// Proves I12; returns how many bytes the backlog has.
pub(crate) fn check_backlog(pool: &Pool) -> Result<u64, CheckError> {
    let Some(map) = pool.find_map(BACKLOG)? else { return Ok(0) };
    let broken = |place: u64, what: &str| CheckError::Collection {
        place: format!("the backlog at {place}"),
        what: what.to_owned(),
    };
    let (mut first, mut end) = (None, None);
    for entry in map.iter() {
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
    let Some((first, end)) = first.zip(end) else { return Ok(0) };
    let list = pool.find_map(REPLICATION)?;
    let position = list.as_ref().map(|list| list.get(POSITION)).transpose()?.flatten();
    let position = position.and_then(|value| Position::decode(&value).ok());
    match position {
        Some(position) if position.offset == end => Ok(end - first),
        Some(_) => Err(broken(end, "it does not end at the position of the stream")),
        None => Err(broken(end, "there is no stream")),
    }
}
