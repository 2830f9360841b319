//! The socket of a link to a master, or to a node to which slots go, as long as a thread waits for it:
//! plain, or with TLS.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::address::ClientStream;
use crate::tls::stream::TlsStream;

pub(crate) enum MasterSocket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl MasterSocket {
    /// A socket that is connected. The handshake of TLS is part of the first write and the first reads;
    /// nothing is sent before the master's certificate is verified.
    pub(crate) fn new(socket: TcpStream, tls: Option<Arc<ClientConfig>>, host: &str) -> io::Result<Self> {
        Ok(match tls {
            Some(config) => MasterSocket::Tls(Box::new(TlsStream::client(socket, config, host)?)),
            None => MasterSocket::Plain(socket),
        })
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            MasterSocket::Plain(socket) => socket,
            MasterSocket::Tls(stream) => &stream.socket,
        }
    }

    /// The same connection for the event loop, where nothing waits.
    pub(crate) fn into_stream(self) -> io::Result<ClientStream> {
        self.tcp().set_nonblocking(true)?;
        let socket = mio::net::TcpStream::from_std;
        Ok(match self {
            MasterSocket::Plain(plain) => ClientStream::Tcp(socket(plain)),
            MasterSocket::Tls(stream) => ClientStream::Tls(Box::new(stream.map(socket))),
        })
    }
}

impl Read for MasterSocket {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            MasterSocket::Plain(socket) => socket.read(room),
            MasterSocket::Tls(stream) => stream.read(room),
        }
    }
}

impl Write for MasterSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            MasterSocket::Plain(socket) => socket.write(bytes),
            MasterSocket::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
