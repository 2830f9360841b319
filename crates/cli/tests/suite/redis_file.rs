//! `import` and `export`: data of a real Redis, where there is one, comes and goes whole.

use crate::support::Workspace;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tembo_rdb::{Element, KeyMeta, Kind, Writer};
use tembo_wire::{ReplyLimits, ReplyParser, Value, write_request};

/// A redis-server in a directory, whose `dump.rdb` it loads and writes.
struct Redis {
    process: Child,
    stream: UnixStream,
}

impl Redis {
    fn start(directory: &Path) -> Option<Redis> {
        std::fs::create_dir_all(directory).unwrap();
        let socket = directory.join("socket");
        let spawned = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--enable-debug-command", "yes", "--unixsocket", "socket"])
            .current_dir(directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = spawned else {
            eprintln!("skipped: redis-server cannot be run here");
            return None;
        };
        let begun = Instant::now();
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(_) if begun.elapsed() < Duration::from_secs(60) => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => panic!("redis-server does not serve: {error}"),
            }
        };
        let mut redis = Redis { process, stream };
        while redis.call(&["PING"]).is_error() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let info = redis.call(&["INFO", "server"]);
        let is_7 = String::from_utf8_lossy(info.as_bytes().unwrap()).contains("redis_version:7.");
        if !is_7 {
            eprintln!("skipped: redis-server is not of version 7");
        }
        is_7.then_some(redis)
    }

    fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        let mut request = Vec::new();
        write_request(&mut request, args);
        self.stream.write_all(&request).unwrap();
        let (mut parser, mut input) = (ReplyParser::new(ReplyLimits::default()), Vec::new());
        loop {
            let mut chunk = [0; 1 << 16];
            let count = self.stream.read(&mut chunk).unwrap();
            assert!(count > 0, "the server hung up");
            input.extend_from_slice(&chunk[..count]);
            let decoded = parser.parse(&input).unwrap();
            input.drain(..decoded.consumed);
            if let Some(value) = decoded.value {
                return value;
            }
        }
    }

    /// Runs the words of a line.
    fn line(&mut self, line: &str) -> Value {
        let reply = self.call(&line.split(' ').collect::<Vec<_>>());
        assert!(!reply.is_error(), "{line}: {reply:?}");
        reply
    }

    /// Fills all types, in three databases, small and large.
    fn fill(&mut self) {
        for database in [0, 3, 15] {
            self.line(&format!("SELECT {database}"));
            for n in 0..40 {
                self.line(&format!("SET string:{n} {}", "v".repeat(n * n)));
                self.line(&format!("RPUSH list:{} {n} element:{n} {}", n % 3, "x".repeat(n * 20)));
                self.line(&format!("SADD set:{} {}", n % 3, n * 1000));
                self.line(&format!("SADD texts:{} member:{n}", n % 3));
                self.line(&format!("HSET hash:{} field:{n} {n} g:{n} {}", n % 3, "y".repeat(n)));
                self.line(&format!("ZADD zset:{} {} member:{n}", n % 3, n as f64 / 7.0));
            }
            for n in 0..400 {
                self.line(&format!("HSET large:hash field:{n} value:{n}"));
                self.line(&format!("ZADD large:zset {n}.5 member:{n}"));
                self.line(&format!("RPUSH large:list element:{n} element:{}", n * n));
                self.line(&format!("SADD large:set member:{n}"));
            }
            self.line("PEXPIREAT string:5 1999999999999");
            self.line("PEXPIREAT large:hash 1999999999998");
        }
        self.line("SELECT 0");
    }

    fn digest(&mut self) -> Value {
        self.line("DEBUG DIGEST")
    }

    /// The payloads of all keys whose bytes do not depend on the order of a hash table.
    fn dumps(&mut self) -> Vec<(Vec<u8>, Value)> {
        let mut dumps = Vec::new();
        for database in [0, 3, 15] {
            self.line(&format!("SELECT {database}"));
            let Value::Array(keys) = self.line("KEYS *") else { panic!("no keys") };
            for key in keys {
                let key = key.as_bytes().unwrap().to_vec();
                let encoding = self.call(&[&b"OBJECT"[..], b"ENCODING", &key]);
                let is_ordered = encoding.as_bytes() != Some(b"hashtable");
                // Hashes of more than 512 bytes lose the order of insertion.
                if is_ordered && !key.windows(4).any(|part| part == b"hash") {
                    let dump = self.call(&[&b"DUMP"[..], &key]);
                    dumps.push(([format!("{database}:").as_bytes(), &key].concat(), dump));
                }
            }
        }
        dumps.sort_by(|a, b| a.0.cmp(&b.0));
        dumps
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn data_goes_from_redis_to_a_pool_and_back() {
    let workspace = Workspace::new();
    let Some(mut redis) = Redis::start(&workspace.path("from")) else { return };
    redis.fill();
    redis.line("SAVE");
    let run = workspace.run("import from/dump.rdb --pool a.pool").ok();
    assert!(
        run.stderr.contains(
            "177 keys imported into a.pool: 120 strings, 12 lists, 21 sets, 12 hashes, 12 sorted sets"
        ),
        "{run:?}"
    );
    workspace.run("check a.pool").ok();
    std::fs::create_dir(workspace.path("to")).unwrap();
    let run = workspace.run("export to/dump.rdb --pool a.pool").ok();
    assert!(run.stderr.contains("177 keys exported to to/dump.rdb"), "{run:?}");
    if let Ok(output) = Command::new("redis-check-rdb").arg(workspace.path("to/dump.rdb")).output() {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let mut other = Redis::start(&workspace.path("to")).unwrap();
    assert_eq!(other.digest(), redis.digest(), "the data of the two servers differ");
    let (theirs, back) = (redis.dumps(), other.dumps());
    assert!(theirs.len() > 140, "{}", theirs.len());
    for (before, after) in theirs.iter().zip(&back) {
        assert!(before == after, "{} came back as another one", String::from_utf8_lossy(&before.0));
    }
    assert_eq!(theirs.len(), back.len());
}

#[test]
fn what_the_server_lacks_is_refused_or_left_out() {
    let workspace = Workspace::new();
    let Some(mut redis) = Redis::start(&workspace.path("from")) else { return };
    for line in ["SET k v", "XADD s 1-1 f v", "XADD second 1-1 f v"] {
        redis.line(line);
    }
    let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    assert!(!redis.call(&["FUNCTION", "LOAD", library]).is_error());
    redis.line("SAVE");
    let refused = workspace.run("import from/dump.rdb --pool a.pool");
    let refused = refused.fails_with("2 of the kind \"stream\" (");
    assert!(
        refused.stderr.contains("1 of the kind \"library of functions\". Nothing was imported"),
        "{refused:?}"
    );
    assert!(!workspace.path("a.pool").exists());
    let run = workspace.run("import from/dump.rdb --pool a.pool --skip-unsupported").ok();
    assert!(run.stderr.contains("s in 0") && run.stderr.contains("1 keys imported"), "{run:?}");
}

/// A file of a string, a deadline that has passed, and as many hashes as asked for, of 300 fields each.
fn file(hashes: u64) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), Default::default()).unwrap();
    writer.database(0, 2 + hashes, 1).unwrap();
    for (key, deadline_ms) in [("string", None), ("expired", Some(1000))] {
        let meta = KeyMeta { deadline_ms, ..KeyMeta::default() };
        writer.begin(key.as_bytes(), meta, Kind::String, 1).unwrap();
        writer.element(Element::Text(b"of the file")).unwrap();
        writer.end().unwrap();
    }
    for hash in 0..hashes {
        let count = if hash == 0 { 30_000 } else { 300 };
        writer.begin(format!("hash:{hash}").as_bytes(), KeyMeta::default(), Kind::Hash, count).unwrap();
        for n in 0..count {
            let field = format!("field:{n}");
            let element = Element::Field { field: field.as_bytes(), value: b"value", deadline_ms: None };
            writer.element(element).unwrap();
        }
        writer.end().unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn an_import_does_not_mix_unless_it_is_told_to() {
    let workspace = Workspace::new();
    std::fs::write(workspace.path("a.rdb"), file(2)).unwrap();
    let run = workspace.run("import a.rdb --pool a.pool").ok();
    assert!(
        run.stderr.contains("note: 1 keys had expired") && run.stderr.contains("3 keys imported"),
        "{run:?}"
    );
    let before = workspace.run("dump a.pool").ok().stdout;
    let refused = workspace.run("import a.rdb --pool a.pool");
    refused.fails_with("the databases of a.pool have 3 keys; add --merge");
    let mut damaged = file(2);
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(workspace.path("damaged.rdb"), &damaged).unwrap();
    for name in ["a.pool --merge", "new.pool"] {
        workspace.run(&format!("import damaged.rdb --pool {name}")).fails_with("damaged.rdb: at byte ");
    }
    std::fs::write(workspace.path("cut.rdb"), &damaged[..middle]).unwrap();
    workspace.run("import cut.rdb --pool new.pool").fails_with("it was cut short");
    workspace.run("import a.pool --pool new.pool").fails_with("this is not an RDB file");
    workspace.run("import none.rdb --pool new.pool").fails_with("none.rdb");
    assert!(workspace.run("dump a.pool").ok().stdout == before, "nothing was written");
    workspace.run("import a.rdb --pool a.pool --merge").ok();
    workspace.run("export a.rdb --pool a.pool").fails_with("a.rdb");
    workspace.run("export out.rdb --pool none.pool").fails_with("none.pool");
    workspace.run("export out.rdb --pool a.pool").ok();
    workspace.run("import out.rdb --pool b.pool").ok();
    assert_eq!(
        workspace.run("dump b.pool").ok().stdout.len(),
        workspace.run("dump a.pool").ok().stdout.len()
    );
    assert_eq!(workspace.names(), ["a.pool", "a.rdb", "b.pool", "cut.rdb", "damaged.rdb", "out.rdb"]);
}

/// A kill in the middle leaves keys with their whole values, and a second run ends as an undisturbed one.
#[test]
fn an_import_that_is_killed_can_be_run_again() {
    let workspace = Workspace::new();
    std::fs::write(workspace.path("a.rdb"), file(400)).unwrap();
    std::fs::write(workspace.path("small.rdb"), file(0)).unwrap();
    workspace.run("import small.rdb --pool a.pool").ok();
    let mut killed = 0;
    for round in 0..6 {
        let mut child = workspace.command("import a.rdb --pool a.pool --merge").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(30 + 60 * round));
        let _ = child.kill();
        killed += u32::from(!child.wait().unwrap().success());
        let run = workspace.run("check a.pool").ok();
        assert!(run.text().starts_with("a.pool: undamaged"), "{run:?}");
    }
    eprintln!("{killed} of 6 imports were killed before their end");
    workspace.run("import a.rdb --pool a.pool --merge").ok();
    workspace.run("import a.rdb --pool whole.pool").ok();
    for pool in ["a", "whole"] {
        workspace.run(&format!("check {pool}.pool")).ok();
        let run = workspace.run(&format!("export {pool}.rdb.out --pool {pool}.pool")).ok();
        assert!(run.stderr.contains("401 keys exported"), "{run:?}");
    }
    let mut child = workspace.command("import a.rdb --pool new.pool").spawn().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let _ = child.kill();
    child.wait().unwrap();
    let left = workspace.names().into_iter().filter(|name| name.starts_with("new")).count();
    assert!(left == 0 || workspace.run("check new.pool").code == Some(0));
}
