//! `tembo serve`: a pool for Redis clients.

use crate::args::Serve;
use crate::causes::with_causes;
use crate::failure::{Failure, Outcome};
use crate::maps::note_unknown;
use crate::memcached::Running;
use crate::report::{Lines, print};
use crate::size::human_bytes;
use crate::unclean;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tembo::store::remote::{ServeOptions, Serving, socket_of};
use tembo::{Domain, Pool};
use tembo_server::{Config, Handle, Listener, LogFormat, Password, Server};

/// Length of a new pool, if it may become that long.
const INITIAL_BYTES: u64 = 64 << 20;

/// Serves until a signal or a client stops the server.
pub(crate) fn run(arguments: &Serve) -> Outcome {
    let begun = Instant::now();
    let config = configure(arguments)?;
    let format = config.log_format;
    crate::log::start(format);
    // The address is bound first: a pool is made only for a server that can be reached.
    let listener = Listener::of(&config).map_err(cannot_serve)?;
    let memcached = arguments.memcached.listen()?;
    let path = pool_path(arguments, &config);
    let existed = path.symlink_metadata().is_ok();
    let pool = open(arguments, &config, &path)?;
    let is_reachable = !config.listen.ip().to_canonical().is_loopback();
    let is_protected = config.protected_mode;
    let mut server = Server::with_listener(config, listener, pool.clone()).map_err(cannot_serve)?;
    let warning = (is_reachable && server.is_open()).then_some(match is_protected {
        true => "Clients of other machines are turned away: there is no password.",
        false => "Whoever can reach this address can read and change everything: there is no password.",
    });
    let (serving, stores) = serve_stores(arguments, &path, &pool)?;
    let memcached = memcached.map(|listening| listening.start(&pool, &mut server)).transpose()?;
    stop_on_signals(server.handle())?;
    let others = Others { warning, stores, memcached: memcached.as_ref().map(Running::address) };
    let greeting = greeting(&path, &others, existed, &pool, &server, begun.elapsed());
    note_unknown(&pool)?;
    match print(&greeting) {
        // The output has no reader; clients are served all the same.
        Err(Failure::OutputClosed) => {}
        printed => printed?,
    }
    let outcome = server.run().map_err(cannot_serve);
    memcached.map_or(Ok(()), Running::stop)?;
    outcome?;
    drop(serving);
    match format {
        LogFormat::Text => eprintln!("tembo: stopped; every acknowledged write is in {}", path.display()),
        LogFormat::Json => tracing::info!("stopped; every acknowledged write is in {}", path.display()),
    }
    Ok(())
}

/// The configuration file's settings, and those of the command line, which come first.
fn configure(arguments: &Serve) -> Outcome<Config> {
    let mut config = Config::default();
    if let Some(file) = &arguments.config {
        config.read_file(file).map_err(|error| Failure::Usage(error.to_string()))?;
    }
    if let Some(address) = arguments.listen {
        (config.listen, config.tcp) = (address, true);
        config.bind.clear();
    }
    if let Some(path) = &arguments.unixsocket {
        (config.unix_socket, config.unix_socket_mode) = (Some(path.clone()), arguments.unixsocketperm);
    }
    config.protected_mode = arguments.protected_mode.unwrap_or(config.protected_mode);
    config.log_level = arguments.log_level.unwrap_or(config.log_level);
    if let Some(clients) = arguments.maxclients {
        config.max_clients = usize::try_from(clients).unwrap_or(usize::MAX);
    }
    if let Some(file) = &arguments.aclfile {
        config.acl_file = Some(file.clone());
    }
    if let Some(password) = &arguments.requirepass {
        config.password = Some(password.clone());
    }
    if let Some(file) = &arguments.requirepass_file {
        config.password = Some(read_password(file)?);
    }
    arguments.tls.apply(&mut config)?;
    arguments.observation.apply(&mut config);
    config.check_users().map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(config)
}

fn read_password(file: &Path) -> Outcome<Password> {
    let cannot = |why: String| Failure::Usage(format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| cannot(error.to_string()))?;
    let line = text.lines().next().unwrap_or_default();
    Password::new(line).ok_or_else(|| cannot("its first line has no password".to_owned()))
}

/// The pool: as the command line says, or in the folder of the configuration.
fn pool_path(arguments: &Serve, config: &Config) -> PathBuf {
    match (&arguments.pool, &config.dir) {
        (None, Some(folder)) => folder.join("tembo.pool"),
        _ => arguments.pool().to_owned(),
    }
}

fn open(arguments: &Serve, config: &Config, path: &Path) -> Outcome<Pool> {
    let mut options = arguments.choices.options().create(true);
    if let Some(count) = arguments.root_count {
        options = options.root_count(count);
    }
    if let Some(max) = arguments.max_bytes.map(|max| max.bytes).or(config.pool_bytes_max()) {
        options = options.max_bytes(max).initial_bytes(INITIAL_BYTES.min(max));
    }
    if let Some(min) = arguments.min_bytes {
        options = options.min_bytes(min.bytes);
    }
    unclean::open(&options, path)
}

