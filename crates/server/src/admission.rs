//! New clients: who is let in.
//!
//! When the number of clients is at its maximum, *strangers* are disconnected in favour of new clients, the
//! oldest first: those in a handshake of TLS, those that have sent nothing, and those that have not given the
//! password that they need. Connections that are opened and left idle exclude no client.

use std::io::{self, Write};
use std::time::Duration;

use tembo_wire::{Protocol, ReplyWriter};

use crate::address::Accepted;
use crate::config::LogLevel;
use crate::conn::Conn;
use crate::executor::Executor;
use crate::log::MessageKind;

/// The answer to clients of other machines while there is no password.
const DENIED: &str = "DENIED Tembo is in protected mode: there is no password, so that clients of other machines are \
    turned away. Set a password (requirepass). Or switch protected mode off (CONFIG SET protected-mode no, from the \
    machine itself), if nobody can reach this address who should not.";
/// Strangers that make room together.
const ROOM_MAX: usize = 32;
/// A client whose handshake is done, or that needs none, counts as a stranger only after this time.
const STRANGER_MIN: Duration = Duration::from_secs(1);
/// Connections accepted per turn.
pub(crate) const ACCEPTS_PER_TURN: usize = 256;

impl Executor<'_, '_> {
    /// Takes a client in, unless there are too many, or it may not come; returns its slot.
    pub(crate) fn admit(&mut self, accepted: Accepted) -> Option<usize> {
        let config = &self.state.config;
        if self.clients.len() >= config.max_clients && !self.make_room() {
            self.reject(accepted);
            return None;
        }
        let config = &self.state.config;
        if config.protected_mode && self.state.users.default_user().any_password && !accepted.1.is_local() {
            self.turn_away(accepted);
            return None;
        }
        let conn = self.connect(accepted).ok()?;
        Some(self.clients.insert(conn))
    }

    /// Disconnects strangers; whether there were any.
    #[cold]
    fn make_room(&mut self) -> bool {
        let now = self.state.now;
        let is_stranger = |conn: &&Conn| {
            let age = now.saturating_duration_since(conn.session.since);
            let is_unknown = !conn.heard || self.needs_password(&conn.session);
            conn.stream.is_handshaking() || is_unknown && age >= STRANGER_MIN
        };
        let strangers = self.clients.iter().filter(is_stranger);
        let mut strangers: Vec<_> = strangers.map(|conn| (conn.session.id, conn.session.slot)).collect();
        // Several at once, because each search looks at all.
        let count = (self.state.config.max_clients / 8).clamp(1, ROOM_MAX).min(strangers.len());
        if count == 0 {
            return false;
        }
        strangers.select_nth_unstable(count - 1);
        for &(_, slot) in &strangers[..count] {
            if let Some(mut conn) = self.clients.take(slot) {
                self.part_with(&mut conn.session);
                self.clients.vacate(slot, conn);
            }
        }
        self.state.stats.rejected_connections += count as u64;
        let message = format_args!(
            "there are as many clients as there may be (maxclients), and {count} that had not authenticated, or had \
             sent nothing, made room for others"
        );
        self.state.log(LogLevel::Warning, MessageKind::Refused, message);
        true
    }

    fn connect(&mut self, accepted: Accepted) -> io::Result<Conn> {
        let state = &mut *self.state;
        let user = state.users.default_user().clone();
        let mut conn = Conn::new(accepted, state.next_client, state.now, user);
        conn.session.authenticated = !state.users.ask_for_password();
        if let Some(after) = state.config.tcp_keepalive {
            conn.keep_alive(after)?;
        }
        state.stats.connections += 1;
        state.next_client += 1;
        state.log(
            LogLevel::Verbose,
            MessageKind::Connection,
            format_args!("client {} has come", conn.session),
        );
        Ok(conn)
    }

    #[cold]
    fn reject(&mut self, (mut stream, peer, _): Accepted) {
        let state = &mut *self.state;
        state.stats.connections += 1;
        state.stats.rejected_connections += 1;
        let max = state.config.max_clients;
        let message =
            format_args!("a connection from {peer} is refused: there are {max} clients (maxclients)");
        state.log(LogLevel::Warning, MessageKind::Refused, message);
        let mut reply = Vec::new();
        ReplyWriter::new(&mut reply, Protocol::Resp2).error("ERR max number of clients reached");
        // A fresh socket has room for it; if it does not, the client only sees the connection closed.
        let _ = stream.write(&reply);
    }

    /// Turns a client of another machine away, as long as there is no password.
    #[cold]
    fn turn_away(&mut self, (mut stream, peer, _): Accepted) {
        let state = &mut *self.state;
        state.stats.connections += 1;
        state.stats.rejected_connections += 1;
        let message = format_args!(
            "a connection from {peer} is refused: there is no password (requirepass), and protected mode is on"
        );
        state.log(LogLevel::Warning, MessageKind::Security, message);
        let mut reply = Vec::new();
        ReplyWriter::new(&mut reply, Protocol::Resp2).error(DENIED);
        let _ = stream.write(&reply);
    }
}
