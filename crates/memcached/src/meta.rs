//! The meta protocol: commands of two letters, whose flags choose the operation and the parts of the reply.

use crate::item::{Item, ItemHead, MARK_BINARY, MARK_STALE, MARK_WON};
use crate::items::{Failure, Result};
use crate::request::{
    BAD_FORMAT, KEY_BYTES_MAX, Step, TOO_LARGE, deadline, failure_line, number, put_line, put_number, signed,
    words_of,
};
use crate::text::{Arithmetic, Change, NO_NUMBER, NewItem, Store, Stored, Turn};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

const INVALID_FLAG: &[u8] = b"CLIENT_ERROR invalid flag";
const DUPLICATE_FLAG: &[u8] = b"CLIENT_ERROR duplicate flag";
const INVALID_OR_DUPLICATE: &[u8] = b"CLIENT_ERROR invalid or duplicate flag";
const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad token in command line format";
/// The longest opaque token.
const OPAQUE_BYTES_MAX: usize = 31;

/// A command's key and flags.
struct Request<'l> {
    key: Vec<u8>,
    is_binary: bool,
    flags: Vec<(u8, &'l [u8])>,
}

impl<'l> Request<'l> {
    /// Reads flags; `valid` are those that the command has.
    fn read(
        written: Option<&'l [u8]>,
        words: impl Iterator<Item = &'l [u8]>,
        valid: &[u8],
    ) -> std::result::Result<Request<'l>, &'static [u8]> {
        let written = written.filter(|key| key.len() <= KEY_BYTES_MAX).ok_or(BAD_FORMAT)?;
        let mut flags: Vec<(u8, &[u8])> = Vec::new();
        for word in words {
            let (flag, token) = (word[0], &word[1..]);
            if flags.iter().any(|(other, _)| *other == flag) {
                return Err(DUPLICATE_FLAG);
            }
            if matches!(flag, b'h' | b'l') && valid.contains(&b'v') {
                return Err(b"CLIENT_ERROR access times are not kept here: h and l are no flags");
            }
            if !valid.contains(&flag) {
                return Err(INVALID_FLAG);
            }
            if flag == b'O' && token.len() > OPAQUE_BYTES_MAX {
                return Err(b"CLIENT_ERROR opaque token too long");
            }
            flags.push((flag, token));
        }
        let is_binary = flags.iter().any(|(flag, _)| *flag == b'b');
        let key = if is_binary {
            BASE64
                .decode(written)
                .ok()
                .filter(|key| !key.is_empty())
                .ok_or(&b"CLIENT_ERROR error decoding key"[..])?
        } else {
            written.to_vec()
        };
        Ok(Request { key, is_binary, flags })
    }

    /// The marks of a new item.
    fn marks(&self) -> u8 {
        if self.is_binary { MARK_BINARY } else { 0 }
    }

    fn has(&self, flag: u8) -> bool {
        self.flags.iter().any(|(other, _)| *other == flag)
    }

    /// The number behind a flag.
    fn number(&self, flag: u8) -> std::result::Result<Option<u64>, &'static [u8]> {
        let found = self.flags.iter().find(|(other, _)| *other == flag);
        found.map(|(_, token)| number(token).ok_or(BAD_TOKEN)).transpose()
    }

    /// The time behind a flag, as a deadline.
    fn deadline(&self, flag: u8, now: u32) -> std::result::Result<Option<u32>, &'static [u8]> {
        let found = self.flags.iter().find(|(other, _)| *other == flag);
        found.map(|(_, token)| signed(token).map(|time| deadline(time, now)).ok_or(BAD_TOKEN)).transpose()
    }

    /// The letter behind M.
    fn mode(&self) -> std::result::Result<Option<u8>, &'static [u8]> {
        match self.flags.iter().find(|(flag, _)| *flag == b'M') {
            None => Ok(None),
            Some((_, [mode])) => Ok(Some(*mode)),
            Some(_) => Err(b"CLIENT_ERROR incorrect length for M token"),
        }
    }
}

/// The figures of an item that flags return.
struct Shown {
    head: ItemHead,
    bytes: usize,
    /// Whether the flag `s` returns the number of bytes.
    returns_bytes: bool,
    /// Whether its key is returned in base64; `None`: as the request has it.
    key_is_binary: Option<bool>,
    times: Times,
}

/// The deadlines that an item has while its flags are looked at, one after the other.
#[derive(Clone, Copy)]
struct Times {
    before: u32,
    /// From N on.
    at_n: Option<u32>,
    /// From T on.
    at_t: Option<u32>,
    /// In the end.
    deadline: u32,
    /// The flag R came, and the item has less time left than that.
    is_late: bool,
}

