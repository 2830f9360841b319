//! Commands on every type, as requests and as changes of a model.

use std::collections::{BTreeMap, BTreeSet};

use crate::keyspace::cursor::ScanPlace;
use crate::random::Random;

/// A value of a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    String(String),
    Hash(BTreeMap<String, String>),
    Set(BTreeSet<String>),
    List(Vec<String>),
    /// Members with their scores, which are whole numbers.
    Sorted(BTreeMap<String, i64>),
}

impl Value {
    fn len(&self) -> usize {
        match self {
            Value::String(_) => 1,
            Value::Hash(fields) => fields.len(),
            Value::Set(members) => members.len(),
            Value::List(elements) => elements.len(),
            Value::Sorted(members) => members.len(),
        }
    }
}

/// The number of databases. The first has the clock, and keeps its place.
pub(super) const DATABASES: usize = 3;

/// The keys of the databases, with their deadlines.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Model {
    pub(super) keys: BTreeMap<(usize, String), (Value, Option<u64>)>,
    pub(super) now_ms: u64,
    /// The tokens of TEMBO.ONCE, with their deadlines.
    pub(super) tokens: BTreeMap<String, u64>,
    /// The beginnings of keys that cursors of scans refer to, with their names.
    pub(super) scanned: BTreeMap<String, u64>,
}

/// A command; keys of one type have one letter. Those without a database are for database 0.
#[derive(Clone, Debug)]
pub(super) enum Command {
    Set(String, String),
    Hset(String, Vec<(String, String)>),
    Hdel(String, Vec<String>),
    Sadd(String, Vec<String>),
    Srem(String, Vec<String>),
    SpopAll(String),
    Sunionstore(String, [String; 2]),
    Sdiffstore(String, [String; 2]),
    Zadd(String, Vec<(String, i64)>),
    Zrem(String, Vec<String>),
    Zremrangebyrank(String, usize, usize),
    Zpopmin(String, usize),
    Zunionstore(String, [String; 2]),
    Zrangestore(String, String),
    Push(String, bool, Vec<String>),
    Pop(String, bool, usize),
    Lset(String, usize, String),
    Linsert(String, String, String),
    Ltrim(String, usize, usize),
    Lmove(String, String),
    Del(String),
    Rename(String, String),
    Copy(String, String),
    Move(String, usize),
    Expire(String, u64),
    Flushdb(usize),
    Swapdb(usize, usize),
    /// DEL in another database.
    DelIn(usize, String),
    /// The token, which stands for the command too, and its deadline.
    Once(String, u64),
    /// The first call of a scan, for this many keys.
    Scan(usize),
}

/// The list and the element that a token's command pushes.
fn pushed(token: &str) -> [String; 2] {
    [format!("l{token}"), format!("once{token}")]
}

