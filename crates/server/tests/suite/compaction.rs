//! Space between records comes back while the server runs.

use crate::support::{Client, Fixture, eventually, show};

fn key(number: usize) -> String {
    format!("key:{number:08}")
}

/// Sends commands by a thousand, and takes their replies.
fn send_all(client: &mut Client, commands: impl Iterator<Item = Vec<Vec<u8>>>, reply: &str) {
    let commands: Vec<_> = commands.collect();
    for group in commands.chunks(1000) {
        for command in group {
            client.send(&command.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
        group.iter().for_each(|_| assert_eq!(show(&client.receive()), reply));
    }
}

/// Sets this many keys with values of a hundred bytes, and deletes nine of ten.
fn thin(client: &mut Client, count: usize) {
    let set = |number| vec![b"SET".to_vec(), key(number).into_bytes(), vec![number as u8; 100]];
    send_all(client, (0..count).map(set), "+OK");
    let dead = (0..count).filter(|number| number % 10 > 0);
    send_all(client, dead.map(|number| vec![b"DEL".to_vec(), key(number).into_bytes()]), ":1");
}

fn assert_are_there(client: &mut Client, count: usize) {
    for number in (0..count).step_by(10) {
        let value = client.run(&[b"GET", key(number).as_bytes()]);
        assert_eq!(show(&value), show(&tembo_wire::Value::Bulk(vec![number as u8; 100])), "{number}");
    }
}

#[test]
fn a_purge_gives_the_space_of_deleted_keys_back_beside_clients() {
    let mut server = Fixture::with(|_| {}, |options| options.initial_bytes(1 << 20).max_bytes(64 << 20));
    let mut client = server.client();
    thin(&mut client, 40_000);
    client.talk("RPUSH list a b c => :3\nHSET hash f v => :1");
    let before: u64 = client.info("used_memory").parse().unwrap();
    client.talk("MEMORY PURGE => +OK");
    let mut other = server.client();
    eventually(|| {
        assert_are_there(&mut client, 1000);
        other.talk("SET beside 1 => +OK\nDEL beside => :1");
        other.info("pool_compactions") != "0"
    });
    let after: u64 = client.info("used_memory").parse().unwrap();
    assert!(after < before / 2, "{after} of {before}");
    assert!(client.info("pool_compaction_moved_bytes").parse::<u64>().unwrap() > 100_000);
    client.talk("LRANGE list 0 -1 => [$a $b $c]\nHGET hash f => $v");
    assert_are_there(&mut client, 40_000);
    server.restart();
    assert_are_there(&mut server.client(), 40_000);
    server.check();
}

#[test]
fn many_holes_are_compacted_unasked() {
    let server = Fixture::with(|_| {}, |options| options.initial_bytes(1 << 20).max_bytes(256 << 20));
    let mut client = server.client();
    thin(&mut client, 200_000);
    eventually(|| client.info("pool_compactions") != "0");
    assert!(client.info("pool_spare_bytes").parse::<u64>().unwrap() < 16 << 20);
    assert_are_there(&mut client, 200_000);
    server.check();
}
