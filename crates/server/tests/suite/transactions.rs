//! MULTI, EXEC, DISCARD, WATCH and UNWATCH: one commit, or nothing; limits; what CLIENT LIST says.

use std::time::Duration;

use crate::support::{Client, Fixture, eventually, request, show};

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";

fn commits(client: &mut Client) -> u64 {
    client.info("commits").parse().unwrap()
}

/// MULTI was unknown, and the commands after it were executed.
#[test]
fn commands_are_queued_and_run_by_exec() {
    let server = Fixture::start();
    let (mut client, mut other) = (server.client(), server.client());
    client.talk("SET n 1 => +OK\nMULTI => +OK\nINCR n => +QUEUED\nSELECT 3 => +QUEUED\nSET m 7 => +QUEUED");
    client.talk("CONFIG GET databases => +QUEUED");
    other.talk("GET n => $1");
    client.talk("EXEC => [:2 +OK +OK [$databases $16]]\nGET m => $7\nEXEC => -ERR EXEC without MULTI");
    other.talk("GET n => $2\nGET m => nil\nDISCARD => -ERR DISCARD without MULTI");
    client.talk(
        "
        MULTI => +OK
        EXEC => []
        MULTI => +OK
        MULTI => -ERR MULTI calls can not be nested
        WATCH k => -ERR WATCH inside MULTI is not allowed
        SET m 8 => +QUEUED
        DISCARD => +OK
        GET m => $7
        ",
    );
    server.check();
}

#[test]
fn errors_in_the_queue_abort_and_errors_of_commands_do_not_undo() {
    let server = Fixture::start();
    let mut client = server.client();
    let aborted = "EXEC => -EXECABORT Transaction discarded because of previous errors.\nEXISTS a => :0";
    for (request, refusal) in [
        ("nosuch x", "-ERR unknown command 'nosuch', with args beginning with: 'x' "),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("CLIENT nosuch", "-ERR unknown subcommand 'nosuch'. Try CLIENT HELP."),
        ("SHUTDOWN", "-ERR Command not allowed inside a transaction"),
    ] {
        client.talk("MULTI => +OK\nSET a 1 => +QUEUED");
        assert_eq!(client.ask(request), refusal);
        client.talk(&format!("SET a 2 => +QUEUED\n{aborted}"));
    }
    let why = "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
    client.talk(&format!("MULTI => +OK\nSET a 1 => +QUEUED\nEXEC x => {why}\nEXISTS a => :0"));
    client.talk(
        "
        EXEC => -ERR EXEC without MULTI
        SET text x => +OK
        MULTI => +OK
        SET a 1 => +QUEUED
        INCR text => +QUEUED
        SET b 2 => +QUEUED
        SELECT 99 => +QUEUED
        SET c 3 => +QUEUED
        EXEC => [+OK -ERR value is not an integer or out of range +OK -ERR DB index is out of range +OK]
        MGET a b c text => [$1 $2 $3 $x]
        ",
    );
    server.check();
}

/// Within EXEC the server must not commit between two commands, nor run one again, for the reasons that
/// otherwise make it do so: databases that do not exist, walks over the keys, a large batch.
#[test]
fn exec_is_one_commit() {
    let mut server = Fixture::with_config(|config| config.batch_words_max = Some(1));
    let mut client = server.client();
    client.talk("MSET old 1 gone 2 => +OK\nMULTI => +OK");
    let mut expected = Vec::new();
    for database in [0, 3, 5, 5, 9] {
        client.talk(&format!("SELECT {database} => +QUEUED\nSET key:{database} v => +QUEUED"));
        client.talk("COPY key:0 copy DB 12 REPLACE => +QUEUED\nKEYS * => +QUEUED");
        expected.push(format!("+OK +OK :{} ", i32::from(database == 0)));
    }
    let keys = ["[$gone $key:0 $old]", "[$key:3]", "[$key:5]", "[$key:5]", "[$key:9]"];
    let expected: Vec<_> =
        expected.iter().zip(keys).map(|(before, keys)| format!("{before}{keys}")).collect();
    let before = commits(&mut server.client());
    client.talk(&format!("EXEC => [{}]", expected.join(" ")));
    assert_eq!(commits(&mut server.client()), before + 1);
    client.talk("MULTI => +OK");
    (0..50).for_each(|key| client.talk(&format!("SET many:{key} v => +QUEUED")));
    assert!(client.ask("EXEC").starts_with("[+OK +OK +OK"));
    assert_eq!(commits(&mut server.client()), before + 2);
    server.restart();
    server.client().talk("SELECT 9 => +OK\nGET key:9 => $v\nSELECT 12 => +OK\nGET copy => $v");
    server.check();
}

