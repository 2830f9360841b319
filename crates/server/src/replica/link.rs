//! The stages of a replica's link, in the event loop.
//!
//! ```text
//!   down --> asking (a thread) --> loading --> streaming
//!    ^          | or                  |            |
//!    +----------+--> streaming -------+------------+     again, after a while; or stopped
//! ```
//!
//! Each turn does a little: a slice of the file, or a number of commands. Their changes are committed with
//! those of the turn's clients, and acknowledged after that.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use mio::{Interest, Registry, Waker};
use tembo::{Domain, Pool};
use tembo_wire::write_request;

use super::applied_stream::AppliedStream;
use super::handshake::{ALIVE_EVERY, Failure, Question, Ready, Whole, ask, failed, is_wait};
use super::load::Loading;
use super::socket::MasterSocket;
use super::{Phase, Transfer};
use crate::config::LogLevel;
use crate::executor::Executor;
use crate::fault::shown;
use crate::keyspace::format::DATABASES;
use crate::keyspace::history::Position;
use crate::log::MessageKind;
use crate::master::succession::Recall;
use crate::token::MASTER;
use crate::wait_service::{InVain, end_in_vain};
use crate::{address, machine};

/// The pause before the first retry, and before a retry after many.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// The least bytes that a turn has room for, and the most: those of a large command.
const READ_BYTES: (usize, usize) = (64 << 10, 1 << 20);

type Answer = (u64, Result<Ready, Failure>);

enum LinkStage<'p> {
    Down,
    /// A thread is asking; it ends when this is set.
    Asking(Arc<AtomicBool>),
    /// A copy is being loaded. The instant is when the master was last told that the replica is alive.
    Loading(Box<Loading<'p, File>>, MasterSocket, Instant),
    Streaming(Box<Streaming>),
}

struct Streaming {
    socket: address::ClientStream,
    stream: AppliedStream,
    is_readable: bool,
    /// Bytes that the socket has not taken yet.
    unsent: Vec<u8>,
    acknowledged: Instant,
    /// Offsets that were acknowledged before the device had them, each with the position in the journal that
    /// it waits for. Both ascend.
    undurable: VecDeque<(u64, u64)>,
    /// The offset up to which the device has the stream.
    durable: u64,
    last_io: Instant,
}

pub(crate) struct Link<'p> {
    waker: Arc<Waker>,
    stage: LinkStage<'p>,
    /// The number of the role that this link serves.
    epoch: u64,
    /// The number of the thread whose answer this waits for.
    asked: u64,
    failures: u32,
    retry_at: Instant,
    answers: (Sender<Answer>, Receiver<Answer>),
    /// The questions of a restarted master to its former replicas.
    recall: Option<Recall>,
}

