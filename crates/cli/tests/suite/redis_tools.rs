//! Programs that watch a Redis, watching Tembo: prometheus-redis-exporter and the modes of redis-cli. Each
//! test says so where its program is missing; `.ci/run peers` installs both.

use crate::observation::get;
use crate::serve::Server;
use crate::support::Workspace;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A program that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server with a key of each type.
fn server(workspace: &Workspace) -> Server {
    let server = Server::start(workspace, "--pool a.pool");
    for (command, reply) in [
        ("CONFIG SET maxmemory-policy allkeys-lfu", "+OK\r\n"),
        ("SET a 1", "+OK\r\n"),
        ("SET e 1 EX 1000", "+OK\r\n"),
        ("LPUSH l 1 2 3", ":3\r\n"),
        ("HSET h f v", ":1\r\n"),
        ("SADD s 1 2", ":2\r\n"),
        ("ZADD z 1 x", ":1\r\n"),
    ] {
        server.ask(command, reply);
    }
    (0..200).for_each(|_| server.ask("GET a", "$1\r\n1\r\n"));
    server
}

/// The samples that its dashboards and rules of alerts use, with what they must be here.
const SAMPLES: &[(&str, Option<f64>)] = &[
    ("redis_up", Some(1.0)),
    ("redis_exporter_last_scrape_error{err=\"\"}", Some(0.0)),
    ("redis_connected_clients", None),
    ("redis_blocked_clients", Some(0.0)),
    ("redis_connected_slaves", Some(0.0)),
    ("redis_commands_processed_total", None),
    ("redis_commands_total{cmd=\"get\"}", Some(200.0)),
    ("redis_commands_duration_seconds_total{cmd=\"get\"}", None),
    ("redis_commands_failed_calls_total{cmd=\"get\"}", Some(0.0)),
    ("redis_commands_rejected_calls_total{cmd=\"get\"}", Some(0.0)),
    ("redis_connections_received_total", None),
    ("redis_rejected_connections_total", Some(0.0)),
    ("redis_config_maxclients", None),
    ("redis_config_maxmemory", None),
    ("redis_cpu_sys_seconds_total", None),
    ("redis_cpu_user_seconds_total", None),
    ("redis_db_keys{db=\"db0\"}", Some(6.0)),
    ("redis_db_keys_expiring{db=\"db0\"}", Some(1.0)),
    ("redis_evicted_keys_total", Some(0.0)),
    ("redis_expired_keys_total", Some(0.0)),
    ("redis_keyspace_hits_total", None),
    ("redis_keyspace_misses_total", None),
    ("redis_loading_dump_file", Some(0.0)),
    ("redis_mem_fragmentation_ratio", None),
    ("redis_memory_max_bytes", None),
    ("redis_memory_used_bytes", None),
    ("redis_memory_used_peak_bytes", None),
    ("redis_memory_used_rss_bytes", None),
    ("redis_net_input_bytes_total", None),
    ("redis_net_output_bytes_total", None),
    ("redis_master_repl_offset", None),
    ("redis_replication_backlog_bytes", None),
    ("redis_rdb_bgsave_in_progress", Some(0.0)),
    ("redis_rdb_changes_since_last_save", None),
    ("redis_rdb_last_save_timestamp_seconds", None),
    ("redis_slowlog_length", None),
    ("redis_slowlog_last_id", None),
    ("redis_start_time_seconds", None),
    ("redis_uptime_in_seconds", None),
    ("redis_total_system_memory_bytes", None),
];

