//! Users in the path of commands: who may run what, and what happens to clients whose user is changed.

use tembo_wire::Request;

use crate::acl::check::{Denial, Reason};
use crate::acl::log::{Entry, Origin};
use crate::acl::user::{DEFAULT, User};
use crate::clients::Clients;
use crate::commands::table::Command;
use crate::executor::Executor;
use crate::fault::{Answer, Fault, NO_AUTHENTICATION};
use crate::session::{Session, Standing};
use crate::state::State;

const CHANGED: &str = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
    This command is no longer allowed for the following reason:";

impl Executor<'_, '_> {
    /// Why a client's user may not run a command, if it may not. The denial is in the log of denials.
    #[inline(never)]
    pub(crate) fn denied(
        &mut self,
        session: &Session,
        command: &Command,
        request: &Request<'_>,
        origin: Origin,
    ) -> Option<Denial> {
        let denial = session.user.check(command, request).err()?;
        note_denial(self.state, session, &denial, request, origin);
        Some(denial)
    }

    /// As [`denied`](Self::denied), with the answer to a client.
    pub(crate) fn refusal(
        &mut self,
        session: &Session,
        command: &Command,
        request: &Request<'_>,
    ) -> Option<Fault> {
        let origin = if session.queue.is_some() { Origin::Multi } else { Origin::TopLevel };
        let denial = self.denied(session, command, request, origin)?;
        Some(Fault::Quoting(denial.line().into_bytes()))
    }

    /// Checks a command of a transaction once more: its user may be another one since it was queued.
    #[inline]
    pub(crate) fn expect_still_allowed(
        &mut self,
        session: &Session,
        command: &Command,
        request: &Request<'_>,
    ) -> Answer {
        // A command in front of this one may have removed its user.
        if self.needs_password(session) {
            return Err(Fault::Quoting(NO_AUTHENTICATION.as_bytes().to_vec()));
        }
        if session.user.may_all {
            return Ok(());
        }
        let Some(denial) = self.denied(session, command, request, Origin::Multi) else {
            return Ok(());
        };
        let why = match denial.reason {
            Reason::Key => "no permission to touch the specified keys",
            Reason::Channel => "no permission to access one of the channels used as arguments",
            _ => "no permission to execute the command or subcommand",
        };
        Err(Fault::Quoting(format!("{CHANGED} {why}").into_bytes()))
    }

    /// Checks a command of a script.
    #[inline]
    pub(crate) fn expect_allowed_in_script(
        &mut self,
        session: &Session,
        command: &Command,
        request: &Request<'_>,
    ) -> Answer {
        if session.user.may_all {
            return Ok(());
        }
        let Some(denial) = self.denied(session, command, request, Origin::Script) else {
            return Ok(());
        };
        Err(Fault::Error(match denial.reason {
            Reason::Key => {
                "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments"
            }
            Reason::Channel => {
                "ERR The user executing the script can't publish to the channel mentioned in the command"
            }
            _ => "ERR The user executing the script can't run this command or subcommand",
        }))
    }
}

#[cold]
fn note_denial(state: &mut State, session: &Session, denial: &Denial, request: &Request<'_>, origin: Origin) {
    let object = denial.object(request).to_vec();
    note(state, session, (denial.reason, object), session.user.name.to_vec(), origin);
}

/// Notes that a client failed to authenticate as a user.
pub(crate) fn note_wrong_password(state: &mut State, session: &Session, user: &[u8], command: &[u8]) {
    let origin = if session.queue.is_some() { Origin::Multi } else { Origin::TopLevel };
    note(state, session, (Reason::Auth, command.to_vec()), user.to_vec(), origin);
}

fn note(
    state: &mut State,
    session: &Session,
    (reason, object): (Reason, Vec<u8>),
    user: Vec<u8>,
    origin: Origin,
) {
    let standing = Standing { changed: false, tracked: None };
    let mut client = session.describe(state.now, standing, session.buffers);
    client.pop();
    let entry = Entry { count: 1, reason, origin, object, user, since: state.now, client };
    state.acl_log.note(entry, state.config.acl.log_len_max);
}

/// Puts a user in the place of the one of the same name, also for the clients that are logged in as that
/// user. A client that has subscribed to a channel that it may not receive any more is disconnected; the
/// client that asked, after its answer.
pub(crate) fn put_user(user: User, state: &mut State, asking: &mut Session, clients: &mut Clients) {
    let user = state.users.put(user);
    let mut lost = Vec::new();
    for session in clients.sessions_mut().filter(|session| session.user.name == user.name) {
        session.user = user.clone();
        if !receives_only_allowed(session) {
            lost.push(session.id);
        }
    }
    if !lost.is_empty() {
        clients.kill(|conn| lost.contains(&conn.session.id));
    }
    if asking.user.name == user.name {
        asking.user = user;
        asking.quitting |= !receives_only_allowed(asking);
    }
}

fn receives_only_allowed(session: &Session) -> bool {
    let user = &session.user;
    session.subscriptions.is_empty()
        || session.subscriptions.all().all(|(name, is_pattern)| user.may_receive(name, is_pattern))
}

/// Makes the clients of removed users strangers, and disconnects them; the client that runs the command,
/// after its reply. `is_gone` gets the names of users. Other clients of the default user get its present
/// rules.
pub(crate) fn disconnect_users(
    is_gone: impl Fn(&[u8]) -> bool,
    state: &State,
    asking: &mut Session,
    clients: &mut Clients,
) {
    let default = state.users.default_user();
    clients.kill(|conn| is_gone(&conn.session.user.name));
    let strangers = |session: &mut Session| {
        let gone = is_gone(&session.user.name);
        session.authenticated &= !gone;
        if gone || &*session.user.name == DEFAULT {
            session.user = default.clone();
        }
        gone
    };
    for session in clients.sessions_mut() {
        strangers(session);
    }
    asking.quitting |= strangers(asking);
}