impl<'p> Link<'p> {
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        let (stage, retry_at) = (LinkStage::Down, Instant::now());
        Link { waker, stage, epoch: 0, asked: 0, failures: 0, retry_at, answers: channel(), recall: None }
    }

    /// Begins to ask the replicas that this server had as a master.
    pub(crate) fn recall(&mut self, executor: &mut Executor<'_, 'p>) {
        self.recall = executor.begin_recall(&self.waker);
    }

    /// Takes the answers of former replicas. Called at the beginning of a turn: writes may wait for them.
    pub(crate) fn hear_recalled(&mut self, executor: &mut Executor<'_, 'p>) {
        self.recall.take_if(|recall| recall.advance(executor));
    }

    /// Notes an event of the socket.
    pub(crate) fn note(&mut self, is_readable: bool) {
        if let LinkStage::Streaming(streaming) = &mut self.stage {
            streaming.is_readable |= is_readable;
        }
    }

    /// Whether there is something to do without an event.
    pub(crate) fn is_busy(&self) -> bool {
        match &self.stage {
            LinkStage::Down | LinkStage::Asking(_) => false,
            LinkStage::Loading(..) => true,
            LinkStage::Streaming(streaming) => streaming.is_readable || streaming.stream.is_waiting(),
        }
    }

    /// Does the work of one turn. Called before clients are served; the batch may have changes afterwards.
    pub(crate) fn advance(&mut self, executor: &mut Executor<'_, 'p>, registry: &Registry) {
        let role = &executor.state.role;
        if self.epoch != role.epoch {
            self.epoch = role.epoch;
            (self.failures, self.retry_at) = (0, executor.state.now);
            self.part(executor);
            if executor.state.role.master.is_some() {
                executor.doubt_writes();
            }
        }
        if executor.state.role.master.is_none() || executor.state.role.phase == Phase::Stopped {
            return;
        }
        if let Err(failure) = self.advance_stage(executor, registry) {
            self.fail(executor, failure);
        }
    }

    /// Ends the copy or the stream that is under way.
    fn part(&mut self, executor: &mut Executor<'_, 'p>) {
        self.asked += 1;
        match std::mem::replace(&mut self.stage, LinkStage::Down) {
            LinkStage::Down => {}
            LinkStage::Asking(is_cancelled) => is_cancelled.store(true, Ordering::Relaxed),
            LinkStage::Loading(loading, ..) => {
                // The batch of the loading ends first, since it has the pool's writer.
                drop(loading);
                executor.commit_batch(None);
                if let Err(fault) = executor.keys.give_up_arrival() {
                    let message = format_args!(
                        "a state that did not arrive stays hidden: {}",
                        crate::fault::shown(&fault)
                    );
                    executor.state.log(LogLevel::Warning, MessageKind::Replication, message);
                }
            }
            LinkStage::Streaming(mut streaming) => streaming.stream.end(executor),
        }
    }

    fn fail(&mut self, executor: &mut Executor<'_, 'p>, failure: Failure) {
        let was_loading = matches!(self.stage, LinkStage::Loading(..));
        self.part(executor);
        if failure.is_refusal && executor.state.failover.is_some() {
            executor.end_failover("the replica refused to take over");
        }
        if was_loading {
            // There may have been no room; if this fails too, the next try says so.
            let _ = executor.keys.give_up_kept();
        }
        let state = &mut *executor.state;
        if matches!(state.role.phase, Phase::Up) {
            state.role.down_since = state.now;
            self.failures = 0;
        }
        let (first, most) = RETRY;
        let delay = first.saturating_mul(1 << self.failures.min(10)).min(most);
        (self.failures, self.retry_at) = (self.failures + 1, state.now + delay);
        let is_news = state.role.error.as_deref() != Some(&failure.why);
        state.role.phase = if failure.is_final { Phase::Stopped } else { Phase::Down };
        state.role.last_io = None;
        if failure.is_final {
            // The reason has a key; logs have none.
            let text = "replication stopped at something that cannot be applied; INFO replication names it";
            state.log(LogLevel::Warning, MessageKind::Replication, format_args!("{text}"));
        } else if is_news {
            let message = format_args!("the link to the master is down: {}", failure.why);
            state.log(LogLevel::Warning, MessageKind::Replication, message);
        }
        state.role.error = Some(failure.why);
    }

    fn advance_stage(&mut self, executor: &mut Executor<'_, 'p>, registry: &Registry) -> Result<(), Failure> {
        let now = executor.state.now;
        match &mut self.stage {
            LinkStage::Down if now >= self.retry_at => self.ask(executor),
            LinkStage::Down => Ok(()),
            LinkStage::Asking(_) => self.take_answer(executor, registry),
            LinkStage::Loading(loading, stream, told) => {
                executor.commit_batch(None);
                if now.saturating_duration_since(*told) >= ALIVE_EVERY {
                    *told = now;
                    // If this fails, reading the stream tells why.
                    let _ = stream.write_all(b"\n");
                }
                if loading.step()? {
                    self.complete(executor, registry)?;
                }
                Ok(())
            }
            LinkStage::Streaming(streaming) => streaming.advance(executor),
        }
    }

    /// Lets a thread ask for the stream.
    fn ask(&mut self, executor: &mut Executor<'_, 'p>) -> Result<(), Failure> {
        let state = &mut *executor.state;
        let Some(master) = state.role.master.clone() else { return Ok(()) };
        let position = executor.keys.replication.position;
        let end = position.map_or(0, |position| position.offset);
        // If the backlog does not tell this offset, a master that was promoted before the end sends a whole
        // copy.
        let harmless_from = executor.keys.replication.backlog.harmless_from(end).unwrap_or(end);
        let (settings, is_cancelled) = (&state.config.replica, Arc::new(AtomicBool::new(false)));
        state.role.transfer = Arc::new(Transfer::default());
        let question = Question {
            master,
            tls: state.tls.client.clone(),
            password: settings.password.clone(),
            user: settings.user.clone(),
            port: settings.announced_port.unwrap_or(state.port_for_replicas()),
            announced_ip: settings.announced_ip.clone(),
            position,
            harmless_from,
            hands_over: state.failover.is_some(),
            is_told: state.failover.as_ref().map(|failover| failover.is_told.clone()).unwrap_or_default(),
            is_forced: state.failover.as_ref().is_some_and(|failover| failover.is_forced),
            timeout: settings.timeout,
            folder: PathBuf::from(&state.folder),
            transfer: state.role.transfer.clone(),
            is_cancelled: is_cancelled.clone(),
        };
        state.role.phase = Phase::Asking;
        executor.keys.replication.went_back = false;
        self.asked += 1;
        let (sender, number, waker) = (self.answers.0.clone(), self.asked, self.waker.clone());
        let run = move || {
            // Nobody may be listening any more.
            let _ = sender.send((number, ask(&question)));
            let _ = waker.wake();
        };
        std::thread::Builder::new().name("replica".to_owned()).spawn(run)?;
        self.stage = LinkStage::Asking(is_cancelled);
        Ok(())
    }

    fn take_answer(&mut self, executor: &mut Executor<'_, 'p>, registry: &Registry) -> Result<(), Failure> {
        let role = &mut executor.state.role;
        if role.transfer.is_begun.load(Ordering::Relaxed) {
            role.phase = Phase::Synchronising;
        }
        let Ok((number, answer)) = self.answers.1.try_recv() else { return Ok(()) };
        if number != self.asked {
            return Ok(());
        }
        match answer? {
            Ready::Goes { stream, id, from } => {
                if executor.keys.replication.position.is_some_and(|now| from < now.offset) {
                    executor.commit_batch(None);
                    executor.keys.rewind(from).map_err(|fault| failed(shown(&fault)))?;
                    let text = "the master was promoted before the last signs of life that this server told";
                    executor.state.log(
                        LogLevel::Notice,
                        MessageKind::Replication,
                        format_args!("{text}: it goes back"),
                    );
                }
                let replication = &mut executor.keys.replication;
                if let Some(id) = id.filter(|id| replication.position.is_some_and(|now| now.id != *id)) {
                    // A promoted replica is the master now: up to here the old id names the same bytes.
                    replication.rename(id);
                }
                executor.state.log(
                    LogLevel::Notice,
                    MessageKind::Replication,
                    format_args!("the master's stream goes on where this replica was"),
                );
                self.stream(executor, registry, stream)
            }
            Ready::Whole(whole) => {
                executor.commit_batch(None);
                let keys = whole.survey.keys.total();
                let Whole { stream, id, offset, file, survey } = *whole;
                let database = survey.stream_database.filter(|number| *number < DATABASES as u64);
                let position = Position { id, offset, database: database.unwrap_or_default() as u8 };
                let encodings = executor.state.config.encodings;
                let (loading, cleared) =
                    Loading::begin(&mut executor.keys, (file, &survey), position, encodings)?;
                let note = if cleared { "; the old ones had to be cleared first" } else { "" };
                let message = format_args!("loading {keys} keys of the master{note}");
                executor.state.log(LogLevel::Notice, MessageKind::Replication, message);
                self.stage = LinkStage::Loading(Box::new(loading), stream, executor.state.now);
                Ok(())
            }
        }
    }

    fn complete(&mut self, executor: &mut Executor<'_, 'p>, registry: &Registry) -> Result<(), Failure> {
        let LinkStage::Loading(loading, stream, _) = std::mem::replace(&mut self.stage, LinkStage::Down)
        else {
            return Ok(());
        };
        executor.keys.keeping.grace_ms = executor.state.config.flush_grace.as_millis() as u64;
        if let Err(failure) = loading.complete(&mut executor.keys) {
            // The arrival is given up as if the loading had failed, since no later stage would do it.
            let _ = executor.keys.give_up_arrival();
            return Err(failure);
        }
        executor.take_up_moves();
        executor.state.log(
            LogLevel::Notice,
            MessageKind::Replication,
            format_args!("the master's state is whole and has taken the place of the old one"),
        );
        self.stream(executor, registry, stream)
    }

    fn stream(
        &mut self,
        executor: &mut Executor<'_, 'p>,
        registry: &Registry,
        stream: MasterSocket,
    ) -> Result<(), Failure> {
        let (peer, local) = (stream.tcp().peer_addr()?, stream.tcp().local_addr()?);
        let mut socket = stream.into_stream()?;
        registry.register(&mut socket, MASTER, Interest::READABLE | Interest::WRITABLE)?;
        let now = executor.state.now;
        let mut streaming = Streaming {
            socket,
            stream: AppliedStream::new(executor, peer, local),
            is_readable: true,
            unsent: Vec::new(),
            acknowledged: now,
            undurable: VecDeque::new(),
            durable: 0,
            last_io: now,
        };
        // A master without a disk sends nothing before it hears this.
        streaming.acknowledge(executor, false)?;
        (executor.state.role.phase, executor.state.role.error) = (Phase::Up, None);
        executor.state.role.last_io = Some(now);
        self.stage = LinkStage::Streaming(Box::new(streaming));
        executor.complete_failover();
        Ok(())
    }

    /// Acknowledges committed bytes, if it is time. Called when the batch of a turn is committed.
    pub(crate) fn end_turn(&mut self, executor: &mut Executor<'_, 'p>) {
        let LinkStage::Streaming(streaming) = &mut self.stage else { return };
        let now = executor.state.now;
        let is_due = now.saturating_duration_since(streaming.acknowledged) >= ALIVE_EVERY;
        let is_asked = std::mem::take(&mut streaming.stream.is_asked);
        let is_news = is_due || is_asked || streaming.has_become_durable(executor.keys.pool());
        let acknowledged = executor.expect_no_way_back().and_then(|()| match is_news {
            true => streaming.acknowledge(executor, is_asked),
            false => Ok(()),
        });
        if let Err(failure) = acknowledged {
            self.fail(executor, failure);
        }
    }
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        if let LinkStage::Asking(is_cancelled) = &self.stage {
            is_cancelled.store(true, Ordering::Relaxed);
        }
    }
}

