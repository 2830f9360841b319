//! Taking a backup: a client of the replication protocol.
//!
//! A full backup asks for a copy as a new replica does, after `REPLCONF rdb-only 1`: it wants no stream
//! behind it. An incremental one asks INFO how far the stream goes, asks for the stream from where the
//! earlier backup ends, and reads it up to the first end of a unit that is not before that.
//!
//! Everything that a server sends is checked as it passes: a copy is read to its end, a stream command by
//! command. Memory is that of the longest string of the copy.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use tembo_rdb::{Problem, Reader as Copy};
use tembo_wire::number::{parse_i64, parse_u64};
use tembo_wire::write_request;

use super::container::{DATA_BYTES_MAX, Head, Writer};
use super::units::Units;
use super::{BackupError, BackupKind, BackupSummary, StreamPlace};
use crate::config::Config;
use crate::import::survey;
use crate::keyspace::history::{Id, is_id};
use crate::password::Password;
use crate::replica::socket::MasterSocket;
use crate::tls::Tls;

/// The longest line of a server, and the longest text of INFO.
const LINE_BYTES_MAX: u64 = 1024;
const INFO_BYTES_MAX: u64 = 1 << 20;
const MARK_BYTES: usize = 40;
/// A server disconnects a replica that is silent (repl-timeout). The acknowledged offset stays that of the
/// earlier backup: a Redis takes this for a replica, and WAIT must not count what is in no durable file yet.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
const CONNECT: Duration = Duration::from_secs(10);

/// The address of a server.
#[derive(Clone, Debug)]
pub enum SourcePlace {
    /// The network's.
    Ip(SocketAddr),
    /// The file system's.
    Unix(PathBuf),
}

impl fmt::Display for SourcePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourcePlace::Ip(address) => write!(f, "{address}"),
            SourcePlace::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A server of which a backup is taken.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its address.
    pub place: SourcePlace,
    /// The user, `None` for the default one.
    pub user: Option<String>,
    /// The password, if the server asks for one.
    pub password: Option<Password>,
    /// The settings `tls-*` by which it is reached, with `tls-replication yes`; `None` for a plain
    /// connection.
    pub tls: Option<Config>,
    /// A server that sends nothing for this long counts as lost. It sends nothing while it writes a copy.
    pub patience: Duration,
}

trait ServerStream: Read + Write {}

impl<S: Read + Write> ServerStream for S {}

struct Connection {
    stream: BufReader<Box<dyn ServerStream>>,
    patience: Duration,
}

/// The facts of INFO that a backup needs.
struct Facts {
    server: String,
    is_node: bool,
    has_history: bool,
    now: StreamPlace,
    /// The earlier history, and the first offset that does not belong to it.
    second: Option<(Id, u64)>,
    /// The first offset that is kept, counted from 1.
    first_kept: u64,
}

/// Takes a backup and writes it to `sink`: a whole copy, or the stream since the end of an earlier backup.
/// `progress` gets the number of bytes of each part. Durable as far as `sink` is.
///
/// # Errors
/// Those of the connection, of the server and of `sink`; [`BackupError::Gone`] if the server no longer has
/// the stream since the earlier backup. The output written until then has no end, so that every reader
/// refuses it.
pub fn take(
    source: &Source,
    since: Option<StreamPlace>,
    sink: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<BackupSummary, BackupError> {
    let mut connection = Connection::open(source)?;
    if let Some(password) = &source.password {
        let words = [Some(&b"AUTH"[..]), source.user.as_deref().map(str::as_bytes), Some(password.bytes())];
        connection.ask("AUTH", &words.into_iter().flatten().collect::<Vec<_>>())?;
    }
    let facts = connection.facts()?;
    match since {
        None => full(connection, &facts, sink, progress),
        Some(from) => incremental(connection, &facts, from, sink, progress),
    }
}

fn time_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.as_millis() as u64
}

