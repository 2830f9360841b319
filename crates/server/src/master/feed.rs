//! The stream into the connections of replicas, once per turn.

use std::time::{Duration, Instant};

use tembo::{Domain, Pool};
use tembo_wire::ReplyWriter;

use super::{AwaitedDevice, Awaiting, POOL_SHARE, Replica, ReplicaStage, copy};
use crate::client_ref::ClientRef;
use crate::config::LogLevel;
use crate::conn::Conn;
use crate::executor::Executor;
use crate::log::MessageKind;
use crate::wait_service::DEMOTED;

/// A connection that has fewer bytes to send gets this many more.
const FEED_BYTES: usize = 256 << 10;

impl Executor<'_, '_> {
    /// Whether there is something to do for replicas.
    pub(crate) fn has_replicas(&self) -> bool {
        let replicas = &self.state.replicas;
        !replicas.list.is_empty() || !replicas.awaiting.is_empty() || self.state.failover.is_some()
    }

    /// Does what replicas need before a turn's commits are waited for: pings, and whole copies. Called when
    /// the batch is committed.
    #[cold]
    pub(crate) fn tend_replicas(&mut self) {
        let Executor { state, clients, keys, .. } = self;
        state.replicas.list.retain(|client| {
            let conn = clients.get_mut(client.slot).filter(|conn| conn.session.id == client.id);
            conn.is_some_and(|conn| !conn.session.killed && conn.session.replica.is_some())
        });
        if std::mem::replace(&mut state.replicas.epoch, keys.replication.epoch) != keys.replication.epoch {
            // The replicas ask again, and learn of the other id.
            clients.kill(|conn| conn.session.replica.as_ref().is_some_and(|replica| replica.is_asking()));
        }
        let is_due =
            state.now.saturating_duration_since(state.replicas.pinged) >= state.config.replica.ping_period;
        let wants_acks = std::mem::take(&mut state.replicas.wants_acks);
        if state.role.master.is_none() && !state.replicas.list.is_empty() && keys.replication.effects.is_on {
            if wants_acks {
                keys.replication.add_plain(&["REPLCONF", "GETACK", "*"]);
            }
            // A replica that is to take over would never have everything.
            if is_due && state.failover.is_none() {
                state.replicas.pinged = state.now;
                keys.replication.add_plain(&["PING"]);
            }
            if wants_acks || is_due {
                self.commit_batch(None);
            }
        }
        self.remember_replicas();
        self.advance_failover();
        if is_due {
            self.calm_waiting();
        }
        self.join_copy();
    }

    /// Lets the backlog be as long as it is to be, also without replicas: backups need it too.
    pub(crate) fn tend_backlog(&mut self) {
        self.keys.replication.backlog.bytes_max = self.state.backlog_bytes();
    }

    /// Sends the connections of replicas as much as they can take, and ends waits for replicas. Called when
    /// the batch is committed.
    #[cold]
    pub(crate) fn feed_replicas(&mut self) {
        let committed = self.keys.replication.committed().map_or(0, |position| position.offset);
        let (mut kept_from, mut is_feeding, mut good) = (None, false, 0);
        let most = self.state.pool_bytes_max / POOL_SHARE;
        for at in 0..self.state.replicas.list.len() {
            let client = self.state.replicas.list[at];
            let fed = self.feed(client, committed, most);
            let Some(conn) = self.clients.get_mut(client.slot) else { continue };
            let Some(replica) = conn.session.replica.as_deref() else { continue };
            match fed {
                Ok(()) => {
                    let silence = self.state.now.saturating_duration_since(replica.heard);
                    let is_good = replica.is_online() && silence <= self.state.config.replica.max_lag;
                    good += u64::from(is_good && !replica.is_backup);
                    if replica.needs_backlog() {
                        kept_from =
                            Some(kept_from.map_or(replica.cursor, |kept: u64| kept.min(replica.cursor)));
                    }
                    if replica.is_asking() && !matches!(replica.stage, ReplicaStage::WantsCopy) {
                        let has_more = match replica.stage {
                            ReplicaStage::AwaitsCopy => false,
                            ReplicaStage::Online => replica.cursor < committed,
                            _ => true,
                        };
                        is_feeding |= has_more && conn.writable;
                    }
                }
                Err(why) => {
                    let message = format_args!("replica {} is disconnected: {why}", conn.session);
                    self.state.log(LogLevel::Warning, MessageKind::Replication, message);
                    self.clients.kill(|conn| conn.session.id == client.id);
                }
            }
        }
        self.keys.replication.backlog.kept_from = kept_from;
        self.tend_backlog();
        (self.state.replicas.is_feeding, self.state.replicas.good) = (is_feeding, good);
        self.end_waits_for_replicas();
    }

