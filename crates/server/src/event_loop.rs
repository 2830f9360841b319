//! The event loop: one thread, which serves all clients in turns.
//!
//! ```text
//!   turn = poll                       wait for events; not if something can be done without
//!          accept, tidy               new clients; some of the keys whose time has come
//!          for each ready client:     send what is left over, receive once, run all whole requests
//!          commit                     one fence for all of them
//!          for each ready client:     send the replies, once
//! ```
//!
//! The last three steps are done in rounds if the ready clients have very many requests. A large batch is also
//! committed between two commands; the replies wait for the end of the round all the same.
//!
//! # Fairness
//!
//! A client gets one read of a bounded size, one slice of a long command and one bounded write per turn. A
//! client that takes its replies slower than it sends requests is not read from while its output is full. A
//! client that sends a large value gets a growing buffer as the bytes arrive, and costs the others one copy.
//!
//! # System calls
//!
//! Events are edge-triggered and registered once per connection; readiness is remembered until a call finds none,
//! and a read that fills less than its buffer is not repeated. A request that arrives alone costs
//! one read and one write, and its share of the poll.

use std::io::{self, ErrorKind, Write};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use tembo_wire::{Protocol, ReplyWriter};

use crate::buffer::BufferPool;
use crate::clock;
use crate::conn::Conn;
use crate::executor::Executor;
use crate::idle::Idle;
use crate::server::{LISTENER, Stop, WAKER};

/// Between two looks at idle clients and expired keys.
const CRON_PERIOD: Duration = Duration::from_millis(100);
/// How long a client that sends no more may take nothing of what is left for it.
const LINGER_MAX: Duration = Duration::from_secs(60);
/// Commands after which the clients that have been served get their replies before others are served.
const COMMANDS_PER_ROUND: u64 = 4096;
/// Connections accepted per turn.
const ACCEPTS_PER_TURN: usize = 256;
const EVENTS_PER_POLL: usize = 1024;

pub(crate) struct EventLoop<'s, 'p> {
    pub(crate) poll: &'s mut Poll,
    pub(crate) listener: &'s TcpListener,
    pub(crate) stop: &'s Stop,
    pub(crate) executor: Executor<'s, 'p>,
    buffers: BufferPool,
    idle: Idle,
    /// Slots of clients for which something can be done, each once.
    ready: Vec<usize>,
    /// The memory of the list before, to be used for the next one.
    spare: Vec<usize>,
    /// There may be connections to accept.
    accepting: bool,
    /// There may be expired keys to remove or space to give back.
    tidying: bool,
    next_cron: Instant,
    next_client: u64,
}