impl Streaming {
    fn advance(&mut self, executor: &mut Executor<'_, '_>) -> Result<(), Failure> {
        executor.expect_no_way_back()?;
        let now = executor.state.now;
        // Commands that have arrived come first, so that memory is bounded.
        if self.is_readable && !self.stream.is_waiting() {
            self.receive(executor)?;
        }
        if now.saturating_duration_since(self.last_io) > executor.state.config.replica.timeout {
            return Err(failed("the master was silent for too long (repl-timeout)"));
        }
        executor.apply(&mut self.stream)
    }

    fn receive(&mut self, executor: &mut Executor<'_, '_>) -> Result<(), Failure> {
        let input = &mut self.stream.input;
        let before = input.len();
        input.resize(before + self.stream.needed.clamp(READ_BYTES.0, READ_BYTES.1), 0);
        let read = self.socket.read(&mut input[before..]);
        input.truncate(before + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(failed("the master closed the connection")),
            Ok(count) => {
                self.last_io = executor.state.now;
                executor.state.role.last_io = Some(self.last_io);
                executor.state.stats.bytes_in += count as u64;
                Ok(())
            }
            Err(error) if is_wait(&error) => {
                self.is_readable = error.kind() == io::ErrorKind::Interrupted || self.socket.has_more();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Notes an offset that is committed, and how far the device is. A client may wait for it if the master
    /// has asked.
    fn note_durable(&mut self, pool: &Pool, offset: u64, is_asked: bool) {
        match pool.domain() {
            Domain::PageCache => {}
            Domain::Relaxed => {
                let end = pool.commit_position();
                if self.undurable.back().is_none_or(|(_, noted)| *noted < offset) {
                    self.undurable.push_back((end, offset));
                }
                if is_asked {
                    pool.want_durable(end);
                }
                self.has_become_durable(pool);
            }
            _ => self.durable = offset,
        }
    }

    /// Whether the device has more of the stream than at the last call.
    fn has_become_durable(&mut self, pool: &Pool) -> bool {
        let before = self.durable;
        if !self.undurable.is_empty() {
            let durable = pool.durable_position().unwrap_or(0);
            while let Some((_, offset)) = self.undurable.pop_front_if(|(end, _)| *end <= durable) {
                self.durable = offset;
            }
        }
        self.durable > before
    }

    /// Tells the master how far the pool is.
    fn acknowledge(&mut self, executor: &mut Executor<'_, '_>, is_asked: bool) -> Result<(), Failure> {
        self.acknowledged = executor.state.now;
        let pool = executor.keys.pool();
        // Commits of the event loop may not be on the device yet.
        if pool.domain() == Domain::Journaled && pool.make_durable().is_err() {
            return Err(failed("the device failed"));
        }
        let offset = executor.keys.replication.position.map_or(0, |position| position.offset);
        self.note_durable(pool, offset, is_asked);
        let (offset, durable) = (offset.to_string(), self.durable.to_string());
        let words = [&b"REPLCONF"[..], b"ACK", offset.as_bytes(), b"FACK", durable.as_bytes()];
        write_request(&mut self.unsent, words[..if self.durable > 0 { 5 } else { 3 }].iter().copied());
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(0) => return Err(failed("the connection takes nothing")),
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Executor<'_, '_> {
    /// Takes up the role that the pool has; or, in a new pool, that of the configuration.
    pub(crate) fn begin_role(&mut self) {
        self.take_up_role();
        self.begin_moves();
    }

    fn take_up_role(&mut self) {
        let configured = self.state.config.replica.master.clone();
        match self.keys.stored_master() {
            Ok((true, master)) => {
                self.state.role.master = master;
                self.state.role.begin();
                if let Err(fault) = self.keys.keep_stream() {
                    let why = crate::fault::shown(&fault);
                    let message = format_args!("the stream is not kept for replicas: {why}");
                    self.state.log(LogLevel::Warning, MessageKind::Replication, message);
                }
                self.keys.replication.backlog.bytes_max = self.state.backlog_bytes();
                self.keys.replication.take_up(self.state.role.master.is_none());
                if let Err(fault) = self.expect_same_boot() {
                    let why = crate::fault::shown(&fault);
                    let message =
                        format_args!("the boot is not stored, and the next start has a new id: {why}");
                    self.state.log(LogLevel::Warning, MessageKind::Replication, message);
                }
            }
            Ok((false, _)) if configured.is_some() => {
                match crate::keyspace::key_count::count_keys(self.keys.pool()) {
                    Ok(0) => self.state.role.choose(configured),
                    _ => {
                        let text = "replicaof is not obeyed: the pool has data of its own; use REPLICAOF";
                        self.state.log(LogLevel::Warning, MessageKind::Replication, format_args!("{text}"));
                    }
                }
            }
            Ok((false, _)) => {}
            Err(fault) => {
                let message = format_args!("the pool's role is unreadable: {}", crate::fault::shown(&fault));
                self.state.log(LogLevel::Warning, MessageKind::Replication, message);
            }
        }
    }

    /// Goes on in a new history, if bytes of the present one may have been sent that the pool has lost.
    fn expect_same_boot(&mut self) -> crate::fault::Answer {
        let boot = machine::boot_id();
        let is_known = match self.keys.stored_boot()? {
            Some((stored, is_clean)) => is_clean || stored == boot && !boot.is_empty(),
            None => false,
        };
        let is_master = self.state.role.master.is_none();
        if is_master && !is_known && !self.state.survives_power_failure() {
            let id = self.state.random_id();
            self.keys.replication.rename(id);
            let text =
                "the system was started anew: the replication id is a new one, and the old one is the second";
            self.state.log(LogLevel::Notice, MessageKind::Replication, format_args!("{text}"));
        }
        self.keys.store_boot(&boot, false)
    }

    /// Notes a clean stop. Called when the last batch is committed.
    pub(crate) fn note_stop(&mut self) {
        // Without this note the next start may take a new id; nothing else depends on it.
        let _ = self.keys.store_boot(&machine::boot_id(), true);
    }

    /// Makes a role durable that was chosen. Called between the commit of a batch and its replies.
    #[cold]
    pub(crate) fn persist_role(&mut self) {
        self.state.role.is_changed = false;
        self.commit_batch(None);
        let (master, new_id) = (self.state.role.master.clone(), self.state.random_id());
        if let Err(fault) = self.keys.store_master(master.as_ref(), new_id) {
            let why = crate::fault::shown(&fault);
            let message = format_args!("the role is not durable, and a restart has the old one: {why}");
            self.state.log(LogLevel::Warning, MessageKind::Replication, message);
        }
        if master.is_none() {
            return;
        }
        let waiting = self.clients.iter().filter(|conn| conn.session.waiting.is_some());
        let slots: Vec<usize> = waiting.map(|conn| conn.session.slot).collect();
        for slot in slots {
            if let Some(conn) = self.clients.get_mut(slot)
                && end_in_vain(conn, &mut self.keys, InVain::Demoted)
            {
                self.clients.note_unblocked(slot);
            }
        }
    }
}
