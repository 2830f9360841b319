//! INFO, CONFIG, COMMAND, TIME, DEBUG, SHUTDOWN.

use std::time::{Duration, Instant};

use tembo_wire::Value;

use crate::support::{Fixture, show};

#[test]
fn info_has_sections() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("SET k v => +OK\nGET k => $v\nGET missing => nil");
    for (field, expected) in [
        ("redis_version", "7.0.15"),
        ("redis_mode", "standalone"),
        ("role", "master"),
        ("connected_clients", "1"),
        ("loading", "0"),
        ("keyspace_hits", "1"),
        ("keyspace_misses", "1"),
        ("db0", "keys=1,expires=0"),
        ("commits", "1"),
        ("commands_per_commit", "1.00"),
        ("durability_domain", "page-cache"),
        ("total_connections_received", "1"),
    ] {
        assert_eq!(client.info(field), expected, "{field}");
    }
    assert!(client.info("acknowledged_write_survives").contains("kill -9"));
    assert_eq!(client.info("run_id").len(), 40);
    assert_eq!(client.info("tcp_port"), server.address.port().to_string());
    let sections = client.ask("INFO keyspace CLUSTER");
    assert_eq!(
        sections,
        "$# Cluster\\r\\ncluster_enabled:0\\r\\n\\r\\n# Keyspace\\r\\ndb0:keys=1,expires=0\\r\\n"
    );
    client.talk("INFO nosuch => $\nHELLO 3 NOSUCH => -ERR Syntax error in HELLO option 'NOSUCH'");
    client.ask("HELLO 3");
    assert!(client.ask("INFO server").starts_with("=# Server"), "a verbatim string in RESP3");
}

#[test]
fn writes_that_arrive_together_share_a_commit() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("SET k v => +OK");
    let before: u64 = client.info("commits").parse().unwrap();
    client.send_raw("SET k v\r\n".repeat(50).as_bytes());
    (0..50).for_each(|_| assert_eq!(show(&client.receive()), "+OK"));
    let commits = client.info("commits").parse::<u64>().unwrap() - before;
    assert!((1..=10).contains(&commits), "{commits} commits for 50 writes");
}

#[test]
fn settings_are_read_and_changed() {
    let server = Fixture::start();
    server.client().talk(
        "
        CONFIG GET maxclients => [$maxclients $10000]
        CONFIG GET 'save' 'append*' => [$appendfsync $no $appendonly $no $save $]
        CONFIG GET nosuch => []
        CONFIG SET timeout 100 tcp-keepalive 0 => +OK
        CONFIG GET timeout tcp-keepalive => [$tcp-keepalive $0 $timeout $100]
        CONFIG SET timeout 0 maxclients x => \
            -ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument couldn't be parsed into an integer
        CONFIG GET timeout => [$timeout $100]
        CONFIG SET timeout 0 timeout 1 => -ERR CONFIG SET failed (possibly related to argument 'timeout') - duplicate parameter
        CONFIG SET port 1 => -ERR CONFIG SET failed (possibly related to argument 'port') - can't set immutable config
        CONFIG SET save '' => +OK
        CONFIG SET nosuch 1 => -ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'
        CONFIG SET timeout => -ERR wrong number of arguments for 'config|set' command
        CONFIG SET timeout 1 maxclients => -ERR syntax error
        CONFIG SET proto-max-bulk-len 1mb => +OK
        CONFIG GET proto-max-bulk-len => [$proto-max-bulk-len $1048576]
        CONFIG SET proto-max-bulk-len 1gb => \
            -ERR CONFIG SET failed (possibly related to argument 'proto-max-bulk-len') - argument must be between 1048576 and 536870912 inclusive
        CONFIG REWRITE => -ERR The server is running without a config file
        CONFIG RESETSTAT => +OK
        CONFIG NOSUCH => -ERR unknown subcommand 'NOSUCH'. Try CONFIG HELP.
        "
        .replace("\\\n            ", "")
        .as_str(),
    );
}

#[test]
fn statistics_are_reset() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("SET k v => +OK\nGET k => $v\nCONFIG RESETSTAT => +OK");
    assert_eq!(client.info("keyspace_hits"), "0");
    assert_eq!(client.info("commits"), "0");
}

