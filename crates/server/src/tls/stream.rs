//! One connection's TLS: records on the socket's side, plain bytes on the other. The handshake happens in
//! reads.
//!
//! # Readiness
//!
//! Events of sockets are edges, and this has state between the socket and the reader. Its promises are
//! those of a plain socket:
//!
//! - a read that fills less than its room has emptied the socket, and nothing decrypted is left; or
//!   [`has_more`](TlsStream::has_more) tells that the next read has something without an event: an end, a
//!   failure, or what a read left in the socket;
//! - a write that takes less than it is given has filled the socket;
//! - records that the socket has not taken are bounded ([`UNSENT_BYTES_MAX`]); while
//!   [`has_unsent`](TlsStream::has_unsent), the owner must call [`push`](TlsStream::push) when the socket is
//!   writable. A read may create records: answers of the handshake, and alerts.
//!
//! # Records without plain text
//!
//! A peer may send any number of records that have no byte for the reader: empty ones, and new keys. Each
//! costs a decryption. One read takes few of them ([`VAIN_BYTES_PER_READ`]) and then lets others go on, as
//! one that finds nothing; a peer that sends nothing else is refused ([`VAIN_BYTES_MAX`]).

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

/// Most bytes that a peer may send before the end of its handshake. Chains of certificates are the
/// largest part.
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 128 << 10;
/// Most bytes of plain text that wait as records for a socket that is full.
pub(crate) const UNSENT_BYTES_MAX: usize = 64 << 10;
/// Bytes of the socket, beyond those of plain text, after which a read returns. It must hold the largest
/// record.
const VAIN_BYTES_PER_READ: usize = 64 << 10;
/// Most bytes that a peer may send in a row without any plain text, after its handshake.
pub(crate) const VAIN_BYTES_MAX: usize = 1 << 20;
/// The memory that an open connection has in rustls, about: so much was measured, with the sessions that
/// it may resume.
const SESSION_BYTES: usize = 10 << 10;
/// The first byte of a handshake.
const HANDSHAKE: u8 = 22;

/// Why a connection ended that was not closed.
#[derive(Clone, Debug)]
pub(crate) enum TlsFailure {
    /// The first byte was not that of a handshake.
    NotTls,
    TooLong,
    /// The peer sends records without any plain text.
    Vain,
    Handshake(rustls::Error),
    Later(rustls::Error),
}

/// The fault of a client, to be read after "it". Errors of rustls have no bytes of the peer.
impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsFailure::NotTls => write!(f, "did not begin with TLS, which is spoken at this port"),
            TlsFailure::TooLong => {
                write!(f, "sent more than {HANDSHAKE_BYTES_MAX} bytes before the end of its TLS handshake")
            }
            TlsFailure::Vain => {
                write!(f, "sent {VAIN_BYTES_MAX} bytes of TLS records without a byte of plain text")
            }
            TlsFailure::Handshake(error) => write!(f, "failed in the TLS handshake: {error}"),
            TlsFailure::Later(error) => write!(f, "broke the rules of TLS: {error}"),
        }
    }
}

/// A socket that speaks TLS.
#[derive(Debug)]
pub(crate) struct TlsStream<S> {
    pub(crate) socket: S,
    session: Connection,
    /// Bytes that the peer has sent in its handshake.
    handshake_bytes: usize,
    /// Bytes that the peer has sent since the last one of plain text or the end of its handshake.
    vain_bytes: usize,
    has_more: bool,
    /// The peer has said that it sends no more.
    has_ended: bool,
    failure: Option<TlsFailure>,
}

/// A socket that tells whether a read emptied it.
struct Probe<'s, S> {
    socket: &'s mut S,
    is_emptied: bool,
    first: Option<u8>,
}

impl<S: Read> Read for Probe<'_, S> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = self.socket.read(room)?;
        self.is_emptied = count < room.len();
        self.first = room[..count].first().copied();
        Ok(count)
    }
}

impl<S: Read + Write> TlsStream<S> {
    /// The server's end.
    pub(crate) fn server(socket: S, config: Arc<ServerConfig>) -> io::Result<Self> {
        let session = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(Self::new(socket, session.into()))
    }

    /// The end of a client, which has to read or write to begin.
    pub(crate) fn client(socket: S, config: Arc<ClientConfig>, host: &str) -> io::Result<Self> {
        // The name is not verified, and a host may have any name that the system resolves.
        let name = ServerName::try_from(host.to_owned());
        let name = name.or_else(|_| ServerName::try_from("master")).map_err(io::Error::other)?;
        let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        Ok(Self::new(socket, session.into()))
    }

    fn new(socket: S, mut session: Connection) -> Self {
        session.set_buffer_limit(Some(UNSENT_BYTES_MAX));
        TlsStream {
            socket,
            session,
            handshake_bytes: 0,
            vain_bytes: 0,
            has_more: false,
            has_ended: false,
            failure: None,
        }
    }

