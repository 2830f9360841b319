//! The databases of a pool as a file of Redis, in steps.
//!
//! A pool without writers is read as it is. In a running server, the [point in time](crate::keyspace::point)
//! keeps what commands have changed since the beginning; the export reports its progress to it.

use std::io::{self, Write};
use std::ops::Bound;
use std::time::Duration;

use tembo::{Map, Pool};
use tembo_rdb::{Element, Encodings, KeyMeta, Writer};

use crate::clock;
use crate::keyspace::collection::list::StoredChunk;
use crate::keyspace::collection::ordered::Score;
use crate::keyspace::collection::packed::Packed;
use crate::keyspace::collection::registry::ORDER;
use crate::keyspace::collection::{element, ordered};
use crate::keyspace::format::{COLLECTIONS, ELEMENTS, Kind, LISTS, Malformed, ORDERED, Order, Stored};
use crate::keyspace::order::read_order;
use crate::keyspace::placement::Layout;
use crate::keyspace::point::{ELEMENTS_NUMBER, LISTS_NUMBER, ORDERED_NUMBER, Progress, Records, kept_count};
use crate::keyspace::replication::hidden_maps;
use crate::kinds::{KindCounts, rdb_kind};
use crate::version::REDIS_VERSION;

/// After this many keys and elements, an export reports its progress.
const RECORDS_PER_SIGN: u32 = 256;

/// Why an export ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The file.
    #[error(transparent)]
    File(#[from] io::Error),
    /// The pool.
    #[error(transparent)]
    Pool(#[from] tembo::Error),
    /// The record of which database has which maps does not decode.
    #[error("the order of the databases is damaged; run `tembo check`")]
    Order,
    /// A value that does not decode.
    #[error("database {database}, key \"{key}\": {}", crate::fault::MALFORMED)]
    Malformed {
        /// The key's database.
        database: usize,
        /// The key, with escapes.
        key: String,
    },
}

/// The counts of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// The keys.
    pub keys: KindCounts,
    /// Keys that were left out, as their deadline has passed.
    pub expired: u64,
}

/// Why a value was not written.
enum Failure {
    File(io::Error),
    Pool(tembo::Error),
    Malformed,
}

impl Failure {
    /// The failure, with the key at which it was met.
    fn at(self, database: usize, key: &[u8]) -> ExportError {
        match self {
            Failure::File(error) => ExportError::File(error),
            Failure::Pool(error) => ExportError::Pool(error),
            Failure::Malformed => ExportError::Malformed { database, key: key.escape_ascii().to_string() },
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::File(error)
    }
}

impl From<tembo::Error> for Failure {
    fn from(error: tembo::Error) -> Self {
        Failure::Pool(error)
    }
}

impl From<Malformed> for Failure {
    fn from(_: Malformed) -> Self {
        Failure::Malformed
    }
}

/// Writes all keys of a pool's databases as a file that Redis 7.0 and later versions load; `progress` gets
/// each key. The pool may be open for reading only, and must have no writer meanwhile.
///
/// Takes memory for one value of the pool at a time, and no more than a record of a large collection.
///
/// # Errors
/// Those of `sink` and of the pool.
pub fn export<W: Write>(
    pool: &Pool,
    sink: W,
    progress: &mut dyn FnMut(),
) -> Result<(W, Exported), ExportError> {
    let mut export = Export::begin(pool, sink, [], Some(clock::unix_time()))?;
    let (mut at, mut told) = (Progress::default(), 0);
    let ordered = export.ordered.clone();
    // Only a writer can ask for ranks.
    let mut count = |id: u64| {
        let mut records = ordered.iter().flat_map(|ordered| ordered.prefix(id.to_be_bytes()));
        records.try_fold(0, |count, record| record.map(|_| count + 1))
    };
    loop {
        let mut left = RECORDS_PER_SIGN;
        let is_complete = export.step(&mut at, None, &mut count, &mut || {
            left -= 1;
            left == 0
        })?;
        (told..export.seen).for_each(|_| progress());
        told = export.seen;
        if is_complete {
            return export.finish();
        }
    }
}

/// The databases of a pool on their way into a file, a step at a time.
pub(crate) struct Export<W: Write> {
    writer: Writer<W>,
    layout: Layout,
    databases: Vec<Source>,
    elements: Option<Map>,
    ordered: Option<Map>,
    lists: Option<Map>,
    /// The collection that is under way.
    piece: Option<Piece>,
    now_ms: u64,
    exported: Exported,
    /// Keys that were come to.
    pub(crate) seen: u64,
    /// The number of keys.
    pub(crate) total: u64,
}

/// A database that has keys.
struct Source {
    database: usize,
    data: Map,
    keys: u64,
    deadlines: u64,
    /// The number of its maps.
    maps: u8,
    is_begun: bool,
}

/// A large collection that is under way.
struct Piece {
    database: usize,
    place: Vec<u8>,
    kind: Kind,
    count: u64,
    /// Elements that were visited.
    found: u64,
}

impl<W: Write> Export<W> {
    /// Begins an export of the committed keys, with `aux` as further facts in the head of the file. With
    /// `now`, counted from the Unix epoch, keys that have expired by then are left out.
    pub(crate) fn begin<'a>(
        pool: &Pool,
        sink: W,
        aux: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        now: Option<Duration>,
    ) -> Result<Self, ExportError> {
        let mut writer = Writer::new(sink, Encodings::default())?;
        writer.aux(b"redis-ver", REDIS_VERSION.as_bytes())?;
        writer.aux(b"redis-bits", b"64")?;
        writer.aux(b"ctime", clock::unix_time().as_secs().to_string().as_bytes())?;
        aux.into_iter().try_for_each(|(name, value)| writer.aux(name, value))?;
        let (hidden, layout) = (hidden_maps(pool)?, Layout::of(pool)?);
        let mut databases = Vec::new();
        for (database, maps) in order(pool)?.iter().filter(|(_, maps)| hidden >> maps & 1 == 0) {
            let (data, expires) = layout.map_names(maps);
            let Some(data) = pool.find_map(&data)? else { continue };
            let deadlines = pool.find_map(&expires)?.map_or(Ok(0), |map| map.len())?;
            let keys = data.len()?;
            if keys > 0 {
                let maps = maps as u8;
                databases.push(Source { database, data, keys, deadlines, maps, is_begun: false });
            }
        }
        Ok(Export {
            writer,
            layout,
            total: databases.iter().map(|source| source.keys).sum(),
            databases,
            elements: pool.find_map(ELEMENTS)?,
            ordered: pool.find_map(ORDERED)?,
            lists: pool.find_map(LISTS)?,
            piece: None,
            now_ms: now.map_or(0, |now| now.as_millis() as u64),
            exported: Exported::default(),
            seen: 0,
        })
    }

