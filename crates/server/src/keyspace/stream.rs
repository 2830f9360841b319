//! The stream of this server, and where it is: see [`super::replication`].

use tembo::{Map, Pool};

use super::backlog::Backlog;
use super::format::REPLICATION;
use super::history::{Id, POSITION, Position, SECOND, Second};
use crate::effects::Effects;
use crate::keyspace::batch::Batch;

/// The history of a keyspace, as its batch has it.
#[derive(Default)]
pub(crate) struct Replication {
    pub(super) map: Option<Map>,
    /// The end of the stream, committed or not.
    pub(crate) position: Option<Position>,
    pub(super) committed: Option<Position>,
    pub(crate) second: Option<Second>,
    pub(super) committed_second: Option<Second>,
    /// A commit failed, and the position went back.
    pub(crate) went_back: bool,
    /// A new state is arriving in maps that were taken off the databases, so that no command may write.
    pub(crate) is_arriving: bool,
    /// How often the ids changed: replicas have to ask again.
    pub(crate) epoch: u64,
    pub(crate) effects: Effects,
    pub(crate) backlog: Backlog,
    /// A mistake, for the crash simulator to find.
    #[cfg(test)]
    pub(crate) forgets_offset: bool,
}

impl Replication {
    pub(super) fn find(pool: &Pool) -> Result<Self, tembo::Error> {
        let map = pool.find_map(REPLICATION)?;
        let get = |key| map.as_ref().map(|map| map.get(key)).transpose().map(Option::flatten);
        // The check names a damaged record. Without the position, everything is copied anew.
        let stored = get(POSITION)?.and_then(|value| Position::decode(&value).ok());
        let (position, extent) = stored.map_or((None, None), |(position, extent)| (Some(position), extent));
        let second = get(SECOND)?.and_then(|value| Second::decode(&value).ok());
        let backlog = Backlog::find(pool, position, extent)?;
        Ok(Replication {
            map,
            position,
            committed: position,
            second,
            committed_second: second,
            backlog,
            ..Replication::default()
        })
    }

    /// The position that is committed.
    pub(crate) fn committed(&self) -> Option<Position> {
        self.committed
    }

    /// Whether a commit has bytes of the stream to store.
    pub(super) fn has_bytes(&self) -> bool {
        !self.effects.pending().is_empty()
    }

    /// Ends the effects of a command or an EXEC: they are part of the batch from now on.
    pub(crate) fn close_unit(&mut self) {
        let bytes = self.effects.close() as u64;
        if bytes > 0
            && let Some(position) = &mut self.position
        {
            (position.offset, position.database) = (position.offset + bytes, self.effects.selected());
        }
    }

    /// Adds words to the stream that have no database.
    pub(crate) fn add_plain(&mut self, words: &[&str]) {
        let bytes = self.effects.add_plain(words) as u64;
        if let Some(position) = &mut self.position {
            position.offset += bytes;
        }
    }

    /// Ends an EXEC, whose effects are propagated if it was run.
    pub(crate) fn release(&mut self, was_run: bool, told: crate::effects::Mark) {
        self.effects.is_held = false;
        match was_run {
            true => self.close_unit(),
            false => self.effects.take_back(told),
        }
    }

    /// Goes on in a history with a new id, at the same place.
    pub(crate) fn rename(&mut self, id: Id) {
        if let Some(position) = &mut self.position {
            self.second = Some(Second { id: position.id, offset: position.offset });
            position.id = id;
            self.epoch += 1;
        }
    }

    /// Tells the effects of commands from now on, if this is a master with a history or one that moves slots.
    pub(crate) fn take_up(&mut self, is_master: bool) {
        self.effects.is_on = is_master && (self.position.is_some() || self.effects.tap.is_some());
        self.effects.forget_selected();
    }

    /// Writes the position and the bytes up to it into the batch, if it is another one than is committed.
    pub(super) fn write(&mut self, batch: Option<&mut Batch<'_>>) -> Result<(), tembo::Error> {
        let (Some(batch), Some(map), Some(position)) = (batch, &self.map, self.position) else {
            return Ok(());
        };
        if self.position == self.committed && self.second == self.committed_second {
            return Ok(());
        }
        let pending = self.effects.pending();
        if !pending.is_empty() {
            self.backlog.append(batch, position.offset, pending)?;
        } else if self.committed.is_none_or(|committed| committed.offset != position.offset) {
            // The bytes up to this position are not known.
            self.backlog.clear(batch, position.offset)?;
        }
        if let Some(second) = self.second.filter(|_| self.second != self.committed_second) {
            second.write(batch, map)?;
        }
        #[cfg(test)]
        if self.forgets_offset {
            return Ok(());
        }
        self.backlog.drop_old_records(batch)?;
        position.write(batch, map, self.backlog.extent())
    }

    /// Notes the end of a commit that wrote the position.
    pub(super) fn note_end(&mut self, is_committed: bool) {
        if is_committed {
            (self.committed, self.committed_second) = (self.position, self.second);
        } else if self.position != self.committed {
            // A new id was not committed: commands are propagated again once one is.
            self.effects.is_on &= self.position.map(|now| now.id) == self.committed.map(|was| was.id);
            (self.position, self.second, self.went_back) = (self.committed, self.committed_second, true);
        }
        self.effects.note_end(is_committed);
        self.backlog.note_end(is_committed);
    }
}
