//! A connection to the owner of stores, and what is open there.

use super::FRAME_BYTES_MAX;
use super::message::{Reply, Request, VERSION};
use super::wire::{receive, send};
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a greeting may take.
const GREETING_MAX: Duration = Duration::from_secs(10);

/// A connection to the owner.
pub(super) struct Link {
    /// None after it has failed.
    stream: Mutex<Option<UnixStream>>,
    path: PathBuf,
    pub(super) name: String,
    pub(super) owner: u32,
}

/// A snapshot or a transaction that is open at the owner's.
pub(super) struct Opened {
    pub(super) link: Arc<Link>,
    pub(super) id: u64,
    pub(super) number: u64,
}

/// The value of a reply of the kind that was expected.
macro_rules! value_of {
    ($reply:expr, $kind:pat => $value:expr) => {
        match $reply? {
            $kind => Ok($value),
            _ => Err($crate::remote::link::other_reply()),
        }
    };
}
pub(super) use value_of;

/// The error that a reply is of another kind than its request asks for.
pub(super) fn other_reply() -> Error {
    Error::Refused { why: "the reply is not one to the request".to_owned() }
}

impl Link {
    pub(super) fn connect(path: &Path, name: &str) -> Result<Link> {
        let failed = |source| Error::Disconnected { doing: "connecting to the owner", source };
        let mut stream = UnixStream::connect(path).map_err(failed)?;
        let set = |stream: &UnixStream, timeout| {
            stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout)).map_err(failed)
        };
        set(&stream, Some(GREETING_MAX))?;
        let greeting = Request::Hello { version: VERSION, store: name };
        let owner = match exchange(&mut stream, &greeting)? {
            Reply::Welcome { version: VERSION, pid } => pid,
            Reply::Welcome { version, .. } => {
                let why = format!("it speaks version {version} of the protocol, and this program {VERSION}");
                return Err(Error::Refused { why });
            }
            Reply::Fault(e) => return Err(e),
            _ => return Err(other_reply()),
        };
        set(&stream, None)?;
        Ok(Link { stream: Mutex::new(Some(stream)), path: path.to_owned(), name: name.to_owned(), owner })
    }

    /// Another connection to the same store.
    pub(super) fn another(&self) -> Result<Link> {
        Link::connect(&self.path, &self.name)
    }

    /// Sends a request and waits for its reply. After a failure, the connection is not used again: a late
    /// reply would be taken for that of the next request.
    pub(super) fn ask(&self, request: &Request<'_>) -> Result<Reply> {
        self.ask_parts(request, |_| Err(other_reply()))
    }

    /// As [`ask`](Self::ask), for a request whose replies are parts and one after them. If a part cannot be
    /// taken, the connection is not used again either: the others are on their way.
    pub(super) fn ask_parts(
        &self,
        request: &Request<'_>,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<Reply> {
        let mut stream = self.stream.lock();
        let Some(open) = stream.as_mut() else {
            let source = io::ErrorKind::NotConnected.into();
            return Err(Error::Disconnected { doing: "sending a message", source });
        };
        let mut outcome = exchange(open, request);
        while let Ok(Reply::Part(part)) = &outcome {
            outcome = take(part).and_then(|()| reply(open, Ok(())));
        }
        match outcome {
            Ok(Reply::Fault(e)) => Err(e),
            Ok(reply) => Ok(reply),
            // Nothing of it was sent.
            Err(e @ Error::FrameTooLarge { .. }) => Err(e),
            Err(e) => {
                *stream = None;
                Err(e)
            }
        }
    }
}

/// One request and its reply.
fn exchange(stream: &mut UnixStream, request: &Request<'_>) -> Result<Reply> {
    let sent = match send(stream, &request.encode()) {
        Err(e @ Error::FrameTooLarge { .. }) => return Err(e),
        outcome => outcome,
    };
    reply(stream, sent)
}

/// Waits for a reply, after a request was sent or could not be.
fn reply(stream: &mut UnixStream, sent: Result<()>) -> Result<Reply> {
    let too_large = |e| match e {
        Error::FrameTooLarge { bytes, .. } => {
            Error::Refused { why: format!("the reply claims to have {bytes} bytes") }
        }
        other => other,
    };
    // An owner that closes the connection without reading may have said why.
    let frame = match (receive(stream, FRAME_BYTES_MAX), sent) {
        (Ok(Some(frame)), _) => frame,
        (_, Err(e)) => return Err(e),
        (outcome, Ok(())) => outcome.map_err(too_large)?.ok_or_else(closed)?,
    };
    Ok(Reply::decode(&frame)?)
}

fn closed() -> Error {
    Error::Disconnected { doing: "waiting for a reply", source: io::ErrorKind::UnexpectedEof.into() }
}

impl Opened {
    pub(super) fn ask(link: &Arc<Link>, request: &Request<'_>) -> Result<Arc<Opened>> {
        let (id, number) = value_of!(link.ask(request), Reply::Opened { open, number } => (open, number))?;
        Ok(Arc::new(Opened { link: link.clone(), id, number }))
    }

    pub(super) fn get(&self, keyspace: u64, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let request = Request::Get { open: Some(self.id), keyspace, key };
        value_of!(self.link.ask(&request), Reply::Value(value) => value)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Without a connection the owner has closed it.
        _ = self.link.ask(&Request::Close { open: self.id });
    }
}
