//! The dump format: JSON lines that hold the maps of a pool.
//!
//! `docs/guide/dump.md` describes it for users; its example is read and written by a test here. The reader
//! trusts nothing: a line is parsed only when it is whole and not too long, and the counts and the checksum
//! of the last line are compared with what was read.

use super::text::{Read, Shown};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read as _, Write};
use tembo::{Counting, Quoted};
use xxhash_rust::xxh3::Xxh3;

/// The version that is written and the newest that is read.
const VERSION: u32 = 1;
/// The longest line that is read: a key and a value of the largest sizes, every character of them escaped.
const MAX_LINE_BYTES: u64 = 2 * ((512 << 20) + (64 << 10)) + 1024;
/// The longest first line. It bounds the memory for input of another kind, without line ends.
const MAX_HEADER_BYTES: u64 = 4096;
/// The length of a quotation from a dump in a message.
const QUOTED_CHARS: usize = 200;

/// A line as it is written.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum WrittenLine<'a> {
    TemboDump(u32),
    Map(&'a str),
    CountingMap { name: &'a str, counts: &'a str },
    FixedMap(&'a str),
    VersionedMap(&'a str),
    HashTable(&'a str),
    LeftOut { name: &'a str, what: &'a str },
    End(End),
}

#[derive(Serialize)]
struct WrittenEntry<'a> {
    key: Shown<'a>,
    value: Shown<'a>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    maps: u64,
    entries: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    xxh3: Option<String>,
}

/// Writes a dump.
pub(crate) struct Writer<W> {
    out: W,
    sum: Xxh3,
    maps: u64,
    entries: u64,
    line: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    ///
    /// # Errors
    ///
    /// The errors of `out`, as for the other methods.
    pub(crate) fn new(out: W) -> io::Result<Writer<W>> {
        let mut writer = Writer { out, sum: Xxh3::new(), maps: 0, entries: 0, line: Vec::new() };
        writer.line(&WrittenLine::TemboDump(VERSION))?;
        Ok(writer)
    }

    /// Begins a map.
    pub(crate) fn map(&mut self, name: &str) -> io::Result<()> {
        self.maps += 1;
        self.line(&WrittenLine::Map(name))
    }

    /// Begins a map that keeps sums.
    pub(crate) fn counting_map(&mut self, name: &str, counting: Counting) -> io::Result<()> {
        self.maps += 1;
        self.line(&WrittenLine::CountingMap { name, counts: &counting.to_string() })
    }

    /// Notes in the dump that a map is left out, and which kind it is of.
    pub(crate) fn left_out(&mut self, name: &str, what: &str) -> io::Result<()> {
        self.line(&WrittenLine::LeftOut { name, what })
    }

    /// Begins a map that keeps versions.
    pub(crate) fn versioned_map(&mut self, name: &str) -> io::Result<()> {
        self.maps += 1;
        self.line(&WrittenLine::VersionedMap(name))
    }

    /// Begins a hash table.
    pub(crate) fn hash_table(&mut self, name: &str) -> io::Result<()> {
        self.maps += 1;
        self.line(&WrittenLine::HashTable(name))
    }

    /// Begins a map of 8-byte keys and values.
    pub(crate) fn fixed_map(&mut self, name: &str) -> io::Result<()> {
        self.maps += 1;
        self.line(&WrittenLine::FixedMap(name))
    }

    /// Writes an entry of the current map, which is one of 8-byte keys and values.
    pub(crate) fn fixed_entry(&mut self, key: u64, value: u64) -> io::Result<()> {
        self.entry(key.to_string().as_bytes(), value.to_string().as_bytes())
    }

    /// Writes an entry of the current map.
    pub(crate) fn entry(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert!(self.maps > 0, "an entry belongs to a map");
        self.entries += 1;
        self.line(&WrittenEntry { key: Shown(key), value: Shown(value) })
    }

    /// Writes the last line and flushes; returns how many entries were written.
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        let sum = format!("{:016x}", self.sum.digest());
        self.line(&WrittenLine::End(End { maps: self.maps, entries: self.entries, xxh3: Some(sum) }))?;
        self.out.flush()?;
        Ok(self.entries)
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line)?;
        self.line.push(b'\n');
        self.sum.update(&self.line);
        self.out.write_all(&self.line)
    }
}

