//! The arguments of `tembo import` and `tembo export`.

use super::durability;
use clap::Args;
use std::path::PathBuf;
use tembo::Durability;

/// `tembo import`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo import dump.rdb
  tembo import /var/lib/redis/dump.rdb --pool a.pool
  tembo import more.rdb --pool a.pool --merge
  tembo import dump.rdb --pool a.pool --skip-unsupported

Reads files of Redis 1 to 7.4 and of Valkey 8 and 9 (SAVE and BGSAVE write them). The whole file is read first: one that \
is damaged, or holds streams, values of modules or functions, which the server lacks, is refused before anything is \
written; --skip-unsupported imports the rest and lists what was left out. Keys whose time is over are left out too.

A pool that does not exist appears when everything is in it. An import into one that exists writes key by key, each \
with its whole value. If it is interrupted, a part is there; run it again with --merge, and the end is the same.")]
pub(crate) struct Import {
    /// The file
    pub(crate) file: PathBuf,
    /// The pool; created if absent
    #[arg(long, value_name = "PATH", default_value = "./tembo.pool")]
    pub(crate) pool: PathBuf,
    /// Import into a pool whose databases have keys; those of the file replace others of the same names
    #[arg(long)]
    pub(crate) merge: bool,
    /// Leave out what the server lacks, and list it
    #[arg(long)]
    pub(crate) skip_unsupported: bool,
    /// How many maps a new pool has names for, at most 4096 [default: 128]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) root_count: Option<u32>,
    /// Use a pool that was open when the machine stopped, or was copied meanwhile: it is checked first,
    /// which proves its structure and not its values
    #[arg(long)]
    pub(crate) accept_unclean: bool,
    /// Which failures the pool survives while it is filled
    #[arg(long, value_name = "DOMAIN", default_value = "auto", value_parser = durability())]
    pub(crate) durability: Durability,
}

/// `tembo export`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo export dump.rdb
  tembo export dump.rdb --pool a.pool && redis-server --dbfilename dump.rdb

Writes the keys of all databases as a file of version 10, which Redis 7.0 and later versions, and Valkey, load. Maps and \
stores that no server uses are not in it. The file appears when it is whole. The pool is not changed, and must not be \
open in a server.")]
pub(crate) struct Export {
    /// The file, which must not exist
    pub(crate) file: PathBuf,
    /// The pool
    #[arg(long, value_name = "PATH", default_value = "./tembo.pool")]
    pub(crate) pool: PathBuf,
    /// Use a pool that was open when the machine stopped, or was copied meanwhile: it is checked first,
    /// which proves its structure and not its values
    #[arg(long)]
    pub(crate) accept_unclean: bool,
}