#[test]
fn prometheus_redis_exporter_scrapes_without_an_error() {
    let workspace = Workspace::new();
    let server = server(&workspace);
    // Free until now; nobody else asks for ports of this range by number.
    let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut command = Command::new("prometheus-redis-exporter");
    command.args(["-redis.addr", &format!("redis://127.0.0.1:{}", server.port)]);
    command.args([
        "-web.listen-address",
        &listen,
        "-check-keys",
        "*",
        "-include-system-metrics",
        "-export-client-list",
    ]);
    let Ok(exporter) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        eprintln!("skipped: no prometheus-redis-exporter here; `.ci/run peers` installs it");
        return;
    };
    let _exporter = Running(exporter);
    let deadline = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(&listen).is_err() {
        assert!(Instant::now() < deadline, "the exporter does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (_, text) = get(&listen, "/metrics");
    for (name, expected) in SAMPLES {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = value.unwrap_or_else(|| panic!("no {name} in\n{text}"));
        let value: f64 = value.trim().parse().unwrap();
        assert!(expected.is_none_or(|expected| value == expected), "{name} is {value}");
    }
    for part in ["redis_version=\"7.0.15\"", "role=\"master\"", "redis_key_size{db=\"db0\",key=\"l\"} 3"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    server.kill();
}

/// The output of redis-cli until it ended, or until `seconds` were over; `None` where it is missing. To a
/// pipe it writes lines.
fn redis_cli(server: &Server, arguments: &str, seconds: &str) -> Option<String> {
    let mut command = Command::new("timeout");
    command.args(["-s", "INT", seconds, "stdbuf", "-oL", "redis-cli", "-p", &server.port.to_string()]);
    let out = command.args(arguments.split(' ')).stdin(Stdio::null()).output();
    match out {
        // `timeout` cannot run it, or is missing itself.
        Ok(out) if out.status.code() != Some(127) => {
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            Some(String::from_utf8_lossy(&out.stdout).into_owned() + &said)
        }
        _ => {
            eprintln!("skipped: no redis-cli here; `.ci/run peers` installs it");
            None
        }
    }
}

#[test]
fn the_modes_of_redis_cli_that_watch_work() {
    let workspace = Workspace::new();
    let server = server(&workspace);
    let file = workspace.path("d.rdb").display().to_string();
    let modes: &[(&str, &str, &[&str])] = &[
        ("--stat -i 0.2", "2", &["keys       mem      clients", "\n6 "]),
        (
            "--bigkeys",
            "20",
            &["Sampled 6 keys", "Biggest   list found '\"l\"' has 3 items", "2 strings with 2 bytes"],
        ),
        ("--memkeys", "20", &["Sampled 6 keys", "Biggest   list found '\"l\"' has"]),
        ("--hotkeys", "20", &["Sampled 6 keys", "keyname: \"a\""]),
        ("--latency -i 1 --raw", "3", &[" "]),
        ("--latency-history -i 1 --raw", "3", &[" "]),
        ("--latency-dist -i 1", "3", &["."]),
        ("--intrinsic-latency 1", "20", &["Max latency so far:", "total runs"]),
        (&format!("--rdb {file}"), "20", &["Transfer finished with success"]),
    ];
    for (arguments, seconds, parts) in modes {
        let Some(said) = redis_cli(&server, arguments, seconds) else { return };
        for part in *parts {
            assert!(said.contains(part), "redis-cli {arguments}: {part:?} is not in\n{said}");
        }
        assert!(!said.contains("ERR") && !said.contains("rror:"), "redis-cli {arguments}: {said}");
    }
    let imported = workspace.run(&format!("import {file} --pool b.pool"));
    imported.ok();
    assert!(workspace.run("info b.pool").ok().text().contains('6'));
    server.kill();
}

#[test]
fn redis_cli_sends_files_of_commands_through_a_pipe() {
    let workspace = Workspace::new();
    let server = server(&workspace);
    let commands: String = (0..10_000).map(|n| format!("SET p{n} {n}\r\n")).collect();
    std::fs::write(workspace.path("commands"), commands).unwrap();
    let mut command = Command::new("redis-cli");
    command.args(["-p", &server.port.to_string(), "--pipe"]);
    command.stdin(std::fs::File::open(workspace.path("commands")).unwrap());
    let Ok(out) = command.output() else {
        eprintln!("skipped: no redis-cli here; `.ci/run peers` installs it");
        return;
    };
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("errors: 0, replies: 10000"), "{said}");
    server.ask("DBSIZE", ":10006\r\n");
    server.kill();
    workspace.run("check a.pool").ok();
}
