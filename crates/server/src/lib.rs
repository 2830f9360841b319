//! A Redis-compatible server whose only copy of the data is a Tembo pool.
//!
//! ```text
//!   clients ===TCP=== event_loop      turns: receive, run, commit once, send
//!                     |- conn, buffer, chunk, clients, session, queue
//!                     |- held            replies that wait for the device
//!                     |- log, foreign_input    messages to the operator; input of other protocols
//!                     |- tls/          encryption of a connection, between its socket and its buffers
//!                     acl/            users and what they may do; permission: in the path of commands
//!                     executor        one command after another; what is acknowledged is durable
//!                     script/         EVAL: a script in one batch; BUSY for the others
//!                     transaction     EXEC: the commands since MULTI in one batch
//!                     replica/        the stream of a master
//!                     copier          copies of all data in steps, for replicas and for saving
//!                     master/         replicas of this server; effects: what they are told
//!                     backup/         a copy and the stream into files, and back
//!                     cluster/        slots and topology: MOVED, CLUSTERX; migration: slots move
//!                     metrics/        figures for Prometheus, by a thread of its own
//!                     waiting         clients that wait for a key, and get its value with a commit
//!                     |- commands/    a file per family; the command table
//!                     |- pubsub, delivery, tracking    messages, after the commit that they depend on
//!                     keyspace/       sixteen databases with expiry, on maps of the pool
//!                     tembo           one batch, one fence
//! ```
//!
//! There is no log, no snapshot and nothing to load: a server that is killed is followed by one that opens
//! the same pool and has every acknowledged write. `INFO tembo` says which failures an acknowledged write
//! survives.
//!
//! ```no_run
//! use tembo_server::{Config, Server};
//!
//! let pool = tembo::Options::new().create(true).open("tembo.pool")?;
//! let mut server = Server::bind(Config::default(), pool)?;
//! println!("listening on {}", server.local_addr());
//! server.run()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Differences from Redis 7.0
//!
//! - **Scans.** SCAN walks the keys in their order; its cursors are places between two keys, which hold for
//!   ever. A call may look at more keys than COUNT says.
//! - **TEMBO.COUNT, TEMBO.UNLINK, TEMBO.ONCE** are not in Redis: keys by their beginnings, and commands that
//!   run once however often they are sent.
//! - **TEMBO.UNFLUSH** restores the data that a flush or a master's copy replaced, if `flush-grace` retained
//!   them.
//! - **KEYS** on a large database is not a snapshot: other clients are served meanwhile.
//! - **Memory.** A full pool refuses what needs room with Redis's `-OOM`, and that may be EXPIRE, too, since
//!   a deadline is stored with the value. Keys are evicted under a `maxmemory-policy` only.
//! - **A failed commit** is answered with `-MISCONF` (`-OOM` if the pool was full) to each command that was
//!   part of it, and nothing of them happened. One DEL of tens of thousands of keys can end so in a full
//!   pool; several do not. `-ERR internal error` says that there is a bug, and that the data is not to blame.
//! - **EXEC** is one commit: all of its commands are durable or none, also after a crash.
//! - **Hashes and sets** beyond 512 bytes have no order of insertion.
//! - **Large results** (COPY, the STORE commands) are written with several commits, of which only the last
//!   one shows them. Within EXEC there is one, whose memory grows with them.
//! - **Access times and counts** are kept in memory, approximately, under a policy of the LRU or LFU kind. A
//!   restart forgets them. Without such a policy, OBJECT IDLETIME and FREQ fail.
//! - **Bits** that are set to what they are, and elements that change no register of a HyperLogLog, leave
//!   OBJECT ENCODING as it is. A command on a corrupt HyperLogLog changes nothing.
//! - **INCRBYFLOAT** adds decimal fractions exactly, without the rounding of 80-bit floats.
//! - **Fragmentation.** The server frees the space between records by itself while it runs; MEMORY PURGE
//!   begins that at once, and answers before it is done.
//! - **Users** are in files, as in Redis, and not in the pool. Rules may name commands of Redis that are not
//!   here; TEMBO.COUNT and TEMBO.UNLINK need all keys that begin so.
//! - **Keys** have at most 65528 bytes. Values have at most 512 MiB less their header of one or nine bytes.
//! - **Messages** leave after the commit that they depend on. Those of client-side caching leave also if it
//!   fails, and SWAPDB invalidates all keys.
//! - **BGSAVE** saves in the foreground, once the clients of its turn are answered.
//! - **Replication** keeps the stream in the pool, from the first replica on, so that a restart of either
//!   side is a partial resynchronisation. A replica's expired keys are removed by its master; DBSIZE counts
//!   them until then.
//! - **A cluster's topology** is pushed by CLUSTERX SETNODES: nodes do not talk to each other about it, and
//!   PUBLISH reaches the subscribers of this node and its replicas only. A key has at most 65526 bytes there.
//! - **TLS** is spoken in the versions 1.2 and 1.3; keys have no passphrase, and `tls-port` is as it was at
//!   the start. A handshake has a time.
//! - **At the limit of clients** those that have not authenticated, or have sent nothing, make room for
//!   others.
//! - **Clients' memory** has a limit by default ([`Config::client_memory`]).
//!
//! # Events
//!
//! Messages to the operator are events of the `tracing` crate with target `tembo_server`, up to the level
//! that [`Config::log_level`] and CONFIG SET choose: warning, notice, verbose and debug are WARN, INFO,
//! DEBUG and TRACE, with the field `kind`. They hold no keys and no values.
#![forbid(unsafe_code)]

