//! The former replicas: a master that was started anew asks them whether one has taken its place.
//!
//! ```text
//!   runs    the pool has the addresses of the replicas that get the stream (media: keyspace/replication)
//!   starts  writes wait; a thread for each address asks INFO replication
//!           one of them is a master in a history that continues ours   -> this is its replica
//!           one of them follows such a master                          -> this is that one's replica
//!           all have answered, cannot be reached, or a second is over  -> this is the master; writes go on
//! ```
//!
//! A replica that leaves while the master runs is forgotten at once: it may be promoted for other reasons, a
//! copy for tests for example, and this master kept writing. A remembered replica had the stream when the
//! master ended, so that any promotion of it happened since. No replica is forgotten while one takes over or
//! these questions are under way. After a start, a replica is forgotten only once it had the stream again or
//! `repl-timeout` is over: a server that is killed twice in a row must ask the same replicas.
//!
//! The history of a promoted replica has our id as its second one. Without that, as of one that was started
//! with an empty pool, nothing follows. Where two were promoted, the one that is further counts.
//!
//! A replica that answers at once costs a restart about a millisecond, and one whose port is closed less. One
//! whose machine is away costs [`PATIENCE`]; Sentinel would take as long, at least, to tell.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use mio::Waker;
use rustls::ClientConfig;
use tembo_wire::{ReplyLimits, ReplyParser, Value, write_request};

use super::Replica;
use super::failover::FailoverStage;
use crate::commands::replicas::replicas_of;
use crate::config::LogLevel;
use crate::executor::Executor;
use crate::keyspace::history::{Id, Master};
use crate::keyspace::replication::REPLICAS_MAX;
use crate::log::MessageKind;
use crate::password::Password;
use crate::replica::socket::MasterSocket;

/// How long writes wait for answers.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest reply.
const REPLY_BYTES_MAX: usize = 64 << 10;

/// A master that has taken this server's place, and the end of its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Heir {
    master: Master,
    offset: u64,
}

/// The questions that are under way.
pub(crate) struct Recall {
    answers: Receiver<Option<Heir>>,
    open: usize,
    heir: Option<Heir>,
    deadline: Instant,
}

/// The facts that each question needs.
#[derive(Clone)]
struct Means {
    ids: Vec<Id>,
    tls: Option<Arc<ClientConfig>>,
    user: Option<String>,
    password: Option<Password>,
}

impl Executor<'_, '_> {
    /// Stores the addresses of the replicas that get the stream, if they have changed. There must be no
    /// batch.
    pub(super) fn remember_replicas(&mut self) {
        // The role of a failover is not durable: a server that is killed in one asks its heir.
        let stage = self.state.failover.as_ref().map(|failover| failover.stage);
        let is_open = self.state.role.is_changed || stage == Some(FailoverStage::Taking);
        if is_open || self.state.replicas.is_recalling {
            return;
        }
        let is_master = self.state.role.master.is_none();
        let is_known = |replica: &Replica| replica.is_online() && !replica.is_plain && replica.port > 0;
        let now = replicas_of(self.clients.iter()).into_iter().filter(|(_, replica)| is_known(replica));
        let now = now.map(|(host, replica)| Master { host, port: replica.port });
        let mut now: Vec<Master> = now.filter(|_| is_master).take(REPLICAS_MAX).collect();
        let (awaited, until) = &mut self.state.replicas.awaited;
        awaited.retain(|replica| is_master && *until > self.state.now && !now.contains(replica));
        now.extend_from_slice(&awaited[..awaited.len().min(REPLICAS_MAX - now.len())]);
        now.sort_unstable_by(|one, other| (&one.host, one.port).cmp(&(&other.host, other.port)));
        now.dedup();
        if now != self.state.replicas.remembered {
            if let Err(fault) = self.keys.store_replicas(&now) {
                let why = crate::fault::shown(&fault);
                let message = format_args!("the addresses of replicas are not stored: {why}");
                return self.state.log(LogLevel::Warning, MessageKind::Replication, message);
            }
            self.state.replicas.remembered = now;
        }
    }

    /// Begins to ask the former replicas, if this is a master that had some. Writes wait.
    pub(crate) fn begin_recall(&mut self, waker: &Arc<Waker>) -> Option<Recall> {
        // A damaged record counts as empty here; the check names it.
        let replicas = self.keys.stored_replicas().unwrap_or_default();
        self.state.replicas.remembered.clone_from(&replicas);
        if self.state.role.master.is_some() || replicas.is_empty() {
            return None;
        }
        let until = self.state.now + self.state.config.replica.timeout;
        self.state.replicas.awaited = (replicas.clone(), until);
        let position = self.keys.replication.position?;
        let second = self.keys.replication.second.map(|second| second.id);
        let settings = &self.state.config.replica;
        let means = Means {
            ids: [position.id].into_iter().chain(second).collect(),
            tls: self.state.tls.client.clone(),
            user: settings.user.clone(),
            password: settings.password.clone(),
        };
        let (sender, answers) = channel();
        let open = replicas.len();
        for replica in replicas {
            ask_in_thread(replica, means.clone(), sender.clone(), waker.clone());
        }
        let deadline = Instant::now() + PATIENCE;
        self.state.hold = Some(deadline);
        self.state.replicas.is_recalling = true;
        Some(Recall { answers, open, heir: None, deadline })
    }
}

