//! The server: its address, and its beginning and end.

use crate::event_loop::{EventLoop, LISTENER, WAKER};
use crate::handle::Handle;
use crate::items::{Items, unix_seconds};
use crate::{Config, Error, MAP_NAME};
use mio::net::TcpListener;
use mio::{Interest, Poll, Waker};
use std::net::SocketAddr;
use tembo::Pool;

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
        let handle = Handle::new(Waker::new(poll.registry(), WAKER)?);
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