/// An item of a dump, in its order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// The entries that follow belong to this map.
    Map(String),
    /// The entries that follow belong to this map, which keeps sums.
    CountingMap {
        /// Its name.
        name: String,
        /// The sums.
        counting: Counting,
    },
    /// The entries that follow belong to this map of 8-byte keys and values.
    FixedMap(String),
    /// The entries that follow belong to this map, which keeps versions.
    VersionedMap(String),
    /// The entries that follow belong to this hash table.
    HashTable(String),
    /// A map that was in the pool and is not in the dump, since the program that made it did not know its
    /// kind.
    LeftOut {
        /// Its name.
        name: String,
        /// Its description.
        what: String,
    },
    /// An entry of the last map, which is one of 8-byte keys and values.
    FixedEntry {
        /// Its key.
        key: u64,
        /// Its value.
        value: u64,
    },
    /// An entry of the last map.
    Entry {
        /// Its key.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
}

/// Why a dump cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The source failed.
    #[error("reading the dump: {0}")]
    Io(#[from] io::Error),
    /// The input is no dump.
    #[error("this is not a dump: {found}; the first line of a dump is {{\"tembo_dump\":1}}")]
    NotADump {
        /// The actual beginning, with a verb.
        found: String,
    },
    /// The dump was written by a newer program.
    #[error(
        "the dump has format version {found}; this program knows versions up to {VERSION}, use a newer one"
    )]
    NewerVersion {
        /// The version in the header.
        found: u32,
    },
    /// A line does not say anything that belongs there.
    #[error("line {line} of the dump: {what}")]
    Line {
        /// From 1.
        line: u64,
        /// The problem of the line.
        what: String,
    },
    /// The last line is missing.
    #[error("the dump is cut short: it ends after line {line} without a last line {{\"end\":...}}")]
    CutShort {
        /// The last line there is.
        line: u64,
    },
    /// The counts or the checksum of the last line do not agree with the dump.
    #[error("the dump was changed or damaged: {what}")]
    Disagrees {
        /// The counts that do not agree.
        what: String,
    },
}

/// A line as it is read: exactly one kind of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLine {
    tembo_dump: Option<u32>,
    map: Option<String>,
    counting_map: Option<CountingMap>,
    fixed_map: Option<String>,
    versioned_map: Option<String>,
    hash_table: Option<String>,
    left_out: Option<LeftOut>,
    key: Option<Read>,
    value: Option<Read>,
    end: Option<End>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CountingMap {
    name: String,
    counts: Counts,
}

/// The word for the sums that a map keeps: that of [`Counting`].
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Counts {
    Records,
    Weights,
}

