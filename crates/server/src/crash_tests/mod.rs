//! The server's keyspace in the crash simulator: commands of every type, with collections that become large,
//! that are copied and built in parts, that are given up and given back; and crashes in all of it, in the
//! recovery, and in what follows.
//!
//! Each operation is a command, or several as an EXEC or a script; a crash leaves all of it or nothing.
//! `CRASHSIM_IMAGES=1000000 cargo test --release -p tembo-server --lib crash_tests::campaign` is the long
//! form.

mod cluster;
mod commands;
mod copy;
mod faults;
mod kept;
mod master;
mod moves;
mod power;
mod power_commands;
mod replica;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tembo_crashsim::{Audit, Failure, FailureKind, Report, Scenario, Simulation, campaign};
use tembo_pmem::Region;
use tembo_pool::Geometry;
use tembo_wire::{Limits, Parsed, ReplyLimits, ReplyParser, RequestParser, write_request};

use crate::acl::users::superuser;
use crate::address::Address;
use crate::config::Config;
use crate::executor::Executor;
use crate::keyspace::Keyspace;
use crate::keyspace::check::check;
use crate::keyspace::check_report::CheckReport;
use crate::keyspace::collection::broken::Broken;
use crate::keyspace::collection::ordered::Score;
use crate::keyspace::format::Kind;
use crate::keyspace::format::OLD_RECORDS;
use crate::random::Random;
use crate::session::Session;
use crate::state;
use commands::{Command, DATABASES, Model, Value, choose};
use faults::Fault;

/// Runs the commands that the arguments have: the database of each, its number of words, and the words.
const SCRIPT: &str = "
    local at = 1
    while at <= #ARGV do
        local count = tonumber(ARGV[at + 1])
        redis.call('select', ARGV[at])
        redis.call(unpack(ARGV, at + 2, at + 1 + count))
        at = at + 2 + count
    end
    local ok = pcall(redis.call, 'incr', 'a', 'wrong')
    return tostring(ok)";

/// The key that has the time.
const CLOCK: &str = "clock";

#[derive(Clone, Debug)]
enum Op {
    /// A command, or an EXEC of several.
    Run(Vec<Command>),
    /// Commands beside a copy that has made this many steps.
    BesideCopy(u32, Vec<Command>),
    /// A script of several commands, which fails at its end.
    Script(Vec<Command>),
    /// The first call of a scan, for this many keys.
    Scan(usize),
    /// The time goes on by a millisecond, and keys expire.
    Tick,
    /// Some of the space of removed collections is given back.
    Reclaim,
    /// All space is given back; no collection without a key is left.
    ReclaimAll,
    /// A change that breaks a promise.
    Broken(Fault),
}

struct Opened {
    low: tembo_pool::Pool,
    pool: tembo::Pool,
    server: RefCell<state::State>,
}

struct Script {
    name: String,
    start: Vec<Op>,
    ops: Vec<Op>,
    continuation: Vec<Op>,
    /// Checks that found a collection under construction.
    unfinished: AtomicU64,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn fault(fault: crate::fault::Fault) -> String {
    format!("{fault:?}")
}

impl Opened {
    fn new(low: tembo_pool::Pool) -> Self {
        let pool = tembo::Pool::from_pool(low.clone());
        let nowhere = "127.0.0.1:1".parse().expect("an address");
        let server = RefCell::new(state::State::new(Config::default(), nowhere, &pool));
        Opened { low, pool, server }
    }

    /// An empty pool with names for this many maps, and a secret that is the same in each run.
    fn create(region: Region, root_count: u32) -> Result<Self, String> {
        let geometry = Geometry { lane_bytes: 4096, root_count, ..Geometry::tiny() };
        let opened = Opened::new(tembo_pool::Pool::create_in(region, &geometry).map_err(text)?);
        let list = opened.pool.open_map(crate::COLLECTIONS_MAP).map_err(text)?;
        list.insert(b"s", [7; 16]).map_err(text)?;
        Ok(opened)
    }

