//! The programs of `examples/frameworks`, each against a server that is killed and started again meanwhile.
//! `scripts/framework-libraries` fetches their libraries; one whose tools or libraries are missing is
//! skipped, and says so. `TEMBO_KILLS=20 cargo test -p tembo-cli --test suite frameworks -- --nocapture` is
//! the long form.

use crate::serve::Server;
use crate::support::Workspace;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Far more than a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(300);

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/frameworks").join(path)
}

/// Where `scripts/framework-libraries` puts libraries; says so if they are not there.
fn libraries(framework: &str, path: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("frameworks").join(path);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {framework} is not here; scripts/framework-libraries fetches it");
    None
}

/// A server at a port, which is free or was its own before.
fn start(workspace: &Workspace, port: u16) -> Server {
    let arguments = format!("serve --listen 127.0.0.1:{port} --pool a.pool");
    Server::spawn(workspace.command(&arguments).stderr(Stdio::null()))
}

/// Runs a program that has `per_kill` things to do for each kill, and kills the server as often as the
/// environment says meanwhile.
fn goes_on(command: &mut Command, per_kill: u32, pause: Duration) {
    let kills = std::env::var("TEMBO_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(2);
    let workspace = Workspace::new();
    let mut server = start(&workspace, 0);
    let port = server.port;
    let command = command.arg(port.to_string()).arg((per_kill * (kills + 2)).to_string());
    let mut program = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let (begun, mut killed) = (Instant::now(), 0);
    while program.try_wait().expect("it can be waited for").is_none() {
        std::thread::sleep(pause);
        if killed < kills {
            server.kill();
            server = start(&workspace, port);
            killed += 1;
        }
        if begun.elapsed() > PATIENCE {
            program.kill().expect("it can be killed");
            break;
        }
    }
    let ran = program.wait_with_output().expect("it has ended");
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && out.contains("served"), "after {killed} kills: {out}\n{err}");
    assert_eq!(killed, kills, "it ended too early: {out}");
    println!("{killed} kills in {:?}; {}", begun.elapsed(), out.lines().last().unwrap_or_default());
    server.kill();
    workspace.run("check a.pool").ok();
}

#[test]
fn celery_goes_on() {
    let Some(python) = libraries("Celery", "python/bin/python3") else { return };
    goes_on(Command::new(python).arg(example("celery/quickstart.py")), 80, Duration::from_millis(2500));
}

#[test]
fn dramatiq_goes_on() {
    let Some(python) = libraries("Dramatiq", "python/bin/python3") else { return };
    goes_on(Command::new(python).arg(example("dramatiq/quickstart.py")), 60, Duration::from_millis(1500));
}

#[test]
fn the_lock_of_redis_py_goes_on() {
    let Some(python) = libraries("redis-py", "python/bin/python3") else { return };
    goes_on(
        Command::new(python).arg(example("redis-py-lock/quickstart.py")),
        120,
        Duration::from_millis(500),
    );
}

#[test]
fn bee_queue_goes_on() {
    let Some(modules) = libraries("Bee-Queue", "node/node_modules") else { return };
    let script = example("bee-queue/quickstart.js");
    let node = &mut Command::new("node");
    goes_on(node.env("NODE_PATH", modules).arg(script), 50, Duration::from_millis(1000));
}

#[test]
fn redlock_goes_on() {
    let Some(modules) = libraries("Redlock", "node/node_modules") else { return };
    let script = example("redlock/quickstart.js");
    let node = &mut Command::new("node");
    goes_on(node.env("NODE_PATH", modules).arg(script), 60, Duration::from_millis(500));
}

#[test]
fn redisson_goes_on() {
    let Some(jars) = libraries("Redisson", "java") else { return };
    let java = &mut Command::new("java");
    let program = java.arg("-cp").arg(jars.join("*")).arg(example("redisson/Quickstart.java"));
    goes_on(program, 60, Duration::from_millis(1000));
}