    /// Sends one connection as much as it can take.
    fn feed(&mut self, client: ClientRef, committed: u64, most: u64) -> Result<(), String> {
        let Executor { state, clients, keys, .. } = self;
        let backlog = &keys.replication.backlog;
        let conn = clients.get_mut(client.slot).filter(|conn| conn.session.id == client.id);
        let Some(conn) = conn.filter(|conn| !conn.session.killed) else { return Ok(()) };
        let unsent = conn.output.unsent();
        let Some(replica) = conn.session.replica.as_deref_mut() else { return Ok(()) };
        if matches!(replica.stage, ReplicaStage::Introducing | ReplicaStage::WantsCopy) {
            return Ok(());
        }
        let limit = state.config.output_limits.replica;
        if replica.needs_backlog() {
            // A backup asks for what the backlog has anyway, and may take its time.
            let is_kept_anyway =
                replica.is_backup && committed.saturating_sub(replica.cursor) <= backlog.bytes_max;
            if !is_kept_anyway {
                expect_near(replica, committed, &limit, most, state.now)?;
            }
            if replica.cursor < backlog.first() {
                return Err("the backlog has not what it lacks".to_owned());
            }
        }
        if replica.is_online() && !replica.is_plain {
            let silence = state.now.saturating_duration_since(replica.heard);
            if silence > state.config.replica.timeout {
                return Err("it was silent for too long (repl-timeout)".to_owned());
            }
        }
        if matches!(replica.stage, ReplicaStage::Copying(..)) {
            expect_taking(replica, unsent, state.now, state.config.replica.timeout)?;
        }
        if unsent >= FEED_BYTES || matches!(replica.stage, ReplicaStage::AwaitsCopy) {
            return Ok(());
        }
        let out = &mut conn.output.bytes;
        let before = out.len();
        if let ReplicaStage::Copying(file, at, len) = &mut replica.stage {
            let most = FEED_BYTES.min((*len - *at) as usize);
            let count = copy::read(file, *at, most, out);
            *at += count.map_err(|error| format!("its copy cannot be read: {error}"))? as u64;
            if at == len {
                let next =
                    if replica.wants_only_copy { ReplicaStage::Introducing } else { ReplicaStage::Online };
                (replica.stage, replica.heard) = (next, state.now);
            }
            replica.unsent = unsent + (out.len() - before);
        } else if replica.cursor < committed {
            let read = backlog.read(replica.cursor, FEED_BYTES, out);
            replica.cursor = read.map_err(|error| format!("the backlog cannot be read: {error}"))?;
        }
        if out.len() > before {
            conn.session.is_plain = false;
            clients.note_pushed(client.slot);
        }
        Ok(())
    }

    /// Lets no WAIT count what clients wrote before this server became a replica: the new master's data may
    /// take it back.
    #[cold]
    pub(crate) fn doubt_writes(&mut self) {
        for session in self.clients.sessions_mut() {
            session.in_doubt |= std::mem::take(&mut session.has_written);
        }
        for client in std::mem::take(&mut self.state.replicas.awaiting) {
            let found = self.clients.get_mut(client.slot).filter(|conn| conn.session.id == client.id);
            let Some(conn) = found.filter(|conn| conn.session.awaiting.is_some()) else { continue };
            (conn.session.awaiting, conn.session.in_doubt) = (None, false);
            ReplyWriter::new(&mut conn.output.bytes, conn.session.protocol).error(DEMOTED);
            self.clients.note_unblocked(client.slot);
        }
    }

