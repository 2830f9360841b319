//! The source's part of a turn: at its end, when there is no batch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::Waker;

use super::copy::{Commands, Copy};
use super::filter::filter;
use super::link::{Job, Link, News, Target};
use super::{Move, Verdict};
use crate::cluster::Cluster;
use crate::config::LogLevel;
use crate::executor::Executor;
use crate::fault::shown;
use crate::keyspace::history::Id;
use crate::log::MessageKind;
use crate::master::feed::{acknowledged, progress_of_replicas};

/// How long a turn makes commands.
const STEP: Duration = Duration::from_millis(1);
/// Bytes of commands that the thread gets at once, and bytes that it may have in all.
const CHUNK_BYTES: usize = 256 << 10;
const UNTAKEN_BYTES_MAX: usize = 1 << 20;
/// Effects of clients that the target has not run: beyond these the source makes no commands of its own.
const LEFT_BYTES_MAX: usize = 64 << 20;
/// When this few commands are on the way, the source drains.
const FEW_BYTES: usize = 128 << 10;
/// How long the source takes no writes before it goes on copying; how long it then waits, longer each time;
/// how often it tries.
const DRAIN_MAX: Duration = Duration::from_millis(100);
const REST: Duration = Duration::from_millis(200);
const DRAINS_MAX: u32 = 100;
/// How long a source waits for a target that answers slowly to become quicker.
const SLOW_REST: Duration = Duration::from_millis(500);
/// How long a source waits for a replica that has its record.
const RECORD_MAX: Duration = Duration::from_secs(1);
/// How often a source in doubt asks.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// How far a source is in this run of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoveStage {
    Beginning,
    Copying,
    /// Clients may not write, and the target sees that a replica has everything.
    Draining(Instant),
    /// The record says DOUBT since then, up to an offset; a replica of this node is to have it, too.
    Recorded(u64, Instant),
    Doubtful,
}

/// A move from here that is under way in this run of the server.
struct RunningMove {
    id: Id,
    stage: MoveStage,
    link: Option<Link>,
    copy: Copy,
    out: Commands,
    /// Bytes of commands that the thread has and the target has not answered.
    untaken: usize,
    /// Bytes of clients' commands among those, and among the commands that the thread does not have yet.
    left: usize,
    /// Bytes of clients' commands that the thread does not have yet.
    ungiven: usize,
    /// When the commands were given to the thread that the target has not answered, and how long it took
    /// for the last ones that it has.
    given: VecDeque<(Instant, usize)>,
    lag: Duration,
    /// How many times the target was asked whether it is ready and has not answered yet.
    asked: u32,
    drains: u32,
    /// A command other than a removal came after the target was asked whether it is ready.
    has_written_late: bool,
    /// The move does nothing before this time.
    next: Instant,
    /// The time at which the slots began to take no writes.
    stopped: Instant,
}

pub(crate) struct Mover {
    waker: Arc<Waker>,
    running: Option<RunningMove>,
}

impl RunningMove {
    fn new(moving: &Move, stage: MoveStage, now: Instant) -> Self {
        RunningMove {
            id: moving.id,
            stage,
            link: None,
            copy: Copy::new(moving.slots.clone()),
            out: Commands::default(),
            untaken: 0,
            left: 0,
            ungiven: 0,
            given: VecDeque::new(),
            lag: Duration::ZERO,
            asked: 0,
            drains: 0,
            has_written_late: false,
            next: now,
            stopped: now,
        }
    }

    /// Gives the thread the commands that are ready.
    fn flush(&mut self, now: Instant) {
        let commands = std::mem::take(&mut self.out);
        if let Some(link) = self.link.as_ref().filter(|_| commands.count > 0) {
            self.untaken += commands.bytes.len();
            self.given.push_back((now, std::mem::take(&mut self.ungiven)));
            link.give(Job::Send(commands));
        }
    }

    fn has_room(&self) -> bool {
        self.untaken + self.out.bytes.len() < UNTAKEN_BYTES_MAX
    }
}

