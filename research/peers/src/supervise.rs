//! Runs engines by turns, each in a process of its own, so that none sees the heap, the caches or the threads
//! of another, and so that one that fails or hangs loses its own cells only.

use crate::engines::{Kind, Result};
use crate::measure::{Measured, Plan, Reopened};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The output of a child, in one line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer<T> {
    /// It did what it was asked.
    Done(T),
    /// It did not, and why.
    Failed(String),
}

impl<T> From<Result<T>> for Answer<T> {
    fn from(result: Result<T>) -> Answer<T> {
        match result {
            Ok(done) => Answer::Done(done),
            Err(e) => Answer::Failed(e.to_string()),
        }
    }
}

/// One run of one engine.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Run {
    pub(crate) measured: Measured,
    pub(crate) reopened: Reopened,
}

/// An engine's runs.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) is_ours: bool,
    pub(crate) runs: Vec<Run>,
    /// Why there are fewer runs than rounds.
    pub(crate) failure: Option<String>,
}

/// How long a child may be silent. It inserts, looks up twice, scans, removes and settles; each has a limit
/// of its own.
fn patience(plan: &Plan) -> Duration {
    plan.limit * 8 + Duration::from_secs(300)
}

/// Runs all `kinds` in each of `rounds`, with their data in `folder`.
pub(crate) fn compare(kinds: &[Kind], plan: &Plan, rounds: usize, folder: &Path) -> Result<Vec<Row>> {
    let program = std::env::current_exe()?;
    let mut rows: Vec<Row> = kinds.iter().map(empty_row).collect();
    for round in 1..=rounds {
        for row in rows.iter_mut().filter(|row| row.failure.is_none()) {
            let data = tempfile::Builder::new().prefix("tembo-peers-").tempdir_in(folder)?;
            eprint!("{}, round {round} of {rounds}: {} ... ", plan.shape.describe(), row.name);
            match run(&program, row.id, plan, data.path()) {
                Ok(run) => {
                    eprintln!(
                        "insert {:.0} ns, lookup {:.0} ns",
                        run.measured.insert.ns, run.measured.lookup.ns
                    );
                    row.runs.push(run);
                }
                Err(e) => {
                    eprintln!("{e}");
                    row.failure = Some(e.to_string());
                }
            }
        }
    }
    Ok(rows)
}

fn empty_row(kind: &Kind) -> Row {
    let (id, name, version, is_ours) = (kind.id, kind.name, (kind.version)(), kind.is_ours);
    Row { id, name, version, is_ours, runs: Vec::new(), failure: None }
}

fn run(program: &PathBuf, engine: &str, plan: &Plan, folder: &Path) -> Result<Run> {
    let arguments = [
        engine.to_owned(),
        serde_json::to_string(&plan.shape)?.trim_matches('"').to_owned(),
        plan.keys.to_string(),
        plan.seed.to_string(),
        plan.limit.as_secs().to_string(),
        plan.durability.to_string(),
        folder.to_str().ok_or("the folder's name is not UTF-8")?.to_owned(),
    ];
    let measured: Measured = ask(Command::new(program).arg("child-measure").args(&arguments), patience(plan))
        .map_err(in_part("run"))?;
    let counts = [measured.insert.operations.to_string(), measured.remove.operations.to_string()];
    let reopened =
        ask(Command::new(program).arg("child-reopen").args(&arguments).args(&counts), patience(plan))
            .map_err(in_part("reopening after the kill"))?;
    Ok(Run { measured, reopened })
}

fn in_part(
    part: &'static str,
) -> impl Fn(Box<dyn std::error::Error + Send + Sync>) -> Box<dyn std::error::Error + Send + Sync> {
    move |e| format!("{part}: {e}").into()
}

/// As [`ask`], of a child that takes a few minutes at most.
pub(crate) fn ask_in_place<T: DeserializeOwned + Send + 'static>(command: &mut Command) -> Result<T> {
    ask(command, Duration::from_secs(600))
}

/// Starts a child, takes its one line, and kills it.
pub(crate) fn ask<T: DeserializeOwned + Send + 'static>(
    command: &mut Command,
    patience: Duration,
) -> Result<T> {
    // libpmemobj flushes lines on tmpfs only if it is told to; without this it syncs pages.
    command.env("PMEM_IS_PMEM_FORCE", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let output = child.stdout.take().ok_or("the child has no output")?;
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        let _ = sender.send(read.map(|_| line));
    });
    let line = receiver.recv_timeout(patience);
    child.kill()?;
    let status = child.wait()?;
    let _ = reader.join();
    let line = line.map_err(|_| format!("no answer in {} s", patience.as_secs()))??;
    if line.is_empty() {
        return Err(format!("the process ended without an answer ({status})").into());
    }
    match serde_json::from_str(&line)? {
        Answer::Done(done) => Ok(done),
        Answer::Failed(why) => Err(why.into()),
    }
}
