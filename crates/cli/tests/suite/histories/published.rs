//! Histories for published checkers, which know nothing of the nodes.
//!
//! `adya` gets the lists, as transactions of one operation each: it infers the order of appends from the
//! readings, and looks for cycles with the order of time. `porcupine` gets all keys, and searches for an
//! order of each; it is a library for Go (`crates/cli/tests/porcupine`), and is skipped where that is not
//! here.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use adya::history::{Interner, Mop, Op as Adya, OpType, ReadValue, Scalar};
use adya::{Opts, Valid, Workload};
use serde_json::{Value, json};

use super::record::{Event, History, Op, Outcome};
use crate::client_examples::build_go;
use crate::support::Workspace;

/// The anomalies that linearizability forbids, by `adya`.
pub(crate) fn anomalies(history: &History) -> Vec<String> {
    let models = vec!["strict-serializable".to_owned()];
    let opts = Opts { models, timeout: Duration::from_secs(60), ..Opts::default() };
    let report = adya::check(&converted(history), Workload::ListAppend, &opts);
    assert_ne!(report.valid, Valid::Unknown, "{report:?}");
    if report.valid == Valid::True { Vec::new() } else { report.anomaly_types }
}

fn converted(history: &History) -> adya::History {
    let mut interner = Interner::default();
    let lists = history.all().filter(|event| event.op.is_of_list());
    let mut events: Vec<(u64, OpType, usize, &Event)> = Vec::new();
    for (process, event) in lists.enumerate() {
        let end = match event.outcome {
            Outcome::Acknowledged => OpType::Ok,
            Outcome::Refused => OpType::Fail,
            Outcome::Unknown => OpType::Info,
        };
        // A client goes on after an operation whose outcome is unknown; a process there does not.
        events.push((event.began, OpType::Invoke, process, event));
        events.push((event.ended, end, process, event));
    }
    events.sort_by_key(|(time, ..)| *time);
    let mut ops = Vec::new();
    for (index, (_, kind, process, event)) in events.into_iter().enumerate() {
        let key = interner.intern(Scalar::Str(event.key.clone()));
        let mut id = |number: &u64| interner.intern(Scalar::Int(*number as i64));
        let mop = match &event.op {
            Op::Append(value) => Mop::Append { key, value: id(value) },
            Op::List(found) if kind == OpType::Ok => {
                Mop::Read { key, value: ReadValue::List(found.iter().map(id).collect()) }
            }
            _ => Mop::Read { key, value: ReadValue::Nil },
        };
        let process = Some(process as i64);
        ops.push(Adya { index: index as u64, kind, process, value: vec![mop], time: None });
    }
    adya::History::from_ops(ops, interner)
}

/// The program with `porcupine`.
pub(crate) struct Porcupine {
    program: PathBuf,
    _workspace: Workspace,
}

impl Porcupine {
    /// None, with a word, if it cannot be built here.
    pub(crate) fn build() -> Option<Porcupine> {
        let workspace = Workspace::new();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/porcupine");
        let program = build_go(&workspace, "porcupine", &folder)?;
        Some(Porcupine { program, _workspace: workspace })
    }

    /// Whether each key is linearizable.
    pub(crate) fn accepts(&self, history: &History) -> bool {
        let mut command = Command::new(&self.program);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("it has a standard input");
        for line in lines(history) {
            writeln!(stdin, "{line}").expect("it reads");
        }
        drop(stdin);
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.code() {
            Some(0) => true,
            Some(1) => false,
            code => panic!("porcupine ends with {code:?}: {said}"),
        }
    }
}

/// An operation in a line each. One that need not have happened would multiply the orders to be tried.
fn lines(history: &History) -> impl Iterator<Item = Value> {
    let seen: std::collections::BTreeSet<u64> = history.all().flat_map(Event::shown).collect();
    let counts = move |event: &&Event| match (event.outcome, &event.op) {
        (Outcome::Acknowledged, _) => true,
        (Outcome::Unknown, Op::Append(value) | Op::Set(value)) => seen.contains(value),
        _ => false,
    };
    history.all().filter(counts).map(|event| {
        let (kind, value, list) = match &event.op {
            Op::Append(value) => ("append", *value, Vec::new()),
            Op::Set(value) => ("set", *value, Vec::new()),
            Op::List(_) => ("list", 0, event.shown()),
            Op::Get(_) => ("get", 0, event.shown()),
        };
        let end = (event.outcome == Outcome::Acknowledged).then_some(event.ended);
        json!({
            "client": event.client, "key": event.key, "kind": kind, "value": value, "list": list,
            "call": event.began, "return": end,
        })
    })
}
