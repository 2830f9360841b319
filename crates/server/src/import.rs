//! Files of Redis into the databases of a pool.
//!
//! A file is read twice: [`survey`] reads all of it and changes nothing, so that a file that is damaged, or
//! has what this server lacks, is known before anything is written. [`import`] then writes in commits of
//! bounded size. A key appears with its whole value in one of them, whatever its size.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Read;
use std::time::SystemTime;

use tembo::{Pool, Savepoint};
use tembo_rdb::{Element, Event, Key, Kind, Reader, Unread};

use crate::commands::arrival::{Arrival, Refusal, kind_of};
use crate::config::{Config, Encodings};
use crate::fault::{Answer, Fault, MALFORMED};
use crate::keyspace::Keyspace;
use crate::keyspace::format::{DATABASES, KEY_BYTES_MAX};
use crate::keyspace::history::Master;
use crate::kinds::KindCounts;

/// The head of a whole copy of a cluster's node has its moves of slots under this name.
pub(crate) const MOVES_AUX: &[u8] = b"tembo-moves";
/// Keys that are named for each reason why some are left out.
const NAMED_MAX: usize = 10;
/// Words of a batch, after which it is committed.
const BATCH_WORDS_MAX: usize = 4096;
/// Events between two reports of progress.
const STRIDE: u64 = 256;

/// Why something of a file has no place here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// A stream.
    Stream,
    /// A value of a module, by the module's name.
    Module(String),
    /// A hash whose fields have deadlines of their own.
    FieldDeadlines,
    /// A key in a database of a number that this server does not have.
    Database,
    /// A key that is longer than keys may be here.
    LongKey,
    /// A library of functions.
    Function,
    /// Data of a module beside the keys.
    ModuleData(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Stream => f.write_str("stream"),
            Reason::Module(name) => write!(f, "value of the module type {name}"),
            Reason::FieldDeadlines => f.write_str("hash whose fields have deadlines"),
            Reason::Database => write!(f, "key in a database beyond {}", DATABASES - 1),
            Reason::LongKey => write!(f, "key of more than {KEY_BYTES_MAX} bytes"),
            Reason::Function => f.write_str("library of functions"),
            Reason::ModuleData(name) => write!(f, "data of the module type {name} beside the keys"),
        }
    }
}

/// Contents that have no place here, for one [`Reason`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// How much there is.
    pub count: u64,
    /// The first of the keys, each with its database.
    pub keys: Vec<(u64, Vec<u8>)>,
}

/// The contents of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// The keys that have a place here, expired ones included.
    pub keys: KindCounts,
    /// The databases of these keys.
    pub databases: BTreeSet<u64>,
    /// All that has none.
    pub left_out: BTreeMap<Reason, LeftOut>,
    /// Whether a checksum proves the file whole.
    pub is_checked: bool,
    /// The database that a stream behind the file has selected, if the file says so.
    pub stream_database: Option<u64>,
    /// The moves of slots of the node that wrote the file.
    pub(crate) moves: Option<Vec<u8>>,
}

/// The outcome of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// The keys that are in the pool now.
    pub keys: KindCounts,
    /// Keys whose deadline has passed.
    pub expired: u64,
    /// Keys without elements, as some versions of Redis wrote.
    pub empty: u64,
    /// Contents that were left out.
    pub left_out: BTreeMap<Reason, LeftOut>,
}