impl Command {
    /// The words of the request, if the model lets the command be run without an error at this time.
    pub(super) fn words(&self, now_ms: u64) -> Vec<String> {
        let list = |words: &[&str], rest: &[String]| {
            words.iter().map(|word| (*word).to_owned()).chain(rest.iter().cloned()).collect()
        };
        let number = |number: &usize| number.to_string();
        match self {
            Command::Set(key, value) => list(&["SET", key, value], &[]),
            Command::Hset(key, fields) => {
                let pairs: Vec<_> = fields.iter().flat_map(|(f, v)| [f.clone(), v.clone()]).collect();
                list(&["HSET", key], &pairs)
            }
            Command::Hdel(key, fields) => list(&["HDEL", key], fields),
            Command::Sadd(key, members) => list(&["SADD", key], members),
            Command::Srem(key, members) => list(&["SREM", key], members),
            Command::SpopAll(key) => list(&["SPOP", key, "1000"], &[]),
            Command::Sunionstore(key, inputs) => list(&["SUNIONSTORE", key], inputs),
            Command::Sdiffstore(key, inputs) => list(&["SDIFFSTORE", key], inputs),
            Command::Zadd(key, members) => {
                let pairs: Vec<_> = members.iter().flat_map(|(m, s)| [s.to_string(), m.clone()]).collect();
                list(&["ZADD", key], &pairs)
            }
            Command::Zrem(key, members) => list(&["ZREM", key], members),
            Command::Zremrangebyrank(key, from, to) => {
                list(&["ZREMRANGEBYRANK", key, &number(from), &number(to)], &[])
            }
            Command::Zpopmin(key, count) => list(&["ZPOPMIN", key, &number(count)], &[]),
            Command::Zunionstore(key, inputs) => list(&["ZUNIONSTORE", key, "2"], inputs),
            Command::Zrangestore(to, from) => list(&["ZRANGESTORE", to, from, "1", "-2"], &[]),
            Command::Push(key, left, elements) => {
                list(&[if *left { "LPUSH" } else { "RPUSH" }, key], elements)
            }
            Command::Pop(key, left, count) => {
                list(&[if *left { "LPOP" } else { "RPOP" }, key, &number(count)], &[])
            }
            Command::Lset(key, index, element) => list(&["LSET", key, &number(index), element], &[]),
            Command::Linsert(key, pivot, element) => list(&["LINSERT", key, "BEFORE", pivot, element], &[]),
            Command::Ltrim(key, from, to) => list(&["LTRIM", key, &number(from), &number(to)], &[]),
            Command::Lmove(from, to) => list(&["LMOVE", from, to, "LEFT", "RIGHT"], &[]),
            Command::Del(key) | Command::DelIn(_, key) => list(&["DEL", key], &[]),
            Command::Rename(from, to) => list(&["RENAME", from, to], &[]),
            Command::Copy(from, to) => list(&["COPY", from, to, "REPLACE"], &[]),
            Command::Move(key, database) => list(&["MOVE", key, &number(database)], &[]),
            Command::Expire(key, deadline) => list(&["PEXPIREAT", key, &deadline.to_string()], &[]),
            Command::Flushdb(_) => list(&["FLUSHDB"], &[]),
            Command::Swapdb(a, b) => list(&["SWAPDB", &number(a), &number(b)], &[]),
            Command::Once(token, deadline) => {
                let ttl = deadline.saturating_sub(now_ms).to_string();
                list(&["TEMBO.ONCE", token, &ttl, "RPUSH"], &pushed(token))
            }
            Command::Scan(count) => list(&["SCAN", "0", "COUNT", &number(count)], &[]),
        }
    }

    /// The database that is selected for the command.
    pub(super) fn database(&self) -> usize {
        match self {
            Command::Flushdb(database) | Command::DelIn(database, _) => *database,
            _ => 0,
        }
    }
}

impl Model {
    fn key(name: &str) -> (usize, String) {
        (0, name.to_owned())
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.keys.get(&Self::key(name)).map(|(value, _)| value)
    }

    pub(super) fn len(&self, name: &str) -> usize {
        self.get(name).map_or(0, Value::len)
    }

    /// Changes a value, which is empty if there is none, and removes the key if nothing is left.
    fn change(&mut self, name: &str, empty: Value, change: impl FnOnce(&mut Value)) {
        let (value, _) = self.keys.entry(Self::key(name)).or_insert((empty, None));
        change(value);
        if value.len() == 0 {
            self.keys.remove(&Self::key(name));
        }
    }

    fn hash(&mut self, name: &str, change: impl FnOnce(&mut BTreeMap<String, String>)) {
        self.change(name, Value::Hash(BTreeMap::new()), |value| match value {
            Value::Hash(fields) => change(fields),
            other => panic!("{other:?}"),
        });
    }

    fn set(&mut self, name: &str, change: impl FnOnce(&mut BTreeSet<String>)) {
        self.change(name, Value::Set(BTreeSet::new()), |value| match value {
            Value::Set(members) => change(members),
            other => panic!("{other:?}"),
        });
    }

    fn list(&mut self, name: &str, change: impl FnOnce(&mut Vec<String>)) {
        self.change(name, Value::List(Vec::new()), |value| match value {
            Value::List(elements) => change(elements),
            other => panic!("{other:?}"),
        });
    }

    fn sorted(&mut self, name: &str, change: impl FnOnce(&mut BTreeMap<String, i64>)) {
        self.change(name, Value::Sorted(BTreeMap::new()), |value| match value {
            Value::Sorted(members) => change(members),
            other => panic!("{other:?}"),
        });
    }

    fn members(&self, name: &str) -> BTreeSet<String> {
        let Some(Value::Set(members)) = self.get(name) else { return BTreeSet::new() };
        members.clone()
    }

