//! Every value that INFO and CONFIG GET print is true, or is not printed.
//!
//! Each has a row here, with a proof that it is what it says. A value without a row fails the test: whoever
//! adds one says how it is known to be true.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use tembo_wire::Value;

use crate::support::{Client, Fixture, eventually};

const MAX_BYTES: u64 = 96 << 20;

/// The facts that a test knows of the server without asking it.
struct Known {
    port: u16,
    fields: BTreeMap<String, String>,
}

impl Known {
    fn number(&self, field: &str) -> u64 {
        self.fields[field].parse().unwrap_or_else(|_| panic!("{field} is {}", self.fields[field]))
    }

    fn pool_file_bytes(&self) -> u64 {
        std::fs::metadata(&self.fields["pool_path"]).unwrap().len()
    }
}

type Proof = fn(&str, &Known) -> bool;

/// The used bytes, to those that are not in holes between records.
fn is_fragmentation(text: &str, known: &Known) -> bool {
    let used = known.number("used_memory") as f64;
    text == format!("{:.2}", used / (used - known.number("pool_spare_bytes") as f64))
}

fn is_zero(text: &str, _: &Known) -> bool {
    text.parse() == Ok(0.0)
}

fn is_empty(text: &str, _: &Known) -> bool {
    text.is_empty()
}

fn is_no(text: &str, _: &Known) -> bool {
    text == "no"
}

fn is_rate(text: &str, _: &Known) -> bool {
    text.parse::<f64>().is_ok_and(|rate| rate >= 0.0)
}

/// 1.50M as in Redis, to two digits.
fn is_human(text: &str, bytes: u64) -> bool {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap();
    let factor = ["B", "K", "M", "G", "T"].iter().position(|unit| *unit == &text[at..]).unwrap() as u32;
    let shown = text[..at].parse::<f64>().unwrap() * 1024_f64.powi(factor as i32);
    (shown - bytes as f64).abs() <= 0.006 * 1024_f64.powi(factor as i32)
}

