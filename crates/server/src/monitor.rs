//! Showing commands to clients that have said MONITOR, as they are run.
//!
//! Commands of administrators are not shown, as in Redis, and neither are passwords.

use tembo_wire::Request;

use crate::clock;
use crate::commands::table::Command;
use crate::commands::table::flag::ADMIN;
use crate::executor::Executor;
use crate::session::Session;

impl Executor<'_, '_> {
    /// Shows a command to those who monitor.
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

/// Whether an argument is a password, or the name of its user.
pub(crate) fn is_secret(command: &Command, request: &Request<'_>, at: usize) -> bool {
    let is_auth = |arg: &[u8]| arg.eq_ignore_ascii_case(b"AUTH");
    match command.name {
        "auth" => at > 0,
        // Rules may be passwords.
        "acl|setuser" => at > 1,
        // The values of CONFIG SET, of which one may be the password.
        "config|set" => at > 2 && at % 2 == 1,
        "hello" => (1..=2).any(|back| at > 1 + back && is_auth(&request[at - back])),
        _ => false,
    }
}

/// Appends a text in double quotes, with escapes for what is not printable.
pub(crate) fn write_quoted(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            7 => out.extend_from_slice(b"\\a"),
            8 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.push(byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_shown_as_redis_shows_them() {
        let mut out = Vec::new();
        write_quoted(&mut out, b"a \"\\\n\r\t\x07\x08\0\xff");
        assert_eq!(out, br#""a \"\\\n\r\t\a\b\x00\xff""#);
    }
}
