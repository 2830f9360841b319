//! The arguments of the command line.

mod backup;
mod redis_file;
mod store;

pub(crate) use backup::{Backup, Restore, Verify};
pub(crate) use redis_file::{Export, Import};
pub(crate) use store::{
    Encoding, Place, Range, Reading, SnapshotChoice, Store, StoreAction, StoreSnapshot, Writing,
};

use crate::address::listen_address;
use crate::memcached::MemcachedChoices;
use crate::observation::ObservationChoices;
use crate::size::Size;
use crate::tls::TlsChoices;
use crate::top::Top;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{ArgAction, Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tembo::{Durability, FlushInstruction, Options};
use tembo_server::{LogLevel, Password};

const EXAMPLES: &str = "\
Examples:
  tembo serve                                    serve ./tembo.pool to Redis clients on port 6379
  tembo serve --pool /mnt/pmem/a.pool --listen 127.0.0.1:7000
  tembo check a.pool && tembo dump a.pool | gzip > a.jsonl.gz
  gunzip < a.jsonl.gz | tembo load b.pool
  tembo import dump.rdb --pool c.pool            take over the data of a Redis
  tembo snapshot keep a.pool stock monday
  tembo maps a.pool && tembo drop a.pool stock
  tembo store scan a.pool accounts --at yesterday
  tembo backup 127.0.0.1:6379 --out monday.backup
  tembo verify monday.backup && tembo restore monday.backup new.pool
  tembo top 127.0.0.1:6379
  tembo bench

Exit codes: 0 done, 1 failed, 2 wrong usage; `tembo check --help` has more.";

/// A store whose only copy of the data is a memory-mapped pool.
#[derive(Debug, Parser)]
#[command(name = "tembo", version, max_term_width = 100, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Arguments {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a pool to Redis clients
    Serve(Serve),
    /// Describe a pool and its contents
    Info(Info),
    /// Prove that a pool is undamaged, without changing it
    Check(Check),
    /// Write a pool's contents as text
    Dump(Dump),
    /// Fill a pool from a dump
    Load(Load),
    /// Fill the server's databases from a file of Redis
    Import(Import),
    /// Write the server's databases as a file of Redis
    Export(Export),
    /// Take a backup of a running server
    Backup(Box<Backup>),
    /// Prove that backups are whole, and fit together
    Verify(Verify),
    /// Make a pool of backups
    Restore(Restore),
    /// Give the space between the records of a pool back
    Compact(Compact),
    /// List the maps of a pool
    Maps(Maps),
    /// Drop maps and stores of a pool
    Drop(DropMaps),
    /// List, keep, drop and roll back to snapshots of maps that keep versions
    Snapshot(Snapshot),
    /// Read, change, back up and restore a transactional store
    Store(Store),
    /// Measure this machine, or run the workload that crash tests use
    Bench(Bench),
    /// Watch a running server
    Top(Top),
}

impl Command {
    /// The pool that it is about, if there is one.
    pub(crate) fn pool(&self) -> Option<&Path> {
        match self {
            Command::Serve(serve) => Some(serve.pool()),
            Command::Info(info) => Some(&info.pool),
            Command::Check(check) => Some(&check.pool),
            Command::Compact(compact) => Some(&compact.pool),
            Command::Maps(maps) => Some(&maps.pool),
            Command::Drop(drop) => Some(&drop.pool),
            Command::Dump(dump) => Some(&dump.pool),
            Command::Load(load) => Some(&load.pool),
            Command::Import(import) => Some(&import.pool),
            Command::Export(export) => Some(&export.pool),
            Command::Snapshot(snapshot) => Some(match &snapshot.action {
                SnapshotAction::List { pool, .. } => pool,
                SnapshotAction::Keep(named)
                | SnapshotAction::Drop(named)
                | SnapshotAction::Rollback(named) => &named.pool,
            }),
            Command::Store(store) => Some(store.action.pool()),
            Command::Bench(bench) => bench.pool.as_deref(),
            Command::Restore(restore) => Some(&restore.pool),
            Command::Top(_) | Command::Backup(_) | Command::Verify(_) => None,
        }
    }