/// The server ran, in its own pool: SET k v, GET k, GET missing, a SET of 1 MB with a deadline, an unknown
/// command, and one key that expired.
const INFO: &[(&str, Proof)] = &[
    // Server
    ("redis_version", |text, _| text == "7.0.15"),
    ("redis_mode", |text, _| text == "standalone"),
    ("server_name", |text, _| text == "tembo"),
    ("os", |text, _| {
        text.contains(&std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim().to_owned())
    }),
    ("arch_bits", |text, _| text.parse() == Ok(usize::BITS)),
    ("multiplexing_api", |text, _| text == "epoll"),
    ("process_id", |text, _| text.parse() == Ok(std::process::id())),
    ("run_id", |text, _| text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())),
    ("tcp_port", |text, known| text.parse() == Ok(known.port)),
    ("server_time_usec", |text, _| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
        now.abs_diff(text.parse().unwrap()) < 60_000_000
    }),
    ("uptime_in_seconds", |text, _| text.parse::<u64>().unwrap() < 600),
    ("uptime_in_days", is_zero),
    ("hz", |text, _| text == "10"),
    ("configured_hz", |text, _| text == "10"),
    ("executable", |text, _| std::path::Path::new(text) == std::env::current_exe().unwrap()),
    ("config_file", is_empty),
    ("io_threads_active", is_zero),
    // Clients
    ("connected_clients", |text, _| text == "2"),
    ("cluster_connections", is_zero),
    ("maxclients", |text, _| text == "10000"),
    ("blocked_clients", is_zero),
    ("tracking_clients", is_zero),
    ("clients_in_timeout_table", is_zero),
    // Memory: the pool's
    ("used_memory", |text, known| {
        let used = text.parse::<u64>().unwrap();
        used > 1_000_000 && used == known.pool_file_bytes() - known.number("pool_unused_bytes")
    }),
    ("used_memory_human", |text, known| is_human(text, known.number("used_memory"))),
    ("used_memory_peak", |text, known| {
        (known.number("used_memory")..=known.pool_file_bytes()).contains(&text.parse().unwrap())
    }),
    ("used_memory_peak_human", |text, known| is_human(text, known.number("used_memory_peak"))),
    ("used_memory_rss", |text, known| {
        (1 << 20..known.number("total_system_memory")).contains(&text.parse().unwrap())
    }),
    ("used_memory_rss_human", |text, known| is_human(text, known.number("used_memory_rss"))),
    ("total_system_memory", |text, _| {
        let text_of_kernel = std::fs::read_to_string("/proc/meminfo").unwrap();
        let kib = text.parse::<u64>().unwrap() / 1024;
        text_of_kernel.lines().next().unwrap().contains(&format!(" {kib} kB"))
    }),
    ("total_system_memory_human", |text, known| is_human(text, known.number("total_system_memory"))),
    ("maxmemory", |text, _| text.parse() == Ok(MAX_BYTES)),
    ("maxmemory_human", |text, _| is_human(text, MAX_BYTES)),
    ("maxmemory_policy", |text, _| text == "noeviction"),
    ("mem_clients_normal", |text, _| (1000..1 << 20).contains(&text.parse::<u64>().unwrap())),
    ("mem_allocator", |text, _| text == "tembo-pool"),
    ("mem_fragmentation_ratio", is_fragmentation),
    ("mem_fragmentation_bytes", |text, known| text == known.fields["pool_spare_bytes"]),
    ("allocator_frag_ratio", is_fragmentation),
    ("allocator_frag_bytes", |text, known| text == known.fields["pool_spare_bytes"]),
    ("active_defrag_running", is_zero),
    ("total_active_defrag_time", is_zero),
    ("current_active_defrag_time", is_zero),
    ("lazyfree_pending_objects", is_zero),
    // There was no script yet.
    ("used_memory_lua", is_zero),
    ("used_memory_vm_eval", is_zero),
    ("used_memory_lua_human", |text, _| text == "0B"),
    ("used_memory_scripts_eval", is_zero),
    ("number_of_cached_scripts", is_zero),
    ("number_of_functions", is_zero),
    ("number_of_libraries", is_zero),
    ("used_memory_vm_functions", is_zero),
    ("used_memory_vm_total", is_zero),
    ("used_memory_vm_total_human", |text, _| text == "0B"),
    ("used_memory_functions", is_zero),
    ("used_memory_scripts", is_zero),
    ("used_memory_scripts_human", |text, _| text == "0B"),
    // Persistence: there is nothing to load, to save or to rewrite
    ("loading", is_zero),
    ("async_loading", is_zero),
    // The value with a deadline makes three commands that write.
    ("rdb_changes_since_last_save", |text, _| text == "3"),
    ("rdb_bgsave_in_progress", is_zero),
    ("rdb_last_save_time", |text, known| {
        text.parse::<u64>().unwrap().abs_diff(known.number("server_time_usec") / 1_000_000) < 60
    }),
    ("rdb_last_bgsave_status", |text, _| text == "ok"),
    ("rdb_last_bgsave_time_sec", |text, _| text == "-1"),
    ("rdb_current_bgsave_time_sec", |text, _| text == "-1"),
    ("current_save_keys_processed", is_zero),
    ("current_save_keys_total", is_zero),
    ("current_cow_size", is_zero),
    ("copy_longest_step_usec", is_zero),
    ("rdb_saves", is_zero),
    ("rdb_last_cow_size", is_zero),
    ("aof_enabled", is_zero),
    ("aof_rewrite_in_progress", is_zero),
    ("aof_rewrite_scheduled", is_zero),
    // Stats
    ("total_connections_received", |text, _| text == "2"),
    ("total_commands_processed", |text, known| {
        text.parse::<u64>().unwrap() <= known.number("total_reads_processed") + 1
    }),
    ("instantaneous_ops_per_sec", is_rate),
    ("total_net_input_bytes", |text, _| (1_000_000..2_000_000).contains(&text.parse::<u64>().unwrap())),
    ("total_net_output_bytes", |text, _| (30..1_000_000).contains(&text.parse::<u64>().unwrap())),
    ("instantaneous_input_kbps", is_rate),
    ("instantaneous_output_kbps", is_rate),
    ("rejected_connections", is_zero),
    ("client_query_buffer_limit_disconnections", is_zero),
    ("client_output_buffer_limit_disconnections", is_zero),
    ("evicted_clients", is_zero),
    ("evicted_scripts", is_zero),
    ("total_watched_keys", is_zero),
    ("expired_keys", |text, _| text == "1"),
    ("evicted_keys", is_zero),
    ("keyspace_hits", |text, _| text == "1"),
    ("keyspace_misses", |text, _| text == "1"),
    ("pubsub_channels", is_zero),
    ("pubsub_patterns", is_zero),
    ("pubsubshard_channels", is_zero),
    ("total_forks", is_zero),
    ("tracking_total_keys", is_zero),
    ("tracking_total_items", is_zero),
    ("tracking_total_prefixes", is_zero),
    ("total_error_replies", |text, _| text == "1"),
    ("total_reads_processed", |text, _| (6..1000).contains(&text.parse::<u64>().unwrap())),
    ("total_writes_processed", |text, _| (6..1000).contains(&text.parse::<u64>().unwrap())),
    ("sync_full", is_zero),
    ("sync_partial_ok", is_zero),
    ("sync_partial_err", is_zero),
    // Replication: there is none
    ("role", |text, _| text == "master"),
    ("connected_slaves", is_zero),
    ("master_failover_state", |text, _| text == "no-failover"),
    ("master_replid", |text, known| text == known.fields["run_id"]),
    ("master_repl_offset", is_zero),
    ("master_replid2", |text, _| text == "0".repeat(40)),
    ("second_repl_offset", |text, _| text == "-1"),
    ("repl_backlog_active", is_zero),
    ("repl_backlog_size", |text, _| text.parse() == Ok((MAX_BYTES / 64).clamp(1 << 20, 64 << 20))),
    ("repl_backlog_first_byte_offset", is_zero),
    ("repl_backlog_histlen", is_zero),
    ("sequence", is_zero),
    // CPU
    ("used_cpu_sys", is_rate),
    ("used_cpu_user", is_rate),
    ("used_cpu_sys_children", is_zero),
    ("used_cpu_user_children", is_zero),
    // Errors: the unknown command
    ("errorstat_ERR", |text, _| text == "count=1"),
    // Tembo
    ("tembo_version", |text, _| text == env!("CARGO_PKG_VERSION")),
    ("pool_path", |text, _| text.ends_with("test.pool")),
    ("durability_domain", |text, _| text == "page-cache"),
    ("acknowledged_write_survives", |text, _| {
        text.contains("kill -9") && text.contains("not a crash of the operating system")
    }),
    ("pool_bytes", |text, known| text.parse() == Ok(known.pool_file_bytes())),
    ("pool_bytes_max", |text, _| text.parse() == Ok(MAX_BYTES)),
    ("pool_unused_bytes", |text, known| text.parse::<u64>().unwrap() < known.pool_file_bytes()),
    ("pool_spare_bytes", |text, known| text.parse::<u64>().unwrap() < known.pool_file_bytes()),
    ("pool_compactions", is_zero),
    ("pool_compaction_moved_bytes", is_zero),
    ("pool_cut_bytes", is_zero),
    ("pool_waiting_bytes", |text, known| text.parse::<u64>().unwrap() < known.pool_file_bytes()),
    ("pool_full", is_zero),
    ("kept_states", is_zero),
    ("kept_keys", is_zero),
    ("kept_seconds_left", is_zero),
    ("kept_given_up", is_zero),
    // SET k v, SET large, SET short, and the removal of the last.
    ("commits", |text, _| text == "4"),
    ("failed_commits", is_zero),
    ("last_commit_status", |text, _| text == "ok"),
    ("commands_per_commit", |text, _| text == "0.75"),
    // The pool is in the page cache.
    ("fences", is_zero),
    ("flushed_lines", is_zero),
    ("event_loop_turns", |text, known| text.parse::<u64>().unwrap() >= known.number("total_reads_processed")),
    // Cluster
    ("cluster_enabled", is_zero),
    // Keyspace
    ("db0", |text, _| text == "keys=2,expires=1"),
];

