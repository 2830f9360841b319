//! The figures by name. Names follow the conventions of Prometheus: base units, and `_total` behind counters,
//! which the exposition adds.
//!
//! A family without samples is not shown: those of a journal where there is none, for example.

use std::borrow::Cow;

use tembo::JournalStats;

use super::commands;
use super::family::{Family, FigureKind, Gathered, Value};
use crate::info::Facts;
use crate::replica::Phase;
use crate::version::REDIS_VERSION;
use crate::{clock, machine};

/// All families.
pub(super) fn gather(facts: &Facts<'_>) -> Vec<Family> {
    let mut out = Gathered::default();
    process(facts, &mut out);
    clients(facts, &mut out);
    commands::gather(&facts.state.commands, &mut out);
    keys(facts, &mut out);
    commits(facts, &mut out);
    pool(facts, &mut out);
    compaction(facts, &mut out);
    journal(facts.pool.journal_stats(), &mut out);
    replication(facts, &mut out);
    links(facts, &mut out);
    scripts_and_messages(facts, &mut out);
    for figure in facts.state.neighbour.iter().flat_map(|neighbour| neighbour.figures()) {
        match figure.is_counter {
            true => out.counter(figure.name, figure.help, figure.value),
            false => out.gauge(figure.name, figure.help, figure.value),
        }
    }
    out.0
}

