//! EXEC: running the commands that a client has queued since MULTI, as one.
//!
//! # All or nothing
//!
//! The queued commands run in one batch, without a commit between them, so that a crash leaves all of their
//! effects or none. As in Redis, a command that fails leaves the others as they are: it is rolled back to a
//! savepoint of its own. If the commit fails, the whole reply becomes one error, and nothing has happened in
//! the databases. Commands of the session and the server (SELECT, HELLO, CONFIG SET) stay done.
//!
//! A single command may need a commit before it, and is then run again. A transaction prepares for that
//! before its first command:
//!
//! - databases that they may write to are created;
//! - everything is committed before one that walks the keys, and what the transaction changes is noted for it
//!   ([`Keyspace::walk`](crate::keyspace::Keyspace::walk));
//! - if a command finds no room while cleared databases still hold space, the whole transaction is rolled
//!   back, that space is reclaimed, and the transaction runs again. Once there is none to reclaim, only the
//!   command fails.
//!
//! # Memory
//!
//! The queue and the watched keys together may take as much as one request may be long. All replies together
//! may be as long as one.

use std::rc::Rc;
use std::time::Instant;

use tembo_wire::{ReplyWriter, Request, RequestQueue};

use crate::commands::table::Command;
use crate::commands::table::flag::{NO_MULTI, UNSUBSCRIBES, WRITE};
use crate::commands::transaction::{databases_written, discard, forget_watched, has_changed};
use crate::executor::Executor;
use crate::fault::{Answer, Fault, error_line};
use crate::queue::Queue;
use crate::session::Session;
use crate::wait_service::give_up;

/// Pending words that a command of a transaction is expected to add: those of an ordinary SET.
const WORDS_PER_COMMAND: usize = 4;

const TOO_LONG: Fault = Fault::Error("ERR reply exceeds the maximum (reply-max-bytes)");

/// A command found no room, so the transaction has to be run again.
struct NoRoom;

impl Executor<'_, '_> {
    /// Answers a request that is no command, and takes note of it within MULTI.
    #[cold]
    pub(crate) fn refuse(
        &mut self,
        session: &mut Session,
        request: &Request<'_>,
        output: &mut Vec<u8>,
        fault: &Fault,
    ) {
        if let (true, Fault::Quoting(line)) = (request.name().eq_ignore_ascii_case(b"exec"), fault) {
            discard(session, &mut self.keys);
            let why = line.strip_prefix(b"ERR ").unwrap_or(line);
            let line = [&b"EXECABORT Transaction discarded because of: "[..], why].concat();
            return self.write_fault(output, session.protocol, "exec", &Fault::Quoting(line));
        }
        if let Some(queue) = session.queue.as_mut().and_then(Rc::get_mut) {
            queue.refuse();
        }
        self.write_fault(output, session.protocol, "a command", fault);
    }

    /// Keeps a command until EXEC.
    #[inline(never)]
    pub(crate) fn enqueue(
        &mut self,
        command: &'static Command,
        request: &Request<'_>,
        session: &mut Session,
        output: &mut Vec<u8>,
    ) {
        let bytes = session.transaction_bytes() + RequestQueue::memory_bytes_of(request);
        let fault = if command.has(NO_MULTI) {
            Fault::Error("ERR Command not allowed inside a transaction")
        } else if bytes > self.state.config.limits.max_request_bytes {
            Fault::Error("ERR the transaction exceeds the maximum (client-query-buffer-limit)")
        } else {
            let will_run = !has_changed(session, &self.keys);
            // A command that EXEC will not run need not be kept.
            let queue = session.queue.as_mut().and_then(Rc::get_mut);
            if let Some(queue) = queue.filter(|queue| will_run && !queue.refused) {
                queue.push(command, request);
            }
            return ReplyWriter::new(output, session.protocol).simple("QUEUED");
        };
        self.refuse(session, request, output, &fault);
    }

    /// EXEC within MULTI.
    #[inline(never)]
    pub(crate) fn run_transaction(&mut self, slot: usize, session: &mut Session, output: &mut Vec<u8>) {
        let Some(queue) = session.queue.clone() else {
            return;
        };
        self.run_or_abort(&queue, slot, session, output);
        // CLIENT LIST shows a transaction as long as it runs.
        session.queue = None;
    }

    fn run_or_abort(&mut self, queue: &Queue, slot: usize, session: &mut Session, output: &mut Vec<u8>) {
        let refused = queue.refused;
        let failed = if refused || has_changed(session, &self.keys) {
            None
        } else {
            self.prepare_transaction(queue, session, slot, output)
        };
        // A commit that failed just now counts as a change.
        let changed = has_changed(session, &self.keys);
        forget_watched(session, &mut self.keys);
        if refused {
            let text = "EXECABORT Transaction discarded because of previous errors.";
            return self.write_fault(output, session.protocol, "exec", &Fault::Error(text));
        }
        if changed {
            return ReplyWriter::new(output, session.protocol).null_array();
        }
        let start = self.run_all(queue, failed.as_deref(), slot, session, output);
        if self.keys.is_dirty() {
            let writes = queue.commands.iter().filter(|command| command.has(WRITE)).count();
            self.state.note_writes(writes as u64);
            self.mark(start, (slot, output));
        }
    }