impl Times {
    fn always(deadline: u32) -> Times {
        Times { before: deadline, at_n: None, at_t: None, deadline, is_late: false }
    }
}

/// The numbers behind the flags of a `mg`.
struct Wanted {
    vivified: Option<u32>,
    touched: Option<u32>,
    recached: Option<u64>,
    unique: Option<u64>,
}

impl Wanted {
    fn times(&self, request: &Request<'_>, before: u32, is_new: bool, now: u32) -> Times {
        let (at_n, at_t) = (self.vivified.filter(|_| is_new), self.touched);
        let mut times = Times { before, at_n, at_t, deadline: before, is_late: false };
        for (flag, _) in &request.flags {
            match flag {
                b'N' => times.deadline = at_n.unwrap_or(times.deadline),
                b'T' => times.deadline = at_t.unwrap_or(times.deadline),
                b'R' if !is_new && times.deadline != 0 => {
                    let left = u64::from(times.deadline.saturating_sub(now));
                    times.is_late = self.recached.is_some_and(|time| left < time);
                }
                _ => {}
            }
        }
        times
    }
}

impl Turn<'_, '_> {
    /// Runs a meta command; `None` if it is none. As [`run_text`](Self::run_text).
    pub(crate) fn run_meta(&mut self, line: &[u8], line_bytes: usize, rest: &[u8]) -> Option<Step> {
        let mut words = words_of(line);
        let name = words.next()?;
        if name == b"mn" {
            put_line(self.output, b"MN");
            return Some(Step::Done(line_bytes));
        }
        if !matches!(name, b"mg" | b"ms" | b"md" | b"ma" | b"me") {
            return None;
        }
        self.items.stats.cmd_meta += 1;
        let key = words.next();
        if key.is_none() {
            put_line(self.output, b"ERROR");
            return Some(Step::Done(line_bytes));
        }
        if name == b"ms" {
            return Some(self.run_meta_set(key, words, line_bytes, rest));
        }
        let before = self.output.len();
        let outcome = match name {
            b"mg" => Request::read(key, words, b"bcfkOqstvENRT").and_then(|request| self.meta_get(&request)),
            b"md" => Request::read(key, words, b"bCEkOqxIT")
                .and_then(|request| self.meta_delete(&request))
                .map_err(without_detail),
            b"ma" => Request::read(key, words, b"bCEkOqtcvsNJDTM")
                .and_then(|request| self.meta_arithmetic(&request))
                .map_err(without_detail),
            _ => Request::read(key, words, b"b").and_then(|request| self.meta_debug(&request)),
        };
        self.answer_meta(before, outcome);
        Some(Step::Done(line_bytes))
    }

    /// Answers with a failure, if there is one, in place of the bytes that were written since `before`.
    fn answer_meta(&mut self, before: usize, outcome: std::result::Result<Result<()>, &'static [u8]>) {
        let line = match outcome {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure_line(&failure),
            Err(line) => line.to_vec(),
        };
        self.output.truncate(before);
        put_line(self.output, &line);
    }

    /// Writes the flags that return something, in the order of the request.
    fn put_flags(&mut self, request: &Request<'_>, shown: Option<&Shown>) {
        let now = self.items.now;
        let output = &mut *self.output;
        // The deadlines that the flags N and T set count only for the flags after them.
        let mut deadline = shown.map_or(0, |shown| shown.times.before);
        for (flag, token) in &request.flags {
            match (flag, shown) {
                (b'O', _) => {
                    output.extend_from_slice(b" O");
                    output.extend_from_slice(token);
                }
                (b'k', _) => {
                    output.extend_from_slice(b" k");
                    let is_binary = shown.and_then(|shown| shown.key_is_binary).unwrap_or(request.is_binary);
                    if is_binary {
                        output.extend_from_slice(BASE64.encode(&request.key).as_bytes());
                        output.extend_from_slice(b" b");
                    } else {
                        output.extend_from_slice(&request.key);
                    }
                }
                (b'c', Some(shown)) => put_flag(output, b" c", shown.head.unique),
                (b'f', Some(shown)) => put_flag(output, b" f", shown.head.flags.into()),
                (b's', Some(Shown { bytes, returns_bytes: true, .. })) => {
                    put_flag(output, b" s", *bytes as u64);
                }
                (b'N', Some(shown)) => deadline = shown.times.at_n.unwrap_or(deadline),
                (b'T', Some(shown)) => deadline = shown.times.at_t.unwrap_or(deadline),
                (b't', Some(_)) => match deadline {
                    0 => output.extend_from_slice(b" t-1"),
                    deadline => put_flag(output, b" t", deadline.saturating_sub(now).into()),
                },
                _ => {}
            }
        }
    }

