//! `tembo store`: the transactional stores of a pool.

mod bytes;
mod copies;
mod import;
mod read;
mod time;
mod write;

use crate::args::{Place, SnapshotChoice, Store as Arguments, StoreAction, StoreSnapshot};
use crate::failure::{Failure, Outcome};
use crate::maps::note_unknown;
use crate::unclean;
use crate::unfinished::Unfinished;
use serde::Serialize;
use std::time::SystemTime;
use tembo::store::{Keyspace, Retention, Snapshot, Store};
use tembo::{Durability, Options, Pool, Quoted};

/// The name of a store that is made without one.
const DEFAULT_NAME: &str = "store";

/// Does what was asked for.
pub(crate) fn run(arguments: &Arguments) -> Outcome {
    match &arguments.action {
        StoreAction::Ls { place, json } => read::ls(place, *json),
        StoreAction::Get { place, keyspace, key, reading, raw } => {
            read::get(place, (keyspace, key), reading, *raw)
        }
        StoreAction::Scan { place, keyspace, range, reading } => read::scan(place, keyspace, range, reading),
        StoreAction::History { place, keyspace, key, encoding, json } => {
            read::history(place, (keyspace, key), *encoding, *json)
        }
        StoreAction::Diff { place, from, to, keyspace, json } => {
            read::diff(place, (from, to.as_ref()), keyspace.as_deref(), *json)
        }
        StoreAction::Put { place, keyspace, key, value, value_file, encoding, writing, create } => {
            let value = match (value, value_file) {
                (Some(value), _) => bytes::of_argument(value, *encoding)?,
                (None, Some(path)) => write::value_of(path)?,
                (None, None) => return Err(Failure::Usage("no value was given".to_owned())),
            };
            let key = bytes::of_argument(key, *encoding)?;
            write::put(place, (keyspace, key, value), writing, *create)
        }
        StoreAction::Del { place, keyspace, key, encoding, writing } => {
            write::del(place, (keyspace, bytes::of_argument(key, *encoding)?), writing)
        }
        StoreAction::Snapshot { action } => match action {
            StoreSnapshot::List { place, json } => read::snapshots(place, *json),
            StoreSnapshot::Keep { place, name, at, writing } => {
                write::keep(place, name, at.as_ref(), writing)
            }
            StoreSnapshot::Delete { place, name, writing } => write::delete(place, name, writing),
        },
        StoreAction::Backup { place, file, at, since, json } => {
            copies::backup(place, file, (at.as_ref(), since.as_ref()), *json)
        }
        StoreAction::Restore { place, files, durability, create, json } => {
            copies::restore(place, files, (*durability, *create), *json)
        }
        StoreAction::Import { place, input, writing, create } => {
            import::run(place, input.as_deref(), writing, *create)
        }
    }
}

/// Opens a pool for reading.
fn to_read(place: &Place) -> Outcome<Pool> {
    let options = Options::new().read_only(true).accept_unclean(place.accept_unclean);
    unclean::open(&options, &place.pool)
}

/// The store that is to be read.
fn find(pool: &Pool, place: &Place) -> Outcome<Store> {
    let name = name_in(pool, place)?;
    match pool.find_store(&name)? {
        Some(store) => Ok(store),
        None => {
            let names = pool.store_names()?;
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Err(Failure::Failed(format!(
                "{}: there is no store {}; there is {there}",
                place.pool.display(),
                Quoted(&name)
            )))
        }
    }
}

/// The name of the store: the one that was given, or the only one that there is.
fn name_in(pool: &Pool, place: &Place) -> Outcome<String> {
    if let Some(name) = &place.store {
        return Ok(name.clone());
    }
    let mut names = pool.store_names()?;
    match names.len() {
        0 => Ok(DEFAULT_NAME.to_owned()),
        1 => Ok(names.remove(0)),
        _ => Err(Failure::Usage(format!(
            "{} has the stores {}; choose one with --store",
            place.pool.display(),
            names.join(", ")
        ))),
    }
}

/// Opens a pool for writing and works in it. With `create`, a pool that is not there is made, and appears
/// when the work is done.
fn change<T>(
    place: &Place,
    (durability, create): (Durability, bool),
    work: impl FnOnce(&Pool) -> Outcome<T>,
) -> Outcome<T> {
    let options = Options::new().durability(durability).accept_unclean(place.accept_unclean);
    let path = &place.pool;
    if !create || path.symlink_metadata().is_ok() {
        let pool = unclean::open(&options, path)?;
        note_unknown(&pool)?;
        return work(&pool);
    }
    let unfinished = Unfinished::new(path).map_err(Failure::at_file("creating", path))?;
    let pool = options.initial_bytes(0).create_in_file(unfinished.file(), path)?;
    let outcome = work(&pool)?;
    drop(pool);
    unfinished.publish(path).map_err(Failure::at_file("giving the new pool its name", path))?;
    Ok(outcome)
}

