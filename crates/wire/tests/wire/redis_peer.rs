//! The same bytes to this codec and to a real redis-server: the same error texts, words, and sums. Skipped,
//! with a word, where there is no redis-server.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::properties::receive_requests;
use tembo_wire::decimal::{Decimal, DecimalError};
use tembo_wire::{Limits, ReplyParser, ReplyWriter, Value, write_request};

struct Redis {
    process: Child,
    socket: PathBuf,
    _dir: tempfile::TempDir,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Redis {
    /// A server of its own, or `None` where it is not installed.
    fn start() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("redis.sock");
        let process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&socket)
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .spawn();
        let Ok(process) = process else {
            eprintln!("skipped: no redis-server to compare with");
            return None;
        };
        Some(Redis { process, socket, _dir: dir })
    }

    fn connect(&self) -> Peer {
        for _ in 0..500 {
            if let Some(peer) = Peer::connect(&self.socket) {
                return peer;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("redis-server does not come up");
    }
}

struct Peer {
    stream: UnixStream,
    parser: ReplyParser,
    buffer: Vec<u8>,
}

impl Peer {
    fn connect(socket: &Path) -> Option<Self> {
        let stream = UnixStream::connect(socket).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Some(Peer { stream, parser: ReplyParser::default(), buffer: Vec::new() })
    }

    fn send(&mut self, bytes: &[u8]) -> Value {
        self.stream.write_all(bytes).unwrap();
        loop {
            let decoded = self.parser.parse(&self.buffer).unwrap();
            self.buffer.drain(..decoded.consumed);
            if let Some(value) = decoded.value {
                return value;
            }
            let mut chunk = [0; 4096];
            let bytes = self.stream.read(&mut chunk).unwrap();
            assert!(bytes > 0, "redis-server hung up");
            self.buffer.extend_from_slice(&chunk[..bytes]);
        }
    }

    fn command(&mut self, args: &[&str]) -> Value {
        let mut bytes = Vec::new();
        write_request(&mut bytes, args);
        self.send(&bytes)
    }
}

/// The reply to the protocol error that `input` is to this codec.
fn our_error(input: &[u8]) -> Value {
    let error = receive_requests(&[input], &Limits::default()).error.expect("malformed");
    let mut out = Vec::new();
    ReplyWriter::new(&mut out, Default::default()).error_fmt(format_args!("ERR {error}"));
    ReplyParser::default().parse(&out).unwrap().value.unwrap()
}

#[test]
fn protocol_errors() {
    let Some(redis) = Redis::start() else { return };
    let long = "1".repeat(70_000);
    let too_long = ["", "*", "*1\r\n$"].map(|head| format!("{head}{long}").into_bytes());
    let short: [&[u8]; 15] = [
        b"*x\r\n",
        b"*+1\r\n",
        b"*01\r\n",
        b"*-0\r\n",
        b"*\r\n",
        b"*3000000000\r\n",
        b"*1\r\nfoo\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$\r\n",
        b"*1\r\n$536870913\r\n",
        b"*1\r\n$04\r\nPING\r\n",
        b"set \"\"\"test-key\"\"\" test-value\r\n",
        b"get 'k\r\n",
        b"get \"k\n",
    ];
    for input in short.into_iter().chain(too_long.iter().map(Vec::as_slice)) {
        let theirs = redis.connect().send(input);
        assert_eq!(our_error(input), theirs, "{}", input[..input.len().min(60)].escape_ascii());
    }
}

#[test]
fn inline_words() {
    let Some(redis) = Redis::start() else { return };
    let mut peer = redis.connect();
    let words: [&[u8]; 12] = [
        b"plain",
        br"back\nslash",
        br#""a b""#,
        br#""\n\r\t\b\a\\\"\q\x41\xg0\x4""#,
        br#"mid"dle""#,
        br#"'it\'s'"#,
        br"'x\n'",
        b"a\x0bb",
        br#""""#,
        b"*star",
        b"\xff\xfe",
        br#""it's""#,
    ];
    for word in words {
        let line = [b" \techo  ", word, b" \x0c\r\n"].concat();
        let ours = receive_requests(&[&line], &Limits::default()).items.remove(0);
        assert_eq!(ours.len(), 2, "{}", word.escape_ascii());
        assert_eq!(peer.send(&line), Value::Bulk(ours[1].clone()), "{}", word.escape_ascii());
    }
}

/// The reply of INCRBYFLOAT to `increment` on a key that holds `value`.
fn our_sum(value: &str, increment: &str) -> Result<Vec<u8>, DecimalError> {
    let sum = Decimal::parse(value.as_bytes())?.checked_add(Decimal::parse(increment.as_bytes())?)?;
    let mut out = Vec::new();
    sum.write(&mut out);
    Ok(out)
}

#[test]
fn incrbyfloat() {
    let Some(redis) = Redis::start() else { return };
    let mut peer = redis.connect();
    for (value, increment) in [
        ("10.50", "0.1"),
        ("0.1", "0.2"),
        ("5.0e3", "2.0e2"),
        ("3", "1.1"),
        ("17179869184", "1.5"),
        ("1", "-1.1"),
        ("0", "-0"),
        ("1", "-1"),
        ("-1.5", "1.25e-3"),
        ("1", "1e-17"),
        ("3.", ".5"),
        ("007", "+1"),
        ("123456789.125", "-0.0625"),
        ("0", "nan"),
        ("0", "inf"),
        ("0", "-Infinity"),
        ("0", "1e5000"),
        ("0", "1e-5000"),
        ("0", ""),
        ("0", " 1"),
        ("0", "1 "),
        ("0", "1e"),
        ("0", "."),
        ("0", "0x10"),
        ("2", "-0X1f"),
        ("0x10", "0x1.8p+1"),
        ("1", "0x.8"),
        ("1", "0x1p-30"),
        ("1", "0x1p62"),
        ("1", "0x"),
        ("1", "0x."),
        ("1", "0x1p"),
        ("1", "0xp1"),
        ("1", "0x1e+5"),
        ("1", "0x1p16384"),
        ("1", "0x1p-16446"),
        ("1", "0x1p99999"),
        ("0", "abc"),
        ("abc", "1"),
    ] {
        peer.command(&["SET", "k", value]);
        let ours = match our_sum(value, increment) {
            Ok(text) => Value::Bulk(text),
            Err(error) => Value::Error(format!("ERR {error}").into_bytes()),
        };
        assert_eq!(peer.command(&["INCRBYFLOAT", "k", increment]), ours, "{value} + {increment}");
    }
}