impl Mover {
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        Mover { waker, running: None }
    }

    /// Whether there is something to do without an event.
    pub(crate) fn is_busy(&self) -> bool {
        self.running.as_ref().is_some_and(|running| {
            running.stage == MoveStage::Copying && !running.copy.is_done() && running.has_room()
        })
    }

    /// Does as much as one turn may. Called when the batch is committed.
    pub(crate) fn advance(&mut self, executor: &mut Executor<'_, '_>) {
        let now = executor.state.now;
        let is_master = executor.state.role.master.is_none();
        let sending =
            executor.state.cluster.as_ref().filter(|_| is_master).and_then(|it| it.moves().sending());
        let Some((moving, is_doubtful)) = sending.map(|(moving, doubt)| (moving.clone(), doubt)) else {
            if self.running.take().is_some() {
                executor.end_tap();
            }
            return;
        };
        if self.running.as_ref().is_none_or(|running| running.id != moving.id) {
            let stage = if is_doubtful { MoveStage::Doubtful } else { MoveStage::Beginning };
            self.running = Some(RunningMove::new(&moving, stage, now));
        }
        let Some(running) = &mut self.running else { return };
        let advanced = running.advance(executor, &moving, &self.waker);
        if let Err(why) = advanced {
            running.link = None;
            if matches!(running.stage, MoveStage::Recorded(..) | MoveStage::Doubtful) {
                running.stage = MoveStage::Doubtful;
                running.next = now + ASK_EVERY;
                return;
            }
            self.running = None;
            executor.end_tap();
            executor.fail_move(&why);
        }
    }
}

impl RunningMove {
    fn advance(
        &mut self,
        executor: &mut Executor<'_, '_>,
        moving: &Move,
        waker: &Arc<Waker>,
    ) -> Result<(), String> {
        let now = executor.state.now;
        if self.link.is_none() && now >= self.next {
            let target = executor.target_of(moving)?;
            let version = executor.state.cluster.as_ref().map_or(0, |cluster| cluster.version());
            let started = match self.stage {
                MoveStage::Doubtful => Link::ask(target, moving.clone(), version, waker.clone()),
                _ => Link::begin(target, moving.clone(), waker.clone()),
            };
            self.link = Some(started.map_err(|error| error.to_string())?);
        }
        while let Some(news) = self.link.as_ref().and_then(Link::news) {
            self.take(executor, moving, news)?;
        }
        match self.stage {
            MoveStage::Recorded(offset, since) => return self.let_decide(executor, offset, since),
            MoveStage::Beginning | MoveStage::Doubtful => return Ok(()),
            _ => {}
        }
        self.relay(executor, moving)?;
        if self.stage == MoveStage::Copying {
            self.copy_some(executor)?;
        }
        let guarded = self.copy.guarded().map(<[u8]>::to_vec);
        if let Some(cluster) = executor.state.cluster.as_mut() {
            cluster.guarded = guarded;
        }
        self.flush(executor.state.now);
        self.drain(executor)
    }

    fn take(&mut self, executor: &mut Executor<'_, '_>, moving: &Move, news: News) -> Result<(), String> {
        match news {
            News::Begun => {
                self.stage = MoveStage::Copying;
                executor.begin_tap();
            }
            News::Taken(bytes) => {
                self.untaken -= bytes;
                if let Some((given, left)) = self.given.pop_front() {
                    self.left -= left;
                    self.lag = executor.state.now.saturating_duration_since(given);
                }
            }
            News::Ready(is_ready) => {
                self.asked -= 1;
                match self.stage {
                    // An answer that came late was about an earlier draining.
                    MoveStage::Draining(since) if is_ready && self.asked == 0 => {
                        self.commit(executor, moving, since)?;
                    }
                    MoveStage::Draining(_) if self.asked == 0 => self.rest(executor)?,
                    _ => {}
                }
            }
            News::Committed | News::Answered(Verdict::Handed) => executor.decide_move(true, self.stopped)?,
            News::Answered(Verdict::Never) => executor.decide_move(false, self.stopped)?,
            News::Answered(Verdict::Newer) => return Err("the target has a newer topology".to_owned()),
            News::Failed(why) => return Err(why),
        }
        Ok(())
    }

