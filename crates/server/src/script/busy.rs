//! Serving other clients while a script runs for too long.
//!
//! The event loop is below the script on the stack, so this reads the sockets itself, without events: a read
//! that finds nothing takes nothing from the loop, whose events come later all the same. A client whose
//! replies wait for the commit under way is left alone: nothing may be sent behind them.

use std::io::ErrorKind;

use mio::{Interest, Token};
use tembo_wire::{Parsed, Request};

use crate::admission::ACCEPTS_PER_TURN;
use crate::buffer::BufferPool;
use crate::commands::context::{Context, Out};
use crate::commands::table::Command;
use crate::commands::table::flag::{ALLOW_BUSY, READONLY, RUNS_QUEUE, WRITE};
use crate::conn::Conn;
use crate::executor::{Executor, STRANGERS_LIMITS, write_protocol_error};
use crate::fault::{Answer, Fault};

const BUSY: Fault =
    Fault::Error("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.");

impl Executor<'_, '_> {
    /// Lets clients in, reads from each once, and answers.
    pub(super) fn serve_busy(&mut self) {
        self.admit_busy();
        let mut buffers = BufferPool::default();
        for slot in 0..self.clients.slots() {
            let Some(mut conn) = self.clients.take(slot) else {
                continue;
            };
            if may_be_served(&conn) {
                self.serve_one_busy(slot, &mut conn, &mut buffers);
            }
            self.clients.put_back(slot, conn);
        }
    }

    fn admit_busy(&mut self) {
        let Some(door) = self.door.take() else {
            return;
        };
        for acceptor in door.acceptors {
            for _ in 0..ACCEPTS_PER_TURN {
                match acceptor.accept(self.state.tls.server.as_ref()) {
                    Ok(accepted) => {
                        if let Some(slot) = self.admit(accepted)
                            && let Some(conn) = self.clients.get_mut(slot)
                        {
                            // The event loop learns of the connection by the connection's first event.
                            let interest = Interest::READABLE | Interest::WRITABLE;
                            let registered = door.registry.register(&mut conn.stream, Token(slot), interest);
                            conn.broken = registered.is_err();
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                    // Nothing more, or an error that the event loop will see and log.
                    Err(_) => break,
                }
            }
        }
        self.door = Some(door);
    }

    fn serve_one_busy(&mut self, slot: usize, conn: &mut Conn, buffers: &mut BufferPool) {
        conn.output.borrow(buffers);
        conn.receive(buffers);
        self.answer_busy(slot, conn);
        conn.input.release(buffers);
        if conn.output.unsent() > 0 {
            let sent = conn.send();
            self.state.stats.bytes_out += sent as u64;
        }
        conn.output.release(buffers);
        if conn.is_over() || conn.output.unsent() > 0 || conn.stream.has_unsent() || conn.ended {
            // The event loop closes the connection, or sends the rest.
            self.clients.note_unblocked(slot);
        }
    }

    fn answer_busy(&mut self, slot: usize, conn: &mut Conn) {
        conn.stalled = false;
        while !conn.is_blocked() && conn.output.bytes.len() <= self.state.config.turn_reply_bytes {
            let Conn { parser, input, output, session, .. } = conn;
            let is_stranger = self.needs_password(session);
            let limits = if is_stranger { STRANGERS_LIMITS } else { self.state.config.limits };
            let consumed = match parser.parse(input.unread(), &limits) {
                Ok(Parsed::Request(request)) => {
                    self.state.stats.commands += 1;
                    let start = output.bytes.len();
                    if let Err(fault) = self.run_busy(slot, &request, session, &mut output.bytes) {
                        output.bytes.truncate(start);
                        self.refuse(session, &request, &mut output.bytes, &fault);
                    }
                    request.consumed()
                }
                Ok(Parsed::Empty { consumed }) => consumed,
                Ok(Parsed::Incomplete { needed }) => {
                    conn.needed = needed;
                    return;
                }
                Err(error) => {
                    write_protocol_error(&mut output.bytes, session, error, is_stranger);
                    session.quitting = true;
                    return self.note_protocol_error(session, error);
                }
            };
            input.consume(consumed);
        }
        conn.stalled = !conn.input.unread().is_empty();
    }

    /// Runs one of the few commands that have nothing to do with the data.
    fn run_busy(
        &mut self,
        _: usize,
        request: &Request<'_>,
        session: &mut crate::session::Session,
        output: &mut Vec<u8>,
    ) -> Answer {
        let command = self.resolve(request)?;
        if let Some(fault) = self.not_for(session, command, request) {
            return Err(fault);
        }
        if !is_allowed(command, request) || session.queue.is_some() && command.name == "script|kill" {
            return Err(BUSY);
        }
        let (out, mut job) = (Out::new(output, session.protocol, self.state.config.reply_bytes_max), None);
        let Executor { keys, state, clients, scripts, handlers, .. } = self;
        let mut context = Context { keys, session, out, state, clients, scripts, handlers, job: &mut job };
        handlers.of(command)(&mut context, request)
    }
}

/// Whether something can be read from a client, and answered at once.
fn may_be_served(conn: &Conn) -> bool {
    let is_client = conn.session.replica.is_none() && !conn.session.is_master;
    // Replies of this turn that have nothing to do with the data need not wait for its commit.
    let owes_nothing = conn.output.unsent() == 0 || conn.session.is_plain;
    is_client && owes_nothing && !conn.held.is_holding() && !conn.is_blocked() && !conn.paused
}

fn is_allowed(command: &Command, request: &Request<'_>) -> bool {
    let is_shutdown = command.name == "shutdown";
    let has_nosave = request.args().skip(1).any(|word| word.eq_ignore_ascii_case(b"nosave"));
    let touches_keys = matches!(command.name, "watch" | "unwatch" | "discard" | "reset" | "replconf");
    command.has(ALLOW_BUSY)
        && !command.has(READONLY | WRITE | RUNS_QUEUE)
        && !touches_keys
        && (!is_shutdown || has_nosave)
}
