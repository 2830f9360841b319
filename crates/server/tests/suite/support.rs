//! A server in a thread and a client that talks to it.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tembo_server::{Config, Handle, Server};
use tembo_wire::{ReplyLimits, ReplyParser, Value, write_request};

use crate::logged::Log;

/// Long enough for anything that is to happen; only a failing test waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Payloads of DUMP that are text without blanks: of the string "v04788", and of a set of two members.
pub(crate) const PAYLOAD_OF_STRING: &str = "\0\x06v04788\n\0Sg[?Y:GX";
pub(crate) const PAYLOAD_OF_SET: &str = "\x02\x02\x01a\x06m04345\n\x000;Pd$e<m";

/// A server on a pool of its own.
pub(crate) struct Fixture {
    pub(crate) address: SocketAddr,
    /// The messages to the operator.
    pub(crate) log: Log,
    handle: Handle,
    thread: Option<JoinHandle<Result<(), tembo_server::Error>>>,
    options: tembo::Options,
    config: Config,
    dir: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn start() -> Self {
        Self::with(|_| {}, |options| options)
    }

    pub(crate) fn with_config(change: impl FnOnce(&mut Config)) -> Self {
        Self::with(change, |options| options)
    }

    pub(crate) fn with(
        change: impl FnOnce(&mut Config),
        options: impl FnOnce(tembo::Options) -> tembo::Options,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = options(tembo::Options::new().create(true).durability(tembo::Durability::PageCache));
        let mut config = Config::default();
        config.listen = "127.0.0.1:0".parse().unwrap();
        config.debug_commands = tembo_server::DebugCommands::Local;
        change(&mut config);
        let log = Log::default();
        let (address, handle, thread) = start(&config, &options, dir.path().join("test.pool"), &log);
        Fixture { address, log, handle, thread: Some(thread), options, config, dir }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// The folder of the pool.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// Stops the server and starts another on the same pool.
    pub(crate) fn restart(&mut self) {
        self.restart_with(|_| {});
    }

    /// As [`restart`](Self::restart), with a change of the pool in between.
    pub(crate) fn restart_with(&mut self, change: impl FnOnce(&tembo::Pool)) {
        self.stop();
        let path = self.dir.path().join("test.pool");
        change(&self.options.open(&path).unwrap());
        let (address, handle, thread) = start(&self.config, &self.options, path, &self.log);
        (self.address, self.handle, self.thread) = (address, handle, Some(thread));
    }

    /// Stops the server, as a signal would, and waits until it is gone.
    pub(crate) fn stop(&mut self) {
        self.handle.shutdown();
        self.join();
    }

    /// Waits until the server is gone.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server panicked").expect("the server failed");
        }
    }

    /// Stops the server and proves that the pool is sound.
    pub(crate) fn check(self) {
        self.report();
    }

    /// As [`check`](Self::check); what there is in the pool.
    pub(crate) fn report(mut self) -> tembo_server::CheckReport {
        self.stop();
        let pool = tembo::Options::new().read_only(true).open(self.dir.path().join("test.pool")).unwrap();
        pool.check().unwrap();
        tembo_server::check(&pool).unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.handle.shutdown();
        if let Some(thread) = self.thread.take() {
            let result = thread.join();
            if !std::thread::panicking() {
                result.expect("the server panicked").expect("the server failed");
            }
        }
    }
}

type Started = (SocketAddr, Handle, JoinHandle<Result<(), tembo_server::Error>>);

fn start(config: &Config, options: &tembo::Options, path: PathBuf, log: &Log) -> Started {
    let pool = options.open(path).unwrap();
    let mut server = Server::bind(config.clone(), pool).unwrap();
    let (address, handle, log) = (server.local_addr(), server.handle(), log.clone());
    let run = move || tracing::subscriber::with_default(log, || server.run());
    (address, handle, std::thread::spawn(run))
}

pub(crate) struct Client<S = TcpStream> {
    pub(crate) stream: S,
    parser: ReplyParser,
    input: Vec<u8>,
}

