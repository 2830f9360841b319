//! EVAL and its kind: a script in one batch, as one.
//!
//! # A script is one commit
//!
//! All that a script writes is in one batch, without a commit between its commands, so that a crash leaves
//! all of its effects or none. As in Redis, a command that fails is undone alone, and a script that ends in
//! an error keeps what it has written by then: that is the one commit. Replicas receive the effects, as those
//! of EXEC: several are within MULTI and EXEC.
//!
//! Only a script that is cut off leaves nothing: SHUTDOWN NOSAVE, or a signal to stop, rolls it back.
//!
//! # Running again
//!
//! A command of a script may need a commit before it, as within EXEC: for a database that is missing, to
//! walk the keys, or to get the space of cleared databases. The script is stopped then, rolled back, and run
//! again from its beginning, after the commit. Nobody has seen anything of the first run, and a script gets
//! the same random numbers each time. Within EXEC, which prepares for this, a script runs once.
//!
//! # A script that takes long
//!
//! After `busy-reply-threshold` other clients are served from within the script ([`busy`]): they get BUSY,
//! but for SCRIPT KILL, which ends a script that has not written, and SHUTDOWN NOSAVE.
//!
//! # Memory
//!
//! Scripts have a limit of memory, of which [`tembo_script`] tells.

mod busy;
pub(crate) mod cache;
mod host;

use std::time::Instant;

use tembo_script::{Header, Outcome, Run};
use tembo_wire::Request;
use tembo_wire::number::parse_i64;

use crate::commands::table::Command;
use crate::commands::table::flag::{READONLY, WRITE};
use crate::executor::Executor;
use crate::fault::{Answer, Fault};
use crate::replica::Phase;
use crate::session::Session;
use cache::{RunningScript, Script, Sha, read_sha};
use host::ScriptHost;

const NO_SCRIPT: Fault = Fault::Error("NOSCRIPT No matching script. Please use EVAL.");
/// Digits of a digest.
const SHA_LEN: usize = 40;
const MASTER_DOWN: Fault =
    Fault::Error("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.");

impl Executor<'_, '_> {
    /// Runs a script once. If the answer is a fault, the keyspace is as before.
    #[inline(never)]
    pub(crate) fn run_script(
        &mut self,
        command: &'static Command,
        request: &Request<'_>,
        session: &mut Session,
        output: &mut Vec<u8>,
        reply_bytes_max: usize,
    ) -> Answer {
        if session.is_master {
            // A master of this version tells effects. The position of the stream is part of each commit.
            return Err(Fault::Error("ERR scripts of a master are not run"));
        }
        self.keys.drop_end();
        let by_text = matches!(command.name, "eval" | "eval_ro");
        if !by_text && request[1].len() != SHA_LEN {
            return Err(NO_SCRIPT);
        }
        let keys_count = keys_count(request)?;
        let (sha, script) = match by_text {
            true => self.scripts.add(&request[1], false)?,
            false => match self.scripts.find(&request[1]) {
                Some(found) => found,
                None => self.load_kept(&request[1])?.ok_or(NO_SCRIPT)?,
            },
        };
        self.check_header(&script.header, command)?;
        let in_exec = session.queue.is_some();
        if script.walks && !in_exec {
            self.keys.expect_committed()?;
            self.keys.begin_noting();
        }
        let mark = self.keys.pubsub.mark();
        self.show_script(command, request, session, None);
        let told = (!in_exec).then(|| {
            self.keys.set_in_one_batch(true);
            self.keys.replication.effects.hold()
        });
        self.scripts.running = Some(RunningScript::default());
        let selected = (session.database, session.protocol);
        let ran = self.run_in(command, request, session, output, (sha, script, keys_count, reply_bytes_max));
        (session.database, session.protocol) = selected;
        self.scripts.running = None;
        if let Some(told) = told {
            self.keys.set_in_one_batch(false);
            self.keys.end_noting();
            self.keys.replication.release(ran.is_ok(), told);
        }
        if ran.is_err() {
            self.keys.pubsub.drop_since(mark);
        }
        ran
    }

    /// A script that SCRIPT LOAD stored before the server was restarted.
    #[cold]
    fn load_kept(&mut self, sha: &[u8]) -> Answer<Option<(Sha, Script)>> {
        let Some(sha) = read_sha(sha) else { return Ok(None) };
        let text = self.keys.kept_script(&sha)?;
        text.map(|text| self.scripts.add(&text, true)).transpose()
    }