/// Why an import ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file.
    #[error(transparent)]
    File(#[from] tembo_rdb::Error),
    /// The pool.
    #[error(transparent)]
    Pool(#[from] tembo::Error),
    /// The pool follows a master, from which an import would part it.
    #[error("the pool is that of a replica of {host}:{port}; make it a master first (REPLICAOF NO ONE)")]
    Replica {
        /// The master's host.
        host: String,
        /// Its port.
        port: u16,
    },
    /// A value that cannot be stored.
    #[error("database {database}, key \"{key}\": {what}")]
    Value {
        /// The key's database.
        database: u64,
        /// The key, with escapes.
        key: String,
        /// The cause.
        what: String,
    },
}

fn note(left_out: &mut BTreeMap<Reason, LeftOut>, reason: Reason, key: Option<(u64, &[u8])>) {
    let entry = left_out.entry(reason).or_default();
    entry.count += 1;
    if let Some((database, name)) = key.filter(|_| entry.keys.len() < NAMED_MAX) {
        entry.keys.push((database, name.to_vec()));
    }
}

/// Why a key has no place here, as far as that is known before its value.
fn misplaced(key: &Key<'_>) -> Option<Reason> {
    match key {
        _ if key.database >= DATABASES as u64 => Some(Reason::Database),
        _ if key.name.len() > KEY_BYTES_MAX => Some(Reason::LongKey),
        _ => None,
    }
}

/// Notes an event that is about no key, or about one that is not read.
fn note_unread(left_out: &mut BTreeMap<Reason, LeftOut>, event: &Event<'_>) {
    match event {
        Event::Skipped(skipped) => {
            let reason = match skipped.what {
                Unread::Stream => Reason::Stream,
                Unread::Module(module) => Reason::Module(module.to_string()),
                _ => Reason::Module("unknown".to_owned()),
            };
            note(left_out, reason, Some((skipped.database, skipped.name)));
        }
        Event::Function(_) | Event::OldFunction => note(left_out, Reason::Function, None),
        Event::ModuleAux(module) => note(left_out, Reason::ModuleData(module.to_string()), None),
        _ => {}
    }
}

/// Reads a whole file; `progress` gets the number of bytes read, at intervals.
///
/// # Errors
/// Whatever is wrong with the file, with its place.
pub fn survey<R: Read>(
    reader: &mut Reader<R>,
    progress: &mut dyn FnMut(u64),
) -> Result<Survey, tembo_rdb::Error> {
    let mut survey = Survey::default();
    let mut current: Option<(u64, Vec<u8>, Kind)> = None;
    let mut reason = None;
    for events in 0u64.. {
        if events % STRIDE == 0 {
            progress(reader.offset());
        }
        let Some(event) = reader.next()? else { break };
        match event {
            Event::Key(key) => {
                reason = misplaced(&key);
                current = Some((key.database, key.name.to_vec(), key.kind));
            }
            Event::Element(Element::Field { deadline_ms: Some(_), .. }) => {
                reason.get_or_insert(Reason::FieldDeadlines);
            }
            Event::KeyEnd => {
                if let Some((database, name, kind)) = current.take() {
                    match reason.take() {
                        None => {
                            survey.keys.add(kind);
                            survey.databases.insert(database);
                        }
                        Some(reason) => note(&mut survey.left_out, reason, Some((database, &name))),
                    }
                }
            }
            Event::End { is_checked } => survey.is_checked = is_checked,
            Event::Aux { name: b"repl-stream-db", value } => {
                survey.stream_database = tembo_wire::number::parse_u64(value);
            }
            Event::Aux { name: MOVES_AUX, value } => survey.moves = Some(value.to_vec()),
            event => note_unread(&mut survey.left_out, &event),
        }
    }
    Ok(survey)
}

/// Puts the keys of a file into a pool, in place of those with the same names. Data that the server has no
/// place for are left out. `progress` gets the number of bytes read, at intervals.
///
/// Durable when it returns. If it fails or is interrupted, some of the keys are in the pool, each with its
/// whole value; importing the file again leads to the same end.
///
/// # Errors
/// Those of the file and of the pool, and values that cannot be stored.
pub fn import<R: Read>(
    pool: &Pool,
    reader: &mut Reader<R>,
    progress: &mut dyn FnMut(u64),
) -> Result<Imported, ImportError> {
    let keys = Keyspace::open(pool)?;
    if let Some(Master { host, port }) = keys.stored_master().map_err(|fault| value_error(0, b"", fault))?.1 {
        return Err(ImportError::Replica { host, port });
    }
    let mut importing = Importing::into(keys, Config::default().encodings)?;
    for events in 0u64.. {
        if events % STRIDE == 0 {
            progress(reader.offset());
        }
        let Some(event) = reader.next()? else { break };
        importing.take(event)?;
    }
    importing.keys.commit()?;
    importing.reclaim()?;
    Ok(importing.done)
}

/// An import that is under way.
pub(crate) struct Importing<'p> {
    pub(crate) keys: Keyspace<'p>,
    limits: Encodings,
    current: Option<Current>,
    done: Imported,
}

