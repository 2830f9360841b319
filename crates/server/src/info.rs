//! The text of INFO, section by section.
//!
//! A field is there if Tembo can answer it truthfully, or if tools break without it and the value that a
//! Redis without that feature shows is true here as well.

use std::fmt::Write as _;
use std::path::Path;

use tembo::{JournalStats, Pool, WriteBacks};

use crate::clients::Clients;
use crate::clock::{self, HZ};
use crate::commands::replicas::replicas_of;
use crate::fault::Answer;
use crate::keyspace::format::DATABASES;
use crate::keyspace::history::{Id, Master, Position, Second};
use crate::keyspace::{Keyspace, KeyspaceStats};
use crate::machine;
use crate::master::Replica;
use crate::master::failover::Failover;
use crate::replica::Phase;
use crate::script::cache::Scripts;
use crate::state::State;
use crate::subscriptions::SubscriptionKind;
use crate::version::REDIS_VERSION;

/// The facts that the sections report.
pub(crate) struct Facts<'a> {
    pub(crate) state: &'a State,
    pub(crate) scripts: &'a Scripts,
    pub(crate) keys: KeyspaceStats,
    pub(crate) pool: &'a Pool,
    pub(crate) clients: usize,
    /// The memory of all clients.
    pub(crate) client_bytes: usize,
    /// Cleared databases still hold space.
    pub(crate) is_reclaiming: bool,
    /// States that were replaced and are kept, their keys, the seconds that the last one has left, and how
    /// many were given up early.
    pub(crate) kept: (usize, u64, u64, u64),
    pub(crate) watched_keys: usize,
    pub(crate) blocked_clients: usize,
    /// Channels, patterns and channels of shards that have subscribers.
    pub(crate) pubsub_counts: [usize; 3],
    /// Clients that track keys; the keys, the readers of keys, and the beginnings of keys that they track.
    pub(crate) tracking_counts: [usize; 4],
    /// The write-backs and fences of the server's thread.
    pub(crate) write_backs: WriteBacks,
    /// Each database that is not empty: its number, its count of keys, and its count of keys with a deadline.
    pub(crate) keyspace: Vec<(usize, u64, u64)>,
    /// How far the stream goes.
    pub(crate) position: Option<Position>,
    /// The history before.
    pub(crate) second: Option<Second>,
    /// The first byte of the stream that is kept, counted from 1.
    pub(crate) backlog_first: u64,
    /// The addresses of replicas, with their states.
    pub(crate) replicas: Vec<(String, Replica)>,
}

impl<'a> Facts<'a> {
    /// The facts as they are now. Reads the counts of keys, which costs a look at each database.
    ///
    /// # Errors
    /// The pool's.
    pub(crate) fn of(
        keys: &'a mut Keyspace<'_>,
        state: &'a mut State,
        clients: &Clients,
        scripts: &'a Scripts,
    ) -> Answer<Facts<'a>> {
        let mut keyspace = Vec::new();
        for database in 0..DATABASES {
            let count = keys.len(database)?;
            if count > 0 {
                keyspace.push((database, count, keys.expires_len(database)?));
            }
        }
        let keys = &*keys;
        state.note_used(keys.pool().stats().used_bytes());
        Ok(Facts {
            state,
            scripts,
            keys: keys.stats,
            pool: keys.pool(),
            clients: clients.len(),
            client_bytes: clients.memory_bytes(),
            is_reclaiming: keys.is_reclaiming(),
            kept: keys.kept_facts()?,
            watched_keys: keys.watches.len(),
            blocked_clients: keys.waiters.len(),
            tracking_counts: keys.pubsub.tracking.counts(),
            pubsub_counts: [
                keys.pubsub.channels_len(SubscriptionKind::Channel),
                keys.pubsub.patterns_len(),
                keys.pubsub.channels_len(SubscriptionKind::Shard),
            ],
            write_backs: tembo::write_backs(),
            keyspace,
            position: keys.replication.position,
            second: keys.replication.second,
            backlog_first: keys.replication.backlog.first(),
            replicas: replicas_of(clients.iter()),
        })
    }
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
    ("Commandstats", commandstats),
    ("Errorstats", errorstats),
    ("Latencystats", latencystats),
    ("Tembo", tembo),
    ("Cluster", cluster),
    ("Keyspace", keyspace),
];