    fn meta_get(&mut self, request: &Request<'_>) -> std::result::Result<Result<()>, &'static [u8]> {
        let now = self.items.now;
        let wanted = Wanted {
            vivified: request.deadline(b'N', now)?,
            touched: request.deadline(b'T', now)?,
            recached: request.number(b'R')?,
            unique: request.number(b'E')?,
        };
        Ok(self.try_meta_get(request, &wanted))
    }

    fn try_meta_get(&mut self, request: &Request<'_>, wanted: &Wanted) -> Result<()> {
        let with_value = request.has(b'v');
        let found = self.items.read(&request.key, |item| {
            let copy = |data: &[u8]| if with_value { data.to_vec() } else { Vec::new() };
            item.map(|Item { head, data }| (head, data.len(), copy(data)))
        })?;
        self.items.stats.note_get(found.is_some());
        let is_new = found.is_none();
        if is_new && wanted.vivified.is_none() {
            if !request.has(b'q') {
                self.output.extend_from_slice(b"EN");
                self.put_flags(request, None);
                self.output.extend_from_slice(b"\r\n");
            }
            return Ok(());
        }
        let fresh = ItemHead { marks: request.marks(), ..ItemHead::default() };
        let (old, bytes, data) = found.unwrap_or((fresh, 0, Vec::new()));
        let (was_won, is_stale) = (old.marks & MARK_WON != 0, old.marks & MARK_STALE != 0);
        let times = wanted.times(request, old.deadline, is_new, self.items.now);
        let wins = !was_won && (is_new || is_stale || times.is_late);
        let marks = old.marks | if wins { MARK_WON } else { 0 };
        let mut head = ItemHead { deadline: times.deadline, marks, ..old };
        if is_new {
            head.unique = self.items.put(&request.key, head, &[], wanted.unique)?;
        } else if head != old {
            self.items.put_head(&request.key, head)?;
        }
        if wanted.touched.is_some() && !is_new {
            self.items.stats.note_touch(true);
        }
        if with_value {
            put_flag(self.output, b"VA ", bytes as u64);
        } else {
            self.output.extend_from_slice(b"HD");
        }
        let key_is_binary = Some(head.marks & MARK_BINARY != 0);
        self.put_flags(request, Some(&Shown { head, bytes, returns_bytes: true, key_is_binary, times }));
        for (mark, is_set) in [(b" Z", was_won), (b" X", is_stale), (b" W", wins)] {
            if is_set {
                self.output.extend_from_slice(mark);
            }
        }
        self.output.extend_from_slice(b"\r\n");
        if with_value {
            put_line(self.output, &data);
        }
        Ok(())
    }

    /// `ms <key> <bytes> <flags>*` and the value.
    fn run_meta_set<'l>(
        &mut self,
        key: Option<&'l [u8]>,
        mut words: impl Iterator<Item = &'l [u8]>,
        line_bytes: usize,
        rest: &[u8],
    ) -> Step {
        let bytes = words.next();
        let Some(bytes) = bytes.filter(|_| key.is_some()) else {
            put_line(self.output, BAD_FORMAT);
            return Step::Done(line_bytes);
        };
        let Some(bytes) = number(bytes).and_then(|bytes| usize::try_from(bytes).ok()) else {
            put_line(self.output, BAD_FORMAT);
            return Step::Done(line_bytes);
        };
        let request = Request::read(key, words, b"bcCEFIkMNOqsT");
        let request = request.and_then(|request| Ok((self.new_item(&request, bytes)?, request)));
        let ((store, head, expected, unique, vivified), request) = match request {
            Ok(request) => request,
            Err(line) => {
                put_line(self.output, line);
                // The client sends the value all the same.
                return Step::Skip(line_bytes, bytes.saturating_add(2));
            }
        };
        let whole = line_bytes + bytes + 2;
        let Some(data) = rest.get(..bytes + 2) else { return Step::Needs(whole) };
        let Some(data) = data.strip_suffix(b"\r\n") else {
            put_line(self.output, b"CLIENT_ERROR bad data chunk");
            return Step::Done(whole);
        };
        let item = NewItem { store, key: &request.key, head, data, expected, unique };
        let before = self.output.len();
        let outcome = self.meta_set(&request, &item, vivified);
        self.answer_meta(before, Ok(outcome));
        Step::Done(whole)
    }