    /// Takes the effects of clients since the last turn.
    fn relay(&mut self, executor: &mut Executor<'_, '_>, moving: &Move) -> Result<(), String> {
        let tap = executor.keys.replication.effects.tap.as_mut().map(std::mem::take).unwrap_or_default();
        let before = self.out.bytes.len();
        filter(&executor.state.registry, &tap, &moving.slots, &mut self.copy, &mut self.out)?;
        let told = self.out.bytes.len() - before;
        (self.left, self.ungiven) = (self.left + told, self.ungiven + told);
        self.has_written_late |= matches!(self.stage, MoveStage::Draining(_)) && self.out.writes > 0;
        // The source's own commands do not count: a value may be as large as this.
        if self.left > LEFT_BYTES_MAX {
            return Err("the target is slower than the clients that write here".to_owned());
        }
        Ok(())
    }

    fn copy_some(&mut self, executor: &mut Executor<'_, '_>) -> Result<(), String> {
        let begun = Instant::now();
        while self.has_room() && !self.copy.is_done() && begun.elapsed() < STEP {
            self.copy.step(&executor.keys, &mut self.out).map_err(|fault| shown(&fault))?;
            if self.out.bytes.len() >= CHUNK_BYTES {
                self.flush(executor.state.now);
            }
        }
        Ok(())
    }

