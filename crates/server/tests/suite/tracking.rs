//! Client-side caching: who is told of which changes, when, and what it may cost.

use tembo_wire::Value;

use crate::peer::{Random, Redis, start_redis};
use crate::support::{Client, Fixture, eventually, show};

const SEED: u64 = 0x7e3b_0037;
const SEED_VARIABLE: &str = "TEMBO_DIFFERENTIAL_SEED";

/// The messages that have come before the reply to a PING.
fn messages(client: &mut Client) -> Vec<String> {
    client.send(&[b"PING", b"mark"]);
    let mut messages = Vec::new();
    loop {
        let value = client.receive();
        match &value {
            Value::Bulk(text) if &text[..] == b"mark" => return messages,
            // Within MULTI.
            Value::Simple(text) if &text[..] == b"QUEUED" => return messages,
            // A subscriber of RESP2.
            Value::Array(parts) if parts.first() == Some(&Value::Bulk(b"pong".to_vec())) => return messages,
            value => messages.push(show(value)),
        }
    }
}

/// Clients of a server, the first of which track keys.
struct Clients(Vec<Client>);

impl Clients {
    /// Runs the lines: the number of a client, and its command. Returns the replies, and behind each what has
    /// come to the others.
    fn run(&mut self, lines: &str) -> Vec<String> {
        let mut seen = Vec::new();
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (number, command) = line.split_once(' ').unwrap();
            seen.push(format!("{line} => {}", self.0[number.parse::<usize>().unwrap()].ask(command)));
            self.note_messages(&mut seen);
        }
        seen
    }

    fn note_messages(&mut self, seen: &mut Vec<String>) {
        for (number, client) in self.0.iter_mut().enumerate() {
            let mut messages = messages(client);
            // A command that changes several keys may do so in another order.
            messages.sort();
            seen.extend(messages.iter().map(|message| format!("  {number} gets {message}")));
        }
    }
}

/// Runs the same lines on a server of Tembo and on Redis; both see the same numbers of clients.
fn both(lines: &str) -> Option<(Vec<String>, Vec<String>)> {
    let (redis, first) = start_redis()?;
    let server = Fixture::start();
    let mut tembo = server.client();
    // The number of a client is in what is compared, and Redis's first ones are taken.
    let mut number = id(&redis, first);
    while tembo.ask("CLIENT ID") != format!(":{number}") {
        tembo = server.client();
    }
    let mut own = Clients(vec![server.client(), server.client(), server.client(), server.client()]);
    let mut theirs = Clients(Vec::new());
    while theirs.0.len() < 4 {
        number += 1;
        let mut client = redis.client();
        assert_eq!(client.ask("CLIENT ID"), format!(":{number}"));
        theirs.0.push(client);
    }
    let mut ids = own.0.iter_mut().zip(&mut theirs.0);
    assert!(ids.all(|(own, their)| own.ask("CLIENT ID") == their.ask("CLIENT ID")));
    let base = number - 3;
    let lines = (0..4).fold(lines.to_owned(), |lines, client| {
        lines.replace(&format!("@{client}"), &(base + client).to_string())
    });
    let pair = (own.run(&lines), theirs.run(&lines));
    server.check();
    Some(pair)
}

fn id(_: &Redis, mut client: Client) -> u64 {
    client.ask("CLIENT ID")[1..].parse().unwrap()
}

#[track_caller]
fn expect_same(lines: &str) {
    if let Some((own, theirs)) = both(lines) {
        assert_eq!(own, theirs);
    }
}

#[test]
fn readers_are_told_once_for_each_read_as_by_redis() {
    expect_same(
        "
        0 HELLO 3
        1 HELLO 3
        0 CLIENT TRACKINGINFO
        0 CLIENT GETREDIR
        0 CLIENT TRACKING ON
        0 CLIENT TRACKINGINFO
        0 CLIENT GETREDIR
        1 CLIENT TRACKING ON NOLOOP
        1 CLIENT TRACKINGINFO
        0 GET a
        1 MGET a b c
        2 MSET a 1 b 2 d 3
        2 SET a 4
        1 GET a
        0 GET a
        1 SET a 5
        0 SET a 6
        0 HGET h f
        0 SMEMBERS s
        0 ZUNION 2 z1 z2
        0 SINTERCARD 2 s s2
        0 SORT_RO list
        0 OBJECT ENCODING a
        0 EXISTS x y
        2 ZADD z2 1 m
        2 HSET h f v
        2 SADD s2 a
        2 RPUSH list 1 2
        2 SADD s a
        2 DEL a nosuch
        2 RENAME list x
        2 COPY x y
        0 GET x
        2 LPOP x
        0 SELECT 1
        0 GET other
        2 SET other 1
        0 GET gone
        2 SET gone 1 PX 1
        0 EXISTS gone
        0 GET k
        1 GET k
        2 FLUSHALL
        2 SET k 2
        0 GET k
        2 FLUSHDB
        0 CLIENT TRACKING OFF
        0 CLIENT TRACKINGINFO
        0 GET k
        2 SET k 3
        0 CLIENT TRACKING MAYBE
        0 CLIENT TRACKING ON NOSUCH
        0 CLIENT CACHING YES
        ",
    );
}

