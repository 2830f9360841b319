//! What an operator can choose.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tembo::Domain;
use tembo_wire::Limits;

/// How a server listens and what it allows its clients. Those marked *settable* can be changed while it runs, by
/// CONFIG SET.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Address to listen on; port 0 lets the system choose. 127.0.0.1:6379.
    pub listen: SocketAddr,
    /// Most clients at a time, *settable* as `maxclients`. 10000; fewer if the process may not open as many
    /// files.
    pub max_clients: usize,
    /// A client that neither sends nor takes anything for so long is disconnected, *settable* as `timeout` (in
    /// seconds, 0 for never). Never.
    pub idle_timeout: Option<Duration>,
    /// A silent connection is probed by TCP after so long, *settable* as `tcp-keepalive`. 300 s.
    pub tcp_keepalive: Option<Duration>,
    /// Limits on one request; `max_bulk_bytes` is *settable* as `proto-max-bulk-len`, `max_request_bytes`
    /// as `client-query-buffer-limit`. Redis's.
    pub limits: Limits,
    /// A client with more unsent output than this is not read from until it has taken some of it. 1 MiB.
    pub output_pause_bytes: usize,
    /// Longest reply to one command, *settable* as `reply-max-bytes`; a longer one becomes an error. 1 GiB.
    pub reply_bytes_max: usize,
    /// A batch with more pending words than this (an ordinary SET is about four) is committed in the middle of a
    /// turn. `None`: what suits the pool's domain, which is few where a commit is cheap and many where it waits
    /// for a disk.
    pub batch_words_max: Option<usize>,
    /// Expired keys that one turn may remove. 128.
    pub expire_per_turn: usize,
}

/// Where a commit costs a fence or two: some thirty SETs. What more of them would save by sharing is less than what
/// a larger record costs to put together (measured at 1 KiB values: 1.58 us of CPU time per SET up to 64 words,
/// 1.72 us at 400).
const BATCH_WORDS_IN_MEMORY: usize = 128;
/// Where a commit waits for the disk.
const BATCH_WORDS_SYNCED: usize = 4096;

impl Config {
    /// The largest batch for a pool of this domain.
    pub(crate) fn batch_words_max(&self, domain: Domain) -> usize {
        self.batch_words_max.unwrap_or(match domain {
            Domain::Synced => BATCH_WORDS_SYNCED,
            _ => BATCH_WORDS_IN_MEMORY,
        })
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 6379)),
            max_clients: 10_000,
            idle_timeout: None,
            tcp_keepalive: Some(Duration::from_secs(300)),
            limits: Limits::default(),
            output_pause_bytes: 1 << 20,
            reply_bytes_max: 1 << 30,
            batch_words_max: None,
            expire_per_turn: 128,
        }
    }
}
