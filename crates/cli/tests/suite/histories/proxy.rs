//! Links over loopback that can be cut: nothing arrives until they are whole again, or all connections end.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    /// Bytes and new connections arrive when it is open again, and not before.
    Stalled,
    /// Connections end, and new ones too.
    Closed,
    /// The test is over.
    Over,
}

/// A way to one server.
pub(crate) struct Link {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    target: u16,
    state: Mutex<State>,
    changed: Condvar,
    streams: Mutex<Vec<TcpStream>>,
}

impl Link {
    /// A way to a port, behind a port of its own.
    pub(crate) fn to(target: u16, listener: TcpListener) -> Link {
        let port = listener.local_addr().unwrap().port();
        let (state, changed) = (Mutex::new(State::Open), Condvar::new());
        let shared = Arc::new(Shared { target, state, changed, streams: Mutex::new(Vec::new()) });
        let serving = shared.clone();
        let thread = std::thread::spawn(move || serving.serve(&listener));
        Link { port, shared, thread: Some(thread) }
    }

    pub(crate) fn set(&self, state: State) {
        *self.shared.state.lock().unwrap() = state;
        self.shared.changed.notify_all();
        if matches!(state, State::Closed | State::Over) {
            for stream in self.shared.streams.lock().unwrap().drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
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
            match (*self.state.lock().unwrap(), stream) {
                (State::Over, _) => return,
                (State::Open | State::Stalled, Ok(stream)) => {
                    let shared = self.clone();
                    std::thread::spawn(move || shared.join(stream));
                }
                (State::Closed, _) | (_, Err(_)) => {}
            }
        }
    }

    /// Waits while the link is stalled; whether it is open.
    fn is_passable(&self) -> bool {
        let state = self.state.lock().unwrap();
        *self.changed.wait_while(state, |state| *state == State::Stalled).unwrap() == State::Open
    }

    /// Brings a connection to the server.
    fn join(self: Arc<Self>, client: TcpStream) {
        if !self.is_passable() {
            return;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.target)) else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (Ok(one), Ok(other)) = (client.try_clone(), server.try_clone()) else { return };
        {
            // Not after the link was closed.
            let state = self.state.lock().unwrap();
            if !matches!(*state, State::Open | State::Stalled) {
                return;
            }
            let kept = [&client, &server].map(TcpStream::try_clone);
            let mut streams = self.streams.lock().unwrap();
            streams.retain(|stream| stream.peer_addr().is_ok());
            streams.extend(kept.into_iter().flatten());
        }
        let shared = self.clone();
        std::thread::spawn(move || shared.carry(&one, &other));
        self.carry(&server, &client);
    }

    /// Carries bytes one way until either side ends.
    fn carry(&self, mut from: &TcpStream, mut to: &TcpStream) {
        let mut bytes = [0; 1 << 14];
        loop {
            let count = from.read(&mut bytes).unwrap_or(0);
            if !self.is_passable() {
                return;
            }
            if count == 0 || to.write_all(&bytes[..count]).is_err() {
                let _ = (to.shutdown(Shutdown::Write), from.shutdown(Shutdown::Read));
                return;
            }
        }
    }
}
