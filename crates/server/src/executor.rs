//! Runs commands, one after another, in batches that are committed together.
//!
//! # What is acknowledged is durable
//!
//! A reply that depends on uncommitted writes (a write's own, or that of a later read in the batch) waits in
//! its connection's output buffer and is *marked*. A commit drops the marks. If the commit fails, each marked
//! reply is replaced by an error, and the writes are gone. Output is sent only while there are no marks.
//!
//! # A command that fails leaves nothing
//!
//! Each command that writes is a transaction nested in the batch, with one undo point: its writes take none
//! of their own. If the command ends in a fault, a full pool for example, the batch is rolled back to the
//! undo point, and the error replaces the reply so far.
//! Within EXEC this holds for each of its commands: see [`crate::transaction`].
//!
//! # Ends of lists
//!
//! A push or pop that follows another one at the same end of a list changes it in memory
//! ([`list_end`](crate::keyspace::collection::list_end)). The batch gets the end before anything else runs
//! ([`Executor::store_list_end`]), or with the commit.

use std::ops::Range;

use tembo::PREFETCH_KEYS_MAX;
use tembo_wire::{Limits, Protocol, ProtocolError, ReplyWriter, Request};

use crate::client_ref::ClientRef;
use crate::clients::Clients;
use crate::commands::context::{Context, Handlers, Out};
use crate::commands::heartbeat::LEASE_EXPIRED;
use crate::commands::key_arguments::places_of_keys;
use crate::commands::keys_job::KeysJob;
use crate::commands::table::Command;
use crate::commands::table::flag::{
    AFTER_COMMIT, AT_ONCE, DENYOOM, FOR_SUBSCRIBERS, NO_AUTH, READONLY, RUNS_QUEUE, STALE, UNSUBSCRIBES,
    WRITE,
};
use crate::config::LogLevel;
use crate::conn::Conn;
use crate::door::Door;
use crate::fault::{
    Answer, Fault, MALFORMED, NO_AUTHENTICATION, OUT_OF_MEMORY, error_line, unknown_command,
    unknown_subcommand, without_line_ends,
};
use crate::foreign_input;
use crate::keyspace::Keyspace;
use crate::keyspace::format::KEY_BYTES_MAX;
use crate::log::MessageKind;
use crate::replica::Phase;
use crate::script::cache::Scripts;
use crate::session::{Replies, Session};
use crate::state::State;
use crate::tracking::Mode;

/// The limits of a client that has not given the password yet.
pub(crate) const STRANGERS_LIMITS: Limits =
    Limits { max_bulk_bytes: 16 << 10, max_args: 10, max_line_bytes: 64 << 10, max_request_bytes: 1 << 20 };
const ARRIVING: &str = "LOADING a copy of the master's data is being loaded, or dropped";
const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
const TOO_FEW: &str = "NOREPLICAS Not enough good replicas to write.";
const MASTER_DOWN: &str = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
const NOT_FOR_MONITORS: &str = "ERR Replica can't interact with the keyspace";

/// A reply that depends on uncommitted writes.
pub(crate) struct Mark {
    pub(crate) slot: usize,
    pub(crate) reply: Range<usize>,
}

/// The attempts that were made for a command already.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    /// Whether the command is run again with all free space.
    pub(crate) is_built_again: bool,
    /// How often keys were evicted, or the pool was compacted, for the command.
    pub(crate) evictions: u32,
}

/// The output buffer of the connection that is being served, and its slot.
pub(crate) type Current<'a> = (usize, &'a mut Vec<u8>);

pub(crate) struct Executor<'s, 'p> {
    pub(crate) keys: Keyspace<'p>,
    pub(crate) state: &'s mut State,
    pub(crate) clients: Clients,
    pub(crate) scripts: Scripts,
    pub(crate) handlers: Handlers,
    pub(crate) marks: Vec<Mark>,
    /// Clients that waited and have got replies that are not committed.
    pub(crate) replied: Vec<ClientRef>,
    pub(crate) batch_words_max: usize,
    /// The way in for new clients while a script is busy.
    pub(crate) door: Option<Door<'s>>,
}