/// The key that is being read.
struct Current {
    database: u64,
    name: Vec<u8>,
    kind: Kind,
    deadline: Option<u64>,
    /// The key's value, unless it is not wanted.
    arrival: Option<(Arrival, Savepoint)>,
    /// The reason why the value is not wanted.
    reason: Option<Reason>,
}

impl<'p> Importing<'p> {
    /// Begins to fill these databases.
    pub(crate) fn into(mut keys: Keyspace<'p>, limits: Encodings) -> Result<Self, ImportError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        keys.now_ms = now.as_millis() as u64;
        keys.set_parts_take_others(BATCH_WORDS_MAX);
        let mut importing = Importing { keys, limits, current: None, done: Imported::default() };
        importing.reclaim()?;
        Ok(importing)
    }

    /// Frees the space of removed keys, also those of an interrupted import.
    fn reclaim(&mut self) -> Result<(), ImportError> {
        while self.keys.is_reclaiming() {
            self.keys.reclaim().map_err(|fault| self.failed(fault))?;
        }
        Ok(())
    }

    /// The outcome so far.
    pub(crate) fn into_imported(self) -> Imported {
        self.done
    }

    /// Takes the next part of a file.
    ///
    /// # Errors
    /// Those of the pool, and a value that cannot be stored.
    pub(crate) fn take(&mut self, event: Event<'_>) -> Result<(), ImportError> {
        match event {
            Event::Key(key) => self.begin(&key).map_err(|fault| self.failed(fault)),
            Event::Element(element) => self.add(element).map_err(|fault| self.failed(fault)),
            Event::KeyEnd => match self.current.take() {
                Some(current) => {
                    let (database, name) = (current.database, current.name.clone());
                    self.end(current).map_err(|fault| value_error(database, &name, fault))
                }
                None => Ok(()),
            },
            event => {
                note_unread(&mut self.done.left_out, &event);
                Ok(())
            }
        }
    }

    fn begin(&mut self, key: &Key<'_>) -> Answer {
        let deadline = key.meta.deadline_ms.map(|deadline| u64::try_from(deadline).unwrap_or(0));
        let reason = misplaced(key);
        self.current = Some(Current {
            database: key.database,
            name: key.name.to_vec(),
            kind: key.kind,
            deadline,
            arrival: None,
            reason: reason.clone(),
        });
        if reason.is_some() || deadline.is_some_and(|deadline| deadline <= self.keys.now_ms) {
            return Ok(());
        }
        let database = key.database as usize;
        if database >= self.keys.layout().databases() {
            return Err(Fault::Error("ERR a node of a cluster has no other database than 0"));
        }
        if !self.keys.exists(database) {
            self.keys.commit()?;
            self.keys.create(database)?;
        }
        let begin = self.keys.begin_command()?;
        let arrival = Arrival::begin(&mut self.keys, database, key.name, kind_of(key.kind))?;
        if let Some(current) = &mut self.current {
            current.arrival = Some((arrival, begin));
        }
        Ok(())
    }