    #[allow(clippy::type_complexity)]
    fn new_item(
        &mut self,
        request: &Request<'_>,
        bytes: usize,
    ) -> std::result::Result<(Store, ItemHead, Option<u64>, Option<u64>, Option<u32>), &'static [u8]> {
        let now = self.items.now;
        let flags = request.number(b'F').map_err(|_| BAD_FORMAT)?.unwrap_or(0);
        let flags = u32::try_from(flags).map_err(|_| BAD_FORMAT)?;
        let deadline = request.deadline(b'T', now)?.unwrap_or(0);
        let store = match request.mode()? {
            None | Some(b'S' | b's') => Store::Set,
            Some(b'E' | b'e') => Store::Add,
            Some(b'A' | b'a') => Store::Append,
            Some(b'P' | b'p') => Store::Prepend,
            Some(b'R' | b'r') => Store::Replace,
            Some(_) => return Err(b"CLIENT_ERROR invalid mode for ms M token"),
        };
        if bytes > self.max_value_bytes {
            self.items.stats.store_too_large += 1;
            return Err(TOO_LARGE);
        }
        let head = ItemHead { flags, deadline, marks: request.marks(), ..ItemHead::default() };
        Ok((store, head, request.number(b'C')?, request.number(b'E')?, request.deadline(b'N', now)?))
    }

    fn meta_set(&mut self, request: &Request<'_>, item: &NewItem<'_>, vivified: Option<u32>) -> Result<()> {
        let mut outcome = None;
        let invalidates = request.has(b'I') && matches!(item.store, Store::Set | Store::Replace);
        if let (true, Some(expected), Some(old)) = (invalidates, item.expected, self.items.head(item.key)?)
            && expected < old.unique
        {
            // The value is older than the stored one: it is stored all the same, and marked, so that a client
            // has to bring a newer one.
            let head = ItemHead { marks: item.head.marks | MARK_STALE, ..item.head };
            outcome = Some(self.store(&NewItem { head, expected: None, ..*item })?);
        }
        let joins = matches!(item.store, Store::Append | Store::Prepend);
        if let (true, Some(deadline), None) = (joins, vivified, self.items.head(item.key)?) {
            let head = ItemHead { deadline, ..item.head };
            outcome = Some(self.store(&NewItem { store: Store::Set, head, ..*item })?);
        }
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => self.store(item)?,
        };
        let (code, unique) = match outcome {
            Stored::Yes(unique) => (b"HD", unique),
            Stored::No => (b"NS", 0),
            Stored::Exists => (b"EX", 0),
            Stored::NotFound => (b"NF", 0),
            Stored::TooLarge => {
                put_line(self.output, TOO_LARGE);
                return Ok(());
            }
        };
        if code == b"HD" && request.has(b'q') {
            return Ok(());
        }
        self.output.extend_from_slice(code);
        let head = ItemHead { unique, ..item.head };
        self.put_flags(
            request,
            Some(&Shown {
                head,
                times: Times::always(head.deadline),
                bytes: item.data.len(),
                returns_bytes: true,
                key_is_binary: None,
            }),
        );
        self.output.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn meta_delete(&mut self, request: &Request<'_>) -> std::result::Result<Result<()>, &'static [u8]> {
        let (expected, unique) = (request.number(b'C')?, request.number(b'E')?);
        let deadline = request.deadline(b'T', self.items.now)?;
        Ok(self.try_meta_delete(request, expected, unique, deadline))
    }

    fn try_meta_delete(
        &mut self,
        request: &Request<'_>,
        expected: Option<u64>,
        unique: Option<u64>,
        deadline: Option<u32>,
    ) -> Result<()> {
        let found = self.items.head(&request.key)?;
        let code: &[u8] = match found {
            None => b"NF",
            Some(head) if expected.is_some_and(|expected| expected != head.unique) => b"EX",
            Some(head) => {
                if request.has(b'I') || request.has(b'x') {
                    let mut head = ItemHead { deadline: deadline.unwrap_or(head.deadline), ..head };
                    if request.has(b'I') {
                        head.marks = MARK_STALE | (head.marks & MARK_BINARY);
                    }
                    let mut data = Vec::new();
                    if request.has(b'x') {
                        head.flags = 0;
                    } else {
                        data = self
                            .items
                            .read(&request.key, |item| item.map(|item| item.data.to_vec()))?
                            .unwrap_or_default();
                    }
                    self.items.put(&request.key, head, &[&data], unique)?;
                } else {
                    self.items.remove(&request.key)?;
                }
                b"HD"
            }
        };
        self.items.stats.note_delete(found.is_some());
        if code == b"HD" && request.has(b'q') {
            return Ok(());
        }
        self.output.extend_from_slice(code);
        self.put_flags(request, None);
        self.output.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn meta_arithmetic(&mut self, request: &Request<'_>) -> std::result::Result<Result<()>, &'static [u8]> {
        let now = self.items.now;
        let is_decrement = match request.mode()? {
            None | Some(b'I' | b'i' | b'+') => false,
            Some(b'D' | b'd' | b'-') => true,
            Some(_) => return Err(b"CLIENT_ERROR invalid mode for ma M token"),
        };
        let change = Change {
            is_decrement,
            delta: request.number(b'D')?.unwrap_or(1),
            expected: request.number(b'C')?,
            unique: request.number(b'E')?,
            deadline: request.deadline(b'T', now)?,
        };
        let (initial, vivified) = (request.number(b'J')?.unwrap_or(0), request.deadline(b'N', now)?);
        Ok(self.try_meta_arithmetic(request, &change, initial, vivified))
    }

    fn try_meta_arithmetic(
        &mut self,
        request: &Request<'_>,
        change: &Change,
        initial: u64,
        vivified: Option<u32>,
    ) -> Result<()> {
        let mut outcome = self.arithmetic(&request.key, change)?;
        let mut is_quiet = request.has(b'q');
        if let (Arithmetic::NotFound, Some(before)) = (&outcome, vivified) {
            let deadline = change.deadline.unwrap_or(before);
            let head = ItemHead { deadline, marks: request.marks(), ..ItemHead::default() };
            let text = initial.to_string();
            let unique = self.items.put(&request.key, head, &[text.as_bytes()], change.unique)?;
            outcome = Arithmetic::Value { value: initial, head: ItemHead { unique, ..head }, before };
            // As memcached has it: a new number is always told.
            is_quiet = false;
        }
        let (code, shown): (&[u8], Option<(u64, Shown)>) = match outcome {
            Arithmetic::Value { value, head, before } => {
                let times = Times { at_t: change.deadline, ..Times::always(before) };
                let bytes = value.to_string().len();
                let shown = Shown { head, bytes, returns_bytes: false, key_is_binary: None, times };
                (b"HD", Some((value, shown)))
            }
            Arithmetic::NotFound => (b"NF", None),
            Arithmetic::Exists => (b"EX", None),
            Arithmetic::NoNumber => {
                put_line(self.output, NO_NUMBER);
                return Ok(());
            }
        };
        if code == b"HD" && is_quiet {
            return Ok(());
        }
        match shown.as_ref().filter(|_| request.has(b'v')) {
            Some((_, shown)) => put_flag(self.output, b"VA ", shown.bytes as u64),
            None => self.output.extend_from_slice(code),
        }
        self.put_flags(request, shown.as_ref().map(|(_, shown)| shown));
        self.output.extend_from_slice(b"\r\n");
        if let Some((value, _)) = shown.filter(|_| request.has(b'v')) {
            put_number(self.output, value);
            self.output.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    fn meta_debug(&mut self, request: &Request<'_>) -> std::result::Result<Result<()>, &'static [u8]> {
        let now = self.items.now;
        let found = self.items.read(&request.key, |item| item.map(|Item { head, data }| (head, data.len())));
        let (head, bytes) = match found {
            Ok(Some(found)) => found,
            Ok(None) => {
                put_line(self.output, b"EN");
                return Ok(Ok(()));
            }
            Err(failure) => return Ok(Err::<(), Failure>(failure)),
        };
        let left = match head.deadline {
            0 => "-1".to_owned(),
            deadline => deadline.saturating_sub(now).to_string(),
        };
        self.output.extend_from_slice(b"ME ");
        self.output.extend_from_slice(&request.key);
        let size = bytes + request.key.len() + crate::item::HEAD_BYTES;
        put_line(self.output, format!(" exp={left} cas={} cls=0 size={size}", head.unique).as_bytes());
        Ok(Ok(()))
    }
}

/// Some commands do not say what is wrong with their flags.
fn without_detail(line: &'static [u8]) -> &'static [u8] {
    let is_of_flags = [INVALID_FLAG, DUPLICATE_FLAG, BAD_TOKEN].contains(&line);
    if is_of_flags { INVALID_OR_DUPLICATE } else { line }
}

fn put_flag(output: &mut Vec<u8>, name: &[u8], value: u64) {
    output.extend_from_slice(name);
    put_number(output, value);
}
