//! Operations of a store as a crash scenario, with a model of what it has to hold.

use std::collections::BTreeMap;
use std::ops::Range;
use tembo_crashsim::Scenario;
use tembo_pmem::Region;
use tembo_pool::{Geometry, Pool};
use tembo_store::{Keyspace, Retention, Snapshot, Store, StorePlace, Transaction};

/// The last one retains every version, from the beginning.
pub(crate) const KEYSPACES: [&str; 3] = ["accounts", "journal", "audit"];
pub(crate) const AUDIT: usize = 2;
/// Keys are numbers below this.
pub(crate) const KEYS: u64 = 100;

pub(crate) type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

pub(crate) fn text(e: impl ToString) -> String {
    e.to_string()
}

/// A write: keyspace, key, and the length of the value, or none.
pub(crate) type Write = (usize, u64, Option<usize>);

#[derive(Debug, Clone)]
pub(crate) enum Op {
    Commit(Vec<Write>),
    /// A transaction that is begun before, and conflicts with, the one that is committed in it.
    Conflict(Write),
    /// Commits that are asked for together.
    Group(Vec<Vec<Write>>),
    /// A transaction that deletes a range of keys, and writes beside it.
    DeleteRange(usize, Range<u64>, Vec<Write>),
    /// Chooses what a keyspace retains; the last one stays as it is.
    Retain(usize, Retention),
    /// Keeps the current snapshot by its number, unless one is kept so.
    KeepNumber,
    DeleteNumber,
    Keep(&'static str),
    DeleteKept(&'static str),
    Collect(usize),
    /// Compacts the pool, all of it.
    Compact,
    /// Drops a keyspace and makes an empty one of its name.
    Renew(usize),
    /// A reader opens a snapshot, or closes the one that it has.
    Read(bool),
}

/// The current contents, and those of the kept snapshots.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Model {
    pub(crate) current: Contents,
    pub(crate) kept: BTreeMap<String, Contents>,
    /// The snapshot that is kept by its number.
    pub(crate) numbered: Option<Contents>,
    /// The versions of the keys of the keyspace that retains all, from the oldest on.
    pub(crate) audit: BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>,
}

pub(crate) struct State {
    pub(crate) pool: Pool,
    pub(crate) store: Store,
    pub(crate) reader: Option<Snapshot>,
}

pub(crate) struct Script {
    pub(crate) name: String,
    /// The operations of the setup.
    pub(crate) start: Vec<Op>,
    pub(crate) ops: Vec<Op>,
    pub(crate) continuation: Vec<Op>,
    pub(crate) bytes: u64,
}

pub(crate) fn key(i: u64) -> Vec<u8> {
    format!("key{i:03}").into_bytes()
}

pub(crate) fn value((keyspace, i, len): Write) -> Option<Vec<u8>> {
    len.map(|len| vec![(keyspace as u8) << 6 | (i + len as u64) as u8; len])
}

pub(crate) fn read(snapshot: &Snapshot, store: &Store) -> Result<Contents, String> {
    let mut all = Contents::new();
    for name in store.keyspaces().map_err(text)? {
        let keyspace = store.find_keyspace(&name).map_err(text)?.ok_or("no keyspace")?;
        let entries = snapshot.iter(&keyspace).map_err(text)?;
        let entries: BTreeMap<_, _> = entries.collect::<Result<_, _>>().map_err(text)?;
        for (key, value) in &entries {
            if snapshot.get(&keyspace, key).map_err(text)?.as_ref() != Some(value) {
                return Err(format!("{name}: a walk and a lookup differ"));
            }
        }
        all.insert(name, entries);
    }
    Ok(all)
}

impl State {
    pub(crate) fn new(pool: Pool) -> Result<State, String> {
        let state = State { store: Store::open(&pool, "store").map_err(text)?, pool, reader: None };
        (0..KEYSPACES.len()).try_for_each(|i| state.keyspace(i).map(drop))?;
        Ok(state)
    }

    pub(crate) fn keyspace(&self, i: usize) -> Result<Keyspace, String> {
        let retention = if i == AUDIT { Retention::All } else { Retention::None };
        self.store.keyspace_with(KEYSPACES[i], retention).map_err(text)
    }

    pub(crate) fn write(&self, tx: &mut Transaction, writes: &[Write]) -> Result<(), String> {
        for write in writes {
            let keyspace = self.keyspace(write.0)?;
            match value(*write) {
                Some(value) => tx.put(&keyspace, key(write.1), value).map_err(text)?,
                None => tx.delete(&keyspace, key(write.1)).map_err(text)?,
            }
        }
        Ok(())
    }

