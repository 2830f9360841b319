//! Replaced data that are kept: FLUSHALL and FLUSHDB, `flush-grace`, TEMBO.UNFLUSH, and what gives them up.

use crate::replicas::Replica;
use crate::support::{Client, Fixture, eventually, show};

fn kept(client: &mut Client) -> String {
    [client.info("kept_states"), client.info("kept_keys")].join(" ")
}

#[test]
fn what_was_flushed_comes_back_and_what_was_there_is_kept_instead() {
    let mut server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        CONFIG GET flush-grace => [$flush-grace $0]
        SET a 1 => +OK
        FLUSHALL => +OK
        TEMBO.UNFLUSH => -ERR nothing is kept: see flush-grace
        CONFIG SET flush-grace soon => -ERR CONFIG SET failed (possibly related to argument 'flush-grace') - argument must be a time of at most a year, as 10m, 30s, 12h or 1d, or 0
        CONFIG SET flush-grace 600s => +OK
        CONFIG GET flush-grace => [$flush-grace $10m]
        SET a 1 => +OK
        EXPIRE a 1000 => :1
        RPUSH l x y => :2
        SELECT 3 => +OK
        SET b 1 => +OK
        FLUSHALL => +OK
        DBSIZE => :0
        SET b 2 => +OK
        SELECT 0 => +OK
        EXISTS a l => :0
        TEMBO.UNFLUSH => +OK
        TTL a => :1000
        LRANGE l 0 -1 => [$x $y]
        SELECT 3 => +OK
        GET b => $1
        TEMBO.UNFLUSH => +OK
        GET b => $2
        SELECT 0 => +OK
        EXISTS a l => :0
        TEMBO.UNFLUSH => +OK
        GET a => $1
        FLUSHDB => +OK
        TEMBO.UNLINK * => :0
        SET a 5 => +OK
        TEMBO.UNLINK * => :1
        TEMBO.UNFLUSH => +OK
        GET a => $5
        ",
    );
    assert_eq!(kept(&mut client), "2 3");
    // After a restart too.
    server.restart_with(|pool| assert_eq!(tembo_server::count_keys(pool).unwrap(), 2));
    let mut client = server.client();
    client.talk("GET a => $5\nTEMBO.UNFLUSH => +OK\nGET a => $1\nSELECT 3 => +OK\nGET b => $1");
    let report = server.report();
    assert_eq!(report.kept, (2, 2));
}

#[test]
fn all_that_is_kept_comes_back_in_turn_although_clients_write() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("CONFIG SET flush-grace 1h => +OK");
    for round in 1..=3 {
        client.talk(&format!("SET a {round} => +OK\nFLUSHALL => +OK"));
    }
    for (round, traffic) in [(3, 4), (2, 5), (1, 6), (4, 7)] {
        client.talk(&format!("SET a {traffic} => +OK\nTEMBO.UNFLUSH => +OK\nGET a => ${round}"));
    }
    server.check();
}

#[test]
fn a_flush_within_exec_or_a_script_is_kept_and_can_be_taken_back() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "CONFIG SET flush-grace 1h => +OK\nSET a 1 => +OK\nSELECT 1 => +OK\nSET b 1 => +OK\nSELECT 0 => +OK",
    );
    // Maps are made ready soon.
    std::thread::sleep(std::time::Duration::from_millis(400));
    client.talk(
        "
        MULTI => +OK
        SET a 2 => +QUEUED
        FLUSHALL => +QUEUED
        SET a 3 => +QUEUED
        EXEC => [+OK +OK +OK]
        GET a => $3
        MULTI => +OK
        TEMBO.UNFLUSH => -ERR Command not allowed inside a transaction
        EXEC => -EXECABORT Transaction discarded because of previous errors.
        TEMBO.UNFLUSH => +OK
        GET a => $2
        ",
    );
    let script = b"redis.call('flushdb') redis.call('set', 'a', 7) return redis.call('get', 'a')";
    assert_eq!(show(&client.run(&[b"EVAL", script, b"0"])), "$7");
    client.talk("GET a => $7\nTEMBO.UNFLUSH => +OK\nGET a => $2");
    server.check();
}

#[test]
fn more_is_replaced_than_there_are_maps_and_the_oldest_goes() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("CONFIG SET flush-grace 1h => +OK");
    for round in 0..30 {
        for database in 0..3 {
            client.talk(&format!("SELECT {database} => +OK\nSET round {round} => +OK"));
        }
        client.talk("FLUSHALL => +OK");
    }
    assert_eq!(client.info("kept_states"), "4");
    client.talk("TEMBO.UNFLUSH => +OK\nGET round => $29");
    // All databases get keys: what is kept has to go.
    for database in 0..16 {
        client.talk(&format!("SELECT {database} => +OK\nSET here {database} => +OK"));
    }
    assert_eq!(kept(&mut client), "0 0");
    client.talk("TEMBO.UNFLUSH => -ERR nothing is kept: see flush-grace\nFLUSHALL => +OK\nDBSIZE => :0");
    assert_eq!(kept(&mut client), "0 0", "there were no maps for it");
    server.check();
}

