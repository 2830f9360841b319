//! A connection to a server.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;
use tembo_wire::{ReplyLimits, ReplyParser, Value, write_request};

/// A server that does not answer within this time counts as lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where a server is.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Ip(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Ip(address) => write!(f, "{address}"),
            Place::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The connection failed, or the other side is no server of Redis's protocol.
    Lost(io::Error),
    /// The server refused.
    Refused(String),
}

impl NoAnswer {
    /// The message for the user.
    pub(super) fn about(&self, place: &Place) -> String {
        match self {
            NoAnswer::Lost(error) => format!("{place} does not answer: {error}"),
            NoAnswer::Refused(error) if error.starts_with("NOAUTH") => {
                format!("{place} asks for a password; set TEMBO_PASSWORD, or use --askpass")
            }
            NoAnswer::Refused(error) => format!("{place} refused: {error}"),
        }
    }
}

trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

pub(super) struct Client {
    stream: Box<dyn Stream>,
    parser: ReplyParser,
    input: Vec<u8>,
}

impl Client {
    pub(super) fn connect(place: &Place) -> Result<Client, NoAnswer> {
        let stream = connect(place).map_err(NoAnswer::Lost)?;
        Ok(Client { stream, parser: ReplyParser::new(ReplyLimits::default()), input: Vec::new() })
    }

    pub(super) fn authenticate(&mut self, user: Option<&str>, password: &str) -> Result<(), NoAnswer> {
        let words: Vec<_> = ["AUTH"].into_iter().chain(user).chain([password]).collect();
        self.ask(&words).map(drop)
    }

    /// The reply to a command; one that is an error is a refusal.
    pub(super) fn ask(&mut self, words: &[&str]) -> Result<Value, NoAnswer> {
        match self.exchange(words).map_err(NoAnswer::Lost)? {
            Value::Error(text) => Err(NoAnswer::Refused(printable(&text))),
            value => Ok(value),
        }
    }

    fn exchange(&mut self, words: &[&str]) -> io::Result<Value> {
        let mut request = Vec::new();
        write_request(&mut request, words.iter().map(|word| word.as_bytes()));
        self.stream.write_all(&request)?;
        let strange = |e| io::Error::new(io::ErrorKind::InvalidData, format!("it is no Redis server: {e}"));
        loop {
            let decoded = self.parser.parse(&self.input).map_err(strange)?;
            self.input.drain(..decoded.consumed);
            if let Some(value) = decoded.value {
                return Ok(value);
            }
            let mut chunk = [0; 1 << 14];
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection"));
                }
                Ok(count) => self.input.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let why = format!("it has said nothing for {} s", PATIENCE.as_secs());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn connect(place: &Place) -> io::Result<Box<dyn Stream>> {
    match place {
        Place::Ip(address) => {
            let stream = TcpStream::connect_timeout(address, PATIENCE)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(Box::new(stream))
        }
        Place::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(Box::new(stream))
        }
    }
}

/// Text from the network as a terminal may show it.
pub(super) fn printable(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
