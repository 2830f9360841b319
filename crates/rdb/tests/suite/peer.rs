//! A real server to read files of, where there is one.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tembo_wire::{ReplyLimits, ReplyParser, Value, write_request};

pub(crate) struct Peer {
    process: Child,
    stream: UnixStream,
    directory: tempfile::TempDir,
}

impl Peer {
    /// Starts `program` if it is installed; says so if it is not.
    pub(crate) fn start(program: &str) -> Option<Peer> {
        Self::start_on(program, tempfile::tempdir().unwrap())
    }

    /// Starts `program` in a directory, whose `dump.rdb` it loads.
    pub(crate) fn start_on(program: &str, directory: tempfile::TempDir) -> Option<Peer> {
        let socket = directory.path().join("socket");
        let spawned = Command::new(program)
            .args(["--port", "0", "--save", "", "--enable-debug-command", "yes", "--unixsocket"])
            .arg(&socket)
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut process = match spawned {
            Ok(process) => process,
            Err(error) => {
                eprintln!("skipped: {program} cannot be run here ({error})");
                return None;
            }
        };
        let begun = Instant::now();
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(_) if begun.elapsed() < Duration::from_secs(60) => {
                    assert_eq!(process.try_wait().unwrap(), None, "{program} ended");
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => panic!("{program} does not serve: {error}"),
            }
        };
        Some(Peer { process, stream, directory })
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("dump.rdb")
    }

    pub(crate) fn try_call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        let mut request = Vec::new();
        write_request(&mut request, args);
        self.stream.write_all(&request).unwrap();
        let limits = ReplyLimits { max_bulk_bytes: 1 << 30, ..ReplyLimits::default() };
        let (mut parser, mut input, mut buffer) = (ReplyParser::new(limits), Vec::new(), [0; 1 << 16]);
        loop {
            let count = self.stream.read(&mut buffer).unwrap();
            assert!(count > 0, "the server hung up");
            input.extend_from_slice(&buffer[..count]);
            let decoded = parser.parse(&input).unwrap();
            input.drain(..decoded.consumed);
            if let Some(value) = decoded.value {
                return value;
            }
        }
    }

    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        let reply = self.try_call(args);
        assert!(!reply.is_error(), "{}: {reply:?}", String::from_utf8_lossy(args[0].as_ref()));
        reply
    }

    /// Sends the words of a line.
    pub(crate) fn line(&mut self, line: &str) -> Value {
        self.call(&line.split(' ').collect::<Vec<_>>())
    }

    pub(crate) fn bytes<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Vec<u8> {
        self.call(args).as_bytes().expect("a string").to_vec()
    }

    pub(crate) fn strings<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Vec<Vec<u8>> {
        match self.call(args) {
            Value::Array(items) => items.iter().map(|item| item.as_bytes().unwrap().to_vec()).collect(),
            other => panic!("no array: {other:?}"),
        }
    }

    /// Saves, and returns the file.
    pub(crate) fn save(&mut self) -> Vec<u8> {
        self.line("SAVE");
        std::fs::read(self.file()).unwrap()
    }

    /// Whether it is a Redis 7.0, whose bytes are those that are written; says so if it is not.
    pub(crate) fn is_comparable(&mut self) -> bool {
        let info = self.bytes(&["INFO", "server"]);
        let is = String::from_utf8_lossy(&info).contains("redis_version:7.0.");
        if !is {
            eprintln!("skipped: the server is not of version 7.0");
        }
        is
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