    /// Proves the pool and the keyspace.
    fn check(&self) -> Result<CheckReport, String> {
        self.pool.check().map_err(text)?;
        check(&self.pool).map_err(text)
    }

    /// The keyspace, with parts of a few elements.
    fn keys(&self) -> Result<Keyspace<'_>, String> {
        let mut keys = Keyspace::open(&self.pool).map_err(text)?;
        keys.parts.words_max = 60;
        keys.parts.removed_in_place = 3;
        keys.parts.chunks_in_place = 1;
        let now = match keys.find(0, CLOCK.as_bytes()).map_err(fault)?.live {
            Some(clock) => std::str::from_utf8(clock.payload).ok().and_then(|text| text.parse().ok()),
            None => Some(0),
        };
        keys.now_ms = now.ok_or("the clock is no number")?;
        keys.commit().map_err(text)?;
        Ok(keys)
    }

    /// Runs requests, and commits.
    fn run(&self, requests: &[Vec<String>]) -> Result<(), String> {
        self.run_with(self.keys()?, requests)
    }

    fn run_with(&self, keys: Keyspace<'_>, requests: &[Vec<String>]) -> Result<(), String> {
        let mut server = self.server.borrow_mut();
        let mut executor = Executor::new(keys, &mut server);
        executor.batch_words_max = usize::MAX;
        let peer = || Address::Ip("127.0.0.1:1".parse().expect("an address"));
        let mut session = Session::new(1, (peer(), peer()), 0, Instant::now(), superuser());
        let mut output = Vec::new();
        for words in requests {
            let mut bytes = Vec::new();
            write_request(&mut bytes, words);
            let mut parser = RequestParser::new();
            let Ok(Parsed::Request(request)) = parser.parse(&bytes, &Limits::default()) else {
                return Err(format!("{words:?} is no request"));
            };
            executor.execute(0, &request, &mut session, &mut output, &mut None);
        }
        executor.commit_batch(None);
        first_error(&output).map_or(Ok(()), |error| Err(format!("{requests:?}: {error}")))
    }

    fn run_all(&self, commands: &[Command]) -> Result<(), String> {
        self.run(&self.requests(commands)?)
    }

    /// The requests of commands, in an EXEC if they are several.
    fn requests(&self, commands: &[Command]) -> Result<Vec<Vec<String>>, String> {
        let word = |word: &str| vec![word.to_owned()];
        let now_ms = self.keys()?.now_ms;
        let mut requests = Vec::new();
        for command in commands {
            let select = |database: usize| vec!["SELECT".to_owned(), database.to_string()];
            let elsewhere = (command.database() != 0).then(|| command.database());
            requests.extend(elsewhere.map(select));
            requests.push(command.words(now_ms));
            requests.extend(elsewhere.map(|_| select(0)));
        }
        if commands.len() > 1 {
            requests.insert(0, word("MULTI"));
            requests.push(word("EXEC"));
        }
        Ok(requests)
    }

    /// Runs a script of commands. Its error at the end is caught, and undoes nothing.
    fn run_script(&self, commands: &[Command]) -> Result<(), String> {
        let now_ms = self.keys()?.now_ms;
        let mut words: Vec<String> = ["EVAL", SCRIPT, "0"].map(str::to_owned).to_vec();
        for command in commands {
            let of_command = command.words(now_ms);
            words.push(command.database().to_string());
            words.push(of_command.len().to_string());
            words.extend(of_command);
        }
        self.run(&[words])
    }

    fn tick(&self) -> Result<(), String> {
        let now = self.keys()?.now_ms + 1;
        self.run(&[vec!["SET".to_owned(), CLOCK.to_owned(), now.to_string()]])?;
        let mut keys = self.keys()?;
        keys.expire_due(usize::MAX).map_err(fault)?;
        keys.commit().map_err(text)
    }

    /// Scans keys of which none has expired: one that has is a key to a scan, though not to the model.
    fn scan(&self, count: usize) -> Result<(), String> {
        let mut keys = self.keys()?;
        keys.expire_due(usize::MAX).map_err(fault)?;
        keys.commit().map_err(text)?;
        drop(keys);
        self.run_all(&[Command::Scan(count)])
    }

