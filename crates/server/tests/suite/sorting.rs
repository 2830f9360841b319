//! SORT and SORT_RO, also compared with a real Redis, where there is one.

use crate::peer::{Random, start_redis};
use crate::support::{Client, Fixture, request, show};

const SEED: u64 = 0x7e3b_0071;
const SEED_VARIABLE: &str = "TEMBO_DIFFERENTIAL_SEED";
const ROUNDS: usize = 1500;

#[test]
fn elements_are_sorted_by_themselves_or_by_other_keys() {
    let server = Fixture::start();
    let mut client = server.client();
    client.talk(
        "
        RPUSH l 3 10 2 => :3
        SORT l => [$2 $3 $10]
        SORT l DESC => [$10 $3 $2]
        SORT l ALPHA => [$10 $2 $3]
        SORT l LIMIT 1 1 => [$3]
        SORT l LIMIT -5 -1 => [$2 $3 $10]
        SORT l LIMIT 7 2 => []
        MSET w_2 30 w_3 20 w_10 10 => +OK
        SORT l BY w_* => [$10 $3 $2]
        SORT l BY w_* GET # GET w_* GET nosuch_* GET constant => [$10 $10 nil nil $3 $20 nil nil $2 $30 nil nil]
        SORT l BY nosort => [$3 $10 $2]
        SORT l BY nosort DESC LIMIT 0 2 => [$2 $10]
        HSET h_2 f b => :1
        HSET h_3 f a g c => :2
        SORT l BY h_*->f ALPHA GET h_*->f => [nil $a $b]
        SORT l BY h_*->f => -ERR One or more scores can't be converted into double
        SORT l BY w_* STORE s => :3
        LRANGE s 0 -1 => [$10 $3 $2]
        SORT l GET h_*->g STORE s => :3
        LRANGE s 0 -1 => [$ $c $]
        SORT nosuch STORE s => :0
        EXISTS s => :0
        SORT w_2 => -WRONGTYPE Operation against a key holding the wrong kind of value
        SORT l LIMIT 1 => -ERR syntax error
        SORT l LIMIT x 1 => -ERR value is not an integer or out of range
        SORT l STORE => -ERR syntax error
        SORT_RO l STORE s => -ERR syntax error
        SORT_RO l DESC LIMIT 0 1 => [$10]
        RPUSH l x => :4
        SORT l => -ERR One or more scores can't be converted into double
        SORT l ALPHA DESC => [$x $3 $2 $10]
        ZADD z 3 1 2 2 1 3 => :3
        SORT z => [$1 $2 $3]
        SORT z BY nosort => [$3 $2 $1]
        SORT z BY nosort DESC LIMIT 0 1 => [$1]
        SADD t b a c => :3
        SORT t BY nosort STORE s => :3
        LRANGE s 0 -1 => [$a $b $c]
        SORT l STORE l => -ERR One or more scores can't be converted into double
        SORT l ALPHA STORE l => :4
        LRANGE l 0 -1 => [$10 $2 $3 $x]
        ",
    );
    server.check();
}

/// As GETKEYS says it: the key, and the last one to store to.
#[test]
fn the_keys_of_sort_are_told() {
    let server = Fixture::start();
    server.client().talk(
        "
        COMMAND GETKEYS SORT a BY x* STORE b => [$a $b]
        COMMAND GETKEYS SORT a STORE b STORE c => [$a $c]
        COMMAND GETKEYS SORT a => [$a]
        COMMAND GETKEYS SORT_RO a BY x* GET STORE => [$a]
        ",
    );
}

/// Collections of some sizes, and keys with weights for most of their elements.
fn prepare(random: &mut Random) -> Vec<String> {
    let mut commands = vec!["FLUSHALL".to_owned()];
    let weights = ["1", "-2", "3.5", "1e3", "0x10", "inf", " 7", "text", "", "-0", "5", "1.", ".5"];
    for number in 0..40 {
        let weight = if random.below(12) == 0 {
            random.pick(&weights).to_owned()
        } else {
            random.below(30).to_string()
        };
        match random.below(8) {
            0 => {}
            1 => commands.push(format!("HSET w_{number} other 1")),
            2 => commands.push(format!("RPUSH w_{number} 1")),
            _ => commands.push(format!("SET w_{number} '{weight}'")),
        }
        if random.below(6) != 0 {
            commands.push(format!("HSET h_{number} f {} g text{number}", random.below(50)));
        }
    }
    for (span, size) in [(0, 3), (1, 30), (2, 150)] {
        for _ in 0..size {
            let element = if random.below(60) == 0 { "x".to_owned() } else { random.below(40).to_string() };
            commands.push(format!("RPUSH list:{span} {element}"));
            commands.push(format!("ZADD zset:{span} {} {element}", random.below(1_000_000)));
            commands.push(format!("SADD set:{span} {}", random.below(40)));
            let long = "y".repeat(if random.below(20) == 0 { 600 } else { 1 });
            commands.push(format!("SADD text:{span} {element}{long}"));
        }
    }
    commands
}

