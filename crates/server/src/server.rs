//! Starting and stopping a server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::net::TcpListener;
use mio::{Interest, Poll, Token, Waker};

use crate::config::Config;
use crate::error::Error;
use crate::event_loop::EventLoop;
use crate::executor::Executor;
use crate::keyspace::Keyspace;
use crate::machine::clients_allowed;
use crate::state::State;
use tembo::Pool;

pub(crate) const LISTENER: Token = Token(usize::MAX);
pub(crate) const WAKER: Token = Token(usize::MAX - 1);

/// A server that listens and does not serve yet.
///
/// The pool is its only store: a write is acknowledged once it is durable in the pool's domain, and a server
/// that is killed at any time is followed by one that has every acknowledged write.
#[derive(Debug)]
pub struct Server {
    pool: Pool,
    poll: Poll,
    listener: TcpListener,
    stop: Stop,
    state: State,
}

/// An address that is listened on. Bind it before the pool is created: if the address is taken, no pool is
/// left behind.
#[derive(Debug)]
pub struct Listener {
    inner: TcpListener,
    local: SocketAddr,
}

impl Listener {
    /// Listens on an address. Clients can connect from now on, and wait until they are served.
    ///
    /// # Errors
    /// [`Error::Listen`] if the address cannot be listened on.
    pub fn bind(address: SocketAddr) -> Result<Self, Error> {
        let listen_error = |source| Error::Listen { address, source };
        let inner = TcpListener::bind(address).map_err(listen_error)?;
        let local = inner.local_addr().map_err(listen_error)?;
        Ok(Listener { inner, local })
    }
}

fn refuse_exposure(config: &Config, address: SocketAddr) -> Result<(), Error> {
    if config.protected_mode && !is_loopback(address) {
        return Err(Error::Exposed { address });
    }
    Ok(())
}

impl Server {
    /// Listens on the configured address. Clients can connect from now on, and are served by [`Server::run`].
    ///
    /// Raises the process's limit of open files to what `config.max_clients` takes; if it may not, it lowers
    /// the number of clients instead.
    ///
    /// # Errors
    /// [`Error::Exposed`] if the address is not a loopback address and `config.protected_mode` is on,
    /// [`Error::Listen`] if the address cannot be listened on, [`Error::Poll`] if the system has no event
    /// queue to give.
    pub fn bind(config: Config, pool: Pool) -> Result<Self, Error> {
        refuse_exposure(&config, config.listen)?;
        let listener = Listener::bind(config.listen)?;
        Server::with_listener(config, listener, pool)
    }

    /// As [`bind`](Self::bind), with an address that is listened on already; the configured one does not
    /// count.
    ///
    /// # Errors
    /// [`Error::Exposed`] as for [`bind`](Self::bind), [`Error::Poll`] if the system has no event queue to
    /// give.
    pub fn with_listener(mut config: Config, listener: Listener, pool: Pool) -> Result<Self, Error> {
        let Listener { inner: mut listener, local } = listener;
        refuse_exposure(&config, local)?;
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        config.max_clients = config.max_clients.min(clients_allowed(config.max_clients));
        let stop = Stop { requested: Arc::default(), waker };
        Ok(Server { poll, listener, stop, state: State::new(config, local, &pool), pool })
    }

    /// The address that is listened on, with the port that the system chose if it was to choose.
    pub fn local_addr(&self) -> SocketAddr {
        self.state.listen
    }

    /// A handle that stops the server from another thread.
    pub fn handle(&self) -> Handle {
        Handle(self.stop.clone())
    }

    /// Serves clients until [`Handle::shutdown`] or a client's SHUTDOWN. Then the writes of
    /// all commands that ran are committed, replies are sent as far as the sockets take them at once, and all
    /// connections are closed.
    ///
    /// # Errors
    /// [`Error::Pool`] if the pool's databases cannot be opened, [`Error::Poll`] if the system's event queue
    /// fails. Acknowledged writes are durable in any case.
    pub fn run(&mut self) -> Result<(), Error> {
        let pool = self.pool.clone();
        let keys = Keyspace::open(&pool)?;
        let executor = Executor::new(keys, &mut self.state);
        EventLoop::new(&mut self.poll, &self.listener, &self.stop, executor).run()?;
        Ok(())
    }
}

/// Stops a [`Server`]. Can be cloned and sent.
#[derive(Clone, Debug)]
pub struct Handle(Stop);

impl Handle {
    /// Lets [`Server::run`] return after the turn under way. Returns at once.
    pub fn shutdown(&self) {
        self.0.requested.store(true, Ordering::Release);
        // Without the wake-up the server notices at its next event, a tenth of a second later at most.
        let _ = self.0.waker.wake();
    }
}

/// A request to stop, shared with the [`Handle`]s.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    requested: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

impl Stop {
    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }
}

/// Whether an address can be reached from this machine only.
pub(crate) fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}
