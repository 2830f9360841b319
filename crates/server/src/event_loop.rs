//! The event loop: one thread, which serves all clients in turns.
//!
//! ```text
//!   turn = poll                       wait for events; not if something can be done without
//!          accept, tidy               new clients; some of the keys whose time has come
//!          for each ready client:     send what is left over, receive once, run all whole requests
//!          commit                     one fence for all of them
//!          for each ready client:     send the replies, once, or hold them for the device
//! ```
//!
//! The last three steps are done in rounds if the ready clients have very many requests. A large batch is
//! also committed between two commands; the replies wait for the end of the round all the same.
//!
//! # Fairness
//!
//! A client gets one read of a bounded size, one slice of a long command, replies up to a size and one
//! bounded write per turn. A client that sends a large value gets a growing buffer as the bytes arrive, and
//! costs the others one copy.
//!
//! # Memory
//!
//! A client that takes its replies later than it sends requests is read from and served all the same:
//! clients that send a whole pipeline before they read would wait for ever otherwise. The rest of its
//! replies is kept, up to its limit on output. All clients together have a limit too; beyond it the
//! largest are disconnected, after each round.
//!
//! # Data that is larger than memory
//!
//! A page that is on the disk only stops the loop. Where the pool is larger than memory, a round receives
//! from all its clients first, and asks for the keys of their requests together. The loop then waits for
//! about two reads, one of a leaf and one of a record, and not for two reads of each client.
//!
//! # System calls
//!
//! Events are edge-triggered and registered once per connection; readiness is remembered until a call finds
//! none, and a read that fills less than its buffer is not repeated. A request that arrives alone costs one
//! read and one write, and its share of the poll.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use tembo::PREFETCH_KEYS_MAX;

use crate::address::Acceptor;
use crate::admission::ACCEPTS_PER_TURN;
use crate::buffer::BufferPool;
use crate::clock::{self, HZ};
use crate::cluster::migration::mover::Mover;
use crate::config::LogLevel;
use crate::conn::{Conn, OverOutput};
use crate::door::Door;
use crate::executor::Executor;
use crate::foreign_input;
use crate::held::Device;
use crate::idle::Idle;
use crate::log::MessageKind;
use crate::metrics::board::Readiness;
use crate::replica::link::Link;
use crate::state::{Space, State};
use crate::stop::Stop;
use crate::token::{LISTENER, MASTER, WAKER};

const CRON_PERIOD: Duration = Duration::from_millis(1000 / HZ as u64);
/// How long a client that sends no more may leave its remaining replies unread.
const LINGER_MAX: Duration = Duration::from_secs(60);
/// Commands after which the clients that have been served get their replies before others are served.
const COMMANDS_PER_ROUND: u64 = 4096;
/// Bytes of replies after which the served clients get theirs before others are served.
const REPLY_BYTES_PER_ROUND: usize = 16 << 20;
/// Receptions of messages in a turn.
const RECEPTIONS_PER_TURN: usize = 128;
/// How long a turn delivers messages. A system call that sends a long one takes tens of microseconds, and
/// closing a connection that has not taken its messages takes hundreds.
const DELIVERY_PER_TURN: Duration = Duration::from_millis(1);
/// Turns after which keys are asked for ahead, where none was missing.
const TURNS_PER_LOOK: u64 = 64;
/// Commands that a message about a slow turn names.
const SLOW_COMMANDS_MAX: usize = 8;
const EVENTS_PER_POLL: usize = 1024;
/// Steps of handshakes in a turn. Each may sign something, which takes up to a millisecond.
const HANDSHAKES_PER_TURN: usize = 8;

pub(crate) struct EventLoop<'s, 'p> {
    pub(crate) poll: &'s mut Poll,
    acceptors: &'s [Acceptor],
    pub(crate) stop: &'s Stop,
    pub(crate) executor: Executor<'s, 'p>,
    device: Device<'p>,
    buffers: BufferPool,
    idle: Idle,
    /// Slots of clients for which something can be done, each once.
    ready: Vec<usize>,
    /// The memory of the previous list, for the next one.
    spare: Vec<usize>,
    /// There may be connections to accept.
    accepting: bool,
    link: Link<'p>,
    /// Steps of handshakes that this turn may still do.
    handshakes: usize,
    mover: Mover,
    /// There may be expired keys to remove or space to give back.
    tidying: bool,
    next_cron: Instant,
}

