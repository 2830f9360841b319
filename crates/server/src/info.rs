//! The text of INFO, section by section.
//!
//! A field is there if Tembo can answer it truthfully, or if tools break without it and the value that a Redis
//! without that feature shows is true here as well.

use std::fmt::Write as _;
use std::path::Path;

use crate::clock;
use crate::keyspace::KeyspaceStats;
use crate::state::State;
use tembo::Pool;

/// The version of Redis whose commands, replies and INFO fields these are; clients choose features by it.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

/// What the sections are made of.
pub(crate) struct Facts<'a> {
    pub(crate) state: &'a State,
    pub(crate) keys: KeyspaceStats,
    pub(crate) pool: &'a Pool,
    pub(crate) clients: usize,
    /// Of each database that is not empty: its number, its keys, and those that have a deadline.
    pub(crate) keyspace: Vec<(usize, u64, u64)>,
}

type Section = fn(&Facts<'_>, &mut String) -> std::fmt::Result;

const SECTIONS: &[(&str, Section)] = &[
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("CPU", cpu),
    ("Tembo", tembo),
    ("Cluster", cluster),
    ("Keyspace", keyspace),
];

/// The sections that `wanted` names in any case, or all of them.
pub(crate) fn write(facts: &Facts<'_>, wanted: &[&[u8]]) -> String {
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let everything = ["all", "default", "everything"];
    let all = wanted.is_empty() || wanted.iter().any(|word| everything.iter().any(|name| is(word, name)));
    let mut text = String::new();
    for (name, section) in SECTIONS {
        if all || wanted.iter().any(|word| is(word, name)) {
            let separator = if text.is_empty() { "" } else { "\r\n" };
            // Writing to a string does not fail.
            let _ = write!(text, "{separator}# {name}\r\n");
            let _ = section(facts, &mut text);
        }
    }
    text
}

/// Writes `name:value` lines.
macro_rules! fields {
    ($out:expr, $($name:ident: $value:expr),+ $(,)?) => {{
        $(write!($out, concat!(stringify!($name), ":{}\r\n"), $value)?;)+
        Ok(())
    }};
}

fn server(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    let state = facts.state;
    let uptime = state.now.saturating_duration_since(state.started).as_secs();
    fields!(out,
        redis_version: REDIS_VERSION,
        redis_git_sha1: "00000000",
        redis_git_dirty: 0,
        redis_build_id: 0,
        redis_mode: "standalone",
        server_name: "tembo",
        os: std::env::consts::OS,
        arch_bits: usize::BITS,
        multiplexing_api: "epoll",
        process_id: std::process::id(),
        run_id: state.run_id,
        tcp_port: state.listen.port(),
        server_time_usec: clock::unix_time().as_micros(),
        uptime_in_seconds: uptime,
        uptime_in_days: uptime / 86400,
        hz: 10,
        configured_hz: 10,
        executable: std::env::current_exe().unwrap_or_default().display(),
        config_file: "",
        io_threads_active: 0,
    )
}

fn clients(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    fields!(out,
        connected_clients: facts.clients,
        cluster_connections: 0,
        maxclients: facts.state.config.max_clients,
        blocked_clients: 0,
        tracking_clients: 0,
        clients_in_timeout_table: 0,
    )
}

/// The memory in question is the pool: its parts in use.
fn memory(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    let pool = facts.pool.stats();
    let used = pool.pool_bytes - pool.unused_bytes;
    let resident = process::resident_bytes();
    fields!(out,
        used_memory: used,
        used_memory_human: human(used),
        used_memory_rss: resident,
        used_memory_rss_human: human(resident),
        used_memory_peak: pool.pool_bytes,
        used_memory_peak_human: human(pool.pool_bytes),
        used_memory_dataset: used,
        used_memory_lua: 0,
        total_system_memory: process::system_bytes(),
        total_system_memory_human: human(process::system_bytes()),
        maxmemory: pool.max_bytes,
        maxmemory_human: human(pool.max_bytes),
        maxmemory_policy: "noeviction",
        mem_fragmentation_ratio: format!("{:.2}", pool.pool_bytes as f64 / (used as f64).max(1.0)),
        mem_allocator: "tembo-pool",
        active_defrag_running: 0,
        lazyfree_pending_objects: 0,
    )
}

/// Every acknowledged write is in the pool, so there is nothing to load, nothing unsaved and no log.
fn persistence(_: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    fields!(out,
        loading: 0,
        async_loading: 0,
        rdb_changes_since_last_save: 0,
        rdb_bgsave_in_progress: 0,
        rdb_last_save_time: clock::unix_time().as_secs(),
        rdb_last_bgsave_status: "ok",
        rdb_last_bgsave_time_sec: -1,
        rdb_current_bgsave_time_sec: -1,
        aof_enabled: 0,
        aof_rewrite_in_progress: 0,
        aof_rewrite_scheduled: 0,
        aof_last_rewrite_time_sec: -1,
        aof_current_rewrite_time_sec: -1,
        aof_last_bgrewrite_status: "ok",
        aof_last_write_status: "ok",
    )
}

fn stats(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    let (state, keys) = (facts.state, &facts.keys);
    let stats = &state.stats;
    let kbps = |rate: f64| format!("{:.2}", rate / 1024.0);
    fields!(out,
        total_connections_received: stats.connections,
        total_commands_processed: stats.commands,
        instantaneous_ops_per_sec: state.rate(|stats| stats.commands) as u64,
        total_net_input_bytes: stats.bytes_in,
        total_net_output_bytes: stats.bytes_out,
        instantaneous_input_kbps: kbps(state.rate(|stats| stats.bytes_in)),
        instantaneous_output_kbps: kbps(state.rate(|stats| stats.bytes_out)),
        rejected_connections: stats.rejected_connections,
        sync_full: 0,
        sync_partial_ok: 0,
        sync_partial_err: 0,
        expired_keys: keys.expired,
        evicted_keys: 0,
        keyspace_hits: keys.hits,
        keyspace_misses: keys.misses,
        pubsub_channels: 0,
        pubsub_patterns: 0,
        latest_fork_usec: 0,
        total_forks: 0,
        total_error_replies: stats.errors,
        total_reads_processed: stats.reads,
        total_writes_processed: stats.writes,
    )
}

fn replication(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    fields!(out,
        role: "master",
        connected_slaves: 0,
        master_failover_state: "no-failover",
        master_replid: facts.state.run_id,
        master_replid2: "0".repeat(40),
        master_repl_offset: 0,
        second_repl_offset: -1,
        repl_backlog_active: 0,
        repl_backlog_size: 0,
        repl_backlog_first_byte_offset: 0,
        repl_backlog_histlen: 0,
    )
}

fn cpu(_: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    let (user, system) = process::cpu_seconds();
    fields!(out,
        used_cpu_sys: format!("{system:.6}"),
        used_cpu_user: format!("{user:.6}"),
        used_cpu_sys_children: "0.000000",
        used_cpu_user_children: "0.000000",
    )
}

fn tembo(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    let (stats, keys) = (&facts.state.stats, &facts.keys);
    let pool = facts.pool.stats();
    let per_commit = stats.batched_commands as f64 / (keys.commits as f64).max(1.0);
    fields!(out,
        tembo_version: env!("CARGO_PKG_VERSION"),
        pool_path: facts.pool.path().unwrap_or(Path::new("")).display(),
        durability_domain: facts.pool.domain(),
        acknowledged_write_survives: facts.pool.survives(),
        pool_bytes: pool.pool_bytes,
        pool_bytes_max: pool.max_bytes,
        pool_unused_bytes: pool.unused_bytes,
        commits: keys.commits,
        failed_commits: keys.failed_commits,
        commands_per_commit: format!("{per_commit:.2}"),
        event_loop_turns: stats.turns,
    )
}

fn cluster(_: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    fields!(out, cluster_enabled: 0)
}

fn keyspace(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    facts.keyspace.iter().try_for_each(|(database, keys, expires)| {
        write!(out, "db{database}:keys={keys},expires={expires},avg_ttl=0\r\n")
    })
}

/// A number of bytes as Redis shows it: 1.50M.
fn human(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, "B");
    for larger in ["K", "M", "G", "T"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    match unit {
        "B" => format!("{bytes}B"),
        unit => format!("{value:.2}{unit}"),
    }
}

/// What Linux tells about this process; zeros elsewhere.
mod process {
    use std::fs::read_to_string;

    /// Memory in use, pages of the pool included.
    pub(super) fn resident_bytes() -> u64 {
        let pages =
            read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse().ok());
        pages.unwrap_or(0u64) * rustix::param::page_size() as u64
    }

    pub(super) fn system_bytes() -> u64 {
        let text = read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.parse().ok()).unwrap_or(0u64) * 1024
    }

    /// Seconds spent in user and in system mode.
    pub(super) fn cpu_seconds() -> (f64, f64) {
        let text = read_to_string("/proc/self/stat").unwrap_or_default();
        // The second field, the name in parentheses, may hold blanks.
        let mut fields = text.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').skip(11);
        let mut seconds = || {
            let ticks = fields.next().and_then(|field| field.parse::<f64>().ok());
            ticks.unwrap_or(0.0) / rustix::param::clock_ticks_per_second() as f64
        };
        (seconds(), seconds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_as_redis_shows_them() {
        assert_eq!(human(0), "0B");
        assert_eq!(human(1023), "1023B");
        assert_eq!(human(1536), "1.50K");
        assert_eq!(human(1 << 30), "1.00G");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_process_has_memory() {
        assert!(process::resident_bytes() > 1 << 16);
        assert!(process::system_bytes() > process::resident_bytes());
    }
}
