//! The databases of a pool as a file of Redis.

use std::io::{self, Write};
use std::time::SystemTime;

use tembo::{Map, Pool};
use tembo_rdb::{Element, Encodings, KeyMeta, Writer};

use crate::commands::dump::rdb_kind;
use crate::import::KindCounts;
use crate::info::REDIS_VERSION;
use crate::keyspace::collection::list::StoredChunk;
use crate::keyspace::collection::ordered::Score;
use crate::keyspace::collection::packed::Packed;
use crate::keyspace::collection::registry::ORDER;
use crate::keyspace::collection::{element, ordered};
use crate::keyspace::format::{COLLECTIONS, ELEMENTS, LISTS, Malformed, ORDERED, Order};
use crate::keyspace::replication::hidden_maps;
use crate::keyspace::slots::Layout;
use crate::keyspace::swap::read_order;
use crate::keyspace::{Kind, Stored};

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

/// Writes all keys of a pool's databases as a file that Redis 7.0 and later versions load; `progress` is told
/// of each key. The pool may be open for reading only, and must have no writer meanwhile.
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
    export_with(pool, sink, [], progress)
}

/// [`export`], with more facts in the head of the file.
pub(crate) fn export_with<'a, W: Write>(
    pool: &Pool,
    sink: W,
    aux: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    progress: &mut dyn FnMut(),
) -> Result<(W, Exported), ExportError> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut writer = Writer::new(sink, Encodings::default())?;
    writer.aux(b"redis-ver", REDIS_VERSION.as_bytes())?;
    writer.aux(b"redis-bits", b"64")?;
    writer.aux(b"ctime", now.as_secs().to_string().as_bytes())?;
    aux.into_iter().try_for_each(|(name, value)| writer.aux(name, value))?;
    let (elements, ordered, lists) =
        (pool.find_map(ELEMENTS)?, pool.find_map(ORDERED)?, pool.find_map(LISTS)?);
    let mut exporting = Exporting { writer, elements, ordered, lists };
    let mut exported = Exported::default();
    let (hidden, layout) = (hidden_maps(pool)?, Layout::of(pool)?);
    for (number, maps) in order(pool)?.iter().filter(|(_, maps)| hidden >> maps & 1 == 0) {
        let (data, expires) = layout.map_names(maps);
        let Some(data) = pool.find_map(&data)? else { continue };
        let deadlines = pool.find_map(&expires)?.map_or(Ok(0), |map| map.len())?;
        if data.len()? == 0 {
            continue;
        }
        exporting.writer.database(number as u64, data.len()?, deadlines)?;
        for entry in data.iter() {
            let entry = entry?;
            let key = layout.key(entry.key());
            let malformed =
                || ExportError::Malformed { database: number, key: key.escape_ascii().to_string() };
            let stored = Stored::decode(entry.value()).map_err(|_| malformed())?;
            progress();
            if stored.meta.deadline.is_some_and(|deadline| deadline <= now.as_millis() as u64) {
                exported.expired += 1;
                continue;
            }
            exporting.key(key, &stored).map_err(|failure| match failure {
                Failure::File(error) => ExportError::File(error),
                Failure::Pool(error) => ExportError::Pool(error),
                Failure::Malformed => malformed(),
            })?;
            exported.keys.add(rdb_kind(stored.meta.kind));
        }
    }
    Ok((exporting.writer.finish()?, exported))
}

/// Which maps each database has.
fn order(pool: &Pool) -> Result<Order, ExportError> {
    let Some(list) = pool.find_map(COLLECTIONS)? else { return Ok(Order::default()) };
    read_order(list.get(ORDER)?.as_deref()).map_err(|_| ExportError::Order)
}

struct Exporting<W: Write> {
    writer: Writer<W>,
    elements: Option<Map>,
    ordered: Option<Map>,
    lists: Option<Map>,
}

impl<W: Write> Exporting<W> {
    fn key(&mut self, name: &[u8], stored: &Stored<'_>) -> Result<(), Failure> {
        let kind = stored.meta.kind;
        let meta = KeyMeta {
            deadline_ms: stored.meta.deadline.map(|deadline| i64::try_from(deadline).unwrap_or(i64::MAX)),
            ..KeyMeta::default()
        };
        if kind == Kind::String {
            self.writer.begin(name, meta, rdb_kind(kind), 1)?;
            self.writer.element(Element::Text(stored.payload))?;
        } else if let Some((id, count)) = stored.large() {
            self.writer.begin(name, meta, rdb_kind(kind), count)?;
            if self.large(kind, id, count)? != count {
                return Err(Failure::Malformed);
            }
        } else {
            let packed = Packed::decode(kind, stored.payload)?;
            self.writer.begin(name, meta, rdb_kind(kind), packed.count() as u64)?;
            for (field, value) in packed.iter() {
                self.writer.element(element_of(kind, field, value)?)?;
            }
        }
        Ok(self.writer.end()?)
    }

    /// Writes up to `count` elements of a large collection; returns how many there are.
    fn large(&mut self, kind: Kind, id: u64, count: u64) -> Result<u64, Failure> {
        let map = match kind {
            Kind::List => &self.lists,
            Kind::SortedSet => &self.ordered,
            _ => &self.elements,
        };
        let (mut found, writer) = (0, &mut self.writer);
        let mut write = |element: Element<'_>| {
            found += 1;
            if found > count { Ok(()) } else { writer.element(element) }
        };
        for entry in map.as_ref().ok_or(Failure::Malformed)?.prefix(id.to_be_bytes()) {
            let entry = entry?;
            let (key, value) = (entry.key(), entry.value());
            match kind {
                Kind::List => {
                    StoredChunk::read(key, value)?
                        .elements()
                        .try_for_each(|item| write(Element::Item(item)))?;
                }
                Kind::SortedSet => {
                    let record = ordered::Decoded::read(key, value)?;
                    let score = record.score.number();
                    record.with_member(|member| write(Element::Scored { member, score }))?;
                }
                kind => {
                    let record = element::Decoded::read(key, value)?;
                    record.with_field(|field| {
                        Ok::<_, Failure>(write(element_of(kind, field, record.value)?)?)
                    })?;
                }
            }
        }
        Ok(found)
    }
}

fn element_of<'a>(kind: Kind, field: &'a [u8], value: &'a [u8]) -> Result<Element<'a>, Malformed> {
    Ok(match kind {
        Kind::String | Kind::List | Kind::Set => Element::Item(field),
        Kind::Hash => Element::Field { field, value, deadline_ms: None },
        Kind::SortedSet => Element::Scored { member: field, score: Score::read(value)?.number() },
    })
}