#[test]
fn commands_describe_themselves() {
    let server = Fixture::start();
    let mut client = server.client();
    let Value::Integer(count) = client.run(&[b"COMMAND", b"COUNT"]) else { panic!("no count") };
    let Value::Array(all) = client.run(&[b"COMMAND"]) else { panic!("no array") };
    assert_eq!(all.len() as i64, count);
    let info = client.ask("COMMAND INFO get nosuch");
    assert!(info.starts_with("[[$get :2 [+readonly +fast] :1 :1 :1 [+@read +@string +@fast] []"), "{info}");
    assert!(info.ends_with(" nil]"), "{info}");
    assert!(client.ask("COMMAND INFO client|id").starts_with("[[$client|id :2"));
    assert!(client.ask("COMMAND DOCS get").starts_with("[$get [$summary $"));
    client.talk(
        "
        COMMAND DOCS nosuch => []
        COMMAND GETKEYS MSET a 1 b 2 => [$a $b]
        COMMAND GETKEYS OBJECT ENCODING k => [$k]
        COMMAND GETKEYS COPY a b REPLACE => [$a $b]
        COMMAND GETKEYS PING x => -ERR The command has no key arguments
        COMMAND GETKEYS NOSUCH x => -ERR Invalid command specified
        COMMAND GETKEYS GET a b => -ERR Invalid number of arguments specified for command
        COMMAND LIST FILTERBY PATTERN get* => [$get $getset $getdel $getex $getrange $getbit]
        COMMAND LIST FILTERBY MODULE x => []
        COMMAND LIST FILTERBY NOSUCH x => -ERR syntax error
        COMMAND NOSUCH => -ERR unknown subcommand 'NOSUCH'. Try COMMAND HELP.
        ",
    );
    assert!(client.ask("COMMAND LIST").contains("$client|list"));
    assert!(client.ask("COMMAND LIST FILTERBY ACLCAT string").contains("$incrbyfloat"));
    client.ask("HELLO 3");
    assert!(client.ask("COMMAND INFO get").starts_with("[[$get :2 (+readonly +fast) :1 :1 :1"));
    assert!(client.ask("COMMAND DOCS get").starts_with("{$get:{$summary:$"));
}

#[test]
fn containers_explain_themselves() {
    let server = Fixture::start();
    let mut client = server.client();
    for name in ["CLIENT", "CONFIG", "COMMAND", "OBJECT", "MEMORY", "DEBUG", "PUBSUB", "SLOWLOG", "LATENCY"] {
        let help = client.ask(&format!("{name} HELP"));
        assert!(help.starts_with(&format!("[+{name} <subcommand>")), "{help}");
        assert!(help.ends_with("+HELP +    Prints this help.]"), "{help}");
    }
}

#[test]
fn time_is_now() {
    let server = Fixture::start();
    let Value::Array(parts) = server.client().run(&[b"TIME"]) else { panic!("no array") };
    let seconds: u64 = String::from_utf8_lossy(parts[0].as_bytes().unwrap()).parse().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(now.abs_diff(seconds) < 60);
}

#[test]
fn debug_sleeps() {
    let server = Fixture::start();
    let mut client = server.client();
    let start = Instant::now();
    client.talk("DEBUG SLEEP 0.05 => +OK");
    assert!(start.elapsed() >= Duration::from_millis(50));
    client.talk(
        "
        DEBUG SLEEP x => -ERR value is not an integer or out of range
        DEBUG NOSUCH => -ERR unknown subcommand or wrong number of arguments for 'NOSUCH'. Try DEBUG HELP.
        ",
    );
}

#[test]
fn shutdown_stops_the_server_after_the_turn() {
    let mut server = Fixture::start();
    let (mut client, mut other) = (server.client(), server.client());
    client.talk("SHUTDOWN NOSUCH => -ERR syntax error\nSHUTDOWN ABORT => -ERR No shutdown in progress.");
    other.talk("SET k v => +OK");
    client.send_raw(b"SET last v\r\nSHUTDOWN NOSAVE\r\n");
    assert_eq!(show(&client.receive()), "+OK");
    client.expect_closed();
    other.expect_closed();
    server.join();
    server.restart();
    server.client().talk("MGET k last => [$v $v]");
}