    /// Goes from copying to draining, and asks the target whether it is ready. Ends a draining that takes too
    /// long.
    fn drain(&mut self, executor: &mut Executor<'_, '_>) -> Result<(), String> {
        let now = executor.state.now;
        match self.stage {
            MoveStage::Copying if self.copy.is_done() && self.is_near(now) && now >= self.next => {
                // All that clients have done was given to the thread, in front of the question.
                self.stage = MoveStage::Draining(now);
                self.stopped = now;
                (self.has_written_late, self.asked) = (false, self.asked + 1);
                executor.set_draining(true);
                if let Some(link) = &self.link {
                    link.give(Job::Ready);
                }
            }
            MoveStage::Draining(since) if now.saturating_duration_since(since) > DRAIN_MAX => {
                self.rest(executor)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the target has all but a little, and answers.
    fn is_near(&self, now: Instant) -> bool {
        let oldest =
            self.given.front().map_or(Duration::ZERO, |(given, _)| now.saturating_duration_since(*given));
        let is_quick = self.lag.max(oldest) < DRAIN_MAX / 4;
        // A target that is always slow gets its chance.
        let has_waited = now >= self.next + SLOW_REST;
        self.untaken == 0 || self.untaken <= FEW_BYTES && (is_quick || has_waited)
    }

    /// Lets clients write again for a while.
    fn rest(&mut self, executor: &mut Executor<'_, '_>) -> Result<(), String> {
        self.drains += 1;
        if self.drains > DRAINS_MAX {
            return Err("the hand-over took longer than 100 ms each time".to_owned());
        }
        executor.set_draining(false);
        self.stage = MoveStage::Copying;
        self.next = executor.state.now + REST * self.drains.min(10);
        Ok(())
    }

    /// Lets the target decide, if there is time.
    fn commit(
        &mut self,
        executor: &mut Executor<'_, '_>,
        moving: &Move,
        since: Instant,
    ) -> Result<(), String> {
        // Expiry and eviction go on: the target has deadlines, too, and gets the removals before COMMIT.
        self.relay(executor, moving)?;
        self.flush(executor.state.now);
        let is_late = since.elapsed() > DRAIN_MAX;
        if is_late || self.has_written_late || !self.copy.is_done() || !executor.may_be_replicated() {
            return self.rest(executor);
        }
        executor.prepare_move()?;
        let offset = executor.keys.replication.position.map_or(0, |position| position.offset);
        self.stage = MoveStage::Recorded(offset, executor.state.now);
        // These slots do not change from now on, and no reader takes the effects.
        executor.end_tap();
        self.let_decide(executor, offset, executor.state.now)
    }

    /// Lets the target decide once a replica has the record. Without the record, a replica that took this
    /// node's place would serve the slots.
    fn let_decide(
        &mut self,
        executor: &mut Executor<'_, '_>,
        offset: u64,
        since: Instant,
    ) -> Result<(), String> {
        let has_replica = executor.state.cluster.as_ref().is_some_and(|cluster| cluster.has_replica());
        if !has_replica || acknowledged(&progress_of_replicas(executor.clients.iter()), offset) > 0 {
            self.stage = MoveStage::Doubtful;
            if let Some(link) = &self.link {
                link.give(Job::Commit);
            }
            return Ok(());
        }
        executor.state.replicas.wants_acks = true;
        if executor.state.now.saturating_duration_since(since) > RECORD_MAX {
            return Err("no replica of this node has the record in time".to_owned());
        }
        Ok(())
    }
}

impl Cluster {
    /// The version of the topology.
    pub(crate) fn version(&self) -> u64 {
        self.topology.as_ref().map_or(0, |topology| topology.version)
    }
}

impl Executor<'_, '_> {
    /// The address of the target's shard.
    fn target_of(&self, moving: &Move) -> Result<Target, String> {
        let topology = self.state.cluster.as_ref().and_then(|cluster| cluster.topology.as_ref());
        let place = topology.and_then(|topology| Some((topology, topology.find(&moving.target)?)));
        let (topology, place) = place.ok_or("the target is not in the topology")?;
        let node = &topology.nodes[topology.nodes[place].master.unwrap_or(place)];
        let settings = &self.state.config.replica;
        let (user, password) = (settings.user.clone(), settings.password.clone());
        let tls = self.state.tls.client.clone();
        Ok(Target { host: node.host.clone(), port: node.port, user, password, tls })
    }

    /// Whether a replica is connected, if the topology has one.
    fn may_be_replicated(&self) -> bool {
        let has_replica = self.state.cluster.as_ref().is_some_and(|cluster| cluster.has_replica());
        !has_replica || !progress_of_replicas(self.clients.iter()).is_empty()
    }

    fn begin_tap(&mut self) {
        self.keys.replication.effects.tap = Some(Vec::new());
        self.keys.replication.take_up(true);
    }

    fn end_tap(&mut self) {
        let effects = &mut self.keys.replication.effects;
        if effects.tap.take().is_some() {
            let is_master = self.state.role.master.is_none();
            let was_on = effects.is_on;
            self.keys.replication.take_up(is_master && was_on);
        }
    }

    fn set_draining(&mut self, is_draining: bool) {
        // Nothing was taken from the slots meanwhile.
        self.keys.waiters.try_all |= !is_draining && self.keys.waiters.len() > 0;
        if let Some(cluster) = self.state.cluster.as_mut() {
            cluster.set_draining(is_draining);
        }
    }

    /// Notes durably that the target may decide from now on.
    fn prepare_move(&mut self) -> Result<(), String> {
        self.change_moves(super::Moves::prepare)
    }

    fn fail_move(&mut self, why: &str) {
        self.state.log(
            LogLevel::Warning,
            MessageKind::Replication,
            format_args!("slots were not moved: {why}"),
        );
        // Without the record a restart fails the move.
        let _ = self.change_moves(|moves| moves.fail(why));
        self.set_draining(false);
    }

    fn decide_move(&mut self, is_handed: bool, stopped: Instant) -> Result<(), String> {
        // If the record cannot be stored, the target is asked again.
        self.change_moves(|moves| moves.decide(is_handed))?;
        let ms = stopped.elapsed().as_millis();
        let (level, text) = match is_handed {
            true => (LogLevel::Notice, "slots were moved to another node"),
            false => (LogLevel::Warning, "slots were not moved: the target gave up"),
        };
        let message = format_args!("{text}; they took no writes for {ms} ms");
        self.state.log(level, MessageKind::Replication, message);
        crate::cluster::adopt::part_with_lost_slots(&mut self.keys, self.state, &mut self.clients);
        Ok(())
    }
}
