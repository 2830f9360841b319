//! Commands that work in memory, and the moment at which the batch gets their changes
//! ([`list_end`](crate::keyspace::collection::list_end)).

use tembo_wire::{ReplyWriter, Request};

use crate::commands::table::Command;
use crate::executor::{Current, Executor};
use crate::keyspace::collection::list::CHUNK_BYTES_MAX;
use crate::session::Session;

/// The longest reply of a pop at an end that is in memory, with room.
const END_REPLY_BYTES: usize = 2 * CHUNK_BYTES_MAX;

impl Executor<'_, '_> {
    /// Lets the batch have what commands have left in memory, the end of a list. If there is no room for it,
    /// their commit fails.
    #[inline(always)]
    pub(crate) fn store_list_end(&mut self, current: Option<Current<'_>>) {
        if self.keys.has_end() && self.keys.store_end().is_err() {
            self.commit_batch(current);
        }
    }

    /// Runs a push or a pop of one element at the end of a list that is in memory; tells whether this was
    /// one. Such a command cannot fail, and needs no undo point.
    pub(crate) fn run_at_end(
        &mut self,
        command: &Command,
        request: &Request<'_>,
        session: &Session,
        output: &mut Vec<u8>,
    ) -> bool {
        let (left, pushes) = match command.name {
            "lpush" => (true, true),
            "rpush" => (false, true),
            "lpop" => (true, false),
            "rpop" => (false, false),
            _ => return false,
        };
        if request.arg_count() != 2 + usize::from(pushes)
            || self.state.config.reply_bytes_max < END_REPLY_BYTES
        {
            return false;
        }
        self.keys.pubsub.tracking.current = session.id;
        let (database, key) = (session.database, &request[1]);
        let mut reply = ReplyWriter::new(output, session.protocol);
        let is_done = if pushes {
            let count = self.keys.push_at_end(database, key, left, &request[2]);
            count.map(|count| reply.integer(count as i64)).is_some()
        } else {
            self.keys.pop_at_end(database, key, left, |element| reply.bulk(element)).is_some()
        };
        let replication = &mut self.keys.replication;
        if is_done && replication.effects.is_on {
            replication.effects.add(database, request.args());
            replication.close_unit();
        }
        is_done
    }
}
