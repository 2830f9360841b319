//! From commands to effects, where the executor runs them.

use tembo_wire::Request;

use crate::commands::key_arguments::{ONCE_COMMAND, places_of_keys};
use crate::commands::table::Command;
use crate::effects::Mark;
use crate::executor::Executor;
use crate::fault::Answer;
use crate::session::Session;

/// The places of a command's effects in the unit: where those of keys whose time has come begin, and its own.
pub(crate) struct Told {
    begin: Mark,
    own: Mark,
}

impl Executor<'_, '_> {
    /// Whether a command writes, and too few replicas are near.
    #[cold]
    pub(crate) fn lacks_replicas(&self, session: &Session, command: &Command) -> bool {
        let is_master = self.state.role.master.is_none();
        is_master
            && self.state.replicas.good < self.state.config.replica.min_replicas
            && session.writes(command)
    }

    /// Begins a command whose effects are propagated. For keys that it names and that have expired, a removal
    /// is propagated first: a replica has them until then.
    #[cold]
    pub(crate) fn look_for_expired(
        &mut self,
        command: &Command,
        request: &Request<'_>,
        database: usize,
    ) -> Answer<Told> {
        let begin = self.keys.replication.effects.begin_command();
        if self.keys.expires_len(database)? > 0 {
            self.tell_expired(command, request, database)?;
        }
        Ok(Told { begin, own: self.keys.replication.effects.mark() })
    }

    fn tell_expired(&mut self, command: &Command, request: &Request<'_>, database: usize) -> Answer {
        let inner = (command.name == "tembo.once").then(|| request.from(ONCE_COMMAND));
        let inner = inner.filter(|inner| inner.arg_count() > 0);
        let (command, request) = match &inner {
            Some(inner) => match self.state.registry.get(inner.name()) {
                Some(command) if command.takes(inner.arg_count()) => (command, inner),
                _ => return Ok(()),
            },
            None => (command, request),
        };
        for place in places_of_keys(command, request).unwrap_or_default() {
            let found = self.keys.find(database, &request[place])?;
            if found.present && found.live.is_none() {
                self.keys.replication.effects.add_removal(database, &request[place]);
            }
        }
        Ok(())
    }

    /// Ends a command whose effects are propagated.
    #[cold]
    pub(crate) fn tell_effects(
        &mut self,
        command: &Command,
        request: &Request<'_>,
        database: usize,
        (told, has_run): (Told, bool),
    ) {
        // Nobody who is away gets a message later.
        let is_message = command.group == "pubsub" && !self.state.replicas.list.is_empty();
        let has_changed = self.keys.note_dirty_again() || is_message;
        let replication = &mut self.keys.replication;
        if !has_run {
            replication.effects.take_back(told.begin);
        } else if !has_changed {
            replication.effects.take_back(told.own);
        } else if !replication.effects.is_told() {
            replication.effects.add(database, request.args());
        }
        if !replication.effects.is_held {
            replication.close_unit();
        }
    }
}
