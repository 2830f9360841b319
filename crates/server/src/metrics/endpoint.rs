//! The thread that answers HTTP.
//!
//! It has an event queue of its own and never blocks on a connection or on the event loop. A connection
//! carries one request; it is closed when the peer has taken the response, or when its time is over.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use super::board::{Board, Readiness};
use super::http::{self, BAD, OK, Page, PageRequest, Parsed, REQUEST_BYTES_MAX, UNAVAILABLE, response};
use super::text::{self, OPENMETRICS, PROMETHEUS};
use crate::config::LogLevel;
use crate::log::{Log, MessageKind};

/// Connections at a time. Beyond it the oldest is closed.
const CONNECTIONS_MAX: usize = 32;
/// A request arrives within this long.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// If the event loop does not gather figures within this time, the previous ones are given.
const FIGURES_TIME: Duration = Duration::from_secs(1);
/// A response is taken within this long.
const RESPONSE_TIME: Duration = Duration::from_secs(10);
/// A peer that has the response closes its side within this long.
const CLOSING_TIME: Duration = Duration::from_secs(1);
/// How often deadlines are looked at while there are connections.
const TICK: Duration = Duration::from_millis(100);
const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);
const HOME: &str = "\
Tembo
/metrics       figures for Prometheus
/health/live   200 while the event loop goes round
/health/ready  200 while clients are served
";
const PLAIN: &str = "text/plain; charset=utf-8";

/// An address at which figures can be read. Dropping it ends its thread.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    board: Arc<Board>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Listens, and answers from now on: figures when a server publishes some, and that it is not ready until
    /// then. It takes the event loop for stuck after this long.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn bind(address: SocketAddr, stuck_after: Duration) -> io::Result<Endpoint> {
        let mut listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let board = Arc::new(Board::new(Waker::new(poll.registry(), WAKER)?, stuck_after));
        let server =
            HttpServer { poll, listener, board: board.clone(), conns: Vec::new(), log: Log::default() };
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(move || server.run())?;
        Ok(Endpoint { address, board, thread: Some(thread) })
    }

    /// Where the event loop publishes its figures.
    pub(crate) fn board(&self) -> Arc<Board> {
        self.board.clone()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.board.stop();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported when it happened.
            let _ = thread.join();
        }
    }
}

#[derive(Debug)]
enum ExchangeStage {
    Receiving(Vec<u8>),
    /// The exchange waits for newer figures than those with this number.
    Awaiting(PageRequest, u64),
    Sending(Vec<u8>, usize),
    /// The response is sent.
    Closing,
}

#[derive(Debug)]
struct Conn {
    stream: TcpStream,
    stage: ExchangeStage,
    deadline: Instant,
}

struct HttpServer {
    poll: Poll,
    listener: TcpListener,
    board: Arc<Board>,
    /// The connections in the order in which they came, each with its number.
    conns: Vec<(usize, Conn)>,
    log: Log,
}

impl HttpServer {
    fn run(mut self) {
        let mut events = Events::with_capacity(CONNECTIONS_MAX);
        let (mut next, mut has_more) = (0, false);
        while !self.board.has_to_stop() {
            let timeout = (has_more || !self.conns.is_empty()).then_some(TICK);
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return,
                _ => {}
            }
            has_more = self.accept(&mut next);
            let (board, now, log) = (&self.board, Instant::now(), &mut self.log);
            log.tick(now);
            // The connections are few, so each is tried instead of waited for.
            self.conns.retain_mut(|(_, conn)| conn.advance(board, now, log));
        }
    }

    /// Accepts connections; whether there may be more.
    fn accept(&mut self, next: &mut usize) -> bool {
        for _ in 0..CONNECTIONS_MAX {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) =>
                {
                    continue;
                }
                Err(_) => return false,
            };
            let both = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut stream, Token(*next), both).is_err() {
                continue;
            }
            if self.conns.len() == CONNECTIONS_MAX {
                self.conns.remove(0);
            }
            let conn = Conn {
                stream,
                stage: ExchangeStage::Receiving(Vec::new()),
                deadline: Instant::now() + REQUEST_TIME,
            };
            self.conns.push((*next, conn));
            // The two largest numbers are those of the listener and the waker.
            *next = (*next + 1) % (usize::MAX >> 1);
        }
        true
    }
}

impl Conn {
    /// Does as much as is possible now; returns whether the connection is still of use.
    fn advance(&mut self, board: &Board, now: Instant, log: &mut Log) -> bool {
        loop {
            let is_late = now >= self.deadline;
            let next = match &mut self.stage {
                ExchangeStage::Receiving(_) | ExchangeStage::Sending(..) | ExchangeStage::Closing
                    if is_late =>
                {
                    return false;
                }
                ExchangeStage::Receiving(bytes) => match receive(&mut self.stream, bytes) {
                    Ok(false) => return true,
                    Ok(true) => self.begin(board, now, log),
                    Err(_) => return false,
                },
                ExchangeStage::Awaiting(asked, seen) => {
                    if board.figures().1 == *seen && !is_late {
                        return true;
                    }
                    Some(figures(board, *asked))
                }
                ExchangeStage::Sending(bytes, sent) => match send(&mut self.stream, bytes, sent) {
                    Ok(false) => return true,
                    Ok(true) => None,
                    Err(_) => return false,
                },
                ExchangeStage::Closing => match drain(&mut self.stream) {
                    Ok(is_over) => return !is_over,
                    Err(_) => return false,
                },
            };
            self.enter(next, now);
        }
    }

