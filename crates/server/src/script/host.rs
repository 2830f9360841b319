//! The server's side of a script: the commands that it runs.

use std::time::{Duration, Instant};

use tembo::Savepoint;
use tembo_script::{Flow, Host};
use tembo_wire::{Protocol, Request};

use crate::commands::table::flag::{NOSCRIPT, WRITE};
use crate::config::LogLevel;
use crate::executor::Executor;
use crate::fault::{Answer, Fault};
use crate::log::MessageKind;
use crate::session::Session;

/// The shortest time between two rounds of other clients while a script runs.
const ROUND_PERIOD: Duration = Duration::from_millis(5);
/// Bytes of a message of a script that are logged.
const MESSAGE_BYTES_MAX: usize = 1024;

pub(super) struct ScriptHost<'a, 's, 'p> {
    executor: &'a mut Executor<'s, 'p>,
    session: &'a mut Session,
    is_read_only: bool,
    /// There was no lease when the script began. One that runs out later does not leave half a script.
    is_fenced: bool,
    /// If its keys may have one slot of a cluster only: that slot, once it is known.
    slot: Option<Option<u16>>,
    in_exec: bool,
    /// Taken before the first command that writes.
    pub(super) savepoint: Option<Savepoint>,
    /// The script is to be run again after the work that this fault asks for.
    pub(super) again: Option<Fault>,
    next_round: Instant,
}

impl<'a, 's, 'p> ScriptHost<'a, 's, 'p> {
    pub(super) fn new(
        executor: &'a mut Executor<'s, 'p>,
        session: &'a mut Session,
        is_read_only: bool,
        slot: Option<Option<u16>>,
    ) -> Self {
        let is_fenced = executor.state.is_fenced();
        let in_exec = session.queue.is_some();
        let next_round = executor.state.now;
        let (savepoint, again) = (None, None);
        ScriptHost { executor, session, is_read_only, is_fenced, slot, in_exec, savepoint, again, next_round }
    }

    fn run(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> Answer {
        let Some(command) = self.executor.find(request) else {
            return Err(Fault::Error("ERR Unknown Redis command called from script"));
        };
        if !command.takes(request.arg_count()) {
            return Err(Fault::Error("ERR Wrong number of args calling Redis command from script"));
        }
        if command.has(NOSCRIPT) {
            return Err(Fault::Error("ERR This Redis command is not allowed from script"));
        }
        if command.has(WRITE) && self.is_read_only {
            return Err(Fault::Error("ERR Write commands are not allowed from read-only scripts."));
        }
        self.executor.expect_allowed_in_script(self.session, command, request)?;
        let elsewhere = self.executor.not_in_script(self.session, command, request, self.slot.as_mut());
        if let Some(fault) =
            elsewhere.or_else(|| self.executor.not_now(self.session, command, Some(self.is_fenced)))
        {
            return Err(fault);
        }
        if command.has(WRITE) && self.savepoint.is_none() {
            self.savepoint = Some(self.executor.keys.savepoint()?);
        }
        self.executor.run_of_script(command, request, self.session, out)?;
        if command.has(WRITE)
            && let Some(running) = &mut self.executor.scripts.running
        {
            running.has_written = true;
        }
        // Commands of other clients must not fail because this commit is too large.
        let is_large = self.executor.keys.pending_words() > self.executor.batch_words_max;
        if is_large && !self.in_exec && !self.executor.marks.is_empty() {
            self.again = Some(Fault::NeedsCommit);
        }
        Ok(())
    }

    /// Whether the script has to be run again after a commit.
    fn needs_another_run(&self, fault: &Fault) -> bool {
        match fault {
            Fault::NeedsCommit => true,
            Fault::MissingDatabase(_) => !self.in_exec,
            Fault::Engine(tembo::Error::Full { .. }) => {
                let keys = &self.executor.keys;
                keys.is_reclaiming() || keys.has_kept() || keys.copy_is_in_the_way()
            }
            _ => false,
        }
    }
}

impl Host for ScriptHost<'_, '_, '_> {
    fn call(&mut self, request: &Request<'_>, protocol: Protocol, out: &mut Vec<u8>) -> Flow {
        self.session.protocol = protocol;
        match self.run(request, out) {
            Ok(()) if self.again.is_some() => return Flow::Stop,
            Ok(()) => {}
            Err(fault) if self.needs_another_run(&fault) => {
                self.again = Some(fault);
                return Flow::Stop;
            }
            Err(fault) => {
                out.clear();
                let fault = match fault {
                    Fault::MissingDatabase(database) => {
                        Fault::Quoting(format!("ERR there is no database {database}").into_bytes())
                    }
                    fault => fault,
                };
                self.executor.write_fault(out, protocol, "a script", &fault);
            }
        }
        Flow::GoOn
    }

    fn tick(&mut self) -> Flow {
        let since = Instant::now();
        if since >= self.next_round {
            self.executor.state.show_alive();
            self.executor.serve_busy();
            // The script gets most of the time, however many clients there are.
            let took = since.elapsed();
            self.next_round = since + ROUND_PERIOD.max(took * 10);
        }
        let state = &self.executor.state;
        let is_killed = self.executor.scripts.running.is_some_and(|running| running.is_killed);
        let is_over = self.executor.door.as_ref().is_some_and(|door| door.stop.is_requested());
        if is_killed || is_over || state.stopping { Flow::Stop } else { Flow::GoOn }
    }

    fn log(&mut self, level: u8, message: &[u8]) {
        let level = match level {
            0 => LogLevel::Debug,
            1 => LogLevel::Verbose,
            2 => LogLevel::Notice,
            _ => LogLevel::Warning,
        };
        let shown = message[..message.len().min(MESSAGE_BYTES_MAX)].escape_ascii();
        self.executor.state.log(level, MessageKind::Script, format_args!("a script: {shown}"));
    }

    fn may_run(&mut self, request: &Request<'_>) -> Option<bool> {
        let command = self.executor.find(request)?;
        let user = &self.session.user;
        // If the arguments are too few, the name decides.
        Some(match command.takes(request.arg_count()) {
            true => user.check(command, request).is_ok(),
            false => user.may_name(command),
        })
    }
}
