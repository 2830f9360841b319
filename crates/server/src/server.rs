//! Starting and stopping a server.

use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mio::net::{TcpListener, UnixListener};
use mio::{Poll, Waker};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use crate::acl_file::users_at_start;
use crate::address::Acceptor;
use crate::config::{Bind, Config};
use crate::error::Error;
use crate::event_loop::EventLoop;
use crate::eviction::memory::EvictionLimit;
use crate::executor::Executor;
use crate::keyspace::Keyspace;
use crate::keyspace::cluster::{ModeError, prepare};
use crate::machine::clients_allowed;
use crate::metrics::endpoint::Endpoint;
use crate::neighbour::Neighbour;
use crate::state::State;
use crate::stop::Stop;
use crate::tls::Tls;
use crate::token::{LISTENER, WAKER};
use tembo::Pool;

/// Connections that the system may hold before they are accepted. The system has a maximum of its own.
const BACKLOG: i32 = 1024;
/// A server that listens and does not serve yet.
///
/// The pool is its only store: a write is acknowledged once it is durable in the pool's domain, and a server
/// that is killed at any time is followed by one that has every acknowledged write.
#[derive(Debug)]
pub struct Server {
    pool: Pool,
    poll: Poll,
    acceptors: Vec<Acceptor>,
    stop: Stop,
    state: State,
    /// Ends with the server.
    metrics: Option<Endpoint>,
}

/// An address that is listened on. Bind it before the pool is created: if the address is taken, no pool is
/// left behind.
#[derive(Debug)]
pub struct Listener {
    acceptors: Vec<Acceptor>,
    /// The first address; port 0 if there is none.
    local: SocketAddr,
    /// The first address where TLS is spoken.
    tls_local: Option<SocketAddr>,
    metrics: Option<Endpoint>,
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
        Ok(Listener { acceptors: vec![Acceptor::Tcp(inner)], local, tls_local: None, metrics: None })
    }

    /// Listens on an address. An IPv6 address does not take the port of IPv4 with it.
    fn bind_alone(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
        let bind = || -> io::Result<TcpListener> {
            if address.is_ipv4() {
                return TcpListener::bind(address);
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = net::socket_with(AddressFamily::INET6, SocketType::STREAM, flags, None)?;
            sockopt::set_ipv6_v6only(&socket, true)?;
            sockopt::set_socket_reuseaddr(&socket, true)?;
            net::bind(&socket, &address)?;
            net::listen(&socket, BACKLOG)?;
            Ok(TcpListener::from_std(socket.into()))
        };
        let bound = bind().and_then(|inner| inner.local_addr().map(|local| (inner, local)));
        bound.map_err(|source| Error::Listen { address, source })
    }

    /// Listens on all that is configured: addresses, and a socket of the file system.
    ///
    /// # Errors
    /// [`Error::Listen`] if the server cannot listen on one of the addresses, unless that is optional;
    /// [`Error::UnixSocket`] likewise. A socket on which no process listens any more is replaced.
    /// [`Error::Metrics`] and [`Error::MetricsPublic`] for the address of metrics, where probes learn from
    /// now on that the server is not ready.
    pub fn of(config: &Config) -> Result<Self, Error> {
        let local = SocketAddr::new(config.listen.ip(), 0);
        let mut listener = Listener { acceptors: Vec::new(), local, tls_local: None, metrics: None };
        if config.tcp {
            let first = listener.bind_all(config, config.listen.port(), Acceptor::Tcp)?;
            listener.local = first.unwrap_or(local);
        }
        if config.tls.port > 0 && config.has_addresses() {
            listener.tls_local = listener.bind_all(config, config.tls.port, Acceptor::Tls)?;
        }
        if let Some(path) = &config.unix_socket {
            let error = |source| Error::UnixSocket { path: path.clone(), source };
            listener.acceptors.push(listen_in_file_system(path, config.unix_socket_mode).map_err(error)?);
        }
        listener.metrics = config.metrics.map(|address| endpoint(config, address)).transpose()?;
        Ok(listener)
    }
}

impl Listener {
    /// Listens on all addresses, at one port; returns the first address.
    fn bind_all(
        &mut self,
        config: &Config,
        mut port: u16,
        kind: fn(TcpListener) -> Acceptor,
    ) -> Result<Option<SocketAddr>, Error> {
        let own = Bind { ip: config.listen.ip(), optional: false };
        let all = if config.bind.is_empty() { &[own][..] } else { &config.bind };
        let mut first = None;
        for bind in all {
            match Listener::bind_alone(SocketAddr::new(bind.ip, port)) {
                Err(_) if bind.optional => {}
                Err(error) => return Err(error),
                Ok((inner, local)) => {
                    port = first.get_or_insert(local).port();
                    self.acceptors.push(kind(inner));
                }
            }
        }
        Ok(first)
    }
}

