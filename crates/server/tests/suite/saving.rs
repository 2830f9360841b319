//! SAVE and BGSAVE: a file that a real Redis loads, where there is one, and that is never there by half.

use std::path::Path;

use tembo_rdb::Reader;

use crate::peer::Redis;
use crate::support::{Client, Fixture, eventually};

/// Keys of all types, small and large, in two databases.
fn fill(client: &mut Client) {
    for database in [0, 7] {
        client.ask(&format!("SELECT {database}"));
        for n in 0..600 {
            client.ask(&format!("SET string:{n} value:{n}"));
            client.ask(&format!("RPUSH list:{} element:{n}", n % 2));
            client.ask(&format!("SADD set:{} member:{n}", n % 2));
            client.ask(&format!("HSET hash:{} field:{n} value:{n}", n % 2));
            client.ask(&format!("ZADD zset:{} {n}.5 member:{n}", n % 2));
        }
        client.ask("PEXPIREAT string:1 1999999999999");
    }
    client.ask("SELECT 0");
}

fn keys_of(file: &Path) -> u64 {
    let bytes = std::fs::read(file).unwrap();
    let survey = tembo_server::survey(&mut Reader::new(&bytes[..]).unwrap(), &mut |_| {}).unwrap();
    assert!(survey.is_checked && survey.left_out.is_empty());
    survey.keys.total()
}

#[test]
fn a_save_is_a_file_that_redis_loads() {
    let server = Fixture::start();
    let mut client = server.client();
    fill(&mut client);
    client.ask("LASTSAVE");
    client.talk("SAVE => +OK");
    assert_eq!(
        (client.info("rdb_changes_since_last_save"), client.info("rdb_saves")),
        ("0".into(), "1".into())
    );
    let file = server.folder().join("dump.rdb");
    assert_eq!(keys_of(&file), 2 * 608);
    let Some((_redis, mut theirs)) = Redis::start_with(|folder| {
        std::fs::copy(&file, folder.join("dump.rdb")).unwrap();
    }) else {
        return;
    };
    for database in [0, 7] {
        for words in ["DBSIZE", "PEXPIRETIME string:1", "LRANGE list:0 0 -1", "ZRANGE zset:1 0 -1 WITHSCORES"]
        {
            let select = format!("SELECT {database}");
            assert_eq!((client.ask(&select), theirs.ask(&select)), ("+OK".into(), "+OK".into()));
            assert_eq!(client.ask(words), theirs.ask(words), "{words}");
        }
    }
}

#[test]
fn a_background_save_follows_its_answer_and_has_what_was_committed() {
    let server = Fixture::start();
    let mut client = server.client();
    client.send_raw(b"SET k v\r\nBGSAVE\r\nBGSAVE\r\nSET late v\r\nMULTI\r\nSAVE\r\nDISCARD\r\n");
    let replies: Vec<_> = (0..7).map(|_| crate::support::show(&client.receive())).collect();
    assert_eq!(replies[1], "+Background saving started");
    assert_eq!(replies[2], "-ERR Background save already in progress");
    assert!(replies[5].starts_with("-ERR Command not allowed inside a transaction"), "{replies:?}");
    client.talk("BGSAVE SOON => -ERR syntax error");
    eventually(|| client.info("rdb_bgsave_in_progress") == "0");
    assert_eq!(client.info("rdb_last_bgsave_status"), "ok");
    assert_eq!(keys_of(&server.folder().join("dump.rdb")), 2, "the save comes after the turn");
}

#[test]
fn a_save_that_fails_says_so_and_leaves_the_file() {
    let mut server = Fixture::with_config(|config| config.dump_file = "kept.rdb".to_owned());
    let mut client = server.client();
    client.talk("SET k v => +OK\nSAVE => +OK");
    let before = std::fs::read(server.folder().join("kept.rdb")).unwrap();
    // A folder has the temporary name.
    let temporary = server.folder().join(format!("temp-{}.rdb", std::process::id()));
    std::fs::create_dir(&temporary).unwrap();
    assert!(client.ask("SAVE").starts_with("-ERR saving failed: "));
    client.ask("BGSAVE");
    eventually(|| client.info("rdb_bgsave_in_progress") == "0");
    assert_eq!(client.info("rdb_last_bgsave_status"), "err");
    assert_eq!(std::fs::read(server.folder().join("kept.rdb")).unwrap(), before);
    std::fs::remove_dir(&temporary).unwrap();
    client.talk("BGSAVE => +Background saving started");
    eventually(|| client.info("rdb_last_bgsave_status") == "ok");
    server.stop();
}
