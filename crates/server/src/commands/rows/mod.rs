//! The rows of the command table: a file per family, as for the handlers.
//!
//! A row is data: it knows neither its handler nor anything that a handler works on, so that users' rights,
//! counts and queues can refer to commands. [`super::handlers`] has the handler of each row.

pub(super) mod acl;
pub(super) mod bitfield;
pub(super) mod bitmap;
pub(super) mod client;
pub(super) mod cluster;
pub(super) mod clusterx;
pub(super) mod command;
pub(super) mod config;
pub(super) mod connection;
pub(super) mod counter;
pub(super) mod dump;
pub(super) mod expire;
pub(super) mod failover;
pub(super) mod geo;
pub(super) mod hash;
pub(super) mod heartbeat;
pub(super) mod hyperloglog;
pub(super) mod info;
pub(super) mod keys;
pub(super) mod list;
pub(super) mod list_move;
pub(super) mod object;
pub(super) mod pubsub;
pub(super) mod replicas;
pub(super) mod replication;
pub(super) mod saving;
pub(super) mod scan;
pub(super) mod scripting;
pub(super) mod server;
pub(super) mod set;
pub(super) mod set_algebra;
pub(super) mod slow;
pub(super) mod sort;
pub(super) mod sorted_algebra;
pub(super) mod sorted_pop;
pub(super) mod sorted_range;
pub(super) mod sorted_set;
pub(super) mod string;
pub(super) mod subsequence;
pub(super) mod substring;
pub(super) mod tembo;
pub(super) mod transaction;