    /// The same connection on another socket, which `make` makes of its socket.
    pub(crate) fn map<T>(self, make: impl FnOnce(S) -> T) -> TlsStream<T> {
        let TlsStream { socket, session, handshake_bytes, vain_bytes, has_more, has_ended, failure } = self;
        TlsStream { socket: make(socket), session, handshake_bytes, vain_bytes, has_more, has_ended, failure }
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// The last read returned less than its room, or nothing, and the next one needs no event: it has an end
    /// or a failure to tell, or the socket was not emptied.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether there are records for the socket.
    pub(crate) fn has_unsent(&self) -> bool {
        self.session.wants_write()
    }

    pub(crate) fn failure(&self) -> Option<&TlsFailure> {
        self.failure.as_ref()
    }

    /// About how much memory this has. In a handshake that is what the peer has sent, too: a message may come
    /// in many pieces, which rustls keeps until it is whole.
    pub(crate) fn memory_bytes(&self) -> usize {
        let handshake = if self.is_handshaking() { self.handshake_bytes } else { 0 };
        let unsent = if self.has_unsent() { UNSENT_BYTES_MAX } else { 0 };
        size_of::<Self>() + SESSION_BYTES + handshake + unsent
    }

    /// Gives records to the socket; whether it took all.
    pub(crate) fn push(&mut self) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_full(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Tells the peer that this is the end, if the socket takes it at once.
    pub(crate) fn close(&mut self) {
        if self.failure.is_none() && !self.session.is_handshaking() {
            self.session.send_close_notify();
            // The peer sees the socket's end in any case.
            let _ = self.push();
        }
    }

    /// Takes records from the socket once, and answers them if needed; returns whether the socket is empty,
    /// and the number of bytes that it gave.
    fn receive(&mut self) -> io::Result<(usize, bool)> {
        let was_handshaking = self.session.is_handshaking();
        let mut probe = Probe { socket: &mut self.socket, is_emptied: false, first: None };
        let count = self.session.read_tls(&mut probe)?;
        let (is_emptied, first) = (probe.is_emptied, probe.first);
        let is_foreign = self.handshake_bytes == 0 && first.is_some_and(|first| first != HANDSHAKE);
        if was_handshaking {
            self.handshake_bytes += count;
        } else {
            self.vain_bytes += count;
        }
        match self.session.process_new_packets() {
            Ok(state) => self.has_ended = state.peer_has_closed(),
            Err(error) => {
                self.failure = Some(match was_handshaking {
                    true if is_foreign => TlsFailure::NotTls,
                    true => TlsFailure::Handshake(error),
                    false => TlsFailure::Later(error),
                });
                // The alert; the peer may have disconnected.
                let _ = self.push();
            }
        }
        if self.session.is_handshaking() && self.handshake_bytes > HANDSHAKE_BYTES_MAX {
            self.failure.get_or_insert(TlsFailure::TooLong);
        }
        if self.vain_bytes > VAIN_BYTES_MAX {
            self.failure.get_or_insert(TlsFailure::Vain);
        }
        if self.failure.is_some() {
            return Err(ErrorKind::InvalidData.into());
        }
        self.push()?;
        Ok((count, is_emptied))
    }

    /// Adds bytes as records, and gives them to the socket as it takes them.
    fn send(&mut self, bytes: &[u8], taken: &mut usize) -> io::Result<bool> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = self.session.writer().write(rest)?;
            (rest, *taken) = (&rest[count..], *taken + count);
            // In the handshake there is nothing to push, and no room either.
            let is_stuck = count == 0 && !self.session.wants_write();
            if !rest.is_empty() && (is_stuck || !self.push()?) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<S: Read + Write> Read for TlsStream<S> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let (mut got, mut taken, mut is_empty) = (0, 0, false);
        self.has_more = false;
        loop {
            match self.session.reader().read(&mut room[got..]) {
                Ok(0) => break,
                Ok(count) => (got, self.vain_bytes) = (got + count, 0),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The socket ended without a close of TLS: its requests are whole, or are no requests.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
            if got == room.len() || got > 0 && is_empty {
                // The end may have come with the bytes.
                self.has_more = self.has_ended;
                return Ok(got);
            }
            if let Some(failure) = &self.failure {
                return Err(io::Error::new(ErrorKind::InvalidData, failure.to_string()));
            }
            if taken > got + VAIN_BYTES_PER_READ {
                self.has_more = true;
                return if got > 0 { Ok(got) } else { Err(ErrorKind::WouldBlock.into()) };
            }
            match self.receive() {
                Ok((count, is_emptied)) => (taken, is_empty) = (taken + count, is_emptied),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The failure is returned after the bytes before it.
                Err(error) if self.failure.is_some() || is_full(&error) => {
                    let is_failed = self.failure.is_some();
                    if got > 0 {
                        self.has_more = is_failed;
                        return Ok(got);
                    }
                    if !is_failed {
                        return Err(error);
                    }
                }
                Err(_) if got > 0 => break,
                Err(error) => return Err(error),
            }
        }
        self.has_more = got > 0;
        Ok(got)
    }
}

impl<S: Read + Write> Write for TlsStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.push()? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut taken = 0;
        for slice in slices {
            if !self.send(slice, &mut taken)? {
                return Ok(taken);
            }
        }
        self.push()?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a socket has nothing, or takes nothing, for now. That holds also for a socket that blocks for a
/// limited time.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
