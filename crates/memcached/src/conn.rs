//! One client's connection.

use mio::net::TcpStream;
use std::io::{self, ErrorKind, Read, Write};

/// Bytes of a long value that are received at once.
const LONG_READ_BYTES: usize = 1 << 20;
/// The longest line with many keys.
const LINE_BYTES_MAX: usize = 1 << 20;
/// The longest other line, and the longest of a client that has no account yet.
const SHORT_LINE_BYTES_MAX: usize = 2048;
/// A buffer that is longer than this is given back once it is empty.
const KEPT_BYTES: usize = 256 << 10;

pub(crate) struct Conn {
    stream: TcpStream,
    input: Vec<u8>,
    /// Where unread input begins.
    at: usize,
    pub(crate) output: Vec<u8>,
    /// How much of the output is sent.
    sent: usize,
    /// Bytes to come that are not wanted.
    skip: usize,
    /// The next command has this many bytes at least, as far as is known.
    pub(crate) needs: usize,
    /// A half-executed command continues at this byte of its line.
    pub(crate) paused_at: Option<usize>,
    pub(crate) may: bool,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) queued: bool,
    /// The client will send no more.
    pub(crate) ended: bool,
    /// The client is disconnected once its replies are sent.
    pub(crate) closing: bool,
    /// The client is disconnected at once.
    pub(crate) broken: bool,
    pub(crate) active: std::time::Instant,
    /// Replies from here on are of commands that are not committed.
    pub(crate) committed: usize,
}

impl Conn {
    pub(crate) fn new(stream: TcpStream, may: bool, now: std::time::Instant) -> Conn {
        Conn {
            stream,
            input: Vec::new(),
            at: 0,
            output: Vec::new(),
            sent: 0,
            skip: 0,
            needs: 1,
            paused_at: None,
            may,
            readable: true,
            writable: true,
            queued: false,
            ended: false,
            closing: false,
            broken: false,
            active: now,
            committed: 0,
        }
    }

    /// Input that no command has taken yet.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.input[self.at..]
    }

    /// Takes input away for a while, so that a command can read it and write output.
    pub(crate) fn take_input(&mut self) -> (Vec<u8>, usize) {
        (std::mem::take(&mut self.input), self.at)
    }

    /// Puts the input back, of which `at` bytes are read.
    pub(crate) fn put_input_back(&mut self, input: Vec<u8>, at: usize) {
        (self.input, self.at) = (input, at);
        if self.at == self.input.len() {
            self.at = 0;
            self.input.clear();
            self.input.shrink_to(KEPT_BYTES);
        }
    }

    /// Lets this many bytes to come be dropped.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.skip = bytes;
    }

    /// Whether a line without an end has become too long for a command.
    pub(crate) fn is_line_too_long(&self, line: &[u8]) -> bool {
        let words = line.trim_ascii_start();
        let has_keys = [&b"get "[..], b"gets ", b"gat ", b"gats "].iter().any(|name| words.starts_with(name));
        line.len() > if has_keys && self.may { LINE_BYTES_MAX } else { SHORT_LINE_BYTES_MAX }
    }

    /// Receives once, by way of `space` unless a long value is due; returns the number of bytes.
    pub(crate) fn receive(&mut self, space: &mut [u8]) -> usize {
        if self.at > 0 {
            self.input.drain(..self.at);
            self.at = 0;
        }
        let before = self.input.len();
        let missing = self.needs.saturating_sub(before);
        let mut input = std::mem::take(&mut self.input);
        let received = if missing <= space.len() {
            let received = self.receive_into(space);
            input.extend_from_slice(&space[..received]);
            received
        } else {
            input.resize(before + missing.min(LONG_READ_BYTES), 0);
            let received = self.receive_into(&mut input[before..]);
            input.truncate(before + received);
            received
        };
        self.input = input;
        let dropped = self.skip.min(self.input.len());
        (self.skip, self.at) = (self.skip - dropped, dropped);
        received
    }

    /// Receives once into `space`, and notes whether there is more.
    fn receive_into(&mut self, space: &mut [u8]) -> usize {
        loop {
            match self.stream.read(space) {
                Ok(0) => {
                    (self.readable, self.ended) = (false, true);
                    return 0;
                }
                Ok(received) => {
                    // A read that fills less than its buffer has taken everything.
                    self.readable = received == space.len();
                    return received;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    return 0;
                }
                Err(_) => {
                    self.broken = true;
                    return 0;
                }
            }
        }
    }

    /// Bytes that are not sent yet.
    pub(crate) fn unsent(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Sends as much as the socket takes; returns the number of bytes.
    pub(crate) fn send(&mut self) -> usize {
        let mut all = 0;
        while self.writable && self.unsent() > 0 {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(sent) => (self.sent, all) = (self.sent + sent, all + sent),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(_) => {
                    self.broken = true;
                    break;
                }
            }
        }
        if self.unsent() == 0 {
            self.sent = 0;
            self.output.clear();
            self.output.shrink_to(KEPT_BYTES);
        }
        all
    }

    /// Takes the replies back that are not committed, and tells the client so.
    pub(crate) fn retract(&mut self, line: &[u8]) {
        self.output.truncate(self.committed);
        self.output.extend_from_slice(line);
        self.closing = true;
    }

    /// Whether something can be done for the client.
    pub(crate) fn is_ready(&self) -> bool {
        let may_go_on = self.unsent() == 0 && !self.closing && !self.broken;
        let has_request = self.paused_at.is_some() || self.unread().len() >= self.needs.max(1);
        (self.unsent() > 0 && self.writable) || (may_go_on && (self.readable || has_request))
    }

    /// Whether the connection is to be closed.
    pub(crate) fn is_over(&self) -> bool {
        self.broken || (self.unsent() == 0 && (self.closing || (self.ended && !self.is_ready())))
    }

    pub(crate) fn peer(&self) -> io::Result<std::net::SocketAddr> {
        self.stream.peer_addr()
    }
}