impl<'s, 'p> Executor<'s, 'p> {
    /// Runs the requests that `conn`, which is out of its slot, has received, until one is incomplete or the
    /// connection is blocked, or has got enough replies in this turn, so that others are served first.
    pub(crate) fn process(&mut self, slot: usize, conn: &mut Conn) {
        conn.stalled = false;
        self.state.commands.begin();
        conn.session.buffers = conn.buffer_sizes();
        // Requests until the next look ahead. None before the first: it may be the only one.
        let mut hinted = 1;
        loop {
            let waits = conn.session.publishing && self.keys.pubsub.is_backlogged();
            if conn.is_blocked() || waits || conn.output.bytes.len() > self.state.config.turn_reply_bytes {
                conn.stalled = !conn.input.unread().is_empty();
                return;
            }
            let Conn { parser, input, output, session, job, .. } = conn;
            if hinted == 0 {
                self.prefetch(session.database, input.unread());
                hinted = PREFETCH_KEYS_MAX;
            }
            hinted -= 1;
            let is_stranger = self.needs_password(session);
            let limits = if is_stranger { &STRANGERS_LIMITS } else { &self.state.config.limits };
            let consumed = match parser.parse(input.unread(), limits) {
                Ok(tembo_wire::Parsed::Request(request)) => {
                    if self.state.may_pause() && self.must_wait(&request, session) {
                        // The request is parsed again later.
                        (conn.stalled, conn.paused, self.state.has_waiting) = (true, true, true);
                        return;
                    }
                    self.serve_request(slot, &request, session, &mut output.bytes, job);
                    request.consumed()
                }
                Ok(tembo_wire::Parsed::Empty { consumed }) => consumed,
                Ok(tembo_wire::Parsed::Incomplete { needed }) => {
                    conn.needed = needed;
                    return;
                }
                Err(error) => {
                    write_protocol_error(&mut output.bytes, session, error, is_stranger);
                    session.quitting = true;
                    self.note_protocol_error(session, error);
                    return;
                }
            };
            input.consume(consumed);
        }
    }

    /// Runs a request, whether its reply is wanted or not.
    #[inline(always)]
    fn serve_request(
        &mut self,
        slot: usize,
        request: &Request<'_>,
        session: &mut Session,
        output: &mut Vec<u8>,
        job: &mut Option<KeysJob>,
    ) {
        let posted = self.keys.pubsub.posted;
        // Keys that come from another node expire by the clock of that node until the move has ended.
        let now_ms = self.keys.now_ms;
        if session.importing {
            self.keys.now_ms = 0;
        }
        match session.replies {
            Replies::On => self.execute(slot, request, session, output, job),
            _ => self.execute_mutely(slot, request, session, output, job),
        }
        self.keys.now_ms = now_ms;
        if matches!(session.replies, Replies::Off | Replies::SkipNext) {
            // The earlier replies are final, so that the later ones can be cut off.
            self.mute(slot, session, output);
        }
        session.publishing = self.keys.pubsub.posted != posted;
        // CLIENT CACHING is for the next command or transaction.
        session.tracking.caching &= session.queue.is_some() || request.name().eq_ignore_ascii_case(b"client");
    }

    /// Whether a command has to wait for the end of a pause.
    #[cold]
    fn must_wait(&self, request: &Request<'_>, session: &Session) -> bool {
        let Some(pause) = self.state.pause() else {
            return false;
        };
        let changes = |flags: &dyn Fn(u32) -> bool| flags(WRITE | AFTER_COMMIT);
        !pause.of_writes_only
            || self.resolve(request).is_ok_and(|command| match &session.queue {
                Some(queue) if command.has(RUNS_QUEUE) => changes(&|flags| queue.has(flags)),
                Some(_) => false,
                None => changes(&|flags| command.has(flags)),
            })
    }

