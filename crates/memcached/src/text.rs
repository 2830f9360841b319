//! The classic text protocol.

use crate::item::{Item, ItemHead, MARK_BINARY};
use crate::items::{Items, Result};
use crate::request::{
    BAD_FORMAT, KEY_BYTES_MAX, Step, TOO_LARGE, deadline, failure_line, leading_number, number, put_line,
    put_number, signed, words_of,
};

/// The version for clients: that of the memcached whose protocol this is, and ours.
pub(crate) const VERSION: &str = concat!("1.6.18-tembo-", env!("CARGO_PKG_VERSION"));
/// Replies of this length are sent before a command continues.
const PAUSE_BYTES: usize = 1 << 20;

/// A command's surroundings.
pub(crate) struct Turn<'t, 'p> {
    pub(crate) items: &'t mut Items<'p>,
    pub(crate) output: &'t mut Vec<u8>,
    pub(crate) max_value_bytes: usize,
    /// When the server was started, in seconds since 1970.
    pub(crate) started: u32,
}

/// The commands that bring a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
}

/// The outcome of storing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// With this unique number.
    Yes(u64),
    No,
    /// The item has another unique number.
    Exists,
    NotFound,
    TooLarge,
}

/// A value, and the item that gets it.
pub(crate) struct NewItem<'v> {
    pub(crate) store: Store,
    pub(crate) key: &'v [u8],
    pub(crate) head: ItemHead,
    pub(crate) data: &'v [u8],
    /// The unique number that the item must have.
    pub(crate) expected: Option<u64>,
    /// The unique number that it gets.
    pub(crate) unique: Option<u64>,
}

impl Turn<'_, '_> {
    /// Runs the command in a line; `rest` begins with the byte after the line, `line_bytes` from the
    /// beginning of the command.
    pub(crate) fn run_text(&mut self, line: &[u8], line_bytes: usize, rest: &[u8]) -> Step {
        let mut words = words_of(line);
        let name = words.next().unwrap_or_default();
        let store = match name {
            b"set" => Some(Store::Set),
            b"add" => Some(Store::Add),
            b"replace" => Some(Store::Replace),
            b"append" => Some(Store::Append),
            b"prepend" => Some(Store::Prepend),
            b"cas" => Some(Store::Cas),
            _ => None,
        };
        if let Some(store) = store {
            let words: Vec<&[u8]> = words.collect();
            return self.run_store(store, &words, line_bytes, rest);
        }
        let words: Vec<&[u8]> = match name {
            b"get" | b"gets" | b"gat" | b"gats" => return self.run_get(line, line_bytes, 0),
            _ => words.collect(),
        };
        match name {
            b"delete" => self.run_delete(&words),
            b"incr" => self.run_arithmetic(false, &words),
            b"decr" => self.run_arithmetic(true, &words),
            b"touch" => self.run_touch(&words),
            b"flush_all" => self.run_flush(&words),
            b"version" => put_line(self.output, format!("VERSION {VERSION}").as_bytes()),
            b"verbosity" => self.run_verbosity(&words),
            b"stats" => self.run_stats(&words),
            b"quit" => return Step::Close,
            b"shutdown" => put_line(self.output, b"ERROR: shutdown not enabled"),
            _ => put_line(self.output, b"ERROR"),
        }
        Step::Done(line_bytes)
    }

    /// Goes on with a command that was paused at this byte of its line.
    pub(crate) fn go_on(&mut self, line: &[u8], line_bytes: usize, at: usize) -> Step {
        self.run_get(line, line_bytes, at)
    }

    /// Answers unless the last word is `noreply`.
    fn answer(&mut self, words: &[&[u8]], line: &[u8]) {
        if words.last() != Some(&&b"noreply"[..]) {
            put_line(self.output, line);
        }
    }

    /// Answers with the outcome, or with the failure.
    fn answer_outcome<T>(&mut self, words: &[&[u8]], outcome: Result<T>, line: impl FnOnce(T) -> Vec<u8>) {
        let line = match outcome {
            Ok(value) => line(value),
            Err(failure) => failure_line(&failure),
        };
        self.answer(words, &line);
    }