    pub(crate) fn commit(&self, writes: &[Write]) -> Result<(), String> {
        let mut tx = self.store.begin();
        self.write(&mut tx, writes)?;
        tx.commit().map(drop).map_err(text)
    }

    pub(crate) fn commit_together(&self, group: &[Vec<Write>]) -> Result<(), String> {
        let mut commits = Vec::new();
        for writes in group {
            let mut tx = self.store.begin();
            self.write(&mut tx, writes)?;
            commits.push(tx.commit_async());
        }
        commits.into_iter().try_for_each(|commit| commit.wait().map(drop).map_err(text))
    }

    pub(crate) fn delete_range(&self, i: usize, keys: &Range<u64>, writes: &[Write]) -> Result<(), String> {
        let mut tx = self.store.begin();
        tx.delete_range(&self.keyspace(i)?, key(keys.start)..key(keys.end)).map_err(text)?;
        self.write(&mut tx, writes)?;
        tx.commit().map(drop).map_err(text)
    }

    /// Compacts the pool; returns the moved bytes.
    pub(crate) fn compact(&self) -> Result<u64, String> {
        let compaction = self.pool.compaction().map_err(text)?.ok_or("a compaction is under way")?;
        let (mut place, mut moved_bytes) = (Some(StorePlace::default()), 0);
        while let Some(at) = place {
            let step = self.store.compact_at(&compaction, &at).map_err(text)?;
            (place, moved_bytes) = (step.next, moved_bytes + step.moved_bytes);
        }
        drop(compaction);
        self.pool.trim().map_err(text)?;
        Ok(moved_bytes)
    }

    /// The number of the snapshot that is kept by its number.
    pub(crate) fn numbered(&self) -> Result<Option<u64>, String> {
        let kept = self.store.kept().map_err(text)?;
        Ok(kept.into_iter().find(|kept| kept.name.is_none()).map(|kept| kept.number))
    }

    /// The versions of all keys of a keyspace.
    pub(crate) fn versions(&self, i: usize) -> Result<BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>, String> {
        let keyspace = self.keyspace(i)?;
        let mut all = BTreeMap::new();
        for key in (0..KEYS).map(key) {
            let versions = self.store.versions(&keyspace, &key).map_err(text)?;
            if !versions.is_empty() {
                all.insert(key, versions.into_iter().rev().map(|version| version.value).collect());
            }
        }
        Ok(all)
    }
}

impl Model {
    pub(crate) fn write(&mut self, write: Write) {
        let (key, value) = (key(write.1), value(write));
        let keyspace = self.current.get_mut(KEYSPACES[write.0]).unwrap();
        let is_change = value.is_some() || keyspace.contains_key(&key);
        match value.clone() {
            Some(value) => _ = keyspace.insert(key.clone(), value),
            None => _ = keyspace.remove(&key),
        }
        if is_change && write.0 == AUDIT {
            self.audit.entry(key).or_default().push(value);
        }
    }

    pub(crate) fn writes(&mut self, writes: &[Write]) {
        // A transaction has one version of each key, the last one.
        let last = |i: usize| writes[i + 1..].iter().all(|w| (w.0, w.1) != (writes[i].0, writes[i].1));
        (0..writes.len()).filter(|i| last(*i)).for_each(|i| self.write(writes[i]));
    }
}

impl Scenario for Script {
    type State = State;
    type Op = Op;
    type Model = Model;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn region_bytes(&self) -> u64 {
        self.bytes
    }

    fn is_uncreated(&self, region: &Region) -> bool {
        region.load_u64(0) == Ok(0)
    }

    fn setup(&self, region: Region) -> Result<State, String> {
        let mut state = State::new(Pool::create_in(region, &Geometry::tiny()).map_err(text)?)?;
        self.start.iter().try_for_each(|op| self.apply(&mut state, op))?;
        Ok(state)
    }

    fn recover(&self, region: Region) -> Result<State, String> {
        State::new(Pool::open_in(region).map_err(text)?)
    }