const CONFIG: &[(&str, Proof)] = &[
    ("active-defrag-cycle-max", |text, _| text == "10"),
    ("active-defrag-cycle-min", |text, _| text == "5"),
    ("active-defrag-ignore-bytes", |text, _| text == "16777216"),
    ("active-defrag-max-scan-fields", |text, _| text == "1000"),
    ("active-defrag-threshold-lower", |text, _| text == "25"),
    ("active-defrag-threshold-upper", |text, _| text == "100"),
    ("activedefrag", |text, _| text == "yes"),
    ("busy-reply-threshold", |text, _| text == "5000"),
    ("lua-time-limit", |text, _| text == "5000"),
    ("acl-pubsub-default", |text, _| text == "resetchannels"),
    ("aclfile", is_empty),
    ("acllog-max-len", |text, _| text == "128"),
    ("appendfsync", is_no),
    ("appendonly", is_no),
    ("bind", |text, _| text == "127.0.0.1"),
    ("client-output-buffer-limit", |text, _| {
        text == "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"
    }),
    ("client-query-buffer-limit", |text, _| text == "1073741824"),
    ("cluster-allow-unfenced-failover", is_no),
    ("cluster-enabled", is_no),
    ("databases", |text, _| text == "16"),
    ("flush-grace", |text, _| text == "0"),
    ("hash-max-listpack-entries", |text, _| text == "512"),
    ("hash-max-listpack-value", |text, _| text == "64"),
    ("hash-max-ziplist-entries", |text, _| text == "512"),
    ("hash-max-ziplist-value", |text, _| text == "64"),
    ("hll-sparse-max-bytes", |text, _| text == "3000"),
    ("hz", |text, known| text == known.fields["hz"]),
    ("io-threads", |text, _| text == "1"),
    ("latency-monitor-threshold", is_zero),
    ("latency-tracking", |text, _| text == "yes"),
    ("loglevel", |text, _| text == "notice"),
    ("maxclients", |text, known| text == known.fields["maxclients"]),
    ("lfu-decay-time", |text, _| text == "1"),
    ("lfu-log-factor", |text, _| text == "10"),
    ("maxmemory-eviction-tenacity", |text, _| text == "10"),
    ("maxmemory-samples", |text, _| text == "5"),
    ("maxmemory", |text, _| text.parse() == Ok(MAX_BYTES)),
    ("maxmemory-clients", |text, known| {
        (256 << 20..=(known.number("total_system_memory") / 4).max(256 << 20))
            .contains(&text.parse().unwrap())
    }),
    ("maxmemory-policy", |text, _| text == "noeviction"),
    ("master-lease-mode", |text, _| text == "disabled"),
    ("masterauth", is_empty),
    ("masteruser", is_empty),
    ("min-replicas-max-lag", |text, _| text == "10"),
    ("min-replicas-to-write", is_zero),
    ("min-slaves-max-lag", |text, _| text == "10"),
    ("min-slaves-to-write", is_zero),
    ("repl-backlog-size", |text, _| text.parse() == Ok((MAX_BYTES / 64).clamp(1 << 20, 64 << 20))),
    ("repl-ping-replica-period", |text, _| text == "10"),
    ("repl-ping-slave-period", |text, _| text == "10"),
    ("repl-refuse-ahead", |text, _| text == "yes"),
    ("repl-timeout", |text, _| text == "60"),
    ("replica-announce-ip", is_empty),
    ("replica-announce-port", is_zero),
    ("replica-announced", |text, _| text == "yes"),
    ("replica-priority", |text, _| text == "100"),
    ("replica-read-only", |text, _| text == "yes"),
    ("replica-serve-stale-data", |text, _| text == "yes"),
    ("replicaof", is_empty),
    ("slave-announce-ip", is_empty),
    ("slave-announce-port", is_zero),
    ("slave-priority", |text, _| text == "100"),
    ("slave-read-only", |text, _| text == "yes"),
    ("slave-serve-stale-data", |text, _| text == "yes"),
    ("slaveof", is_empty),
    ("notify-keyspace-events", is_empty),
    ("port", |text, known| text.parse() == Ok(known.port)),
    ("protected-mode", |text, _| text == "yes"),
    ("dbfilename", |text, _| text == "dump.rdb"),
    ("dir", |text, known| {
        std::path::Path::new(&known.fields["pool_path"]).parent().unwrap() == std::path::Path::new(text)
    }),
    ("enable-debug-command", |text, _| text == "local"),
    ("log-format", |text, _| text == "text"),
    ("supervised", |text, _| text == "auto"),
    ("metrics", is_empty),
    ("metrics-public", |text, _| text == "no"),
    ("unixsocket", is_empty),
    ("unixsocketperm", is_zero),
    ("proto-max-bulk-len", |text, _| text == "536870912"),
    ("reply-max-bytes", |text, _| text == "1073741824"),
    ("requirepass", is_empty),
    ("save", is_empty),
    ("set-max-intset-entries", |text, _| text == "512"),
    ("slow-turn-ms", |text, _| text == "250"),
    ("slowlog-log-slower-than", |text, _| text == "10000"),
    ("slowlog-max-len", |text, _| text == "128"),
    ("tcp-keepalive", |text, _| text == "300"),
    ("timeout", is_zero),
    ("tls-auth-clients", |text, _| text == "yes"),
    ("tls-ca-cert-dir", is_empty),
    ("tls-ca-cert-file", is_empty),
    ("tls-cert-file", is_empty),
    ("tls-ciphers", is_empty),
    ("tls-ciphersuites", is_empty),
    ("tls-client-cert-file", is_empty),
    ("tls-client-key-file", is_empty),
    ("tls-handshake-timeout", |text, _| text == "10"),
    ("tls-key-file", is_empty),
    ("tls-port", is_zero),
    ("tls-prefer-server-ciphers", is_no),
    ("tls-protocols", is_empty),
    ("tls-replication", is_no),
    ("tls-session-cache-size", |text, _| text == "20480"),
    ("tls-session-caching", |text, _| text == "yes"),
    ("tracking-table-max-keys", |text, _| text == "1000000"),
    ("zset-max-listpack-entries", |text, _| text == "128"),
    ("zset-max-listpack-value", |text, _| text == "64"),
    ("zset-max-ziplist-entries", |text, _| text == "128"),
    ("zset-max-ziplist-value", |text, _| text == "64"),
];

