//! EVAL and its kind: one commit, other clients meanwhile, and what the server tells of scripts.

use std::time::{Duration, Instant};

use crate::replicas::Replica;
use crate::support::{Client, Fixture, eventually, show};

const BUSY: &str = "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

fn commits(client: &mut Client) -> u64 {
    client.info("commits").parse().unwrap()
}

fn eval(client: &mut Client, script: &str) -> String {
    show(&client.run(&[b"EVAL", script.as_bytes(), b"0"]))
}

/// A server whose scripts are busy after 50 ms.
fn impatient() -> Fixture {
    Fixture::with_config(|config| config.script_time = Some(Duration::from_millis(50)))
}

#[test]
fn scripts_are_cached_by_their_digests() {
    let mut server = Fixture::start();
    let mut client = server.client();
    let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    client.talk(&format!(
        "
        EVALSHA {sha} 0 => -NOSCRIPT No matching script. Please use EVAL.
        SCRIPT LOAD 'return 1' => ${sha}
        EVALSHA {sha} 0 => :1
        EVALSHA {} 0 => :1
        EVALSHA_RO {sha} 0 => :1
        SCRIPT EXISTS {sha} x {sha} => [:1 :0 :1]
        EVALSHA x 0 => -NOSCRIPT No matching script. Please use EVAL.
        EVAL 'return 1' x => -ERR value is not an integer or out of range
        EVAL 'return 1' -1 => -ERR Number of keys can't be negative
        EVAL 'return 1' 3 a => -ERR Number of keys can't be greater than number of args
        SCRIPT KILL => -NOTBUSY No scripts in execution right now.
        SCRIPT DEBUG x => -ERR Use SCRIPT DEBUG YES/SYNC/NO
        SCRIPT DEBUG NO => +OK
        SCRIPT DEBUG YES => -ERR scripts cannot be debugged
        COMMAND GETKEYS EVAL x 2 a b c => [$a $b]
        ",
        sha.to_uppercase()
    ));
    assert_eq!(client.info("number_of_cached_scripts"), "1");
    client.talk(&format!("SCRIPT FLUSH => +OK\nSCRIPT EXISTS {sha} => [:0]"));
    client.talk(&format!("SCRIPT LOAD 'return 1' => ${sha}"));
    let other = "7f923f79fe76194c868d7e1d0820de36700eb649";
    client.talk(&format!("EVAL 'return 2' 0 => :2\nSCRIPT EXISTS {sha} {other} => [:1 :1]"));
    // A restart keeps what was loaded, and forgets what came with EVAL, as Redis does.
    server.restart();
    let mut client = server.client();
    client.talk(&format!(
        "
        SCRIPT EXISTS {sha} {other} => [:1 :0]
        EVALSHA {} 0 => :1
        EVALSHA {other} 0 => -NOSCRIPT No matching script. Please use EVAL.
        MULTI => +OK
        SCRIPT LOAD 'return 2' => +QUEUED
        EVALSHA {other} 0 => +QUEUED
        EXEC => [${other} :2]
        ",
        sha.to_uppercase()
    ));
    server.restart();
    server.client().talk(&format!("EVALSHA {other} 0 => :2\nSCRIPT FLUSH => +OK"));
    server.restart();
    server.client().talk(&format!("SCRIPT EXISTS {sha} {other} => [:0 :0]"));
    server.check();
}

#[test]
fn a_script_is_one_commit_and_an_error_keeps_what_was_written() {
    let mut server = Fixture::with_config(|config| config.batch_words_max = Some(1));
    let mut client = server.client();
    client.talk("SET k 0 => +OK");
    let before = commits(&mut server.client());
    let script = "for i = 1, 50 do redis.call('set', 'k' .. i, i) end return redis.call('get', 'k50')";
    assert_eq!(eval(&mut client, script), "$50");
    assert_eq!(commits(&mut server.client()), before + 1);
    let script = "redis.call('set', 'k', 'kept') redis.call('incr', 'k') redis.call('set', 'k', 'never')";
    assert!(eval(&mut client, script).starts_with("-ERR value is not an integer or out of range script: "));
    assert_eq!(commits(&mut server.client()), before + 2);
    server.restart();
    server.client().talk("GET k => $kept\nGET k1 => $1\nGET k50 => $50");
    server.check();
}

