//! The beginning of a link, in a thread of its own: connecting, the handshake, and the receipt of a whole
//! state into a file, which is read to its end before it is handed on.
//!
//! Nothing here touches the pool. Everything that a master sends is checked: lines have a maximum, a length
//! is no size to allocate, and silence ends the link.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use tembo_rdb::Reader;
use tembo_wire::number::parse_u64;
use tembo_wire::write_request;

use super::Transfer;
use super::socket::MasterSocket;
use crate::import::{Survey, survey};
use crate::keyspace::history::{Id, Master, Position, is_id};
use crate::password::Password;

/// How often a thread that waits looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(200);
/// The longest line of a handshake.
const LINE_BYTES_MAX: usize = 1024;
const MARK_BYTES: usize = 40;
/// The longest INFO replication that is read.
const INFO_BYTES_MAX: usize = 1 << 20;
const CHUNK_BYTES: usize = 256 << 10;
/// The interval of signs of life to a master.
pub(super) const ALIVE_EVERY: Duration = Duration::from_secs(1);

/// The beginning of an error: the master refuses the request.
const REFUSED: &str = "the master answered PSYNC with: ";

/// A link that is wanted.
pub(super) struct Question {
    pub(super) master: Master,
    /// The master is reached by TLS.
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) password: Option<Password>,
    pub(super) user: Option<String>,
    pub(super) port: u16,
    pub(super) announced_ip: Option<String>,
    pub(super) position: Option<Position>,
    /// From this offset up to the position, the stream changes nothing.
    pub(super) harmless_from: u64,
    /// The master is a replica of this server, and is to take its place.
    pub(super) hands_over: bool,
    /// The command was sent before, with an unknown outcome. Set before it is sent.
    pub(super) is_told: Arc<AtomicBool>,
    /// The master gives its place up even if this server has less of the stream.
    pub(super) is_forced: bool,
    pub(super) timeout: Duration,
    /// Where a whole state is kept meanwhile.
    pub(super) folder: PathBuf,
    pub(super) transfer: Arc<Transfer>,
    pub(super) is_cancelled: Arc<AtomicBool>,
}

/// A link that is ready.
pub(super) enum Ready {
    /// The stream continues at the position; the history may have another name.
    Goes { stream: MasterSocket, id: Option<Id>, from: u64 },
    /// A whole state, and its place in the stream that follows.
    Whole(Box<Whole>),
}

pub(super) struct Whole {
    pub(super) stream: MasterSocket,
    pub(super) id: Id,
    pub(super) offset: u64,
    pub(super) file: File,
    pub(super) survey: Survey,
}

/// Why there is no link.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) why: String,
    /// Trying again would end the same way.
    pub(super) is_final: bool,
    /// The master was to take this server's place, and has not.
    pub(super) is_refusal: bool,
}

pub(super) fn failed(why: impl Into<String>) -> Failure {
    Failure { why: why.into(), is_final: false, is_refusal: false }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        failed(format!("the connection failed: {error}"))
    }
}

struct Asking<'q> {
    stream: MasterSocket,
    question: &'q Question,
}

/// Connects, and gets the stream or a whole state.
pub(super) fn ask(question: &Question) -> Result<Ready, Failure> {
    let stream = connect(question)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(question.timeout))?;
    let stream = MasterSocket::new(stream, question.tls.clone(), &question.master.host)?;
    let mut asking = Asking { stream, question };
    asking.introduce()?;
    asking.synchronise()
}

fn connect(question: &Question) -> Result<TcpStream, Failure> {
    let Master { host, port } = &question.master;
    let addresses = (host.as_str(), *port).to_socket_addrs();
    let addresses = addresses.map_err(|error| failed(format!("the host is not found: {error}")))?;
    let mut last = failed("the host has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, question.timeout.min(Duration::from_secs(5))) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = failed(format!("no connection to the master: {error}")),
        }
    }
    Err(last)
}