    fn reclaim_all(&self) -> Result<(), String> {
        let mut keys = self.keys()?;
        for _ in 0..10_000 {
            if !keys.is_reclaiming() {
                drop(keys);
                let kept = self
                    .pool
                    .find_map(OLD_RECORDS)
                    .map_err(text)?
                    .map_or(Ok(0), |map| map.len())
                    .map_err(text)?;
                if kept > 0 {
                    return Err(format!("{kept} old records are left over"));
                }
                let left = check(&self.pool).map_err(text)?.collections;
                let leaked = left.doomed + left.under_construction + left.doomed_elements;
                return if leaked == 0 { Ok(()) } else { Err(format!("left over: {left:?}")) };
            }
            keys.reclaim().map_err(fault)?;
        }
        Err("reclaiming does not end".to_owned())
    }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The value of a key, read as commands do.
fn value(
    keys: &mut Keyspace<'_>,
    database: usize,
    key: &[u8],
) -> Result<Option<(Value, Option<u64>)>, String> {
    let Some(stored) = keys.find(database, key).map_err(fault)?.live else {
        return Ok(None);
    };
    let (kind, deadline) = (stored.meta.kind, stored.meta.deadline);
    if kind == Kind::String {
        return Ok(Some((Value::String(text_of(stored.payload)), deadline)));
    }
    let collection = keys.read_collection(database, key, kind).map_err(fault)?.ok_or("it is gone")?;
    let mut elements = Vec::new();
    keys.walk_elements(&collection, 0, |_, field, value| {
        elements.push((text_of(field), value.to_vec()));
        ControlFlow::Continue(())
    })
    .map_err(fault)?;
    let score = |value: &[u8]| Score::read(value).map(|score| score.number() as i64).unwrap_or(i64::MIN);
    let value = match kind {
        Kind::Hash => Value::Hash(elements.iter().map(|(f, v)| (f.clone(), text_of(v))).collect()),
        Kind::Set => Value::Set(elements.into_iter().map(|(member, _)| member).collect()),
        Kind::List => Value::List(elements.into_iter().map(|(element, _)| element).collect()),
        _ => {
            let members: BTreeMap<_, _> = elements.iter().map(|(m, v)| (m.clone(), score(v))).collect();
            let mut ordered = Vec::new();
            keys.walk_ranks(&collection, 0, false, |member, score| {
                ordered.push((text_of(member), score.number() as i64));
                ControlFlow::Continue(())
            })
            .map_err(fault)?;
            if ordered.iter().cloned().collect::<BTreeMap<_, _>>() != members {
                return Err("the two sides of a sorted set differ".to_owned());
            }
            Value::Sorted(members)
        }
    };
    Ok(Some((value, deadline)))
}

/// The methods of a scenario of this many bytes whose state is [`Opened`], and that has `ops` and a
/// `continuation`.
macro_rules! in_a_pool {
    ($bytes:expr) => {
        fn region_bytes(&self) -> u64 {
            $bytes
        }

        fn is_uncreated(&self, region: &Region) -> bool {
            region.load_u64(0) == Ok(0)
        }

        fn recover(&self, region: Region) -> Result<Opened, String> {
            Ok(Opened::new(tembo_pool::Pool::open_in(region).map_err(text)?))
        }

        fn region<'s>(&self, opened: &'s Opened) -> &'s Region {
            opened.low.region()
        }

        fn ops(&self) -> &[Op] {
            &self.ops
        }

        fn continuation(&self) -> &[Op] {
            &self.continuation
        }
    };
}
use in_a_pool;

impl Scenario for Script {
    type State = Opened;
    type Op = Op;
    type Model = Model;

    in_a_pool!(512 << 10);

    fn name(&self) -> String {
        self.name.clone()
    }

    fn setup(&self, region: Region) -> Result<Opened, String> {
        let mut opened = Opened::create(region, 14)?;
        let mut keys = Keyspace::open(&opened.pool).map_err(text)?;
        (0..DATABASES).try_for_each(|database| keys.create(database)).map_err(text)?;
        drop(keys);
        self.start.iter().try_for_each(|op| self.apply(&mut opened, op))?;
        Ok(opened)
    }