    /// Whether the command was asked for JSON. It prints failures as JSON then, too.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            Command::Info(info) => info.json,
            Command::Check(check) => check.json,
            Command::Compact(compact) => compact.json,
            Command::Maps(maps) => maps.json,
            Command::Snapshot(snapshot) => matches!(snapshot.action, SnapshotAction::List { json: true, .. }),
            Command::Store(store) => store.action.wants_json(),
            Command::Bench(bench) => bench.json,
            Command::Serve(_) | Command::Drop(_) | Command::Dump(_) | Command::Load(_) => false,
            Command::Import(_) | Command::Export(_) | Command::Top(_) => false,
            Command::Backup(_) | Command::Restore(_) => false,
            Command::Verify(verify) => verify.json,
        }
    }
}

/// How a pool is opened.
#[derive(Debug, Args)]
pub(crate) struct PoolChoices {
    /// Which failures an acknowledged write survives; `auto` is `dax` on persistent memory, `relaxed` on a
    /// disk, and `page-cache` in a file system in memory; `relaxed=200ms` names the interval, which is a
    /// second otherwise
    #[arg(long, value_name = "DOMAIN", default_value = "auto", value_parser = durability())]
    pub(crate) durability: Durability,
    /// Bytes of the journal that the pool gets when it is first opened with `relaxed` or `journaled`
    /// [default: 4M, which grow to 256M, or to an eighth of --max-bytes if that is less]
    #[arg(long, value_name = "BYTES")]
    pub(crate) journal_bytes: Option<Size>,
    /// Private memory beyond which an open pool with a journal drops copies of pages that its file has
    /// [default: a sixth of the pool and at least 768M, but at most a quarter of the memory that the process
    /// may use]
    #[arg(long, value_name = "BYTES")]
    pub(crate) private_bytes_max: Option<Size>,
    /// Write cache lines back with this instruction, even if the processor does not report it (also:
    /// TEMBO_FLUSH)
    #[arg(long, value_name = "INSTRUCTION", value_parser = flush_instruction())]
    pub(crate) flush: Option<FlushInstruction>,
    /// Write large values through the caches, not past them (also: TEMBO_NON_TEMPORAL=0)
    #[arg(long)]
    pub(crate) no_non_temporal: bool,
    /// Map every page when the pool is opened or grows; opening takes longer, and there are no page faults
    /// later
    #[arg(long)]
    pub(crate) prefault: bool,
    /// Keep a pool on tmpfs in huge pages; large pools are read faster, and grow more slowly in some virtual
    /// machines
    #[arg(long)]
    pub(crate) huge_pages: bool,
    /// Use a pool that was open when the machine stopped, or was copied meanwhile: it is checked first, which
    /// proves its structure and not its values
    #[arg(long)]
    pub(crate) accept_unclean: bool,
}

impl PoolChoices {
    /// The library's options for these choices.
    pub(crate) fn options(&self) -> Options {
        let mut options = Options::new()
            .durability(self.durability)
            .prefault(self.prefault)
            .huge_pages(self.huge_pages)
            .accept_unclean(self.accept_unclean);
        if let Some(Size { bytes }) = self.journal_bytes {
            options = options.journal_bytes(bytes);
        }
        if let Some(Size { bytes }) = self.private_bytes_max {
            options = options.private_bytes_max(bytes);
        }
        if let Some(instruction) = self.flush {
            options = options.flush_instruction(instruction);
        }
        if self.no_non_temporal {
            options = options.non_temporal(false);
        }
        options
    }
}

/// `tembo serve`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo serve
  tembo serve --listen 127.0.0.1:7000 --pool /mnt/pmem/a.pool --durability dax
  tembo serve --listen 10.0.0.5:6379 --requirepass-file /etc/tembo/password
  tembo serve --config /etc/redis/redis.conf --pool a.pool
  tembo serve --unixsocket /run/tembo.sock --unixsocketperm 770
  tembo serve --durability synced --max-bytes 8G
  tembo serve --pool a.pool --stores
  tembo serve --memcached 127.0.0.1:11211
  tembo serve --tls-port 6380 --tls-cert-file a.pem --tls-key-file a.key --tls-ca-cert-file ca.pem
  tembo serve --metrics 127.0.0.1:9122