    /// The numbers of the databases' maps, in the order of the walk.
    pub(crate) fn maps(&self) -> Vec<u8> {
        self.databases.iter().map(|source| source.maps).collect()
    }

    /// Writes keys and elements until `is_enough` says so, which is asked after each; returns whether that
    /// was all. `kept` has the records that were changed since the beginning, as they were; `count` tells how
    /// many members the sorted set of an id has now.
    pub(crate) fn step(
        &mut self,
        progress: &mut Progress,
        kept: Option<&Map>,
        count: &mut dyn FnMut(u64) -> Result<u64, tembo::Error>,
        is_enough: &mut dyn FnMut() -> bool,
    ) -> Result<bool, ExportError> {
        loop {
            if self.piece.is_some() && !self.go_on(progress, kept, is_enough)? {
                return Ok(false);
            }
            let Some(source) = self.databases.get_mut(progress.passed) else { return Ok(true) };
            if !std::mem::replace(&mut source.is_begun, true) {
                self.writer.database(source.database as u64, source.keys, source.deadlines)?;
            }
            if !self.keys(progress, kept, count, is_enough)? {
                return Ok(false);
            }
        }
    }

    /// Ends the file; returns the sink.
    pub(crate) fn finish(self) -> Result<(W, Exported), ExportError> {
        Ok((self.writer.finish()?, self.exported))
    }

    /// Writes keys of one database, up to a large collection; returns false if that is enough.
    fn keys(
        &mut self,
        progress: &mut Progress,
        kept: Option<&Map>,
        count: &mut dyn FnMut(u64) -> Result<u64, tembo::Error>,
        is_enough: &mut dyn FnMut() -> bool,
    ) -> Result<bool, ExportError> {
        let Export { writer, layout, databases, piece, now_ms, exported, seen, .. } = self;
        let Source { database, data, maps, .. } = &databases[progress.passed];
        let low = progress.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut records = Records::new((*maps, data), kept, (low, None))?;
        loop {
            let (mut place, mut large) = (Vec::new(), None);
            let visited = records.next(|at, value| {
                place.extend_from_slice(at);
                let stored = Stored::decode(value)?;
                *seen += 1;
                if stored.meta.deadline.is_some_and(|deadline| deadline <= *now_ms) {
                    exported.expired += 1;
                    return Ok(());
                }
                large = match stored.large() {
                    None => None,
                    Some((id, Some(count))) => Some((stored.meta.kind, id, count)),
                    Some((id, None)) => {
                        let count = kept_count(kept, id)?.map_or_else(|| count(id), Ok)?;
                        Some((stored.meta.kind, id, count))
                    }
                };
                write_key(writer, layout.key(at), &stored, large.map(|(_, _, count)| count))?;
                exported.keys.add(rdb_kind(stored.meta.kind));
                Ok(())
            });
            if !visited.map_err(|failure: Failure| failure.at(*database, layout.key(&place)))? {
                (progress.passed, progress.after) = (progress.passed + 1, None);
                return Ok(true);
            }
            progress.after = Some(place.clone());
            if let Some((kind, id, count)) = large {
                progress.under_way = Some((id, Vec::new()));
                *piece = Some(Piece { database: *database, place, kind, count, found: 0 });
                return Ok(true);
            }
            if is_enough() {
                return Ok(false);
            }
        }
    }