    /// get, gets, gat and gats from the key at byte `at` of the line on; 0: from the first one on.
    fn run_get(&mut self, line: &[u8], line_bytes: usize, at: usize) -> Step {
        let at_of = |word: &[u8]| word.as_ptr() as usize - line.as_ptr() as usize;
        let mut words = words_of(line);
        let name = words.next().unwrap_or_default();
        let (with_unique, touches) = (name.ends_with(b"s"), name.starts_with(b"gat"));
        let mut until = None;
        if touches {
            let Some(word) = words.next() else { return self.fail(line_bytes, b"ERROR") };
            let Some(time) = signed(word) else {
                return self.fail(line_bytes, b"CLIENT_ERROR invalid exptime argument");
            };
            until = Some(deadline(time, self.items.now));
        }
        if words.clone().next().is_none() && !touches {
            return self.fail(line_bytes, b"ERROR");
        }
        for key in words.filter(|key| at_of(key) >= at) {
            if self.output.len() >= PAUSE_BYTES {
                return Step::Paused(at_of(key));
            }
            if key.len() > KEY_BYTES_MAX {
                return self.fail(line_bytes, BAD_FORMAT);
            }
            if let Err(failure) = self.get_one(key, with_unique, until) {
                return self.fail(line_bytes, &failure_line(&failure));
            }
        }
        put_line(self.output, b"END");
        Step::Done(line_bytes)
    }

    fn fail(&mut self, line_bytes: usize, line: &[u8]) -> Step {
        put_line(self.output, line);
        Step::Done(line_bytes)
    }

    fn get_one(&mut self, key: &[u8], with_unique: bool, until: Option<u32>) -> Result<()> {
        let output = &mut *self.output;
        let head = self.items.read(key, |item| {
            let Item { head, data } = item?;
            output.reserve(key.len() + data.len() + 64);
            output.extend_from_slice(b"VALUE ");
            output.extend_from_slice(key);
            output.push(b' ');
            put_number(output, head.flags.into());
            output.push(b' ');
            put_number(output, data.len() as u64);
            if with_unique {
                output.push(b' ');
                put_number(output, head.unique);
            }
            output.extend_from_slice(b"\r\n");
            put_line(output, data);
            Some(head)
        })?;
        self.items.stats.note_get(head.is_some());
        if let Some(deadline) = until {
            self.items.stats.note_touch(head.is_some());
            if let Some(head) = head.filter(|head| head.deadline != deadline) {
                self.items.put_head(key, ItemHead { deadline, ..head })?;
            }
        }
        Ok(())
    }

    /// The commands with a value: `<key> <flags> <time> <bytes> [<unique>] [noreply]`.
    fn run_store(&mut self, store: Store, words: &[&[u8]], line_bytes: usize, rest: &[u8]) -> Step {
        let fixed = if store == Store::Cas { 5 } else { 4 };
        if words.len() < fixed || words.len() > fixed + 1 {
            return self.fail(line_bytes, b"ERROR");
        }
        let flags = number(words[1]).and_then(|flags| u32::try_from(flags).ok());
        let (time, bytes) = (signed(words[2]), signed(words[3]));
        let expected = if store == Store::Cas { number(words[4]).map(Some) } else { Some(None) };
        let (Some(flags), Some(time), Some(bytes), Some(expected), ..=KEY_BYTES_MAX) =
            (flags, time, bytes, expected, words[0].len())
        else {
            return self.fail(line_bytes, BAD_FORMAT);
        };
        let Ok(bytes) = usize::try_from(bytes) else {
            return self.fail(line_bytes, BAD_FORMAT);
        };
        if bytes > self.max_value_bytes {
            self.items.stats.store_too_large += 1;
            self.answer(words, TOO_LARGE);
            return Step::Skip(line_bytes, bytes.saturating_add(2));
        }
        let whole = line_bytes + bytes + 2;
        let Some(data) = rest.get(..bytes + 2) else { return Step::Needs(whole) };
        let Some(data) = data.strip_suffix(b"\r\n") else {
            return self.fail(whole, b"CLIENT_ERROR bad data chunk");
        };
        let head = ItemHead { flags, deadline: deadline(time, self.items.now), ..ItemHead::default() };
        let item = NewItem { store, key: words[0], head, data, expected, unique: None };
        let outcome = self.store(&item);
        self.answer_outcome(words, outcome, |stored| {
            match stored {
                Stored::Yes(_) => &b"STORED"[..],
                Stored::No => b"NOT_STORED",
                Stored::Exists => b"EXISTS",
                Stored::NotFound => b"NOT_FOUND",
                Stored::TooLarge => TOO_LARGE,
            }
            .to_vec()
        });
        Step::Done(whole)
    }

    /// Stores an item, if the present one allows it.
    pub(crate) fn store(&mut self, item: &NewItem<'_>) -> Result<Stored> {
        let outcome = self.try_store(item);
        let stats = &mut self.items.stats;
        stats.cmd_set += 1;
        match &outcome {
            Err(crate::items::Failure::NoRoom) => stats.store_no_memory += 1,
            Ok(Stored::TooLarge) => stats.store_too_large += 1,
            Ok(stored) if item.expected.is_some() => match stored {
                Stored::Yes(_) => stats.cas_hits += 1,
                Stored::Exists => stats.cas_badval += 1,
                _ => stats.cas_misses += 1,
            },
            _ => {}
        }
        outcome
    }

