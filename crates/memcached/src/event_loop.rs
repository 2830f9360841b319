//! The event loop: one thread, which serves all clients in turns.
//!
//! A turn receives once from each ready client, runs its whole commands, up to a number, commits the changes
//! of all of them with one fence, and then sends the replies. A client that does not take its replies is not
//! read from, and a command with long replies continues when they are taken, so that a client's memory is
//! bounded: by the longest value, a line of keys, and about a megabyte and a value of replies.

use crate::conn::Conn;
use crate::foreign::{Warnings, is_http, protocol_of};
use crate::handle::Handle;
use crate::items::{Items, unix_seconds};
use crate::request::{Step, failure_line, line_of, put_line};
use crate::text::Turn;
use crate::victims::TRIES_MAX;
use crate::{Config, Error};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use std::io::{ErrorKind, Write as _};
use std::time::{Duration, Instant};

pub(crate) const LISTENER: Token = Token(usize::MAX);
pub(crate) const WAKER: Token = Token(usize::MAX - 1);

/// The time between two looks at items whose time may have come, and at silent clients.
const TICK: Duration = Duration::from_millis(100);
/// Items that are looked at in a tick.
const LOOKS_PER_TICK: usize = 500;
/// Commands of a client in a turn.
const COMMANDS_PER_TURN: usize = 512;
const EVENTS_PER_POLL: usize = 1024;
/// Bytes that are received at once.
const READ_BYTES: usize = 64 << 10;
/// Connections accepted per turn.
const ACCEPTS_PER_TURN: usize = 256;

pub(crate) struct EventLoop<'s, 'p> {
    poll: &'s mut Poll,
    listener: &'s TcpListener,
    handle: &'s Handle,
    config: &'s Config,
    items: Items<'p>,
    clients: Vec<Option<Conn>>,
    free: Vec<usize>,
    ready: Vec<usize>,
    accepting: bool,
    started: u32,
    now: Instant,
    warnings: Warnings,
    next_tick: Instant,
    /// Commands of this turn.
    commands: u64,
    /// Where all clients' bytes arrive: a buffer for each would be cleared anew for each read, and would not
    /// stay in the nearer caches.
    space: Vec<u8>,
}

impl<'s, 'p> EventLoop<'s, 'p> {
    pub(crate) fn new(
        poll: &'s mut Poll,
        listener: &'s TcpListener,
        handle: &'s Handle,
        config: &'s Config,
        items: Items<'p>,
    ) -> Self {
        let now = Instant::now();
        EventLoop {
            poll,
            listener,
            handle,
            config,
            started: items.now,
            items,
            clients: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            accepting: true,
            now,
            warnings: Warnings::new(now),
            next_tick: now,
            commands: 0,
            space: vec![0; READ_BYTES],
        }
    }

    /// Serves clients until the server is stopped.
    pub(crate) fn run(mut self) -> Result<(), Error> {
        let mut events = Events::with_capacity(EVENTS_PER_POLL);
        while !self.handle.is_requested() {
            let is_idle = self.ready.is_empty() && !self.accepting;
            let patience = self.next_tick.saturating_duration_since(self.now);
            let patience = if is_idle { patience } else { Duration::ZERO };
            match self.poll.poll(&mut events, Some(patience)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
                _ => {}
            }
            (self.now, self.items.now) = (Instant::now(), unix_seconds());
            self.note(&events);
            self.turn();
        }
        Ok(())
    }

    /// Remembers which sockets are ready.
    fn note(&mut self, events: &Events) {
        for event in events {
            match event.token() {
                LISTENER => self.accepting = true,
                WAKER => {}
                Token(slot) => {
                    let Some(conn) = self.clients.get_mut(slot).and_then(Option::as_mut) else { continue };
                    conn.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
                    conn.writable |= event.is_writable();
                    self.enqueue(slot);
                }
            }
        }
    }

    fn enqueue(&mut self, slot: usize) {
        if let Some(conn) = self.clients.get_mut(slot).and_then(Option::as_mut)
            && !conn.queued
        {
            conn.queued = true;
            self.ready.push(slot);
        }
    }

    fn turn(&mut self) {
        if self.accepting {
            self.accept();
        }
        // Before the tick, which has counters and learns the slabs if there is a limit.
        self.items.eviction.begin_turn();
        if self.now >= self.next_tick {
            self.tick();
        }
        if let Err(failure) = self.items.hold_to_limit(self.now)
            && self.warnings.admit(self.now, true)
        {
            tracing::warn!("items were not evicted: {failure:?}");
        }
        let ready = std::mem::take(&mut self.ready);
        for (count, &slot) in (1..).zip(&ready) {
            if let Some(mut conn) = self.clients.get_mut(slot).and_then(Option::take) {
                conn.queued = false;
                self.serve(&mut conn, &ready[..count]);
                self.clients[slot] = Some(conn);
            }
            if self.items.is_large() {
                self.commit(&ready[..count], None);
            }
        }
        self.commit(&ready, None);
        self.handle.note_commands(std::mem::take(&mut self.commands));
        ready.into_iter().for_each(|slot| self.finish(slot));
    }

