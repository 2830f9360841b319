//! The commands: a file per family, which holds the family's handlers. Their rows of the command table are
//! in [`rows`], below all that a handler works on.
//!
//! A handler writes its reply and returns `Ok`, or returns a [`Fault`](crate::fault::Fault); then the
//! executor undoes its writes to the keyspace and drops its part of a reply. So handlers need not clean up
//! after themselves.

mod acl;
pub(crate) mod args;
mod arguments;
pub(crate) mod arrival;
mod bitfield;
mod bitmap;
mod blocking;
mod client;
mod cluster;
mod cluster_arguments;
mod clusterx;
mod command;
pub(crate) mod config;
mod config_compaction;
mod config_eviction;
mod config_kept;
mod config_observation;
mod config_replica;
mod config_tls;
mod config_users;
mod connection;
pub(crate) mod context;
mod counter;
mod debug;
pub(crate) mod dump;
mod element_scan;
mod expire;
mod failover;
mod geo;
pub(crate) mod handlers;
mod hash;
pub(crate) mod heartbeat;
mod hyperloglog;
mod info;
pub(crate) mod key_access;
pub(crate) mod key_arguments;
mod key_places;
mod keys;
pub(crate) mod keys_job;
mod latency_graph;
mod list;
mod list_move;
mod moves;
mod object;
mod parameter;
mod pubsub;
pub(crate) mod registry;
pub(crate) mod replicas;
mod replication;
mod rows;
mod sampling;
mod saving;
mod scan;
mod score;
mod scripting;
mod server;
mod set;
mod set_algebra;
mod slow;
mod sort;
mod sorted_algebra;
mod sorted_pop;
mod sorted_range;
mod sorted_set;
mod string;
mod subsequence;
mod substring;
pub(crate) mod table;
pub(crate) mod tembo;
mod tracking;
pub(crate) mod transaction;