    fn try_store(&mut self, item: &NewItem<'_>) -> Result<Stored> {
        let &NewItem { store, key, head, data, expected, unique } = item;
        // A set is the only one of these commands that needs no look at the present item.
        if store == Store::Set && expected.is_none() {
            return self.items.put(key, head, &[data], unique).map(Stored::Yes);
        }
        let old = self.items.head(key)?;
        let is_other = old.is_some_and(|old| expected.is_some_and(|expected| expected != old.unique));
        let joins = matches!(store, Store::Append | Store::Prepend);
        match (store, old) {
            (Store::Add, Some(_)) | (Store::Append | Store::Prepend, None) => return Ok(Stored::No),
            (Store::Replace, None) if expected.is_none() => return Ok(Stored::No),
            // With a number, a set and a replacement are a `cas`.
            (Store::Set | Store::Replace | Store::Cas, None) => return Ok(Stored::NotFound),
            (Store::Add, None) => {}
            _ if is_other => return Ok(Stored::Exists),
            _ => {}
        }
        let Some(old) = old.filter(|_| joins) else {
            return self.items.put(key, head, &[data], unique).map(Stored::Yes);
        };
        let old_data = self.items.read(key, |item| item.map(|item| item.data.to_vec()))?.unwrap_or_default();
        if old_data.len() + data.len() > self.max_value_bytes {
            return Ok(Stored::TooLarge);
        }
        let parts = if store == Store::Append { [&old_data[..], data] } else { [data, &old_data[..]] };
        // Flags and deadline stay.
        self.items
            .put(key, ItemHead { marks: old.marks & MARK_BINARY, ..old }, &parts, unique)
            .map(Stored::Yes)
    }

    fn run_delete(&mut self, words: &[&[u8]]) {
        let is_right = match words {
            [_] | [_, b"0" | b"noreply"] | [_, b"0", b"noreply"] => true,
            [] => return put_line(self.output, b"ERROR"),
            _ => false,
        };
        if !is_right {
            const USAGE: &[u8] = b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
            return self.answer(words, USAGE);
        }
        if words[0].len() > KEY_BYTES_MAX {
            return put_line(self.output, BAD_FORMAT);
        }
        let outcome = self.items.remove(words[0]);
        if let Ok(is_hit) = outcome {
            self.items.stats.note_delete(is_hit);
        }
        self.answer_outcome(words, outcome, |was_there| {
            if was_there { b"DELETED".to_vec() } else { b"NOT_FOUND".to_vec() }
        });
    }

    fn run_touch(&mut self, words: &[&[u8]]) {
        let (key, time) = match words {
            [key, time] | [key, time, b"noreply"] => (*key, *time),
            _ => return put_line(self.output, b"ERROR"),
        };
        if key.len() > KEY_BYTES_MAX {
            return put_line(self.output, BAD_FORMAT);
        }
        let Some(time) = signed(time) else {
            return self.answer(words, b"CLIENT_ERROR invalid exptime argument");
        };
        let outcome = self.touch(key, deadline(time, self.items.now));
        self.answer_outcome(words, outcome, |was_there| {
            if was_there { b"TOUCHED".to_vec() } else { b"NOT_FOUND".to_vec() }
        });
    }

    fn touch(&mut self, key: &[u8], deadline: u32) -> Result<bool> {
        let head = self.items.head(key)?;
        self.items.stats.note_touch(head.is_some());
        if let Some(head) = head.filter(|head| head.deadline != deadline) {
            self.items.put_head(key, ItemHead { deadline, ..head })?;
        }
        Ok(head.is_some())
    }

    fn run_arithmetic(&mut self, is_decrement: bool, words: &[&[u8]]) {
        let (key, delta) = match words {
            [key, delta] | [key, delta, b"noreply"] => (*key, *delta),
            _ => return put_line(self.output, b"ERROR"),
        };
        if key.len() > KEY_BYTES_MAX {
            return put_line(self.output, BAD_FORMAT);
        }
        let Some(delta) = number(delta) else {
            return self.answer(words, b"CLIENT_ERROR invalid numeric delta argument");
        };
        let outcome = self.arithmetic(key, &Change { is_decrement, delta, ..Change::default() });
        self.answer_outcome(words, outcome, |outcome| match outcome {
            Arithmetic::Value { value, .. } => value.to_string().into_bytes(),
            Arithmetic::NotFound => b"NOT_FOUND".to_vec(),
            Arithmetic::NoNumber => NO_NUMBER.to_vec(),
            Arithmetic::Exists => b"EXISTS".to_vec(),
        });
    }

