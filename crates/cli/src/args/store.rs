//! The arguments of `tembo store`.

use super::durability;
use clap::{Args, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use tembo::Durability;

/// `tembo store`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tembo store put a.pool accounts ann 100 --create
  tembo store get a.pool accounts ann
  tembo store snapshot keep a.pool yesterday
  tembo store scan a.pool accounts --at yesterday
  tembo store backup a.pool a.backup && tembo store restore b.pool a.backup --create

A store has keyspaces, and a keyspace has keys; a transaction of a program may change many of them at once. --store \
may be left out where the pool has one store, or none yet: the new one is then named `store`.

Where another process has the pool open and serves its stores, ls, get, scan, history, put, del and snapshot go to it \
over its socket, and its --durability holds; the others need the pool. Commands that only read go on beside others \
that only read.

A snapshot is named as `--at` wants it: a name that it is kept under, a number, or a time as `90m ago` (s, m, h, d).")]
pub(crate) struct Store {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) action: StoreAction,
}

/// The subcommands of `tembo store`
#[derive(Debug, Subcommand)]
pub(crate) enum StoreAction {
    /// List the stores of a pool with their keyspaces and kept snapshots
    #[command(after_help = "Examples:\n  tembo store ls a.pool\n  tembo store ls a.pool --json")]
    Ls {
        #[command(flatten)]
        place: Place,
        /// Print JSON: an array with an object for each store
        #[arg(long)]
        json: bool,
    },
    /// Print the value of a key
    #[command(after_help = "\
Examples:
  tembo store get a.pool accounts ann
  tembo store get a.pool accounts ann --at yesterday
  tembo store get a.pool pictures cat --raw > cat.png

The value is followed by a line end, unless --raw is given. Exit code 1: the key has no value.")]
    Get {
        #[command(flatten)]
        place: Place,
        /// The keyspace
        keyspace: String,
        /// The key
        key: String,
        #[command(flatten)]
        reading: Reading,
        /// Print the value's bytes and nothing else
        #[arg(long, conflicts_with = "json")]
        raw: bool,
    },
    /// Give a key a value
    #[command(after_help = "\
Examples:
  tembo store put a.pool accounts ann 100
  tembo store put a.pool accounts ff00 --encoding hex --value-file -

Prints the number of the commit, which names the snapshot after it. Makes the keyspace and the store if they are not there; \
the pool only with --create.")]
    Put {
        #[command(flatten)]
        place: Place,
        /// The keyspace
        keyspace: String,
        /// The key
        key: String,
        /// The value
        #[arg(required_unless_present = "value_file")]
        value: Option<String>,
        /// Take the value from this file, or from standard input if it is `-`
        #[arg(long, value_name = "FILE", conflicts_with = "value")]
        value_file: Option<PathBuf>,
        /// How key and value are written
        #[arg(long, value_name = "FORM", default_value = "text")]
        encoding: Encoding,
        #[command(flatten)]
        writing: Writing,
        /// Make the pool if there is none
        #[arg(long)]
        create: bool,
    },
    /// Take the value off a key
    #[command(after_help = "\
Examples:
  tembo store del a.pool accounts ann

Prints the number of the commit. Exit code 1: the key has no value.")]
    Del {
        #[command(flatten)]
        place: Place,
        /// The keyspace
        keyspace: String,
        /// The key
        key: String,
        /// How the key is written
        #[arg(long, value_name = "FORM", default_value = "text")]
        encoding: Encoding,
        #[command(flatten)]
        writing: Writing,
    },
    /// Print keys with their values, in their order
    #[command(after_help = "\
Examples:
  tembo store scan a.pool accounts --prefix a --limit 10
  tembo store scan a.pool accounts --from b --to d --reverse --at yesterday
  tembo store scan a.pool accounts --json > accounts.jsonl

With --json one object a line, as `tembo store import` reads them.")]
    Scan {
        #[command(flatten)]
        place: Place,
        /// The keyspace
        keyspace: String,
        #[command(flatten)]
        range: Range,
        #[command(flatten)]
        reading: Reading,
    },
    /// Print the versions of a key that are there, from the newest to the oldest
    #[command(after_help = "\
Examples:
  tembo store history a.pool accounts ann

Which versions are there depends on what the keyspace retains, and on the snapshots that are kept.")]
    History {
        #[command(flatten)]
        place: Place,
        /// The keyspace
        keyspace: String,
        /// The key
        key: String,
        /// How the key is written
        #[arg(long, value_name = "FORM", default_value = "text")]
        encoding: Encoding,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// List, keep and delete snapshots
    #[command(after_help = "\
Examples:
  tembo store snapshot list a.pool
  tembo store snapshot keep a.pool yesterday
  tembo store snapshot delete a.pool yesterday")]
    Snapshot {
        /// The subcommand.
        #[command(subcommand)]
        action: StoreSnapshot,
    },
    /// Print what differs between two snapshots
    #[command(after_help = "\
Examples:
  tembo store diff a.pool yesterday
  tembo store diff a.pool monday tuesday --keyspace accounts --json

A line begins with `+` for a key that is new, `-` for one that is gone, and `~` for another value.")]
    Diff {
        #[command(flatten)]
        place: Place,
        /// The older snapshot
        from: SnapshotChoice,
        /// The newer one; the current one if it is left out
        to: Option<SnapshotChoice>,
        /// Compare this keyspace alone
        #[arg(long, value_name = "NAME")]
        keyspace: Option<String>,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Write a snapshot of a store to a file, whole or as the difference to an earlier one
    #[command(after_help = "\
Examples:
  tembo store backup a.pool monday.backup
  tembo store snapshot keep a.pool monday && tembo store backup a.pool tuesday.backup --since monday

The file appears when it is whole. A difference needs the snapshot that it is taken since to be there, so keep it.")]
    Backup {
        #[command(flatten)]
        place: Place,
        /// The file, which must not exist
        file: PathBuf,
        /// The snapshot to write; the current one if it is left out
        #[arg(long, value_name = "SNAPSHOT")]
        at: Option<SnapshotChoice>,
        /// Write only what has changed since this snapshot
        #[arg(long, value_name = "SNAPSHOT")]
        since: Option<SnapshotChoice>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Make a store from a backup, and from differences that follow it
    #[command(after_help = "\
Examples:
  tembo store restore b.pool monday.backup tuesday.backup --create

The store must not exist. It appears when everything is in it: what is damaged, cut off, or does not follow leaves no trace.")]
    Restore {
        #[command(flatten)]
        place: Place,
        /// The backup, and then the differences in their order
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Which failures the store survives
        #[arg(long, value_name = "DOMAIN", default_value = "auto", value_parser = durability())]
        durability: Durability,
        /// Make the pool if there is none
        #[arg(long)]
        create: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Put the keys of JSON lines, or of a map of the pool, into a store
    #[command(after_help = "\
Examples:
  tembo store import a.pool < accounts.jsonl
  tembo store import a.pool --input accounts.jsonl --create
  tembo store import a.pool --from-map stock && tembo drop a.pool stock

A line is {\"keyspace\": \"accounts\", \"key\": \"ann\", \"value\": \"100\"}. A key or value that is not text is an object, \
{\"base64\": \"/wA=\"} or {\"hex\": \"ff00\"}; a value of null deletes the key.

An import makes many commits. One that fails says which line is to blame, and keeps the lines before it, up to the last commit.

With --from-map, a map of any kind or a hash table is copied into a keyspace of its name, or --keyspace. Its named snapshots \
become kept snapshots of the store, named MAP@NAME. After an interruption, the same command goes on. The map stays.")]
    Import {
        #[command(flatten)]
        place: Place,
        /// Read from this file instead of standard input
        #[arg(long, short, value_name = "FILE")]
        input: Option<PathBuf>,
        /// Copy this map, or hash table, of the pool
        #[arg(long, value_name = "NAME", conflicts_with_all = ["input", "create"])]
        from_map: Option<String>,
        /// The keyspace that the map is copied into; the map's name if it is left out
        #[arg(long, value_name = "NAME", requires = "from_map")]
        keyspace: Option<String>,
        #[command(flatten)]
        writing: Writing,
        /// Make the pool if there is none
        #[arg(long)]
        create: bool,
    },
}

/// The subcommands of `tembo store snapshot`
#[derive(Debug, Subcommand)]
pub(crate) enum StoreSnapshot {
    /// List the kept snapshots
    #[command(after_help = "Examples:\n  tembo store snapshot list a.pool --json")]
    List {
        #[command(flatten)]
        place: Place,
        /// Print JSON: an array with an object for each snapshot
        #[arg(long)]
        json: bool,
    },
    /// Keep a snapshot under a name: the current one, or another that is there
    #[command(after_help = "\
Examples:
  tembo store snapshot keep a.pool yesterday
  tembo store snapshot keep a.pool before-friday --at friday")]
    Keep {
        #[command(flatten)]
        place: Place,
        /// The name, 1 to 256 bytes
        name: String,
        /// The snapshot; the current one if it is left out
        #[arg(long, value_name = "SNAPSHOT")]
        at: Option<SnapshotChoice>,
        #[command(flatten)]
        writing: Writing,
    },
    /// Delete a kept snapshot, and free the space that only it used
    #[command(after_help = "Examples:\n  tembo store snapshot delete a.pool yesterday")]
    Delete {
        #[command(flatten)]
        place: Place,
        /// The name
        name: String,
        #[command(flatten)]
        writing: Writing,
    },
}

/// A store of a pool.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The pool
    pub(crate) pool: PathBuf,
    /// The store; may be left out where the pool has one
    #[arg(long, value_name = "NAME")]
    pub(crate) store: Option<String>,
    /// Use a pool that was open when the machine stopped, or was copied meanwhile: it is checked first, which
    /// proves its structure and not its values
    #[arg(long)]
    pub(crate) accept_unclean: bool,
}

/// The snapshot that is read, and the form in which it is printed.
#[derive(Debug, Args)]
pub(crate) struct Reading {
    /// Read this snapshot instead of the current one
    #[arg(long, value_name = "SNAPSHOT")]
    pub(crate) at: Option<SnapshotChoice>,
    /// How keys are written as arguments
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub(crate) encoding: Encoding,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a store is changed.
#[derive(Debug, Args)]
pub(crate) struct Writing {
    /// Which failures the change survives
    #[arg(long, value_name = "DOMAIN", default_value = "auto", value_parser = durability())]
    pub(crate) durability: Durability,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// A part of a keyspace.
#[derive(Debug, Args)]
pub(crate) struct Range {
    /// Keys from this one on
    #[arg(long, value_name = "KEY")]
    pub(crate) from: Option<String>,
    /// Keys below this one
    #[arg(long, value_name = "KEY")]
    pub(crate) to: Option<String>,
    /// Keys that begin so
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    pub(crate) prefix: Option<String>,
    /// From the last key to the first
    #[arg(long)]
    pub(crate) reverse: bool,
    /// No more keys than this
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
}

/// How bytes are written as arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Encoding {
    /// As they are
    Text,
    /// Two hexadecimal digits for each byte
    Hex,
    /// Base64, with padding
    Base64,
}

/// A snapshot, as arguments name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SnapshotChoice {
    /// By the name that it is kept under.
    Name(String),
    /// By its number.
    Number(u64),
    /// The snapshot that was current this long ago.
    Ago(Duration),
}

impl FromStr for SnapshotChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<SnapshotChoice, String> {
        if text.is_empty() {
            return Err("a snapshot is a name, a number, or a time as `90m ago`".to_owned());
        }
        if let Some(time) = text.strip_suffix(" ago").or(text.strip_suffix("-ago")) {
            return seconds(time)
                .map(|seconds| SnapshotChoice::Ago(Duration::from_secs(seconds)))
                .ok_or_else(|| "expected a number and s, m, h or d, as `90m ago`".to_owned());
        }
        Ok(text.parse().map_or_else(|_| SnapshotChoice::Name(text.to_owned()), SnapshotChoice::Number))
    }
}

fn seconds(text: &str) -> Option<u64> {
    let unit = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return None,
    };
    text[..text.len() - 1].parse::<u64>().ok()?.checked_mul(unit)
}

impl StoreAction {
    /// The pool that the command is about.
    pub(crate) fn pool(&self) -> &Path {
        &self.place().pool
    }

    /// The store that the command is about.
    pub(crate) fn place(&self) -> &Place {
        match self {
            StoreAction::Ls { place, .. }
            | StoreAction::Get { place, .. }
            | StoreAction::Put { place, .. }
            | StoreAction::Del { place, .. }
            | StoreAction::Scan { place, .. }
            | StoreAction::History { place, .. }
            | StoreAction::Diff { place, .. }
            | StoreAction::Backup { place, .. }
            | StoreAction::Restore { place, .. }
            | StoreAction::Import { place, .. } => place,
            StoreAction::Snapshot { action } => match action {
                StoreSnapshot::List { place, .. }
                | StoreSnapshot::Keep { place, .. }
                | StoreSnapshot::Delete { place, .. } => place,
            },
        }
    }

    /// Whether the command was asked for JSON.
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            StoreAction::Ls { json, .. }
            | StoreAction::History { json, .. }
            | StoreAction::Diff { json, .. }
            | StoreAction::Backup { json, .. }
            | StoreAction::Restore { json, .. }
            | StoreAction::Snapshot { action: StoreSnapshot::List { json, .. } } => *json,
            StoreAction::Get { reading, .. } | StoreAction::Scan { reading, .. } => reading.json,
            StoreAction::Put { writing, .. }
            | StoreAction::Del { writing, .. }
            | StoreAction::Import { writing, .. }
            | StoreAction::Snapshot {
                action: StoreSnapshot::Keep { writing, .. } | StoreSnapshot::Delete { writing, .. },
            } => writing.json,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_named_in_three_ways() {
        let cases = [
            ("yesterday", SnapshotChoice::Name("yesterday".to_owned())),
            ("1700000000000000000", SnapshotChoice::Number(1_700_000_000_000_000_000)),
            ("90m ago", SnapshotChoice::Ago(Duration::from_secs(5400))),
            ("2d-ago", SnapshotChoice::Ago(Duration::from_secs(172_800))),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in ["", "soon ago", "5 ago", "-1d ago", "99999999999999999999d ago"] {
            assert!(text.parse::<SnapshotChoice>().is_err(), "{text}");
        }
    }
}
