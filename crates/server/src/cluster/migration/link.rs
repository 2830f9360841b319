//! The connection of a source to a target: a thread, which the event loop gives commands.
//!
//! A target that has not answered within [`SILENCE_MAX`] has failed, as one that answers an error. The thread
//! ends with the first failure, or when the [`Link`] is dropped. Nothing here touches the pool.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use mio::Waker;
use rustls::ClientConfig;
use tembo_wire::{ReplyLimits, ReplyParser, Value, write_request};

use super::copy::Commands;
use super::{Move, Verdict};
use crate::password::Password;
use crate::replica::socket::MasterSocket;

/// The longest time that an answer may take while keys are sent.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The longest time that an answer to a question may take when clients wait for it.
const ANSWER_MAX: Duration = Duration::from_millis(1500);
/// How often a target that still removes old keys is asked again, and for how long.
const BEGIN_AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(300));
/// The interval of signs of life to an idle target.
const ALIVE_EVERY: Duration = Duration::from_secs(1);

/// The target, and the name by which it knows the source.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Password>,
    /// TLS to the target, as a replica speaks it to its master.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

/// Work for the thread.
pub(crate) enum Job {
    Send(Commands),
    /// A replica of the target is to have everything.
    Ready,
    Commit,
}

/// How the work goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The target takes commands.
    Begun,
    /// The target has run this many bytes of commands.
    Taken(usize),
    /// Whether the target is ready to take the slots.
    Ready(bool),
    Committed,
    Answered(Verdict),
    Failed(String),
}

/// The event loop's end.
pub(crate) struct Link {
    jobs: Sender<Job>,
    news: Receiver<News>,
    is_over: Arc<AtomicBool>,
}

impl Link {
    /// Begins an import at a target.
    pub(crate) fn begin(target: Target, moving: Move, waker: Arc<Waker>) -> std::io::Result<Self> {
        Link::start(waker, move |line| line.import(&target, &moving))
    }

    /// Asks a target for the outcome of a move.
    pub(crate) fn ask(
        target: Target,
        moving: Move,
        version: u64,
        waker: Arc<Waker>,
    ) -> std::io::Result<Self> {
        Link::start(waker, move |line| line.ask(&target, &moving, version))
    }

    fn start(
        waker: Arc<Waker>,
        run: impl FnOnce(&mut Line) -> Result<(), String> + Send + 'static,
    ) -> std::io::Result<Self> {
        let ((jobs, to_do), (tell, news)) = (channel(), channel());
        let is_over = Arc::new(AtomicBool::new(false));
        let mut line = Line { jobs: to_do, tell, waker, is_over: is_over.clone() };
        let thread = move || {
            if let Err(why) = run(&mut line) {
                line.tell(News::Failed(why));
            }
        };
        std::thread::Builder::new().name("move".to_owned()).spawn(thread)?;
        Ok(Link { jobs, news, is_over })
    }

    pub(crate) fn give(&self, job: Job) {
        // A thread that has ended has told why.
        let _ = self.jobs.send(job);
    }