#[test]
fn what_is_read_is_chosen_command_by_command_as_by_redis() {
    expect_same(
        "
        0 HELLO 3
        1 HELLO 3
        0 CLIENT CACHING YES
        0 CLIENT TRACKING ON OPTIN
        1 CLIENT TRACKING ON OPTOUT
        0 CLIENT CACHING NO
        1 CLIENT CACHING YES
        1 CLIENT CACHING PERHAPS
        0 GET a
        1 GET a
        2 SET a 1
        0 CLIENT CACHING YES
        0 CLIENT TRACKINGINFO
        1 CLIENT CACHING NO
        1 CLIENT TRACKINGINFO
        0 GET a
        1 GET a
        0 GET b
        1 GET b
        2 SET a 2
        2 SET b 2
        0 CLIENT CACHING YES
        0 MULTI
        0 GET a
        0 GET b
        0 EXEC
        0 GET c
        2 MSET a 1 b 2 c 3
        0 CLIENT CACHING YES
        0 NOSUCH
        0 GET a
        2 SET a 3
        0 CLIENT TRACKING ON OPTOUT
        0 CLIENT TRACKING ON OPTIN OPTOUT
        0 CLIENT TRACKING ON BCAST
        0 CLIENT TRACKING ON
        0 CLIENT TRACKING ON OPTIN BCAST
        ",
    );
}

#[test]
fn all_keys_with_a_beginning_are_told_of_as_by_redis() {
    expect_same(
        "
        0 HELLO 3
        1 HELLO 3
        3 HELLO 3
        0 CLIENT TRACKING ON PREFIX a
        0 CLIENT TRACKING ON BCAST PREFIX a PREFIX ab
        0 CLIENT TRACKING ON BCAST PREFIX user: PREFIX item:
        0 CLIENT TRACKING ON BCAST PREFIX user:1
        0 CLIENT TRACKING ON BCAST PREFIX u
        1 CLIENT TRACKING ON BCAST NOLOOP
        3 CLIENT TRACKING ON BCAST PREFIX user: NOLOOP
        0 CLIENT TRACKINGINFO
        1 CLIENT TRACKINGINFO
        2 MSET user:1 a user:2 b item:1 c x d
        2 SET x 1
        1 MSET user:1 a user:2 b item:1 c x d
        3 DEL user:1 user:2
        0 SET user:1 x
        2 GET user:1
        2 DEL nosuch
        2 FLUSHALL
        0 CLIENT TRACKING ON BCAST PREFIX other
        0 CLIENT TRACKINGINFO
        0 CLIENT TRACKING OFF
        2 SET user:1 x
        0 CLIENT TRACKING ON
        0 GET user:1
        2 SET user:1 y
        ",
    );
}

#[test]
fn another_client_gets_the_messages_as_by_redis() {
    expect_same(
        "
        3 HELLO 3
        0 CLIENT TRACKING ON REDIRECT 999999
        0 CLIENT TRACKING ON REDIRECT x
        0 CLIENT TRACKING ON REDIRECT @1 REDIRECT @1
        0 CLIENT TRACKING ON REDIRECT @1
        0 CLIENT GETREDIR
        0 CLIENT TRACKINGINFO
        0 GET a
        2 SET a 1
        1 SUBSCRIBE __redis__:invalidate
        0 GET a
        0 GET b
        2 MSET a 1 b 2
        2 FLUSHALL
        2 PUBLISH __redis__:invalidate hello
        0 CLIENT TRACKING ON REDIRECT @3
        0 GET a
        2 SET a 1
        0 CLIENT TRACKING OFF
        0 GET a
        2 SET a 2
        0 CLIENT GETREDIR
        3 CLIENT TRACKING ON BCAST REDIRECT @1
        2 MSET a 1 b 2
        3 CLIENT TRACKING ON BCAST NOLOOP REDIRECT @1
        3 MSET a 1 b 2
        3 RESET
        3 CLIENT TRACKINGINFO
        2 MSET a 1 b 2
        ",
    );
}

