//! The arguments of `tembo backup`, `tembo verify` and `tembo restore`.

use super::durability;
use crate::address::listen_address;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use tembo::Durability;
use tembo_server::Master;

/// `tembo backup`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo backup --out monday.backup
  tembo backup 10.0.0.5:6379 --out monday.backup
  tembo backup --since monday.backup --out tuesday.backup
  tembo backup --unixsocket /run/tembo.sock | zstd | age -r age1... > monday.backup.zst.age
  tembo backup 10.0.0.5:6380 --user keeper --password-file secret --tls-ca-cert-file ca.pem --out a.backup

A full backup is the state of one moment; the server goes on. With --since it has what happened after the earlier \
backup, as far as the server still has that in its backlog (repl-backlog-size); --since reads the head and the end of the \
earlier file only. A backup may be taken of a replica, and of a Redis or Valkey.

The password is in TEMBO_PASSWORD or in a file, or --askpass asks for it. A user needs `+psync +replconf +info`.")]
pub(crate) struct Backup {
    /// The server
    #[arg(value_name = "ADDR:PORT", default_value = "127.0.0.1:6379", value_parser = listen_address)]
    pub(crate) address: SocketAddr,
    /// The server's socket of the file system, instead of an address
    #[arg(long, value_name = "PATH", conflicts_with = "address")]
    pub(crate) unixsocket: Option<PathBuf>,
    /// Write to this file, which must not exist, instead of standard output
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Take what happened since this backup
    #[arg(long, value_name = "EARLIER")]
    pub(crate) since: Option<PathBuf>,
    /// The user; the default one if it is left out
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// The first line of this file is the password
    #[arg(long, value_name = "FILE", conflicts_with = "askpass")]
    pub(crate) password_file: Option<PathBuf>,
    /// Ask for the password
    #[arg(long)]
    pub(crate) askpass: bool,
    /// Speak TLS with the server, whose certificate must be of an authority in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca_cert_file: Option<PathBuf>,
    /// The certificate to show to the server
    #[arg(long, value_name = "FILE", requires = "tls_ca_cert_file", requires = "tls_key_file")]
    pub(crate) tls_cert_file: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub(crate) tls_key_file: Option<PathBuf>,
    /// Give a server up after this many seconds of silence; it is silent while it makes a copy
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: u64,
}

/// `tembo verify`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo verify monday.backup
  tembo verify monday.backup tuesday.backup wednesday.backup
  age -d -i key monday.backup.zst.age | zstd -d | tembo verify -
  tembo verify monday.backup --json | jq .[0].offset

Reads all of each file, the copy value by value and the stream command by command, and names the offset of what is \
changed or cut. Several files have to follow each other, a full backup first. `-` is standard input.

Exit codes:
  0  whole, and following each other
  1  damaged, cut, or not following each other
  2  wrong usage
  3  there is no backup: no file, or a file of another kind
  5  the file could not be read
  6  the backup is of a newer version of the format")]
pub(crate) struct Verify {
    /// The backups, in order
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Print JSON: an array with an object for each file
    #[arg(long)]
    pub(crate) json: bool,
}

/// `tembo restore`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo restore monday.backup new.pool && tembo serve --pool new.pool
  tembo restore monday.backup tuesday.backup wednesday.backup new.pool
  tembo restore monday.backup tuesday.backup new.pool --to-offset 73500
  age -d -i key monday.backup.zst.age | zstd -d | tembo restore - new.pool
  tembo restore monday.backup replica.pool --replica-of 10.0.0.5:6379

The pool appears when it is whole and checked; a restore that fails or is interrupted leaves nothing behind. Its history \
has a new replication id, so that replicas of the old server take a whole copy of it. With --replica-of it keeps the \
place of the last backup instead: the server begins as a replica, and its master sends what is missing.")]
pub(crate) struct Restore {
    /// A full backup, and the incremental ones that follow it; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The pool to make
    #[arg(required = true)]
    pub(crate) pool: PathBuf,
    /// Take the place of a pool that exists, once the new one is whole
    #[arg(long)]
    pub(crate) replace: bool,
    /// Make the pool of a replica of this server, which continues where the backup ends
    #[arg(long, value_name = "HOST:PORT", value_parser = master)]
    pub(crate) replica_of: Option<Master>,
    /// Stop at the last command, or EXEC, that ends at this offset of the stream or before
    #[arg(long, value_name = "OFFSET", conflicts_with = "replica_of")]
    pub(crate) to_offset: Option<u64>,
    /// How many maps the new pool has names for, at most 4096 [default: 128]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) root_count: Option<u32>,
    /// Which failures the pool survives while it is filled
    #[arg(long, value_name = "DOMAIN", default_value = "auto", value_parser = durability())]
    pub(crate) durability: Durability,
}

fn master(text: &str) -> Result<Master, String> {
    let expected = "expected HOST:PORT, as 10.0.0.5:6379";
    let (host, port) = text.rsplit_once(':').ok_or(expected)?;
    let port = port.parse().ok().filter(|port| *port > 0).ok_or(expected)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_host = (1..=255).contains(&host.len()) && host.chars().all(|c| c > ' ');
    is_host.then(|| Master { host: host.to_owned(), port }).ok_or_else(|| expected.to_owned())
}