/// Serves the stores of the pool if that was asked for; a line about them for the greeting, unless there is
/// nothing to say.
fn serve_stores(arguments: &Serve, path: &Path, pool: &Pool) -> Outcome<(Option<Serving>, Option<String>)> {
    let names = pool.store_names()?.join(", ");
    if !arguments.stores {
        let advice = || format!("{names}; not served: --stores serves them to other processes of this user");
        return Ok((None, (!names.is_empty()).then(advice)));
    }
    let socket = socket_of(path);
    let mut options = ServeOptions::default();
    options.collects = true;
    let serving = pool.serve_stores(&socket, options);
    let serving = serving.map_err(|error| Failure::from(error).with(&format!(": {}", socket.display())))?;
    let there = if names.is_empty() { "none yet" } else { &names };
    Ok((Some(serving), Some(format!("{there}; served at {}", socket.display()))))
}

fn cannot_serve(error: tembo_server::Error) -> Failure {
    match error {
        tembo_server::Error::Pool(error) => error.into(),
        tembo_server::Error::Listen { address, source } if source.kind() == ErrorKind::AddrInUse => {
            Failure::Failed(format!(
                "{address} is in use by another program; stop that, or choose another address with --listen"
            ))
        }
        tembo_server::Error::Metrics { address, source } if source.kind() == ErrorKind::AddrInUse => {
            Failure::Failed(format!(
                "{address} is in use by another program; stop that, or choose another address with --metrics"
            ))
        }
        tembo_server::Error::MetricsPublic { address } => Failure::Usage(format!(
            "{address} can be reached from other machines, and metrics have no password; --metrics-public lets them be read there"
        )),
        other => Failure::Failed(with_causes(&other)),
    }
}

/// The first SIGINT or SIGTERM lets the server finish its turn; a second one ends the process at once.
fn stop_on_signals(handle: Handle) -> Outcome {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::during("catching signals"))?;
    let wait = move || {
        let mut stopping = false;
        for signal in signals.forever() {
            if stopping {
                // Ends the process; if it cannot, the server is stopping anyway.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            handle.shutdown();
            stopping = true;
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(wait);
    thread.map(drop).map_err(Failure::during("starting the thread for signals"))
}

/// Lines of the greeting that are not about the Redis server.
struct Others<'g> {
    warning: Option<&'g str>,
    stores: Option<String>,
    memcached: Option<SocketAddr>,
}

/// The first output: the pool, the failures that a write survives, and how to stop the server.
fn greeting(
    path: &Path,
    others: &Others<'_>,
    existed: bool,
    pool: &Pool,
    server: &Server,
    took: Duration,
) -> String {
    let stats = pool.stats();
    let mut lines = Lines::default();
    lines.add("listening", server.local_addr());
    if let Some(address) = server.tls_addr() {
        lines.add("tls", address);
    }
    lines
        .add("pool", format!("{} ({})", path.display(), how_opened(existed, pool)))
        .add("size", size(&stats))
        .add("durability", durability(pool));
    if let Some(address) = others.memcached {
        lines.add("memcached", address);
    }
    if let Some(address) = server.metrics_addr() {
        lines.add("metrics", format!("http://{address}/metrics"));
    }
    if let Some(warning) = others.warning {
        lines.add("", warning);
    }
    if let Some(stores) = &others.stores {
        lines.add("stores", stores);
    }
    if let Some(instruction) = pool.flush_instruction() {
        lines.add("flush", instruction);
    }
    lines.add("", format!("An acknowledged write survives {}.", pool.survives()));
    if matches!(pool.domain(), Domain::PageCache | Domain::Emulated) {
        lines.add("", "A power failure can cost the whole pool, and not the last writes only; --durability relaxed loses a second at most, and journaled nothing.");
    }
    if pool.last_ending().is_unclean() {
        lines.add(
            "last use",
            format!(
                "{}; its structure was proved just now, its values were not",
                pool.last_ending().meaning()
            ),
        );
    }
    lines.add("stop", "Ctrl-C, SIGTERM or the SHUTDOWN command; kill -9 loses no acknowledged write");
    let ready_ms = took.as_secs_f64() * 1e3;
    format!("tembo {}, ready in {ready_ms:.1} ms\n{}", env!("CARGO_PKG_VERSION"), lines.text())
}

fn size(stats: &tembo::Stats) -> String {
    let journal = match stats.journal_bytes {
        0 => String::new(),
        bytes => format!(" and a journal of up to {}", human_bytes(bytes)),
    };
    let data = human_bytes(stats.pool_bytes.saturating_sub(stats.journal_bytes));
    format!("{data}{journal}, may grow to {}", human_bytes(stats.max_bytes))
}

/// The domain, and how far it may be behind the device.
fn durability(pool: &Pool) -> String {
    match pool.journal_stats().and_then(|stats| stats.interval) {
        Some(interval) => format!("{}, at most {} ms", pool.domain(), interval.as_millis()),
        None => pool.domain().to_string(),
    }
}

fn how_opened(existed: bool, pool: &Pool) -> String {
    let recovery = pool.recovery();
    match recovery.records_replayed + recovery.records_discarded {
        _ if !existed => "created".to_owned(),
        0 => "opened".to_owned(),
        _ => format!(
            "opened after a crash; commits completed: {}, discarded before acknowledgement: {}",
            recovery.records_replayed, recovery.records_discarded
        ),
    }
}
