//! The proof that large collections are sound: invariants I3 to I7 of [`format`](crate::keyspace::format).

use std::collections::{HashMap, HashSet};

use tembo::{Map, Pool};

use super::element::{Decoded, find_value};
use super::list::StoredChunk;
use super::ordered::{self, Score};
use super::position::{FIELD_BYTES_MAX, Secret};
use super::registry::Listed;
use crate::keyspace::check_report::{CheckError, CollectionsReport};
use crate::keyspace::format::{COLLECTIONS, DATABASES, ELEMENTS, Kind, LISTS, ORDERED};

/// The large collections that keys have.
#[derive(Debug, Default)]
pub(crate) struct Collections {
    by_id: HashMap<u64, Holder>,
}

#[derive(Debug)]
struct Holder {
    /// The number of the maps that have the key.
    maps: usize,
    kind: Kind,
    /// None: its value does not count.
    count: Option<u64>,
    listed: bool,
    found: u64,
    /// The records of a sorted set in order.
    ordered: u64,
}

fn wrong(place: impl Into<String>, what: impl Into<String>) -> CheckError {
    CheckError::Collection { place: place.into(), what: what.into() }
}

fn of_id(id: u64) -> String {
    format!("the collection of id {id}")
}

impl Collections {
    /// Notes the collection that a key's value names.
    pub(crate) fn note(
        &mut self,
        (database, maps): (usize, usize),
        kind: Kind,
        (id, count): (u64, Option<u64>),
        key: impl Fn() -> String,
    ) -> Result<(), CheckError> {
        let place = || format!("database {database}, key \"{}\"", key());
        if count == Some(0) {
            return Err(wrong(place(), "a large collection without elements"));
        }
        let holder = Holder { maps, kind, count, listed: false, found: 0, ordered: 0 };
        match self.by_id.insert(id, holder) {
            None => Ok(()),
            Some(_) => Err(wrong(place(), format!("id {id} is that of another key, too"))),
        }
    }

    /// Counts elements of an id.
    fn count(
        &mut self,
        report: &mut CollectionsReport,
        doomed: &HashSet<u64>,
        (id, count): (u64, u64),
        is_right: impl Fn(Kind) -> bool,
    ) -> Result<(), String> {
        match self.by_id.get_mut(&id) {
            Some(holder) if is_right(holder.kind) => {
                holder.found += count;
                report.elements += count;
                Ok(())
            }
            Some(holder) => Err(format!("its id {id} is that of a {}", holder.kind.name())),
            None if doomed.contains(&id) => {
                report.doomed_elements += count;
                Ok(())
            }
            None => Err(format!("no key has id {id}, and it is not doomed")),
        }
    }
}

/// The contents of "db.collections".
#[derive(Default)]
struct Lists {
    homes: HashMap<u64, usize>,
    doomed: HashSet<u64>,
    doomed_homes: HashSet<u64>,
    under_construction: u64,
    owned: Vec<(u64, u64)>,
    next: u64,
    secret: Option<Secret>,
}

fn read_lists(map: &Map) -> Result<Lists, CheckError> {
    let mut lists = Lists::default();
    for entry in map.iter() {
        let entry = entry?;
        let place = || format!("the list of collections, entry \"{}\"", entry.key().escape_ascii());
        match Listed::read(entry.key(), entry.value()).map_err(|_| wrong(place(), "malformed"))? {
            Listed::Home { maps, .. } if usize::from(maps) >= DATABASES => {
                return Err(wrong(place(), "there is no such database"));
            }
            Listed::Home { maps, home } => {
                if lists.homes.insert(home, maps.into()).is_some() {
                    return Err(wrong(place(), "the home of another database, too"));
                }
            }
            Listed::Owned { home, id } => lists.owned.push((home, id)),
            Listed::Doomed(id) => _ = lists.doomed.insert(id),
            Listed::DoomedHome(home) => _ = lists.doomed_homes.insert(home),
            Listed::UnderConstruction(id) => {
                lists.doomed.insert(id);
                lists.under_construction += 1;
            }
            Listed::Next(next) => lists.next = next,
            Listed::Order | Listed::Kept => {}
            Listed::Secret(secret) => lists.secret = Some(secret),
        }
    }
    Ok(lists)
}

/// Checks the list of collections and all elements against the keys.
pub(crate) fn check_collections(
    pool: &Pool,
    mut collections: Collections,
) -> Result<CollectionsReport, CheckError> {
    let Some(list) = pool.find_map(COLLECTIONS)? else {
        return match collections.by_id.keys().next() {
            Some(id) => Err(wrong(of_id(*id), "there is no list of collections")),
            None => Ok(CollectionsReport::default()),
        };
    };
    let mut lists = read_lists(&list)?;
    check_owned(&mut lists, &mut collections)?;
    let mut report = CollectionsReport {
        large: collections.by_id.len() as u64,
        doomed: lists.doomed.len() as u64 - lists.under_construction,
        under_construction: lists.under_construction,
        ..CollectionsReport::default()
    };
    if let Some(elements) = pool.find_map(ELEMENTS)? {
        let secret = lists.secret.ok_or_else(|| wrong("the list of collections", "it has no secret"))?;
        check_elements(&elements, secret, &lists.doomed, &mut collections, &mut report)?;
        if let Some(ordered) = pool.find_map(ORDERED)? {
            check_ordered((&elements, &ordered), secret, &lists.doomed, &mut collections)?;
        }
    }
    let unordered = |holder: &Holder| holder.kind == Kind::SortedSet && holder.ordered != holder.found;
    if let Some((id, holder)) = collections.by_id.iter().find(|(_, holder)| unordered(holder)) {
        let what = format!("{} members in order, of {} elements", holder.ordered, holder.found);
        return Err(wrong(of_id(*id), what));
    }
    if let Some(lists_of_chunks) = pool.find_map(LISTS)? {
        check_chunks(&lists_of_chunks, &lists.doomed, &mut collections, &mut report)?;
    }
    for (id, holder) in &collections.by_id {
        match holder.count {
            Some(count) if holder.found != count => {
                let what = format!("{} elements, where its key counts {count}", holder.found);
                return Err(wrong(of_id(*id), what));
            }
            None if holder.found == 0 => return Err(wrong(of_id(*id), "it has no elements")),
            _ => {}
        }
    }
    Ok(report)
}