    fn apply(&self, opened: &mut Opened, op: &Op) -> Result<(), String> {
        match op {
            Op::Run(commands) => opened.run_all(commands),
            Op::BesideCopy(steps, commands) => copy::run_beside(opened, *steps, commands),
            Op::Script(commands) => opened.run_script(commands),
            Op::Scan(count) => opened.scan(*count),
            Op::Tick => opened.tick(),
            Op::Reclaim => opened.keys()?.reclaim().map_err(fault),
            Op::ReclaimAll => opened.reclaim_all(),
            Op::Broken(fault) => fault.commit(&mut opened.keys()?),
        }
    }

    fn initial(&self) -> Model {
        let mut model = Model::default();
        self.start.iter().for_each(|op| self.apply_model(&mut model, op));
        model
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        match op {
            Op::Run(commands) | Op::Script(commands) | Op::BesideCopy(_, commands) => {
                commands.iter().for_each(|command| model.apply(command))
            }
            Op::Scan(count) => model.apply(&Command::Scan(*count)),
            Op::Tick => model.tick(model.now_ms + 1),
            Op::Reclaim | Op::ReclaimAll => {}
            Op::Broken(fault) => fault.commands().iter().for_each(|command| model.apply(command)),
        }
    }

    fn observe(&self, opened: &Opened) -> Result<Model, String> {
        let mut keys = opened.keys()?;
        let mut names = BTreeSet::new();
        for database in 0..DATABASES {
            let visit = |key: &[u8], _| {
                names.insert((database, key.to_vec()));
                ControlFlow::Continue(())
            };
            keys.walk(database, Bound::Unbounded, visit).map_err(fault)?;
        }
        let mut model = Model { now_ms: keys.now_ms, ..Model::default() };
        let tokens = keys.tokens().map_err(fault)?;
        model.tokens = tokens.into_iter().map(|(token, deadline)| (text_of(&token), deadline)).collect();
        let scanned = keys.named_prefixes().map_err(fault)?;
        model.scanned = scanned.into_iter().map(|(prefix, name)| (text_of(&prefix), name)).collect();
        for (database, key) in names {
            if key != CLOCK.as_bytes()
                && let Some(value) = value(&mut keys, database, &key)?
            {
                model.keys.insert((database, text_of(&key)), value);
            }
        }
        Ok(model)
    }

    fn check(&self, opened: &Opened) -> Result<(), String> {
        let found = opened.check()?.collections;
        self.unfinished.fetch_add(found.under_construction, Ordering::Relaxed);
        Ok(())
    }
}

impl Script {
    fn new(name: String, [start, ops, continuation]: [Vec<Op>; 3]) -> Self {
        Script { name, start, ops, continuation, unfinished: AtomicU64::new(0) }
    }
}

fn audit() -> Audit {
    Audit::strict().flushed_within(None).fenced_within(None).allow_idle_flush(true).allow_idle_fence(true)
}

fn survived(outcome: Result<Report, Box<Failure>>) {
    println!("{}", outcome.unwrap_or_else(|failure| panic!("{failure}")));
}

/// Four random operations, after up to 39 others that make the data at the start.
fn random(seed: u64) -> Script {
    let mut random = Random::seeded(seed);
    let started = random.below(40) as usize;
    random_operations(seed, random, [started, 4])
}