/// A command, and whether the order of its reply is the collection's own in no particular order.
fn sort_command(random: &mut Random) -> (String, bool) {
    let kind = random.pick(&["list", "list", "zset", "set", "text", "w_1", "none"]);
    let key = if kind.len() == 4 && kind != "none" {
        format!("{kind}:{}", random.below(3))
    } else {
        kind.to_owned()
    };
    let mut command = format!("{} {key}", random.pick(&["SORT", "SORT", "SORT", "SORT_RO", "sort"]));
    let mut is_unordered = false;
    let by = random.below(8);
    if by < 5 {
        let pattern = ["w_*", "h_*->f", "nosort", "h_*->g", "#"][by];
        command += &format!(" BY {pattern}");
        is_unordered = (by == 2 || by == 4) && (kind == "set" || kind == "text");
    }
    if random.below(2) == 0 || kind == "text" || by == 3 {
        command += " ALPHA";
        // Elements of one weight have no particular order.
        is_unordered |= [0, 1, 3].contains(&by);
    }
    if random.below(3) == 0 {
        command += random.pick(&[" DESC", " ASC", " desc"]);
    }
    let limit = random.below(5);
    if limit < 3 && !is_unordered {
        let (start, count) = (random.below(40) as i64 - 3, random.below(40) as i64 - 2);
        command += &format!(" LIMIT {start} {count}");
    }
    for _ in 0..random.below(3) {
        command += random.pick(&[
            " GET #",
            " GET w_*",
            " GET h_*->f",
            " GET h_*->nosuch",
            " GET constant",
            " GET *",
        ]);
    }
    if random.below(4) == 0 && !is_unordered {
        command += random.pick(&[" STORE target", " STORE list:0", " STORE w_3"]);
    }
    if random.below(30) == 0 {
        command += random.pick(&[" LIMIT 1", " LIMIT x 2", " NOSUCH", " BY", " GET", " STORE"]);
    }
    (command, is_unordered)
}

fn ask(client: &mut Client, command: &str) -> String {
    let words: Vec<&[u8]> = command.split(' ').map(|word| word.trim_matches('\'').as_bytes()).collect();
    client.send_raw(&request(&words));
    show(&client.receive())
}

fn sorted(reply: &str) -> Vec<&str> {
    let mut words: Vec<_> = reply.trim_matches(['[', ']']).split(' ').collect();
    words.sort_unstable();
    words
}

#[test]
fn everything_is_sorted_as_in_redis() {
    let Some((redis, _)) = start_redis() else { return };
    let server = Fixture::start();
    let seed = std::env::var(SEED_VARIABLE).map_or(SEED, |seed| seed.parse().unwrap());
    let mut random = Random(seed);
    for protocol in ["HELLO 2", "HELLO 3"] {
        let (mut ours, mut theirs) = (server.client(), redis.client());
        ours.ask(protocol);
        theirs.ask(protocol);
        for round in 0..ROUNDS {
            if round % 50 == 0 {
                for command in prepare(&mut random) {
                    assert_eq!(ask(&mut ours, &command), ask(&mut theirs, &command), "{command}");
                }
            }
            let (command, is_unordered) = sort_command(&mut random);
            let (tembo, redis) = (ask(&mut ours, &command), ask(&mut theirs, &command));
            let about = format!("{SEED_VARIABLE}={seed}, {protocol}, round {round}: {command}");
            match is_unordered {
                true => assert_eq!(sorted(&tembo), sorted(&redis), "{about}"),
                false => assert_eq!(tembo, redis, "{about}"),
            }
            for key in ["target", "list:0"] {
                let list = format!("LRANGE {key} 0 -1");
                assert_eq!(ask(&mut ours, &list), ask(&mut theirs, &list), "{about}");
            }
        }
    }
    server.check();
}