The server acknowledges a write when it is durable, and prints at its start which failures that survives. \
On a disk, by default, a power failure costs the last second at most. Stop the server with \
Ctrl-C, SIGTERM or the SHUTDOWN command. After kill -9, too, every acknowledged write is there.")]
pub(crate) struct Serve {
    /// A file with Redis's directives; options of this command line come before it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address and port to listen on; port 0 takes a free one [default: 127.0.0.1:6379]
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// A socket of the file system to listen on, too
    #[arg(long, value_name = "PATH")]
    pub(crate) unixsocket: Option<PathBuf>,
    /// The permissions of that socket, in octal
    #[arg(long, value_name = "MODE", value_parser = socket_mode, requires = "unixsocket")]
    pub(crate) unixsocketperm: Option<u32>,
    /// The pool; created if absent [default: ./tembo.pool, or tembo.pool in the `dir` of the configuration]
    #[arg(long, value_name = "PATH")]
    pub(crate) pool: Option<PathBuf>,
    /// Serve the pool's stores, too, to other processes of this user and of root, at a socket beside the
    /// pool: its path and `.sock`
    #[arg(long)]
    pub(crate) stores: bool,
    #[command(flatten)]
    pub(crate) tls: Box<TlsChoices>,
    #[command(flatten)]
    pub(crate) memcached: MemcachedChoices,
    #[command(flatten)]
    pub(crate) observation: ObservationChoices,
    #[command(flatten)]
    pub(crate) choices: PoolChoices,
    /// Do not let the pool grow beyond this; a full pool refuses writes, and still reads and deletes
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_bytes: Option<Size>,
    /// Do not cut the pool's file below this length when its end is free [default: that of a new pool]
    #[arg(long, value_name = "SIZE")]
    pub(crate) min_bytes: Option<Size>,
    /// How many maps a new pool has names for, at most 4096 [default: 128]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) root_count: Option<u32>,
    /// Most clients at a time [default: 10000]
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub(crate) maxclients: Option<u64>,
    /// Ask clients for this password. Others on this machine may see it in the list of processes:
    /// --requirepass-file and --config keep it from them
    #[arg(long, value_name = "PASSWORD", value_parser = password, conflicts_with = "requirepass_file")]
    pub(crate) requirepass: Option<Password>,
    /// Ask clients for the password in this file: its first line
    #[arg(long, value_name = "FILE")]
    pub(crate) requirepass_file: Option<PathBuf>,
    /// Take the users from this file, which ACL LOAD reads again and ACL SAVE writes
    #[arg(long, value_name = "FILE")]
    pub(crate) aclfile: Option<PathBuf>,
    /// As long as there is no password, turn clients of other machines away [default: yes]
    #[arg(long, value_name = "yes|no", value_parser = yes_or_no(), action = ArgAction::Set)]
    pub(crate) protected_mode: Option<bool>,
    /// Log messages of this importance and above to standard error [default: notice]
    #[arg(long, value_name = "LEVEL", value_parser = log_level())]
    pub(crate) log_level: Option<LogLevel>,
}

impl Serve {
    /// The pool, as far as the command line says it.
    pub(crate) fn pool(&self) -> &Path {
        self.pool.as_deref().unwrap_or(Path::new("./tembo.pool"))
    }
}

fn password(text: &str) -> Result<Password, String> {
    Password::new(text).ok_or_else(|| "a password is not empty".to_owned())
}

fn socket_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|&mode| mode <= 0o777);
    mode.ok_or_else(|| "expected an octal number up to 777".to_owned())
}

/// `tembo info`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo info a.pool
  tembo info a.pool --json | jq .maps

Reads no entries and never writes to the pool.")]
pub(crate) struct Info {
    /// The pool
    pub(crate) pool: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Say how the space is used, by structure and by block size; reads the whole pool
    #[arg(long)]
    pub(crate) space: bool,
}

/// `tembo check`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo check a.pool
  tembo check a.pool --snapshot yesterday
  tembo check image-17 --expect-seeded 42 --seed 7

