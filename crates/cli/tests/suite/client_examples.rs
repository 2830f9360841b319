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
    serves_at(command, "", |server| server.port);
}

/// The same, with more options of the server, and at another port of it.
fn serves_at(command: &mut Command, options: &str, port: fn(&Server) -> u16) {
    let workspace = Workspace::new();
    let server = Server::start(&workspace, &format!("--pool a.pool {options}"));
    let run = command.arg(port(&server).to_string()).output().expect("the example starts");
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

/// The program of a library for Go in a folder, if that is here.
pub(crate) fn build_go(workspace: &Workspace, library: &str, folder: &Path) -> Option<PathBuf> {
    if !has_tool(library, "go", "version") {
        return None;
    }
    let go = |arguments: &[&str]| {
        let mut command = Command::new("go");
        command.args(arguments).current_dir(folder);
        // Only what is here already.
        command.env("GOPROXY", "off").env("GOFLAGS", "-mod=readonly").env("GOTOOLCHAIN", "local");
        command.output().expect("go starts")
    };
    if !go(&["mod", "download"]).status.success() {
        eprintln!("skipped: {library} is not here; scripts/client-libraries fetches it");
        return None;
    }
    let program = workspace.path("client");
    let built = go(&["build", "-o", program.to_str().expect("a path"), "."]);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(program)
}

#[test]
fn go_redis_is_served() {
    let workspace = Workspace::new();
    if let Some(program) = build_go(&workspace, "go-redis", &examples().join("go-redis")) {
        serves(&mut Command::new(program));
    }
}

const MEMCACHED: &str = "--memcached 127.0.0.1:0";

/// The port for memcached's clients, as the greeting says it.
fn memcached_port(server: &Server) -> u16 {
    let line = server.greeting.lines().find(|line| line.trim().starts_with("memcached")).expect("a line");
    let address =
        line.split_whitespace().find_map(|word| word.strip_prefix("127.0.0.1:")).expect("an address");
    address.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().expect("a port")
}

#[test]
fn gomemcache_is_served() {
    let workspace = Workspace::new();
    if let Some(program) = build_go(&workspace, "gomemcache", &examples().join("gomemcache")) {
        serves_at(&mut Command::new(program), MEMCACHED, memcached_port);
    }
}

#[test]
fn pymemcache_is_served() {
    let Some(python) = python() else { return };
    let found = Command::new(&python).args(["-c", "import pymemcache"]).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: pymemcache is not here; `.ci/run peers` fetches it");
    }
    let script = examples().join("pymemcache/client.py");
    serves_at(Command::new(python).arg(script), MEMCACHED, memcached_port);
}

#[test]
fn jedis_is_served() {
    let jars = libraries("jedis");
    if has_tool("Jedis", "java", "-version") && has_library("Jedis", &jars) {
        let program = examples().join("jedis/Client.java");
        serves(Command::new("java").arg("-cp").arg(jars.join("*")).arg(program));
    }
}