/// The first write to a database, and a walk behind a write, need a commit before them, and another run.
#[test]
fn scripts_write_to_new_databases_and_walk_what_they_have_written() {
    let server = Fixture::start();
    let mut client = server.client();
    let script = "redis.call('select', 5) redis.call('set', 'five', 1) redis.call('select', 0) \
                  redis.call('set', 'a', 1) return redis.call('keys', '*')";
    assert_eq!(eval(&mut client, script), "[$a]");
    client.talk("GET a => $1\nSELECT 5 => +OK\nGET five => $1\nSELECT 0 => +OK");
    let script = "redis.call('set', 'b', 1) redis.call('del', 'a') return redis.call('keys', '*')";
    for _ in 0..2 {
        assert_eq!(eval(&mut client, script), "[$b]");
    }
    // The selected database is the client's own again.
    client.talk("EVAL 'redis.call(\"select\", 5) return redis.call(\"dbsize\")' 0 => :1\nDBSIZE => :1");
    client.talk(
        "
        MULTI => +OK
        SET c 1 => +QUEUED
        EVAL 'redis.call(\"set\", \"d\", 1) return redis.call(\"keys\", \"*\")' 0 => +QUEUED
        EVAL 'redis.call(\"set\", \"e\", 1) return redis.call(\"incr\", \"x\" .. ARGV[1])' 0 y => +QUEUED
        EVAL 'error(\"x\")' 0 => +QUEUED
        GET xy => +QUEUED
        EXEC => [+OK [$b $c $d] :1 -ERR user_script:1: x script: ada89932db851ca262f39d814ce59006e53278cc, on @user_script:1. $1]
        ",
    );
    server.check();
}

#[test]
fn scripts_that_only_read_may_not_write() {
    let server = Fixture::start();
    let mut client = server.client();
    let refused = "-ERR Write commands are not allowed from read-only scripts.";
    let script = b"return redis.call('set', 'a', 'b')";
    assert!(show(&client.run(&[b"EVAL_RO", script, b"0"])).starts_with(refused));
    let script = "#!lua flags=no-writes\nreturn redis.call('set', 'a', 'b')";
    assert!(eval(&mut client, script).starts_with(refused));
    assert_eq!(eval(&mut client, "#!lua flags=foo\nreturn 1"), "-ERR Unexpected flag in script shebang: foo");
    client.talk("EXISTS a => :0\nEVAL_RO 'return redis.call(\"exists\", \"a\")' 0 => :0");
    client.talk("EVAL 'return redis.call(\"get\", KEYS[1])' 1 nokey => nil");
    server.check();
}

#[test]
fn a_script_changes_watched_keys_and_wakes_those_who_wait() {
    let server = Fixture::start();
    let (mut client, mut other) = (server.client(), server.client());
    client.talk("WATCH k => +OK");
    assert_eq!(eval(&mut other, "redis.call('set', 'k', 1) return 'set'"), "$set");
    client.talk("MULTI => +OK\nGET k => +QUEUED\nEXEC => nil");
    client.send(&[b"BLPOP", b"list", b"0"]);
    eventually(|| other.info("blocked_clients") == "1");
    assert_eq!(eval(&mut other, "redis.call('rpush', 'list', 'x') return redis.call('llen', 'list')"), ":1");
    assert_eq!(show(&client.receive()), "[$list $x]");
    server.check();
}

#[test]
fn other_clients_are_told_that_a_script_is_busy_and_may_kill_it() {
    let server = impatient();
    let (mut client, mut old) = (server.client(), server.client());
    old.talk("PING => +PONG");
    client.send(&[b"EVAL", b"while true do pcall(redis.call, 'get', 'x') end", b"0"]);
    eventually(|| old.ask("GET x") == BUSY);
    // A client that comes meanwhile.
    let mut new = server.client();
    new.talk(&format!(
        "
        PING => {BUSY}
        SHUTDOWN => {BUSY}
        SCRIPT KILL => +OK
        PING => +PONG
        "
    ));
    let killed = show(&client.receive());
    assert!(killed.starts_with("-ERR Script killed by user with SCRIPT KILL... script: "), "{killed}");
    assert!(killed.ends_with(", on @user_script:1."), "{killed}");
    client.talk("SET x 1 => +OK");
    old.talk("GET x => $1\nEVAL 'return 1' 0 => :1");
    server.check();
}

#[test]
fn a_busy_script_that_has_written_is_not_killed_but_cut_off_by_shutdown() {
    let mut server = impatient();
    let (mut client, mut other) = (server.client(), server.client());
    client.talk("SET k before => +OK");
    client.send(&[b"EVAL", b"redis.call('set', 'k', 'half') while true do end", b"0"]);
    eventually(|| other.ask("PING") == BUSY);
    assert!(other.ask("SCRIPT KILL").starts_with("-UNKILLABLE Sorry the script already executed write"));
    assert_eq!(other.ask("MULTI"), "+OK");
    assert_eq!(other.ask("GET k"), BUSY);
    other.send(&[b"SHUTDOWN", b"NOSAVE"]);
    server.join();
    server.restart();
    server.client().talk("GET k => $before");
    server.check();
}