    fn add(&mut self, element: Element<'_>) -> Answer {
        let Importing { keys, limits, current: Some(current), .. } = self else {
            return Ok(());
        };
        let Some((arrival, _)) = &mut current.arrival else {
            return Ok(());
        };
        match arrival.add(keys, limits, element) {
            Ok(()) => {}
            Err(Refusal::Fault(fault)) => return Err(fault),
            Err(Refusal::Unfit) => return Err(Fault::Error("ERR an element is there twice")),
            Err(Refusal::FieldDeadline) => {
                current.reason = Some(Reason::FieldDeadlines);
                if let Some((_, begin)) = current.arrival.take() {
                    keys.undo_command(begin);
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, current: Current) -> Answer {
        let Current { database, name, kind, deadline, arrival, reason } = current;
        match (arrival, reason) {
            (_, Some(reason)) => note(&mut self.done.left_out, reason, Some((database, &name))),
            (None, None) => self.done.expired += 1,
            (Some((arrival, _)), None) => {
                match arrival.store(&mut self.keys, &name, deadline)? {
                    true => self.done.keys.add(kind),
                    false => self.done.empty += 1,
                }
                self.keys.end_command();
            }
        }
        if self.keys.pending_words() > BATCH_WORDS_MAX {
            self.keys.commit()?;
            // Replaced collections are freed, a step at a time.
            self.keys.reclaim()?;
        }
        Ok(())
    }

    fn failed(&self, fault: Fault) -> ImportError {
        let (database, name) =
            self.current.as_ref().map_or((0, &[][..]), |current| (current.database, &current.name));
        value_error(database, name, fault)
    }
}

fn value_error(database: u64, name: &[u8], fault: Fault) -> ImportError {
    let what = match fault {
        Fault::Engine(error) => return ImportError::Pool(error),
        Fault::Error(text) => text.strip_prefix("ERR ").unwrap_or(text).to_owned(),
        Fault::Quoting(text) => String::from_utf8_lossy(&text).into_owned(),
        Fault::Malformed => MALFORMED.to_owned(),
        Fault::NeedsCommit | Fault::MissingDatabase(_) => "it cannot be stored".to_owned(),
    };
    ImportError::Value { database, key: name.escape_ascii().to_string(), what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::key_count::count_keys;
    use tembo_rdb::{KeyMeta, Writer};

    const FIELDS: u64 = 20_000;

    /// A file of large values, each of which takes many commits.
    fn file() -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), Default::default()).unwrap();
        writer.database(3, 3, 0).unwrap();
        for kind in [Kind::List, Kind::Hash, Kind::SortedSet] {
            writer.begin(kind.name().as_bytes(), KeyMeta::default(), kind, FIELDS).unwrap();
            for n in 0..FIELDS {
                let name = format!("element {n}");
                let element = match kind {
                    Kind::List => Element::Item(name.as_bytes()),
                    Kind::Hash => Element::Field { field: name.as_bytes(), value: b"v", deadline_ms: None },
                    _ => Element::Scored { member: name.as_bytes(), score: n as f64 },
                };
                writer.element(element).unwrap();
            }
            writer.end().unwrap();
        }
        writer.finish().unwrap()
    }

    fn import_all(pool: &Pool, file: &[u8]) -> Result<Imported, ImportError> {
        import(pool, &mut Reader::new(file)?, &mut |_| {})
    }

    fn collections(pool: &Pool) -> crate::CollectionsReport {
        pool.check().unwrap();
        crate::check(pool).unwrap().collections
    }

    /// The elements of a collection that was not whole belonged to nothing that a check knew.
    #[test]
    fn a_value_that_did_not_become_whole_is_not_there_and_its_elements_go() {
        let dir = tempfile::tempdir().unwrap();
        let pool = tembo::Options::new().create(true).open(dir.path().join("import.pool")).unwrap();
        let file = file();
        let (mut whole, mut seen) = (0, 0);
        for part in [1, 2, 3, 5, 7, 8] {
            let cut = &file[..file.len() * part / 9];
            let error = import_all(&pool, cut).unwrap_err();
            assert!(matches!(error, ImportError::File(_)), "{error}");
            let (keys, found) = (count_keys(&pool).unwrap(), collections(&pool));
            assert!(keys >= whole && found.large == keys, "{found:?}");
            assert_eq!(found.elements, keys * FIELDS);
            assert!(found.under_construction <= 1, "{found:?}");
            assert_eq!(found.doomed_elements > 0, found.under_construction > 0, "{found:?}");
            (whole, seen) = (keys, seen + found.under_construction);
        }
        assert!(whole == 2 && seen >= 3, "{whole}, {seen}");
        for _ in 0..2 {
            let imported = import_all(&pool, &file).unwrap();
            assert_eq!((imported.keys.total(), imported.keys.lists, imported.keys.hashes), (3, 1, 1));
            let found = collections(&pool);
            assert_eq!((found.large, found.elements), (3, 3 * FIELDS));
            assert_eq!((found.doomed, found.under_construction, found.doomed_elements), (0, 0, 0));
        }
        let (out, exported) = crate::export(&pool, Vec::new(), &mut || {}).unwrap();
        assert_eq!(exported.keys.total(), 3);
        let survey = survey(&mut Reader::new(&out[..]).unwrap(), &mut |_| {}).unwrap();
        assert_eq!((survey.keys, survey.is_checked), (exported.keys, true));
    }

    #[test]
    fn the_pool_of_a_replica_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let pool = tembo::Options::new().create(true).open(dir.path().join("import.pool")).unwrap();
        let mut keys = Keyspace::open(&pool).unwrap();
        keys.store_master(Some(&Master { host: "there".to_owned(), port: 7 }), [b'0'; 40]).unwrap();
        let error = import_all(&pool, &file()).unwrap_err();
        assert!(error.to_string().contains("replica of there:7"), "{error}");
        assert_eq!(count_keys(&pool).unwrap(), 0);
        assert!(crate::check(&pool).unwrap().is_replica);
        keys.store_master(None, [b'0'; 40]).unwrap();
        drop(keys);
        assert_eq!(import_all(&pool, &file()).unwrap().keys.total(), 3);
    }

