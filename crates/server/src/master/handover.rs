//! The handover to a replica: the steps of a failover. See [`super::failover`].

use std::time::Duration;

use super::Replica;
use super::failover::{Failover, FailoverStage};
use crate::commands::replicas::replicas_of;
use crate::config::LogLevel;
use crate::executor::Executor;
use crate::keyspace::history::Master;
use crate::log::MessageKind;

impl Executor<'_, '_> {
    /// Looks whether a replica may take over. Called when the batch is committed.
    pub(super) fn advance_failover(&mut self) {
        let Some(Failover { stage, target, deadline, is_forced, is_given_up, .. }) = &self.state.failover
        else {
            return;
        };
        if *is_given_up {
            return self.end_failover("FAILOVER ABORT");
        }
        let now = self.state.now;
        // Nobody writes meanwhile.
        self.state.hold = Some(now + PAUSE);
        if *stage == FailoverStage::Taking {
            return;
        }
        let is_late = deadline.is_some_and(|deadline| deadline <= now);
        let offset = self.keys.replication.committed().map_or(0, |position| position.offset);
        let is_it = |(host, replica): &(String, Replica)| {
            let is_named = target.as_ref().is_none_or(|it| (&it.host, it.port) == (host, replica.port));
            let has_all = replica.acknowledged >= offset || is_late && *is_forced;
            is_named && has_all && replica.is_online() && !replica.is_plain && replica.port > 0
        };
        match replicas_of(self.clients.iter()).into_iter().find(is_it) {
            Some((host, replica)) => {
                let lacks = replica.acknowledged < offset;
                self.hand_over(Master { host, port: replica.port }, lacks);
            }
            None if is_late => self.end_failover("no replica had everything in time"),
            None => {}
        }
    }

    fn hand_over(&mut self, heir: Master, lacks: bool) {
        let message = format_args!("FAILOVER: {}:{} takes over", heir.host, heir.port);
        self.state.log(LogLevel::Notice, MessageKind::Replication, message);
        if let Some(failover) = &mut self.state.failover {
            (failover.stage, failover.is_forced) = (FailoverStage::Taking, lacks);
        }
        // The role is not durable yet.
        self.state.role.choose(Some(heir));
        self.state.role.is_changed = false;
        self.keys.replication.take_up(false);
    }

    /// The stream of the new master continues here: the role is durable from now on.
    pub(crate) fn complete_failover(&mut self) {
        if self.state.failover.take().is_some() {
            self.state.hold = None;
            self.persist_role();
        }
    }

    /// Goes on as the master.
    pub(crate) fn end_failover(&mut self, why: &str) {
        let Some(failover) = self.state.failover.take() else { return };
        self.state.hold = None;
        if failover.stage == FailoverStage::Taking {
            self.state.role.choose(None);
            self.state.role.is_changed = false;
            self.keys.replication.take_up(true);
        }
        self.state.log(
            LogLevel::Warning,
            MessageKind::Replication,
            format_args!("FAILOVER was given up: {why}"),
        );
    }
}

/// A pause that each turn renews: longer than any turn.
const PAUSE: Duration = Duration::from_secs(10);