#[test]
fn walks_within_exec_see_what_it_did_before_them() {
    let server = Fixture::start();
    let mut client = server.client();
    client
        .talk("MSET b 1 d 2 f 3 => +OK\nSELECT 1 => +OK\nSET other 1 => +OK\nSELECT 0 => +OK\nMULTI => +OK");
    for request in [
        "MSET a 1 c 1 d 9",
        "DEL f b nosuch",
        "SET z 1 PX 1000000",
        "KEYS *",
        "KEYS [cd]",
        "SCAN 0 MATCH ? COUNT 100",
        "DBSIZE",
        "FLUSHDB",
        "RANDOMKEY",
        "SET y 1",
        "RANDOMKEY",
        "KEYS *",
        "SELECT 1",
        "KEYS *",
        "RANDOMKEY",
        "EXPIRE other -1",
        "KEYS *",
        "RANDOMKEY",
    ] {
        assert_eq!(client.ask(request), "+QUEUED", "{request}");
    }
    client.talk(
        "EXEC => [+OK :2 +OK [$a $c $d $z] [$c $d] [$0 [$a $c $d $z]] :4 +OK nil +OK $y [$y] \
         +OK [$other] $other :1 [] nil]",
    );
    server.check();
}

/// KEYS works in slices between other commands, but not within EXEC.
#[test]
fn a_long_walk_within_exec_is_of_one_moment() {
    let server = Fixture::start();
    let mut client = server.client();
    for chunk in 0..30 {
        let names: Vec<_> = (0..1000).map(|key| format!("key:{:06}", chunk * 1000 + key)).collect();
        let mut args: Vec<&[u8]> = vec![b"MSET"];
        args.extend(names.iter().flat_map(|name| [name.as_bytes(), b"v"]));
        assert_eq!(show(&client.run(&args)), "+OK");
    }
    client.talk("MULTI => +OK\nDEL key:000000 => +QUEUED\nKEYS * => +QUEUED\nSET key:000000 v => +QUEUED");
    let tembo_wire::Value::Array(replies) = client.run(&[b"EXEC"]) else { panic!("no array") };
    let tembo_wire::Value::Array(keys) = &replies[1] else { panic!("no keys") };
    assert_eq!(
        (show(&replies[0]), keys.len(), show(&replies[2])),
        (":1".to_owned(), 29_999, "+OK".to_owned())
    );
    client.talk("DBSIZE => :30000");
    server.check();
}

#[test]
fn watched_keys_that_change_keep_exec_from_running() {
    let server = Fixture::start();
    let (mut client, mut other) = (server.client(), server.client());
    client.talk("SET k 1 => +OK\nWATCH k z => +OK\nMULTI => +OK\nSET k 2 => +QUEUED");
    other.talk("DEL z => :0\nGET k => $1\nSELECT 5 => +OK\nSET k 5 => +OK\nFLUSHDB => +OK");
    client.talk("EXEC => [+OK]\nWATCH k => +OK\nMULTI => +OK\nSET k 3 => +QUEUED");
    other.talk("COPY k k DB 0 => :0\nSET q 6 => +OK\nCOPY q k DB 0 REPLACE => :1");
    client.talk("EXEC => nil\nGET k => $6\nWATCH k => +OK\nUNWATCH => +OK");
    other.talk("SELECT 0 => +OK\nINCR k => :7");
    client.talk("MULTI => +OK\nGET k => +QUEUED\nEXEC => [$7]");
    // In RESP3 the reply is its null.
    client.ask("HELLO 3");
    client.talk("WATCH k => +OK\nSET k 8 => +OK\nMULTI => +OK");
    client.send_raw(b"EXEC\r\n");
    assert_eq!(show(&client.receive()), "nil");
    // The watches of a client that has gone are gone.
    client.talk("UNWATCH => +OK\nWATCH k z k => +OK\nMULTI => +OK\nGET k => +QUEUED");
    other.talk("WATCH k => +OK");
    assert_eq!(other.info("total_watched_keys"), "2");
    drop(client);
    eventually(|| other.info("total_watched_keys") == "1");
    other.talk("SET k 9 => +OK\nUNWATCH => +OK\nMULTI => +OK\nGET k => +QUEUED\nEXEC => [$9]");
    assert_eq!(other.info("total_watched_keys"), "0");
    server.check();
}