    #[test]
    fn damaged_records_of_a_replica_are_named() {
        for (key, value) in [
            (&b"m"[..], &b"\x07\0"[..]),
            (b"m", b"\x07"),
            (b"p", b"short"),
            (b"p", &[b'a'; 49]),
            (b"a", b"\x01"),
            (b"x", b""),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool")).unwrap();
            let map = pool.open_map("db.replication").unwrap();
            map.put(key, value).unwrap();
            let error = crate::check(&pool).unwrap_err();
            assert!(error.to_string().contains("the state of a replica"), "{error}");
            // No part of the file is believed, and none causes a panic.
            let keys = Keyspace::open(&pool).unwrap();
            assert!(keys.replication.position.is_none());
            assert!(!keys.replication.is_arriving);
        }
    }

    #[test]
    fn what_has_no_place_is_left_out_and_said() {
        let mut writer = Writer::new(Vec::new(), Default::default()).unwrap();
        let mut add = |database, key: &[u8], deadline_ms, element| {
            let meta = KeyMeta { deadline_ms, ..KeyMeta::default() };
            writer.database(database, 1, 0).unwrap();
            let kind = if matches!(element, Element::Text(_)) { Kind::String } else { Kind::Set };
            writer.begin(key, meta, kind, 1).unwrap();
            writer.element(element).unwrap();
            writer.end().unwrap();
        };
        add(0, b"kept", None, Element::Text(b"v"));
        add(0, b"later", Some(1 << 50), Element::Item(b"m"));
        add(0, b"expired", Some(1000), Element::Text(b"v"));
        add(0, b"long before", Some(-1), Element::Text(b"v"));
        add(16, b"beyond", None, Element::Text(b"v"));
        add(0, &[b'k'; 65_529], None, Element::Text(b"v"));
        let mut file = writer.finish().unwrap();
        file.truncate(file.len() - 9);
        // A hash with the deadline of a field, an empty one, and no checksum.
        file.extend(b"\xfe\x05\x18\x01h\0\0\0\0\0\x02\0\0\x01\x01\x01f\x01v\x04\x01e\0\xff\0\0\0\0\0\0\0\0");
        file[..9].copy_from_slice(b"REDIS0012");
        let surveyed = survey(&mut Reader::new(&file[..]).unwrap(), &mut |_| {}).unwrap();
        assert_eq!((surveyed.keys.strings, surveyed.keys.total(), surveyed.is_checked), (3, 5, false));
        let dir = tempfile::tempdir().unwrap();
        let pool = tembo::Options::new().create(true).open(dir.path().join("import.pool")).unwrap();
        let imported = import_all(&pool, &file).unwrap();
        assert_eq!(imported.left_out, surveyed.left_out);
        let reasons: Vec<_> = imported.left_out.keys().cloned().collect();
        assert_eq!(reasons, [Reason::FieldDeadlines, Reason::Database, Reason::LongKey]);
        assert_eq!(imported.left_out[&Reason::FieldDeadlines].keys, [(5, b"h".to_vec())]);
        assert_eq!((imported.keys.total(), imported.expired, imported.empty), (2, 2, 1));
        assert_eq!(count_keys(&pool).unwrap(), 2);
        collections(&pool);
    }
}