fn info(client: &mut Client) -> BTreeMap<String, String> {
    let text = client.run(&[b"INFO"]);
    let text = String::from_utf8(text.as_bytes().unwrap().to_vec()).unwrap();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn config(client: &mut Client) -> BTreeMap<String, String> {
    let Value::Array(list) = client.run(&[b"CONFIG", b"GET", b"*"]) else { panic!("no array") };
    let text = |value: &Value| String::from_utf8(value.as_bytes().unwrap().to_vec()).unwrap();
    list.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

fn busy_server() -> (Fixture, Client, Client) {
    let server = Fixture::with(
        |_| {},
        |options| options.max_bytes(MAX_BYTES).durability(tembo::Durability::PageCache),
    );
    let (mut client, mut other) = (server.client(), server.client());
    client.talk("SET k v => +OK\nGET k => $v\nGET missing => nil\nSET short v PX 1 => +OK");
    client.run(&[b"SET", b"large", &vec![b'v'; 1_000_000], b"EX", b"1000"]);
    client.ask("NOSUCH");
    other.talk("PING => +PONG");
    eventually(|| client.info("expired_keys") == "1");
    (server, client, other)
}

/// `CONFIG GET maxmemory` was 0 whatever the pool's maximum, `appendfsync` was "always" in a pool that
/// survives no power failure, and `mem_fragmentation_ratio` was 41.8 in a fresh one.
#[test]
fn every_value_is_true() {
    let (server, mut client, _other) = busy_server();
    let known = Known { port: server.address.port(), fields: info(&mut client) };
    let settings = config(&mut client);
    for (found, rows) in [(&known.fields, INFO), (&settings, CONFIG)] {
        for (name, value) in found {
            let row = rows.iter().find(|(known, _)| known == name);
            let (_, proof) = row.unwrap_or_else(|| panic!("nothing proves that {name}:{value} is true"));
            assert!(proof(value, &known), "{name}:{value}");
        }
        for (name, _) in rows {
            assert!(found.contains_key(*name), "{name} is gone, and its row is not");
        }
    }
}

#[test]
fn what_writes_survive_is_said_as_redis_says_it() {
    for (durability, expected) in [
        (tembo::Durability::PageCache, "no"),
        (tembo::Durability::Emulated, "no"),
        (tembo::Durability::Synced, "always"),
        (tembo::Durability::Journaled, "always"),
        (tembo::Durability::Relaxed { interval_ms: 1000 }, "everysec"),
    ] {
        let server = Fixture::with(|_| {}, |options| options.durability(durability));
        server.client().talk(&format!("CONFIG GET appendfsync => [$appendfsync ${expected}]"));
    }
}

#[test]
fn the_journal_is_described_where_there_is_one() {
    for durability in [tembo::Durability::Journaled, tembo::Durability::Relaxed { interval_ms: 30 }] {
        let server = Fixture::with(|_| {}, |options| options.durability(durability).journal_bytes(1 << 20));
        let mut client = server.client();
        let written = |client: &mut Client| client.info("journal_written_bytes").parse::<u64>().unwrap();
        let before = written(&mut client);
        client.run(&[b"SET", b"k", &vec![b'v'; 10_000]]);
        assert!(written(&mut client) >= before + 10_000);
        eventually(|| client.info("journal_behind_bytes") == "0" && client.info("journal_behind_ms") == "0");
        let interval = if durability == tembo::Durability::Journaled { "0" } else { "30" };
        assert_eq!(client.info("journal_interval_ms"), interval);
        let number = |client: &mut Client, name: &str| client.info(name).parse::<u64>().unwrap();
        assert!(number(&mut client, "journal_synchronisations") > 0);
        let ring = number(&mut client, "journal_ring_bytes");
        assert!((1 << 19..=1 << 20).contains(&ring), "{ring}");
        (0..400).for_each(|_| drop(client.run(&[b"SET", b"k", &vec![b'w'; 10_000]])));
        eventually(|| number(&mut client, "journal_used_bytes") <= ring / 2);
        assert!(number(&mut client, "journal_write_backs") > 0);
        let mut number_of = |name: &str| number(&mut client, name);
        let [half, most] =
            ["journal_synchronisation_us_p50", "journal_synchronisation_us_p99"].map(&mut number_of);
        assert!(half >= 32 && half.is_power_of_two() && most >= half, "{half} {most}");
        let [private, most] = ["journal_private_bytes", "journal_private_bytes_max"].map(&mut number_of);
        assert!(private >= 4096 && most > private, "{private} {most}");
        number(&mut client, "journal_given_back_bytes");
        number(&mut client, "journal_slowed");
        number(&mut client, "journal_stalls");
        number(&mut client, "journal_longest_synchronisation_ms");
    }
}

#[test]
fn what_is_used_grows_and_shrinks_and_its_peak_stays() {
    let server = Fixture::start();
    let mut client = server.client();
    let before: u64 = client.info("used_memory").parse().unwrap();
    client.run(&[b"SET", b"k", &vec![b'v'; 16 << 20]]);
    let full: u64 = client.info("used_memory").parse().unwrap();
    assert!(full >= before + (16 << 20), "{full} after {before}");
    client.talk("DEL k => :1");
    eventually(|| {
        // The blocks that a commit frees can be used after the next commits.
        client.talk("SET other v => +OK");
        client.info("used_memory").parse::<u64>().unwrap() < full - (15 << 20)
    });
    assert!(client.info("used_memory_peak").parse::<u64>().unwrap() >= full);
}

/// A setting, the value that it is given, and what it shows then, or why the value is refused.
type Setting = (&'static str, &'static str, Result<&'static str, &'static str>);

#[track_caller]
fn set_each(client: &mut Client, settings: &[Setting]) {
    for (name, value, expected) in settings {
        let answer = client.ask(&format!("CONFIG SET {name} {value}"));
        match expected {
            Ok(shown) => {
                assert_eq!(answer, "+OK", "{name} {value}");
                assert_eq!(client.ask(&format!("CONFIG GET {name}")), format!("[${name} ${shown}]"));
            }
            Err(why) => {
                let refused =
                    format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {why}");
                assert_eq!(answer, refused, "{name} {value}");
            }
        }
    }
}

#[test]
fn limits_of_memory_are_read_as_redis_reads_them() {
    let server = Fixture::start();
    let range = "argument must be between 1048576 and 9223372036854775807 inclusive";
    let mut client = server.client();
    // It has more than some of the limits.
    client.talk("CLIENT NO-EVICT ON => +OK");
    set_each(
        &mut client,
        &[
            ("maxmemory-clients", "1gb", Ok("1073741824")),
            ("maxmemory-clients", "1KB", Ok("1024")),
            ("maxmemory-clients", "100%", Ok("100%")),
            ("maxmemory-clients", "0%", Ok("0")),
            ("maxmemory-clients", "''", Ok("0")),
            ("maxmemory-clients", "101%", Err("percentage argument must be less or equal to 100")),
            ("maxmemory-clients", "-1", Err("argument must be a memory or percent value")),
            ("maxmemory-clients", "abc%", Err("argument must be a memory or percent value")),
            ("maxmemory-clients", "1x", Err("argument must be a memory or percent value")),
            ("client-query-buffer-limit", "1024kb", Ok("1048576")),
            ("client-query-buffer-limit", "9223372036854775807", Ok("9223372036854775807")),
            ("client-query-buffer-limit", "100", Err(range)),
            ("client-query-buffer-limit", "abc", Err("argument must be a memory value")),
            ("proto-max-bulk-len", "1mb", Ok("1048576")),
            ("proto-max-bulk-len", "1gb", Err("argument must be between 1048576 and 536870912 inclusive")),
            ("maxmemory", "64mb", Ok("67108864")),
            ("maxmemory-policy", "volatile-ttl", Ok("volatile-ttl")),
            ("maxmemory-samples", "10", Ok("10")),
            ("maxmemory-samples", "0", Err("argument must be between 1 and 64 inclusive")),
        ],
    );
}

#[test]
fn limits_of_output_buffers_are_read_as_redis_reads_them() {
    const NAME: &str = "client-output-buffer-limit";
    let server = Fixture::start();
    let (arguments, class, limit) = (
        "Wrong number of arguments in buffer limit configuration.",
        "Invalid client class specified in buffer limit configuration.",
        "Error in hard, soft or soft_seconds setting in buffer limit configuration.",
    );
    set_each(
        &mut server.client(),
        &[
            (
                NAME,
                "'replica 1gb 1mb 10 pubsub 1k 2k 3'",
                Ok("normal 0 0 0 slave 1073741824 1048576 10 pubsub 1000 2000 3"),
            ),
            (NAME, "'SLAVE 1 2 3'", Ok("normal 0 0 0 slave 1 2 3 pubsub 1000 2000 3")),
            (NAME, "''", Ok("normal 0 0 0 slave 1 2 3 pubsub 1000 2000 3")),
            (NAME, "'normal 1mb 0'", Err(arguments)),
            (NAME, "'nosuch 0 0 0'", Err(class)),
            (NAME, "'master 0 0 0'", Err(class)),
            (NAME, "'normal x 0 0'", Err(limit)),
            (NAME, "'normal 0 -1 0'", Err(limit)),
            (NAME, "'normal 0 0 -1'", Err(limit)),
        ],
    );
}

#[test]
fn settings_of_other_kinds_are_read_as_redis_reads_them() {
    let server = Fixture::start();
    let mut client = server.client();
    set_each(
        &mut client,
        &[
            ("loglevel", "VERBOSE", Ok("verbose")),
            (
                "loglevel",
                "info",
                Err("argument(s) must be one of the following: debug, verbose, notice, warning"),
            ),
            ("timeout", "-1", Err("argument must be between 0 and 2147483647 inclusive")),
            ("timeout", "1.5", Err("argument couldn't be parsed into an integer")),
            ("maxclients", "0", Err("argument must be between 1 and 4294967295 inclusive")),
            ("notify-keyspace-events", "KEq", Err("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")),
            ("notify-keyspace-events", "Elx", Ok("lxE")),
            ("unixsocket", "s", Err("can't set immutable config")),
            ("dir", "elsewhere", Err("can't set protected config")),
            ("dbfilename", "x", Err("can't set protected config")),
            (
                "daemonize",
                "no",
                Err(
                    "it has no meaning here: the server stays in the foreground and logs to standard error, for a service manager",
                ),
            ),
        ],
    );
    let answer = client.ask("CONFIG SET maxclients 4294967295");
    assert!(answer.contains("The operating system is not able to handle"), "{answer}");
}