    fn scores(&self, name: &str) -> BTreeMap<String, i64> {
        let Some(Value::Sorted(members)) = self.get(name) else { return BTreeMap::new() };
        members.clone()
    }

    pub(super) fn elements(&self, name: &str) -> Vec<String> {
        let Some(Value::List(elements)) = self.get(name) else { return Vec::new() };
        elements.clone()
    }

    /// The members of a sorted set in order.
    fn ordered(&self, name: &str) -> Vec<String> {
        let mut members: Vec<_> = self.scores(name).into_iter().map(|(m, score)| (score, m)).collect();
        members.sort();
        members.into_iter().map(|(_, member)| member).collect()
    }

    /// Puts a value under a key, in place of the present value and its deadline.
    fn replace(&mut self, name: &str, value: Value) {
        self.keys.remove(&Self::key(name));
        if value.len() > 0 {
            self.keys.insert(Self::key(name), (value, None));
        }
    }

    /// Goes on to a time.
    pub(super) fn tick(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.keys.retain(|_, (_, deadline)| deadline.is_none_or(|deadline| deadline > now_ms));
        self.tokens.retain(|_, deadline| *deadline > now_ms);
    }

    pub(super) fn apply(&mut self, command: &Command) {
        match command {
            Command::Set(key, value) => self.replace(key, Value::String(value.clone())),
            Command::Hset(key, fields) => self.hash(key, |hash| hash.extend(fields.iter().cloned())),
            Command::Hdel(key, fields) => self.hash(key, |hash| hash.retain(|f, _| !fields.contains(f))),
            Command::Sadd(key, members) => self.set(key, |set| set.extend(members.iter().cloned())),
            Command::Srem(key, members) => self.set(key, |set| set.retain(|m| !members.contains(m))),
            Command::SpopAll(key) => self.set(key, BTreeSet::clear),
            Command::Sunionstore(key, [a, b]) => {
                let union = &self.members(a) | &self.members(b);
                self.replace(key, Value::Set(union));
            }
            Command::Sdiffstore(key, [a, b]) => {
                let difference = &self.members(a) - &self.members(b);
                self.replace(key, Value::Set(difference));
            }
            Command::Zadd(..)
            | Command::Zrem(..)
            | Command::Zremrangebyrank(..)
            | Command::Zpopmin(..)
            | Command::Zunionstore(..)
            | Command::Zrangestore(..) => self.apply_to_sorted_set(command),
            Command::Push(..)
            | Command::Pop(..)
            | Command::Lset(..)
            | Command::Linsert(..)
            | Command::Ltrim(..)
            | Command::Lmove(..) => self.apply_to_list(command),
            _ => self.apply_to_key(command),
        }
    }

    fn apply_to_sorted_set(&mut self, command: &Command) {
        match command {
            Command::Zadd(key, members) => self.sorted(key, |set| set.extend(members.iter().cloned())),
            Command::Zrem(key, members) => self.sorted(key, |set| set.retain(|m, _| !members.contains(m))),
            Command::Zremrangebyrank(key, from, to) => {
                let ordered = self.ordered(key);
                let gone: BTreeSet<_> =
                    ordered.iter().skip(*from).take((to + 1).saturating_sub(*from)).collect();
                self.sorted(key, |set| set.retain(|member, _| !gone.contains(member)));
            }
            Command::Zpopmin(key, count) => {
                let ordered = self.ordered(key);
                self.sorted(key, |set| ordered.iter().take(*count).for_each(|member| _ = set.remove(member)));
            }
            Command::Zunionstore(key, [a, b]) => {
                let mut union = self.scores(a);
                self.scores(b)
                    .into_iter()
                    .for_each(|(member, score)| *union.entry(member).or_default() += score);
                self.replace(key, Value::Sorted(union));
            }
            Command::Zrangestore(to, from) => {
                let (scores, ordered) = (self.scores(from), self.ordered(from));
                let inner = ordered.iter().skip(1).take(ordered.len().saturating_sub(2));
                let kept = inner.map(|member| (member.clone(), scores[member])).collect();
                self.replace(to, Value::Sorted(kept));
            }
            other => panic!("{other:?}"),
        }
    }