/// Operations at random: `started` of them at the start, and `count` after it.
fn random_operations(seed: u64, mut random: Random, [started, count]: [usize; 2]) -> Script {
    let mut model = Model::default();
    let mut op = |random: &mut Random| match random.below(18) {
        16 | 17 => {
            let count = 1 + random.below(8) as usize;
            model.apply(&Command::Scan(count));
            Op::Scan(count)
        }
        0 => {
            model.tick(model.now_ms + 1);
            Op::Tick
        }
        1 | 2 => Op::Reclaim,
        3 => Op::ReclaimAll,
        number => {
            let count = if number < 9 { 1 + random.below(4) } else { 1 };
            let mut commands = Vec::new();
            for _ in 0..count {
                let command = choose(random, &model);
                model.apply(&command);
                commands.push(command);
            }
            // TEMBO.ONCE and scans are for clients, and their replies.
            let is_for_scripts = |command: &Command| !matches!(command, Command::Once(..) | Command::Scan(_));
            match number {
                7 if commands.iter().all(is_for_scripts) => Op::Script(commands),
                8 if commands.iter().all(is_for_scripts) => {
                    Op::BesideCopy(random.below(copy::STEPS.into()) as u32, commands)
                }
                _ => Op::Run(commands),
            }
        }
    };
    let start = (0..started).map(|_| op(&mut random)).collect();
    let ops = (0..count).map(|_| op(&mut random)).collect();
    let continuation = (0..2).map(|_| op(&mut random)).chain([Op::ReclaimAll]).collect();
    Script::new(format!("random commands, seed {seed}"), [start, ops, continuation])
}

#[test]
fn campaign_of_random_commands() {
    survived(campaign(4_000, |seed| {
        let script = random(seed);
        Simulation::new(&script).seed(seed).limit(6).nested_limit(3).depth(1).audit(audit()).run()
    }));
}

fn fields(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{number:02}{}", "y".repeat(60))).collect()
}

fn run(command: Command) -> Op {
    Op::Run(vec![command])
}

/// Tokens, names of cursors, and databases that change places.
fn tokens_cursors_and_places() -> Script {
    let name = |name: &str| name.to_owned();
    let once = |token: &str, deadline| run(Command::Once(name(token), deadline));
    let key = |number: usize| run(Command::Set(format!("scanned:{number}:{number}"), name("v")));
    let pairs = fields(12).into_iter().map(|field| (field, name("value"))).collect();
    let start = vec![
        key(0),
        run(Command::Set(name("scanned:0:1"), name("v"))),
        once("0", 2),
        Op::Scan(2),
        Op::Run(vec![Command::Hset(name("h0"), pairs), Command::Move(name("h0"), 1)]),
    ];
    let ops = vec![
        once("0", 9),
        once("1", 3),
        Op::Run(vec![Command::Once(name("2"), 4), Command::Once(name("2"), 5), Command::Once(name("3"), 1)]),
        key(1),
        Op::Scan(6),
        Op::Scan(5),
        run(Command::Move(name("l0"), 1)),
        run(Command::Swapdb(1, 2)),
        run(Command::Move(name("l1"), 1)),
        Op::Run(vec![Command::DelIn(2, name("h0")), Command::Sadd(name("s0"), fields(12))]),
        Op::Run(vec![Command::Move(name("s0"), 2), Command::DelIn(2, name("s0"))]),
        Op::Reclaim,
        Op::Run(vec![Command::Flushdb(1), Command::Swapdb(1, 2), Command::Move(name("l2"), 2)]),
        Op::Tick,
        Op::Tick,
        once("0", 20),
        run(Command::Swapdb(2, 1)),
    ];
    let continuation = vec![once("0", 30), run(Command::Swapdb(1, 2)), Op::Scan(1), Op::ReclaimAll];
    Script::new(name("tokens, cursors and places"), [start, ops, continuation])
}

#[test]
fn tokens_cursors_and_databases_survive_every_crash() {
    let script = tokens_cursors_and_places();
    survived(Simulation::new(&script).limit(8).nested_limit(3).audit(audit()).run());
    let mut model = script.initial();
    script.ops.iter().for_each(|op| script.apply_model(&mut model, op));
    assert_eq!(model.scanned.len(), 2, "the scans name nothing: {model:?}");
    assert!(model.tokens.len() > 1 && model.keys.keys().any(|(database, _)| *database == 2), "{model:?}");
}