    /// Makes the changes of these clients' commands durable, and of the one that is out of its slot. If that
    /// fails, none of those since the last commit happened, and their clients learn it.
    fn commit(&mut self, served: &[usize], mut current: Option<&mut Conn>) {
        let outcome = self.items.commit();
        let mut line = Vec::new();
        if let Err(failure) = &outcome {
            tracing::error!("a commit failed, and the changes of its clients did not happen: {failure:?}");
            line = failure_line(failure);
            line.extend_from_slice(b"\r\n");
            if let Err(failure) = self.items.roll_back() {
                tracing::error!("the state of the items cannot be read: {failure:?}");
            }
        }
        for slot in served {
            let there = self.clients.get_mut(*slot).and_then(Option::as_mut);
            let Some(conn) = there.or_else(|| current.take()) else { continue };
            if outcome.is_err() && conn.output.len() > conn.committed {
                conn.retract(&line);
            }
            conn.committed = conn.output.len();
        }
    }

    /// Receives from a client, the last of these, and runs its commands.
    fn serve(&mut self, conn: &mut Conn, served: &[usize]) {
        self.items.stats.bytes_written += conn.send() as u64;
        conn.committed = conn.output.len();
        if conn.unsent() > 0 || conn.closing {
            return;
        }
        if conn.readable && conn.paused_at.is_none() {
            let received = conn.receive(&mut self.space);
            if received > 0 {
                conn.active = self.now;
                self.items.stats.bytes_read += received as u64;
            }
        }
        let (input, mut at) = conn.take_input();
        let mut commands = 0;
        // The next command, as far as it has arrived.
        conn.needs = 1;
        while !conn.closing && at < input.len() && commands < COMMANDS_PER_TURN {
            commands += 1;
            match self.run_with_room(conn, served, &input[at..]) {
                Step::Done(bytes) => at += bytes,
                Step::Skip(bytes, skipped) => {
                    at += bytes;
                    let here = skipped.min(input.len() - at);
                    at += here;
                    conn.skip(skipped - here);
                }
                Step::Needs(bytes) => {
                    conn.needs = bytes;
                    break;
                }
                Step::Paused(byte) => {
                    conn.paused_at = Some(byte);
                    break;
                }
                Step::Close => conn.closing = true,
            }
        }
        self.commands += commands as u64;
        conn.put_input_back(input, at);
    }

    /// Runs a command. If it finds no space and items may go, some do, and it is run again.
    fn run_with_room(&mut self, conn: &mut Conn, served: &[usize], input: &[u8]) -> Step {
        if self.items.eviction.limit().is_none() {
            return self.run_command(conn, input);
        }
        let stats = self.items.stats.clone();
        let mut begun = conn.output.len();
        self.items.eviction.lacks_room = false;
        let mut step = self.run_command(conn, input);
        for tries in 0..TRIES_MAX {
            if !std::mem::take(&mut self.items.eviction.lacks_room) {
                break;
            }
            conn.output.truncate(begun);
            self.items.stats = stats.clone();
            // The changes of earlier commands become durable first, and the client's commands with them.
            self.commit(served, Some(conn));
            if conn.closing {
                return Step::Close;
            }
            begun = conn.output.len();
            let evicted = self.items.evict_for(input.len() as u64, tries);
            step = self.run_command(conn, input);
            if !matches!(evicted, Ok(true)) {
                break;
            }
        }
        step
    }

    fn run_command(&mut self, conn: &mut Conn, input: &[u8]) -> Step {
        if let Some(protocol) = protocol_of(input[0]) {
            return self.disconnect(conn, &format!("is disconnected: it speaks {protocol}"));
        }
        let Some((line, line_bytes)) = line_of(input) else {
            if conn.is_line_too_long(input) {
                put_line(&mut conn.output, b"CLIENT_ERROR line too long");
                return self.disconnect(conn, "is disconnected: it sent a line without an end");
            }
            return Step::Needs(input.len() + 1);
        };
        let rest = &input[line_bytes..];
        if is_http(line) {
            return self.disconnect(conn, "is disconnected: it sent a line of HTTP");
        }
        if !conn.may {
            return self.authenticate(conn, line, line_bytes, rest);
        }
        let max_value_bytes = self.config.max_value_bytes;
        let (items, started) = (&mut self.items, self.started);
        let mut turn = Turn { items, output: &mut conn.output, max_value_bytes, started };
        match conn.paused_at.take() {
            Some(at) => turn.go_on(line, line_bytes, at),
            None => match turn.run_meta(line, line_bytes, rest) {
                Some(step) => step,
                None => turn.run_text(line, line_bytes, rest),
            },
        }
    }

