//! A giant pipeline of redis-py, which sends all of it before it reads the first reply.

use crate::redis_py;
use crate::serve::Server;
use crate::support::Workspace;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const GETS: u64 = 200_000;
const VALUE_BYTES: u64 = 1000;
/// Redis takes 1.8 s for the same, and this is far more than a loaded machine needs.
const PATIENCE: Duration = Duration::from_secs(90);

fn start(python: PathBuf, port: u16) -> Child {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/redis_py_pipeline.py");
    let arguments = [port.to_string(), GETS.to_string(), VALUE_BYTES.to_string()];
    let mut command = Command::new(python);
    command.arg(script).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Memory of a process that is no file's: neither the pool's nor the program's.
fn anonymous_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB"));
    kib.unwrap().parse::<u64>().unwrap() * 1024
}

/// Another client, which has to be served meanwhile.
struct Other(BufReader<TcpStream>);

impl Other {
    fn connect(port: u16) -> Other {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Other(BufReader::new(stream))
    }

    fn count(&mut self) -> u64 {
        self.0.get_mut().write_all(b"INCR served\r\n").unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim()
            .strip_prefix(':')
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("{line}"))
    }
}

/// The server did not read from a client whose replies were not taken, and redis-py takes none before it
/// has sent everything: both waited for ever.
#[test]
fn two_hundred_thousand_gets_in_one_pipeline_of_redis_py() {
    let Some(python) = redis_py::python() else { return };
    let workspace = Workspace::new();
    let server = Server::start(&workspace, "--pool a.pool");
    let mut other = Other::connect(server.port);
    other.count();
    let before = anonymous_bytes(server.child.id());
    let mut python = start(python, server.port);
    let begun = Instant::now();
    let (mut most, mut served) = (0, 0);
    let code = loop {
        served = other.count().max(served);
        most = most.max(anonymous_bytes(server.child.id()));
        if let Some(status) = python.try_wait().unwrap() {
            break status.code();
        }
        if begun.elapsed() > PATIENCE {
            python.kill().unwrap();
            panic!(
                "the pipeline hangs; another client was served {served} times, and the server has {most} bytes"
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let output = python.wait_with_output().unwrap();
    assert_eq!(code, Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let took = begun.elapsed();
    assert!(served > 20, "another client was served {served} times in {took:?}");
    // The replies, and what a reply costs beside its value; nothing for what was sent already.
    let bound = GETS * (VALUE_BYTES + 20) + (32 << 20);
    assert!(most < bound, "{most} bytes");
    let mut after = anonymous_bytes(server.child.id());
    let deadline = Instant::now() + Duration::from_secs(20);
    // Buffers for the next clients are given back bit by bit.
    while after > before + (8 << 20) {
        assert!(
            Instant::now() < deadline,
            "{after} bytes are kept, after {before} before and {most} meanwhile"
        );
        std::thread::sleep(Duration::from_millis(100));
        after = anonymous_bytes(server.child.id());
    }
    eprintln!(
        "redis-py {}: {took:.1?}; server: {} MiB before, {} MiB at most, {} MiB after; other client served {served} times",
        String::from_utf8_lossy(&output.stdout).trim(),
        before >> 20,
        most >> 20,
        after >> 20,
    );
    server.kill();
}