    /// Answers clients that have waited for enough copies, or long enough. Their writes are committed.
    fn end_waits_for_replicas(&mut self) {
        if self.state.replicas.awaiting.is_empty() {
            return;
        }
        let replicas = progress_of_replicas(self.clients.iter());
        for client in std::mem::take(&mut self.state.replicas.awaiting) {
            let found = self.clients.get_mut(client.slot).filter(|conn| conn.session.id == client.id);
            let Some(awaiting) = found.and_then(|conn| conn.session.awaiting.as_deref_mut()) else {
                continue;
            };
            let pool = self.keys.pool();
            if let Some(AwaitedDevice { is_wanted, position: position @ None }) = &mut awaiting.device {
                let end = pool.commit_position();
                *position = Some(end);
                if *is_wanted {
                    pool.want_durable(end);
                }
            }
            let awaiting = *awaiting;
            let (is_local, count) = copies(pool, &replicas, &awaiting);
            let is_over = awaiting.deadline.is_some_and(|deadline| deadline <= self.state.now);
            let lacks_device = awaiting.device.is_some_and(|device| device.is_wanted) && !is_local;
            if (count < awaiting.count || lacks_device) && !is_over {
                self.state.replicas.awaiting.push(client);
                continue;
            }
            let Some(conn) = self.clients.get_mut(client.slot) else { continue };
            conn.session.awaiting = None;
            let mut out = ReplyWriter::new(&mut conn.output.bytes, conn.session.protocol);
            answer(&mut out, &awaiting, (is_local, count));
            self.clients.note_unblocked(client.slot);
        }
    }
}

/// Writes the reply of WAIT or WAITAOF.
pub(crate) fn answer(out: &mut ReplyWriter<'_>, awaiting: &Awaiting, (is_local, count): (bool, u64)) {
    if awaiting.device.is_some() {
        out.array(2);
        out.integer(i64::from(is_local));
    }
    out.integer(count as i64);
}

/// How far a replica is that gets the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    acknowledged: u64,
    durable: u64,
}

/// How far all replicas are. Linear in the number of connections.
pub(crate) fn progress_of_replicas<'c>(conns: impl Iterator<Item = &'c Conn>) -> Vec<Progress> {
    let replicas = conns.filter_map(|conn| conn.session.replica.as_deref());
    // A plain replica acknowledges nothing.
    let online = replicas.filter(|replica| replica.is_online() && !replica.is_plain && !replica.is_backup);
    online.map(|&Replica { acknowledged, durable, .. }| Progress { acknowledged, durable }).collect()
}

/// How many replicas have acknowledged an offset.
pub(crate) fn acknowledged(replicas: &[Progress], offset: u64) -> u64 {
    replicas.iter().filter(|replica| replica.acknowledged >= offset).count() as u64
}

/// Whether this server's device has the writes of a client, and how many replicas have them, or their devices
/// in WAITAOF.
pub(crate) fn copies(pool: &Pool, replicas: &[Progress], awaiting: &Awaiting) -> (bool, u64) {
    let Some(device) = awaiting.device else { return (false, acknowledged(replicas, awaiting.offset)) };
    let is_local = pool.domain() != Domain::PageCache
        && device.position.is_some_and(|end| pool.durable_position().is_ok_and(|durable| durable >= end));
    (is_local, replicas.iter().filter(|replica| replica.durable >= awaiting.offset).count() as u64)
}

/// Fails if a replica has taken nothing of its copy for too long, whose file takes the space of all data.
fn expect_taking(
    replica: &mut Replica,
    unsent: usize,
    now: Instant,
    timeout: Duration,
) -> Result<(), String> {
    if unsent < replica.unsent {
        replica.heard = now;
    }
    replica.unsent = unsent;
    match now.saturating_duration_since(replica.heard) > timeout {
        true => Err("it took nothing of its copy for too long (repl-timeout)".to_owned()),
        false => Ok(()),
    }
}

/// Fails if a replica is too far behind.
fn expect_near(
    replica: &mut Replica,
    committed: u64,
    limit: &crate::config::OutputLimit,
    most: u64,
    now: Instant,
) -> Result<(), String> {
    let behind = committed.saturating_sub(replica.cursor);
    if limit.hard_bytes > 0 && behind > limit.hard_bytes || behind > most {
        return Err(format!("it is {behind} bytes behind (client-output-buffer-limit replica)"));
    }
    if limit.soft_bytes == 0 || behind <= limit.soft_bytes {
        replica.behind_since = None;
        return Ok(());
    }
    let since = *replica.behind_since.get_or_insert(now);
    match now.saturating_duration_since(since) >= Duration::from_secs(limit.soft_seconds) {
        true => Err(format!("it is {behind} bytes behind for too long (client-output-buffer-limit replica)")),
        false => Ok(()),
    }
}