/// Checks homes and ids. Ids of doomed homes are doomed from then on.
fn check_owned(lists: &mut Lists, collections: &mut Collections) -> Result<(), CheckError> {
    for &(home, id) in &lists.owned {
        let holder = collections.by_id.get_mut(&id);
        match (lists.homes.get(&home), holder) {
            (Some(maps), Some(holder)) if holder.maps == *maps => holder.listed = true,
            (None, None) if lists.doomed_homes.contains(&home) => _ = lists.doomed.insert(id),
            (Some(_), None) => return Err(wrong(of_id(id), "it is listed, and no key has it")),
            _ => {
                return Err(wrong(
                    of_id(id),
                    format!("it is listed under home {home}, which is not its own"),
                ));
            }
        }
    }
    if let Some((id, _)) = collections.by_id.iter().find(|(_, holder)| !holder.listed) {
        return Err(wrong(of_id(*id), "its home does not list it"));
    }
    if let Some(id) = lists.doomed.iter().find(|id| collections.by_id.contains_key(id)) {
        return Err(wrong(of_id(*id), "it is doomed or under construction, and a key has it"));
    }
    if let Some(home) = lists.doomed_homes.iter().find(|home| lists.homes.contains_key(home)) {
        return Err(wrong(format!("home {home}"), "it is doomed, and a database has it"));
    }
    let numbers = lists.homes.keys().chain(&lists.doomed_homes).chain(&lists.doomed);
    match numbers.chain(collections.by_id.keys()).find(|number| **number >= lists.next) {
        Some(number) => Err(wrong(of_id(*number), format!("the next id is {}", lists.next))),
        None => Ok(()),
    }
}

fn check_elements(
    elements: &Map,
    secret: Secret,
    doomed: &HashSet<u64>,
    collections: &mut Collections,
    report: &mut CollectionsReport,
) -> Result<(), CheckError> {
    for entry in elements.iter() {
        let entry = entry?;
        let start = &entry.key()[..entry.key().len().min(FIELD_BYTES_MAX)];
        let place = || format!("the element \"{}\"", start.escape_ascii());
        let element = Decoded::read(entry.key(), entry.value()).map_err(|_| wrong(place(), "malformed"))?;
        if !element.with_field(|field| element.is_placed(entry.key(), field, secret)) {
            return Err(wrong(place(), "not where its field belongs"));
        }
        collections
            .count(report, doomed, (element.id, 1), |kind| kind != Kind::List)
            .map_err(|what| wrong(place(), what))?;
    }
    Ok(())
}

fn check_chunks(
    chunks: &Map,
    doomed: &HashSet<u64>,
    collections: &mut Collections,
    report: &mut CollectionsReport,
) -> Result<(), CheckError> {
    for entry in chunks.iter() {
        let entry = entry?;
        let place = || format!("the chunk \"{}\" of a list", entry.key().escape_ascii());
        let chunk = StoredChunk::read(entry.key(), entry.value()).map_err(|_| wrong(place(), "malformed"))?;
        let (id, count) = chunk.check().map_err(|what| wrong(place(), what))?;
        collections
            .count(report, doomed, (id, count), |kind| kind == Kind::List)
            .map_err(|what| wrong(place(), what))?;
    }
    Ok(())
}

/// Checks that each record of "db.ordered" is that of an element with its score. As a member has one element,
/// it has one such record; where there are as many as elements, each has its own.
fn check_ordered(
    (elements, ordered): (&Map, &Map),
    secret: Secret,
    doomed: &HashSet<u64>,
    collections: &mut Collections,
) -> Result<(), CheckError> {
    for entry in ordered.iter() {
        let entry = entry?;
        let start = &entry.key()[..entry.key().len().min(FIELD_BYTES_MAX)];
        let place = || format!("the ordered member \"{}\"", start.escape_ascii());
        let record = ordered::Decoded::read(entry.key(), entry.value());
        let record = record.map_err(|_| wrong(place(), "malformed"))?;
        match collections.by_id.get_mut(&record.id) {
            Some(holder) if holder.kind == Kind::SortedSet => holder.ordered += 1,
            Some(_) => return Err(wrong(place(), "its collection is no sorted set")),
            None if doomed.contains(&record.id) => continue,
            None => {
                return Err(wrong(place(), format!("no key has id {}, and it is not doomed", record.id)));
            }
        }
        let member = record.with_member(<[u8]>::to_vec);
        if !record.is_placed(entry.key(), &member, secret) {
            return Err(wrong(place(), "not where its member belongs"));
        }
        let score = find_value(elements, secret, record.id, &member)?.map(|value| Score::read(&value));
        if score != Some(Ok(record.score)) {
            return Err(wrong(place(), "no element has this member with this score"));
        }
    }
    Ok(())
}