/// A key that has expired is absent, whether or not it was removed yet: here that is never done.
#[test]
fn expiry_is_a_change_only_of_a_key_that_was_there() {
    let server = Fixture::with_config(|config| config.expire_per_turn = 0);
    let (mut client, mut other) = (server.client(), server.client());
    let soon = Duration::from_millis(400);
    client.talk("SET k 1 PX 300 => +OK\nWATCH k => +OK\nMULTI => +OK\nPING => +QUEUED");
    std::thread::sleep(soon);
    client.talk("DBSIZE => +QUEUED\nEXEC => nil\nDBSIZE => :1\nGET k => nil");
    client.talk("WATCH k => +OK\nMULTI => +OK\nPING => +QUEUED");
    other.talk("DEL k => :0\nDBSIZE => :0");
    client.talk("EXEC => [+PONG]\nSET k 1 PX 300 => +OK");
    std::thread::sleep(soon);
    client.talk("WATCH k => +OK\nMULTI => +OK\nPING => +QUEUED");
    other.talk("SET k 2 => +OK");
    client.talk("EXEC => nil");
    server.check();
}

/// CLIENT LIST did not show the state of a transaction, and showed `events=rw` for every client.
#[test]
fn client_list_shows_transactions() {
    let server = Fixture::start();
    let (mut client, mut other) = (server.client(), server.client());
    client.talk("WATCH k l => +OK");
    let mut seen = |wanted: &str| {
        let list = other.ask("CLIENT LIST ID 1");
        assert!(list.contains(wanted), "{wanted} is not in {list}");
    };
    seen("flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 watch=2");
    client.talk("MULTI => +OK\nGET k => +QUEUED\nGET k => +QUEUED");
    seen("flags=x db=0 sub=0 psub=0 ssub=0 multi=2 watch=2");
    seen("events=r cmd=get");
    server.client().talk("SET l 1 => +OK");
    seen("flags=xd ");
    // A command that will not run is not kept.
    client.talk("GET k => +QUEUED");
    seen("multi=2 ");
    client.talk("RESET => +RESET");
    seen("flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 watch=0");
    client.talk("MULTI => +OK\nCLIENT INFO => +QUEUED");
    let info = client.ask("EXEC");
    assert!(info.contains("flags=x ") && info.contains("multi=1 "), "{info}");
    client.talk("MULTI => +OK\nQUIT => +OK");
    client.expect_closed();
}

#[test]
fn a_queue_and_watched_keys_have_a_limit() {
    let server = Fixture::with_config(|config| config.limits.max_request_bytes = 100_000);
    let mut client = server.client();
    client.talk("MULTI => +OK");
    let value = [b'v'; 10_000];
    let replies: Vec<_> = (0..12).map(|_| show(&client.run(&[b"SET", b"k", &value]))).collect();
    assert!(replies[..9].iter().all(|reply| reply == "+QUEUED"), "{replies:?}");
    let refused = "-ERR the transaction exceeds the maximum (client-query-buffer-limit)";
    assert_eq!(replies[9], refused);
    assert!(server.client().ask("CLIENT LIST ID 1").contains("multi=0 "), "the queue was to be given up");
    client.talk("EXEC => -EXECABORT Transaction discarded because of previous errors.\nEXISTS k => :0");
    // Arguments of no length take memory too.
    client.talk("MULTI => +OK");
    let mut many = vec![&b""[..]; 1001];
    many[0] = b"DEL";
    let queued = (0..10).take_while(|_| show(&client.run(&many)) == "+QUEUED").count();
    assert!((3..7).contains(&queued), "{queued}");
    client.talk("DISCARD => +OK");
    let refused = "-ERR the watched keys exceed the maximum (client-query-buffer-limit)";
    let names: Vec<_> = (0..10_000).map(|name| format!("key:{name}")).collect();
    let watched =
        names.iter().take_while(|name| show(&client.run(&[b"WATCH", name.as_bytes()])) == "+OK").count();
    assert!((500..1000).contains(&watched), "{watched}");
    assert_eq!(client.ask("WATCH key:9999"), refused);
    client.talk("WATCH key:0 => -ERR the watched keys exceed the maximum (client-query-buffer-limit)");
    client.talk("UNWATCH => +OK\nWATCH key:9999 => +OK");
}

/// The replies of one EXEC together have the limit that the reply of one command has.
#[test]
fn the_replies_of_exec_have_a_limit_together() {
    let server = Fixture::with_config(|config| config.reply_bytes_max = 20_000);
    let mut client = server.client();
    client.run(&[b"SET", b"k", &[b'x'; 6000]]);
    client.talk("MULTI => +OK");
    for request in ["GET k", "MGET k k", "GET k", "GETDEL k", "INFO", "COMMAND", "SET l 1"] {
        assert_eq!(client.ask(request), "+QUEUED");
    }
    let replies = client.ask("EXEC").replace(&"x".repeat(6000), "X");
    let too_long = "-ERR reply exceeds the maximum (reply-max-bytes)";
    assert!(replies.starts_with(&format!("[$X [$X $X] {too_long} {too_long} ")), "{replies}");
    assert!(replies.ends_with(&format!(" {too_long} +OK]")), "{replies}");
    client.talk("EXISTS k l => :2");
    server.check();
}