    /// Whether a client has to give the password first.
    pub(crate) fn needs_password(&self, session: &Session) -> bool {
        !session.authenticated && self.state.users.ask_for_password()
    }

    #[cold]
    pub(crate) fn note_protocol_error(&mut self, session: &Session, error: ProtocolError) {
        self.state.stats.errors += 1;
        self.state.commands.note_error(b"ERR");
        let too_big = matches!(error, ProtocolError::RequestTooBig);
        self.state.stats.query_limit_disconnections += u64::from(too_big);
        let message = format_args!("client {session} is disconnected: {error}");
        self.state.log(LogLevel::Notice, MessageKind::Protocol, message);
    }

    /// Refuses a request that is no command, and disconnects its sender if that is no Redis client.
    #[cold]
    fn refuse_request(
        &mut self,
        request: &Request<'_>,
        session: &mut Session,
        output: &mut Vec<u8>,
        fault: &Fault,
    ) {
        if !foreign_input::is_http(request) {
            return self.refuse(session, request, output, fault);
        }
        session.killed = true;
        let message = format_args!(
            "client {session} is disconnected: it sent a line of HTTP. A web page may be trying to run commands here \
             through its visitor's browser, or a program takes this for a web server"
        );
        self.state.log(LogLevel::Warning, MessageKind::Security, message);
    }

    /// Prefetches the keys of the next requests of a pipeline.
    fn prefetch(&mut self, database: usize, input: &[u8]) {
        let mut keys = tembo_wire::keys_ahead(input, PREFETCH_KEYS_MAX).peekable();
        if keys.peek().is_some() {
            self.keys.prefetch(database, keys);
        }
    }

    /// Runs a command whose reply is not wanted. No reply of the connection is marked.
    #[cold]
    fn execute_mutely(
        &mut self,
        slot: usize,
        request: &Request<'_>,
        session: &mut Session,
        output: &mut Vec<u8>,
        job: &mut Option<KeysJob>,
    ) {
        let start = output.len();
        let replies = session.replies;
        self.execute(slot, request, session, output, job);
        if session.replies == Replies::On {
            // CLIENT REPLY ON and RESET answer.
            return;
        }
        output.truncate(start);
        session.note_replies(replies);
        self.marks.retain(|mark| mark.slot != slot);
        if replies == Replies::Skip && session.replies == Replies::Skip {
            session.replies = Replies::On;
        }
    }

    /// Makes the replies of a connection final whose next ones are not wanted.
    #[cold]
    fn mute(&mut self, slot: usize, session: &mut Session, output: &mut Vec<u8>) {
        if self.marks.iter().any(|mark| mark.slot == slot) {
            self.commit_batch(Some((slot, output)));
        }
        if session.replies == Replies::SkipNext {
            session.replies = Replies::Skip;
        }
    }

    pub(crate) fn execute(
        &mut self,
        slot: usize,
        request: &Request<'_>,
        session: &mut Session,
        output: &mut Vec<u8>,
        job: &mut Option<KeysJob>,
    ) {
        self.state.stats.commands += 1;
        let command = match self.resolve(request) {
            Ok(command) => command,
            Err(fault) => return self.refuse_request(request, session, output, &fault),
        };
        let mut refusal = self.not_allowed(session, command, request);
        if refusal.is_none() {
            if let Some(fault) = self.elsewhere(session, command, request) {
                return self.redirect(session, command, request, output, &fault);
            }
            refusal = self.not_now(session, command, None);
        }
        if let Some(fault) = refusal {
            self.state.commands.entry(command).rejected += 1;
            return self.refuse(session, request, output, &fault);
        }
        begin(session, command);
        if session.queue.is_some() {
            if !command.has(AT_ONCE) {
                return self.enqueue(command, request, session, output);
            }
            if command.has(RUNS_QUEUE) {
                self.store_list_end(Some((slot, output)));
                self.run_transaction(slot, session, output);
                if self.keys.waiters.has_ready() {
                    self.serve_waiting(Some((slot, output)));
                }
                self.note_command(command, request, session);
                return self.show_to_monitors(command, request, session);
            }
        }
        let start = self.run(command, request, (slot, output), session, job);
        self.keys.set_in_one_batch(false);
        self.note_command(command, request, session);
        self.show_to_monitors(command, request, session);
        // A command that waits has no reply.
        let has_reply = session.waiting.is_none();
        if has_reply && self.keys.is_dirty() && command.has(READONLY | WRITE | AFTER_COMMIT) {
            self.state.note_writes(u64::from(command.has(WRITE)));
            self.mark(start, (slot, output));
        }
        if self.keys.waiters.has_ready() {
            self.serve_waiting(Some((slot, output)));
        }
    }