    pub(crate) fn news(&self) -> Option<News> {
        self.news.try_recv().ok()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// The thread's end.
struct Line {
    jobs: Receiver<Job>,
    tell: Sender<News>,
    waker: Arc<Waker>,
    is_over: Arc<AtomicBool>,
}

impl Line {
    fn tell(&self, news: News) {
        // Nobody may be listening any more.
        let _ = self.tell.send(news);
        let _ = self.waker.wake();
    }

    fn import(&mut self, target: &Target, moving: &Move) -> Result<(), String> {
        let mut talk = Talk::connect(target)?;
        let (source, slots) = (moving.source.to_string(), moving.slots.to_string());
        let id = String::from_utf8_lossy(&moving.id).into_owned();
        let node = moving.target.to_string();
        let begun = Instant::now();
        loop {
            let words = ["CLUSTERX", "IMPORT", "BEGIN", &id, &source, &node, &slots];
            match talk.ask(&words)? {
                Value::Simple(_) => break,
                Value::Error(text) if text.starts_with(b"TRYAGAIN") && begun.elapsed() < BEGIN_AGAIN.1 => {
                    std::thread::sleep(BEGIN_AGAIN.0);
                    self.expect_wanted()?;
                }
                other => return Err(refused(&other)),
            }
        }
        self.tell(News::Begun);
        loop {
            match self.jobs.recv_timeout(ALIVE_EVERY) {
                Ok(Job::Send(commands)) => {
                    talk.run(&commands)?;
                    self.tell(News::Taken(commands.bytes.len()));
                }
                Ok(Job::Ready) => {
                    match talk.ask_within(ANSWER_MAX, &["CLUSTERX", "IMPORT", "READY", &id])? {
                        Value::Integer(count) => self.tell(News::Ready(count > 0)),
                        other => return Err(refused(&other)),
                    }
                }
                Ok(Job::Commit) => {
                    match talk.ask_within(ANSWER_MAX, &["CLUSTERX", "IMPORT", "COMMIT", &id])? {
                        Value::Integer(1..) => self.tell(News::Committed),
                        other => return Err(refused(&other)),
                    }
                }
                Err(RecvTimeoutError::Timeout) => drop(talk.ask(&["PING"])?),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    fn ask(&mut self, target: &Target, moving: &Move, version: u64) -> Result<(), String> {
        let mut talk = Talk::connect(target)?;
        let [id, source] = [String::from_utf8_lossy(&moving.id).into_owned(), moving.source.to_string()];
        let (node, slots, version) =
            (moving.target.to_string(), moving.slots.to_string(), version.to_string());
        let words = ["CLUSTERX", "IMPORT", "ASK", &id, &source, &node, &slots, &version];
        let answer = talk.ask_within(ANSWER_MAX, &words)?;
        let verdict = match &answer {
            Value::Integer(1..) => Verdict::Handed,
            Value::Simple(word) if &word[..] == b"never" => Verdict::Never,
            Value::Simple(word) if &word[..] == b"newer" => Verdict::Newer,
            other => return Err(refused(other)),
        };
        self.tell(News::Answered(verdict));
        Ok(())
    }

    fn expect_wanted(&self) -> Result<(), String> {
        if self.is_over.load(Ordering::Relaxed) { Err("the move is over".to_owned()) } else { Ok(()) }
    }
}

fn refused(value: &Value) -> String {
    let text = value.as_bytes().unwrap_or_default();
    let text = match value {
        Value::Error(text) | Value::Simple(text) => &text[..],
        _ => text,
    };
    // Errors may quote the contents of a key; a line is enough.
    let text: Vec<u8> = text.iter().copied().take(200).collect();
    format!("the target answered: {}", text.escape_ascii())
}

/// A conversation.
struct Talk {
    stream: MasterSocket,
    parser: ReplyParser,
    input: Vec<u8>,
}

impl Talk {
    fn connect(target: &Target) -> Result<Self, String> {
        let addresses = (target.host.as_str(), target.port).to_socket_addrs();
        let addresses = addresses.map_err(|error| format!("the target is not found: {error}"))?;
        let mut last = "the target has no address".to_owned();
        for address in addresses {
            match TcpStream::connect_timeout(&address, Duration::from_secs(3)) {
                Ok(stream) => return Talk::introduce(stream, target),
                Err(error) => last = format!("no connection to the target: {error}"),
            }
        }
        Err(last)
    }

    fn introduce(stream: TcpStream, target: &Target) -> Result<Self, String> {
        let failed = |error| format!("the connection failed: {error}");
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_write_timeout(Some(SILENCE_MAX)).map_err(failed)?;
        let stream = MasterSocket::new(stream, target.tls.clone(), &target.host).map_err(failed)?;
        let mut talk = Talk { stream, parser: ReplyParser::new(ReplyLimits::default()), input: Vec::new() };
        if target.tls.is_some() {
            // The handshake is in the first read; there is room for all that is sent then.
            talk.ask(&["PING"])?;
        }
        if let Some(password) = &target.password {
            let user = target.user.as_deref().map(str::as_bytes);
            let words = [Some(&b"AUTH"[..]), user, Some(password.bytes())];
            let words: Vec<&[u8]> = words.into_iter().flatten().collect();
            match talk.ask(&words)? {
                Value::Simple(_) => {}
                other => return Err(format!("masterauth is refused: {}", refused(&other))),
            }
        }
        Ok(talk)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).map_err(|error| format!("the connection failed: {error}"))
    }

    /// An answer, all of which is here in time.
    fn receive(&mut self, most: Duration) -> Result<Value, String> {
        let begun = Instant::now();
        loop {
            let decoded = self.parser.parse(&self.input).map_err(|error| format!("no reply: {error}"))?;
            self.input.drain(..decoded.consumed);
            if let Some(value) = decoded.value {
                return Ok(value);
            }
            let left = most.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err("the target did not answer in time".to_owned());
            }
            let limited = self.stream.tcp().set_read_timeout(Some(left));
            limited.map_err(|error| format!("the connection failed: {error}"))?;
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err("the target closed the connection".to_owned()),
                Ok(count) => self.input.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("no answer of the target: {error}")),
            }
        }
    }

    fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<Value, String> {
        self.ask_within(SILENCE_MAX, words)
    }

    fn ask_within<W: AsRef<[u8]>>(&mut self, most: Duration, words: &[W]) -> Result<Value, String> {
        let mut request = Vec::new();
        write_request(&mut request, words.iter().map(AsRef::as_ref));
        self.send(&request)?;
        self.receive(most)
    }

    /// Runs commands, all of which are to succeed.
    fn run(&mut self, commands: &Commands) -> Result<(), String> {
        self.send(&commands.bytes)?;
        for _ in 0..commands.count {
            let value = self.receive(SILENCE_MAX)?;
            if value.is_error() {
                return Err(refused(&value));
            }
        }
        Ok(())
    }
}
