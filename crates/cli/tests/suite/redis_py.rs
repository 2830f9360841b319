//! redis-py, with its defaults, as a client of `tembo serve`. Skipped, with a word, where Python or redis-py
//! is missing.

use crate::serve::Server;
use crate::support::Workspace;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python that has redis-py: the one that `TEMBO_PYTHON` names, the one that `.ci/run peers` made, or the
/// system's.
pub(crate) fn python() -> Option<PathBuf> {
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("python").join("bin/python3");
    let named = std::env::var_os("TEMBO_PYTHON").map(PathBuf::from);
    let imports = |python: &PathBuf| {
        let tried = Command::new(python).args(["-c", "import redis"]).output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    let found = named.into_iter().chain([made, "python3".into()]).find(imports);
    if found.is_none() {
        eprintln!(
            "skipped: no Python with redis-py here; `.ci/run peers` installs it, TEMBO_PYTHON names another"
        );
    }
    found
}

/// redis-py's pipelines are transactions: MULTI was unknown, so that `execute` raised, and had half run.
#[test]
fn transactions_of_redis_py() {
    let Some(python) = python() else { return };
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "--pool a.pool");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redis_py/transactions.py");
    let run = Command::new(python).arg(script).arg(server.port.to_string()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}\n{err}");
    server.kill();
    workspace.run("check a.pool").ok();
}