impl Client<TcpStream> {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client::over(stream)
    }

    /// Sends no more, but goes on receiving.
    pub(crate) fn finish_sending(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }
}

impl<S: Read + Write> Client<S> {
    /// A client of a connection.
    pub(crate) fn over(stream: S) -> Self {
        Client { stream, parser: ReplyParser::new(ReplyLimits::default()), input: Vec::new() }
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn send(&mut self, args: &[&[u8]]) {
        self.send_raw(&request(args));
    }

    /// The next reply, or `None` if the server has closed the connection.
    pub(crate) fn try_receive(&mut self) -> Option<Value> {
        loop {
            let decoded = self.parser.parse(&self.input).unwrap();
            self.input.drain(..decoded.consumed);
            if decoded.value.is_some() {
                return decoded.value;
            }
            let mut chunk = vec![0; 1 << 16];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(len) => self.input.extend_from_slice(&chunk[..len]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                // The process was stopped for a while.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    #[track_caller]
    pub(crate) fn receive(&mut self) -> Value {
        self.try_receive().expect("the server closed the connection")
    }

    /// Runs a command of arguments that are not text.
    #[track_caller]
    pub(crate) fn run(&mut self, args: &[&[u8]]) -> Value {
        self.send(args);
        self.receive()
    }

    /// Runs a command of words, and shows the reply.
    #[track_caller]
    pub(crate) fn ask(&mut self, words: &str) -> String {
        let words = split(words);
        let args: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
        show(&self.run(&args))
    }

    /// Holds a conversation: each line is `request => reply`. A word in single quotes may hold blanks.
    #[track_caller]
    pub(crate) fn talk(&mut self, conversation: &str) {
        for line in conversation.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (request, expected) = line.split_once(" => ").expect("a line is `request => reply`");
            assert_eq!(self.ask(request), expected, "{request}");
        }
    }

    /// Asserts that the server closes the connection, without sending anything more.
    #[track_caller]
    pub(crate) fn expect_closed(&mut self) {
        assert_eq!(self.try_receive(), None);
    }

    /// A field of INFO.
    #[track_caller]
    pub(crate) fn info(&mut self, field: &str) -> String {
        let text = self.run(&[b"INFO"]);
        let text = String::from_utf8(text.as_bytes().unwrap().to_vec()).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("INFO has no {field}")).to_owned()
    }
}

pub(crate) fn request(args: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_request(&mut bytes, args.iter().copied());
    bytes
}

/// Words between blanks; those in single quotes may be empty or hold blanks.
fn split(text: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    for (index, part) in text.split('\'').enumerate() {
        match index % 2 {
            0 => words.extend(part.split_whitespace().map(|word| word.as_bytes().to_vec())),
            _ => words.push(part.as_bytes().to_vec()),
        }
    }
    words
}

/// Shows a reply in one line.
pub(crate) fn show(value: &Value) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string().replace("\\'", "'").replace("\\\"", "\"");
    let list = |values: &[Value]| values.iter().map(show).collect::<Vec<_>>().join(" ");
    match value {
        Value::Simple(bytes) => format!("+{}", text(bytes)),
        Value::Error(bytes) => format!("-{}", text(bytes)),
        Value::Integer(number) => format!(":{number}"),
        Value::Bulk(bytes) => format!("${}", text(bytes)),
        Value::Null => "nil".to_owned(),
        Value::Array(values) => format!("[{}]", list(values)),
        Value::Set(values) => format!("({})", list(values)),
        Value::Push(values) => format!(">{}", list(values)),
        Value::Double(number) => format!(",{number}"),
        Value::Boolean(truth) => format!("#{truth}"),
        Value::BigNumber(bytes) => format!("({}", text(bytes)),
        Value::Verbatim { text: bytes, .. } => format!("={}", text(bytes)),
        Value::Map(pairs) => {
            let mut shown = String::from("{");
            for (index, (key, value)) in pairs.iter().enumerate() {
                let separator = if index == 0 { "" } else { " " };
                write!(shown, "{separator}{}:{}", show(key), show(value)).unwrap();
            }
            shown + "}"
        }
    }
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn eventually(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}
