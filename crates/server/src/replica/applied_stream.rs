//! The stream of a master through the executor.
//!
//! # Invariants
//!
//! - The position moves when a command is done, before anything can commit what it did: the executor's own
//!   limit on a batch is lifted meanwhile, and is kept here between two commands.
//! - Within MULTI the position stays where MULTI began. EXEC begins with an empty batch, so that an EXEC of
//!   which a command fails can be dropped whole.
//! - Only commands that a master sends are run: those that write, and a few by name.

use std::net::SocketAddr;
use std::time::Instant;

use tembo_wire::{Limits, Parsed, Request, RequestParser};

use super::handshake::{Failure, failed};
use crate::acl::users::superuser;
use crate::address::Address;
use crate::commands::args::is;
use crate::commands::table::Command;
use crate::commands::table::flag::{BLOCKING, WRITE};
use crate::commands::transaction::discard;
use crate::executor::Executor;
use crate::session::Session;
use crate::wait_service::give_up;

/// The slot of the master's link among the clients, which has none.
const SLOT: usize = usize::MAX;
/// Commands after which clients are served.
const COMMANDS_PER_TURN: usize = 1024;
/// Commands of a stream that write nothing.
const OTHERS: [&str; 8] = ["ping", "select", "multi", "exec", "discard", "publish", "spublish", "pfcount"];
/// The longest key that an error shows.
const SHOWN_BYTES_MAX: usize = 64;
/// Errors that say nothing about the command: the pool is full, or a commit failed.
const PASSING: [&[u8]; 2] = [b"-OOM ", b"-MISCONF "];

/// The stream under way, without its connection.
pub(crate) struct AppliedStream {
    session: Session,
    parser: RequestParser,
    /// The bytes that came, up to `used` of them applied.
    pub(crate) input: Vec<u8>,
    used: usize,
    /// How many bytes the next command has at least.
    pub(super) needed: usize,
    /// Where the stream is, also within MULTI.
    offset: u64,
    output: Vec<u8>,
    /// The effects that were applied since the position: the beginning of a transaction.
    unfinished: Vec<u8>,
    /// The master asked for the position.
    pub(super) is_asked: bool,
}

impl AppliedStream {
    pub(crate) fn new(executor: &Executor<'_, '_>, peer: SocketAddr, local: SocketAddr) -> Self {
        let addresses = (Address::Ip(peer), Address::Ip(local));
        let mut session = Session::new(u64::MAX, addresses, -1, Instant::now(), superuser());
        (session.slot, session.authenticated, session.is_master) = (SLOT, true, true);
        let position = executor.keys.replication.position;
        session.database = position.map_or(0, |position| position.database.into());
        AppliedStream {
            session,
            parser: RequestParser::new(),
            input: Vec::new(),
            used: 0,
            needed: 1,
            offset: position.map_or(0, |position| position.offset),
            output: Vec::new(),
            unfinished: Vec::new(),
            is_asked: false,
        }
    }

    /// Whether a whole command may have arrived.
    pub(crate) fn is_waiting(&self) -> bool {
        self.input.len() - self.used >= self.needed
    }

    /// Reuses the room of applied bytes for new ones.
    pub(super) fn tidy(&mut self) {
        if self.used > 0 && (self.used == self.input.len() || self.used > 1 << 20) {
            self.input.drain(..self.used);
            self.used = 0;
            self.input.shrink_to(1 << 20);
        }
    }

    /// Ends a transaction that was cut off.
    pub(crate) fn end(&mut self, executor: &mut Executor<'_, '_>) {
        discard(&mut self.session, &mut executor.keys);
    }
}

/// Whether a command counts from now on. Since version 7 masters send none of these.
fn is_relative(request: &Request<'_>) -> bool {
    let has = |from: usize, words: &[&str]| {
        request.args().skip(from).any(|arg| words.iter().any(|word| is(arg, word)))
    };
    let name = request.name();
    match name {
        _ if ["expire", "pexpire", "setex", "psetex"].iter().any(|other| is(name, other)) => true,
        _ if is(name, "set") => has(3, &["EX", "PX"]),
        _ if is(name, "getex") => has(2, &["EX", "PX"]),
        _ if is(name, "restore") => request.get(2) != Some(b"0") && !has(4, &["ABSTTL"]),
        _ => false,
    }
}

impl Executor<'_, '_> {
    /// Applies whole commands of a stream, up to as many as a turn may. Their changes are in the batch.
    pub(crate) fn apply(&mut self, stream: &mut AppliedStream) -> Result<(), Failure> {
        let words_max = std::mem::replace(&mut self.batch_words_max, usize::MAX);
        let now_ms = self.keys.now_ms;
        let applied = self.apply_some(stream, words_max, now_ms);
        (self.batch_words_max, self.keys.now_ms) = (words_max, now_ms);
        stream.tidy();
        applied
    }