    /// Whether a script's own header lets it run.
    fn check_header(&self, header: &Header, command: &Command) -> Answer {
        if !header.has_flags {
            return Ok(());
        }
        if header.no_cluster && self.state.cluster.is_some() {
            return Err(Fault::Error("ERR Can not run script on cluster, 'no-cluster' flag is set."));
        }
        let (role, config) = (&self.state.role, &self.state.config);
        let is_replica = role.master.is_some();
        let is_stale = is_replica && role.phase != Phase::Up && !config.replica.serves_stale;
        if is_stale && !header.allow_stale {
            return Err(MASTER_DOWN);
        }
        if header.no_writes {
            return Ok(());
        }
        if command.has(READONLY) {
            let why = "ERR Can not execute a script with write flag using *_ro command.";
            return Err(Fault::Error(why));
        }
        if is_replica && config.replica.read_only {
            let why = "READONLY You can not run script with write flag on readonly replica.";
            return Err(Fault::Error(why));
        }
        if self.state.is_full() && !header.allow_oom {
            let why =
                "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'";
            return Err(Fault::Error(why));
        }
        Ok(())
    }

    fn run_in(
        &mut self,
        command: &'static Command,
        request: &Request<'_>,
        session: &mut Session,
        output: &mut Vec<u8>,
        (sha, script, keys_count, reply_bytes_max): (Sha, Script, usize, usize),
    ) -> Answer {
        // No other script runs, so the engine is there.
        let mut engine = self.scripts.engine.take().ok_or(NO_SCRIPT)?;
        let words: Vec<&[u8]> = request.args().skip(3).collect();
        let (keys, arguments) = words.split_at(keys_count);
        let sha_text = String::from_utf8_lossy(&sha);
        let (protocol, time) = (session.protocol, self.state.config.script_time);
        let run = Run { sha: &sha_text, keys, arguments, protocol, reply_bytes_max, time };
        let is_read_only = script.header.no_writes || command.has(READONLY);
        // Scripts without flags may use keys of any slot that their commands may use.
        let is_in_one_slot = script.header.has_flags && !script.header.allow_cross_slot;
        let slot = is_in_one_slot.then(|| self.declared_slot(command, request));
        let mut host = ScriptHost::new(self, session, is_read_only, slot);
        let outcome = engine.run(script.compiled, &run, &mut host, output);
        let (savepoint, again) = (host.savepoint, host.again.take());
        let stopped_at = engine.stopped_at();
        self.scripts.engine = Some(engine);
        match outcome {
            Outcome::Done => Ok(()),
            Outcome::Failed(line) => {
                self.fail_script(command, output, protocol, line);
                Ok(())
            }
            Outcome::Stopped => {
                if let Some(savepoint) = savepoint {
                    self.keys.rollback_to(savepoint);
                }
                if let Some(fault) = again {
                    if matches!(fault, Fault::NeedsCommit) {
                        self.scripts.note_walk(&sha);
                    }
                    return Err(fault);
                }
                let why = match self.scripts.running {
                    Some(RunningScript { is_killed: true, .. }) => {
                        "Script killed by user with SCRIPT KILL..."
                    }
                    _ => "Script cut off by the end of the server",
                };
                let place = stopped_at.map(|place| format!(" script: {sha_text}, on {place}."));
                let line = format!("ERR {why}{}", place.unwrap_or_default());
                self.fail_script(command, output, protocol, line.into_bytes());
                Ok(())
            }
        }
    }

    fn fail_script(
        &mut self,
        command: &'static Command,
        output: &mut Vec<u8>,
        protocol: tembo_wire::Protocol,
        line: Vec<u8>,
    ) {
        self.state.commands.entry(command).failed += 1;
        self.write_fault(output, protocol, command.name, &Fault::Quoting(line));
    }

    /// Runs a command of a script. If it fails, it has changed nothing.
    fn run_of_script(
        &mut self,
        command: &'static Command,
        request: &Request<'_>,
        session: &mut Session,
        out: &mut Vec<u8>,
    ) -> Answer {
        let (since, mut job) = (Instant::now(), None);
        self.show_script(command, request, session, Some("lua"));
        let reply_bytes_max = self.state.config.reply_bytes_max;
        let mut done = self.attempt(command, request, session, out, &mut job, reply_bytes_max);
        while let (Ok(()), Some(under_way)) = (&done, job.take()) {
            let take = |reply: &[u8]| out.extend_from_slice(reply);
            done = under_way.advance(&self.keys, session.protocol, take).map(|rest| job = rest);
        }
        if matches!(done, Err(Fault::NeedsCommit | Fault::MissingDatabase(_))) {
            // The script runs again, and is counted then.
            return done;
        }
        let noted = self.state.config.noted;
        self.state.stats.commands += 1;
        self.state.commands.note_time(command, since.elapsed(), &noted);
        match &done {
            Ok(()) => self.state.note_writes(u64::from(command.has(WRITE))),
            Err(_) => self.state.commands.entry(command).failed += 1,
        }
        done
    }
}

/// How many of the arguments are keys.
fn keys_count(request: &Request<'_>) -> Answer<usize> {
    let not_an_integer = Fault::Error("ERR value is not an integer or out of range");
    let number = parse_i64(&request[2]).ok_or(not_an_integer)?;
    if number > request.arg_count() as i64 - 3 {
        return Err(Fault::Error("ERR Number of keys can't be greater than number of args"));
    }
    usize::try_from(number).map_err(|_| Fault::Error("ERR Number of keys can't be negative"))
}