    /// Writes elements of the collection that is under way; returns false if that is enough before its end.
    fn go_on(
        &mut self,
        progress: &mut Progress,
        kept: Option<&Map>,
        is_enough: &mut dyn FnMut() -> bool,
    ) -> Result<bool, ExportError> {
        let Export { writer, layout, piece, elements, ordered, lists, .. } = self;
        let (Some(of), Some((id, after))) = (&mut *piece, &mut progress.under_way) else { return Ok(true) };
        let (number, map) = match of.kind {
            Kind::List => (LISTS_NUMBER, lists),
            Kind::SortedSet => (ORDERED_NUMBER, ordered),
            _ => (ELEMENTS_NUMBER, elements),
        };
        let (database, key) = (of.database, layout.key(&of.place).to_vec());
        let Some(map) = map else { return Err(Failure::Malformed.at(database, &key)) };
        let (begin, end) = (id.to_be_bytes(), id.saturating_add(1).to_be_bytes());
        let low = if after.is_empty() { Bound::Included(&begin[..]) } else { Bound::Excluded(&after[..]) };
        let mut records = Records::new((number, map), kept, (low, Some(&end)))?;
        while records
            .next(|at, value| {
                after.clear();
                after.extend_from_slice(at);
                write_elements(writer, of, at, value)
            })
            .map_err(|failure| failure.at(database, &key))?
        {
            if is_enough() {
                return Ok(false);
            }
        }
        if of.found != of.count {
            return Err(Failure::Malformed.at(database, &key));
        }
        writer.end()?;
        progress.end_collection();
        *piece = None;
        Ok(true)
    }
}

/// Which maps each database has.
fn order(pool: &Pool) -> Result<Order, ExportError> {
    let Some(list) = pool.find_map(COLLECTIONS)? else { return Ok(Order::default()) };
    read_order(list.get(ORDER)?.as_deref()).map_err(|_| ExportError::Order)
}

/// Writes a key with its value, or with no elements yet if it has a large collection, which has a count.
fn write_key<W: Write>(
    writer: &mut Writer<W>,
    name: &[u8],
    stored: &Stored<'_>,
    count: Option<u64>,
) -> Result<(), Failure> {
    let kind = stored.meta.kind;
    let deadline_ms = stored.meta.deadline.map(|deadline| i64::try_from(deadline).unwrap_or(i64::MAX));
    let meta = KeyMeta { deadline_ms, ..KeyMeta::default() };
    if kind == Kind::String {
        writer.begin(name, meta, rdb_kind(kind), 1)?;
        writer.element(Element::Text(stored.payload))?;
    } else if let Some(count) = count {
        return Ok(writer.begin(name, meta, rdb_kind(kind), count)?);
    } else {
        let packed = Packed::decode(kind, stored.payload)?;
        writer.begin(name, meta, rdb_kind(kind), packed.count() as u64)?;
        for (field, value) in packed.iter() {
            writer.element(element_of(kind, field, value)?)?;
        }
    }
    Ok(writer.end()?)
}

/// Writes the elements of one record of a large collection, unless there are more than its key counts.
fn write_elements<W: Write>(
    writer: &mut Writer<W>,
    of: &mut Piece,
    key: &[u8],
    value: &[u8],
) -> Result<(), Failure> {
    let Piece { kind, count, found, .. } = of;
    let mut write = |element: Element<'_>| {
        *found += 1;
        if *found > *count { Ok(()) } else { writer.element(element) }
    };
    match kind {
        Kind::List => {
            StoredChunk::read(key, value)?.elements().try_for_each(|item| write(Element::Item(item)))?
        }
        Kind::SortedSet => {
            let record = ordered::Decoded::read(key, value)?;
            let score = record.score.number();
            record.with_member(|member| write(Element::Scored { member, score }))?;
        }
        kind => {
            let record = element::Decoded::read(key, value)?;
            record.with_field(|field| Ok::<_, Failure>(write(element_of(*kind, field, record.value)?)?))?;
        }
    }
    Ok(())
}

fn element_of<'a>(kind: Kind, field: &'a [u8], value: &'a [u8]) -> Result<Element<'a>, Malformed> {
    Ok(match kind {
        Kind::String | Kind::List | Kind::Set => Element::Item(field),
        Kind::Hash => Element::Field { field, value, deadline_ms: None },
        Kind::SortedSet => Element::Scored { member: field, score: Score::read(value)?.number() },
    })
}
