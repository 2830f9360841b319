//! Where clients come from and where the server listens: addresses of the network, or sockets of the file
//! system.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use rustls::ServerConfig;

use crate::tls::stream::{TlsFailure, TlsStream};

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Ip(SocketAddr),
    /// The path of the server's socket. Both ends are called by it, as in Redis.
    Unix(Arc<str>),
}

impl Address {
    /// Whether only this machine can be at the other end.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Address::Ip(address) => address.ip().to_canonical().is_loopback(),
            Address::Unix(_) => true,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "{path}:0"),
        }
    }
}

/// A connection's socket.
#[derive(Debug)]
pub(crate) enum ClientStream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl ClientStream {
    /// The encryption, if there is one.
    fn tls(&self) -> Option<&TlsStream<TcpStream>> {
        match self {
            ClientStream::Tls(stream) => Some(stream),
            _ => None,
        }
    }

    /// The socket, if it is one of the network.
    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            ClientStream::Tcp(stream) => Some(stream),
            ClientStream::Tls(stream) => Some(&stream.socket),
            ClientStream::Unix(_) => None,
        }
    }

    /// Whether the next read tells something without an event ([`TlsStream::has_more`]).
    pub(crate) fn has_more(&self) -> bool {
        self.tls().is_some_and(TlsStream::has_more)
    }

    /// Whether bytes that were taken wait for the socket ([`TlsStream::has_unsent`]).
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls().is_some_and(TlsStream::has_unsent)
    }

    /// Gives the socket the bytes that wait for it; returns whether it took all.
    pub(crate) fn push(&mut self) -> io::Result<bool> {
        match self {
            ClientStream::Tls(stream) => stream.push(),
            _ => Ok(true),
        }
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls().is_some_and(TlsStream::is_handshaking)
    }

    /// Why the encryption ended, if it did.
    pub(crate) fn failure(&self) -> Option<&TlsFailure> {
        self.tls().and_then(TlsStream::failure)
    }

    /// Memory beside the buffers of the connection, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.tls().map_or(0, TlsStream::memory_bytes)
    }
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        if let ClientStream::Tls(stream) = self {
            stream.close();
        }
    }
}

impl Read for ClientStream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            ClientStream::Tcp(stream) => stream.read(room),
            ClientStream::Unix(stream) => stream.read(room),
            ClientStream::Tls(stream) => stream.read(room),
        }
    }
}

impl Write for ClientStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            ClientStream::Tcp(stream) => stream.write(bytes),
            ClientStream::Unix(stream) => stream.write(bytes),
            ClientStream::Tls(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            ClientStream::Tcp(stream) => stream.write_vectored(slices),
            ClientStream::Unix(stream) => stream.write_vectored(slices),
            ClientStream::Tls(stream) => stream.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRawFd for ClientStream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            ClientStream::Tcp(stream) => stream.as_raw_fd(),
            ClientStream::Unix(stream) => stream.as_raw_fd(),
            ClientStream::Tls(stream) => stream.socket.as_raw_fd(),
        }
    }
}

impl Source for ClientStream {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            ClientStream::Tcp(stream) => stream.register(registry, token, interests),
            ClientStream::Unix(stream) => stream.register(registry, token, interests),
            ClientStream::Tls(stream) => stream.socket.register(registry, token, interests),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            ClientStream::Tcp(stream) => stream.reregister(registry, token, interests),
            ClientStream::Unix(stream) => stream.reregister(registry, token, interests),
            ClientStream::Tls(stream) => stream.socket.reregister(registry, token, interests),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            ClientStream::Tcp(stream) => stream.deregister(registry),
            ClientStream::Unix(stream) => stream.deregister(registry),
            ClientStream::Tls(stream) => stream.socket.deregister(registry),
        }
    }
}

/// A socket that is listened on.
#[derive(Debug)]
pub(crate) enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener, Arc<str>),
    /// A port where TLS is spoken.
    Tls(TcpListener),
}

/// A connection that was accepted, with both of its ends: the client's first.
pub(crate) type Accepted = (ClientStream, Address, Address);

impl Acceptor {
    /// Accepts one connection; a connection of TLS gets the given configuration.
    pub(crate) fn accept(&self, tls: Option<&Arc<ServerConfig>>) -> io::Result<Accepted> {
        match self {
            Acceptor::Tcp(listener) => {
                let (stream, peer, local) = accept_tcp(listener)?;
                Ok((ClientStream::Tcp(stream), peer, local))
            }
            Acceptor::Tls(listener) => {
                let (stream, peer, local) = accept_tcp(listener)?;
                let config = tls.ok_or(io::ErrorKind::ConnectionAborted)?;
                let stream = TlsStream::server(stream, config.clone())?;
                Ok((ClientStream::Tls(Box::new(stream)), peer, local))
            }
            Acceptor::Unix(listener, path) => {
                let (stream, _) = listener.accept()?;
                let address = Address::Unix(path.clone());
                Ok((ClientStream::Unix(stream), address.clone(), address))
            }
        }
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Acceptor::Tcp(listener) | Acceptor::Tls(listener) => {
                registry.register(listener, token, Interest::READABLE)
            }
            Acceptor::Unix(listener, _) => registry.register(listener, token, Interest::READABLE),
        }
    }
}

fn accept_tcp(listener: &TcpListener) -> io::Result<(TcpStream, Address, Address)> {
    let (stream, peer) = listener.accept()?;
    stream.set_nodelay(true)?;
    let local = stream.local_addr()?;
    Ok((stream, Address::Ip(peer), Address::Ip(local)))
}
