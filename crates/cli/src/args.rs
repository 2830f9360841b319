//! What can be asked for on the command line.

use crate::size::Size;
use clap::builder::{PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{ArgAction, Args, Parser, Subcommand};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use tembo::{Durability, FlushInstruction, Options};
use tembo_server::LogLevel;

const EXAMPLES: &str = "\
Examples:
  tembo serve                                    serve ./tembo.pool to Redis clients on port 6379
  tembo serve --pool /mnt/pmem/a.pool --listen 127.0.0.1:7000
  tembo check a.pool && tembo dump a.pool | gzip > a.jsonl.gz
  gunzip < a.jsonl.gz | tembo load b.pool
  tembo snapshot keep a.pool stock monday
  tembo maps a.pool && tembo drop a.pool stock
  tembo bench

Exit codes: 0 done, 1 failed, 2 wrong usage.";

/// A store whose only copy of the data is a memory-mapped pool.
#[derive(Debug, Parser)]
#[command(name = "tembo", version, max_term_width = 100, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a pool to Redis clients
    Serve(Serve),
    /// Say what a pool is and holds
    Info(Info),
    /// Prove that a pool is undamaged, without changing it
    Check(Check),
    /// Write a pool's contents as text
    Dump(Dump),
    /// Fill a pool from a dump
    Load(Load),
    /// List the maps of a pool
    Maps(Maps),
    /// Drop maps of a pool
    Drop(DropMaps),
    /// List, keep, drop and go back to snapshots of maps that keep versions
    Snapshot(Snapshot),
    /// Measure this machine, or run the workload that crash tests use
    Bench(Bench),
}

/// How a pool is opened.
#[derive(Debug, Args)]
pub(crate) struct PoolChoices {
    /// Which failures an acknowledged write shall survive; `auto` takes persistent memory where it is, else the page cache
    #[arg(long, value_name = "DOMAIN", default_value = "auto", value_parser = durability())]
    pub(crate) durability: Durability,
    /// Flush with this instruction, whatever the processor reports (also: TEMBO_FLUSH)
    #[arg(long, value_name = "INSTRUCTION", value_parser = flush_instruction())]
    pub(crate) flush: Option<FlushInstruction>,
    /// Copy through the caches always (also: TEMBO_NON_TEMPORAL=0)
    #[arg(long)]
    pub(crate) no_non_temporal: bool,
    /// Map every page of the pool when it is opened or grows: slower to open, no page faults later
    #[arg(long)]
    pub(crate) prefault: bool,
    /// Keep a pool on tmpfs in huge pages, if the system has any: faster reads of large pools, slower to grow in some virtual machines
    #[arg(long)]
    pub(crate) huge_pages: bool,
    /// Use a pool that was open when the machine stopped, or was copied meanwhile: it is checked first, which proves its structure and not its values
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
  tembo serve --listen 10.0.0.5:6379 --protected-mode no
  tembo serve --durability synced --max-bytes 8G

A write is acknowledged only when it is durable in the pool's domain; which failures that survives is \
printed at the start. In the page cache of a disk (the default there) a power failure can cost the whole pool. Stop with Ctrl-C, SIGTERM or the SHUTDOWN command; kill -9 loses nothing either.")]
pub(crate) struct Serve {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6379", value_parser = listen_address)]
    pub(crate) listen: SocketAddr,
    /// The pool; created if absent
    #[arg(long, value_name = "PATH", default_value = "./tembo.pool")]
    pub(crate) pool: PathBuf,
    #[command(flatten)]
    pub(crate) choices: PoolChoices,
    /// Do not let the pool grow beyond this; writes are then refused, reads and deletes go on
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_bytes: Option<Size>,
    /// How many maps a new pool has names for, at most 4096 [default: 128]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) root_count: Option<u32>,
    /// Most clients at a time
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = at_least_one())]
    pub(crate) maxclients: u64,
    /// Refuse an address that other machines can reach. There are no passwords: whoever reaches it can read
    /// and change everything
    #[arg(long, value_name = "yes|no", default_value = "yes", value_parser = yes_or_no(), action = ArgAction::Set)]
    pub(crate) protected_mode: bool,
    /// Log nothing that is less important than this, to standard error
    #[arg(long, value_name = "LEVEL", default_value = "notice", value_parser = log_level())]
    pub(crate) log_level: LogLevel,
}

