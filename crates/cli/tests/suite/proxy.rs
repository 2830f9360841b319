//! Links over loopback that can be disturbed: bytes wait, vanish, trickle or come in pieces, or all
//! connections end.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    /// Bytes and new connections arrive when it is open again, and not before.
    Stalled,
    /// Bytes vanish, and connections stay open. What began before or meanwhile delivers nothing ever after.
    Hole,
    /// Some KB in a second arrive.
    Slow,
    /// Bytes arrive in pieces of 1 to 7, with pauses.
    Sliced,
    /// Connections end, and new ones too.
    Closed,
    /// The same, by RST: bytes on their way are lost.
    Reset,
    /// The test is over.
    Over,
}

/// A piece of a slow link, and the pause behind it.
const SLOW: (usize, Duration) = (256, Duration::from_millis(50));
const SLICE_PAUSE: Duration = Duration::from_micros(50);

/// A way to one server.
pub(crate) struct Link {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    target: u16,
    now: Mutex<Now>,
    changed: Condvar,
    streams: Mutex<Vec<TcpStream>>,
}

struct Now {
    state: State,
    /// How often the state was set. A connection has the number of its beginning.
    epoch: u64,
    /// Connections that began before this are swallowed.
    hole: u64,
    /// Connections that began before this have ended, also those whose threads have not seen it.
    cut: u64,
}

/// How bytes of a connection travel.
enum Way {
    Whole,
    Pieces(usize, Duration),
    Lost,
}

/// A port that the system gives to nobody: servers come back at theirs.
pub(crate) fn free_port() -> TcpListener {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() as u16 % 97 * 100;
    let mut ports = (0..10_000).map(|_| 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000);
    ports.find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()).expect("some are free")
}

impl Link {
    /// A way to a port, behind a port of its own.
    pub(crate) fn to(target: u16, listener: TcpListener) -> Link {
        let port = listener.local_addr().unwrap().port();
        let now = Mutex::new(Now { state: State::Open, epoch: 0, hole: 0, cut: 0 });
        let shared = Arc::new(Shared { target, now, changed: Condvar::new(), streams: Mutex::default() });
        let serving = shared.clone();
        let thread = std::thread::spawn(move || serving.serve(&listener));
        Link { port, shared, thread: Some(thread) }
    }

    pub(crate) fn set(&self, state: State) {
        let ends = matches!(state, State::Closed | State::Reset | State::Over);
        {
            let mut now = self.shared.now.lock().unwrap();
            (now.state, now.epoch) = (state, now.epoch + 1);
            match state {
                State::Hole => now.hole = now.epoch,
                _ if ends => now.cut = now.epoch,
                _ => {}
            }
        }
        self.shared.changed.notify_all();
        if !ends {
            return;
        }
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let how = match state {
                // The threads end and close it. Without time to linger, that is an RST.
                State::Reset => set_socket_linger(&stream, Some(Duration::ZERO)).map(|()| Shutdown::Read),
                _ => Ok(Shutdown::Both),
            };
            let _ = stream.shutdown(how.expect("a socket"));
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.set(State::Over);
        // The thread waits for a connection.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        let _ = self.thread.take().expect("it runs").join();
    }
}

impl Shared {
    fn serve(self: Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            let (state, epoch) = {
                let now = self.now.lock().unwrap();
                (now.state, now.epoch)
            };
            match (state, stream) {
                (State::Over, _) => return,
                (State::Closed | State::Reset, _) | (_, Err(_)) => {}
                (_, Ok(stream)) => {
                    let shared = self.clone();
                    std::thread::spawn(move || shared.join(stream, epoch));
                }
            }
        }
    }

    /// Waits while the link is stalled. How bytes of a connection travel now; none if it has ended.
    fn way(&self, born: u64) -> Option<Way> {
        let now = self.now.lock().unwrap();
        let now = self.changed.wait_while(now, |now| now.state == State::Stalled).unwrap();
        match now.state {
            _ if born < now.cut => None,
            State::Closed | State::Reset | State::Over => None,
            _ if born < now.hole => Some(Way::Lost),
            State::Hole => Some(Way::Lost),
            State::Slow => Some(Way::Pieces(SLOW.0, SLOW.1)),
            State::Sliced => Some(Way::Pieces(0, SLICE_PAUSE)),
            State::Open | State::Stalled => Some(Way::Whole),
        }
    }

    /// Keeps handles of the ends of a connection, unless it has ended meanwhile.
    fn keep(&self, ends: &[&TcpStream], born: u64) -> bool {
        let now = self.now.lock().unwrap();
        if born < now.cut {
            return false;
        }
        let mut streams = self.streams.lock().unwrap();
        streams.retain(|stream| stream.peer_addr().is_ok());
        streams.extend(ends.iter().filter_map(|end| end.try_clone().ok()));
        true
    }

    /// Brings a connection to the server.
    fn join(self: Arc<Self>, client: TcpStream, born: u64) {
        match self.way(born) {
            None => return,
            Some(Way::Lost) => {
                if self.keep(&[&client], born) {
                    let _ = std::io::copy(&mut &client, &mut std::io::sink());
                }
                return;
            }
            Some(_) => {}
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.target)) else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (Ok(one), Ok(other)) = (client.try_clone(), server.try_clone()) else { return };
        if !self.keep(&[&client, &server], born) {
            return;
        }
        let shared = self.clone();
        std::thread::spawn(move || shared.carry(&one, &other, born));
        self.carry(&server, &client, born);
    }

    /// Carries bytes one way until either side ends.
    fn carry(&self, mut from: &TcpStream, to: &TcpStream, born: u64) {
        let mut bytes = [0; 1 << 14];
        loop {
            let count = from.read(&mut bytes).unwrap_or(0);
            let is_over = match self.way(born) {
                None => return,
                // An end is lost, too.
                Some(Way::Lost) if count == 0 => return,
                Some(_) => count == 0 || self.bring(&bytes[..count], to, born).is_err(),
            };
            if is_over {
                let _ = (to.shutdown(Shutdown::Write), from.shutdown(Shutdown::Read));
                return;
            }
        }
    }

    /// Brings bytes to an end, in the way that the link has at each of them.
    fn bring(&self, mut bytes: &[u8], mut to: &TcpStream, born: u64) -> std::io::Result<()> {
        while !bytes.is_empty() {
            match self.way(born) {
                // The caller sees that it has ended.
                None | Some(Way::Lost) => return Ok(()),
                Some(Way::Whole) => return to.write_all(bytes),
                Some(Way::Pieces(len, pause)) => {
                    let len = if len == 0 { 1 + bytes.len() % 7 } else { len };
                    let (piece, rest) = bytes.split_at(len.min(bytes.len()));
                    to.write_all(piece)?;
                    bytes = rest;
                    std::thread::sleep(pause);
                }
            }
        }
        Ok(())
    }
}
