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

/// A server that has just started does not know of the holes that the last one left, and learns of them.
#[test]
fn holes_of_an_earlier_process_are_compacted_unasked() {
    let mut server = Fixture::with(|_| {}, |options| options.initial_bytes(1 << 20).max_bytes(256 << 20));
    let mut client = server.client();
    client.talk("CONFIG SET activedefrag no => +OK");
    thin(&mut client, 200_000);
    let before: u64 = client.info("used_memory").parse().unwrap();
    server.restart();
    let mut client = server.client();
    eventually(|| client.info("pool_compactions") != "0");
    let after: u64 = client.info("used_memory").parse().unwrap();
    assert!(after < before / 2, "{after} of {before}");
    assert_are_there(&mut client, 200_000);
    server.check();
}

/// Sets values until the pool is full; returns how many.
fn fill(client: &mut Client, name: &str, len: usize) -> usize {
    for number in 0.. {
        let reply = show(&client.run(&[b"SET", format!("{name}:{number:08}").as_bytes(), &vec![b'v'; len]]));
        if reply != "+OK" {
            assert!(reply.starts_with("-OOM"), "{reply}");
            return number;
        }
    }
    unreachable!()
}

#[test]
fn a_write_that_finds_no_space_gets_that_of_holes() {
    let fill_over_holes = |is_on: &str| {
        let server = Fixture::with(|_| {}, |options| options.initial_bytes(40 << 20).max_bytes(40 << 20));
        let mut client = server.client();
        client.talk(&format!("CONFIG SET activedefrag {is_on} => +OK"));
        thin(&mut client, 170_000);
        let long = fill(&mut client, "long", 1000);
        assert_are_there(&mut client, 1000);
        // Refusals cost no further compaction, after the first of a value that is larger than any slab.
        let large = vec![b'x'; 20 << 20];
        assert!(show(&client.run(&[b"SET", b"x", &large])).starts_with("-OOM"));
        let compactions = client.info("pool_compactions");
        (0..20).for_each(|_| assert!(show(&client.run(&[b"SET", b"x", &large])).starts_with("-OOM")));
        assert_eq!(client.info("pool_compactions"), compactions);
        server.check();
        let payload = long * 1013 + 17_000 * 112;
        payload * 100 / (40 << 20)
    };
    let (with, without) = (fill_over_holes("yes"), fill_over_holes("no"));
    println!("{with}% are alive, and {without}% without compaction");
    assert!(with >= 75 && without < 50, "{with}% {without}%");
}

#[test]
fn the_directives_of_defragmentation_mean_what_they_say() {
    let server = Fixture::with(|_| {}, |options| options.initial_bytes(1 << 20).max_bytes(256 << 20));
    let mut client = server.client();
    client.talk(
        "
        CONFIG GET activedefrag => [$activedefrag $yes]
        CONFIG GET active-defrag-threshold-* => \
            [$active-defrag-threshold-lower $25 $active-defrag-threshold-upper $100]
        CONFIG GET active-defrag-cycle-* => [$active-defrag-cycle-max $10 $active-defrag-cycle-min $5]
        CONFIG GET active-defrag-ignore-bytes => [$active-defrag-ignore-bytes $16777216]
        CONFIG SET active-defrag-cycle-max 100 => \
            -ERR CONFIG SET failed (possibly related to argument 'active-defrag-cycle-max') - argument must be between 1 and 99 inclusive
        CONFIG SET activedefrag maybe => \
            -ERR CONFIG SET failed (possibly related to argument 'activedefrag') - argument must be 'yes' or 'no'
        CONFIG SET activedefrag no active-defrag-ignore-bytes 1gb active-defrag-cycle-max 90 => +OK
        CONFIG GET active-defrag-max-scan-fields => [$active-defrag-max-scan-fields $1000]
        "
        .replace("\\\n            ", "")
        .as_str(),
    );
    thin(&mut client, 200_000);
    let waits = |client: &mut Client| {
        std::thread::sleep(std::time::Duration::from_millis(2500));
        assert_eq!(
            (client.info("pool_compactions"), client.info("active_defrag_running")),
            ("0".into(), "0".into())
        );
    };
    waits(&mut client);
    client.talk("CONFIG SET activedefrag yes => +OK");
    waits(&mut client);
    client.talk("CONFIG SET active-defrag-ignore-bytes 16mb active-defrag-threshold-lower 1000 => +OK");
    waits(&mut client);
    client.talk("CONFIG SET active-defrag-threshold-lower 25 => +OK");
    eventually(|| client.info("pool_compactions") != "0");
    assert!(client.info("total_active_defrag_time") != "0");
    assert_are_there(&mut client, 200_000);
    server.check();
}
