//! The programs of `examples/clients`, each with its library's defaults, against `tembo serve`. One whose
//! tools or libraries are missing is skipped, and says what is missing; `.ci/run peers` and
//! `scripts/client-libraries` fetch them. Nothing is fetched here.

use crate::redis_py::python;
use crate::serve::Server;
use crate::support::Workspace;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/clients")
}

/// Where `scripts/client-libraries` puts libraries.
fn libraries(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("clients").join(name)
}

/// Whether a tool is there; says so if it is not.
fn has_tool(library: &str, tool: &str, version: &str) -> bool {
    let found = Command::new(tool).arg(version).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("skipped: the example of {library} needs {tool}, which is not here");
    }
    found
}

/// Whether a library is there; says so if it is not.
fn has_library(library: &str, path: &Path) -> bool {
    let found = path.exists();
    if !found {
        eprintln!("skipped: {library} is not here; scripts/client-libraries fetches it");
    }
    found
}

/// Runs an example against a server of its own; the last argument is the port.
fn serves(command: &mut Command) {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "--pool a.pool");
    let run = command.arg(server.port.to_string()).output().expect("the example starts");
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success() && out.contains("served"), "{out}\n{err}");
    server.kill();
    workspace.run("check a.pool").ok();
}

#[test]
fn redis_py_is_served() {
    let Some(python) = python() else { return };
    serves(Command::new(python).arg(examples().join("redis-py/client.py")));
}

#[test]
fn node_redis_is_served() {
    let modules = libraries("node-redis").join("node_modules");
    if has_tool("node-redis", "node", "--version") && has_library("node-redis", &modules.join("redis")) {
        let script = examples().join("node-redis/client.js");
        serves(Command::new("node").env("NODE_PATH", modules).arg(script));
    }
}

#[test]
fn go_redis_is_served() {
    if !has_tool("go-redis", "go", "version") {
        return;
    }
    let go = |arguments: &[&str]| {
        let mut command = Command::new("go");
        command.args(arguments).current_dir(examples().join("go-redis"));
        // Only what is here already.
        command.env("GOPROXY", "off").env("GOFLAGS", "-mod=readonly").env("GOTOOLCHAIN", "local");
        command.output().expect("go starts")
    };
    if !go(&["mod", "download"]).status.success() {
        return eprintln!("skipped: go-redis is not here; scripts/client-libraries fetches it");
    }
    let workspace = Workspace::new();
    let program = workspace.path("client");
    let built = go(&["build", "-o", program.to_str().expect("a path"), "."]);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    serves(&mut Command::new(program));
}

#[test]
fn jedis_is_served() {
    let jars = libraries("jedis");
    if has_tool("Jedis", "java", "-version") && has_library("Jedis", &jars) {
        let program = examples().join("jedis/Client.java");
        serves(Command::new("java").arg("-cp").arg(jars.join("*")).arg(program));
    }
}
