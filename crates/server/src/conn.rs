//! One client's connection: its socket, its buffers and its state.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use tembo_wire::RequestParser;

use crate::acl::user::User;
use crate::address::{Accepted, ClientStream};
use crate::buffer::{BufferPool, Filled, Input, Output};
use crate::commands::keys_job::KeysJob;
use crate::config::{OutputLimit, OutputLimits};
use crate::held::HeldOutput;
use crate::session::{BufferSizes, Session, Standing};

/// The limit on kept replies that a client exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverOutput {
    /// Too much.
    Hard,
    /// Too much for too long.
    Soft,
}

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) stream: ClientStream,
    pub(crate) session: Session,
    pub(crate) parser: RequestParser,
    pub(crate) input: Input,
    pub(crate) output: Output,
    /// The part of the output that waits for the device.
    pub(crate) held: HeldOutput,
    /// Work of an unfinished command; no other command of the client runs until it is done.
    pub(crate) job: Option<KeysJob>,
    /// How many bytes the request under way lacks.
    pub(crate) needed: usize,
    /// The socket may have bytes. Events are edges, so this is remembered until a read finds nothing.
    pub(crate) readable: bool,
    /// The socket may take bytes; likewise.
    pub(crate) writable: bool,
    /// An event said that the client will send no more, so a short read is not the last.
    pub(crate) hung_up: bool,
    /// The client will send no more, and all it sent was read.
    pub(crate) ended: bool,
    /// Whole requests may be waiting in the input, because others are to be served first.
    pub(crate) stalled: bool,
    /// Its next command waits for the end of a pause.
    pub(crate) paused: bool,
    /// The socket failed.
    pub(crate) broken: bool,
    /// Whether the connection is in the event loop's queue.
    pub(crate) queued: bool,
    /// Whether the client has sent something.
    pub(crate) heard: bool,
    /// The time since which more of its replies wait than the soft limit allows.
    over_soft_limit: Option<Instant>,
    /// Its share of [`Clients::memory_bytes`](crate::clients::Clients::memory_bytes).
    pub(crate) counted_bytes: usize,
}

impl Conn {
    /// Takes on a connection that was just accepted.
    pub(crate) fn new((stream, peer, local): Accepted, id: u64, now: Instant, user: Arc<User>) -> Self {
        let session = Session::new(id, (peer, local), stream.as_raw_fd(), now, user);
        Conn {
            stream,
            session,
            parser: RequestParser::new(),
            input: Input::default(),
            output: Output::default(),
            held: HeldOutput::default(),
            job: None,
            needed: 1,
            readable: true,
            writable: true,
            hung_up: false,
            ended: false,
            stalled: false,
            paused: false,
            broken: false,
            queued: false,
            heard: false,
            over_soft_limit: None,
            counted_bytes: 0,
        }
    }