Reads the whole pool and never writes to it. The message says what is wrong, and at which offset. \
A pool that was open when the machine stopped is checked like any other: its structure is proved then, and its \
values are not.

With --snapshot it reads one snapshot of a store instead, and looks each key up; also where another process has the \
pool open and serves its stores.

Exit codes:
  0  undamaged
  1  damaged, or not what --expect-seeded asks for
  2  wrong usage
  3  there is no pool: no file, or a file of another kind
  4  another process has the pool open
  5  the check could not be finished, for another reason
  6  the pool holds something that this version does not know

With --expect-seeded N the pool must hold what N operations of `tembo bench --seeded` made, or N + 1: the \
last operation may be durable although its line was not printed.")]
pub(crate) struct Check {
    /// The pool, or an image of one
    pub(crate) pool: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Expect the state after this many acknowledged operations of the seeded workload
    #[arg(long, value_name = "N")]
    pub(crate) expect_seeded: Option<u64>,
    /// The workload's seed
    #[arg(long, value_name = "S", default_value_t = 0, requires = "expect_seeded")]
    pub(crate) seed: u64,
    /// Check this snapshot of a store, or the current one, and nothing else
    #[arg(
        long,
        value_name = "SNAPSHOT",
        num_args = 0..=1,
        default_missing_value = "0s ago",
        conflicts_with = "expect_seeded"
    )]
    pub(crate) snapshot: Option<SnapshotChoice>,
    /// The store of the snapshot; may be left out where the pool has one
    #[arg(long, value_name = "NAME", requires = "snapshot")]
    pub(crate) store: Option<String>,
}

/// `tembo maps`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo maps a.pool
  tembo maps a.pool --json | jq -r '.[].name'