/// K is a key.
const TEMPLATES: &str = "GET K|MGET K K K|SET K 1|SET K 1|MSET K 1 K 2|DEL K K|RENAME K K|COPY K K|INCR K|APPEND K x|\
    RPUSH K a|LPOP K|HSET K f v|HGET K f|HDEL K f|SADD K m|SREM K m|SMEMBERS K|SUNIONSTORE K K K|SUNION K K|\
    ZADD K 1 m|ZINCRBY K 1 m|ZRANGE K 0 -1|EXPIRE K 1000|PERSIST K|SETRANGE K 1 x|GETSET K v|SETBIT K 3 1|\
    BITCOUNT K|PFADD K a|PFCOUNT K K|STRLEN K|TTL K|LMOVE K K LEFT RIGHT|SMOVE K K m|GETDEL K|SETNX K 1|\
    SINTERSTORE K K K|ZRANGESTORE K K 0 -1";
const TRACKINGS: &str =
    "ON|ON NOLOOP|ON OPTIN|ON OPTOUT|ON BCAST|ON BCAST NOLOOP|ON BCAST PREFIX k|OFF|OFF|ON REDIRECT @3";

fn lines_of(text: &str) -> Vec<&str> {
    text.split('|').collect()
}

#[test]
fn random_commands_tell_the_same_clients_as_redis() {
    let seed = std::env::var(SEED_VARIABLE).map_or(SEED, |seed| seed.parse().unwrap());
    eprintln!("{SEED_VARIABLE}={seed}");
    let mut random = Random(seed);
    let mut lines = "0 HELLO 3\n1 HELLO 3\n2 HELLO 3\n3 HELLO 3\n".to_owned();
    for _ in 0..600 {
        // The last one changes nothing: Redis tells it of its own changes in the middle of their replies.
        let client = random.below(3);
        let line = match random.below(12) {
            0 => format!("CLIENT TRACKING {}", random.pick(&lines_of(TRACKINGS))),
            1 => {
                ["CLIENT CACHING YES", "CLIENT CACHING NO", "CLIENT TRACKINGINFO"][random.below(3)].to_owned()
            }
            2 if random.below(8) == 0 => random.pick(&["FLUSHALL", "FLUSHDB"]).to_owned(),
            _ => random.pick(&lines_of(TEMPLATES)).to_owned(),
        };
        let words = line.split(' ').map(|word| match word {
            "K" => random.pick(&["k1", "k2", "k3", "other", "k"]).to_owned(),
            word => word.to_owned(),
        });
        let words: Vec<String> = words.collect();
        lines += &format!("{client} {}\n", words.join(" "));
    }
    let Some((own, theirs)) = both(&lines) else { return };
    for (index, (own, theirs)) in own.iter().zip(&theirs).enumerate() {
        assert_eq!(own, theirs, "seed {seed}, line {index}");
    }
    assert_eq!(own.len(), theirs.len());
}

#[test]
fn keys_that_expire_and_databases_that_change_places_are_told_of() {
    let server = Fixture::start();
    let (mut reader, mut writer) = (server.client(), server.client());
    reader.ask("HELLO 3");
    reader.talk("CLIENT TRACKING ON => +OK");
    reader.talk("MULTI => +OK\nSET k v PX 20 => +QUEUED\nGET k => +QUEUED\nEXEC => [+OK $v]");
    assert_eq!(show(&reader.receive()), ">$invalidate [$k]", "it has expired");
    writer.talk("SET a v => +OK");
    reader.talk("GET a => $v");
    writer.talk("SWAPDB 0 1 => +OK");
    assert_eq!(messages(&mut reader), [">$invalidate nil"]);
    writer.talk("SELECT 1 => +OK");
    reader.talk("GET p:1 => nil\nGET p:2 => nil\nGET q => nil");
    writer.talk("MSET p:1 a p:3 b q c => +OK\nTEMBO.UNLINK p* => :2");
    assert_eq!(messages(&mut reader), [">$invalidate [$p:1]", ">$invalidate [$q]", ">$invalidate [$p:2]"]);
    reader.talk("CLIENT TRACKING OFF => +OK\nCLIENT TRACKING ON BCAST PREFIX p: => +OK");
    writer.talk("MSET p:1 a p:3 b q c => +OK\nTEMBO.UNLINK p* => :2\nTEMBO.UNLINK * => :2");
    assert_eq!(
        messages(&mut reader),
        [">$invalidate [$p:1 $p:3]", ">$invalidate [$p:1 $p:3]", ">$invalidate nil"]
    );
    server.check();
}

