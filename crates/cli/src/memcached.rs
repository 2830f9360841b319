//! `tembo serve --memcached`: clients of memcached beside those of Redis.

use crate::address::listen_address;
use crate::causes::with_causes;
use crate::failure::{Failure, Outcome};
use crate::size::Size;
use clap::Args;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use tembo::Pool;
use tembo_memcached::{Accounts, Config, Error, Handle, LimitSource, Listener, MemoryLimit, Server};
use tembo_server::{Figure, Neighbour};

/// Bytes of a value that are left for an item's head.
const VALUE_BYTES_MAX: u64 = tembo::MAX_VALUE_BYTES - 32;

/// The options of `serve` for memcached.
#[derive(Debug, Args)]
pub(crate) struct MemcachedChoices {
    /// Serve memcached clients, too, at this address; port 0 takes a free one. Their items are a map of their
    /// own
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address)]
    memcached: Option<SocketAddr>,
    /// Serve only memcached clients that have an account in this file: up to 8 lines `name:password`
    #[arg(long, value_name = "FILE", requires = "memcached")]
    memcached_accounts: Option<PathBuf>,
    /// The longest value of an item [default: 1M]
    #[arg(long, value_name = "SIZE", requires = "memcached")]
    memcached_max_value: Option<Size>,
}

/// An address that is listened on.
pub(crate) struct Listening {
    config: Config,
    listener: Listener,
}

/// A server in a thread of its own.
pub(crate) struct Running {
    address: SocketAddr,
    handle: Handle,
    thread: JoinHandle<Result<(), Error>>,
}

impl MemcachedChoices {
    /// Listens, if that was asked for.
    pub(crate) fn listen(&self) -> Outcome<Option<Listening>> {
        let Some(address) = self.memcached else { return Ok(None) };
        let mut config = Config::default();
        config.listen = address;
        if let Some(file) = &self.memcached_accounts {
            config.accounts = Some(read_accounts(file)?);
        }
        if let Some(Size { bytes }) = self.memcached_max_value {
            if bytes > VALUE_BYTES_MAX {
                let why = format!("--memcached-max-value is at most {VALUE_BYTES_MAX} bytes");
                return Err(Failure::Usage(why));
            }
            config.max_value_bytes = bytes as usize;
        }
        let listener = Listener::bind(&config).map_err(cannot_serve)?;
        Ok(Some(Listening { config, listener }))
    }
}

fn read_accounts(file: &Path) -> Outcome<Accounts> {
    let cannot = |why: String| Failure::Usage(format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| cannot(error.to_string()))?;
    Accounts::parse(&text).map_err(cannot)
}

impl Listening {
    /// Serves clients in a thread. If that fails, the Redis server is stopped, whose limit of memory holds
    /// for items, too.
    pub(crate) fn start(self, pool: &Pool, redis: &mut tembo_server::Server) -> Outcome<Running> {
        let Listening { mut config, listener } = self;
        let (limit, other) = (redis.eviction_limit(), redis.handle());
        config.memory_limit = Some(LimitSource::new(move || {
            limit.get().map(|(bytes, only_with_deadline)| MemoryLimit { bytes, only_with_deadline })
        }));
        let mut server = Server::with_listener(config, listener, pool.clone()).map_err(cannot_serve)?;
        let (address, handle) = (server.local_addr(), server.handle());
        redis.set_neighbour(Watched(handle.clone()));
        let serve = move || {
            let outcome = server.run();
            other.shutdown();
            outcome
        };
        let thread = std::thread::Builder::new().name("memcached".to_owned()).spawn(serve);
        let thread = thread.map_err(Failure::during("starting the thread for memcached"))?;
        Ok(Running { address, handle, thread })
    }
}

/// The memcached server, as the Redis server sees its neighbour.
#[derive(Debug)]
struct Watched(Handle);

impl Neighbour for Watched {
    fn commands(&self) -> u64 {
        self.0.commands()
    }

    fn figures(&self) -> Vec<Figure> {
        let of = self.0.figures();
        let counter = |name, help, value| Figure { name, help, is_counter: true, value };
        let gauge = |name, help, value| Figure { name, help, is_counter: false, value };
        vec![
            gauge("tembo_memcached_items", "Items of memcached clients", of.items),
            gauge("tembo_memcached_clients", "Clients of memcached that are connected", of.clients),
            counter("tembo_memcached_commands", "Commands of memcached that were run", self.commands()),
            counter("tembo_memcached_hits", "Keys that were asked for and had an item", of.hits),
            counter("tembo_memcached_misses", "Keys that were asked for and had none", of.misses),
            counter("tembo_memcached_stored_items", "Items that were stored", of.stored_items),
            counter("tembo_memcached_evicted_items", "Items that were evicted", of.evicted_items),
            counter("tembo_memcached_expired_items", "Items that expired", of.expired_items),
            counter(
                "tembo_memcached_connections",
                "Connections of memcached that were served",
                of.connections,
            ),
            counter(
                "tembo_memcached_rejected_connections",
                "Connections of memcached that were refused",
                of.rejected_connections,
            ),
            counter(
                "tembo_memcached_failed_authentications",
                "Clients of memcached that gave a wrong account",
                of.failed_authentications,
            ),
            counter("tembo_memcached_received_bytes", "Bytes from memcached clients", of.received_bytes),
            counter("tembo_memcached_sent_bytes", "Bytes to memcached clients", of.sent_bytes),
        ]
    }
}

impl Running {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops the server, or tells why it stopped by itself.
    pub(crate) fn stop(self) -> Outcome {
        self.handle.shutdown();
        match self.thread.join() {
            Ok(outcome) => outcome.map_err(cannot_serve),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn cannot_serve(error: Error) -> Failure {
    match error {
        Error::Pool(error) => error.into(),
        Error::Listen { address, source } if source.kind() == ErrorKind::AddrInUse => {
            Failure::Failed(format!(
                "{address} is in use by another program; stop that, or choose another address with --memcached"
            ))
        }
        Error::Open { address } => Failure::Usage(format!(
            "{address} can be reached from other machines; --memcached-accounts FILE says who may use it"
        )),
        other => Failure::Failed(with_causes(&other)),
    }
}