/// Polls, for no longer than `timeout`. A signal ends it early.
fn poll_once(poll: &mut Poll, events: &mut Events, timeout: Duration) -> io::Result<()> {
    match poll.poll(events, Some(timeout)) {
        Err(error) if error.kind() != ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Receives once from a client, and counts it; tells whether bytes came.
fn receive(conn: &mut Conn, buffers: &mut BufferPool, state: &mut State) -> bool {
    let received = conn.receive(buffers);
    if received > 0 {
        state.stats.reads += 1;
        state.stats.bytes_in += received as u64;
        conn.session.active = state.now;
    }
    received > 0
}

impl<'s, 'p> EventLoop<'s, 'p> {
    pub(crate) fn new(
        poll: &'s mut Poll,
        acceptors: &'s [Acceptor],
        stop: &'s Stop,
        mut executor: Executor<'s, 'p>,
    ) -> Self {
        executor.begin_role();
        executor.door = Door::new(acceptors, poll.registry(), stop);
        let device = Device::new(executor.keys.pool(), stop.waker());
        EventLoop {
            device,
            poll,
            acceptors,
            stop,
            executor,
            buffers: BufferPool::default(),
            idle: Idle::new(),
            ready: Vec::new(),
            spare: Vec::new(),
            accepting: true,
            link: Link::new(stop.waker.clone()),
            handshakes: HANDSHAKES_PER_TURN,
            mover: Mover::new(stop.waker.clone()),
            tidying: true,
            next_cron: Instant::now(),
        }
    }

    /// Serves until it is stopped. Then commits all commands that were run, and sends their replies as far as
    /// the sockets take them at once.
    ///
    /// # Errors
    /// The system's event queue fails.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_PER_POLL);
        self.executor.state.now = Instant::now();
        if self.executor.state.role.is_changed {
            self.executor.persist_role();
        }
        self.link.recall(&mut self.executor);
        self.executor.state.tell_ready();
        while !self.stop.is_requested() && !self.executor.state.stopping {
            self.wait(&mut events)?;
            self.note(&events);
            self.turn();
        }
        self.executor.note_stop();
        if let Some(board) = &self.executor.state.board {
            board.note(Readiness::Stopping);
        }
        self.executor.state.tell_stopping();
        self.executor.stop_copying();
        self.device.wait();
        self.release_held();
        Ok(())
    }

    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let delivering = self.executor.keys.pubsub.has_deliveries();
        let feeding = self.executor.state.replicas.is_feeding;
        let moving = self.mover.is_busy() || self.executor.is_removing() || self.executor.is_copying();
        let busy = self.accepting || self.tidying || delivering || feeding || moving || self.link.is_busy();
        let idle = self.ready.is_empty() && !busy;
        let waiters = &self.executor.keys.waiters;
        let next = self.next_cron.min(self.executor.state.compactor.next());
        let next = waiters.deadline().map_or(next, |deadline| deadline.min(next));
        let until_next = next.saturating_duration_since(self.executor.state.now);
        let mut waiting_since = None;
        if idle {
            let since = self.idle.wait(|may_sleep| {
                poll_once(self.poll, events, if may_sleep { until_next } else { Duration::ZERO })?;
                Ok(!events.is_empty())
            })?;
            waiting_since = Some(since);
        } else {
            poll_once(self.poll, events, Duration::ZERO)?;
        }
        let now = Instant::now();
        // The turn that ends here is measured without another look at the clock.
        let took = waiting_since.unwrap_or(now).saturating_duration_since(self.executor.state.now);
        if self.executor.state.config.slow_turn.is_some_and(|limit| took > limit) {
            self.note_slow_turn(took);
        }
        self.executor.state.now = now;
        self.executor.keys.now_ms = clock::unix_ms();
        self.executor.state.stats.turns += 1;
        Ok(())
    }

    /// Logs that a turn took long, with the commands that clients ran last in it.
    #[cold]
    fn note_slow_turn(&mut self, took: Duration) {
        let Executor { clients, state, .. } = &mut self.executor;
        let served = clients.iter().filter(|conn| conn.session.active == state.now);
        let mut commands: Vec<_> = served.map(|conn| conn.session.command).collect();
        let count = commands.len();
        commands.sort_unstable();
        commands.dedup();
        commands.truncate(SLOW_COMMANDS_MAX);
        let message = format_args!(
            "a turn of the event loop took {} ms; it served {count} clients, with {}",
            took.as_millis(),
            commands.join(", ")
        );
        state.log(LogLevel::Notice, MessageKind::SlowTurn, message);
    }

    /// Remembers which sockets are ready.
    fn note(&mut self, events: &Events) {
        for event in events {
            match event.token() {
                LISTENER => self.accepting = true,
                WAKER => {}
                MASTER => self.link.note(event.is_readable() || event.is_read_closed() || event.is_error()),
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
        self.handshakes = HANDSHAKES_PER_TURN;
        self.release_held();
        if self.accepting {
            self.accept();
        }
        if self.executor.state.now >= self.next_cron {
            self.cron();
        }
        self.executor.compact();
        self.link.hear_recalled(&mut self.executor);
        self.end_pause();
        if self.executor.keys.waiters.len() > 0 {
            self.executor.end_due_waits();
        }
        if self.tidying || self.executor.keys.is_reclaiming() {
            self.tidying = self.executor.tidy(self.executor.state.config.expire_per_turn);
        }
        self.executor.hold_to_maxmemory();
        // This comes after the tidying, which begins a batch of its own. Clients that waited for the end of a
        // pause are served here, too.
        if self.executor.keys.waiters.has_ready() {
            self.executor.serve_waiting(None);
        }
        self.link.advance(&mut self.executor, self.poll.registry());
        let spare = std::mem::take(&mut self.spare);
        let mut ready = std::mem::replace(&mut self.ready, spare);
        let mut rest = &ready[..];
        while !rest.is_empty() {
            rest = self.round(rest);
        }
        self.executor.publish_figures();
        self.executor.commit_batch(None);
        if self.executor.state.cluster.is_some() {
            self.executor.tend_moves();
            self.mover.advance(&mut self.executor);
        }
        let has_replicas = self.executor.has_replicas();
        if has_replicas {
            self.executor.tend_replicas();
        }
        if self.executor.is_copying() || self.executor.state.copier.forcing.is_some() || has_replicas {
            self.executor.copy();
        }
        self.device.note_commits(false);
        self.link.end_turn(&mut self.executor);
        if has_replicas {
            self.executor.feed_replicas();
            self.executor.clients.take_pushed().into_iter().for_each(|slot| self.finish(slot));
        }
        for slot in self.executor.clients.take_unblocked() {
            self.finish(slot);
        }
        for slot in self.executor.clients.take_killed() {
            self.finish(slot);
        }
        ready.clear();
        self.spare = ready;
        self.deliver();
    }

    /// Serves clients until they have run enough commands to be answered; returns those that are left.
    fn round<'r>(&mut self, ready: &'r [usize]) -> &'r [usize] {
        let enough = self.executor.state.stats.commands + COMMANDS_PER_ROUND;
        let (mut served, mut reply_bytes) = (0, 0);
        let pool = self.executor.keys.pool();
        let is_due = self.executor.state.stats.turns.is_multiple_of(TURNS_PER_LOOK);
        if pool.is_larger_than_memory() && (is_due || pool.lacks_pages()) {
            self.look_ahead(ready);
        }
        while served < ready.len()
            && self.executor.state.stats.commands < enough
            && reply_bytes < REPLY_BYTES_PER_ROUND
        {
            reply_bytes += self.serve(ready[served]);
            served += 1;
        }
        self.executor.commit_batch(None);
        if self.executor.state.role.is_changed {
            self.executor.persist_role();
        }
        self.device.note_commits(served >= self.executor.clients.len());
        let (served, rest) = ready.split_at(served);
        served.iter().for_each(|&slot| self.finish(slot));
        self.hold_to_memory();
        if !rest.is_empty() {
            self.executor.hold_to_maxmemory();
        }
        rest
    }

    /// Delivers some of the messages, in slices, until others have waited long enough.
    fn deliver(&mut self) {
        if !self.executor.keys.pubsub.has_deliveries() {
            return;
        }
        let (begun, mut receptions) = (Instant::now(), RECEPTIONS_PER_TURN);
        while receptions > 0 && self.executor.keys.pubsub.has_deliveries() {
            receptions -= self.executor.deliver_slice(receptions).min(receptions);
            for slot in self.executor.clients.take_pushed() {
                self.finish(slot);
            }
            self.hold_to_memory();
            if begun.elapsed() >= DELIVERY_PER_TURN {
                break;
            }
        }
    }

    /// Sends held replies that are durable now.
    fn release_held(&mut self) {
        if !self.device.is_holding() {
            return;
        }
        let (holding, durable) = self.device.take_holding();
        for (slot, client) in holding {
            let conn = self.executor.clients.get_mut(slot).filter(|conn| conn.session.id == client);
            let Some(conn) = conn else { continue };
            conn.session.killed |= durable.is_none();
            let is_freed = durable.is_some_and(|durable| conn.held.release(durable));
            if conn.held.is_holding() {
                self.device.note_holding(slot, client);
            }
            if is_freed || durable.is_none() {
                self.finish(slot);
            }
        }
    }

    /// Disconnects clients if all together have too much memory.
    fn hold_to_memory(&mut self) {
        let limit = self.executor.state.client_memory_limit();
        if limit.is_some_and(|limit| self.executor.clients.memory_bytes() as u64 > limit) {
            self.evict(limit.unwrap_or_default());
        }
    }

    /// Disconnects the clients that have the most memory, until the others have no more than they may.
    #[cold]
    fn evict(&mut self, limit_bytes: u64) {
        let Executor { clients, state, .. } = &mut self.executor;
        let all_bytes = clients.memory_bytes();
        let largest = clients.largest(limit_bytes);
        for &slot in &largest {
            let Some(conn) = clients.get_mut(slot) else {
                continue;
            };
            conn.session.killed = true;
            state.stats.evicted_clients += 1;
            let message = format_args!(
                "client {} is disconnected: it has {} bytes of the {all_bytes} that all clients have together, \
                 and {limit_bytes} are allowed (maxmemory-clients)",
                conn.session, conn.counted_bytes
            );
            state.log(LogLevel::Warning, MessageKind::Evicted, message);
        }
        largest.into_iter().for_each(|slot| self.finish(slot));
    }

    /// Serves a client up to the commit: sends earlier output, receives, runs. Returns the size of its
    /// replies.
    fn serve(&mut self, slot: usize) -> usize {
        let Some(mut conn) = self.executor.clients.take(slot) else {
            return 0;
        };
        if !conn.queued {
            // The client that was queued in this slot has disconnected, and another client, which got the
            // slot, was served in this round. If it were served again, its replies would be sent before their
            // commit.
            self.executor.clients.put_back(slot, conn);
            return 0;
        }
        conn.queued = false;
        conn.session.is_plain = conn.job.is_none();
        // A value that a waiting client has got may not be sent before the commit.
        let is_replied = conn.session.waiting.as_ref().is_some_and(|waiting| waiting.is_replied());
        if !conn.session.killed && !is_replied {
            self.serve_taken(slot, &mut conn);
        }
        // The server does not read from a client that waits, so that only this reveals its end.
        conn.session.killed |= conn.hung_up && conn.is_waiting();
        let reply_bytes = conn.output.bytes.len();
        self.executor.clients.put_back(slot, conn);
        reply_bytes
    }

    /// Receives from all clients of a round, and asks for the keys of their requests together: one that is on
    /// the disk only keeps others waiting for no longer than it takes itself.
    #[cold]
    fn look_ahead(&mut self, ready: &[usize]) {
        let mut keys: Vec<(usize, Vec<u8>)> = Vec::new();
        for &slot in ready {
            let Some(conn) = self.executor.clients.get_mut(slot) else { continue };
            let may_receive = conn.readable && conn.heard && !conn.stalled && !conn.is_blocked();
            if !(conn.queued && may_receive && !conn.session.killed) {
                continue;
            }
            conn.stalled = receive(conn, &mut self.buffers, self.executor.state);
            let database = conn.session.database;
            let ahead = tembo_wire::keys_ahead(conn.input.unread(), PREFETCH_KEYS_MAX);
            keys.extend(ahead.map(|key| (database, key.to_vec())));
        }
        keys.sort_by_key(|(database, _)| *database);
        for of_one in keys.chunk_by(|(left, _), (right, _)| left == right) {
            for some in of_one.chunks(PREFETCH_KEYS_MAX) {
                self.executor.keys.prefetch(some[0].0, some.iter().map(|(_, key)| &key[..]));
            }
        }
    }

    fn serve_taken(&mut self, slot: usize, conn: &mut Conn) {
        // Unsent output is from earlier turns, and committed.
        self.send(conn);
        conn.output.borrow(&mut self.buffers);
        if conn.job.is_some() {
            self.executor.advance_job(slot, conn);
        }
        if conn.stalled {
            self.executor.process(slot, conn);
        }
        if conn.readable && !conn.stalled && !conn.is_blocked() && self.may_receive(conn) {
            let has_received = receive(conn, &mut self.buffers, self.executor.state);
            if has_received && (conn.heard || self.is_welcome(conn)) {
                self.executor.process(slot, conn);
            }
        }
        // Now, not when the replies are sent: the next client's requests come into the same cached buffer.
        conn.input.release(&mut self.buffers);
    }

    /// Whether a client may be read from in this turn; if not, in the next one.
    fn may_receive(&mut self, conn: &Conn) -> bool {
        if !conn.stream.is_handshaking() {
            return true;
        }
        let may = self.handshakes > 0;
        self.handshakes = self.handshakes.saturating_sub(1);
        may
    }

    /// Logs why a connection is over, if that is the fault of its encryption.
    fn note_failure(&mut self, conn: &Conn) {
        if let Some(failure) = conn.stream.failure() {
            let message = format_args!("client {} is disconnected: it {failure}", conn.session);
            self.executor.state.log(LogLevel::Warning, MessageKind::Security, message);
        }
    }

    /// Looks at the first bytes of a connection. If they are TLS it is disconnected: what follows has no
    /// line ends, and both sides would wait for the other.
    #[cold]
    fn is_welcome(&mut self, conn: &mut Conn) -> bool {
        conn.heard = true;
        conn.session.killed = foreign_input::begins_tls(conn.input.unread());
        if conn.session.killed {
            let message = format_args!(
                "client {} is disconnected: it began with TLS, which is not spoken here",
                conn.session
            );
            self.executor.state.log(LogLevel::Warning, MessageKind::Security, message);
        }
        !conn.session.killed
    }

    /// Serves a client after the commit: sends its replies, or closes it.
    fn finish(&mut self, slot: usize) {
        let Some(mut conn) = self.executor.clients.take(slot) else {
            return;
        };
        if !conn.session.killed {
            let was_holding = conn.held.is_holding();
            // Messages arrive between the rounds, and may report changes.
            let is_plain = std::mem::take(&mut conn.session.is_plain);
            conn.held.note(conn.output.unsent(), self.device.awaited().filter(|_| !is_plain));
            if conn.held.is_holding() && !was_holding {
                self.device.note_holding(slot, conn.session.id);
            }
            self.send(&mut conn);
            conn.output.release(&mut self.buffers);
            self.hold_to_limit(&mut conn);
        }
        if conn.is_over() {
            self.note_failure(&conn);
            let message = format_args!("client {} is gone", conn.session);
            self.executor.state.log(LogLevel::Verbose, MessageKind::Connection, message);
            self.executor.part_with(&mut conn.session);
            // Dropping the socket closes it, which also takes it off the event queue.
            self.executor.clients.vacate(slot, conn);
            return;
        }
        let is_ready = conn.is_ready();
        self.executor.clients.put_back_and_count(slot, conn);
        if is_ready {
            self.enqueue(slot);
        }
    }

    /// Disconnects a client that has not taken too many of its replies.
    fn hold_to_limit(&mut self, conn: &mut Conn) {
        let state = &mut *self.executor.state;
        let limit = *state.config.output_limits.of(&conn.session);
        if let Some(over) = conn.check_output(&limit, state.now) {
            conn.session.killed = true;
            state.log_over_output(conn, over);
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
        self.accepting = false;
        let acceptors = self.acceptors;
        acceptors.iter().for_each(|acceptor| self.accept_from(acceptor));
    }

    fn accept_from(&mut self, acceptor: &Acceptor) {
        for _ in 0..ACCEPTS_PER_TURN {
            match acceptor.accept(self.executor.state.tls.server.as_ref()) {
                Ok(accepted) => {
                    if let Some(slot) = self.executor.admit(accepted) {
                        self.register(slot);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                // Nothing more, or no file descriptors left: the next cron tries again.
                Err(error) => {
                    if error.kind() != ErrorKind::WouldBlock {
                        let message = format_args!("connections cannot be accepted: {error}");
                        self.executor.state.log(LogLevel::Warning, MessageKind::Refused, message);
                    }
                    return;
                }
            }
        }
        self.accepting = true;
    }

    fn register(&mut self, slot: usize) {
        let Some(conn) = self.executor.clients.get_mut(slot) else {
            return;
        };
        let interest = Interest::READABLE | Interest::WRITABLE;
        conn.broken = self.poll.registry().register(&mut conn.stream, Token(slot), interest).is_err();
        self.enqueue(slot);
    }

    /// Lets those go on who waited for the end of a pause, if it is over, or one of writes only now.
    fn end_pause(&mut self) {
        let state = &mut *self.executor.state;
        let pause = state.pause();
        let is_of_all = pause.is_some_and(|pause| !pause.of_writes_only);
        let was_of_all = std::mem::replace(&mut state.was_pause_of_all, is_of_all);
        if !state.has_waiting || pause.is_some() && (is_of_all || !was_of_all) {
            return;
        }
        if pause.is_none() {
            (state.pause, state.hold) = (None, None);
        }
        state.has_waiting = false;
        self.executor.clients.take_paused().into_iter().for_each(|slot| self.enqueue(slot));
    }

    fn cron(&mut self) {
        let now = self.executor.state.now;
        self.next_cron = now + CRON_PERIOD;
        self.accepting = true;
        self.tidying = true;
        if self.executor.keys.waiters.try_all {
            self.executor.keys.waiters.touch_all();
        }
        let space = Space::of(self.executor.keys.pool());
        self.executor.tend_eviction();
        self.executor.tend_backlog();
        self.executor.tend_kept();
        self.executor.state.tell_alive(now);
        let Executor { clients, state, .. } = &mut self.executor;
        state.sample(space);
        self.buffers.shrink();
        let (idle_timeout, output_limits) = (state.config.idle_timeout, state.config.output_limits);
        let handshake_max = state.config.tls.handshake_max;
        clients.kill(|conn| {
            let silence = now.saturating_duration_since(conn.session.active);
            let seconds = silence.as_secs();
            let leaving = conn.session.quitting || conn.ended;
            let may_idle = conn.session.is_subscriber()
                || conn.session.replica.is_some()
                || conn.session.monitors.is_some()
                || conn.is_waiting();
            let age = now.saturating_duration_since(conn.session.since);
            if conn.stream.is_handshaking() && handshake_max.is_some_and(|max| age > max) {
                let message = format_args!(
                    "client {} is disconnected: its TLS handshake takes too long (tls-handshake-timeout)",
                    conn.session
                );
                state.log(LogLevel::Warning, MessageKind::Security, message);
                return true;
            }
            let message = if !may_idle && idle_timeout.is_some_and(|timeout| silence > timeout) {
                format_args!(
                    "client {} is disconnected: it was silent for {seconds} s (timeout)",
                    conn.session
                )
            } else if leaving && silence > LINGER_MAX {
                format_args!(
                    "client {} is disconnected: it is leaving and takes no replies for {seconds} s",
                    conn.session
                )
            } else if conn.is_over_soft_limit(output_limits.of(&conn.session), now) {
                state.log_over_output(conn, OverOutput::Soft);
                return true;
            } else {
                return false;
            };
            state.log(LogLevel::Notice, MessageKind::Idle, message);
            true
        });
    }
}
