//! The pool over restarts, when it is full, and beside others who use it.

use crate::support::{Served, pool_in};
use std::time::{Duration, Instant};
use tembo::Options;
use tembo_memcached::{Config, Error, MAP_NAME, Server};

fn unique_of(reply: &str) -> u64 {
    let line = reply.lines().next().unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn items_deadlines_and_unique_numbers_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut last = 0;
    for turn in 0..4 {
        let served = Served::start(pool_in(dir.path()), Config::default());
        let mut client = served.client();
        if turn > 0 {
            assert_eq!(client.says("get kept"), format!("VALUE kept 7 1\n{}\nEND", turn - 1));
            assert_eq!(client.says("mg timed t f").replace(char::is_numeric, ""), "HD t f");
            assert_eq!(client.says("mg stale v"), "VA 1 X W\nx");
            assert_eq!(client.says("mg Zm9vIGJhcg== b v k"), "VA 1 kZm9vIGJhcg== b\nx");
            assert_eq!(client.says("get over"), "END");
        }
        assert_eq!(client.says(&format!("set kept 7 0 1\n{turn}")), "STORED");
        let unique = unique_of(&client.says("gets kept"));
        assert!(unique > last, "{unique} after {last}");
        last = unique;
        client.says("set timed 0 1000 1\nx\nset over 0 -1 1\nx\nset stale 0 0 1\nx\nmd stale I");
        assert_eq!(client.says("ms Zm9vIGJhcg== 1 b\nx"), "HD");
        // The number is not given again, even if the item is gone.
        assert_eq!(client.says("set gone 0 0 1\nx"), "STORED");
        last = last.max(unique_of(&client.says("gets gone")));
        assert_eq!(client.says("delete gone"), "DELETED");
    }
}

#[test]
fn items_go_when_their_time_has_come() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool_in(dir.path());
    let served = Served::start(pool.clone(), Config::default());
    let mut client = served.client();
    for key in 0..3000 {
        client.send(format!("set key{key} 0 1 1 noreply\r\nx\r\n").as_bytes());
    }
    assert_eq!(client.says("set kept 0 0 1\nx"), "STORED");
    let deadline = Instant::now() + Duration::from_secs(30);
    while client.says("get key5 key17") != "END" {
        assert!(Instant::now() < deadline, "it is still there");
        std::thread::sleep(Duration::from_millis(50));
    }
    // They are removed without anybody asking for them: the item and the state are left.
    let map = pool.find_map(MAP_NAME).unwrap().unwrap();
    while map.len().unwrap() > 2 {
        assert!(Instant::now() < deadline, "{} records are left", map.len().unwrap());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(client.says("get kept"), "VALUE kept 0 1\nx\nEND");
    assert!(client.says("stats").contains("STAT curr_items 1\n"));
}

#[test]
fn a_flush_at_a_time_happens_at_that_time_even_if_the_server_was_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(pool_in(dir.path()), Config::default());
    let mut client = served.client();
    assert_eq!(client.says("set a 0 0 1\nx\nflush_all 2\nset b 0 0 1\nx"), "STORED\nOK\nSTORED");
    assert_eq!(client.says("get a b"), "VALUE a 0 1\nx\nVALUE b 0 1\nx\nEND");
    drop(served);
    std::thread::sleep(Duration::from_millis(2100));
    let served = Served::start(pool_in(dir.path()), Config::default());
    let mut client = served.client();
    let deadline = Instant::now() + Duration::from_secs(10);
    while client.says("get a b") != "END" {
        assert!(Instant::now() < deadline, "they are still there");
    }
    assert_eq!(client.says("set a 0 0 1\ny\nget a"), "STORED\nVALUE a 0 1\ny\nEND");
}

