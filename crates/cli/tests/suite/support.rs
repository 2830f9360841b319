//! Runs the command in a directory of its own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory to run the command in, removed afterwards.
pub(crate) struct Workspace {
    directory: tempfile::TempDir,
}

/// The outcome of a run of the command.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Run {
    /// Standard output as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).expect("the output is text")
    }

    /// Standard output as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Requires success.
    pub(crate) fn ok(self) -> Run {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Requires exit code 1 and this in the message.
    pub(crate) fn fails_with(self, message: &str) -> Run {
        self.ends_with(1, message)
    }

    /// Requires an exit code and this in the message.
    pub(crate) fn ends_with(self, code: i32, message: &str) -> Run {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(
            self.stderr.contains(message) || self.text().contains(message),
            "{message:?} is not in {self:?}"
        );
        self
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Run {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Run { code: output.status.code(), stdout: output.stdout, stderr }
    }
}

impl Workspace {
    pub(crate) fn new() -> Workspace {
        Workspace { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The names of the files in it.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.path()).expect("the directory can be read");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// The command with arguments, which are separated by spaces.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tembo"));
        command.args(arguments.split_whitespace()).current_dir(self.directory.path());
        // A variable of the machine that runs the tests must not decide how they run.
        command.env_remove("TEMBO_FLUSH").env_remove("TEMBO_NON_TEMPORAL");
        command
    }

    pub(crate) fn run(&self, arguments: &str) -> Run {
        self.command(arguments).output().expect("the command runs").into()
    }

    /// Runs with `input` on standard input.
    pub(crate) fn run_with(&self, arguments: &str, input: &[u8]) -> Run {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let mut stdin = child.stdin.take().expect("it has a standard input");
        // A command that refuses its input closes it early.
        let _ = stdin.write_all(input);
        drop(stdin);
        child.wait_with_output().expect("the command ends").into()
    }

    /// Makes a pool with `operations` of the seeded workload, seed 7.
    pub(crate) fn pool(&self, name: &str, operations: u64) {
        self.run(&format!(
            "bench --seeded --seed 7 --ops {operations} --durability page-cache --pool {name}"
        ))
        .ok();
    }
}

/// This process, as a message names who has a pool.
pub(crate) fn holder() -> String {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", std::process::id())).expect("its name");
    format!("process {} ({})", std::process::id(), name.trim())
}

/// A file's contents.
pub(crate) fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("the file can be read")
}