    /// Logs why a client is to be disconnected.
    #[cold]
    fn disconnect(&mut self, conn: &Conn, why: &str) -> Step {
        if self.warnings.admit(self.now, true) {
            let peer = conn.peer().map_or_else(|_| "a client".to_owned(), |peer| peer.to_string());
            tracing::warn!("{peer} {why}");
        }
        Step::Close
    }

    /// The first command of a client: a set of any key whose value is `name password`.
    fn authenticate(&mut self, conn: &mut Conn, line: &[u8], line_bytes: usize, rest: &[u8]) -> Step {
        const BYTES_MAX: usize = 512;
        let words: Vec<&[u8]> = crate::request::words_of(line).collect();
        let bytes = match words.as_slice() {
            [b"set", _, _, _, bytes] => crate::request::number(bytes).map(|bytes| bytes as usize),
            _ => None,
        };
        let Some(bytes) = bytes.filter(|bytes| *bytes <= BYTES_MAX) else {
            put_line(&mut conn.output, b"CLIENT_ERROR unauthenticated");
            return self.disconnect(conn, "is refused: it sent a command before its account");
        };
        let Some(value) = rest.get(..bytes + 2) else { return Step::Needs(line_bytes + bytes + 2) };
        self.items.stats.auth_cmds += 1;
        let accounts = self.config.accounts.as_ref();
        let is_one = value
            .strip_suffix(b"\r\n")
            .is_some_and(|token| accounts.is_some_and(|accounts| accounts.has(token)));
        if !is_one {
            self.items.stats.auth_errors += 1;
            put_line(&mut conn.output, b"CLIENT_ERROR authentication failure");
            return self.disconnect(conn, "is refused: it has no account");
        }
        conn.may = true;
        put_line(&mut conn.output, b"STORED");
        Step::Done(line_bytes + bytes + 2)
    }

    /// Sends a client its replies after the commit, or closes it.
    fn finish(&mut self, slot: usize) {
        let Some(conn) = self.clients.get_mut(slot).and_then(Option::as_mut) else { return };
        self.items.stats.bytes_written += conn.send() as u64;
        if conn.is_over() {
            // Dropping the socket closes it, which also takes it off the event queue.
            self.clients[slot] = None;
            self.free.push(slot);
            self.items.stats.curr_connections -= 1;
        } else if conn.is_ready() {
            self.enqueue(slot);
        }
    }

    fn accept(&mut self) {
        self.accepting = false;
        for _ in 0..ACCEPTS_PER_TURN {
            match self.listener.accept() {
                Ok((mut stream, _)) => {
                    if self.items.stats.curr_connections as usize >= self.config.max_clients {
                        self.items.stats.rejected_connections += 1;
                        let _ = stream.write(b"ERROR Too many open connections\r\n");
                        continue;
                    }
                    let _ = stream.set_nodelay(true);
                    let slot = self.free.pop().unwrap_or(self.clients.len());
                    let both = Interest::READABLE | Interest::WRITABLE;
                    if self.poll.registry().register(&mut stream, Token(slot), both).is_err() {
                        self.free.push(slot);
                        continue;
                    }
                    if slot == self.clients.len() {
                        self.clients.push(None);
                    }
                    self.clients[slot] = Some(Conn::new(stream, self.config.accounts.is_none(), self.now));
                    self.items.stats.curr_connections += 1;
                    self.items.stats.total_connections += 1;
                    self.enqueue(slot);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                // Nothing more, or no file descriptors left: the next tick tries again.
                Err(error) => {
                    if error.kind() != ErrorKind::WouldBlock {
                        tracing::warn!("connections cannot be accepted: {error}");
                    }
                    return;
                }
            }
        }
        self.accepting = true;
    }

    /// Removes some items whose time has come, and clients that are silent.
    fn tick(&mut self) {
        self.next_tick = self.now + TICK;
        self.accepting = true;
        self.warnings.admit(self.now, false);
        if let Err(failure) = self.items.tidy(LOOKS_PER_TICK) {
            tracing::warn!("items whose time has come were not removed: {failure:?}");
        }
        let (stats, items) = (&self.items.stats, self.items.len());
        self.handle.publish(stats.figures(items, self.items.eviction.evicted));
        let Some(timeout) = self.config.idle_timeout else { return };
        for slot in 0..self.clients.len() {
            if let Some(conn) = &mut self.clients[slot]
                && self.now.saturating_duration_since(conn.active) > timeout
            {
                conn.broken = true;
                self.enqueue(slot);
            }
        }
    }
}
