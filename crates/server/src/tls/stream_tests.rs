//! Two ends over sockets of little room, which break off everywhere. Both obey edges: an end reads until
//! it gets less than it asked for, and writes until less is taken; then it waits for the other side to
//! move.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use rustls::crypto::cipher::{AeadKey, Iv, MessageEncrypter, OutboundChunks, OutboundPlainMessage};
use rustls::crypto::tls13::OkmBlock;
use rustls::{ContentType, KeyLog, ProtocolVersion, SupportedCipherSuite, Tls13CipherSuite};

use super::*;
use crate::acl::users::Users;
use crate::address::{Address, ClientStream};
use crate::buffer::BufferPool;
use crate::conn::Conn;
use crate::random::Random;
use crate::tls::Tls;
use crate::tls::settings::{AuthClients, TlsSettings};

#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    is_closed: bool,
    /// Bytes came since the last read that found nothing.
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

/// An end as a connection keeps it: with its memory of the socket's readiness, and of its bytes.
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
            self.readable = got == room.len() || self.stream.has_more();
            moved = true;
        }
        moved
    }
}

/// Settings for both ends, which trust each other.
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
    ends_of(&believers(), capacity)
}

fn ends_of(tls: &Tls, capacity: usize) -> (End, End) {
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
    let server = TlsStream::server(socket(&there, &back), tls.server.clone().unwrap()).unwrap();
    let config = tls.client.clone().unwrap();
    let client = TlsStream::client(socket(&back, &there), config, "localhost").unwrap();
    (end(server), end(client))
}

/// No connection waits for an event that does not come: every turn has to do something until everything has
/// arrived.
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

/// The beginning of a hello of 60 KiB, in records of a kilobyte, of which rustls keeps every one.
#[test]
fn a_handshake_that_does_not_end_is_counted_as_memory() {
    let (mut server, mut client) = ends(1 << 20);
    let before = server.stream.memory_bytes();
    let mut message = vec![1, 0, 60 << 2, 0];
    message.resize(40 << 10, 0);
    for part in message.chunks(1 << 10) {
        let [high, low] = (part.len() as u16).to_be_bytes();
        let record = [&[HANDSHAKE, 3, 1, high, low], part].concat();
        client.stream.socket.outward.borrow_mut().bytes.extend(&record);
        let error = server.stream.read(&mut [0; 100]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    }
    assert!(server.stream.memory_bytes() >= before + message.len());
    // The memory is given back with the end of the handshake.
    (server, client) = ends(1 << 20);
    client.to_send.extend(b"x");
    let mut random = Random::seeded(2);
    while server.received != b"x" {
        server.note();
        client.note();
        assert!([server.turn(&mut random), client.turn(&mut random)] != [false; 2]);
    }
    while server.stream.has_unsent() {
        server.note();
        client.note();
        assert!([server.turn(&mut random), client.turn(&mut random)] != [false; 2]);
    }
    assert_eq!(server.stream.memory_bytes(), before);
}

/// Goes on in place of a client of TLS 1.3 after its handshake: it makes records without plain text, which
/// rustls takes without an end if new keys follow each empty one.
struct Forger {
    suite: &'static Tls13CipherSuite,
    secret: OkmBlock,
    encrypter: Box<dyn MessageEncrypter>,
    sequence: u64,
}

/// Keeps the first secret of a client.
#[derive(Debug, Default)]
struct Secret(Mutex<Vec<u8>>);

impl KeyLog for Secret {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        if label == "CLIENT_TRAFFIC_SECRET_0" {
            *self.0.lock().unwrap() = secret.to_vec();
        }
    }
}

/// The settings of a client whose keys can be taken out of it.
fn open_client(tls: &Tls) -> (Arc<ClientConfig>, Arc<Secret>) {
    let (mut config, secret) = ((**tls.client.as_ref().unwrap()).clone(), Arc::new(Secret::default()));
    config.enable_secret_extraction = true;
    config.key_log = secret.clone();
    (Arc::new(config), secret)
}

impl Forger {
    fn new(session: Connection, secret: &Secret) -> Self {
        let Some(SupportedCipherSuite::Tls13(suite)) = session.negotiated_cipher_suite() else {
            panic!("it is not TLS 1.3");
        };
        let secret = OkmBlock::new(&secret.0.lock().unwrap());
        let mut forger = Forger { suite, encrypter: encrypter(suite, &secret), secret, sequence: 0 };
        forger.sequence = session.dangerous_extract_secrets().unwrap().tx.0;
        forger
    }

    fn record(&mut self, typ: ContentType, plain: &[u8]) -> Vec<u8> {
        let (version, payload) = (ProtocolVersion::TLSv1_2, OutboundChunks::Single(plain));
        let message = OutboundPlainMessage { typ, version, payload };
        let record = self.encrypter.encrypt(message, self.sequence).unwrap().encode();
        self.sequence += 1;
        record
    }

    /// An empty record, and new keys.
    fn vain(&mut self) -> Vec<u8> {
        let mut records = self.record(ContentType::ApplicationData, b"");
        records.extend(self.record(ContentType::Handshake, &[24, 0, 0, 1, 0]));
        let mut next = vec![0; self.secret.as_ref().len()];
        expand(self.suite, &self.secret, "traffic upd", &mut next);
        self.secret = OkmBlock::new(&next);
        (self.encrypter, self.sequence) = (encrypter(self.suite, &self.secret), 0);
        records
    }
}