    /// Runs a command, again if that helps, and writes its reply or its fault; returns where that begins.
    #[inline(always)]
    fn run(
        &mut self,
        command: &'static Command,
        request: &Request<'_>,
        (slot, output): (usize, &mut Vec<u8>),
        session: &mut Session,
        job: &mut Option<KeysJob>,
    ) -> usize {
        let mut start = output.len();
        if self.keys.has_end() && self.run_at_end(command, request, session, output) {
            return start;
        }
        self.store_list_end(Some((slot, output)));
        // Replies before this one have another length if their commit failed.
        start = output.len();
        let (mut tries, reply_bytes_max) = (Tries::default(), self.state.config.reply_bytes_max);
        while let Err(fault) = self.attempt(command, request, session, output, job, reply_bytes_max) {
            output.truncate(start);
            if let Err(fault) = self.prepare_retry(fault, &mut tries, (slot, output))
                && !self.may_do_in_place(command, &fault)
            {
                self.write_fault(output, session.protocol, command.name, &fault);
                self.state.commands.entry(command).failed += 1;
                break;
            }
            if command.has(UNSUBSCRIBES) {
                self.deliver_all(session, output);
            }
            start = output.len();
        }
        start
    }

    /// The reason why a client may not run a command, if there is one.
    pub(crate) fn not_for(
        &mut self,
        session: &Session,
        command: &Command,
        request: &Request<'_>,
    ) -> Option<Fault> {
        self.not_allowed(session, command, request).or_else(|| self.not_now(session, command, None))
    }

    /// Why a client is not allowed a command, if it is not: its password, or its user.
    #[inline(always)]
    fn not_allowed(&mut self, session: &Session, command: &Command, request: &Request<'_>) -> Option<Fault> {
        if self.needs_password(session) && !command.has(NO_AUTH) {
            return Some(Fault::Quoting(NO_AUTHENTICATION.as_bytes().to_vec()));
        }
        if !session.user.may_all
            && let Some(fault) = self.refusal(session, command, request)
        {
            return Some(fault);
        }
        None
    }

    /// Why a client that is allowed a command may not run it now, if it may not. Scripts know of the lease.
    #[inline(always)]
    pub(crate) fn not_now(&self, session: &Session, command: &Command, fence: Option<bool>) -> Option<Fault> {
        if session.is_subscriber() && session.protocol == Protocol::Resp2 && !command.has(FOR_SUBSCRIBERS) {
            return Some(not_for_subscribers(command));
        }
        if self.state.config.replica.min_replicas > 0 && self.lacks_replicas(session, command) {
            return Some(Fault::Quoting(TOO_FEW.as_bytes().to_vec()));
        }
        if self.state.config.needs_lease && self.lacks_lease(session, command, fence) {
            return Some(Fault::Quoting(LEASE_EXPIRED.as_bytes().to_vec()));
        }
        if self.state.eviction.is_refusing && command.has(DENYOOM) && !session.is_master {
            return Some(Fault::Error(OUT_OF_MEMORY));
        }
        let is_replica = self.state.role.master.is_some() || self.keys.replication.is_arriving;
        if is_replica && !session.is_master {
            let fault = self.not_on_replica(session, command);
            if fault.is_some() {
                return fault;
            }
        }
        let is_monitor = session.monitors.is_some() && command.has(READONLY | WRITE | AFTER_COMMIT);
        is_monitor.then(|| Fault::Quoting(NOT_FOR_MONITORS.as_bytes().to_vec()))
    }