impl Recall {
    /// Takes answers; whether that is over.
    pub(crate) fn advance(&mut self, executor: &mut Executor<'_, '_>) -> bool {
        while let Ok(answer) = self.answers.try_recv() {
            self.open -= 1;
            if answer.as_ref().map(|heir| heir.offset) > self.heir.as_ref().map(|heir| heir.offset) {
                self.heir = answer;
            }
        }
        let is_late = executor.state.now >= self.deadline;
        if self.open > 0 && !is_late {
            return false;
        }
        executor.state.replicas.is_recalling = false;
        let is_untold = executor.state.role.master.is_none() && !executor.state.role.is_changed;
        match self.heir.take().filter(|_| is_untold) {
            Some(Heir { master, .. }) => {
                let message = format_args!(
                    "{}:{} was promoted while this server was down: this is its replica from now on",
                    master.host, master.port
                );
                executor.state.log(LogLevel::Notice, MessageKind::Replication, message);
                executor.state.role.choose(Some(master));
                executor.persist_role();
            }
            None if is_late => {
                let message = format_args!(
                    "{} replicas of before did not answer in time: this server goes on as the master",
                    self.open
                );
                executor.state.log(LogLevel::Warning, MessageKind::Replication, message);
            }
            None => {}
        }
        // Unless a failover has begun since.
        executor.state.hold.take_if(|end| *end == self.deadline);
        true
    }
}

fn ask_in_thread(replica: Master, means: Means, sender: Sender<Option<Heir>>, waker: Arc<Waker>) {
    let failed = sender.clone();
    let run = move || {
        // Nobody may be listening any more.
        let _ = sender.send(ask(&replica, &means));
        let _ = waker.wake();
    };
    if std::thread::Builder::new().name("recall".to_owned()).spawn(run).is_err() {
        let _ = failed.send(None);
    }
}

/// Asks a former replica for the heir: the replica itself, or the master that it follows.
fn ask(replica: &Master, means: &Means) -> Option<Heir> {
    let address = (replica.host.as_str(), replica.port).to_socket_addrs().ok()?.next()?;
    let stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_nodelay(true).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    let mut socket = MasterSocket::new(stream, means.tls.clone(), &replica.host).ok()?;
    let question = [&b"INFO"[..], b"replication"];
    let mut info = talk(&mut socket, question)?;
    // Any connection may have announced the address: the password is for servers that ask for one only.
    if info.is_error()
        && let Some(password) = &means.password
    {
        let user = means.user.as_deref().map(str::as_bytes);
        let words = [Some(&b"AUTH"[..]), user, Some(password.bytes())];
        talk(&mut socket, words.into_iter().flatten())?;
        info = talk(&mut socket, question)?;
    }
    read_heir(&String::from_utf8_lossy(info.as_bytes()?), replica, &means.ids)
}

fn talk<'w>(socket: &mut MasterSocket, words: impl IntoIterator<Item = &'w [u8]>) -> Option<Value> {
    let (mut request, mut input) = (Vec::new(), Vec::new());
    write_request(&mut request, words.into_iter().collect::<Vec<_>>());
    socket.write_all(&request).ok()?;
    let mut parser = ReplyParser::new(ReplyLimits::default());
    while input.len() <= REPLY_BYTES_MAX {
        let decoded = parser.parse(&input).ok()?;
        input.drain(..decoded.consumed);
        if decoded.value.is_some() {
            return decoded.value;
        }
        let mut chunk = [0; 4096];
        let count = socket.read(&mut chunk).ok().filter(|count| *count > 0)?;
        input.extend_from_slice(&chunk[..count]);
    }
    None
}

/// Reads the reply of a former replica about itself.
fn read_heir(info: &str, replica: &Master, ids: &[Id]) -> Option<Heir> {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let is_ours = |id: &str| ids.iter().any(|ours| ours == id.as_bytes());
    // The replica has continued in a history of its own, which continues ours.
    if !is_ours(field("master_replid2")?) || is_ours(field("master_replid")?) {
        return None;
    }
    let offset = field("master_repl_offset")?.parse().ok()?;
    let master = match field("role")? {
        "master" => replica.clone(),
        _ if field("master_link_status")? == "up" => {
            let port = field("master_port")?.parse().ok()?;
            Master { host: field("master_host")?.to_owned(), port }
        }
        _ => return None,
    };
    Some(Heir { master, offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn master(port: u16) -> Master {
        Master { host: "h".to_owned(), port }
    }

    fn heir(role: &str, id: u8, second: u8, rest: &str) -> Option<Master> {
        let text = |letter: u8| String::from_utf8(vec![letter; 40]).unwrap();
        let (id, second) = (text(id), text(second));
        let info = format!(
            "role:{role}\r\n{rest}master_replid:{id}\r\nmaster_replid2:{second}\r\nmaster_repl_offset:7\r\n"
        );
        read_heir(&info, &master(1), &[[b'o'; 40], [b'p'; 40]]).map(|heir| heir.master)
    }

    #[test]
    fn only_a_history_that_continues_ours_has_an_heir() {
        let up = "master_host:h\r\nmaster_port:2\r\nmaster_link_status:up\r\n";
        assert_eq!(heir("master", b'n', b'o', ""), Some(master(1)));
        assert_eq!(heir("master", b'n', b'p', ""), Some(master(1)), "our id before the last one");
        assert_eq!(heir("slave", b'n', b'o', up), Some(master(2)));
        // The replica waits for us, it began anew, or it is a copy of something else.
        assert_eq!(heir("slave", b'o', b'0', up), None);
        assert_eq!(heir("slave", b'o', b'p', up), None);
        assert_eq!(heir("master", b'n', b'0', ""), None);
        assert_eq!(heir("slave", b'n', b'o', &up.replace(":up", ":down")), None);
        for hostile in ["", "role", "role:master\r\nmaster_replid2:", "master_replid2:o\r\nmaster_replid:n"] {
            assert_eq!(read_heir(hostile, &master(1), &[[b'o'; 40]]), None);
        }
    }
}