/// Large collections of every type: built in parts, copied, replaced, given up; with one crash, and another
/// one in the commands after it.
fn large() -> Script {
    let pairs = |count: usize| fields(count).into_iter().map(|field| (field, "value".to_owned())).collect();
    let scores = |count: usize| fields(count).into_iter().zip(0..).collect();
    let name = |name: &str| name.to_owned();
    let start = vec![
        run(Command::Hset(name("h0"), pairs(12))),
        run(Command::Sadd(name("s0"), fields(12))),
        run(Command::Zadd(name("z0"), scores(12))),
        run(Command::Push(name("l0"), false, fields(30))),
    ];
    let ops = vec![
        run(Command::Copy(name("h0"), name("h1"))),
        run(Command::Sunionstore(name("s1"), [name("s0"), name("s2")])),
        run(Command::Zunionstore(name("z1"), [name("z0"), name("z2")])),
        run(Command::Copy(name("l0"), name("l1"))),
        run(Command::Copy(name("h1"), name("h0"))),
        // Elements of this number are put in the order of their records.
        run(Command::Hset(name("h1"), pairs(20))),
        run(Command::Sadd(name("s1"), fields(20))),
        run(Command::Zadd(name("z1"), fields(20).into_iter().rev().zip(0..).collect())),
        run(Command::Sunionstore(name("s0"), [name("s0"), name("s1")])),
        run(Command::Zremrangebyrank(name("z1"), 1, 9)),
        run(Command::Ltrim(name("l1"), 20, 29)),
        run(Command::Push(name("l2"), true, fields(20))),
        Op::Run(vec![Command::Del(name("h0")), Command::Rename(name("h1"), name("h0"))]),
        Op::Reclaim,
        run(Command::SpopAll(name("s0"))),
        run(Command::Flushdb(0)),
    ];
    let continuation = vec![run(Command::Hset(name("h2"), pairs(24))), Op::ReclaimAll];
    Script::new(name("large collections"), [start, ops, continuation])
}

#[test]
fn large_collections_survive_every_crash() {
    let script = large();
    survived(Simulation::new(&script).limit(8).nested_limit(3).audit(audit()).run());
    assert!(script.unfinished.into_inner() > 0, "nothing was built in parts");
}

#[test]
fn each_broken_promise_is_noticed() {
    for fault in Broken::ALL.map(Fault) {
        let continuation = vec![run(Command::Set("t0".to_owned(), "after".to_owned())), Op::ReclaimAll];
        let script = |op| Script::new(format!("{fault:?}"), [fault.start(), vec![op], continuation.clone()]);
        let sound = script(match fault.commands()[..] {
            [Command::Scan(count)] => Op::Scan(count),
            _ => Op::Run(fault.commands()),
        });
        survived(Simulation::new(&sound).limit(6).nested_limit(2).audit(audit()).run());
        let broken = script(Op::Broken(fault));
        let outcome = Simulation::new(&broken).limit(6).nested_limit(2).audit(audit()).run();
        let failure = outcome.err().unwrap_or_else(|| panic!("{fault:?} is not noticed"));
        assert_eq!(failure.kind(), FailureKind::Crash, "{failure}");
    }
}

/// The first error among replies, also within those of EXEC. A line that begins with a minus may be a number.
fn first_error(output: &[u8]) -> Option<String> {
    use tembo_wire::Value as Reply;
    fn error_in(value: &Reply) -> Option<String> {
        match value {
            Reply::Error(line) => Some(line.escape_ascii().to_string()),
            Reply::Array(values) => values.iter().find_map(error_in),
            _ => None,
        }
    }
    let (mut parser, mut rest) = (ReplyParser::new(ReplyLimits::default()), output);
    while !rest.is_empty() {
        let decoded = parser.parse(rest).expect("replies");
        rest = &rest[decoded.consumed..];
        let error = error_in(&decoded.value.expect("a whole reply"));
        if error.is_some() {
            return error;
        }
    }
    None
}

#[test]
fn a_negative_number_is_no_error() {
    assert_eq!(first_error(b"*2\r\n$1\r\na\r\n$2\r\n-4\r\n:-1\r\n"), None);
    assert_eq!(first_error(b"+OK\r\n*1\r\n-ERR no\r\n").as_deref(), Some("ERR no"));
}