    /// Adds to a number, modulo 2^64, or takes from it, down to zero.
    pub(crate) fn arithmetic(&mut self, key: &[u8], change: &Change) -> Result<Arithmetic> {
        let found = self
            .items
            .read(key, |item| item.map(|Item { head, data }| (head, leading_number(data), data.len())))?;
        self.items.stats.note_arithmetic(change.is_decrement, found.is_some());
        let Some((head, value, bytes)) = found else { return Ok(Arithmetic::NotFound) };
        if change.expected.is_some_and(|expected| expected != head.unique) {
            return Ok(Arithmetic::Exists);
        }
        let Some(value) = value else { return Ok(Arithmetic::NoNumber) };
        let delta = change.delta;
        let value = if change.is_decrement { value.saturating_sub(delta) } else { value.wrapping_add(delta) };
        let mut text = value.to_string().into_bytes();
        // A shorter number is filled up with spaces, as memcached does.
        text.resize(text.len().max(bytes), b' ');
        let before = head.deadline;
        let head = ItemHead { deadline: change.deadline.unwrap_or(before), ..head };
        let unique = self.items.put(key, head, &[&text], change.unique)?;
        Ok(Arithmetic::Value { value, head: ItemHead { unique, ..head }, before })
    }

    fn run_flush(&mut self, words: &[&[u8]]) {
        let time = match words {
            [] | [b"noreply"] => 0,
            [time] | [time, b"noreply"] => match signed(time) {
                Some(time) => time,
                None => return self.answer(words, b"CLIENT_ERROR invalid exptime argument"),
            },
            _ => return put_line(self.output, b"ERROR"),
        };
        self.items.stats.cmd_flush += 1;
        let outcome = self.items.flush(u64::from(deadline(time, self.items.now)));
        self.answer_outcome(words, outcome, |()| b"OK".to_vec());
    }

    /// The level of the log comes from the command line, so this command only gets its answer.
    fn run_verbosity(&mut self, words: &[&[u8]]) {
        match words {
            [level] | [level, _] => {
                let is_level = number(level).is_some();
                self.answer(words, if is_level { b"OK" } else { BAD_FORMAT });
            }
            _ => put_line(self.output, b"ERROR"),
        }
    }

    fn run_stats(&mut self, words: &[&[u8]]) {
        match words {
            [] => self.general_stats(),
            [b"reset"] => {
                self.items.stats.reset();
                self.items.eviction.evicted = 0;
                return put_line(self.output, b"RESET");
            }
            [b"settings"] => {
                let max = self.max_value_bytes as u64;
                self.stat("item_size_max", max);
                let limit = self.items.eviction.limit();
                self.stat("maxbytes", limit.map_or(self.items.pool().stats().max_bytes, |limit| limit.bytes));
                let word = if limit.is_some() { "on" } else { "off" };
                put_line(self.output, format!("STAT evictions {word}").as_bytes());
            }
            // Items lie in the pool's slabs, with everything else: `tembo info` shows them.
            [b"items" | b"slabs" | b"sizes" | b"conns"] => {}
            _ => return put_line(self.output, b"ERROR"),
        }
        put_line(self.output, b"END");
    }

    fn general_stats(&mut self) {
        let now = self.items.now;
        self.stat("pid", u64::from(std::process::id()));
        self.stat("uptime", u64::from(now.saturating_sub(self.started)));
        self.stat("time", u64::from(now));
        put_line(self.output, format!("STAT version {VERSION}").as_bytes());
        self.stat("pointer_size", 64);
        for (name, value) in self.items.stats.counters() {
            self.stat(name, value);
        }
        let pool = self.items.pool().stats();
        let limit = self.items.eviction.limit();
        self.stat("limit_maxbytes", limit.map_or(pool.max_bytes, |limit| limit.bytes));
        self.stat("threads", 1);
        self.stat("bytes", pool.used_bytes());
        self.stat("curr_items", self.items.len());
        self.stat("evictions", self.items.eviction.evicted);
    }

    fn stat(&mut self, name: &str, value: u64) {
        put_line(self.output, format!("STAT {name} {value}").as_bytes());
    }
}

pub(crate) const NO_NUMBER: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value";

/// A change of a number.
#[derive(Default)]
pub(crate) struct Change {
    pub(crate) is_decrement: bool,
    pub(crate) delta: u64,
    /// The unique number that the item must have.
    pub(crate) expected: Option<u64>,
    /// The unique number that it gets.
    pub(crate) unique: Option<u64>,
    /// Its new deadline.
    pub(crate) deadline: Option<u32>,
}

/// The outcome of arithmetic.
pub(crate) enum Arithmetic {
    /// The item has this number now.
    Value {
        value: u64,
        head: ItemHead,
        /// The deadline that the item had before.
        before: u32,
    },
    NotFound,
    NoNumber,
    /// The item has another unique number.
    Exists,
}
