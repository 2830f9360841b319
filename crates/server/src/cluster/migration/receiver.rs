//! The target's part of a turn, and what source and target have in common: the change of records, the removal
//! of keys in steps, restarts, and clients that wait for the end of a move.

use std::time::Duration;

use tembo_wire::ReplyWriter;

use super::{Moves, Sending};
use crate::cluster::ranges::Ranges;
use crate::config::LogLevel;
use crate::conn::Conn;
use crate::executor::Executor;
use crate::fault::shown;
use crate::log::MessageKind;

/// Keys that a turn removes.
const REMOVED_PER_TURN: usize = 256;
/// Ranges of slots that one turn looks at.
const RANGES_PER_TURN: usize = 1024;
/// How long a pool that cannot remove keys is left alone.
const REST: Duration = Duration::from_secs(1);

impl Executor<'_, '_> {
    /// Takes up the records that the pool has.
    pub(crate) fn begin_moves(&mut self) {
        self.take_up_moves();
        if self.state.cluster.is_some() && self.state.role.master.is_none() {
            self.restart_moves();
        }
    }

    /// Takes up the records of the pool, which have changed.
    pub(crate) fn take_up_moves(&mut self) {
        let Some(cluster) = &mut self.state.cluster else { return };
        match self.keys.stored_moves() {
            Ok(moves) if moves == *cluster.moves() => {}
            Ok(moves) => cluster.set_moves(moves),
            Err(fault) => {
                cluster.set_unreadable();
                let what =
                    "the moves of slots are unreadable, so that no slot is served until SETNODES .. FORCE";
                let message = format_args!("{what}: {}", shown(&fault));
                self.state.log(LogLevel::Warning, MessageKind::Damage, message);
            }
        }
    }

    fn restart_moves(&mut self) {
        self.state.moving.is_master = true;
        let myself = self.state.cluster.as_ref().and_then(|cluster| cluster.id);
        if let Err(why) = self.change_moves(|moves| moves.restart(myself)) {
            let message = format_args!("the moves of slots are not brought to an end: {why}");
            self.state.log(LogLevel::Warning, MessageKind::Replication, message);
        }
    }

    /// Changes the records, durably. There must be no command under way.
    pub(crate) fn change_moves(&mut self, change: impl FnOnce(&mut Moves)) -> Result<(), String> {
        self.commit_batch(None);
        let Some(cluster) = &mut self.state.cluster else { return Ok(()) };
        let mut moves = cluster.moves().clone();
        change(&mut moves);
        if moves == *cluster.moves() {
            return Ok(());
        }
        self.keys.store_moves(&moves).map_err(|fault| shown(&fault))?;
        cluster.set_moves(moves);
        self.keys.pool().make_durable().map_err(|error| error.to_string())
    }

    /// Whether keys of slots are to be removed now.
    pub(crate) fn is_removing(&self) -> bool {
        let has_some = self.state.cluster.as_ref().is_some_and(|it| !it.moves().removing.is_empty());
        let is_due = self.state.moving.removes_at.is_none_or(|at| at <= self.state.now);
        has_some && is_due && self.state.role.master.is_none()
    }

    /// Does as much as one turn may. Called when the batch is committed, before the source's part.
    pub(crate) fn tend_moves(&mut self) {
        let failed = self.keys.stats.failed_commits;
        if std::mem::replace(&mut self.state.moving.failed_commits, failed) != failed {
            // Records that a command changed may not be in the pool.
            self.take_up_moves();
        }
        let is_master = self.state.role.master.is_none();
        if is_master && !self.state.moving.is_master {
            self.restart_moves();
        }
        self.state.moving.is_master = is_master;
        if is_master {
            self.expect_importer();
            if self.is_removing() {
                self.remove_some();
            }
        }
        if !self.state.moving.waiting.is_empty() {
            self.end_waits_for_moves();
        }
    }

    /// Gives an import up whose connection has ended, or is silent.
    fn expect_importer(&mut self) {
        let importing = self.state.cluster.as_ref().and_then(|cluster| cluster.moves().importing());
        if importing.is_none() {
            return;
        }
        let (now, timeout) = (self.state.now, self.state.config.replica.timeout);
        let importer = self.state.moving.importer;
        let conn = importer
            .and_then(|client| self.clients.get_mut(client.slot).filter(|it| it.session.id == client.id));
        if let Some(conn) = conn
            && !conn.session.killed
            && conn.session.importing
        {
            conn.session.killed = now.saturating_duration_since(conn.session.active) > timeout;
            return;
        }
        let text = "an import of slots ended early: what came is removed";
        self.state.log(LogLevel::Warning, MessageKind::Replication, format_args!("{text}"));
        if self.change_moves(Moves::give_up).is_ok() {
            self.state.moving.importer = None;
        }
    }

    fn remove_some(&mut self) {
        self.state.moving.removes_at = None;
        if let Err(why) = self.try_remove_some() {
            self.state.moving.removes_at = Some(self.state.now + REST);
            let message = format_args!("keys of slots that went are not removed yet: {why}");
            self.state.log(LogLevel::Warning, MessageKind::Replication, message);
        }
    }

    /// Notes the ranges that are empty, all in one record, or removes keys of one that is not.
    fn try_remove_some(&mut self) -> Result<(), String> {
        let Some(cluster) = &self.state.cluster else { return Ok(()) };
        let (mut empty, mut full) = (Vec::new(), None);
        for range in cluster.moves().removing.as_slice().iter().take(RANGES_PER_TURN) {
            if self.keys.has_keys_in(range).map_err(|fault| shown(&fault))? {
                full = Some(range.clone());
                break;
            }
            empty.push(range.clone());
        }
        if let Some(range) = full {
            let removed = self.keys.remove_some_of(&range, REMOVED_PER_TURN);
            self.commit_batch(None);
            let removed = removed.map_err(|fault| shown(&fault))?;
            if self.keys.stats.last_commit_failed {
                return Err("a commit failed".to_owned());
            }
            if removed < REMOVED_PER_TURN {
                empty.push(range);
            }
        }
        match empty.is_empty() {
            true => Ok(()),
            false => self.change_moves(|moves| moves.note_removed(&Ranges::new(empty))),
        }
    }

    /// Answers clients that have waited for the end of a move, or long enough.
    fn end_waits_for_moves(&mut self) {
        for (client, id) in std::mem::take(&mut self.state.moving.waiting) {
            // CLIENT UNBLOCK may have ended the client's wait.
            let waits = |conn: &&mut Conn| conn.session.id == client.id && conn.session.awaiting.is_some();
            let Some(conn) = self.clients.get_mut(client.slot).filter(waits) else { continue };
            let deadline = conn.session.awaiting.as_ref().and_then(|awaiting| awaiting.deadline);
            let outgoing = self.state.cluster.as_ref().and_then(|cluster| cluster.moves().outgoing.as_ref());
            let stage = outgoing.filter(|(moving, _)| moving.id == id).map(|(_, stage)| stage);
            let mut reply = ReplyWriter::new(&mut conn.output.bytes, conn.session.protocol);
            match stage {
                Some(Sending::Done) => reply.ok(),
                Some(Sending::Failed(why)) => reply.error(format!("ERR the slots were not moved: {why}")),
                None => reply.error("ERR the move was forgotten"),
                Some(_) if deadline.is_some_and(|deadline| deadline <= self.state.now) => reply.null(),
                Some(_) => {
                    self.state.moving.waiting.push((client, id));
                    continue;
                }
            }
            conn.session.awaiting = None;
            self.clients.note_unblocked(client.slot);
        }
    }
}