    fn region<'s>(&self, state: &'s State) -> &'s Region {
        state.pool.region()
    }

    fn ops(&self) -> &[Op] {
        &self.ops
    }

    fn continuation(&self) -> &[Op] {
        &self.continuation
    }

    fn apply(&self, state: &mut State, op: &Op) -> Result<(), String> {
        let store = &state.store;
        match op {
            Op::Commit(writes) => state.commit(writes),
            Op::Group(group) => state.commit_together(group),
            Op::DeleteRange(i, keys, writes) => state.delete_range(*i, keys, writes),
            Op::Retain(i, retention) => {
                let keyspace = state.keyspace(*i)?;
                store.set_retention(&keyspace, *retention).map_err(text)
            }
            Op::KeepNumber => match state.numbered()? {
                None => store.keep_number(store.snapshot().number()).map(drop).map_err(text),
                Some(_) => Ok(()),
            },
            Op::DeleteNumber => match state.numbered()? {
                Some(number) => store.delete_number(number).map(drop).map_err(text),
                None => Ok(()),
            },
            Op::Conflict(write) => {
                let keyspace = state.keyspace(write.0)?;
                let mut late = store.begin();
                late.put(&keyspace, key(write.1), "late").map_err(text)?;
                late.put(&keyspace, "beside it", "late").map_err(text)?;
                state.commit(&[*write])?;
                match late.commit() {
                    Err(e) if e.is_conflict() => Ok(()),
                    other => Err(format!("no conflict, but {other:?}")),
                }
            }
            Op::Keep(name) => match store.keep(store.snapshot().number(), name) {
                Err(tembo_store::Error::SnapshotExists { .. }) => Ok(()),
                outcome => outcome.map_err(text),
            },
            Op::DeleteKept(name) => match store.delete_kept(name) {
                Err(tembo_store::Error::NoSuchSnapshot { .. }) => Ok(()),
                outcome => outcome.map_err(text),
            },
            Op::Renew(keyspace) => {
                store.drop_keyspace(KEYSPACES[*keyspace]).map_err(text)?;
                state.keyspace(*keyspace).map(drop)
            }
            Op::Collect(tables) => store.collect(*tables).map(drop).map_err(text),
            Op::Compact => state.compact().map(drop),
            Op::Read(open) => {
                state.reader = open.then(|| store.snapshot());
                Ok(())
            }
        }
    }

    fn initial(&self) -> Model {
        let current = KEYSPACES.map(|name| (name.to_owned(), BTreeMap::new())).into();
        let mut model = Model { current, ..Model::default() };
        self.start.iter().for_each(|op| self.apply_model(&mut model, op));
        model
    }

    /// The first ones of commits that are asked for together may be durable before the others.
    fn between(&self, before: &Model, op: &Op) -> Vec<Model> {
        let Op::Group(group) = op else { return Vec::new() };
        let mut model = before.clone();
        let mut states = Vec::new();
        for writes in &group[..group.len() - 1] {
            model.writes(writes);
            states.push(model.clone());
        }
        states
    }

    fn apply_model(&self, model: &mut Model, op: &Op) {
        match op {
            Op::Commit(writes) => model.writes(writes),
            Op::Group(group) => group.iter().for_each(|writes| model.writes(writes)),
            Op::Conflict(write) => model.write(*write),
            Op::DeleteRange(i, keys, writes) => {
                let deleted =
                    keys.clone().filter(|number| !writes.iter().any(|w| (w.0, w.1) == (*i, *number)));
                deleted.for_each(|number| model.write((*i, number, None)));
                model.writes(writes);
            }
            Op::KeepNumber => _ = model.numbered.get_or_insert_with(|| model.current.clone()),
            Op::DeleteNumber => model.numbered = None,
            Op::Keep(name) => _ = model.kept.entry((*name).to_owned()).or_insert(model.current.clone()),
            Op::DeleteKept(name) => _ = model.kept.remove(*name),
            Op::Renew(keyspace) => {
                let name = KEYSPACES[*keyspace];
                let others = model.kept.values_mut().chain(&mut model.numbered);
                if *keyspace == AUDIT {
                    model.audit.clear();
                }
                std::iter::once(&mut model.current)
                    .chain(others)
                    .for_each(|contents| _ = contents.insert(name.to_owned(), BTreeMap::new()));
            }
            Op::Collect(_) | Op::Compact | Op::Read(_) | Op::Retain(..) => {}
        }
    }

    fn observe(&self, state: &State) -> Result<Model, String> {
        let mut kept = BTreeMap::new();
        for one in state.store.kept().map_err(text)? {
            let Some(name) = one.name else { continue };
            kept.insert(name.clone(), read(&state.store.at_name(&name).map_err(text)?, &state.store)?);
        }
        let numbered = match state.numbered()? {
            Some(number) => Some(read(&state.store.at(number).map_err(text)?, &state.store)?),
            None => None,
        };
        let current = read(&state.store.snapshot(), &state.store)?;
        Ok(Model { current, kept, numbered, audit: state.versions(AUDIT)? })
    }

    fn check(&self, state: &State) -> Result<(), String> {
        let mut marks = state.pool.marks().map_err(text)?;
        state.store.check(&mut marks).map_err(text)?;
        marks.finish().map(drop).map_err(text)
    }
}