    /// Lets TCP probe the connection once it was silent for this long.
    pub(crate) fn keep_alive(&self, after: Duration) -> io::Result<()> {
        let Some(stream) = self.stream.tcp() else {
            return Ok(());
        };
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, after)?;
        sockopt::set_tcp_keepintvl(stream, (after / 3).max(Duration::from_secs(1)))?;
        sockopt::set_tcp_keepcnt(stream, 3)?;
        Ok(())
    }

    /// Reads once, if there may be something, and returns how many bytes came.
    pub(crate) fn receive(&mut self, pool: &mut BufferPool) -> usize {
        match self.input.fill(&mut self.stream, self.needed, pool) {
            Ok(Filled::More(bytes)) => bytes,
            Ok(Filled::Drained(bytes)) => {
                self.readable = self.stream.has_more() || bytes > 0 && self.hung_up;
                bytes
            }
            Ok(Filled::Closed) => {
                (self.readable, self.ended) = (false, true);
                0
            }
            Err(_) => {
                self.broken = true;
                0
            }
        }
    }

    /// Writes once, if there is something and the socket may take it, and returns how many bytes went.
    pub(crate) fn send(&mut self) -> usize {
        if self.writable && self.stream.has_unsent() {
            self.push();
        }
        let sendable = self.held.sendable(self.output.unsent());
        if sendable == 0 || !self.writable {
            return 0;
        }
        match self.output.flush(&mut self.stream, sendable) {
            Ok(flushed) => {
                self.writable = !flushed.full && !self.stream.has_unsent();
                self.held.note_sent(flushed.bytes);
                flushed.bytes
            }
            Err(_) => {
                self.broken = true;
                0
            }
        }
    }

    /// Sends the records of the encryption to the socket.
    #[cold]
    fn push(&mut self) {
        match self.stream.push() {
            Ok(is_done) => self.writable = is_done,
            Err(_) => self.broken = true,
        }
    }

    /// Whether the client waits for something that is to happen.
    pub(crate) fn is_waiting(&self) -> bool {
        self.session.waiting.is_some() || self.session.awaiting.is_some() || self.session.is_saving
    }

    /// Whether the client's requests must wait.
    pub(crate) fn is_blocked(&self) -> bool {
        self.job.is_some() || self.is_waiting() || self.session.quitting || self.session.killed || self.broken
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_over(&self) -> bool {
        let at_rest = self.output.unsent() == 0 && self.job.is_none() && !self.stream.has_unsent();
        let no_more = self.session.quitting || self.ended && !self.stalled;
        self.broken || self.session.killed || at_rest && no_more
    }

    /// Whether something can be done for the client without another event.
    pub(crate) fn is_ready(&self) -> bool {
        let sendable = self.held.sendable(self.output.unsent());
        let can_send = self.writable && (sendable > 0 || self.stream.has_unsent());
        let can_go_on = (self.readable || self.stalled) && !self.is_blocked() && !self.paused;
        can_send || can_go_on || self.job.is_some()
    }

    /// The limit on kept replies that the connection exceeds at the end of a round.
    pub(crate) fn check_output(&mut self, limit: &OutputLimit, now: Instant) -> Option<OverOutput> {
        let unsent = self.output.unsent() as u64;
        if limit.soft_bytes == 0 || unsent <= limit.soft_bytes {
            self.over_soft_limit = None;
        } else {
            self.over_soft_limit.get_or_insert(now);
        }
        if limit.hard_bytes > 0 && unsent > limit.hard_bytes {
            return Some(OverOutput::Hard);
        }
        self.is_over_soft_limit(limit, now).then_some(OverOutput::Soft)
    }

    /// Whether too much waited for too long, also if nothing has happened since.
    pub(crate) fn is_over_soft_limit(&self, limit: &OutputLimit, now: Instant) -> bool {
        let patience = Duration::from_secs(limit.soft_seconds);
        limit.soft_bytes > 0
            && self.over_soft_limit.is_some_and(|since| now.saturating_duration_since(since) >= patience)
    }

    /// All memory that the connection has, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.input.capacity()
            + self.output.capacity()
            + self.parser.memory_bytes()
            + self.job.as_ref().map_or(0, KeysJob::memory_bytes)
            + self.session.memory_bytes()
            + self.stream.memory_bytes()
    }

    pub(crate) fn buffer_sizes(&self) -> BufferSizes {
        let (queue_capacity, queue_chunks) = self.output.queue_size();
        BufferSizes {
            input: self.input.unread().len(),
            input_capacity: self.input.capacity(),
            output: self.output.bytes.len(),
            output_capacity: self.output.bytes.capacity(),
            queue_capacity,
            queue_chunks,
            arguments: self.parser.memory_bytes(),
            memory: self.memory_bytes(),
            output_waits: self.output.unsent() > 0 && !self.writable,
        }
    }

    /// Its line of CLIENT LIST.
    pub(crate) fn describe(&self, now: Instant, standing: Standing<'_>) -> Vec<u8> {
        self.session.describe(now, standing, self.buffer_sizes())
    }
}

impl OutputLimits {
    /// The limit of a client's class.
    pub(crate) fn of(&self, session: &Session) -> &OutputLimit {
        if session.replica.is_some() {
            return &self.replica;
        }
        if session.is_subscriber() { &self.pubsub } else { &self.normal }
    }
}