fn process(facts: &Facts<'_>, out: &mut Gathered) {
    let info = |labels: [(&'static str, String); 2]| {
        let labels = labels.map(|(name, value)| (name, Cow::from(value)));
        vec![(labels.to_vec(), Value::Whole(1))]
    };
    let versions =
        [("version", env!("CARGO_PKG_VERSION").to_owned()), ("redis_version", REDIS_VERSION.to_owned())];
    out.add(
        FigureKind::Info,
        "tembo_build",
        "The version, and the one of Redis whose commands these are",
        info(versions),
    );
    let domain = facts.pool.domain().to_string();
    let modes = [("mode", domain), ("survives", facts.pool.survives().to_owned())];
    out.add(
        FigureKind::Info,
        "tembo_durability",
        "The failures that an acknowledged write survives",
        info(modes),
    );
    let now = clock::unix_time().as_secs_f64();
    let uptime = facts.state.now.saturating_duration_since(facts.state.started).as_secs_f64();
    out.real(FigureKind::Gauge, "tembo_figures_time_seconds", "When these figures were gathered", Some(now));
    out.real(
        FigureKind::Gauge,
        "process_start_time_seconds",
        "When the process began to serve",
        Some(now - uptime),
    );
    let cpu = machine::cpu_seconds().map(|(user, system)| user + system);
    out.real(FigureKind::Counter, "process_cpu_seconds", "Processor time of the process", cpu);
    let resident = machine::resident_bytes().map(|bytes| bytes as f64);
    let help = "Memory of the process, mapped pages of the pool included";
    out.real(FigureKind::Gauge, "process_resident_memory_bytes", help, resident);
    let turns = facts.state.stats.turns;
    out.counter("tembo_event_loop_turns", "Turns of the event loop", turns);
}

fn clients(facts: &Facts<'_>, out: &mut Gathered) {
    let (state, stats) = (facts.state, &facts.state.stats);
    out.gauge("tembo_clients", "Clients that are connected", facts.clients as u64);
    out.gauge("tembo_clients_max", "Most clients at a time", state.config.max_clients as u64);
    out.gauge("tembo_blocked_clients", "Clients that wait for a key", facts.blocked_clients as u64);
    out.gauge("tembo_tracking_clients", "Clients that track keys", facts.tracking_counts[0] as u64);
    out.gauge("tembo_client_memory_bytes", "Memory of all clients", facts.client_bytes as u64);
    out.gauge(
        "tembo_client_memory_max_bytes",
        "Memory that all clients may have together; 0: no limit",
        state.client_memory_limit().unwrap_or(0),
    );
    out.counter("tembo_connections", "Connections that were made, refused ones too", stats.connections);
    out.counter("tembo_rejected_connections", "Connections that were refused", stats.rejected_connections);
    let causes = [
        ("memory", stats.evicted_clients),
        ("output", stats.output_limit_disconnections),
        ("query", stats.query_limit_disconnections),
    ];
    let help =
        "Clients that were disconnected for a limit: on all clients' memory, their output, or a request";
    out.each(FigureKind::Counter, ("tembo_disconnected_clients", "limit"), help, causes);
    out.counter("tembo_received_bytes", "Bytes from clients", stats.bytes_in);
    out.counter("tembo_sent_bytes", "Bytes to clients", stats.bytes_out);
    out.counter("tembo_reads", "Reads from sockets that brought something", stats.reads);
    out.counter("tembo_writes", "Writes to sockets that took something", stats.writes);
}

fn keys(facts: &Facts<'_>, out: &mut Gathered) {
    let of = |count: fn(&(usize, u64, u64)) -> u64| {
        facts.keyspace.iter().map(move |database| (database.0.to_string(), count(database)))
    };
    out.each(FigureKind::Gauge, ("tembo_keys", "database"), "Keys", of(|database| database.1));
    out.each(
        FigureKind::Gauge,
        ("tembo_keys_with_deadline", "database"),
        "Keys that expire",
        of(|database| database.2),
    );
    out.counter("tembo_expired_keys", "Keys that expired", facts.keys.expired);
    out.counter("tembo_evicted_keys", "Keys that were evicted", facts.state.eviction.evicted);
    out.counter("tembo_keyspace_hits", "Lookups that found a key", facts.keys.hits);
    out.counter("tembo_keyspace_misses", "Lookups that found none", facts.keys.misses);
}

fn commits(facts: &Facts<'_>, out: &mut Gathered) {
    let keys = &facts.keys;
    out.counter("tembo_commits", "Commits that made something durable", keys.commits);
    out.counter(
        "tembo_failed_commits",
        "Commits that failed, whose commands were undone",
        keys.failed_commits,
    );
    out.gauge("tembo_last_commit_failed", "1 if the last commit failed", u64::from(keys.last_commit_failed));
    let help = "Commands that wrote and were part of a commit";
    out.counter("tembo_committed_commands", help, facts.state.stats.batched_commands);
    let help = "Fences of the server's thread; none where the page cache is all that a write reaches";
    out.counter("tembo_fences", help, facts.write_backs.fences);
    let help = "Cache lines that the server's thread wrote back, or gave to the journal";
    out.counter("tembo_flushed_lines", help, facts.write_backs.lines);
    let saving = &facts.state.saving;
    out.counter("tembo_saves", "Files of Redis that were written", saving.count);
    out.gauge("tembo_last_save_time_seconds", "When a file of Redis was written last", saving.last_seconds);
    let changes = "Changes since a file of Redis was written last";
    out.gauge("tembo_changes_since_last_save", changes, saving.changes);
}

fn pool(facts: &Facts<'_>, out: &mut Gathered) {
    let (pool, state) = (facts.pool, facts.state);
    let stats = pool.stats();
    out.gauge("tembo_pool_bytes", "Length of the pool", stats.pool_bytes);
    out.gauge("tembo_pool_max_bytes", "Length up to which the pool may grow", stats.max_bytes);
    let allocated = stats.used_bytes();
    let waste = pool.survey_spare().0.min(allocated);
    let waiting = pool.waiting_bytes().min(allocated - waste);
    let kinds = [
        ("alive", allocated - waste - waiting),
        ("waste", waste),
        ("waiting", waiting),
        ("unused", stats.unused_bytes),
        ("journal", stats.journal_bytes),
    ];
    let help = "The pool by kind: data and its structures; holes between them; freed and waiting for readers; free; the journal";
    out.each(FigureKind::Gauge, ("tembo_pool_space_bytes", "kind"), help, kinds);
    out.gauge(
        "tembo_pool_allocated_bytes",
        "Space that has data or had: alive, waste and waiting",
        allocated,
    );
    out.gauge("tembo_pool_full", "1 if writes are refused for want of space", u64::from(state.is_full()));
    let help = "Bytes of data beyond which keys are evicted or writes refused; 0: the pool's maximum";
    out.gauge("tembo_maxmemory_bytes", help, state.memory_bytes_max());
}

fn compaction(facts: &Facts<'_>, out: &mut Gathered) {
    let compactor = &facts.state.compactor;
    out.gauge("tembo_compaction_running", "1 while the pool is compacted", u64::from(compactor.is_running()));
    out.counter("tembo_compactions", "Compactions that ended", compactor.finished());
    out.counter("tembo_compaction_moved_bytes", "Bytes that compactions moved", compactor.moved_bytes());
    out.counter("tembo_compaction_cut_bytes", "Bytes that the pool was cut by", compactor.cut_bytes());
    let spent = compactor.spent().as_secs_f64();
    out.real(FigureKind::Counter, "tembo_compaction_seconds", "Time that compactions took", Some(spent));
}

/// Durations of synchronisations have classes of 32 us, 64 us and so on.
const FIRST_CLASS_SECONDS: f64 = 32e-6;

fn journal(stats: Option<JournalStats>, out: &mut Gathered) {
    let one = |value: fn(&JournalStats) -> u64| {
        stats.iter().map(move |stats| (Vec::new(), Value::Whole(value(stats)))).collect::<Vec<_>>()
    };
    let real = |value: fn(&JournalStats) -> f64| stats.as_ref().map(value);
    let (counter, gauge) = (FigureKind::Counter, FigureKind::Gauge);
    let help = "Bytes that are committed and not on the device yet";
    out.add(gauge, "tembo_device_behind_bytes", help, one(|stats| stats.behind_bytes));
    let help = "For how long the oldest commit has waited for the device";
    out.real(gauge, "tembo_device_behind_seconds", help, real(|stats| stats.behind.as_secs_f64()));
    let help = "How long a commit may wait for the device; 0: it is acknowledged when it is there";
    let interval = real(|stats| stats.interval.map_or(0.0, |interval| interval.as_secs_f64()));
    out.real(gauge, "tembo_device_interval_seconds", help, interval);
    let times = stats.as_ref().map(|stats| {
        let bounds = std::iter::successors(Some(FIRST_CLASS_SECONDS), |bound| Some(bound * 2.0));
        let mut buckets: Vec<_> = bounds.zip(stats.durations).collect();
        if let Some(last) = buckets.last_mut() {
            last.0 = f64::INFINITY;
        }
        (
            Vec::new(),
            Value::Times { seconds: stats.total.as_secs_f64(), count: stats.synchronisations, buckets },
        )
    });
    let help = "Durations of synchronisations with the device";
    out.add(FigureKind::Histogram, "tembo_synchronisation_seconds", help, times.into_iter().collect());
    let help = "The longest synchronisation";
    out.real(gauge, "tembo_synchronisation_max_seconds", help, real(|stats| stats.longest.as_secs_f64()));
    out.add(gauge, "tembo_journal_ring_bytes", "Room of the journal", one(|stats| stats.ring_bytes));
    let help = "Bytes in the journal that are not written back yet";
    out.add(gauge, "tembo_journal_used_bytes", help, one(|stats| stats.used_bytes));
    let help = "Bytes that were written to the journal";
    out.add(counter, "tembo_journal_written_bytes", help, one(|stats| stats.written_bytes));
    let help = "Fences that were slowed because the journal was filling";
    out.add(counter, "tembo_journal_slowed_fences", help, one(|stats| stats.slowed));
    let help = "Fences that waited for room in the journal";
    out.add(counter, "tembo_journal_stalled_fences", help, one(|stats| stats.stalls));
    out.add(counter, "tembo_journal_write_backs", "Write-backs", one(|stats| stats.write_backs));
    let help = "Memory of pages that the process has a copy of";
    out.add(gauge, "tembo_private_memory_bytes", help, one(|stats| stats.private_bytes));
    let help = "Memory beyond which such pages are given back";
    out.add(gauge, "tembo_private_memory_max_bytes", help, one(|stats| stats.private_bytes_max));
    let help = "Bytes of such pages that were given back";
    out.add(counter, "tembo_private_memory_given_back_bytes", help, one(|stats| stats.given_back_bytes));
}

fn replication(facts: &Facts<'_>, out: &mut Gathered) {
    let state = facts.state;
    out.gauge("tembo_replica", "1 if the server is a replica", u64::from(state.role.master.is_some()));
    let offset = facts.position.map_or(0, |position| position.offset);
    out.gauge("tembo_replication_offset_bytes", "How far the stream of changes goes", offset);
    let kept = facts.position.map_or(0, |position| position.offset.saturating_sub(facts.backlog_first));
    out.gauge("tembo_replication_backlog_bytes", "Bytes of the stream that are kept", kept);
    out.gauge("tembo_replication_backlog_max_bytes", "Bytes of it that may be kept", state.backlog_bytes());
    out.gauge("tembo_replicas", "Replicas of this server", facts.replicas.len() as u64);
    let kinds = [
        ("full", state.replicas.full),
        ("partial", state.replicas.partial),
        ("partial_refused", state.replicas.partial_refused),
    ];
    let help = "Replicas that were brought up to date, by the way of it";
    out.each(FigureKind::Counter, ("tembo_resynchronisations", "kind"), help, kinds);
}

/// The links to each replica, and to the master.
fn links(facts: &Facts<'_>, out: &mut Gathered) {
    let (state, now) = (facts.state, facts.state.now);
    let offset = facts.position.map_or(0, |position| position.offset);
    let name = |ip: &str, port: u16| format!("{ip}:{port}");
    let behind = facts
        .replicas
        .iter()
        .map(|(ip, replica)| (name(ip, replica.port), offset.saturating_sub(replica.acknowledged)));
    let help = "Bytes of the stream that a replica has not acknowledged";
    out.each(FigureKind::Gauge, ("tembo_replica_behind_bytes", "replica"), help, behind);
    let heard = facts.replicas.iter().map(|(ip, replica)| {
        let seconds = now.saturating_duration_since(replica.heard).as_secs_f64();
        (vec![("replica", Cow::from(name(ip, replica.port)))], Value::Real(seconds))
    });
    let help = "For how long a replica has not been heard of";
    out.add(FigureKind::Gauge, "tembo_replica_silence_seconds", help, heard.collect());
    let role = &state.role;
    let of_master = |value: f64| role.master.is_some().then_some(value);
    let is_up = role.phase == Phase::Up;
    let up = of_master(f64::from(u8::from(is_up)));
    out.real(FigureKind::Gauge, "tembo_master_link_up", "1 if the link to the master is up", up);
    let silence = role.last_io.map(|last| now.saturating_duration_since(last).as_secs_f64());
    let help = "For how long the master has not been heard of";
    out.real(FigureKind::Gauge, "tembo_master_silence_seconds", help, silence.and_then(of_master));
}

fn scripts_and_messages(facts: &Facts<'_>, out: &mut Gathered) {
    let scripts = facts.scripts;
    out.gauge("tembo_script_memory_bytes", "Memory of the engine of scripts", scripts.engine_bytes());
    out.gauge("tembo_cached_scripts", "Scripts that are kept", scripts.len() as u64);
    out.counter("tembo_evicted_scripts", "Scripts that made room for others", scripts.evicted);
    let [channels, patterns, shards] = facts.pubsub_counts.map(|count| count as u64);
    let kinds = [("channel", channels), ("pattern", patterns), ("shard_channel", shards)];
    let help = "Channels and patterns that have subscribers";
    out.each(FigureKind::Gauge, ("tembo_subscribed_channels", "kind"), help, kinds);
}