#[test]
fn a_full_pool_refuses_values_and_reads_and_deletes() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().create(true).max_bytes(8 << 20).initial_bytes(4 << 20);
    let pool = options.open(dir.path().join("a.pool")).unwrap();
    let served = Served::start(pool.clone(), Config::default());
    let mut client = served.client();
    let value = "v".repeat(20_000);
    let set = |key: u32| format!("set key{key} 0 0 {}\n{value}", value.len());
    let stored = (0..2000).take_while(|key| client.says(&set(*key)) == "STORED").count() as u32;
    assert!(stored > 50 && stored < 2000, "{stored}");
    assert_eq!(client.says(&set(stored)), "SERVER_ERROR out of memory storing object");
    assert_eq!(client.says(&format!("get key{stored}")), "END");
    // An item that is there keeps its value.
    assert_eq!(
        client.says(&format!("set key0 0 0 60000\n{}", "w".repeat(60_000))),
        "SERVER_ERROR out of memory storing object"
    );
    assert!(client.says("get key0").starts_with("VALUE key0 0 20000\nvvv"));
    for key in 0..stored {
        assert_eq!(client.says(&format!("delete key{key}")), "DELETED");
    }
    assert_eq!(client.says(&set(0)), "STORED");
    assert!(client.says("stats").contains("STAT store_no_memory "));
    pool.check().unwrap();
}

/// The space of flushed items comes back without a restart, also in a full pool.
#[test]
fn a_flush_makes_room_for_as_many_items_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().create(true).max_bytes(8 << 20).initial_bytes(4 << 20);
    let pool = options.open(dir.path().join("a.pool")).unwrap();
    let served = Served::start(pool.clone(), Config::default());
    let mut client = served.client();
    let set = |key: u32| format!("set key{key} 0 0 2000\n{}", "v".repeat(2000));
    let mut fill = || (0..20_000).take_while(|key| client.says(&set(*key)) == "STORED").count();
    let first = fill();
    let mut other = served.client();
    let unique = unique_of(&other.says("gets key0"));
    for _ in 0..3 {
        assert_eq!(other.says("flush_all"), "OK");
        let deadline = Instant::now() + Duration::from_secs(20);
        while other.says(&set(0)) != "STORED" {
            assert!(Instant::now() < deadline, "no room after a flush");
        }
        assert!(unique_of(&other.says("gets key0")) > unique);
        let again = fill();
        assert!(again * 10 >= first * 9, "{again} items after a flush, {first} before");
    }
    pool.check().unwrap();
}

#[test]
fn a_map_of_that_name_that_is_none_of_memcached_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool_in(dir.path());
    let map = pool.open_map(MAP_NAME).unwrap();
    let mut config = Config::default();
    config.listen.set_port(0);
    let refused = |what: &str| {
        let error = Server::bind(config.clone(), pool.clone()).unwrap().run().unwrap_err();
        assert!(matches!(error, Error::Foreign { .. }) && error.to_string().contains(what), "{error}");
    };
    map.put("mine", "x").unwrap();
    refused("none with the empty key");
    map.put("", "x").unwrap();
    refused("1 bytes");
    map.put("", [&2_u64.to_le_bytes()[..], &[0; 16]].concat()).unwrap();
    refused("form 2");
    assert_eq!(map.get("mine").unwrap().as_deref(), Some(&b"x"[..]));
}

/// A value too short for an item is damage, which is told, and nothing else suffers.
#[test]
fn a_damaged_item_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool_in(dir.path());
    let served = Served::start(pool.clone(), Config::default());
    let mut client = served.client();
    assert_eq!(client.says("set a 0 0 1\nx\nset b 0 0 1\nx"), "STORED\nSTORED");
    pool.find_map(MAP_NAME).unwrap().unwrap().put("a", "short").unwrap();
    let damage = tembo_memcached::check(&pool).unwrap_err().to_string();
    assert_eq!(damage, "the item a of the map \"memcached\" is damaged: its value has 5 bytes");
    assert_eq!(client.says("get a"), "SERVER_ERROR the item is damaged");
    assert_eq!(client.says("mg a v"), "SERVER_ERROR the item is damaged");
    assert_eq!(client.says("get b"), "VALUE b 0 1\nx\nEND");
    assert_eq!(client.says("set a 0 0 1\nx\nget a"), "STORED\nVALUE a 0 1\nx\nEND");
    assert_eq!(tembo_memcached::check(&pool).unwrap(), Some(2));
}
