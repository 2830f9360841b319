//! The service of clients that wait for a key: those whose keys are ready run their commands again, and the
//! waits of others end. See [`crate::waiting`].

use std::rc::Rc;

use tembo_wire::ReplyWriter;

use crate::client_ref::ClientRef;
use crate::cluster::Access;
use crate::cluster::slot::slot_of;
use crate::conn::Conn;
use crate::executor::{Current, Executor};
use crate::fault::{Fault, shown};
use crate::keyspace::Keyspace;
use crate::keyspace::format::Kind;
use crate::session::Session;

pub(crate) const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

pub(crate) const DEMOTED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";

/// How a wait ends without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InVain {
    Timeout,
    Error,
    /// The server became a replica.
    Demoted,
}

/// Ends the wait of a client that leaves.
pub(crate) fn give_up(session: &mut Session, keys: &mut Keyspace<'_>) {
    if let Some(waiting) = session.waiting.take() {
        waiting.leave(&mut keys.waiters);
    }
}

/// Ends the wait of a client that got nothing, if it waits; tells whether it did. One that has got something
/// waits no longer.
pub(crate) fn end_in_vain(conn: &mut Conn, keys: &mut Keyspace<'_>, how: InVain) -> bool {
    let waits = conn.session.waiting.as_ref().is_some_and(|waiting| !waiting.is_replied());
    let Some(waiting) = conn.session.waiting.take_if(|_| waits) else {
        return false;
    };
    waiting.leave(&mut keys.waiters);
    if !waiting.muted {
        let mut reply = ReplyWriter::new(&mut conn.output.bytes, conn.session.protocol);
        match how {
            InVain::Timeout => reply.null_array(),
            InVain::Demoted => reply.error(DEMOTED),
            InVain::Error => reply.error(UNBLOCKED),
        }
    }
    true
}

/// Ends the wait of a client one of whose keys is served elsewhere, if it waits, with the refusal of the key;
/// tells whether it did.
pub(crate) fn redirect_waiting(
    conn: &mut Conn,
    keys: &mut Keyspace<'_>,
    refusal: impl Fn(&[u8]) -> Option<Fault>,
) -> bool {
    let waiting = conn.session.waiting.as_ref().filter(|waiting| !waiting.is_replied());
    let Some(fault) = waiting.and_then(|waiting| waiting.keys.iter().find_map(|key| refusal(key))) else {
        return false;
    };
    let Some(waiting) = conn.session.waiting.take() else { return false };
    waiting.leave(&mut keys.waiters);
    if !waiting.muted {
        ReplyWriter::new(&mut conn.output.bytes, conn.session.protocol).error(shown(&fault));
    }
    true
}

impl Executor<'_, '_> {
    /// Lets those who wait for keys that are ready try again. Nobody does during a pause.
    #[cold]
    pub(crate) fn serve_waiting(&mut self, mut current: Option<Current<'_>>) {
        self.store_list_end(current.as_mut().map(|(slot, output)| (*slot, &mut **output)));
        while self.state.pause().is_none()
            && let Some((database, key, clients)) = self.keys.waiters.take_ready()
        {
            for client in clients {
                // A commit that fails makes keys ready again.
                let kind = self.keys.find(database, &key).ok().and_then(|found| Some(found.live?.meta.kind));
                let Some(kind) = kind else { break };
                self.try_again(client, kind, &key);
                if self.keys.pending_words() > self.batch_words_max {
                    self.commit_batch(current.as_mut().map(|(slot, output)| (*slot, &mut **output)));
                }
            }
        }
        self.state.has_waiting |= self.keys.waiters.has_ready();
    }

    fn try_again(&mut self, client: ClientRef, kind: Kind, key: &Rc<[u8]>) {
        let Some(mut conn) = self.clients.take(client.slot) else {
            return;
        };
        if conn.session.id == client.id && !conn.session.killed {
            self.try_taken(&mut conn, kind, key);
            if conn.session.waiting.as_ref().is_some_and(|waiting| waiting.is_replied()) {
                self.replied.push(client);
            }
        }
        self.clients.put_back(client.slot, conn);
    }

    fn try_taken(&mut self, conn: &mut Conn, kind: Kind, key: &Rc<[u8]>) {
        let Conn { session, output, .. } = conn;
        let Some(waiting) = session.waiting.as_mut().filter(|waiting| waiting.kind == kind) else {
            return;
        };
        if waiting.is_replied() {
            return;
        }
        let (command, start) = (waiting.command, output.bytes.len());
        let requests = std::mem::take(&mut waiting.requests);
        waiting.given = Some(key.clone());
        if let Some(request) = requests.get(0) {
            let (mut job, most) = (None, self.state.config.reply_bytes_max);
            self.keys.set_in_one_batch(true);
            // The user of the client may have changed since the client began to wait.
            let refused = if session.user.may_all { None } else { self.refusal(session, command, &request) };
            // While a slot moves to another node, no client takes elements from it; all are tried again
            // afterwards.
            let access = Access { from_replica: false, writes: true, is_replica: false };
            let cluster = self.state.cluster.as_ref();
            let is_stopped = cluster.is_some_and(|cluster| cluster.refusal(slot_of(key), access).is_some());
            let ran = match refused {
                _ if is_stopped => Err(Fault::NeedsCommit),
                Some(fault) => Err(fault),
                None => self.attempt(command, &request, session, &mut output.bytes, &mut job, most),
            };
            self.keys.set_in_one_batch(false);
            match ran {
                Ok(()) => {}
                // The client waits on, as if its command had found nothing.
                Err(Fault::NeedsCommit | Fault::MissingDatabase(_)) => output.bytes.truncate(start),
                Err(fault) => {
                    output.bytes.truncate(start);
                    self.write_fault(&mut output.bytes, session.protocol, command.name, &fault);
                }
            }
        }
        let Some(waiting) = session.waiting.as_mut() else {
            return;
        };
        (waiting.requests, waiting.given) = (requests, None);
        if output.bytes.len() > start {
            waiting.replied = Some(start);
            waiting.leave(&mut self.keys.waiters);
        }
        if waiting.muted {
            output.bytes.truncate(start);
        }
    }

    /// Ends the waits of the clients that got a reply in this turn, or, if the commit failed, lets these
    /// clients wait again.
    #[cold]
    pub(crate) fn serve_or_keep_waiting(&mut self, committed: bool) {
        self.keys.waiters.try_all |= !committed && self.keys.waiters.len() > 0;
        for client in std::mem::take(&mut self.replied) {
            let conn = self.clients.get_mut(client.slot).filter(|conn| conn.session.id == client.id);
            let Some(Conn { session, output, .. }) = conn else {
                continue;
            };
            if committed {
                session.waiting = None;
                self.clients.note_unblocked(client.slot);
            } else if let Some(waiting) = &mut session.waiting
                && let Some(start) = waiting.replied.take()
            {
                output.bytes.truncate(start);
                waiting.enter(&mut self.keys.waiters, client);
                self.keys.waiters.try_all = true;
            }
        }
    }

    /// Ends the waits whose time is over.
    pub(crate) fn end_due_waits(&mut self) {
        while let Some(client) = self.keys.waiters.take_due(self.state.now) {
            let conn = self.clients.get_mut(client.slot).filter(|conn| conn.session.id == client.id);
            if let Some(conn) = conn
                && end_in_vain(conn, &mut self.keys, InVain::Timeout)
            {
                self.clients.note_unblocked(client.slot);
            }
        }
    }
}
