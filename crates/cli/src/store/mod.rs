//! `tembo store`: the transactional stores of a pool.

mod bytes;
mod collecting;
mod copies;
mod import;
mod opened;
mod read;
mod time;
mod write;

use crate::args::{Place, SnapshotChoice, Store as Arguments, StoreAction, StoreSnapshot};
use crate::failure::{Failure, Kind, Outcome};
use crate::maps::note_unknown;
use crate::served::{Served, advise};
use crate::unclean;
use crate::unfinished::Unfinished;
pub(crate) use collecting::collect_all;
use opened::{Opened, Reached, no_store};
use serde::Serialize;
use tembo::store::{Retention, SnapshotReport, Store};
use tembo::{Durability, Options, Pool, Quoted};

/// The name of a store that is made without one.
const DEFAULT_NAME: &str = "store";

/// Runs the subcommand.
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
        StoreAction::Import { place, from_map: Some(map), keyspace, writing, .. } => {
            import::from_map(place, (map, keyspace.as_deref().unwrap_or(map)), writing)
        }
        StoreAction::Import { place, input, writing, create, .. } => {
            import::run(place, input.as_deref(), writing, *create)
        }
    }
}

/// The store that is to be read, of a pool that this process has opened.
fn find(pool: &Pool, place: &Place) -> Outcome<Store> {
    let names = pool.store_names()?;
    let name = name_in(names.clone(), place)?;
    pool.find_store(&name)?.ok_or_else(|| no_store(place, &name, &names))
}

/// The name of the store: the one that was given, or the only one that there is.
fn name_in(mut names: Vec<String>, place: &Place) -> Outcome<String> {
    if let Some(name) = &place.store {
        return Ok(name.clone());
    }
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

/// Opens a pool for writing and works in it. With `create`, an absent pool is made, and appears when the work
/// is done.
fn change<T>(
    place: &Place,
    (durability, create): (Durability, bool),
    work: impl FnOnce(&Pool) -> Outcome<T>,
) -> Outcome<T> {
    let options = Options::new().durability(durability).accept_unclean(place.accept_unclean);
    let path = &place.pool;
    if !create || path.symlink_metadata().is_ok() {
        let pool = unclean::open(&options, path).map_err(|failure| advise(path, failure))?;
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

/// Works in a store for writing: in a pool that is opened for this, or at the process that serves it, whose
/// choice of durability then holds. With `make`, an absent store is made.
fn change_store<T>(
    place: &Place,
    (durability, create, make): (Durability, bool, bool),
    work: impl Fn(&Opened) -> Outcome<T>,
) -> Outcome<T> {
    let outcome = change(place, (durability, create), |pool| {
        let name = name_in(pool.store_names()?, place)?;
        let store = if make { pool.open_store(&name)? } else { find(pool, place)? };
        let done = work(&Opened::Own(store.clone()))?;
        collecting::collect_due(&store);
        Ok(done)
    });
    match outcome {
        // Only opening the pool fails so.
        Err(failure) if failure.kind() == Kind::InUse => {
            work(&Reached::Served(Served::of(&place.pool, failure)?).find(place)?)
        }
        outcome => outcome,
    }
}

/// A snapshot that was read, each of its keys twice.
#[derive(Debug, Serialize)]
pub(crate) struct SnapshotSeen {
    pub(crate) store: String,
    snapshot: u64,
    keyspaces: u64,
    not_retained: u64,
    keys: u64,
    bytes: u64,
    /// The process that has the pool open, and has read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    read_by: Option<u32>,
}

/// Checks a snapshot of a store, which another process may serve.
pub(crate) fn check_snapshot(place: &Place, at: &SnapshotChoice) -> Outcome<SnapshotSeen> {
    let store = Reached::of(place)?.find(place)?;
    let SnapshotReport { number, keyspaces, not_retained, keys, bytes, .. } = store.check(Some(at))?;
    let (name, read_by) = (store.name().to_owned(), store.owner());
    Ok(SnapshotSeen { store: name, snapshot: number, keyspaces, not_retained, keys, bytes, read_by })
}

impl SnapshotSeen {
    /// Names and values for people.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![
            ("store", self.store.clone()),
            ("snapshot", format!("{}  {}", self.snapshot, time::of_number(self.snapshot))),
            ("keyspaces", self.keyspaces.to_string()),
        ];
        if self.not_retained > 0 {
            lines.push(("not read", format!("{} keyspaces do not retain the snapshot", self.not_retained)));
        }
        lines.push(("keys", self.keys.to_string()));
        if let Some(owner) = self.read_by {
            lines.push(("read by", format!("process {owner}, which has the pool open")));
        }
        lines
    }
}

/// The stores of a pool that another process serves, as they are described.
pub(crate) fn describe_served(served: Served) -> Outcome<Vec<StoreDescription>> {
    let reached = Reached::Served(served);
    let stores = reached.names()?.into_iter().map(|name| reached.open(&name));
    stores.filter_map(Outcome::transpose).map(|store| StoreDescription::of(&store?)).collect()
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
    /// Describes a store; reads no keys.
    pub(crate) fn of(store: &Opened) -> Outcome<StoreDescription> {
        let describe = |(name, retention)| KeyspaceDescription { name, retains: retains(retention) };
        let keyspaces = store.keyspaces()?.into_iter().map(describe).collect();
        let (name, snapshot) = (store.name().to_owned(), store.number()?);
        Ok(StoreDescription { name, snapshot, keyspaces, kept: kept(store)? })
    }

    /// Describes the store of this name of a pool that this process has opened.
    pub(crate) fn in_pool(pool: &Pool, name: &str) -> Outcome<StoreDescription> {
        let found = pool.find_store(name)?;
        let store = found.ok_or_else(|| Failure::Failed(format!("there is no store {}", Quoted(name))))?;
        StoreDescription::of(&Opened::Own(store))
    }

    /// A line about the store.
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
fn kept(store: &Opened) -> Outcome<Vec<KeptDescription>> {
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