    /// Commits and creates databases, which cannot be done between the commands. Returns the error line for
    /// commands that write to a database that could not be created.
    fn prepare_transaction(
        &mut self,
        queue: &Queue,
        session: &Session,
        slot: usize,
        output: &mut Vec<u8>,
    ) -> Option<String> {
        let written = databases_written(queue, session.database);
        let databases = self.keys.layout().databases();
        let missing = || (0..databases).filter(|&database| written[database]);
        let creates = missing().any(|database| !self.keys.exists(database));
        // Commands of other clients must not fail because this commit is too large.
        let is_large = queue.len() * WORDS_PER_COMMAND > self.batch_words_max;
        // If the commands have to be run again, they must find the same state.
        let may_run_again = self.keys.may_give_room();
        let must_deliver = queue.has(UNSUBSCRIBES) && self.keys.pubsub.has_messages();
        if creates || is_large || may_run_again || must_deliver || queue.may_walk() {
            self.commit_batch(Some((slot, output)));
        }
        if must_deliver {
            self.deliver_all(session, output);
        }
        let mut failed = None;
        for database in missing() {
            if !self.keys.exists(database)
                && let Err(error) = self.keys.create(database)
            {
                failed = Some(error_line(&error, self.keys.pool()));
            }
        }
        failed
    }

    /// Runs the commands, and again where space was reclaimed. Returns where their reply begins.
    fn run_all(
        &mut self,
        queue: &Queue,
        failed: Option<&str>,
        slot: usize,
        session: &mut Session,
        output: &mut Vec<u8>,
    ) -> usize {
        let mut can_reclaim = true;
        loop {
            let start = output.len();
            let mark = self.keys.pubsub.mark();
            // When commands run again, their other changes of the session come out the same.
            let before = (session.database, session.protocol);
            let may_ask_for_room = can_reclaim && self.keys.may_give_room();
            if queue.may_walk() {
                self.keys.begin_noting();
            }
            self.keys.set_in_one_batch(true);
            let told = self.keys.replication.effects.hold();
            let ran = self.keys.savepoint().map(|savepoint| {
                let ran = self.run_once(queue, failed, may_ask_for_room, session, output);
                if ran.is_err() {
                    self.keys.rollback_to(savepoint);
                }
                ran
            });
            self.keys.set_in_one_batch(false);
            self.keys.end_noting();
            self.keys.replication.release(matches!(ran, Ok(Ok(()))), told);
            match ran {
                Ok(Ok(())) => return start,
                Ok(Err(NoRoom)) => {
                    self.keys.pubsub.drop_since(mark);
                    output.truncate(start);
                    (session.database, session.protocol) = before;
                    self.commit_batch(Some((slot, output)));
                    can_reclaim = self.give_room().is_ok();
                }
                Err(fault) => {
                    self.write_fault(output, session.protocol, "exec", &fault);
                    return start;
                }
            }
        }
    }

    /// Runs the commands, each to its end. Returns early, with some of their effects, only if it may ask for
    /// room.
    fn run_once(
        &mut self,
        queue: &Queue,
        failed: Option<&str>,
        may_ask_for_room: bool,
        session: &mut Session,
        output: &mut Vec<u8>,
    ) -> Result<(), NoRoom> {
        let end_max = output.len().saturating_add(self.state.config.reply_bytes_max);
        ReplyWriter::new(output, session.protocol).array(queue.len());
        for (command, request) in queue.iter() {
            match self.run_queued(command, &request, session, output, end_max) {
                Ok(()) => {}
                Err(Fault::Engine(tembo::Error::Full { .. })) if may_ask_for_room => return Err(NoRoom),
                Err(Fault::MissingDatabase(database)) => {
                    let why =
                        failed.map_or_else(|| format!("ERR there is no database {database}"), str::to_owned);
                    self.write_fault(
                        output,
                        session.protocol,
                        command.name,
                        &Fault::Quoting(why.into_bytes()),
                    );
                }
                Err(fault) => self.write_fault(output, session.protocol, command.name, &fault),
            }
        }
        Ok(())
    }

    /// Runs one of the commands without a break. If it fails, the keyspace and the output are as before.
    fn run_queued(
        &mut self,
        command: &'static Command,
        request: &Request<'_>,
        session: &mut Session,
        output: &mut Vec<u8>,
        end_max: usize,
    ) -> Answer {
        let (begun, mut job, since) = (output.len(), None, Instant::now());
        let reply_bytes_max = end_max.saturating_sub(begun);
        let allowed = self.expect_still_allowed(session, command, request);
        let mut done =
            allowed.and_then(|()| self.attempt(command, request, session, output, &mut job, reply_bytes_max));
        while let (Ok(()), Some(under_way)) = (&done, job.take()) {
            let take = |reply: &[u8]| output.extend_from_slice(reply);
            done = under_way.advance(&self.keys, session.protocol, take).map(|rest| job = rest);
        }
        self.show_to_monitors(command, request, session);
        // The replies of writes were measured before they were written.
        if output.len() > end_max && !command.has(WRITE) {
            done = done.and(Err(TOO_LONG));
        }
        if done.is_err() {
            output.truncate(begun);
            self.state.commands.entry(command).failed += 1;
        }
        let noted = self.state.config.noted;
        self.state.commands.note_time(command, since.elapsed(), &noted);
        done
    }

    /// Discards the transaction and the watches of a client that disconnects.
    pub(crate) fn part_with(&mut self, session: &mut Session) {
        discard(session, &mut self.keys);
        give_up(session, &mut self.keys);
        self.keys.pubsub.part_with(session);
    }
}