    /// Enters the next stage: sends a response; or waits for the end after it, or for figures.
    fn enter(&mut self, answer: Option<Vec<u8>>, now: Instant) {
        match (answer, &self.stage) {
            (Some(answer), _) => {
                (self.stage, self.deadline) = (ExchangeStage::Sending(answer, 0), now + RESPONSE_TIME);
            }
            (None, ExchangeStage::Sending(..)) => {
                // The peer sees the end of the response. If it has disconnected already, the drain notices.
                let _ = self.stream.shutdown(Shutdown::Write);
                (self.stage, self.deadline) = (ExchangeStage::Closing, now + CLOSING_TIME);
            }
            (None, _) => self.deadline = now + FIGURES_TIME,
        }
    }

    /// Begins to answer a request that is whole or wrong; the answer, unless it takes figures.
    fn begin(&mut self, board: &Board, now: Instant, log: &mut Log) -> Option<Vec<u8>> {
        let ExchangeStage::Receiving(bytes) = &self.stage else { return None };
        let asked = match http::parse(bytes) {
            Parsed::Whole(asked) => asked,
            Parsed::Refused(status) => {
                if status == BAD {
                    self.note_foreign(now, log);
                }
                return Some(response(status, PLAIN, &format!("{status}\n"), false));
            }
            // The caller passes only requests that are whole or wrong.
            Parsed::Partial => return Some(Vec::new()),
        };
        let answer = |status, body: &str| Some(response(status, PLAIN, body, asked.is_head));
        let silence = board.silence();
        match asked.page {
            Page::Home => answer(OK, HOME),
            Page::Live | Page::Ready if silence >= board.stuck_after => {
                let seconds = silence.as_secs();
                answer(UNAVAILABLE, &format!("the event loop has not gone round for {seconds} s\n"))
            }
            Page::Live => answer(OK, "alive\n"),
            Page::Ready => {
                let readiness = board.readiness();
                let status = if readiness == Readiness::Serving { OK } else { UNAVAILABLE };
                answer(status, readiness.text())
            }
            Page::Metrics if board.is_fresh() => Some(figures(board, asked)),
            Page::Metrics => {
                let (_, seen) = board.figures();
                board.want();
                self.stage = ExchangeStage::Awaiting(asked, seen);
                None
            }
        }
    }

    /// Logs that a request is of another protocol.
    #[cold]
    fn note_foreign(&self, now: Instant, log: &mut Log) {
        let peer = self.stream.peer_addr().map_or_else(|_| "a client".to_owned(), |peer| peer.to_string());
        let message = format_args!("{peer} is refused at the port of metrics: it did not send HTTP");
        log.write(LogLevel::Notice, now, LogLevel::Warning, MessageKind::Security, message);
    }
}

/// The latest figures.
fn figures(board: &Board, asked: PageRequest) -> Vec<u8> {
    let (families, number) = board.figures();
    let (is_open, is_head) = (asked.takes_openmetrics, asked.is_head);
    let content_type = if is_open { OPENMETRICS } else { PROMETHEUS };
    match number {
        0 => response(UNAVAILABLE, PLAIN, "the server has no figures yet\n", is_head),
        _ => response(OK, content_type, &text::write(families, is_open), is_head),
    }
}

/// Whether a call has to be made again when the socket is ready.
fn has_to_wait(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}

/// Receives; whether the request is whole, or wrong.
fn receive(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let mut chunk = [0; 1024];
    loop {
        let room = chunk.len().min(REQUEST_BYTES_MAX - bytes.len());
        match stream.read(&mut chunk[..room]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) if has_to_wait(&error) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if http::parse(bytes) != Parsed::Partial {
            return Ok(true);
        }
    }
}

/// Sends bytes. Returns whether all of them are sent.
fn send(stream: &mut TcpStream, bytes: &[u8], sent: &mut usize) -> io::Result<bool> {
    while *sent < bytes.len() {
        match stream.write(&bytes[*sent..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => *sent += count,
            Err(error) if has_to_wait(&error) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Reads what the peer still sends, so that closing does not take the response from it; whether it is done.
fn drain(stream: &mut TcpStream) -> io::Result<bool> {
    let mut chunk = [0; 1024];
    for _ in 0..16 {
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(error) if has_to_wait(&error) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    // The rest of the input is not worth waiting for.
    Ok(true)
}