    fn apply_to_list(&mut self, command: &Command) {
        match command {
            Command::Push(key, left, elements) => self.list(key, |list| {
                for element in elements {
                    list.insert(if *left { 0 } else { list.len() }, element.clone());
                }
            }),
            Command::Pop(key, left, count) => self.list(key, |list| {
                let count = (*count).min(list.len());
                list.drain(if *left { 0..count } else { list.len() - count..list.len() });
            }),
            Command::Lset(key, index, element) => self.list(key, |list| list[*index] = element.clone()),
            Command::Linsert(key, pivot, element) => self.list(key, |list| {
                if let Some(index) = list.iter().position(|other| other == pivot) {
                    list.insert(index, element.clone());
                }
            }),
            Command::Ltrim(key, from, to) => self.list(key, |list| {
                list.truncate(to + 1);
                list.drain(..(*from).min(list.len()));
            }),
            // The list does not become empty, so that it keeps its deadline.
            Command::Lmove(from, to) if from == to => {
                self.list(from, |list| {
                    let by = list.len().min(1);
                    list.rotate_left(by);
                });
            }
            Command::Lmove(from, to) => {
                let mut moved = None;
                self.list(from, |list| moved = (!list.is_empty()).then(|| list.remove(0)));
                self.list(to, |list| list.extend(moved));
            }
            other => panic!("{other:?}"),
        }
    }

    fn apply_to_key(&mut self, command: &Command) {
        match command {
            Command::Del(key) => _ = self.keys.remove(&Self::key(key)),
            Command::Rename(from, to) => {
                if let Some(value) = self.keys.remove(&Self::key(from)) {
                    self.keys.insert(Self::key(to), value);
                }
            }
            Command::Copy(from, to) => {
                if let Some(value) = self.keys.get(&Self::key(from)).cloned() {
                    self.keys.insert(Self::key(to), value);
                }
            }
            Command::Move(key, database) => {
                if !self.keys.contains_key(&(*database, key.clone()))
                    && let Some(value) = self.keys.remove(&Self::key(key))
                {
                    self.keys.insert((*database, key.clone()), value);
                }
            }
            Command::Expire(key, deadline) => {
                if let Some(value) = self.keys.get_mut(&Self::key(key)) {
                    value.1 = Some(*deadline);
                }
                self.tick(self.now_ms);
            }
            Command::Flushdb(database) => {
                self.keys.retain(|(number, _), _| number != database);
                // The clock is a key.
                self.now_ms = if *database == 0 { 0 } else { self.now_ms };
            }
            Command::Swapdb(a, b) => {
                let place = |database: usize| match database {
                    database if database == *a => *b,
                    database if database == *b => *a,
                    database => database,
                };
                let keys = std::mem::take(&mut self.keys).into_iter();
                self.keys = keys.map(|((database, key), value)| ((place(database), key), value)).collect();
            }
            Command::DelIn(database, key) => _ = self.keys.remove(&(*database, key.clone())),
            Command::Once(token, deadline) => self.once(token, *deadline),
            Command::Scan(count) => self.scan(*count),
            other => panic!("{other:?}"),
        }
    }
}

impl Model {
    fn once(&mut self, token: &str, deadline: u64) {
        if !self.tokens.contains_key(token) {
            self.tokens.insert(token.to_owned(), deadline);
            let [key, element] = pushed(token);
            self.list(&key, |list| list.push(element));
        }
    }

    /// A scan that stops between two keys which begin alike names their beginning.
    fn scan(&mut self, count: usize) {
        let mut keys: BTreeSet<&str> =
            self.keys.keys().filter(|(database, _)| *database == 0).map(|(_, key)| &**key).collect();
        keys.extend((self.now_ms > 0).then_some(super::CLOCK));
        let mut keys = keys.into_iter().skip(count - 1);
        if let (Some(before), Some(key)) = (keys.next(), keys.next()) {
            let prefix = ScanPlace::between(before.as_bytes(), key.as_bytes()).prefix;
            let next = self.scanned.len() as u64 + 1;
            if !prefix.is_empty() {
                self.scanned.entry(super::text_of(&prefix)).or_insert(next);
            }
        }
    }
}