/// The sections that `wanted` names in any case, or all of them.
pub(crate) fn write(facts: &Facts<'_>, wanted: &[&[u8]]) -> String {
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let has = |names: &[&str]| wanted.iter().any(|word| names.iter().any(|name| is(word, name)));
    let all = has(&["all", "everything"]);
    let default = all || wanted.is_empty() || has(&["default"]);
    let mut text = String::new();
    for (name, section) in SECTIONS {
        let by_default = default && (all || !["Commandstats", "Latencystats"].contains(name));
        if by_default || wanted.iter().any(|word| is(word, name)) {
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
        redis_mode: if state.cluster.is_some() { "cluster" } else { "standalone" },
        server_name: "tembo",
        os: machine::system_name(),
        arch_bits: usize::BITS,
        multiplexing_api: if cfg!(target_os = "linux") { "epoll" } else { "kqueue" },
        process_id: std::process::id(),
        run_id: state.run_id,
        tcp_port: state.main_port(),
        server_time_usec: clock::unix_time().as_micros(),
        uptime_in_seconds: uptime,
        uptime_in_days: uptime / 86400,
        hz: HZ,
        configured_hz: HZ,
        executable: std::env::current_exe().unwrap_or_default().display(),
        config_file: state.config.file.as_deref().unwrap_or(Path::new("")).display(),
        io_threads_active: 0,
    )
}

fn clients(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    fields!(out,
        connected_clients: facts.clients,
        cluster_connections: 0,
        maxclients: facts.state.config.max_clients,
        blocked_clients: facts.blocked_clients,
        tracking_clients: facts.tracking_counts[0],
        total_watched_keys: facts.watched_keys,
        clients_in_timeout_table: 0,
    )
}

/// The memory in question is the pool: its parts in use. Only the resident set and the clients are of this
/// process.
fn memory(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    let pool = facts.pool.stats();
    let used = pool.used_bytes();
    let peak = facts.state.used_bytes_peak;
    let (spare, _) = facts.pool.survey_spare();
    let ratio = used as f64 / used.saturating_sub(spare).max(1) as f64;
    fields!(out,
        used_memory: used,
        used_memory_human: human(used),
        used_memory_peak: peak,
        used_memory_peak_human: human(peak),
        maxmemory: facts.state.memory_bytes_max(),
        maxmemory_human: human(facts.state.memory_bytes_max()),
        maxmemory_policy: facts.state.config.eviction.policy.name(),
        mem_clients_normal: facts.client_bytes,
        mem_allocator: "tembo-pool",
        mem_fragmentation_ratio: format!("{ratio:.2}"),
        mem_fragmentation_bytes: spare,
        allocator_frag_ratio: format!("{ratio:.2}"),
        allocator_frag_bytes: spare,
        active_defrag_running: u8::from(facts.state.compactor.is_running()),
        total_active_defrag_time: facts.state.compactor.spent().as_millis(),
        current_active_defrag_time: facts.state.compactor.running_for(facts.state.now).as_millis(),
        lazyfree_pending_objects: u8::from(facts.is_reclaiming),
    )?;
    script_memory(facts, out)?;
    if let Some(resident) = machine::resident_bytes() {
        fields!(out, used_memory_rss: resident, used_memory_rss_human: human(resident))?;
    }
    if let Some(system) = machine::system_bytes() {
        fields!(out, total_system_memory: system, total_system_memory_human: human(system))?;
    }
    Ok(())
}

fn script_memory(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    let scripts = facts.scripts;
    let (engine, texts) = (scripts.engine_bytes(), scripts.text_bytes());
    fields!(out,
        used_memory_lua: engine,
        used_memory_vm_eval: engine,
        used_memory_lua_human: human(engine),
        used_memory_scripts_eval: texts,
        number_of_cached_scripts: scripts.len(),
        number_of_functions: 0,
        number_of_libraries: 0,
        used_memory_vm_functions: 0,
        used_memory_vm_total: engine,
        used_memory_vm_total_human: human(engine),
        used_memory_functions: 0,
        used_memory_scripts: texts,
        used_memory_scripts_human: human(texts),
    )
}

/// Every acknowledged write is in the pool, so there is nothing to load and no log; files are written for
/// others only.
fn persistence(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    let (saving, copier) = (&facts.state.saving, &facts.state.copier);
    let stand = copier.stand(facts.state.now).filter(|_| copier.is_saving());
    let (seen, total) = stand.map_or((0, 0), |stand| (stand.seen, stand.total));
    fields!(out,
        loading: 0,
        async_loading: 0,
        rdb_changes_since_last_save: saving.changes,
        rdb_bgsave_in_progress: u8::from(saving.is_scheduled),
        rdb_last_save_time: saving.last_seconds,
        rdb_last_bgsave_status: if saving.background_failed { "err" } else { "ok" },
        rdb_last_bgsave_time_sec: saving.background_seconds.map_or(-1, |seconds| seconds as i64),
        rdb_current_bgsave_time_sec: stand.map_or(-1, |stand| stand.running_for.as_secs() as i64),
        current_save_keys_processed: seen,
        current_save_keys_total: total,
        current_cow_size: copier.old_bytes,
        copy_longest_step_usec: copier.longest_step.as_micros(),
        rdb_saves: saving.count,
        rdb_last_cow_size: 0,
        aof_enabled: 0,
        aof_rewrite_in_progress: 0,
        aof_rewrite_scheduled: 0,
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
        client_query_buffer_limit_disconnections: stats.query_limit_disconnections,
        client_output_buffer_limit_disconnections: stats.output_limit_disconnections,
        evicted_clients: stats.evicted_clients,
        evicted_scripts: facts.scripts.evicted,
        expired_keys: keys.expired,
        evicted_keys: state.eviction.evicted,
        keyspace_hits: keys.hits,
        keyspace_misses: keys.misses,
        pubsub_channels: facts.pubsub_counts[0],
        pubsub_patterns: facts.pubsub_counts[1],
        pubsubshard_channels: facts.pubsub_counts[2],
        sync_full: state.replicas.full,
        sync_partial_ok: state.replicas.partial,
        sync_partial_err: state.replicas.partial_refused,
        total_forks: 0,
        tracking_total_keys: facts.tracking_counts[1],
        tracking_total_items: facts.tracking_counts[2],
        tracking_total_prefixes: facts.tracking_counts[3],
        total_error_replies: stats.errors,
        total_reads_processed: stats.reads,
        total_writes_processed: stats.writes,
    )
}

fn replication(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    let state = facts.state;
    fields!(out, role: if state.role.master.is_some() { "slave" } else { "master" })?;
    let offset = facts.position.map_or(0, |position| position.offset);
    if let Some(master) = &state.role.master {
        replica(facts, master, out)?;
    }
    fields!(out, connected_slaves: facts.replicas.len())?;
    if state.role.master.is_none() && state.config.replica.min_replicas > 0 {
        fields!(out, min_slaves_good_slaves: state.replicas.good)?;
    }
    for (number, (ip, replica)) in facts.replicas.iter().enumerate() {
        let Replica { port, acknowledged, heard, .. } = replica;
        let (name, lag) = (replica.state(), state.now.saturating_duration_since(*heard).as_secs());
        write!(out, "slave{number}:ip={ip},port={port},state={name},offset={acknowledged},lag={lag}\r\n")?;
    }
    let shown = |id: Id| String::from_utf8_lossy(&id).into_owned();
    let kept = facts.position.map_or(0, |position| position.offset.saturating_sub(facts.backlog_first));
    fields!(out,
        master_failover_state: Failover::state(state.failover.as_ref()),
        master_replid: facts.position.map_or(state.run_id.clone(), |position| shown(position.id)),
        master_replid2: facts.second.map_or("0".repeat(40), |second| shown(second.id)),
        master_repl_offset: offset,
        // Redis counts the first byte that does not belong to that history.
        second_repl_offset: facts.second.map_or(-1, |second| second.offset as i64 + 1),
        sequence: offset,
        repl_backlog_active: u8::from(facts.position.is_some()),
        repl_backlog_size: state.backlog_bytes(),
        repl_backlog_first_byte_offset: if facts.position.is_some() { facts.backlog_first + 1 } else { 0 },
        repl_backlog_histlen: kept,
    )
}

/// The fields that only a replica has, with Redis's names; but for the last, which is Tembo's.
fn replica(facts: &Facts<'_>, master: &Master, out: &mut String) -> std::fmt::Result {
    let (role, settings, now) = (&facts.state.role, &facts.state.config.replica, facts.state.now);
    let is_up = role.phase == Phase::Up;
    let seconds = |since| now.saturating_duration_since(since).as_secs() as i64;
    let (total, received) = role.transferred();
    let offset = facts.position.map_or(0, |position| position.offset);
    fields!(out,
        master_host: master.host,
        master_port: master.port,
        master_link_status: if is_up { "up" } else { "down" },
        master_last_io_seconds_ago: role.last_io.map_or(-1, seconds),
        master_sync_in_progress: u8::from(role.phase == Phase::Synchronising),
        slave_read_repl_offset: offset,
        slave_repl_offset: offset,
    )?;
    if role.phase == Phase::Synchronising {
        fields!(out,
            master_sync_total_bytes: total,
            master_sync_read_bytes: received,
            master_sync_left_bytes: total.saturating_sub(received),
        )?;
    }
    if !is_up {
        fields!(out, master_link_down_since_seconds: seconds(role.down_since))?;
    }
    fields!(out,
        slave_priority: settings.priority,
        slave_read_only: u8::from(settings.read_only),
        replica_announced: u8::from(settings.is_announced),
    )?;
    match &role.error {
        Some(error) => fields!(out, master_link_error: error.replace(['\r', '\n'], " ")),
        None => Ok(()),
    }
}

fn cpu(_: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    let Some((user, system)) = machine::cpu_seconds() else {
        return Ok(());
    };
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
        pool_spare_bytes: facts.pool.survey_spare().0,
        pool_compactions: facts.state.compactor.finished(),
        pool_compaction_moved_bytes: facts.state.compactor.moved_bytes(),
        pool_cut_bytes: facts.state.compactor.cut_bytes(),
        pool_waiting_bytes: facts.pool.waiting_bytes(),
        pool_full: u8::from(facts.state.is_full()),
        kept_states: facts.kept.0,
        kept_keys: facts.kept.1,
        kept_seconds_left: facts.kept.2,
        kept_given_up: facts.kept.3,
        commits: keys.commits,
        failed_commits: keys.failed_commits,
        last_commit_status: if keys.last_commit_failed { "err" } else { "ok" },
        commands_per_commit: format!("{per_commit:.2}"),
        fences: facts.write_backs.fences,
        flushed_lines: facts.write_backs.lines,
        event_loop_turns: stats.turns,
    )?;
    facts.pool.journal_stats().map_or(Ok(()), |stats| journal(&stats, out))
}