/// Answers questions about metrics and health from now on.
fn endpoint(config: &Config, address: SocketAddr) -> Result<Endpoint, Error> {
    if !config.metrics_public && !address.ip().to_canonical().is_loopback() {
        return Err(Error::MetricsPublic { address });
    }
    Endpoint::bind(address, config.stuck_after).map_err(|source| Error::Metrics { address, source })
}

/// Listens on a socket of the file system, which gets its permissions before any client can connect.
fn listen_in_file_system(path: &Path, mode: Option<u32>) -> io::Result<Acceptor> {
    let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    let name = || Arc::from(path.to_string_lossy());
    let Some(mode) = mode else {
        return Ok(Acceptor::Unix(UnixListener::bind(path)?, name()));
    };
    // Nobody can connect to it under another name, in a folder that only this user may enter.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let hidden = folder.join(format!(".tembo-socket-{}", std::process::id()));
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700).create(&hidden)?;
    let bound = (|| {
        let listener = UnixListener::bind(hidden.join("s"))?;
        std::fs::set_permissions(hidden.join("s"), Permissions::from_mode(mode))?;
        if path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        std::fs::rename(hidden.join("s"), path)?;
        Ok(Acceptor::Unix(listener, name()))
    })();
    std::fs::remove_dir_all(&hidden)?;
    bound
}

impl Server {
    /// Listens on the configured address. Clients can connect from now on, and are served by [`Server::run`].
    ///
    /// Raises the process's limit of open files to what `config.max_clients` takes; if it may not, it lowers
    /// the number of clients instead.
    ///
    /// # Errors
    /// Those of [`Listener::of`] and of [`with_listener`](Self::with_listener).
    pub fn bind(config: Config, pool: Pool) -> Result<Self, Error> {
        let listener = Listener::of(&config)?;
        Server::with_listener(config, listener, pool)
    }

    /// As [`bind`](Self::bind), with an address that is listened on already; the configured one does not
    /// count.
    ///
    /// # Errors
    /// [`Error::Poll`] if the system has no event queue to give; [`Error::Users`] if the users are wrong;
    /// [`Error::Tls`] if the settings of TLS or their files are;
    /// [`Error::ClusterMode`] if the pool has keys and is not of the mode that `config.cluster` chooses.
    pub fn with_listener(mut config: Config, listener: Listener, pool: Pool) -> Result<Self, Error> {
        prepare(&pool, config.cluster).map_err(|error| match error {
            ModeError::Pool(error) => Error::Pool(error),
            error => Error::ClusterMode(error.to_string()),
        })?;
        let tls = Tls::of(&config.tls).map_err(Error::Tls)?;
        let Listener { mut acceptors, local, tls_local, metrics } = listener;
        let poll = Poll::new()?;
        acceptors.iter_mut().try_for_each(|acceptor| acceptor.register(poll.registry(), LISTENER))?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        config.max_clients = config.max_clients.min(clients_allowed(config.max_clients));
        let stop = Stop { requested: Arc::default(), waker };
        // The server compacts the pool itself, by its settings and between the turns of clients.
        pool.set_compact_unasked(false);
        config.metrics = metrics.as_ref().map(|endpoint| endpoint.address);
        let mut state = State::new(config, local, &pool);
        state.users = users_at_start(&state.config)?;
        state.tls = tls;
        state.tls_listen = tls_local;
        state.log_without_meaning();
        state.board = metrics.as_ref().map(Endpoint::board);
        Ok(Server { poll, acceptors, stop, state, pool, metrics })
    }

    /// The address that is listened on, with the port that the system chose if it was to choose. If TLS is
    /// spoken everywhere, the first address of that.
    pub fn local_addr(&self) -> SocketAddr {
        match self.state.tls_listen {
            Some(address) if self.state.listen.port() == 0 => address,
            _ => self.state.listen,
        }
    }

    /// The address where TLS is spoken, if there is one.
    pub fn tls_addr(&self) -> Option<SocketAddr> {
        self.state.tls_listen
    }

    /// The address of metrics, with the port that the system chose if it was to choose.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|endpoint| endpoint.address)
    }

    /// Whether a client may do something without a password.
    pub fn is_open(&self) -> bool {
        !self.state.users.ask_for_password()
    }

    /// The limit of the data, for another server that evicts its own data from the same pool. It follows
    /// CONFIG SET, and there is none before the server runs.
    pub fn eviction_limit(&self) -> EvictionLimit {
        self.state.eviction.limit.clone()
    }

    /// Registers a server of another protocol over the same pool: compaction yields to its clients, and the
    /// metrics include its figures.
    pub fn set_neighbour(&mut self, neighbour: impl Neighbour + 'static) {
        self.state.neighbour = Some(Arc::new(neighbour));
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
        EventLoop::new(&mut self.poll, &self.acceptors, &self.stop, executor).run()?;
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
