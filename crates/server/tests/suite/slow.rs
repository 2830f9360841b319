//! Commands that took long, and how often commands were run.

use crate::support::Fixture;

#[test]
fn slow_commands_are_in_the_log_without_passwords() {
    let server = Fixture::start();
    let mut client = server.client();
    client
        .talk("CLIENT SETNAME me => +OK\nCONFIG SET slowlog-log-slower-than 0 => +OK\nSLOWLOG RESET => +OK");
    client.ask("AUTH default hunter2");
    client.ask("CONFIG SET timeout 0 requirepass hunter2");
    client.ask("CONFIG SET requirepass ''");
    client.ask(&format!("SET k {}", "v".repeat(200)));
    client.ask(&format!("DEL {}", "k ".repeat(40)));
    client.talk("MULTI => +OK\nGET k => +QUEUED\nEXEC => [nil]");
    let log = client.ask("SLOWLOG GET -1");
    assert!(!log.contains("hunter2"), "{log}");
    for part in [
        "[$AUTH $(redacted) $(redacted)]",
        "[$CONFIG $SET $timeout $(redacted) $requirepass $(redacted)]",
        "... (72 more bytes)]",
        "$... (10 more arguments)] $127.0.0.1:",
        " $me]",
    ] {
        assert!(log.contains(part), "{part} is not in {log}");
    }
    assert!(!log.contains("$EXEC"), "its commands are long, and not EXEC: {log}");
    client.talk("CONFIG SET slowlog-max-len 2 => +OK\nPING => +PONG\nSLOWLOG LEN => :2");
    client.talk(
        "
        CONFIG SET slowlog-log-slower-than -1 => +OK
        SLOWLOG RESET => +OK
        SLOWLOG LEN => :0
        SLOWLOG GET => []
        SLOWLOG GET -2 => -ERR count should be greater than or equal to -1
        ",
    );
}

#[test]
fn what_made_clients_wait_is_remembered() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("DEBUG SLEEP 0.02 => +OK\nLATENCY LATEST => []");
    client.talk("CONFIG SET latency-monitor-threshold 10 => +OK\nDEBUG SLEEP 0.02 => +OK");
    let latest = client.ask("LATENCY LATEST");
    assert!(latest.starts_with("[[$command :"), "{latest}");
    assert!(client.ask("LATENCY HISTORY command").starts_with("[[:"));
    client.talk("LATENCY HISTORY nosuch => []");
    let graph = client.ask("LATENCY GRAPH command");
    assert!(graph.starts_with("$command - high ") && graph.contains("\\n_\\n"), "{graph}");
    client.talk("LATENCY GRAPH nosuch => -ERR No samples available for event 'nosuch'");
    assert!(client.ask("LATENCY DOCTOR").contains("command: 1 seconds"));
    client.talk("LATENCY RESET nosuch => :0\nLATENCY RESET command => :1\nLATENCY LATEST => []");
    client.talk("SET k v => +OK\nSET k v => +OK");
    let histogram = client.ask("LATENCY HISTOGRAM set");
    assert!(histogram.starts_with("[$set [$calls :2 $histogram_usec [:"), "{histogram}");
    assert!(histogram.ends_with(" :2]]]"), "{histogram}");
    client.talk("LATENCY HISTOGRAM nosuch => []\nROLE => [$master :0 []]\nWAIT 0 0 => :0\nWAIT 1 100 => :0");
}

#[test]
fn commands_and_errors_are_counted() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("SET k v => +OK\nSET k v => +OK\nINCR k => -ERR value is not an integer or out of range");
    client.ask("GET");
    client.talk("MULTI => +OK\nGET k => +QUEUED\nINCR k => +QUEUED");
    client.ask("EXEC");
    let stats = client.ask("INFO commandstats");
    assert!(stats.contains("cmdstat_set:calls=2,usec="), "{stats}");
    assert!(stats.contains("cmdstat_exec:calls=1,"), "{stats}");
    assert!(stats.contains("cmdstat_get:calls=1,"), "{stats}");
    let incr = stats.split("\\r\\n").find(|line| line.starts_with("cmdstat_incr:")).unwrap();
    assert!(incr.contains("calls=2,") && incr.ends_with("rejected_calls=0,failed_calls=2"), "{incr}");
    assert!(client.ask("INFO errorstats").contains("errorstat_ERR:count=3"));
    assert!(client.ask("INFO latencystats").contains("latency_percentiles_usec_set:p50="));
    assert!(!client.ask("INFO").contains("cmdstat_"), "only if asked for");
    assert!(client.ask("INFO all").contains("cmdstat_"));
    client.talk("CONFIG RESETSTAT => +OK");
    assert!(!client.ask("INFO commandstats").contains("cmdstat_set"));
}