fn small_pool(batch_words_max: Option<usize>) -> Fixture {
    Fixture::with(
        |config| config.batch_words_max = batch_words_max,
        |options| options.initial_bytes(24 << 20).max_bytes(24 << 20),
    )
}

/// Sets keys until the pool is full; returns how many it took.
fn fill(client: &mut Client, value: &[u8]) -> usize {
    (0..)
        .take_while(|key| show(&client.run(&[b"SET", format!("key:{key:08}").as_bytes(), value])) == "+OK")
        .count()
}

#[test]
fn a_command_that_finds_a_full_pool_fails_alone() {
    let server = small_pool(None);
    let mut client = server.client();
    fill(&mut client, &[b'v'; 10_000]);
    client.talk("DEL key:00000000 key:00000001 key:00000002 => :3\nMULTI => +OK\nSET small 1 => +QUEUED");
    let large = [b'v'; 1 << 20];
    assert_eq!(show(&client.run(&[b"SET", b"large", &large])), "+QUEUED");
    // Half of it finds room.
    assert_eq!(show(&client.run(&[b"MSET", b"small", b"2", b"half", b"1", b"large", &large])), "+QUEUED");
    client.talk("SELECT 4 => +QUEUED\nINCR small => +QUEUED\nDEL key:00000003 => +QUEUED");
    client.talk(&format!(
        "
        EXEC => [+OK {OOM} {OOM} +OK :1 :0]
        SELECT 0 => +OK
        MGET small half large => [$1 nil nil]
        "
    ));
    server.check();
}

/// Space that cleared databases still hold is given back first, as for a single command; and all commands
/// then see the state before the transaction again.
#[test]
fn exec_in_a_pool_that_was_full_and_flushed_finds_room() {
    for large in [100_000, 4 << 20] {
        let server = small_pool(None);
        let mut client = server.client();
        fill(&mut client, &[b'v'; 1000]);
        // All in one read, so that no turn gives space back in between.
        let mut requests =
            b"FLUSHALL\r\nSET n 0\r\nMULTI\r\nINCR n\r\nINCR n\r\nSELECT 2\r\nINCR n\r\n".to_vec();
        for key in 0..3 {
            let key = format!("large:{key}");
            requests.extend(request(&[b"SET", key.as_bytes(), &vec![b'v'; large]]));
        }
        requests.extend_from_slice(b"APPEND n x\r\nEXEC\r\n");
        client.send_raw(&requests);
        let replies: Vec<_> = (0..11).map(|_| show(&client.receive())).collect();
        assert!(replies[3..].iter().all(|reply| reply == "+QUEUED"), "{replies:?}");
        assert_eq!(show(&client.receive()), "[:1 :2 +OK :1 +OK +OK +OK :2]");
        client.talk("GET n => $1x\nDBSIZE => :4\nSELECT 0 => +OK\nGET n => $2\nDBSIZE => :1");
        server.check();
    }
}

/// A transaction whose record finds no room fails as a whole: its reply is one error, and nothing of it has
/// happened.
#[test]
fn exec_that_cannot_be_committed_has_not_happened() {
    let server = small_pool(Some(usize::MAX));
    let mut client = server.client();
    let mut keys = 0;
    for step in [500, 1] {
        loop {
            let names: Vec<_> = (keys..keys + step).map(|key| format!("key:{key:08}")).collect();
            let mut args: Vec<&[u8]> = vec![b"MSET"];
            args.extend(names.iter().flat_map(|name| [name.as_bytes(), b"v"]));
            if client.run(&args).is_error() {
                break;
            }
            keys += step;
        }
    }
    // There is room for keys all over the map, one by one, but not for the record of all of them.
    let mut watcher = server.client();
    let put: Vec<_> = (25..keys).step_by(50).take(2000).collect();
    put.iter().for_each(|key| client.talk(&format!("DEL key:{key:08} => :1")));
    watcher.talk("WATCH key:00000025 => +OK\nMULTI => +OK\nPING => +QUEUED");
    let mut pipeline = b"MULTI\r\n".to_vec();
    put.iter().for_each(|key| pipeline.extend_from_slice(format!("SET key:{key:08} v\r\n").as_bytes()));
    pipeline.extend_from_slice(b"EXEC\r\n");
    client.send_raw(&pipeline);
    (0..=put.len()).for_each(|_| drop(client.receive()));
    assert_eq!(show(&client.receive()), OOM);
    client.talk(&format!("DBSIZE => :{}", keys - put.len()));
    // The watcher may have seen the changes that were undone.
    watcher.talk("EXEC => nil");
    assert_ne!(client.info("failed_commits"), "0");
    client.talk("MULTI => +OK\nDEL key:00000001 => +QUEUED\nEXEC => [:1]");
    server.check();
}