/// A script that the process is told to stop in the middle of is rolled back, too.
#[test]
fn a_busy_script_ends_with_the_server() {
    let mut server = impatient();
    let mut client = server.client();
    client.talk("SET k before => +OK");
    client.send(&[b"EVAL", b"redis.call('set', 'k', 'half') while true do end", b"0"]);
    std::thread::sleep(Duration::from_millis(100));
    server.stop();
    server.restart();
    server.client().talk("GET k => $before");
    server.check();
}

#[test]
fn a_hostile_script_gets_an_error_and_others_are_served() {
    let server = impatient();
    let mut client = server.client();
    for script in [
        "local t = {} for i = 1, 1e9 do t[i] = {i} end",
        "local s = 'x' while true do s = s .. s end",
        "return string.rep('x', 1e15)",
        "local function f() return 1 + f() end return f()",
        "local function f() return coroutine.wrap(f)() end return f()",
        "local function f() return (string.gsub('x', 'x', f)) end return f()",
        "return string.find(string.rep('a', 5000), string.rep('a?', 5000))",
        "return cjson.decode(string.rep('[', 100000))",
    ] {
        let reply = eval(&mut client, script);
        assert!(reply.starts_with("-ERR "), "{script}: {reply}");
        client.talk("PING => +PONG\nEVAL 'return 1' 0 => :1");
    }
    // A pattern that would take for ever.
    let mut other = server.client();
    let script = b"return string.find(string.rep('a', 1000), string.rep('.-', 20) .. 'b')";
    client.send(&[b"EVAL", script, b"0"]);
    eventually(|| other.ask("PING") == BUSY);
    other.talk("SCRIPT KILL => +OK");
    assert!(show(&client.receive()).starts_with("-ERR Script killed by user"));
    server.check();
}

#[test]
fn scripts_are_seen_by_monitors_and_counted() {
    let server = Fixture::start();
    let (mut client, mut monitor) = (server.client(), server.client());
    client.talk("CONFIG SET slowlog-log-slower-than 0 => +OK");
    monitor.talk("MONITOR => +OK");
    client.talk("EVAL 'return redis.call(\"incr\", KEYS[1])' 1 k => :1");
    let line = show(&monitor.receive());
    assert!(
        line.ends_with("] \"EVAL\" \"return redis.call(\\\\\"incr\\\\\", KEYS[1])\" \"1\" \"k\""),
        "{line}"
    );
    let line = show(&monitor.receive());
    assert!(line.ends_with(" [0 lua] \"incr\" \"k\""), "{line}");
    let stats = show(&client.run(&[b"INFO", b"commandstats"]));
    assert!(stats.contains("cmdstat_eval:calls=1,") && stats.contains("cmdstat_incr:calls=1,"), "{stats}");
    assert!(client.ask("SLOWLOG GET 3").contains("$EVAL"));
    assert_eq!(
        eval(&mut client, "return string.match(redis.call('info', 'memory'), 'used_memory_lua:%d+')"),
        "$used_memory_lua:0"
    );
    server.check();
}

#[test]
fn replicas_are_told_the_effects_of_scripts() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("SADD set a => :1");
    let mut replica = Replica::connect(&client);
    replica.copy();
    let script = "redis.call('set', 'k', 1) redis.call('spop', 'set') redis.call('set', 'v', 'x', 'ex', 0)";
    assert!(eval(&mut client, script).starts_with("-ERR invalid expire time"));
    assert_eq!(eval(&mut client, "return redis.call('incr', 'k')"), ":2");
    assert_eq!(eval(&mut client, "return redis.call('get', 'k')"), "$2");
    client.talk("SET end 1 => +OK");
    let mut told = replica.until("SET end 1");
    told.retain(|words| words != "PING" && !words.starts_with("SELECT") && !words.starts_with("REPLCONF"));
    assert_eq!(told, ["MULTI", "set k 1", "SREM set a", "EXEC", "incr k"]);
    server.check();
}

#[test]
fn a_script_that_writes_very_much_does_not_fail_the_commands_of_others() {
    let server = Fixture::start();
    let mut client = server.client();
    let since = Instant::now();
    let script = "for i = 1, 20000 do redis.call('set', 'key:' .. i, i) end return redis.call('dbsize')";
    client.send(&[b"SET", b"first", b"1"]);
    client.send(&[b"EVAL", script.as_bytes(), b"0"]);
    assert_eq!(show(&client.receive()), "+OK");
    assert_eq!(show(&client.receive()), ":20001");
    assert!(since.elapsed() < Duration::from_secs(60));
    server.check();
}
