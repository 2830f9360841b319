//! Conversations that graphical tools for Redis begin with.

use crate::support::Fixture;

/// Redis Insight, when it connects to a server and opens its pages: the overview, the browser, the slow log
/// and the profiler. A refusal ends its connection, or hides a page.
#[test]
fn redis_insight_gets_answers_to_all_that_it_asks_on_connection() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("SET a 1 => +OK\nHSET h f v => :1\nLPUSH l 1 2 => :2\nEXPIRE a 1000 => :1");
    for (request, begins) in [
        ("HELLO 2", "["),
        ("CLIENT SETNAME redisinsight-browser-12345678", "+OK"),
        ("INFO", "$# Server"),
        ("INFO server", "$# Server"),
        ("INFO memory", "$# Memory"),
        ("INFO keyspace", "$# Keyspace\\r\\ndb0:keys=3,expires=1"),
        ("MODULE LIST", "[]"),
        ("COMMAND INFO module|list", "[[$module|list :2"),
        ("COMMAND", "["),
        ("COMMAND COUNT", ":"),
        ("COMMAND DOCS get", "["),
        ("CLIENT LIST", "$id="),
        ("CLIENT GETNAME", "$redisinsight-browser-12345678"),
        ("DBSIZE", ":3"),
        ("CONFIG GET databases", "[$databases $16]"),
        ("CONFIG GET maxmemory*", "["),
        ("CONFIG GET slowlog*", "["),
        ("ACL WHOAMI", "$default"),
        ("ACL CAT", "["),
        ("SCAN 0 COUNT 10000 MATCH *", "[$0 ["),
        ("SCAN 0 COUNT 500 TYPE hash", "["),
        ("TYPE h", "+hash"),
        ("TTL a", ":1000"),
        ("MEMORY USAGE h SAMPLES 0", ":"),
        ("OBJECT ENCODING h", "$listpack"),
        ("HSCAN h 0 COUNT 500 MATCH *", "[$0 [$f $v]]"),
        ("SLOWLOG GET 50", "["),
        ("SLOWLOG LEN", ":"),
        ("MEMORY DOCTOR", "$"),
        ("MEMORY STATS", "["),
        ("LATENCY LATEST", "[]"),
        ("LATENCY DOCTOR", "$"),
        ("PUBSUB CHANNELS", "[]"),
        ("PUBSUB NUMPAT", ":0"),
        ("CLUSTER INFO", "-ERR This instance has cluster support disabled"),
        ("MONITOR", "+OK"),
    ] {
        let reply = client.ask(request);
        assert!(reply.starts_with(begins), "{request} => {reply}");
    }
}