impl From<Counts> for Counting {
    fn from(counts: Counts) -> Counting {
        match counts {
            Counts::Records => Counting::Records,
            Counts::Weights => Counting::Weights,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeftOut {
    name: String,
    what: String,
}

enum ReadLine {
    Header(u32),
    Item(Item),
    End(End),
}

impl RawLine {
    fn kind(self) -> Option<ReadLine> {
        let RawLine {
            tembo_dump,
            map,
            counting_map,
            fixed_map,
            versioned_map,
            hash_table,
            left_out,
            key,
            value,
            end,
        } = self;
        let counting = counting_map
            .map(|CountingMap { name, counts }| Item::CountingMap { name, counting: counts.into() });
        let maps = [map.map(Item::Map), counting, fixed_map.map(Item::FixedMap)];
        let versioned = [versioned_map.map(Item::VersionedMap), hash_table.map(Item::HashTable)];
        let left_out = left_out.map(|LeftOut { name, what }| Item::LeftOut { name, what });
        let mut maps = maps.into_iter().chain(versioned).chain([left_out]).flatten();
        let (map, another) = (maps.next(), maps.next());
        match (tembo_dump, map, another, key, value, end) {
            (Some(version), None, None, None, None, None) => Some(ReadLine::Header(version)),
            (None, Some(map), None, None, None, None) => Some(ReadLine::Item(map)),
            (None, None, None, Some(Read(key)), Some(Read(value)), None) => {
                Some(ReadLine::Item(Item::Entry { key, value }))
            }
            (None, None, None, None, None, Some(end)) => Some(ReadLine::End(end)),
            _ => None,
        }
    }
}

/// Reads a dump and checks each line.
pub(crate) struct Reader<R> {
    input: R,
    sum: Xxh3,
    line_number: u64,
    line: Vec<u8>,
    maps: u64,
    entries: u64,
    /// Whether the current map is one of 8-byte keys and values.
    is_fixed: bool,
    ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// When the source fails or holds no dump that this version can read.
    pub(crate) fn new(input: R) -> Result<Reader<R>, ReadError> {
        let mut reader = Reader {
            input,
            sum: Xxh3::new(),
            line_number: 0,
            line: Vec::new(),
            maps: 0,
            entries: 0,
            is_fixed: false,
            ended: false,
        };
        reader.skip_mark()?;
        match reader.read_line(MAX_HEADER_BYTES) {
            Ok(Some(ReadLine::Header(version))) if version == VERSION => Ok(reader),
            Ok(Some(ReadLine::Header(version))) if version > VERSION => {
                Err(ReadError::NewerVersion { found: version })
            }
            Err(ReadError::Io(error)) => Err(ReadError::Io(error)),
            _ => Err(ReadError::NotADump { found: describe_start(&reader.line) }),
        }
    }

    /// Skips the byte order mark that some editors put at the start of a file. The checksum does not cover
    /// it, so the dump stays valid.
    fn skip_mark(&mut self) -> io::Result<()> {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        if self.input.fill_buf()?.starts_with(MARK) {
            self.input.consume(MARK.len());
        }
        Ok(())
    }

    /// The number of the line that was read last, from 1.
    pub(crate) fn line_number(&self) -> u64 {
        self.line_number
    }

    /// The next map or entry; none after the last line.
    ///
    /// # Errors
    ///
    /// When the source fails, or the dump is not what its writer wrote. What was read before is then suspect
    /// too.
    pub(crate) fn next(&mut self) -> Result<Option<Item>, ReadError> {
        if self.ended {
            return Ok(None);
        }
        let sum_before = self.sum.digest();
        match self.read_line(MAX_LINE_BYTES)? {
            None => Err(ReadError::CutShort { line: self.line_number }),
            Some(ReadLine::Header(_)) => Err(self.wrong("a second header")),
            Some(ReadLine::Item(Item::Entry { .. })) if self.maps == 0 => {
                Err(self.wrong("an entry before the first map"))
            }
            Some(ReadLine::Item(item)) => self.take(item).map(Some),
            Some(ReadLine::End(end)) => {
                self.check_end(&end, sum_before)?;
                self.ended = true;
                Ok(None)
            }
        }
    }

    /// Counts an item, and reads an entry as its map wants it.
    fn take(&mut self, item: Item) -> Result<Item, ReadError> {
        match item {
            Item::Map(_)
            | Item::CountingMap { .. }
            | Item::FixedMap(_)
            | Item::VersionedMap(_)
            | Item::HashTable(_) => {
                self.maps += 1;
                self.is_fixed = matches!(item, Item::FixedMap(_));
                Ok(item)
            }
            Item::Entry { key, value } if self.is_fixed => {
                self.entries += 1;
                match (integer(&key), integer(&value)) {
                    (Some(key), Some(value)) => Ok(Item::FixedEntry { key, value }),
                    _ => Err(self.wrong(
                        "in a fixed map, key and value are strings of a number from 0 to 18446744073709551615",
                    )),
                }
            }
            Item::Entry { .. } | Item::FixedEntry { .. } => {
                self.entries += 1;
                Ok(item)
            }
            Item::LeftOut { .. } => Ok(item),
        }
    }

    fn check_end(&mut self, end: &End, sum: u64) -> Result<(), ReadError> {
        let disagrees = |what| Err(ReadError::Disagrees { what });
        if (end.maps, end.entries) != (self.maps, self.entries) {
            return disagrees(format!(
                "it has {} maps and {} entries, its last line says {} and {}",
                self.maps, self.entries, end.maps, end.entries
            ));
        }
        let found = format!("{sum:016x}");
        if let Some(expected) = end.xxh3.as_ref().filter(|expected| **expected != found) {
            let expected = cut(expected);
            return disagrees(format!(
                "its checksum is {found}, its last line says {expected} (after editing a dump on purpose, remove \"xxh3\")"
            ));
        }
        match self.read_line(MAX_LINE_BYTES) {
            Ok(None) => Ok(()),
            Err(ReadError::Io(error)) => Err(ReadError::Io(error)),
            Ok(Some(_)) | Err(_) => Err(self.wrong("the dump goes on after its last line")),
        }
    }

    /// The next line that is not blank; none at the end of the source.
    fn read_line(&mut self, limit: u64) -> Result<Option<ReadLine>, ReadError> {
        loop {
            self.line.clear();
            let bytes = (&mut self.input).take(limit).read_until(b'\n', &mut self.line)? as u64;
            if bytes == 0 {
                return Ok(None);
            }
            self.line_number += 1;
            self.sum.update(&self.line);
            if bytes == limit {
                return Err(self.wrong(&format!("it is longer than {limit} bytes")));
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        let line: RawLine = serde_json::from_slice(&self.line).map_err(|e| self.wrong(&describe(&e)))?;
        let kinds = "a line is one of {\"map\":...}, {\"counting_map\":...}, {\"fixed_map\":...}, {\"versioned_map\":...}, {\"hash_table\":...}, {\"key\":...,\"value\":...} and {\"end\":...}";
        line.kind().map(Some).ok_or_else(|| self.wrong(kinds))
    }

    fn wrong(&self, what: &str) -> ReadError {
        ReadError::Line { line: self.line_number, what: cut(what) }
    }
}

/// The start of a text, if it is long.
fn cut(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

/// Names the kind of file that begins so, if it is no dump.
fn describe_start(line: &[u8]) -> String {
    const KNOWN: &[(&[u8], &str)] = &[
        (b"\xff\xfe", "it is text in UTF-16, to be saved as UTF-8"),
        (b"\xfe\xff", "it is text in UTF-16, to be saved as UTF-8"),
        (b"\x1f\x8b", "it is compressed with gzip, to be read through gunzip"),
        (b"\x28\xb5\x2f\xfd", "it is compressed with zstd, to be read through unzstd"),
        (b"TEMBOPM", "it is a pool, which has a dump made by `tembo dump`"),
    ];
    if let Some((_, what)) = KNOWN.iter().find(|(start, _)| line.starts_with(start)) {
        return (*what).to_owned();
    }
    match std::str::from_utf8(line).map(str::trim) {
        Ok("") => "there is nothing in it".to_owned(),
        Ok(text) => format!("it begins with {}", Quoted(text)),
        Err(_) => format!("it begins with {}", Quoted(&line.escape_ascii().to_string())),
    }
}

/// The number that decimal digits say.
fn integer(digits: &[u8]) -> Option<u64> {
    // A sign would be accepted by the parser.
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    text.parse().ok()
}

/// A JSON error with the column only: the parser sees one line at a time.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) => format!("{what} at column {}", error.column()),
        None => text,
    }
}
#[cfg(test)]
mod tests;
