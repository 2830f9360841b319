//! Two ends over sockets of little room, which break off everywhere. Both obey edges: an end reads until
//! it gets less than it asked for, and writes until less is taken; then it waits for the other side to
//! move.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use std::time::{Duration, Instant};

use rustix::net::sockopt;

use super::*;
use crate::acl::Users;
use crate::address::{Address, Stream};
use crate::buffer::BufferPool;
use crate::conn::Conn;
use crate::random::Random;
use crate::tls::{AuthClients, Tls, TlsSettings};

#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    is_closed: bool,
    /// Something came, or room was made, since the last call that found nothing.
    has_come: bool,
    has_room: bool,
}

/// One end of a pair of pipes that hold few bytes.
struct Socket {
    inward: Rc<RefCell<Pipe>>,
    outward: Rc<RefCell<Pipe>>,
    capacity: usize,
}

impl Read for Socket {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut pipe = self.inward.borrow_mut();
        if pipe.bytes.is_empty() {
            pipe.has_come = false;
            return if pipe.is_closed { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        let count = room.len().min(pipe.bytes.len());
        room.iter_mut().zip(pipe.bytes.drain(..count)).for_each(|(to, from)| *to = from);
        pipe.has_room = true;
        Ok(count)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut pipe = self.outward.borrow_mut();
        let count = bytes.len().min(self.capacity - pipe.bytes.len());
        if count == 0 {
            pipe.has_room = false;
            return Err(ErrorKind::WouldBlock.into());
        }
        pipe.bytes.extend(&bytes[..count]);
        pipe.has_come = true;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An end as a connection keeps it: what it remembers of its socket's readiness, and of its bytes.
struct End {
    stream: TlsStream<Socket>,
    readable: bool,
    writable: bool,
    to_send: VecDeque<u8>,
    received: Vec<u8>,
    ended: bool,
}

impl End {
    /// Takes the events of the socket, as edges.
    fn note(&mut self) {
        let socket = &self.stream.socket;
        self.readable |= std::mem::take(&mut socket.inward.borrow_mut().has_come);
        self.writable |= std::mem::take(&mut socket.outward.borrow_mut().has_room);
    }

    /// One turn, by the rules of `Conn`; whether something was done.
    fn turn(&mut self, random: &mut Random) -> bool {
        let mut moved = false;
        if self.writable && self.stream.has_unsent() {
            self.writable = self.stream.push().unwrap();
            moved = true;
        }
        if self.writable && !self.to_send.is_empty() {
            let asked = 1 + random.below(self.to_send.len() as u64) as usize;
            let bytes: Vec<u8> = self.to_send.iter().copied().take(asked).collect();
            let (first, second) = bytes.split_at(random.below(asked as u64 + 1) as usize);
            let taken = match self.stream.write_vectored(&[IoSlice::new(first), IoSlice::new(second)]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                taken => taken.unwrap(),
            };
            self.to_send.drain(..taken);
            self.writable = taken == asked && !self.stream.has_unsent();
            moved = true;
        }
        if self.readable && !self.ended {
            let mut room = vec![0; 1 + random.below(30_000) as usize];
            let got = match self.stream.read(&mut room) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                got => Some(got.unwrap()),
            };
            self.ended = got == Some(0);
            let got = got.unwrap_or(0);
            self.received.extend(&room[..got]);
            self.readable = got == room.len() || got > 0 && self.stream.has_more();
            moved = true;
        }
        moved
    }
}

/// Both ends, which believe each other.
fn believers() -> Tls {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (folder.path().join("cert"), folder.path().join("key"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let settings = TlsSettings {
        port: 1,
        ca_cert_file: Some(cert.clone()),
        cert_file: Some(cert),
        key_file: Some(key),
        auth_clients: AuthClients::No,
        replication: true,
        ..TlsSettings::default()
    };
    Tls::of(&settings).unwrap()
}

fn ends(capacity: usize) -> (End, End) {
    let tls = believers();
    let (there, back) = (Rc::<RefCell<Pipe>>::default(), Rc::<RefCell<Pipe>>::default());
    let socket = |inward: &Rc<_>, outward: &Rc<_>| Socket {
        inward: Rc::clone(inward),
        outward: Rc::clone(outward),
        capacity,
    };
    let end = |stream| End {
        stream,
        readable: true,
        writable: true,
        to_send: VecDeque::new(),
        received: Vec::new(),
        ended: false,
    };
    let server = TlsStream::server(socket(&there, &back), tls.server.unwrap()).unwrap();
    let client = TlsStream::client(socket(&back, &there), tls.client.unwrap(), "localhost").unwrap();
    (end(server), end(client))
}

/// A connection that waits for an event that does not come is what this would find: every turn has to do
/// something until all is there.
#[test]
fn nothing_waits_for_an_edge_that_does_not_come() {
    for capacity in [1, 7, 100, 1000, 4096, 5000, 20_000, 1 << 20] {
        println!("seed {capacity}");
        let mut random = Random::seeded(capacity as u64);
        let (mut server, mut client) = ends(capacity);
        let bytes = |random: &mut Random, len: u64| (0..len).map(|_| random.below(256) as u8).collect();
        let most = if capacity < 100 { 3_000 } else { 300_000 };
        client.to_send = bytes(&mut random, most);
        server.to_send = bytes(&mut random, most);
        // A server has nothing to say before it was asked.
        let (asked, answer) = (client.to_send.clone(), std::mem::take(&mut server.to_send));
        let mut turns = 0_u64;
        while server.received.len() < asked.len() || client.received.len() < answer.len() {
            if !server.received.is_empty()
                && turns > 0
                && server.to_send.is_empty()
                && client.received.is_empty()
            {
                server.to_send.clone_from(&answer);
            }
            server.note();
            client.note();
            let moved = [server.turn(&mut random), client.turn(&mut random)];
            assert!(moved != [false; 2], "both wait, with sockets of {capacity} bytes");
            turns += 1;
        }
        assert!(asked == server.received && answer == client.received);
        expect_end(server, client, &mut random);
    }
}

/// Last bytes, and the words of the end, in one piece.
fn expect_end(mut server: End, mut client: End, random: &mut Random) {
    let before = server.received.len();
    client.to_send.extend(b"last");
    let mut has_closed = false;
    while !server.ended {
        if client.to_send.is_empty() && !has_closed && !client.stream.has_unsent() {
            client.stream.close();
            has_closed = true;
        }
        server.note();
        client.note();
        let moved = [server.turn(random), client.turn(random)];
        assert!(moved != [false; 2], "both wait for the end");
    }
    assert_eq!(&server.received[before..], b"last");
}

#[test]
fn a_peer_without_tls_fails_at_its_first_byte() {
    let (mut server, client) = ends(100);
    client.stream.socket.outward.borrow_mut().bytes.extend(b"PING\r\n");
    let error = server.stream.read(&mut [0; 100]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(matches!(server.stream.failure(), Some(TlsFailure::NotTls)), "{:?}", server.stream.failure());
    assert_eq!(server.stream.read(&mut [0; 100]).unwrap_err().kind(), ErrorKind::InvalidData);
}

/// Nothing is left of the replies, and the socket has not taken their records: a client that leaves is
/// not gone.
#[test]
fn a_connection_is_not_over_before_its_records_are_sent() {
    let tls = believers();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
    let (accepted, peer) = listener.accept().unwrap();
    sockopt::set_socket_send_buffer_size(&accepted, 4096).unwrap();
    [&socket, &accepted].into_iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
    let mut client = TlsStream::client(socket, tls.client.unwrap(), "localhost").unwrap();
    let accepted = mio::net::TcpStream::from_std(accepted);
    let server = Stream::Tls(Box::new(TlsStream::server(accepted, tls.server.unwrap()).unwrap()));
    let user = Users::new(None).default_user().clone();
    let address = Address::Ip(peer);
    let mut conn = Conn::new((server, address.clone(), address), 1, Instant::now(), user);
    let (mut pool, mut room) = (BufferPool::default(), vec![0; 4096]);
    client.write_all(b"QUIT").unwrap();
    while conn.receive(&mut pool) == 0 {
        let _ = client.read(&mut room);
    }
    conn.output.bytes = vec![b'v'; UNSENT_BYTES_MAX - 1000];
    conn.session.quitting = true;
    assert_eq!(conn.send(), UNSENT_BYTES_MAX - 1000);
    assert!(conn.output.unsent() == 0 && !conn.writable, "the socket has taken all");
    let (mut received, begun) = (0, Instant::now());
    while !conn.is_over() {
        assert!(begun.elapsed() < Duration::from_secs(60), "its records are not sent");
        received += client.read(&mut room).unwrap_or(0);
        // The event that the socket has room.
        conn.writable = true;
        conn.send();
    }
    drop(conn);
    while received < UNSENT_BYTES_MAX - 1000 {
        match client.read(&mut room) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            Ok(0) => panic!("it ended after {received} bytes"),
            Ok(count) => received += count,
        }
    }
}