fn full(
    mut connection: Connection,
    facts: &Facts,
    sink: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<BackupSummary, BackupError> {
    connection.introduce(&[b"rdb-only", b"1"])?;
    let reply = connection.ask("PSYNC", &[b"PSYNC", b"?", b"-1"])?;
    let words: Vec<&str> = reply.split_whitespace().collect();
    let from = match words[..] {
        ["FULLRESYNC", id, offset] => read_place(id, offset),
        _ => None,
    };
    let from = from.ok_or_else(|| strange("PSYNC", &reply))?;
    let head = Head {
        kind: BackupKind::Full,
        is_node: facts.is_node,
        from,
        time_ms: time_ms(),
        server: facts.server.clone(),
    };
    let rest = connection.body()?;
    let writer = Writer::begin(sink, &head).map_err(BackupError::Write)?;
    let mut body =
        ArrivingCopy { connection, rest, held: Vec::new(), writer, progress, taken: 0, failure: None };
    let surveyed =
        Copy::new(&mut body).and_then(|mut copy| Ok((survey(&mut copy, &mut |_| {})?, copy.offset())));
    let (survey, bytes) = surveyed.map_err(|error| body.failure.take().unwrap_or_else(|| broken(error)))?;
    // A reader of the copy may have taken more than the copy, and less than the server announced.
    if body.read(&mut [0]).map_err(|_| body.failure.take().unwrap_or_else(gone))? > 0 || body.taken != bytes {
        return Err(BackupError::Connection("bytes follow the copy that the server sent".to_owned()));
    }
    if !survey.left_out.is_empty() {
        let reasons =
            survey.left_out.iter().map(|(reason, found)| format!("{} of the kind \"{reason}\"", found.count));
        return Err(BackupError::LeftOut(reasons.collect::<Vec<_>>().join("; ")));
    }
    let data_bytes = body.writer.end(from).map_err(BackupError::Write)?;
    Ok(summary(&head, from, data_bytes, Some(survey.keys.total())))
}

fn incremental(
    mut connection: Connection,
    facts: &Facts,
    from: StreamPlace,
    sink: &mut dyn Write,
    progress: &mut dyn FnMut(u64),
) -> Result<BackupSummary, BackupError> {
    facts.expect(from)?;
    connection.introduce(&[b"tembo-backup", b"1"])?;
    let next = (from.offset + 1).to_string();
    let reply = connection.ask("PSYNC", &[b"PSYNC", &from.id, next.as_bytes()])?;
    let words: Vec<&str> = reply.split_whitespace().collect();
    let id = match words[..] {
        ["CONTINUE"] => from.id,
        ["CONTINUE", id] => read_id(id).ok_or_else(|| strange("PSYNC", &reply))?,
        ["FULLRESYNC", ..] => {
            return Err(BackupError::Gone(
                "the server no longer has what followed the earlier backup".to_owned(),
            ));
        }
        _ => return Err(strange("PSYNC", &reply)),
    };
    let head = Head {
        kind: BackupKind::Incremental,
        is_node: facts.is_node,
        from,
        time_ms: time_ms(),
        server: facts.server.clone(),
    };
    let mut writer = Writer::begin(sink, &head).map_err(BackupError::Write)?;
    let (target, mut units) = (facts.now.offset - from.offset, Units::new());
    let mut chunk = vec![0; DATA_BYTES_MAX];
    let (held, mut told) = (from.offset.to_string(), Instant::now());
    while !(units.is_between() && units.offset() >= target) {
        if told.elapsed() >= SIGN_OF_LIFE {
            told = Instant::now();
            connection.send(&[b"REPLCONF", b"ACK", held.as_bytes()])?;
        }
        let count = connection.read(&mut chunk)?;
        let taken = units.take(&chunk[..count], target);
        let taken = taken.map_err(|(at, what)| {
            BackupError::Connection(format!("the stream is broken at offset {}: {what}", from.offset + at))
        })?;
        writer.add(&chunk[..taken]).map_err(BackupError::Write)?;
        progress(taken as u64);
    }
    let to = StreamPlace { id, offset: from.offset + units.offset() };
    let data_bytes = writer.end(to).map_err(BackupError::Write)?;
    Ok(summary(&head, to, data_bytes, None))
}

fn summary(head: &Head, to: StreamPlace, data_bytes: u64, keys: Option<u64>) -> BackupSummary {
    let &Head { kind, is_node, from, time_ms, .. } = head;
    BackupSummary { kind, from, to, time_ms, server: head.server.clone(), is_node, data_bytes, keys }
}

impl Facts {
    /// Whether the server has the stream from a place on.
    fn expect(&self, from: StreamPlace) -> Result<(), BackupError> {
        let next = from.offset + 1;
        let is_of =
            self.now.id == from.id || self.second.is_some_and(|(id, end)| id == from.id && next <= end);
        let why = if !self.has_history || !is_of {
            "the server's data are of another history than the earlier backup (it was restored, or follows \
             another master, or its system was started anew after a crash)"
        } else if from.offset > self.now.offset {
            "the server is behind the earlier backup"
        } else if next < self.first_kept {
            "the server no longer has what followed the earlier backup: its backlog is shorter than that \
             (repl-backlog-size)"
        } else {
            return Ok(());
        };
        Err(BackupError::Gone(why.to_owned()))
    }
}

fn strange(command: &str, reply: &str) -> BackupError {
    BackupError::Connection(format!("the server answered {command} with: {}", reply.escape_debug()))
}

fn gone() -> BackupError {
    BackupError::Connection("the server closed the connection in the middle".to_owned())
}

fn broken(error: tembo_rdb::Error) -> BackupError {
    match error.problem() {
        Problem::CutShort => gone(),
        _ => BackupError::Connection(format!("the copy that the server sent is broken, {error}")),
    }
}

fn read_id(text: &str) -> Option<Id> {
    text.as_bytes().try_into().ok().filter(|id: &Id| is_id(id))
}

fn read_place(id: &str, offset: &str) -> Option<StreamPlace> {
    let offset = parse_u64(offset.as_bytes()).filter(|offset| *offset < 1 << 62)?;
    Some(StreamPlace { id: read_id(id)?, offset })
}

impl Connection {
    fn open(source: &Source) -> Result<Connection, BackupError> {
        let stream = connect(source)
            .map_err(|error| BackupError::Connection(format!("{} does not answer: {error}", source.place)))?;
        Ok(Connection { stream: BufReader::with_capacity(DATA_BYTES_MAX, stream), patience: source.patience })
    }

    fn failed(&self, error: &io::Error) -> BackupError {
        let why = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("the server said nothing for {} s", self.patience.as_secs())
            }
            _ => format!("the connection failed: {error}"),
        };
        BackupError::Connection(why)
    }

    /// Reads the bytes that have arrived, at least one.
    fn read(&mut self, room: &mut [u8]) -> Result<usize, BackupError> {
        loop {
            match self.stream.read(room) {
                Ok(0) => return Err(gone()),
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
    }

    /// The next line that is not empty; a server sends empty ones while it prepares.
    fn line(&mut self) -> Result<String, BackupError> {
        loop {
            let mut line = Vec::new();
            let read = (&mut self.stream).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            match read {
                Ok(0) => return Err(gone()),
                Err(error) => return Err(self.failed(&error)),
                Ok(_) if !line.ends_with(b"\n") => {
                    return Err(BackupError::Connection("this is no server of Redis's protocol".to_owned()));
                }
                Ok(_) if line.trim_ascii().is_empty() => {}
                Ok(_) => return Ok(String::from_utf8_lossy(line.trim_ascii()).into_owned()),
            }
        }
    }

    fn send(&mut self, words: &[&[u8]]) -> Result<(), BackupError> {
        let mut request = Vec::new();
        write_request(&mut request, words.iter().copied());
        let stream = self.stream.get_mut();
        let sent = stream.write_all(&request).and_then(|()| stream.flush());
        sent.map_err(|error| self.failed(&error))
    }

    /// The status that a command is answered with.
    fn ask(&mut self, command: &'static str, words: &[&[u8]]) -> Result<String, BackupError> {
        self.send(words)?;
        let line = self.line()?;
        match line.split_at_checked(1) {
            Some(("+", status)) => Ok(status.to_owned()),
            Some(("-", reply)) => Err(refused(command, reply)),
            _ => Err(strange(command, &line)),
        }
    }

    /// Announces the kind of client. A server that does not know the words ignores them.
    fn introduce(&mut self, what: &[&[u8]]) -> Result<(), BackupError> {
        for words in [what, &[b"capa", b"eof", b"capa", b"psync2"]] {
            match self.ask("REPLCONF", &[&[&b"REPLCONF"[..]], words].concat()) {
                Ok(_) | Err(BackupError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn facts(&mut self) -> Result<Facts, BackupError> {
        self.send(&[b"INFO"])?;
        let line = self.line()?;
        if let Some(reply) = line.strip_prefix('-') {
            return Err(refused("INFO", reply));
        }
        let length = line.strip_prefix('$').and_then(|length| parse_u64(length.as_bytes()));
        let length =
            length.filter(|length| *length <= INFO_BYTES_MAX).ok_or_else(|| strange("INFO", &line))?;
        let mut text = vec![0; length as usize];
        let read = self.stream.read_exact(&mut text);
        read.map_err(|error| self.failed(&error))?;
        let text = String::from_utf8_lossy(&text);
        let field =
            |name: &str| text.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'));
        let place = |id, offset| read_place(field(id)?, field(offset)?);
        let now =
            place("master_replid", "master_repl_offset").ok_or_else(|| strange("INFO", "no history"))?;
        let second = field("second_repl_offset").and_then(|end| parse_i64(end.as_bytes()));
        let second = second.and_then(|end| u64::try_from(end).ok());
        let second = field("master_replid2").and_then(read_id).zip(second);
        let first_kept =
            field("repl_backlog_first_byte_offset").and_then(|first| parse_u64(first.as_bytes()));
        let server = match (field("tembo_version"), field("redis_version")) {
            (Some(version), _) => format!("tembo {version}"),
            (None, version) => format!("redis {}", version.unwrap_or("unknown")),
        };
        Ok(Facts {
            server: server.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(64).collect(),
            is_node: field("cluster_enabled") == Some("1"),
            has_history: field("repl_backlog_active") == Some("1"),
            now,
            second,
            first_kept: first_kept.unwrap_or(u64::MAX),
        })
    }

    /// Reads the beginning of a copy, which says how the copy ends.
    fn body(&mut self) -> Result<Rest, BackupError> {
        let line = self.line()?;
        if let Some(reply) = line.strip_prefix('-') {
            return Err(refused("PSYNC", reply));
        }
        let rest = line.strip_prefix('$').and_then(|body| match body.strip_prefix("EOF:") {
            Some(mark) => mark.as_bytes().try_into().ok().map(Rest::Mark),
            None => parse_u64(body.as_bytes()).map(Rest::Bytes),
        });
        rest.ok_or_else(|| strange("PSYNC", &line))
    }
}

fn refused(command: &'static str, reply: &str) -> BackupError {
    let reply: String = reply.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    BackupError::Refused { command, reply }
}

fn connect(source: &Source) -> io::Result<Box<dyn ServerStream>> {
    let tls = match &source.tls {
        Some(config) => Tls::of(&config.tls).map_err(io::Error::other)?.client,
        None => None,
    };
    match &source.place {
        SourcePlace::Ip(address) => {
            let stream = TcpStream::connect_timeout(address, CONNECT.min(source.patience))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(source.patience))?;
            stream.set_write_timeout(Some(source.patience))?;
            Ok(Box::new(MasterSocket::new(stream, tls, &address.ip().to_string())?))
        }
        SourcePlace::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(source.patience))?;
            stream.set_write_timeout(Some(source.patience))?;
            Ok(Box::new(stream))
        }
    }
}

/// How the rest of a copy ends.
#[derive(Clone, Copy, Debug)]
enum Rest {
    Bytes(u64),
    /// The copy ends with these bytes. The server sends nothing behind them before it gets an
    /// acknowledgement.
    Mark([u8; MARK_BYTES]),
}

/// The bytes of a copy on their way into the backup, for one who reads them.
struct ArrivingCopy<'b, 'w> {
    connection: Connection,
    rest: Rest,
    /// Bytes that may be the mark.
    held: Vec<u8>,
    writer: Writer<'w>,
    progress: &'b mut dyn FnMut(u64),
    /// Bytes of the copy so far.
    taken: u64,
    failure: Option<BackupError>,
}

impl ArrivingCopy<'_, '_> {
    fn next(&mut self, room: &mut [u8]) -> Result<usize, BackupError> {
        let count = match self.rest {
            Rest::Bytes(0) => 0,
            Rest::Bytes(left) => {
                let most = room.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let count = self.connection.read(&mut room[..most])?;
                self.rest = Rest::Bytes(left - count as u64);
                count
            }
            Rest::Mark(mark) => self.before(&mark, room)?,
        };
        self.writer.add(&room[..count]).map_err(BackupError::Write)?;
        self.taken += count as u64;
        (self.progress)(count as u64);
        Ok(count)
    }

    /// Bytes that are surely before the mark, of which the last ones that came may be a part.
    fn before(&mut self, mark: &[u8; MARK_BYTES], room: &mut [u8]) -> Result<usize, BackupError> {
        while self.held.len() <= MARK_BYTES {
            if self.held == mark {
                self.rest = Rest::Bytes(0);
                return Ok(0);
            }
            let mut chunk = [0; 4096];
            let count = self.connection.read(&mut chunk)?;
            self.held.extend_from_slice(&chunk[..count]);
        }
        let count = room.len().min(self.held.len() - MARK_BYTES);
        room[..count].copy_from_slice(&self.held[..count]);
        self.held.drain(..count);
        Ok(count)
    }
}

impl Read for ArrivingCopy<'_, '_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.next(room).map_err(|error| {
            let said = io::Error::other(error.to_string());
            self.failure = Some(error);
            said
        })
    }
}