#[test]
fn what_is_kept_goes_when_its_time_ends_or_its_space_is_needed() {
    let mut server = Fixture::with(|_| {}, |options| options.initial_bytes(24 << 20).max_bytes(24 << 20));
    let mut client = server.client();
    client.talk("CONFIG SET flush-grace 1 => +OK\nSET a 1 => +OK\nFLUSHALL => +OK");
    assert_eq!(kept(&mut client), "1 1");
    eventually(|| kept(&mut client) == "0 0");
    client.talk("CONFIG SET flush-grace 1h => +OK");
    let value = vec![b'v'; 10_000];
    for round in 0..8 {
        for key in 0..700 {
            let key = format!("key:{round}:{key}");
            assert_eq!(show(&client.run(&[b"SET", key.as_bytes(), &value])), "+OK", "{round} {key}");
        }
        client.talk("FLUSHDB => +OK\nDBSIZE => :0");
        assert!(client.info("kept_states").parse::<u64>().unwrap() >= 1);
    }
    assert!(client.info("kept_given_up").parse::<u64>().unwrap() >= 5);
    client.talk("TEMBO.UNFLUSH => +OK\nDBSIZE => :700");
    // A full pool can be flushed, kept or not.
    for key in 0.. {
        let key = format!("more:{key}");
        if show(&client.run(&[b"SET", key.as_bytes(), &value])) != "+OK" {
            break;
        }
    }
    assert_eq!(client.info("kept_states"), "0");
    client.talk("FLUSHALL => +OK\nDBSIZE => :0\nSET a 1 => +OK");
    server.restart();
    server.client().talk("GET a => $1");
    server.check();
}

#[test]
fn a_transaction_that_finds_no_space_gets_that_of_replaced_states() {
    let server = Fixture::with(|_| {}, |options| options.initial_bytes(24 << 20).max_bytes(24 << 20));
    let mut client = server.client();
    client.talk("CONFIG SET flush-grace 1h => +OK");
    let (value, all) = (vec![b'v'; 10_000], format!("[{}]", ["+OK"; 10].join(" ")));
    for round in 0..8 {
        for part in 0..70 {
            client.talk("MULTI => +OK");
            for key in 0..10 {
                let key = format!("key:{round}:{part}:{key}");
                assert_eq!(show(&client.run(&[b"SET", key.as_bytes(), &value])), "+QUEUED");
            }
            assert_eq!(show(&client.run(&[b"EXEC"])), all, "{round} {part}");
        }
        client.talk("FLUSHDB => +OK\nDBSIZE => :0");
    }
    assert!(client.info("kept_given_up").parse::<u64>().unwrap() >= 5);
    server.check();
}

#[test]
fn replicas_are_told_the_flush_and_take_a_whole_copy_of_what_comes_back() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk("CONFIG SET flush-grace 1h => +OK\nSET a 1 => +OK");
    let mut replica = Replica::connect(&client);
    let (id, _) = replica.copy();
    client.talk("FLUSHALL => +OK\nSET b 1 => +OK\nTEMBO.UNFLUSH => +OK\nGET a => $1\nEXISTS b => :0");
    assert_ne!(client.info("master_replid"), id);
    assert_eq!(client.info("master_replid2"), "0".repeat(40));
    // It is disconnected, and cannot go on.
    let offset = client.info("master_repl_offset").parse::<u64>().unwrap();
    let mut again = Replica::connect(&client);
    again.send(&format!("PSYNC {id} {}", offset.saturating_sub(20)));
    assert!(again.line().starts_with("+FULLRESYNC"), "another history");
    server.check();
}

#[test]
fn the_data_that_a_master_replaced_come_back_after_promotion() {
    let (mine, other) = (Fixture::start(), Fixture::start());
    let (mut client, mut master) = (mine.client(), other.client());
    client.talk("CONFIG SET flush-grace 1h => +OK\nSET mine 1 => +OK\nSELECT 2 => +OK\nSET mine 2 => +OK\nSELECT 0 => +OK");
    master.talk("SET theirs 1 => +OK\nSELECT 2 => +OK\nRPUSH l a b => :2");
    client.talk(&format!("REPLICAOF 127.0.0.1 {} => +OK", other.address.port()));
    eventually(|| client.info("master_link_status") == "up");
    client.talk("GET theirs => $1\nEXISTS mine => :0");
    assert_eq!(kept(&mut client), "1 2");
    client.talk("TEMBO.UNFLUSH => -READONLY You can't write against a read only replica.");
    client.talk("CONFIG SET replica-read-only no => +OK");
    client.talk("TEMBO.UNFLUSH => -ERR a replica has the data of its master; REPLICAOF NO ONE comes first");
    client.talk(
        "
        REPLICAOF NO ONE => +OK
        TEMBO.UNFLUSH => +OK
        GET mine => $1
        EXISTS theirs => :0
        SELECT 2 => +OK
        GET mine => $2
        TEMBO.UNFLUSH => +OK
        LRANGE l 0 -1 => [$a $b]
        ",
    );
    mine.check();
    other.check();
}

#[test]
fn what_is_kept_goes_before_keys_are_evicted_and_writes_are_refused() {
    for policy in ["noeviction", "allkeys-lru"] {
        let server = Fixture::start();
        let mut client = server.client();
        client
            .talk(&format!("CONFIG SET flush-grace 1h => +OK\nCONFIG SET maxmemory-policy {policy} => +OK"));
        let value = vec![b'v'; 10_000];
        for key in 0..500 {
            assert_eq!(show(&client.run(&[b"SET", format!("key:{key}").as_bytes(), &value])), "+OK");
        }
        client.talk("FLUSHALL => +OK\nSET a 1 => +OK");
        let limit = client.info("used_memory").parse::<u64>().unwrap() - (1 << 20);
        client.talk(&format!("CONFIG SET maxmemory {limit} => +OK"));
        eventually(|| kept(&mut client) == "0 0");
        eventually(|| client.ask("SET b 1") == "+OK");
        client.talk("GET a => $1");
        assert_eq!(client.info("evicted_keys"), "0", "{policy}");
        server.check();
    }
}