/// A keyspace that has to be there.
fn keyspace(store: &Store, name: &str) -> Outcome<Keyspace> {
    if let Some(keyspace) = store.find_keyspace(name).map_err(tembo::Error::from)? {
        return Ok(keyspace);
    }
    let names = store.keyspaces().map_err(tembo::Error::from)?;
    let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(Failure::Failed(format!("there is no keyspace {}; there is {there}", Quoted(name))))
}

/// The snapshot that was named, or the current one.
fn snapshot(store: &Store, at: Option<&SnapshotChoice>) -> Outcome<Snapshot> {
    let opened = match at {
        None => return Ok(store.snapshot()),
        Some(SnapshotChoice::Name(name)) => store.at_name(name),
        Some(SnapshotChoice::Number(number)) => store.at(*number),
        Some(SnapshotChoice::Ago(time)) => {
            store.at_time(SystemTime::now().checked_sub(*time).unwrap_or(SystemTime::UNIX_EPOCH))
        }
    };
    Ok(opened.map_err(tembo::Error::from)?)
}

impl From<tembo::store::Error> for Failure {
    fn from(error: tembo::store::Error) -> Failure {
        tembo::Error::from(error).into()
    }
}

/// A store as it is described.
#[derive(Debug, Serialize)]
pub(crate) struct StoreDescription {
    pub(crate) name: String,
    /// The number of the last commit.
    snapshot: u64,
    keyspaces: Vec<KeyspaceDescription>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kept: Vec<KeptDescription>,
}

#[derive(Debug, Serialize)]
struct KeyspaceDescription {
    name: String,
    retains: String,
}

#[derive(Debug, Serialize)]
struct KeptDescription {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    number: u64,
    time: String,
}

impl StoreDescription {
    /// Describes the store of this name; reads no keys.
    pub(crate) fn of(pool: &Pool, name: &str) -> Outcome<StoreDescription> {
        let found = pool.find_store(name)?;
        let store = found.ok_or_else(|| Failure::Failed(format!("there is no store {}", Quoted(name))))?;
        let mut keyspaces = Vec::new();
        for name in store.keyspaces()? {
            if let Some(keyspace) = store.find_keyspace(&name)? {
                keyspaces.push(KeyspaceDescription { name, retains: retains(keyspace.retention()) });
            }
        }
        let snapshot = store.snapshot().number();
        Ok(StoreDescription { name: name.to_owned(), snapshot, keyspaces, kept: kept(&store)? })
    }

    /// A line about it.
    pub(crate) fn summary(&self) -> String {
        let count = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let mut text = count(self.keyspaces.len(), "keyspace");
        if !self.kept.is_empty() {
            text = format!("{text}, {}", count(self.kept.len(), "kept snapshot"));
        }
        match self.snapshot {
            0 => text + ", no commits",
            number => format!("{text}, last commit {}", time::of_number(number)),
        }
    }

    /// A line for each keyspace and kept snapshot.
    pub(crate) fn lines(&self) -> Vec<String> {
        let keyspaces = self
            .keyspaces
            .iter()
            .map(|KeyspaceDescription { name, retains }| format!("keyspace {name}, retains {retains}"));
        keyspaces.chain(self.kept.iter().map(|kept| format!("snapshot {}", kept.text()))).collect()
    }
}

impl KeptDescription {
    fn text(&self) -> String {
        match &self.name {
            Some(name) => format!("{name}  {}  {}", self.number, self.time),
            None => format!("{}  {}", self.number, self.time),
        }
    }
}

/// The kept snapshots, from the oldest to the newest.
fn kept(store: &Store) -> Outcome<Vec<KeptDescription>> {
    let mut kept = store.kept()?;
    kept.sort_by_key(|kept| kept.number);
    let described = kept.into_iter().map(|kept| KeptDescription {
        name: kept.name,
        number: kept.number,
        time: time::of_number(kept.number),
    });
    Ok(described.collect())
}

fn retains(retention: Retention) -> String {
    match retention {
        Retention::None => "what snapshots need".to_owned(),
        Retention::Versions(count) => format!("{count} versions"),
        Retention::For(time) => format!("{} s", time.as_secs_f64()),
        Retention::All => "all versions".to_owned(),
        other => format!("{other:?}"),
    }
}
