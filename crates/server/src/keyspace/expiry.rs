//! Removing keys whose time has come, in the order of their deadlines.

use super::Keyspace;
use super::batch::writer;
use super::entry::Old;
use super::events::{self, class};
use super::format::{Stored, decode_expiry};
use crate::fault::Answer;
use crate::tracking::NOBODY;

impl Keyspace<'_> {
    /// Removes up to `limit` expired keys and tokens, and returns how many it found. No batch may be open:
    /// this reads the committed lists of deadlines, and opens a batch for the removals.
    ///
    /// # Errors
    /// Those of the storage. After an error nothing was removed.
    pub(crate) fn expire_due(&mut self, limit: usize) -> Answer<usize> {
        debug_assert!(self.batch.is_none());
        let mut due = Vec::new();
        for number in 0..self.databases.len() {
            self.collect_due(number, limit - due.len(), &mut due)?;
        }
        let tokens = self.due_tokens(limit - due.len())?;
        if due.is_empty() && tokens.is_empty() {
            return Ok(0);
        }
        let (savepoint, mark) = (self.begin_command()?, self.pubsub.mark());
        let told = self.replication.effects.begin_command();
        self.pubsub.tracking.current = NOBODY;
        let removed = due.iter().try_for_each(|(number, entry)| self.remove_due(*number, entry));
        let removed = removed.and_then(|()| tokens.iter().try_for_each(|entry| self.forget_token(entry)));
        match removed {
            Ok(()) => {
                self.end_command();
                self.replication.close_unit();
                self.stats.expired += due.len() as u64;
                Ok(due.len() + tokens.len())
            }
            Err(fault) => {
                self.rollback_to(savepoint);
                self.replication.effects.take_back(told);
                self.pubsub.drop_since(mark);
                Err(fault)
            }
        }
    }

    /// Appends the entries of a database's list that are due.
    fn collect_due(&self, number: usize, limit: usize, due: &mut Vec<(usize, Vec<u8>)>) -> Answer {
        let Some(maps) = self.databases[number].as_deref() else {
            return Ok(());
        };
        for entry in maps.expires.iter().take(limit) {
            let entry = entry?;
            if decode_expiry(entry.key())?.0 > self.now_ms {
                break;
            }
            due.push((number, entry.key().to_vec()));
        }
        Ok(())
    }

    /// Removes one listed key. A listed key whose value is absent or has another deadline would break I2;
    /// only its entry in the list is removed.
    fn remove_due(&mut self, number: usize, entry: &[u8]) -> Answer {
        let (deadline, place) = decode_expiry(entry)?;
        let Keyspace { pool, batch, databases, dirty, expiry, pubsub, replication, layout, .. } = self;
        let key = layout.key(place);
        let mut old = Old::default();
        let Some(maps) = databases[number].as_deref_mut() else {
            return Ok(());
        };
        let batch = writer(pool, batch)?;
        *dirty = true;
        let value = batch.get(&maps.data, place)?.map(Stored::decode).transpose()?;
        if let Some(stored) = value.filter(|stored| stored.meta.deadline == Some(deadline)) {
            old = Old::of(&stored);
            batch.remove(&maps.data, place)?;
            pubsub.invalidate(key);
            events::notify(pubsub, true, class::EXPIRED, "expired", number, key);
            replication.effects.note_expired(number, key);
        }
        maps.unlist(batch, expiry, deadline, place)?;
        self.doom(number, old)
    }
}