    /// The reason why a client of a replica may not run a command, if there is one.
    #[cold]
    fn not_on_replica(&self, session: &Session, command: &Command) -> Option<Fault> {
        let State { role, config, .. } = &*self.state;
        let writes = session.writes(command);
        if writes && role.master.is_some() && config.replica.read_only {
            return Some(Fault::Quoting(READ_ONLY.as_bytes().to_vec()));
        }
        if writes && self.keys.replication.is_arriving {
            return Some(Fault::Quoting(ARRIVING.as_bytes().to_vec()));
        }
        let is_stale = role.master.is_some() && role.phase != Phase::Up && !config.replica.serves_stale;
        is_stale.then_some(MASTER_DOWN).filter(|_| !command.has(STALE)).map(Fault::Error)
    }

    /// Notes how long a command took, which has ended.
    #[inline]
    fn note_command(&mut self, command: &'static Command, request: &Request<'_>, session: &Session) {
        let State { commands, config, .. } = &mut *self.state;
        commands.note(command, request, session, &config.noted);
    }

    /// Marks the reply that begins at `start`, and commits the batch if it has become large.
    #[inline(always)]
    pub(crate) fn mark(&mut self, start: usize, (slot, output): Current<'_>) {
        self.marks.push(Mark { slot, reply: start..output.len() });
        if self.keys.pending_words() > self.batch_words_max {
            self.commit_batch(Some((slot, output)));
        }
    }

