//! The server through its socket: every command's replies, the protocol, limits, failure and restart.
//!
//! Most tests are conversations: lines of `request => reply`, where a reply is shown as `+simple`, `-error`,
//! `:1`, `$bulk`, `nil`, `[array]`, `{map}`, `(set)` or `=verbatim`. See [`support::Client::talk`].

mod backpressure;
mod bits;
mod bits_differential;
mod clients;
mod collections;
mod collections_differential;
mod command_table;
mod compaction;
mod connection;
mod databases;
mod deadlines;
mod differential;
mod dump;
mod durability;
mod edges;
mod eviction;
mod exact_fits;
mod expiry;
mod full;
mod hostile;
mod introspection;
mod keys;
mod limits;
mod list_ends;
mod lists;
mod lists_differential;
mod notifications;
mod peer;
mod protocol;
mod pubsub;
mod reachable;
mod replica;
mod replicas;
mod replies;
mod saving;
mod scan;
mod scripts;
mod scripts_differential;
mod slow;
mod sorted_sets;
mod sorted_sets_differential;
mod sorting;
mod stream;
mod strings;
mod support;
mod tembo;
mod tracking;
mod transactions;
mod transactions_differential;
mod truth;
mod waiting;