#[test]
fn a_client_is_told_that_the_one_that_got_its_messages_is_gone() {
    let server = Fixture::start();
    let (mut reader, mut other, mut writer) = (server.client(), server.client(), server.client());
    reader.ask("HELLO 3");
    let other_id = other.ask("CLIENT ID").replace(':', "");
    reader.talk(&format!("CLIENT TRACKING ON REDIRECT {other_id} => +OK\nGET k => nil"));
    assert!(reader.ask("CLIENT INFO").contains("flags=t db=0"), "{}", reader.ask("CLIENT INFO"));
    assert!(reader.ask("CLIENT INFO").contains(&format!("redir={other_id} ")));
    other.talk("QUIT => +OK");
    other.expect_closed();
    eventually(|| !writer.ask("CLIENT LIST").contains(&format!("id={other_id} ")));
    writer.talk("SET k v => +OK");
    assert_eq!(messages(&mut reader), [format!(">$tracking-redir-broken :{other_id}")]);
    assert!(reader.ask("CLIENT INFO").contains("flags=tR "));
    let info = reader.ask("CLIENT TRACKINGINFO");
    assert_eq!(info, format!("{{$flags:($on $broken_redirect) $redirect::{other_id} $prefixes:[]}}"));
    reader.talk("CLIENT TRACKING ON => +OK\nGET k => $v");
    writer.talk("SET k w => +OK");
    assert_eq!(messages(&mut reader), [">$invalidate [$k]"]);
}

#[test]
fn the_table_is_bounded_and_info_tells_of_it() {
    let server = Fixture::start();
    let (mut reader, mut writer) = (server.client(), server.client());
    reader.ask("HELLO 3");
    reader.talk("CONFIG SET tracking-table-max-keys 10 => +OK\nCLIENT TRACKING ON => +OK");
    for number in 0..30 {
        reader.send(&[b"GET", format!("k{number:02}").as_bytes()]);
    }
    let (mut replies, mut given_up) = (0, 0);
    while replies < 30 || given_up < 20 {
        match reader.receive() {
            Value::Push(_) => given_up += 1,
            _ => replies += 1,
        }
    }
    let fields =
        ["tracking_clients", "tracking_total_keys", "tracking_total_items", "tracking_total_prefixes"];
    assert_eq!(fields.map(|field| writer.info(field)), ["1", "10", "10", "0"]);
    writer.talk("CONFIG SET tracking-table-max-keys 4 => +OK");
    assert_eq!(messages(&mut reader).len(), 6);
    let mut broadcast = server.client();
    broadcast.ask("CLIENT TRACKING ON BCAST PREFIX a PREFIX b");
    assert_eq!(fields.map(|field| writer.info(field)), ["2", "4", "4", "2"]);
    drop((reader, broadcast));
    eventually(|| fields.map(|field| writer.info(field)) == ["0", "0", "0", "0"]);
}

#[test]
fn many_prefixes_are_compared_in_less_than_the_square_of_their_number() {
    let server = Fixture::start();
    let mut client = server.client();
    let prefixes: Vec<String> = (0..100_000).map(|number| format!("{number:06}")).collect();
    let mut args: Vec<&[u8]> = vec![b"CLIENT", b"TRACKING", b"ON", b"BCAST"];
    args.extend(prefixes.iter().flat_map(|prefix| [&b"PREFIX"[..], prefix.as_bytes()]));
    assert_eq!(show(&client.run(&args)), "+OK");
    assert_eq!(
        show(&client.run(&args)),
        "-ERR Prefix '000000' overlaps with an existing prefix '000000'. Prefixes for a single client must not overlap."
    );
    args.extend([&b"PREFIX"[..], b"09999"]);
    let mut other = server.client();
    assert_eq!(show(&other.run(&args)), "-ERR Prefixes for a single client must not overlap.");
    other.talk("SET 000001 x => +OK");
}