/// Polls, for no longer than `timeout`. A signal ends it early.
fn poll_once(poll: &mut Poll, events: &mut Events, timeout: Duration) -> io::Result<()> {
    match poll.poll(events, Some(timeout)) {
        Err(error) if error.kind() != ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

impl<'s, 'p> EventLoop<'s, 'p> {
    pub(crate) fn new(
        poll: &'s mut Poll,
        listener: &'s TcpListener,
        stop: &'s Stop,
        executor: Executor<'s, 'p>,
    ) -> Self {
        EventLoop {
            poll,
            listener,
            stop,
            executor,
            buffers: BufferPool::default(),
            idle: Idle::new(),
            ready: Vec::new(),
            spare: Vec::new(),
            accepting: true,
            tidying: true,
            next_cron: Instant::now(),
            next_client: 1,
        }
    }

    /// Serves until it is told to stop. Then all commands that were run are committed, and their replies sent as
    /// far as the sockets take them at once.
    ///
    /// # Errors
    /// The system's event queue fails.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_PER_POLL);
        while !self.stop.is_requested() && !self.executor.state.stopping {
            self.wait(&mut events)?;
            self.note(&events);
            self.turn();
        }
        Ok(())
    }

    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let idle = self.ready.is_empty() && !self.accepting && !self.tidying;
        let until_cron = self.next_cron.saturating_duration_since(self.executor.state.now);
        if idle {
            self.idle.wait(|may_sleep| {
                poll_once(self.poll, events, if may_sleep { until_cron } else { Duration::ZERO })?;
                Ok(!events.is_empty())
            })?;
        } else {
            poll_once(self.poll, events, Duration::ZERO)?;
        }
        self.executor.state.now = Instant::now();
        self.executor.keys.now_ms = clock::unix_ms();
        self.executor.state.stats.turns += 1;
        Ok(())
    }

    /// Remembers what events say.
    fn note(&mut self, events: &Events) {
        for event in events {
            match event.token() {
                LISTENER => self.accepting = true,
                WAKER => {}
                Token(slot) => {
                    let Some(conn) = self.executor.clients.get_mut(slot) else {
                        continue;
                    };
                    conn.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
                    conn.hung_up |= event.is_read_closed();
                    conn.writable |= event.is_writable();
                    self.enqueue(slot);
                }
            }
        }
    }

    /// Lets a client be served in the next turn.
    fn enqueue(&mut self, slot: usize) {
        if let Some(conn) = self.executor.clients.get_mut(slot)
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
        if self.executor.state.now >= self.next_cron {
            self.cron();
        }
        if self.tidying || self.executor.keys.is_reclaiming() {
            self.tidying = self.executor.tidy(self.executor.state.config.expire_per_turn);
        }
        let spare = std::mem::take(&mut self.spare);
        let mut ready = std::mem::replace(&mut self.ready, spare);
        let mut rest = &ready[..];
        while !rest.is_empty() {
            rest = self.round(rest);
        }
        self.executor.settle(None);
        for slot in self.executor.clients.take_killed() {
            self.finish(slot);
        }
        ready.clear();
        self.spare = ready;
    }

    /// Serves clients until they have run enough commands to be answered; returns those that are left.
    fn round<'r>(&mut self, ready: &'r [usize]) -> &'r [usize] {
        let enough = self.executor.state.stats.commands + COMMANDS_PER_ROUND;
        let mut served = 0;
        while served < ready.len() && self.executor.state.stats.commands < enough {
            self.serve(ready[served]);
            served += 1;
        }
        self.executor.settle(None);
        let (served, rest) = ready.split_at(served);
        served.iter().for_each(|&slot| self.finish(slot));
        rest
    }

    /// Does for a client what can be done before the commit.
    fn serve(&mut self, slot: usize) {
        let Some(mut conn) = self.executor.clients.take(slot) else {
            return;
        };
        conn.queued = false;
        if !conn.session.killed {
            self.serve_taken(slot, &mut conn);
        }
        self.executor.clients.put_back(slot, conn);
    }

    fn serve_taken(&mut self, slot: usize, conn: &mut Conn) {
        // What is unsent now is from turns before, and committed.
        self.send(conn);
        conn.output.borrow(&mut self.buffers);
        if conn.job.is_some() {
            self.executor.advance_job(slot, conn);
        }
        if conn.stalled {
            self.executor.process(slot, conn);
        }
        let pause_bytes = self.executor.state.config.output_pause_bytes;
        if conn.readable && !conn.stalled && !conn.is_blocked(pause_bytes) {
            let received = conn.receive(&mut self.buffers);
            if received > 0 {
                let state = &mut *self.executor.state;
                state.stats.reads += 1;
                state.stats.bytes_in += received as u64;
                conn.session.active = state.now;
                self.executor.process(slot, conn);
            }
        }
        // Now, not when the replies are sent: the next client's requests come into the same cached buffer.
        conn.input.release(&mut self.buffers);
    }

    /// Does for a client what can be done after the commit.
    fn finish(&mut self, slot: usize) {
        let Some(mut conn) = self.executor.clients.take(slot) else {
            return;
        };
        self.send(&mut conn);
        conn.output.release(&mut self.buffers);
        if conn.is_over() {
            // Dropping the socket closes it, which also takes it off the event queue.
            self.executor.clients.vacate(slot);
            return;
        }
        let is_ready = conn.is_ready(self.executor.state.config.output_pause_bytes);
        self.executor.clients.put_back(slot, conn);
        if is_ready {
            self.enqueue(slot);
        }
    }

    fn send(&mut self, conn: &mut Conn) {
        let sent = conn.send();
        if sent > 0 {
            let state = &mut *self.executor.state;
            state.stats.writes += 1;
            state.stats.bytes_out += sent as u64;
            conn.session.active = state.now;
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    if self.executor.clients.len() >= self.executor.state.config.max_clients {
                        self.reject(stream);
                    } else if let Ok(conn) = self.connect(stream, peer) {
                        let slot = self.executor.clients.insert(conn);
                        self.register(slot);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                // Nothing more, or no file descriptors left: the next cron tries again.
                Err(_) => {
                    self.accepting = false;
                    return;
                }
            }
        }
    }

    fn connect(&mut self, stream: TcpStream, peer: std::net::SocketAddr) -> io::Result<Conn> {
        let state = &mut *self.executor.state;
        let conn = Conn::new(stream, peer, self.next_client, state.now)?;
        if let Some(after) = state.config.tcp_keepalive {
            conn.keep_alive(after)?;
        }
        state.stats.connections += 1;
        self.next_client += 1;
        Ok(conn)
    }

    fn register(&mut self, slot: usize) {
        let Some(conn) = self.executor.clients.get_mut(slot) else {
            return;
        };
        let interest = Interest::READABLE | Interest::WRITABLE;
        conn.broken = self.poll.registry().register(&mut conn.stream, Token(slot), interest).is_err();
        self.enqueue(slot);
    }

    fn reject(&mut self, mut stream: TcpStream) {
        let stats = &mut self.executor.state.stats;
        stats.connections += 1;
        stats.rejected_connections += 1;
        let mut reply = Vec::new();
        ReplyWriter::new(&mut reply, Protocol::Resp2).error("ERR max number of clients reached");
        // A fresh socket takes as much; if it does not, the client sees only that it is closed.
        let _ = stream.write(&reply);
    }

    fn cron(&mut self) {
        let now = self.executor.state.now;
        self.next_cron = now + CRON_PERIOD;
        self.accepting = true;
        self.tidying = true;
        self.executor.state.sample();
        let idle_timeout = self.executor.state.config.idle_timeout;
        self.executor.clients.kill(|conn| {
            let silence = now.saturating_duration_since(conn.session.active);
            let leaving = conn.session.quitting || conn.ended;
            idle_timeout.is_some_and(|timeout| silence > timeout) || leaving && silence > LINGER_MAX
        });
    }
}
