//! One client's connection: its socket, its buffers and what is going on with it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use rustix::net::sockopt;
use tembo_wire::RequestParser;

use crate::buffer::{BufferPool, Filled, Input, Output};
use crate::commands::KeysJob;
use crate::session::{BufferSizes, Session};

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) stream: TcpStream,
    pub(crate) session: Session,
    pub(crate) parser: RequestParser,
    pub(crate) input: Input,
    pub(crate) output: Output,
    /// Work of a command that goes on; no other command runs until it is done.
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
    /// Whole requests may be waiting in the input, because the output is full.
    pub(crate) stalled: bool,
    /// The socket failed.
    pub(crate) broken: bool,
    /// It is in the event loop's queue.
    pub(crate) queued: bool,
}

impl Conn {
    /// Takes on a connection that was just accepted.
    pub(crate) fn new(stream: TcpStream, peer: SocketAddr, id: u64, now: Instant) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let session = Session::new(id, peer, stream.local_addr()?, stream.as_raw_fd(), now);
        Ok(Conn {
            stream,
            session,
            parser: RequestParser::new(),
            input: Input::default(),
            output: Output::default(),
            job: None,
            needed: 1,
            readable: true,
            writable: true,
            hung_up: false,
            ended: false,
            stalled: false,
            broken: false,
            queued: false,
        })
    }

    /// Lets TCP probe the connection once it was silent for so long.
    pub(crate) fn keep_alive(&self, after: Duration) -> io::Result<()> {
        sockopt::set_socket_keepalive(&self.stream, true)?;
        sockopt::set_tcp_keepidle(&self.stream, after)?;
        sockopt::set_tcp_keepintvl(&self.stream, (after / 3).max(Duration::from_secs(1)))?;
        sockopt::set_tcp_keepcnt(&self.stream, 3)?;
        Ok(())
    }

    /// Reads once, if there may be something, and returns how many bytes came.
    pub(crate) fn receive(&mut self, pool: &mut BufferPool) -> usize {
        match self.input.fill(&mut self.stream, self.needed, pool) {
            Ok(Filled::More(bytes)) => bytes,
            Ok(Filled::Drained(bytes)) => {
                self.readable = self.hung_up && bytes > 0;
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
        if self.output.unsent() == 0 || !self.writable {
            return 0;
        }
        match self.output.flush(&mut self.stream) {
            Ok(flushed) => {
                self.writable = !flushed.full;
                flushed.bytes
            }
            Err(_) => {
                self.broken = true;
                0
            }
        }
    }

    /// Whether the client's requests must wait.
    pub(crate) fn is_blocked(&self, output_pause_bytes: usize) -> bool {
        self.job.is_some()
            || self.session.quitting
            || self.broken
            || self.output.unsent() > output_pause_bytes
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_over(&self) -> bool {
        let at_rest = self.output.unsent() == 0 && self.job.is_none();
        let no_more = self.session.quitting || self.ended && !self.stalled;
        self.broken || self.session.killed || at_rest && no_more
    }

    /// Whether something can be done for it without another event.
    pub(crate) fn is_ready(&self, output_pause_bytes: usize) -> bool {
        let can_send = self.writable && self.output.unsent() > 0;
        let can_go_on = (self.readable || self.stalled) && !self.is_blocked(output_pause_bytes);
        can_send || can_go_on || self.job.is_some()
    }

    pub(crate) fn describe(&self, now: Instant) -> Vec<u8> {
        let buffers = BufferSizes {
            input: self.input.unread().len(),
            input_capacity: self.input.capacity(),
            output: self.output.unsent(),
            output_capacity: self.output.capacity(),
        };
        self.session.describe(now, buffers)
    }
}