mod acl;
mod acl_file;
mod address;
mod admission;
mod backup;
mod buffer;
mod chunk;
mod client_ref;
mod clients;
mod clock;
mod cluster;
mod command_stats;
mod commands;
mod compactor;
mod config;
mod config_file;
mod conn;
mod copier;
mod copy_steps;
#[cfg(test)]
mod crash_tests;
mod deferred;
mod delivery;
mod delivery_service;
mod directives;
mod door;
mod dump_file;
mod effects;
mod error;
mod event_loop;
mod eviction;
mod executor;
mod export;
mod fault;
mod foreign_directives;
mod foreign_input;
mod glob;
mod held;
mod idle;
mod import;
mod info;
mod invalidations;
mod keyspace;
mod kinds;
mod list_ends;
mod log;
mod machine;
mod master;
mod message;
mod metrics;
mod monitor;
mod neighbour;
mod password;
mod permission;
mod pubsub;
mod queue;
mod quotation;
mod random;
mod replica;
mod retry;
mod saving;
mod script;
mod server;
mod service_manager;
mod session;
mod startup;
mod state;
mod stop;
mod subscriptions;
mod supervision;
mod tls;
mod token;
mod tracking;
mod transaction;
mod version;
mod wait_service;
mod waiting;

pub use backup::{
    BackupError, BackupKind, BackupSummary, Restored, Restoring, Source, SourcePlace, StreamPlace,
    expect_chain, restore, summary_of_end, take, verify,
};
pub use config::{
    Bind, ClientMemory, Config, DebugCommands, Encodings, LogFormat, LogLevel, OutputLimit, OutputLimits,
    Supervised,
};
pub use directives::ConfigError;
pub use error::Error;
pub use eviction::memory::EvictionLimit;
pub use export::{ExportError, Exported, export};
pub use import::{ImportError, Imported, LeftOut, Reason, Survey, import, survey};
pub use keyspace::check::check;
pub use keyspace::check_report::{CheckError, CheckReport, CollectionsReport, DatabaseReport};
pub use keyspace::format::{
    CLUSTER as CLUSTER_MAP, COLLECTIONS as COLLECTIONS_MAP, REPLICATION as REPLICATION_MAP,
};
pub use keyspace::history::Master;
pub use keyspace::key_count::count_keys;
pub use keyspace::placement::counting_of;
pub use kinds::KindCounts;
pub use neighbour::{Figure, Neighbour};
pub use password::Password;
pub use replica::ReplicaSettings;
pub use server::{Handle, Listener, Server};
pub use tembo_wire::Limits;