/// `tembo info`
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  tembo info a.pool\n  tembo info a.pool --json | jq .maps")]
pub(crate) struct Info {
    /// The pool
    pub(crate) pool: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tembo check`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo check a.pool
  tembo check image-17 --expect-seeded 42 --seed 7

Never writes to the pool. Exit code 0: undamaged; 1: damaged, or it cannot be read; the message says what \
is wrong and at which offset; 6: nothing is wrong, but the pool holds something that this program does not know, so that lost \
blocks cannot be told. A pool that was open when the machine stopped is checked like any other: \
its structure is proved then, and its values are not. With --expect-seeded the pool must also hold what `tembo bench --seeded` \
had acknowledged: the state after N operations, or after N + 1 if the last one was durable already.")]
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

/// `tembo drop`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo drop a.pool stock
  tembo drop a.pool stock sessions

Drops maps of any kind, with their snapshots, for good: there is no way back but a copy of the file. A map is gone at once, and \
also after a crash. Its space is then given back in small steps; if that is interrupted, programs that write to the pool go \
on with it. It works in a full pool. The pool must not be open elsewhere. Programs older than this command refuse the pool \
afterwards.")]
pub(crate) struct DropMaps {
    /// The pool
    pub(crate) pool: PathBuf,
    /// The maps
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

JSON lines, in order of maps and keys, so that equal maps give equal dumps; only hash tables have an order of their own. \
Those, and maps that keep versions, are written as they are now, without their snapshots; heaps are not in it. Bytes that \
are not plain text are written as {\"base64\": ...}. The last line has the counts and a checksum of the lines before.

A pool may hold maps of a newer Tembo. Then the dump is refused, and says which they are; --skip-unknown leaves them out, and the \
dump says so in a line for each.")]
pub(crate) struct Dump {
    /// The pool
    pub(crate) pool: PathBuf,
    /// Write to this file, which must not exist, instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Leave out maps that this program does not know, and say so in the dump
    #[arg(long)]
    pub(crate) skip_unknown: bool,
    /// Dump a pool that was open when the machine stopped, or was copied meanwhile: it is checked first, which proves its structure and not its values
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

Creates the pool: it appears when everything is in it, or not at all. With --merge the pool may exist, and \
entries of the dump replace those with the same key; an interrupted merge leaves a part of the dump in it.")]
pub(crate) struct Load {
    /// The pool to create
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
    /// Add to a pool that was open when the machine stopped, or was copied meanwhile: it is checked first, which proves its structure and not its values
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

A snapshot is a map as it was when it was kept. It takes no more room than what the map has changed since. \
The pool must not be open elsewhere, but for reading it to `list`.")]
pub(crate) struct Snapshot {
    /// What to do.
    #[command(subcommand)]
    pub(crate) action: SnapshotAction,
}

/// The subcommands of `tembo snapshot`
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotAction {
    /// List the snapshots of all maps, or of one
    List {
        /// The pool
        pool: PathBuf,
        /// A map that keeps versions
        map: Option<String>,
        /// Print JSON: an array with an object for each map
        #[arg(long)]
        json: bool,
    },
    /// Keep a map as it is now, under a name
    Keep(NamedSnapshot),
    /// Give up a snapshot, and free what only it had
    Drop(NamedSnapshot),
    /// Make a map what it was in a snapshot, which stays
    Rollback(NamedSnapshot),
}

/// A snapshot of a map of a pool.
#[derive(Debug, Args)]
pub(crate) struct NamedSnapshot {
    /// The pool
    pub(crate) pool: PathBuf,
    /// The map, which has to be one that keeps versions
    pub(crate) map: String,
    /// The snapshot's name, 1 to 255 bytes
    #[arg(value_parser = snapshot_name)]
    pub(crate) name: String,
    /// Use a pool that was open when the machine stopped, or was copied meanwhile: it is checked first, which proves its structure and not its values
    #[arg(long)]
    pub(crate) accept_unclean: bool,
    /// Which failures the change survives
    #[arg(long, value_name = "DOMAIN", default_value = "auto", value_parser = durability())]
    pub(crate) durability: Durability,
}

fn snapshot_name(name: &str) -> Result<String, String> {
    match name.len() {
        1..=255 => Ok(name.to_owned()),
        bytes => Err(format!("it has {bytes} bytes, and has to have 1 to 255")),
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

Without --seeded: the ordered map beside the standard library's BTreeMap, both in the same run.

With --seeded: operations that only depend on the seed, on a small pool of fixed size. After each, when it \
is durable, one line `acked N` is printed: N operations are durable now.")]
pub(crate) struct Bench {
    /// Run the workload of crash tests
    #[arg(long, requires = "pool")]
    pub(crate) seeded: bool,
    /// The pool of the seeded workload, which must not exist
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
    /// How often everything is measured; the median counts
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

fn durability() -> ValueParser {
    PossibleValuesParser::new(Durability::ALL.map(|(_, name)| name))
        .try_map(|name| name.parse::<Durability>())
        .into()
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

/// An address with a port, or a host name with one.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let expected = "expected ADDR:PORT, as 127.0.0.1:6379, [::1]:6379 or localhost:6379";
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let mut found = text.to_socket_addrs().map_err(|e| format!("{e}; {expected}"))?;
    found.next().ok_or_else(|| format!("the name has no address; {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Command, clap::Error> {
        Arguments::try_parse_from(line.split_whitespace()).map(|arguments| arguments.command)
    }

    #[test]
    fn the_definitions_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn serve_has_the_defaults_of_the_documentation() {
        let Ok(Command::Serve(serve)) = parse("tembo serve") else { panic!("not serve") };
        assert_eq!(serve.listen.to_string(), "127.0.0.1:6379");
        assert_eq!(serve.pool, PathBuf::from("./tembo.pool"));
        assert_eq!(serve.choices.durability, Durability::Auto);
        assert_eq!((serve.max_bytes, serve.maxclients, serve.choices.flush), (None, 10_000, None));
        assert!(!serve.choices.no_non_temporal);
        assert_eq!((serve.protected_mode, serve.log_level), (true, LogLevel::Notice));
    }

    #[test]
    fn serve_takes_every_option() {
        let line = "tembo serve --listen [::1]:0 --pool a --durability emulated --no-non-temporal --max-bytes 8G --maxclients 5 \
            --protected-mode no --log-level debug";
        let Ok(Command::Serve(serve)) = parse(line) else { panic!("not serve") };
        assert!(serve.listen.is_ipv6() && serve.choices.no_non_temporal);
        assert_eq!(serve.choices.durability, Durability::Emulated);
        assert_eq!(serve.max_bytes, Some(Size { bytes: 8 << 30 }));
        assert_eq!((serve.maxclients, serve.protected_mode), (5, false));
        assert_eq!(serve.log_level, LogLevel::Debug);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_flush_instruction_is_one_of_this_architecture() {
        for name in ["clwb", "clflushopt", "clflush"] {
            assert!(parse(&format!("tembo serve --flush {name}")).is_ok(), "{name}");
        }
        assert!(parse("tembo serve --flush dc-cvap").is_err());
    }

    #[test]
    fn wrong_arguments_are_refused_with_what_is_expected() {
        let cases = [
            ("tembo serve --listen 6379", "ADDR:PORT"),
            ("tembo serve --durability maybe", "page-cache"),
            ("tembo serve --max-bytes lots", "1024"),
            ("tembo serve --maxclients 0", "1.."),
            ("tembo serve --protected-mode off", "[possible values: yes, no]"),
            ("tembo serve --log-level info", "debug, verbose, notice, warning"),
            ("tembo check", "<POOL>"),
            ("tembo check a --seed 1", "--expect-seeded"),
            ("tembo bench --seeded", "--pool"),
            ("tembo bench --pool a", "--seeded"),
            ("tembo bench --seeded --pool a --json", "--json"),
            ("tembo snapshot keep a m", "<NAME>"),
            ("tembo bench --seeded --pool a --versioned", "--versioned"),
            ("tembo dance", "dance"),
        ];
        for (line, expected) in cases {
            let error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn the_examples_in_the_help_are_accepted() {
        let mut root = Arguments::command();
        root.build();
        let mut helps: Vec<String> =
            root.get_subcommands().filter_map(|c| c.get_after_help()).map(|h| h.to_string()).collect();
        helps.push(EXAMPLES.to_owned());
        let mut seen = 0;
        for line in helps.iter().flat_map(|help| help.lines()).filter(|line| line.starts_with("  ")) {
            // A shell would cut here; a comment follows two spaces.
            for call in
                line.trim().split(['|', '&', '>', '<', '(', ')']).filter(|c| c.trim().starts_with("tembo "))
            {
                let call = call.trim().split("   ").next().unwrap_or_default();
                assert!(parse(call).is_ok(), "{call}: {:?}", parse(call).err());
                seen += 1;
            }
        }
        assert!(seen > 15, "only {seen} examples were found");
    }
}