One line for each name: map, map with versions, hash table, fixed map or heap; or what it is that this program does not know. \
`tembo info` says how many entries they have. A pool has names for as many maps as --root-count of `serve` or `load` said, \
or 128.")]
pub(crate) struct Maps {
    /// The pool
    pub(crate) pool: PathBuf,
    /// Print JSON: an array with an object for each name
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tembo compact`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo compact a.pool
  tembo compact a.pool --json | jq .freed_bytes

Removed records leave holes that serve only records of about their length. This moves the records and nodes \
of maps without versions together, so that the holes become space for everything, and gives runs of at least \
1 MiB back to the file system; the file stays as long as it is. If it is interrupted, nothing is lost. It \
works in a full pool. The pool must not be open elsewhere: a server compacts its pool by itself.")]
pub(crate) struct Compact {
    /// The pool
    pub(crate) pool: PathBuf,
    /// Leave the pool as it is, and write everything in it into a new, dense one
    #[arg(long, value_name = "NEW", conflicts_with = "min_bytes")]
    pub(crate) into: Option<PathBuf>,
    /// Do not cut the file below this length [default: cut it to what is in use]
    #[arg(long, value_name = "SIZE")]
    pub(crate) min_bytes: Option<Size>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Which failures the change survives
    #[arg(long, value_name = "DOMAIN", default_value = "auto", value_parser = durability())]
    pub(crate) durability: Durability,
}

/// `tembo drop`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo drop a.pool stock
  tembo drop a.pool stock sessions

Drops maps of any kind and stores, with their snapshots, for good: there is no way back but a copy of the \
file. A map or store is gone at once, and also after a crash. Its space is then given back in small steps; \
if that is interrupted, programs that write to the pool, and the next drop, go on with it. It works in a \
full pool. The pool must not be open elsewhere. Programs older than this command refuse the pool \
afterwards.")]
pub(crate) struct DropMaps {
    /// The pool
    pub(crate) pool: PathBuf,
    /// The maps and stores
    #[arg(required = true, value_name = "NAME")]
    pub(crate) maps: Vec<String>,
    /// Which failures the change survives
    #[arg(long, value_name = "DOMAIN", default_value = "auto", value_parser = durability())]
    pub(crate) durability: Durability,
}

/// `tembo dump`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo dump a.pool > a.jsonl
  tembo dump a.pool | jq -r 'select(.key) | .key'
  diff <(tembo dump a.pool) <(tembo dump b.pool)

A dump has one JSON object per line, maps in the order of their names and entries in the order of their keys. \
Equal maps give equal dumps; hash tables do not, since each has an order of its own. Snapshots and heaps are not \
in a dump. Bytes that are not plain text are written as {\"base64\": ...}. The last line has the counts and a checksum.

A dump that ends early is no dump: the command fails, and ends by SIGPIPE if its reader went away. \
With --output the file appears when the dump is whole.

A dump of a pool with maps of a newer Tembo is refused, and the message names them; --skip-unknown leaves them out, and \
the dump has a line for each.")]
pub(crate) struct Dump {
    /// The pool
    pub(crate) pool: PathBuf,
    /// Write to this file, which must not exist, instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Leave out maps that this program does not know, and say so in the dump
    #[arg(long)]
    pub(crate) skip_unknown: bool,
    /// Dump a pool that was open when the machine stopped, or was copied meanwhile: it is checked first,
    /// which proves its structure and not its values
    #[arg(long)]
    pub(crate) accept_unclean: bool,
}

/// `tembo load`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo load b.pool < a.jsonl
  tembo load b.pool --input a.jsonl
  tembo load b.pool --merge < more.jsonl

The pool appears when everything is in it. A load that fails or is interrupted leaves nothing behind.

With --merge the pool may exist, and entries of the dump replace those with the same keys. A merge that fails or \
is interrupted leaves a part of the dump in the pool.")]
pub(crate) struct Load {
    /// The pool to make
    pub(crate) pool: PathBuf,
    /// Read from this file instead of standard input
    #[arg(long, short, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Add to the pool if it exists
    #[arg(long)]
    pub(crate) merge: bool,
    /// How many maps a new pool has names for, at most 4096 [default: 128]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) root_count: Option<u32>,
    /// Add to a pool that was open when the machine stopped, or was copied meanwhile: it is checked first,
    /// which proves its structure and not its values
    #[arg(long, requires = "merge")]
    pub(crate) accept_unclean: bool,
    /// Which failures the pool survives while it is filled
    #[arg(long, value_name = "DOMAIN", default_value = "auto", value_parser = durability())]
    pub(crate) durability: Durability,
}

/// `tembo snapshot`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo snapshot list a.pool
  tembo snapshot keep a.pool stock monday
  tembo snapshot rollback a.pool stock monday
  tembo snapshot drop a.pool stock monday

A snapshot is a map as it was when the snapshot was kept. It takes room only for what has changed since. \
No other process may have the pool open; `list` goes on beside others that only read.")]
pub(crate) struct Snapshot {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) action: SnapshotAction,
}

/// The subcommands of `tembo snapshot`
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotAction {
    /// List the snapshots of all maps, or of one
    #[command(after_help = "\
Examples:
  tembo snapshot list a.pool
  tembo snapshot list a.pool stock --json")]
    List {
        /// The pool
        pool: PathBuf,
        /// A map that keeps versions, or a hash table
        map: Option<String>,
        /// Print JSON: an array with an object for each map
        #[arg(long)]
        json: bool,
    },
    /// Keep a map as it is now, under a name
    #[command(after_help = "\
Examples:
  tembo snapshot keep a.pool stock monday
  tembo snapshot keep a.pool stock 2026-01-31 --durability synced")]
    Keep(NamedSnapshot),
    /// Drop a snapshot, and free the space that only it used
    #[command(after_help = "Examples:\n  tembo snapshot drop a.pool stock monday")]
    Drop(NamedSnapshot),
    /// Roll a map back to a snapshot, which is kept
    #[command(after_help = "Examples:\n  tembo snapshot rollback a.pool stock monday")]
    Rollback(NamedSnapshot),
}

/// A snapshot of a map of a pool.
#[derive(Debug, Args)]
pub(crate) struct NamedSnapshot {
    /// The pool
    pub(crate) pool: PathBuf,
    /// A map that keeps versions, or a hash table
    pub(crate) map: String,
    /// The snapshot's name, 1 to 255 bytes
    #[arg(value_parser = snapshot_name)]
    pub(crate) name: String,
    /// Use a pool that was open when the machine stopped, or was copied meanwhile: it is checked first, which
    /// proves its structure and not its values
    #[arg(long)]
    pub(crate) accept_unclean: bool,
    /// Which failures the change survives
    #[arg(long, value_name = "DOMAIN", default_value = "auto", value_parser = durability())]
    pub(crate) durability: Durability,
}

fn snapshot_name(name: &str) -> Result<String, String> {
    match name.len() {
        1..=255 => Ok(name.to_owned()),
        bytes => Err(format!("a snapshot's name has 1 to 255 bytes, and this has {bytes}")),
    }
}

/// `tembo bench`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo bench
  tembo bench --entries 100000 --json
  tembo bench --versioned
  tembo bench --seeded --pool crash.pool --seed 7 --ops 1000
  tembo check crash.pool --expect-seeded 1000 --seed 7

Without --seeded: measures the ordered map and the standard library's BTreeMap in the same run.

With --seeded: makes operations that depend only on the seed, in a small pool of fixed size that holds nothing \
else. After each operation it prints `acked N`: N operations are durable.")]
pub(crate) struct Bench {
    /// Run the workload of crash tests
    #[arg(long, requires = "pool")]
    pub(crate) seeded: bool,
    /// The pool of the seeded workload; it must not exist, unless --resume is given
    #[arg(long, value_name = "PATH", requires = "seeded")]
    pub(crate) pool: Option<PathBuf>,
    /// The seed of the workload
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(crate) seed: u64,
    /// How many operations the seeded workload has
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "seeded")]
    pub(crate) ops: u64,
    /// The fixed size of the seeded workload's pool
    #[arg(long, value_name = "SIZE", default_value = "2M", requires = "seeded")]
    pub(crate) pool_bytes: Size,
    /// Go on with the seeded workload in the pool that it was interrupted in
    #[arg(long, requires = "seeded")]
    pub(crate) resume: bool,
    /// How many entries the measured maps have
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = at_least_one(), conflicts_with = "seeded")]
    pub(crate) entries: u64,
    /// How often everything is measured; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one(), conflicts_with = "seeded")]
    pub(crate) rounds: u64,
    /// Measure a map that keeps versions
    #[arg(long, conflicts_with = "seeded")]
    pub(crate) versioned: bool,
    /// Where the measured pools are made [default: the directory for temporary files]
    #[arg(long, value_name = "DIR", conflicts_with = "seeded")]
    pub(crate) dir: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long, conflicts_with = "seeded")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) choices: PoolChoices,
}

/// Reads a durability: one of the names, or `relaxed` with an interval.
#[derive(Clone)]
struct DurabilityParser;

impl TypedValueParser for DurabilityParser {
    type Value = Durability;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<Durability, clap::Error> {
        if value.to_str().is_some_and(|text| text.starts_with("relaxed=")) {
            let read = |text: &str| text.parse::<Durability>();
            return read.parse_ref(command, argument, value);
        }
        let names = PossibleValuesParser::new(Durability::ALL.map(|(_, name)| name));
        names.try_map(|name| name.parse::<Durability>()).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Durability::ALL.into_iter().map(|(_, name)| PossibleValue::new(name))))
    }
}

fn durability() -> ValueParser {
    DurabilityParser.into()
}

fn flush_instruction() -> ValueParser {
    let known =
        if cfg!(target_arch = "aarch64") { &["dc-cvap"][..] } else { &["clwb", "clflushopt", "clflush"][..] };
    PossibleValuesParser::new(known).try_map(|name| name.parse::<FlushInstruction>()).into()
}

fn yes_or_no() -> ValueParser {
    PossibleValuesParser::new(["yes", "no"]).map(|word| word == "yes").into()
}

fn log_level() -> ValueParser {
    PossibleValuesParser::new(LogLevel::ALL.map(|(_, name)| name))
        .try_map(|name| LogLevel::from_name(&name).ok_or("no such level"))
        .into()
}

fn at_least_one() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..)
}
#[cfg(test)]
mod tests;