/// A field, member or element: many short ones, some that need a block of their own, few that no key of a map
/// holds.
fn name(random: &mut Random, most: u64) -> String {
    let number = random.below(most);
    let bytes = [4, 12, 40, 70, 70, 100, 200, 600][(number % 8) as usize];
    format!("{number:02}{}", "x".repeat(bytes))
}

fn names(random: &mut Random, most: u64) -> Vec<String> {
    (0..1 + random.below(most)).map(|_| name(random, 40)).collect()
}

/// A command that the model lets be run without an error.
pub(super) fn choose(random: &mut Random, model: &Model) -> Command {
    let letter = ["h", "s", "z", "l", "t"][random.below(5) as usize];
    let [key, other, third] = [(); 3].map(|()| format!("{letter}{}", random.below(3)));
    let has_key = model.len(&key) > 0;
    match random.below(16) {
        0 => Command::Del(key),
        1 if has_key && key != other => Command::Rename(key, other),
        2 | 3 if key != other => Command::Copy(key, other),
        4 => Command::Expire(key, model.now_ms + random.below(3)),
        5 => Command::Move(key, 1 + random.below(2) as usize),
        6 if random.below(4) == 0 => {
            // The clock goes forward only.
            let first = u64::from(model.now_ms > 0);
            Command::Flushdb((first + random.below(DATABASES as u64 - first)) as usize)
        }
        7 => Command::Swapdb(1, 2),
        8 => Command::DelIn(1 + random.below(2) as usize, key),
        9 => Command::Once(random.below(4).to_string(), model.now_ms + 1 + random.below(3)),
        10 => Command::Set(format!("scanned:{}:{}", random.below(3), random.below(3)), "v".to_owned()),
        _ => match letter {
            "h" => of_hash(random, key),
            "s" => of_set(random, key, [other, third]),
            "z" => of_sorted(random, key, [other, third]),
            "l" => of_list(random, model, key, other),
            _ => Command::Set(key, "v".repeat(random.below(300) as usize)),
        },
    }
}

fn of_hash(random: &mut Random, key: String) -> Command {
    match random.below(4) {
        0 => Command::Hdel(key, names(random, 12)),
        _ => {
            let fields = names(random, 16).into_iter();
            Command::Hset(key, fields.map(|field| (field, "v".repeat(random.below(60) as usize))).collect())
        }
    }
}

fn of_set(random: &mut Random, key: String, inputs: [String; 2]) -> Command {
    match random.below(8) {
        0 => Command::Srem(key, names(random, 12)),
        1 => Command::SpopAll(key),
        2 | 3 => Command::Sunionstore(key, inputs),
        4 => Command::Sdiffstore(key, inputs),
        _ => Command::Sadd(key, names(random, 16)),
    }
}

fn of_sorted(random: &mut Random, key: String, inputs: [String; 2]) -> Command {
    match random.below(10) {
        0 => Command::Zrem(key, names(random, 8)),
        1 => {
            let from = random.below(8) as usize;
            Command::Zremrangebyrank(key, from, from + random.below(30) as usize)
        }
        2 => Command::Zpopmin(key, 1 + random.below(5) as usize),
        3 | 4 => Command::Zunionstore(key, inputs),
        5 => Command::Zrangestore(key, inputs.into_iter().next().unwrap_or_default()),
        _ => {
            let members = names(random, 16).into_iter();
            Command::Zadd(key, members.map(|member| (member, random.below(9) as i64 - 4)).collect())
        }
    }
}

fn of_list(random: &mut Random, model: &Model, key: String, other: String) -> Command {
    let len = model.len(&key) as u64;
    match random.below(10) {
        0 if len > 0 => Command::Pop(key, random.below(2) == 0, 1 + random.below(6) as usize),
        1 if len > 0 => Command::Lset(key, random.below(len) as usize, name(random, 40)),
        2 if len > 0 => {
            let pivot = model.elements(&key)[random.below(len) as usize].clone();
            Command::Linsert(key, pivot, name(random, 40))
        }
        3 | 4 if len > 0 => {
            let from = random.below(len) as usize;
            Command::Ltrim(key, from, from + random.below(20) as usize)
        }
        5 if len > 0 => Command::Lmove(key, other),
        _ => Command::Push(key, random.below(2) == 0, names(random, 16)),
    }
}