    fn apply_some(
        &mut self,
        stream: &mut AppliedStream,
        words_max: usize,
        now_ms: u64,
    ) -> Result<(), Failure> {
        for _ in 0..COMMANDS_PER_TURN {
            if self.keys.pubsub.is_backlogged() {
                break;
            }
            let AppliedStream { session, parser, input, used, needed, offset, output, is_asked, unfinished } =
                &mut *stream;
            let unread = &input[*used..];
            let consumed = match parser.parse(unread, &Limits::default()) {
                Ok(Parsed::Request(request)) => {
                    if is(request.name(), "replconf") {
                        *is_asked |= request.get(1).is_some_and(|word| is(word, "getack"));
                    } else {
                        self.apply_one(&request, session, output, *offset, now_ms)?;
                        if self.keys.replication.went_back {
                            // A commit before this command has failed, and the batch may not have this
                            // command alone.
                            self.abandon();
                            return self.expect_no_way_back();
                        }
                    }
                    request.consumed()
                }
                Ok(Parsed::Empty { consumed }) => consumed,
                Ok(Parsed::Incomplete { needed: more }) => {
                    *needed = unread.len() + more.max(1);
                    return Ok(());
                }
                Err(error) => {
                    return Err(failed(format!("the master's stream is broken at offset {offset}: {error}")));
                }
            };
            unfinished.extend_from_slice(&unread[..consumed]);
            (*used, *needed) = (*used + consumed, 1);
            *offset += consumed as u64;
            if session.queue.is_none()
                && let Some(position) = &mut self.keys.replication.position
            {
                (position.offset, position.database) = (*offset, session.database as u8);
                self.keys.replication.effects.relay(unfinished);
                unfinished.clear();
            }
            if self.keys.pending_words() > words_max {
                self.commit_batch(None);
                self.expect_no_way_back()?;
            }
        }
        Ok(())
    }

    /// Drops the changes of the batch, which are all of the stream.
    fn abandon(&mut self) {
        self.keys.abandon_batch();
        self.keys.pubsub.note_failed();
        self.marks.clear();
    }

    /// After a failed commit the stream is read again from where the pool is.
    pub(crate) fn expect_no_way_back(&mut self) -> Result<(), Failure> {
        match std::mem::take(&mut self.keys.replication.went_back) {
            true => Err(failed("a commit failed; the stream is read again from what is committed")),
            false => Ok(()),
        }
    }

    fn apply_one(
        &mut self,
        request: &Request<'_>,
        session: &mut Session,
        output: &mut Vec<u8>,
        offset: u64,
        now_ms: u64,
    ) -> Result<(), Failure> {
        let command = self.state.registry.get(request.name());
        let is_sent = |command: &&Command| {
            if command.name == "clusterx" {
                return request.get(1).is_some_and(|word| is(word, "moves"));
            }
            command.has(WRITE) && !command.has(BLOCKING) || OTHERS.contains(&command.name)
        };
        let Some(command) = command.filter(is_sent) else {
            return Err(not_applied(None, request, offset, "this server has no such command for replicas"));
        };
        let is_exec = command.name == "exec" && session.queue.is_some();
        let relative = match &session.queue {
            Some(queue) if is_exec => queue.iter().any(|(_, request)| is_relative(&request)),
            _ => is_relative(request),
        };
        if is_exec {
            self.commit_batch(None);
            self.expect_no_way_back()?;
        }
        self.keys.now_ms = if relative { now_ms } else { 0 };
        let errors = self.state.stats.errors;
        output.clear();
        self.execute(SLOT, request, session, output, &mut None);
        give_up(session, &mut self.keys);
        if self.state.stats.errors == errors {
            return Ok(());
        }
        if is_exec {
            self.abandon();
        }
        let error = output.split(|&byte| byte == b'\n').find(|line| line.starts_with(b"-"));
        let error = error.unwrap_or_default().trim_ascii();
        let why = String::from_utf8_lossy(error.strip_prefix(b"-").unwrap_or(error)).into_owned();
        if PASSING.iter().any(|word| error.starts_with(word)) {
            return Err(failed(format!("{} at offset {offset} failed: {why}", command.name)));
        }
        Err(not_applied(Some(command), request, offset, &why))
    }
}

fn not_applied(command: Option<&Command>, request: &Request<'_>, offset: u64, why: &str) -> Failure {
    let at = command.map_or(1, |command| command.keys.positions(request.arg_count()).next().unwrap_or(1));
    let clipped = |bytes: &[u8]| bytes[..bytes.len().min(SHOWN_BYTES_MAX)].escape_ascii().to_string();
    let key = request.get(at).map(|key| format!(" for the key \"{}\"", clipped(key))).unwrap_or_default();
    let name = clipped(request.name()).to_uppercase();
    let why = format!("{name}{key} at offset {offset} cannot be applied: {why}");
    Failure { is_final: true, ..super::handshake::failed(why) }
}