/// HKDF-Expand-Label of RFC 8446.
fn expand(suite: &Tls13CipherSuite, secret: &OkmBlock, label: &str, out: &mut [u8]) {
    let (len, label) = ((out.len() as u16).to_be_bytes(), format!("tls13 {label}"));
    let info = [&len, &[label.len() as u8][..], label.as_bytes(), &[0]];
    suite.hkdf_provider.expander_for_okm(secret).expand_slice(&info, out).unwrap();
}

fn encrypter(suite: &Tls13CipherSuite, secret: &OkmBlock) -> Box<dyn MessageEncrypter> {
    let (mut key, mut iv) = ([0; 32], [0; 12]);
    assert_eq!(suite.aead_alg.key_len(), key.len());
    expand(suite, secret, "key", &mut key);
    expand(suite, secret, "iv", &mut iv);
    suite.aead_alg.encrypter(AeadKey::from(key), Iv::from(iv))
}

/// A read that goes on until it has something holds all other clients up, as long as the peer likes.
#[test]
fn a_read_takes_few_records_without_plain_text() {
    let mut tls = believers();
    let (config, secret) = open_client(&tls);
    tls.client = Some(config);
    let (mut server, mut client) = ends_of(&tls, 1 << 30);
    let mut random = Random::seeded(1);
    client.to_send.extend(b"first");
    while server.received != b"first" {
        server.note();
        client.note();
        assert!([server.turn(&mut random), client.turn(&mut random)] != [false; 2]);
    }
    let TlsStream { socket, session, .. } = client.stream;
    let mut forger = Forger::new(session, &secret);
    let mut pipe = socket.outward.borrow_mut();
    while pipe.bytes.len() < 3 * VAIN_BYTES_PER_READ {
        pipe.bytes.extend(forger.vain());
    }
    pipe.bytes.extend(forger.record(ContentType::ApplicationData, b"x"));
    let (mut room, mut reads, mut left) = ([0; 100], 0, pipe.bytes.len());
    drop(pipe);
    let got = loop {
        let got = server.stream.read(&mut room);
        let now = socket.outward.borrow().bytes.len();
        // rustls takes as many bytes at once as it has room for.
        assert!(left - now <= VAIN_BYTES_PER_READ + (32 << 10), "a read took {} bytes", left - now);
        match got {
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            Ok(got) => break got,
        }
        assert!(server.stream.has_more(), "{now} bytes are left, and no event comes");
        (left, reads) = (now, reads + 1);
    };
    assert!(room[..got] == *b"x" && reads >= 2, "{reads} reads before the one with a byte");
    assert_eq!(server.stream.vain_bytes, 0, "a byte of plain text is a new beginning");
}

#[test]
fn a_client_without_plain_text_is_served_on_and_then_refused() {
    let tls = believers();
    let (config, secret) = open_client(&tls);
    let (mut client, mut conn) = connected(&tls, config, 1 << 20);
    let (mut pool, mut room) = (BufferPool::default(), vec![0; 4096]);
    client.write_all(b"PING").unwrap();
    while conn.receive(&mut pool) == 0 {
        let _ = client.read(&mut room);
    }
    let TlsStream { socket, session, .. } = client;
    let mut forger = Forger::new(session, &secret);
    let (mut sent, mut unsent, mut full) = (0, Vec::new(), 0);
    while !conn.broken {
        assert!(sent < VAIN_BYTES_MAX + (8 << 20), "{sent} bytes are taken");
        if unsent.is_empty() {
            unsent = (0..500).flat_map(|_| forger.vain()).collect();
        }
        match (&socket).write(&unsent) {
            Ok(count) => (sent, _) = (sent + count, unsent.drain(..count)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                assert_eq!(conn.receive(&mut pool), 0);
                assert!(conn.readable || conn.broken, "no event comes for what is left in the socket");
                full += 1;
            }
        }
    }
    assert!(matches!(conn.stream.failure(), Some(TlsFailure::Vain)), "{:?}", conn.stream.failure());
    assert!(sent > VAIN_BYTES_MAX && full > 1, "{sent} bytes, {full} times");
}

/// Both ends of a connection of the system, without blocking, with buffers of this many bytes.
fn connected(tls: &Tls, client: Arc<ClientConfig>, bytes: usize) -> (TlsStream<std::net::TcpStream>, Conn) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, bytes).unwrap();
    let (accepted, peer) = listener.accept().unwrap();
    sockopt::set_socket_send_buffer_size(&accepted, bytes).unwrap();
    [&socket, &accepted].into_iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
    let client = TlsStream::client(socket, client, "localhost").unwrap();
    let accepted = mio::net::TcpStream::from_std(accepted);
    let server = TlsStream::server(accepted, tls.server.clone().unwrap()).unwrap();
    let user = Users::new(None).default_user().clone();
    let address = Address::Ip(peer);
    let server = (ClientStream::Tls(Box::new(server)), address.clone(), address);
    (client, Conn::new(server, 1, Instant::now(), user))
}

/// Nothing is left of the replies, and the socket has not taken their records: a client that leaves is
/// not gone.
#[test]
fn a_connection_is_not_over_before_its_records_are_sent() {
    let tls = believers();
    let (mut client, mut conn) = connected(&tls, tls.client.clone().unwrap(), 4096);
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