/// The fields of the journal, if there is one.
fn journal(stats: &JournalStats, out: &mut String) -> std::fmt::Result {
    fields!(out,
        journal_interval_ms: stats.interval.map_or(0, |interval| interval.as_millis()),
        journal_ring_bytes: stats.ring_bytes,
        journal_used_bytes: stats.used_bytes,
        journal_behind_bytes: stats.behind_bytes,
        journal_behind_ms: stats.behind.as_millis(),
        journal_written_bytes: stats.written_bytes,
        journal_synchronisations: stats.synchronisations,
        journal_longest_synchronisation_ms: stats.longest.as_millis(),
        journal_synchronisation_us_p50: stats.duration_us(0.5),
        journal_synchronisation_us_p99: stats.duration_us(0.99),
        journal_slowed: stats.slowed,
        journal_stalls: stats.stalls,
        journal_write_backs: stats.write_backs,
        journal_private_bytes: stats.private_bytes,
        journal_private_bytes_max: stats.private_bytes_max,
        journal_given_back_bytes: stats.given_back_bytes,
    )
}

fn cluster(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    fields!(out, cluster_enabled: u8::from(facts.state.cluster.is_some()))
}

fn commandstats(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    facts.state.commands.entries().into_iter().try_for_each(|entry| {
        write!(
            out,
            "cmdstat_{}:calls={},usec={},usec_per_call={:.2},rejected_calls={},failed_calls={}\r\n",
            entry.command.name,
            entry.calls,
            entry.micros(),
            entry.micros_per_call(),
            entry.rejected,
            entry.failed
        )
    })
}

fn errorstats(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    let mut errors = facts.state.commands.errors.iter();
    errors.try_for_each(|(word, count)| write!(out, "errorstat_{word}:count={count}\r\n"))
}

fn latencystats(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    for entry in facts.state.commands.entries() {
        let Some(times) = &entry.times else {
            continue;
        };
        let micros = |quantile: f64| times.value_at_quantile(quantile) as f64 / 1000.0;
        let (p50, p99, p999) = (micros(0.5), micros(0.99), micros(0.999));
        let name = entry.command.name;
        write!(out, "latency_percentiles_usec_{name}:p50={p50:.3},p99={p99:.3},p99.9={p999:.3}\r\n")?;
    }
    Ok(())
}

/// Redis also estimates the mean of the remaining times, which this server does not measure.
fn keyspace(facts: &Facts<'_>, out: &mut String) -> std::fmt::Result {
    facts.keyspace.iter().try_for_each(|(database, keys, expires)| {
        write!(out, "db{database}:keys={keys},expires={expires}\r\n")
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
}
