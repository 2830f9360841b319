//! The directives of Redis that are no settings here: why each has no meaning, or is refused.

const NO_FILES: &str = "every write is in the pool: there are no append-only files, and SAVE writes a file only when it is called";
const NO_CLUSTER: &str = "nodes of a cluster do not talk to each other: the topology is pushed by CLUSTERX";
const NO_BUS: &str =
    "nodes of a cluster talk to each other when slots move alone: with TLS by tls-replication";
const NO_REPLICATION: &str = "replication works in another way";
const POOL_SPACE: &str = "the pool frees and arranges its space by itself";
const SERVICE: &str = "the server stays in the foreground and logs to standard error, for a service manager";
const ENCODING: &str = "encodings are the pool's own";
const ONE_THREAD: &str = "one thread serves all clients";

/// Directives without meaning here, by the reason.
pub(crate) const WITHOUT_MEANING: &[(&str, &[&str])] = &[
    (
        NO_FILES,
        &[
            "aof-disable-auto-gc",
            "aof-load-truncated",
            "aof-rewrite-incremental-fsync",
            "aof-timestamp-enabled",
            "aof-use-rdb-preamble",
            "aof_rewrite_cpulist",
            "appenddirname",
            "appendfilename",
            "appendfsync",
            "appendonly",
            "auto-aof-rewrite-min-size",
            "auto-aof-rewrite-percentage",
            "bgsave_cpulist",
            "no-appendfsync-on-rewrite",
            "rdb-del-sync-files",
            "rdb-save-incremental-fsync",
            "rdbchecksum",
            "rdbcompression",
            "sanitize-dump-payload",
            "save",
            "stop-writes-on-bgsave-error",
        ],
    ),
    (
        NO_CLUSTER,
        &[
            "cluster-allow-pubsubshard-when-down",
            "cluster-allow-reads-when-down",
            "cluster-allow-replica-migration",
            "cluster-announce-bus-port",
            "cluster-announce-hostname",
            "cluster-announce-ip",
            "cluster-announce-port",
            "cluster-announce-tls-port",
            "cluster-config-file",
            "cluster-link-sendbuf-limit",
            "cluster-migration-barrier",
            "cluster-node-timeout",
            "cluster-port",
            "cluster-preferred-endpoint-type",
            "cluster-replica-no-failover",
            "cluster-replica-validity-factor",
            "cluster-require-full-coverage",
            "cluster-slave-no-failover",
            "cluster-slave-validity-factor",
        ],
    ),
    (NO_BUS, &["tls-cluster"]),
    (
        NO_REPLICATION,
        &[
            "propagation-error-behavior",
            "repl-backlog-ttl",
            "repl-disable-tcp-nodelay",
            "repl-diskless-load",
            "repl-diskless-sync",
            "repl-diskless-sync-delay",
            "repl-diskless-sync-max-replicas",
            "replica-ignore-disk-write-errors",
            "replica-lazy-flush",
            "slave-lazy-flush",
        ],
    ),
    (
        "keys are read without a passphrase, which `openssl pkey -in OLD -out NEW` takes away",
        &["tls-client-key-file-pass", "tls-key-file-pass"],
    ),
    ("TLS 1.2 is spoken with elliptic curves, and without other groups", &["tls-dh-params-file"]),
    ("sessions are remembered as long as there is room for them", &["tls-session-cache-timeout"]),
    (
        POOL_SPACE,
        &[
            "activerehashing",
            "jemalloc-bg-thread",
            "lazyfree-lazy-eviction",
            "lazyfree-lazy-expire",
            "lazyfree-lazy-server-del",
            "lazyfree-lazy-user-del",
            "lazyfree-lazy-user-flush",
            "disable-thp",
        ],
    ),
    (
        SERVICE,
        &[
            "always-show-logo",
            "crash-log-enabled",
            "crash-memcheck-enabled",
            "daemonize",
            "ignore-warnings",
            "logfile",
            "oom-score-adj",
            "oom-score-adj-values",
            "pidfile",
            "proc-title-template",
            "set-proc-title",
            "shutdown-on-sigint",
            "shutdown-on-sigterm",
            "shutdown-timeout",
            "syslog-enabled",
            "syslog-facility",
            "syslog-ident",
        ],
    ),
    (
        ENCODING,
        &[
            "list-compress-depth",
            "list-max-listpack-size",
            "list-max-ziplist-size",
            "stream-node-max-bytes",
            "stream-node-max-entries",
        ],
    ),
    (ONE_THREAD, &["bio_cpulist", "io-threads", "io-threads-do-reads", "server_cpulist"]),
    ("the tick of the event loop is fixed", &["dynamic-hz", "hz", "active-expire-effort"]),
    ("the system chooses the way of outgoing connections, of which there are none", &["bind-source-addr"]),
    ("the queue of connections has the system's length", &["tcp-backlog"]),
    ("sockets are not marked", &["socket-mark-id"]),
    ("a replica's keys go by its master's word", &["replica-ignore-maxmemory", "slave-ignore-maxmemory"]),
    ("`dir` and `dbfilename` are never changed while the server runs", &["enable-protected-configs"]),
    ("INFO has the percentiles 50, 99 and 99.9", &["latency-tracking-info-percentiles"]),
    ("there are no modules", &["enable-module-command"]),
];

/// Directives whose disregard would be dangerous.
pub(crate) const REFUSED: &[(&str, &str)] =
    &[("rename-command", "commands keep their names"), ("loadmodule", "there are no modules")];

/// Why a directive is without meaning here, or refused.
pub(crate) fn why_not(name: &str) -> Option<&'static str> {
    let is = |other: &&str| other.eq_ignore_ascii_case(name);
    let without = WITHOUT_MEANING.iter().find(|(_, names)| names.iter().any(is)).map(|(why, _)| *why);
    without.or_else(|| REFUSED.iter().find(|(refused, _)| is(refused)).map(|(_, why)| *why))
}
