//! Showing commands to clients that have said MONITOR, as they are run.
//!
//! Commands of administrators are not shown, as in Redis, and neither are passwords.

use tembo_wire::Request;

use crate::clock;
use crate::commands::table::Command;
use crate::commands::table::flag::ADMIN;
use crate::executor::Executor;
use crate::quotation::{is_secret, write_quoted};
use crate::session::Session;

impl Executor<'_, '_> {
    /// Shows a command to clients that monitor.
    #[inline(always)]
    pub(crate) fn show_to_monitors(&mut self, command: &Command, request: &Request<'_>, session: &Session) {
        if !self.keys.pubsub.monitors.is_empty() && !command.has(ADMIN) && !command.runs_script() {
            self.keys.pubsub.show_command(line(command, request, session, None));
        }
    }

    /// Shows a script before it runs, or a command that a script runs.
    pub(crate) fn show_script(
        &mut self,
        command: &Command,
        request: &Request<'_>,
        session: &Session,
        origin: Option<&str>,
    ) {
        if !self.keys.pubsub.monitors.is_empty() && !command.has(ADMIN) {
            self.keys.pubsub.show_command(line(command, request, session, origin));
        }
    }
}

#[cold]
fn line(command: &Command, request: &Request<'_>, session: &Session, origin: Option<&str>) -> Vec<u8> {
    let now = clock::unix_time();
    let (seconds, micros) = (now.as_secs(), now.subsec_micros());
    let origin = origin.map_or_else(|| session.peer.to_string(), str::to_owned);
    let mut line = format!("{seconds}.{micros:06} [{} {origin}]", session.database).into_bytes();
    for (at, arg) in request.args().enumerate() {
        line.push(b' ');
        write_quoted(&mut line, if is_secret(command, request, at) { b"(redacted)" } else { arg });
    }
    line
}