impl Asking<'_> {
    /// Reads the bytes that have arrived, at least one.
    fn read(&mut self, room: &mut [u8]) -> Result<usize, Failure> {
        let begun = Instant::now();
        loop {
            match self.stream.read(room) {
                Ok(0) => return Err(failed("the master closed the connection")),
                Ok(count) => return Ok(count),
                Err(error) if is_wait(&error) => {
                    self.expect_wanted()?;
                    if begun.elapsed() > self.question.timeout {
                        return Err(failed("the master was silent for too long (repl-timeout)"));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn expect_wanted(&self) -> Result<(), Failure> {
        match self.question.is_cancelled.load(Ordering::Relaxed) {
            true => Err(failed("the link is not wanted any more")),
            false => Ok(()),
        }
    }

    /// The next line that is not empty. A master sends empty ones while it prepares.
    fn line(&mut self) -> Result<String, Failure> {
        let mut line = Vec::new();
        loop {
            let mut byte = [0];
            // A byte at a time, because the bytes after a line may be no line.
            self.read(&mut byte)?;
            match byte[0] {
                b'\n' if !line.trim_ascii().is_empty() => {
                    return Ok(String::from_utf8_lossy(line.trim_ascii()).into_owned());
                }
                b'\n' => line.clear(),
                byte => line.push(byte),
            }
            if line.len() > LINE_BYTES_MAX {
                return Err(failed("the master sent a line that is too long for its protocol"));
            }
        }
    }

    fn ask(&mut self, words: &[&[u8]]) -> Result<String, Failure> {
        let mut request = Vec::new();
        write_request(&mut request, words.iter().copied());
        self.stream.write_all(&request)?;
        self.line()
    }

    fn introduce(&mut self) -> Result<(), Failure> {
        let pong = self.ask(&[b"PING"])?;
        if !pong.starts_with('+') && !["-NOAUTH", "-NOPERM"].iter().any(|why| pong.starts_with(why)) {
            return Err(failed(format!("the master answered PING with: {pong}")));
        }
        if let Some(password) = &self.question.password {
            let user = self.question.user.as_deref().map(str::as_bytes);
            let words: Vec<&[u8]> =
                [Some(&b"AUTH"[..]), user, Some(password.bytes())].into_iter().flatten().collect();
            let reply = self.ask(&words)?;
            if !reply.starts_with('+') {
                return Err(failed(format!("the master refused masterauth: {reply}")));
            }
        }
        // Masters that do not know these refuse them, and go on.
        self.ask(&[b"REPLCONF", b"listening-port", self.question.port.to_string().as_bytes()])?;
        if let Some(ip) = &self.question.announced_ip {
            self.ask(&[b"REPLCONF", b"ip-address", ip.as_bytes()])?;
        }
        self.ask(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"])?;
        Ok(())
    }

    fn synchronise(mut self) -> Result<Ready, Failure> {
        let mut position = self.question.position;
        if let Some(position) = &mut position
            && let Some(promoted) = self.promoted_at(position)?
        {
            position.offset = promoted;
        }
        let from = position.map_or(0, |position| position.offset);
        let hands_over = self.question.hands_over && position.is_some();
        let was_told = hands_over && self.question.is_told.swap(true, Ordering::Relaxed);
        let reply = match &position {
            Some(Position { id, offset, .. }) => {
                let from = offset.saturating_add(1).to_string();
                let words = [&b"PSYNC"[..], id, from.as_bytes(), b"FAILOVER", b"FORCE"];
                let count = match (self.question.hands_over, self.question.is_forced) {
                    (false, _) => 3,
                    (true, false) => 4,
                    (true, true) => 5,
                };
                self.ask(&words[..count])?
            }
            None => self.ask(&[b"PSYNC", b"?", b"-1"])?,
        };
        let words: Vec<&str> = reply.split_whitespace().collect();
        let wrong = || failed(format!("{REFUSED}{reply}"));
        match words[..] {
            ["+FULLRESYNC", id, offset] => {
                let id = read_id(id).ok_or_else(wrong)?;
                let offset =
                    parse_u64(offset.as_bytes()).filter(|offset| *offset < 1 << 62).ok_or_else(wrong)?;
                let (file, survey) = self.receive_whole()?;
                let stream = self.stream;
                Ok(Ready::Whole(Box::new(Whole { stream, id, offset, file, survey })))
            }
            ["+CONTINUE"] if position.is_some() => Ok(Ready::Goes { stream: self.stream, id: None, from }),
            ["+CONTINUE", id] if position.is_some() => {
                let id = Some(read_id(id).ok_or_else(wrong)?);
                Ok(Ready::Goes { stream: self.stream, id, from })
            }
            _ => Err(Failure { is_refusal: hands_over && is_refusal(&reply, was_told), ..wrong() }),
        }
    }

    /// The offset at which the master left the history of this server, if that history continued only with
    /// commands that change nothing: signs of life, most often.
    fn promoted_at(&mut self, position: &Position) -> Result<Option<u64>, Failure> {
        if self.question.harmless_from >= position.offset {
            return Ok(None);
        }
        let header = self.ask(&[b"INFO", b"replication"])?;
        // A reply that is no bulk: the user may not run INFO.
        let Some(bytes) = header.strip_prefix('$').and_then(|len| len.parse().ok()) else { return Ok(None) };
        if !(0..=INFO_BYTES_MAX).contains(&bytes) {
            return Err(failed("the master's INFO is too long"));
        }
        let mut info = vec![0; bytes + 2];
        let mut filled = 0;
        while filled < info.len() {
            filled += self.read(&mut info[filled..])?;
        }
        let info = String::from_utf8_lossy(&info);
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let is_it = |id: Option<&str>| id.is_some_and(|id| id.as_bytes() == position.id);
        let second = field("second_repl_offset").and_then(|offset| offset.parse::<u64>().ok());
        // The field counts the first byte that is not of our history.
        let promoted = second.and_then(|offset| offset.checked_sub(1));
        let is_promoted = is_it(field("master_replid2")) && !is_it(field("master_replid"));
        let range = self.question.harmless_from..position.offset;
        Ok(promoted.filter(|promoted| is_promoted && range.contains(promoted)))
    }

    /// Receives a whole state, and reads it to its end.
    fn receive_whole(&mut self) -> Result<(File, Survey), Failure> {
        let header = self.line()?;
        let mut file = nameless(&self.question.folder)
            .map_err(|error| failed(format!("no file for the master's data: {error}")))?;
        let transfer = &self.question.transfer;
        transfer.received.store(0, Ordering::Relaxed);
        transfer.is_begun.store(true, Ordering::Relaxed);
        let wrong = || failed(format!("the master announced its data with: {}", header.escape_debug()));
        let body = header.strip_prefix('$').ok_or_else(wrong)?;
        match body.strip_prefix("EOF:") {
            Some(mark) if mark.len() == MARK_BYTES => self.receive_to_mark(&mut file, mark.as_bytes())?,
            Some(_) => return Err(wrong()),
            None => {
                let bytes = parse_u64(body.as_bytes()).ok_or_else(wrong)?;
                transfer.total.store(bytes, Ordering::Relaxed);
                self.receive_bytes(&mut file, bytes)?;
            }
        }
        file.rewind()?;
        let survey = self.read_whole(&file)?;
        file.rewind()?;
        Ok((file, survey))
    }

    fn receive_bytes(&mut self, file: &mut File, bytes: u64) -> Result<(), Failure> {
        let (mut left, mut chunk) = (bytes, vec![0; CHUNK_BYTES]);
        while left > 0 {
            let most = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let count = self.read(&mut chunk[..most])?;
            self.keep(file, &chunk[..count])?;
            left -= count as u64;
        }
        Ok(())
    }

    /// A master that does not know the length says by a mark where the end is, and sends nothing after it
    /// before it is acknowledged.
    fn receive_to_mark(&mut self, file: &mut File, mark: &[u8]) -> Result<(), Failure> {
        let (mut chunk, mut kept) = (vec![0; CHUNK_BYTES], 0);
        loop {
            let count = self.read(&mut chunk[kept..])?;
            let all = kept + count;
            if all >= MARK_BYTES && &chunk[all - MARK_BYTES..all] == mark {
                return self.keep(file, &chunk[..all - MARK_BYTES]);
            }
            // The last bytes may be the beginning of the mark.
            kept = all.min(MARK_BYTES);
            self.keep(file, &chunk[..all - kept])?;
            chunk.copy_within(all - kept..all, 0);
        }
    }

    fn keep(&self, file: &mut File, bytes: &[u8]) -> Result<(), Failure> {
        self.question.transfer.received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.expect_wanted()?;
        file.write_all(bytes).map_err(|error| failed(format!("the master's data cannot be kept: {error}")))
    }

    fn read_whole(&mut self, file: &File) -> Result<Survey, Failure> {
        let broken = |error: tembo_rdb::Error| failed(format!("the master's data are broken: {error}"));
        let (mut told, stream) = (Instant::now(), &mut self.stream);
        let mut progress = |_| {
            if told.elapsed() > ALIVE_EVERY {
                told = Instant::now();
                // If this fails, reading the stream tells why.
                let _ = stream.write_all(b"\n");
            }
        };
        let survey = survey(&mut Reader::new(file).map_err(broken)?, &mut progress).map_err(broken)?;
        if survey.left_out.is_empty() {
            return Ok(survey);
        }
        let one = |(reason, found): (&crate::import::Reason, &crate::import::LeftOut)| {
            let first = found.keys.first();
            let first =
                first.map(|(database, key)| format!(", first \"{}\" in {database}", key.escape_ascii()));
            format!("{} of the kind \"{reason}\"{}", found.count, first.unwrap_or_default())
        };
        let all = survey.left_out.iter().map(one).collect::<Vec<_>>().join("; ");
        let why = format!("the master's data hold what this server lacks: {all}");
        Err(Failure { is_final: true, ..failed(why) })
    }
}

/// A file without a name, which no other process can find and which ends with this process.
pub(crate) fn nameless(folder: &Path) -> io::Result<File> {
    static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!(".tembo-sync-{}-{number}", std::process::id()));
    let mut options = File::options();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.read(true).write(true).create(true).truncate(true).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

/// Whether a server that was asked to take over has not, and will not by the questions before this one. An
/// error in answer to the first question says so. After one without an answer it may have taken over, and
/// only the words of a replica that compares its history count.
fn is_refusal(reply: &str, was_told: bool) -> bool {
    let words = ["-ERR PSYNC FAILOVER replid must match", "-ERR PSYNC FAILOVER offset must not be beyond"];
    words.iter().any(|words| reply.starts_with(words)) || reply.starts_with('-') && !was_told
}

fn read_id(text: &str) -> Option<Id> {
    text.as_bytes().try_into().ok().filter(|id: &Id| is_id(id))
}

pub(super) fn is_wait(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}