    /// The command, or subcommand, that a request asks for, if it exists, whatever its arity.
    pub(crate) fn find(&self, request: &Request<'_>) -> Option<&'static Command> {
        let command = self.state.registry.get(request.name())?;
        match request.get(1).filter(|_| !command.subcommands.is_empty()) {
            Some(name) => command.subcommand(name),
            None => Some(command),
        }
    }

    /// The command, or subcommand, that is asked for, and whose arity the request has.
    pub(crate) fn resolve(&self, request: &Request<'_>) -> Answer<&'static Command> {
        let mut command = self.state.registry.get(request.name()).ok_or_else(|| unknown_command(request))?;
        if let Some(name) = request.get(1).filter(|_| !command.subcommands.is_empty()) {
            command = command.subcommand(name).ok_or_else(|| unknown_subcommand(command, name))?;
        }
        if !command.takes(request.arg_count()) {
            let text = format!("ERR wrong number of arguments for '{}' command", command.name);
            return Err(Fault::Quoting(text.into_bytes()));
        }
        Ok(command)
    }

    /// Runs a command once; if it fails, the keyspace is as before.
    #[inline(always)]
    pub(crate) fn attempt(
        &mut self,
        command: &'static Command,
        request: &Request<'_>,
        session: &mut Session,
        output: &mut Vec<u8>,
        job: &mut Option<KeysJob>,
        reply_bytes_max: usize,
    ) -> Answer {
        if command.runs_script() {
            return self.run_script(command, request, session, output, reply_bytes_max);
        }
        self.keys.drop_end();
        if let Some(accesses) = &mut self.keys.accesses {
            accesses.begin_command(self.keys.now_ms, command.only_looks);
        }
        let is_told = self.keys.replication.effects.is_on && command.has(WRITE | AFTER_COMMIT);
        let told =
            if is_told { Some(self.look_for_expired(command, request, session.database)?) } else { None };
        let begin = if command.has(WRITE) { Some(self.keys.begin_command()?) } else { None };
        if told.is_some() {
            self.keys.set_dirty_aside();
        }
        let mark = self.keys.pubsub.mark();
        self.keys.pubsub.tracking.current = session.id;
        let out = Out::new(output, session.protocol, reply_bytes_max);
        let Executor { keys, state, clients, scripts, handlers, .. } = self;
        let mut context = Context { keys, session, out, state, clients, scripts, handlers, job };
        let result = handlers.of(command)(&mut context, request);
        match (&result, begin) {
            (Ok(()), Some(_)) => self.keys.end_command(),
            (Err(_), Some(begin)) => {
                self.keys.undo_command(begin);
                self.keys.pubsub.drop_since(mark);
            }
            (_, None) => {}
        }
        if let Some(told) = told {
            self.tell_effects(command, request, session.database, (told, result.is_ok()));
        }
        if session.tracking.reads && command.has(READONLY) {
            self.remember_read(command, request, session);
        }
        result
    }

    /// Notes the keys that a command has read for a client that tracks them.
    #[cold]
    fn remember_read(&mut self, command: &Command, request: &Request<'_>, session: &Session) {
        let pubsub = &mut self.keys.pubsub;
        let mode = pubsub.tracking.get(session.id).map(|tracked| tracked.mode);
        let is_wanted = match mode {
            Some(Mode::OptIn) => session.tracking.caching,
            Some(Mode::OptOut) => !session.tracking.caching,
            _ => true,
        };
        if is_wanted && let Some(places) = places_of_keys(command, request) {
            let keys = places.into_iter().map(|place| &request[place]);
            pubsub.remember(session.id, keys.filter(|key| key.len() <= KEY_BYTES_MAX));
        }
    }

    /// Goes on with the work of a command of `conn`.
    pub(crate) fn advance_job(&mut self, slot: usize, conn: &mut Conn) {
        let Some(job) = conn.job.take() else {
            return;
        };
        let output = &mut conn.output.bytes;
        self.commit_batch(Some((slot, output)));
        let protocol = conn.session.protocol;
        match job.advance(&self.keys, protocol, |reply| output.extend_from_slice(reply)) {
            Ok(job) => conn.job = job,
            Err(fault) => self.write_fault(output, protocol, conn.session.command, &fault),
        }
    }

    /// Commits the batch. Afterwards all output may be sent.
    pub(crate) fn commit_batch(&mut self, current: Option<Current<'_>>) {
        let committed = self.keys.commit();
        match &committed {
            Ok(()) => self.keys.pubsub.note_committed(),
            Err(_) => self.keys.pubsub.note_failed(),
        }
        if let Err(error) = committed {
            let pool = self.keys.pool();
            self.state.log_failed_commit(self.marks.len(), &error, pool);
            let line = match error {
                tembo::Error::Full { .. } | tembo::Error::Internal { .. } => error_line(&error, pool),
                error => format!("MISCONF The write could not be made durable and was undone: {error}"),
            };
            self.state.stats.errors += self.marks.len() as u64;
            // Clients may have begun to watch a change that is undone now.
            self.keys.watches.touch_everything();
            self.serve_or_keep_waiting(false);
            self.replace_marked(current, &line);
        } else if !self.replied.is_empty() {
            self.serve_or_keep_waiting(true);
        }
        self.marks.clear();
    }

    /// Replaces each marked reply by an error.
    fn replace_marked(&mut self, mut current: Option<Current<'_>>, line: &str) {
        self.marks.sort_by_key(|mark| (mark.slot, mark.reply.start));
        for marks in self.marks.chunk_by(|a, b| a.slot == b.slot) {
            let slot = marks[0].slot;
            let output = match &mut current {
                Some((served, output)) if *served == slot => Some(&mut **output),
                _ => self.clients.get_mut(slot).map(|conn| &mut conn.output.bytes),
            };
            if let Some(output) = output {
                replace(output, marks, line);
            }
        }
    }

    pub(crate) fn write_fault(
        &mut self,
        output: &mut Vec<u8>,
        protocol: Protocol,
        command: &'static str,
        fault: &Fault,
    ) {
        self.state.stats.errors += 1;
        let pool = self.keys.pool();
        let mut reply = ReplyWriter::new(output, protocol);
        match fault {
            Fault::Error(line) => {
                reply.error(line);
                self.state.commands.note_error(line.as_bytes());
            }
            Fault::Quoting(line) => {
                reply.error(without_line_ends(line));
                self.state.commands.note_error(line);
            }
            Fault::Engine(error) => {
                let line = error_line(error, pool);
                reply.error(&line);
                self.state.commands.note_error(line.as_bytes());
                self.state.log_fault(command, error, pool);
            }
            Fault::Malformed => {
                reply.error_fmt(format_args!("ERR {MALFORMED}"));
                self.state.commands.note_error(b"ERR");
                let message = format_args!("{command} failed: {MALFORMED}");
                self.state.log(LogLevel::Warning, MessageKind::Damage, message);
            }
            // The executor runs such a command again, where that is possible.
            Fault::NeedsCommit | Fault::MissingDatabase(_) => {
                reply.error("ERR the command cannot run here");
                self.state.commands.note_error(b"ERR");
            }
        }
    }
}

/// Notes the running command in the client's session.
#[inline(always)]
fn begin(session: &mut Session, command: &Command) {
    session.command = command.name;
    session.has_written |= command.has(WRITE | AFTER_COMMIT | RUNS_QUEUE);
    session.is_plain &= !command.has(READONLY | WRITE | AFTER_COMMIT | RUNS_QUEUE | UNSUBSCRIBES);
}

/// Replaces the marked parts of `output`, which are in order, by an error line each.
fn replace(output: &mut Vec<u8>, marks: &[Mark], line: &str) {
    let mut tail_start = marks[0].reply.start;
    let tail = output.split_off(tail_start);
    let tail_offset = tail_start;
    for mark in marks {
        output.extend_from_slice(&tail[tail_start - tail_offset..mark.reply.start - tail_offset]);
        ReplyWriter::new(output, Protocol::Resp2).error(line);
        tail_start = mark.reply.end;
    }
    output.extend_from_slice(&tail[tail_start - tail_offset..]);
}

#[cold]
pub(crate) fn write_protocol_error(
    output: &mut Vec<u8>,
    session: &Session,
    error: ProtocolError,
    is_stranger: bool,
) {
    let mut reply = writer(output, session);
    match error {
        ProtocolError::InvalidCount if is_stranger => {
            reply.error("ERR Protocol error: unauthenticated multibulk length");
        }
        ProtocolError::InvalidLength if is_stranger => {
            reply.error("ERR Protocol error: unauthenticated bulk length");
        }
        error => reply.error_fmt(format_args!("ERR {error}")),
    }
}

fn writer<'a>(output: &'a mut Vec<u8>, session: &Session) -> ReplyWriter<'a> {
    ReplyWriter::new(output, session.protocol)
}

/// A connection of RESP2 cannot tell a message from a reply.
#[cold]
fn not_for_subscribers(command: &Command) -> Fault {
    let text = format!(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
        command.name
    );
    Fault::Quoting(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_replies_become_errors_and_others_stay() {
        let mut output = b"+a\r\n:1\r\n+b\r\n$1\r\nx\r\n+c\r\n".to_vec();
        let mark = |reply| Mark { slot: 0, reply };
        replace(&mut output, &[mark(4..8), mark(12..19)], "E x");
        assert_eq!(output, b"+a\r\n-E x\r\n+b\r\n-E x\r\n+c\r\n");
        replace(&mut output, &[mark(0..4)], "E");
        assert_eq!(output, b"-E\r\n-E x\r\n+b\r\n-E x\r\n+c\r\n");
    }
}
