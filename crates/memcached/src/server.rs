//! The server: its address, and its beginning and end.

use crate::event_loop::EventLoop;
use crate::items::Items;
use crate::stats::Figures;
use crate::{Config, Error, MAP_NAME};
use mio::net::TcpListener;
use mio::{Interest, Poll, Token, Waker};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tembo::Pool;

pub(crate) const LISTENER: Token = Token(usize::MAX);
pub(crate) const WAKER: Token = Token(usize::MAX - 1);

/// A memcached server over a pool.
///
/// One thread serves all clients. Everything else in the pool may be used at the same time, by a Redis server
/// too.
#[derive(Debug)]
pub struct Server {
    poll: Poll,
    listener: TcpListener,
    local: SocketAddr,
    handle: Handle,
    config: Config,
    pool: Pool,
}

/// An address that is listened on.
#[derive(Debug)]
pub struct Listener {
    inner: TcpListener,
    local: SocketAddr,
}

impl Listener {
    /// Listens on the configured address. Clients can connect from now on, and are served by [`Server::run`].
    ///
    /// # Errors
    ///
    /// [`Error::Open`] if other machines can reach the address and there are no accounts; [`Error::Listen`]
    /// if it cannot be listened on.
    pub fn bind(config: &Config) -> Result<Listener, Error> {
        let address = config.listen;
        if config.accounts.is_none() && !address.ip().to_canonical().is_loopback() {
            return Err(Error::Open { address });
        }
        let failed = |source| Error::Listen { address, source };
        let inner = TcpListener::bind(address).map_err(failed)?;
        let local = inner.local_addr().map_err(failed)?;
        Ok(Listener { inner, local })
    }
}

/// Seconds since 1970.
pub(crate) fn unix_seconds() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

impl Server {
    /// Listens on the configured address. Clients can connect from now on, and are served by [`Server::run`].
    ///
    /// # Errors
    ///
    /// Those of [`Listener::bind`] and [`Server::with_listener`].
    pub fn bind(config: Config, pool: Pool) -> Result<Server, Error> {
        let listener = Listener::bind(&config)?;
        Server::with_listener(config, listener, pool)
    }

    /// As [`bind`](Self::bind), with an address that is listened on already; the configured one does not
    /// count.
    ///
    /// # Errors
    ///
    /// [`Error::Poll`] if the system has no event queue to give.
    pub fn with_listener(config: Config, listener: Listener, pool: Pool) -> Result<Server, Error> {
        let Listener { inner: mut listener, local } = listener;
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let handle =
            Handle { requested: Arc::default(), waker, commands: Arc::default(), figures: Arc::default() };
        Ok(Server { poll, listener, local, handle, config, pool })
    }

    /// The address that is listened on, with the port that the system chose if it was to choose.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// A handle that stops the server from another thread.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves clients until [`Handle::shutdown`]. Then the commands that ran are committed, replies are sent
    /// as far as the sockets take them at once, and all connections are closed.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the map of the items cannot be opened, [`Error::Foreign`] if it is not one for
    /// items, [`Error::Poll`] if the system's event queue fails. Acknowledged writes are durable in any case.
    pub fn run(&mut self) -> Result<(), Error> {
        let map = self.pool.open_map(MAP_NAME)?;
        let items = Items::open(&self.pool, &map, unix_seconds(), self.config.memory_limit.clone())?;
        EventLoop::new(&mut self.poll, &self.listener, &self.handle, &self.config, items).run()
    }
}

/// Stops a [`Server`], and has its figures. Can be cloned and sent.
#[derive(Clone, Debug)]
pub struct Handle {
    requested: Arc<AtomicBool>,
    waker: Arc<Waker>,
    commands: Arc<AtomicU64>,
    figures: Arc<Mutex<Figures>>,
}

impl Handle {
    /// The commands that clients have had run since the start. It follows after each turn.
    pub fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// What has happened since the start, or since a client's `stats reset`. It follows ten times a second.
    pub fn figures(&self) -> Figures {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn note_commands(&self, commands: u64) {
        // Only the thread that serves adds.
        self.commands.store(self.commands() + commands, Ordering::Relaxed);
    }

    pub(crate) fn publish(&self, figures: Figures) {
        *self.figures.lock().unwrap_or_else(PoisonError::into_inner) = figures;
    }

    /// Lets [`Server::run`] return after the turn under way. Returns at once.
    pub fn shutdown(&self) {
        // ORDER: release, so that what this thread did before is seen by the one that stops.
        self.requested.store(true, Ordering::Release);
        // Without the wake-up the server notices at its next tick.
        let _ = self.waker.wake();
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }
}
