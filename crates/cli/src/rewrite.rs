//! `tembo compact --into`: a fresh pool with everything that a pool holds, without its holes.
//!
//! The source is opened for reading only, so it stays as it is whatever happens. The new pool is filled
//! without a name, compared with the source, checked, and gets its name when all of it is on the device
//! (`unfinished`). An interrupted run leaves nothing behind, or a file that the next run to the same name
//! takes away.
//!
//! Maps that keep versions, and hash tables, get each named snapshot, oldest first, and then their newest
//! version; their versions have other numbers there. Stores and heaps are copied as they lie: a store with
//! all its versions, numbers and its log, a heap with its shared objects. After the comparison the copy of a
//! store gives up what nobody needs, and everything is compared again: of a store, its keyspaces, and what
//! they show now and in each kept snapshot.

use crate::args::Compact;
use crate::compact::collect_and_compact;
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use crate::report::{print, print_json};
use crate::size::human_bytes;
use crate::unfinished::Unfinished;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use tembo::store::Store;
use tembo::{
    FixedMap, HashTable, Kind, Listed, Map, MapOptions, Options, Pool, Quoted, Snapshot, TableSnapshot,
};

/// Most entries that go into a map together.
const GROUP_ENTRIES: usize = 64;
/// After this many bytes the entries go into the map, however few they are.
const GROUP_BYTES: usize = 1 << 20;
/// The names that a pool has room for, unless its source has more.
const NAMES_MIN: u32 = 128;

#[derive(Debug, Serialize)]
struct Rewritten {
    structures: usize,
    entries: u64,
    source_bytes: u64,
    pool_bytes: u64,
}

/// Rewrites the pool into a new one.
pub(crate) fn run(arguments: &Compact, into: &Path) -> Outcome {
    if into.symlink_metadata().is_ok() {
        let into = into.display();
        return Err(Failure::Failed(format!("{into} exists already; choose another path")));
    }
    let source = Options::new().read_only(true).open(&arguments.pool)?;
    let listed = source.list()?;
    listed.iter().try_for_each(|listed| refuse(&listed.name, &listed.kind))?;
    let unfinished = Unfinished::new(into).map_err(Failure::at_file("creating", into))?;
    let names = (listed.len() as u32).max(source.root_count()).max(NAMES_MIN);
    let options = Options::new().durability(arguments.durability).initial_bytes(0).root_count(names);
    let target = options.create_in_file(unfinished.file(), into)?;
    let mut rewriting = Rewriting { source, target, entries: 0, progress: Progress::new("copying", None) };
    for listed in &listed {
        rewriting.copy(&listed.name, &listed.kind)?;
    }
    rewriting.verify_and_collect(&listed)?;
    let report = rewriting.verify_and_publish(&listed, unfinished, into)?;
    if arguments.json {
        return print_json(&report);
    }
    print(&format!(
        "{}: {} entries in {}, which were {}\n",
        into.display(),
        report.entries,
        human_bytes(report.pool_bytes),
        human_bytes(report.source_bytes)
    ))
}

/// Refuses what cannot be copied as a whole.
fn refuse(name: &str, kind: &Kind) -> Outcome {
    match kind {
        Kind::Map | Kind::VersionedMap | Kind::HashTable | Kind::FixedMap | Kind::Store | Kind::Heap => {
            Ok(())
        }
        _ => {
            let name = Quoted(name);
            let why = "is of a kind that this program does not know; use a newer Tembo. Nothing was made";
            Err(Failure::Failed(format!("{name} {why}")))
        }
    }
}

struct Rewriting {
    source: Pool,
    target: Pool,
    entries: u64,
    progress: Progress,
}

/// A structure of byte strings.
enum Bytes {
    Map(Map),
    Table(HashTable),
}

/// Its contents as of one version.
enum View {
    Map(Snapshot),
    Table(TableSnapshot),
}

/// A key, and its value unless it is to be removed.
type Edit = (Vec<u8>, Option<Vec<u8>>);

impl Bytes {
    fn find(pool: &Pool, name: &str, kind: &Kind) -> tembo::Result<Option<Bytes>> {
        match kind {
            Kind::HashTable => Ok(pool.find_hash_table(name)?.map(Bytes::Table)),
            _ => Ok(pool.find_map(name)?.map(Bytes::Map)),
        }
    }

    fn create(pool: &Pool, name: &str, like: &Bytes) -> tembo::Result<Bytes> {
        match like {
            Bytes::Table(_) => pool.open_hash_table(name).map(Bytes::Table),
            Bytes::Map(map) if map.is_versioned() => {
                pool.open_map_with(name, MapOptions::new().versioned(true)).map(Bytes::Map)
            }
            Bytes::Map(map) => {
                pool.open_map_with(name, MapOptions::new().counting(map.counting())).map(Bytes::Map)
            }
        }
    }

    /// The names of its snapshots, the oldest first; none if it keeps no versions.
    fn kept(&self) -> tembo::Result<Vec<String>> {
        let mut kept = match self {
            Bytes::Map(map) if map.is_versioned() => map.snapshots()?,
            Bytes::Map(_) => Vec::new(),
            Bytes::Table(table) => table.snapshots(),
        };
        kept.sort_by(|a, b| (a.version, &a.name).cmp(&(b.version, &b.name)));
        Ok(kept.into_iter().map(|kept| kept.name).collect())
    }

    fn keep(&self, name: &str) -> tembo::Result<()> {
        match self {
            Bytes::Map(map) => map.snapshot()?.keep(name),
            Bytes::Table(table) => table.snapshot().keep(name),
        }
    }

    /// A snapshot by its name, or the newest version. Of a map without versions there is none.
    fn view(&self, name: Option<&str>) -> tembo::Result<View> {
        Ok(match (self, name) {
            (Bytes::Map(map), Some(name)) => View::Map(map.open_snapshot(name)?),
            (Bytes::Map(map), None) => View::Map(map.snapshot()?),
            (Bytes::Table(table), Some(name)) => View::Table(table.open_snapshot(name)?),
            (Bytes::Table(table), None) => View::Table(table.snapshot()),
        })
    }

    fn write(&self, pool: &Pool, edits: &mut Vec<Edit>) -> tembo::Result<()> {
        match self {
            _ if edits.is_empty() => Ok(()),
            Bytes::Map(map) => {
                let mut batch = pool.batch()?;
                for (key, value) in edits.drain(..) {
                    match value {
                        Some(value) => _ = batch.put(map, &key, &value)?,
                        None => _ = batch.remove(map, &key)?,
                    }
                }
                batch.commit()
            }
            Bytes::Table(table) => table.batch(|batch| {
                for (key, value) in edits.drain(..) {
                    match value {
                        Some(value) => _ = batch.put(key, value)?,
                        None => _ = batch.remove(key)?,
                    }
                }
                Ok(())
            }),
        }
    }
}

impl View {
    fn len(&self) -> u64 {
        match self {
            View::Map(snapshot) => snapshot.len(),
            View::Table(snapshot) => snapshot.len(),
        }
    }

    fn has(&self, key: &[u8], value: &[u8]) -> tembo::Result<bool> {
        let found = match self {
            View::Map(snapshot) => snapshot.get(key)?,
            View::Table(snapshot) => snapshot.get(key)?,
        };
        Ok(found.is_some_and(|found| *found == *value))
    }

    fn for_each(&self, mut visit: impl FnMut(&[u8], &[u8]) -> Outcome) -> Outcome {
        match self {
            View::Map(snapshot) => visit_all(snapshot.iter(), &mut visit),
            View::Table(snapshot) => visit_all(snapshot.iter(), &mut visit),
        }
    }

    /// The changes from another view of the same structure to this one.
    fn edits_since(&self, before: &View) -> tembo::Result<Vec<Edit>> {
        let changes = match (before, self) {
            (View::Map(before), View::Map(after)) => before.diff(after)?,
            (View::Table(before), View::Table(after)) => before.diff(after)?,
            _ => unreachable!("views of one structure"),
        };
        Ok(changes.into_iter().map(|change| (change.key, change.after)).collect())
    }
}

fn visit_all<'e>(
    mut entries: impl Iterator<Item = tembo::Result<tembo::Entry<'e>>>,
    visit: &mut impl FnMut(&[u8], &[u8]) -> Outcome,
) -> Outcome {
    entries.try_for_each(|entry| {
        let entry = entry?;
        visit(entry.key(), entry.value())
    })
}

impl Rewriting {
    /// Compares the copy with the source; then its stores give up what nobody needs. The source stays as it
    /// is, so a copy has that, too.
    fn verify_and_collect(&mut self, listed: &[Listed]) -> Outcome {
        self.progress = Progress::new("comparing", None);
        self.compare(listed, Stores::Whole)?;
        if has_store(listed) {
            collect_and_compact(&self.target)?;
        }
        Ok(())
    }

    /// Gives the copy its name, once it was compared again, if it was changed, and checked.
    fn verify_and_publish(
        mut self,
        listed: &[Listed],
        unfinished: Unfinished,
        into: &Path,
    ) -> Outcome<Rewritten> {
        if has_store(listed) {
            self.compare(listed, Stores::Collected)?;
        }
        let Rewriting { source, target, entries, progress } = self;
        drop(progress);
        target.check()?;
        target.cut(1, 0)?;
        let (source_bytes, pool_bytes) = (source.stats().pool_bytes, target.stats().pool_bytes);
        drop(target);
        unfinished.publish(into).map_err(Failure::at_file("giving the new pool its name", into))?;
        Ok(Rewritten { structures: listed.len(), entries, source_bytes, pool_bytes })
    }

    fn compare(&mut self, listed: &[Listed], stores: Stores) -> Outcome {
        for Listed { name, kind, .. } in listed {
            if !self.is_equal(name, kind, stores)? {
                let name = Quoted(name);
                return Err(Failure::Failed(format!("{name} is not the same in the copy; nothing was made")));
            }
        }
        Ok(())
    }

    fn gone(name: &str) -> Failure {
        Failure::Failed(format!("{} is not there any more", Quoted(name)))
    }

    fn copy(&mut self, name: &str, kind: &Kind) -> Outcome {
        match kind {
            Kind::FixedMap => {
                let (from, to) = (self.fixed(name)?, self.target.open_fixed_map(name)?);
                for entry in from.iter() {
                    let (key, value) = entry?;
                    to.put(key, value)?;
                    self.note();
                }
                Ok(())
            }
            Kind::Store => {
                let Rewriting { source, target, entries, progress } = self;
                let note = |keys| {
                    *entries += keys;
                    progress.advance(keys);
                };
                Ok(source.copy_store(name, target, note).map(drop)?)
            }
            Kind::Heap => {
                let Rewriting { source, target, progress, .. } = self;
                Ok(source.copy_heap(target, |objects| progress.advance(objects))?)
            }
            _ => self.copy_bytes(name, kind),
        }
    }

    fn fixed(&self, name: &str) -> Outcome<FixedMap> {
        self.source.find_fixed_map(name)?.ok_or_else(|| Self::gone(name))
    }

    fn note(&mut self) {
        self.entries += 1;
        self.progress.advance(1);
    }

    fn copy_bytes(&mut self, name: &str, kind: &Kind) -> Outcome {
        let from = Bytes::find(&self.source, name, kind)?.ok_or_else(|| Self::gone(name))?;
        let to = Bytes::create(&self.target, name, &from)?;
        if let Bytes::Map(map) = &from
            && !map.is_versioned()
        {
            return self
                .copy_entries(&to, |visit| visit_all(map.iter(), &mut |key, value| visit(key, value)));
        }
        let mut last: Option<View> = None;
        let kept = from.kept()?;
        for snapshot in kept.iter().map(Some).chain([None]) {
            let view = from.view(snapshot.map(String::as_str))?;
            match &last {
                None => self.copy_entries(&to, |visit| view.for_each(|key, value| visit(key, value)))?,
                Some(last) => {
                    let edits = view.edits_since(last)?;
                    for group in edits.chunks(GROUP_ENTRIES) {
                        group.iter().for_each(|_| self.note());
                        to.write(&self.target, &mut group.to_vec())?;
                    }
                }
            }
            if let Some(name) = snapshot {
                to.keep(name)?;
            }
            last = Some(view);
        }
        Ok(())
    }

    /// Copies all entries that `walk` visits, many at a time.
    fn copy_entries(
        &mut self,
        to: &Bytes,
        walk: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]) -> Outcome) -> Outcome,
    ) -> Outcome {
        let (mut gathered, mut bytes) = (Vec::new(), 0);
        walk(&mut |key, value| {
            bytes += key.len() + value.len();
            gathered.push((key.to_vec(), Some(value.to_vec())));
            self.note();
            if gathered.len() >= GROUP_ENTRIES || bytes >= GROUP_BYTES {
                to.write(&self.target, &mut gathered)?;
                bytes = 0;
            }
            Ok(())
        })?;
        Ok(to.write(&self.target, &mut gathered)?)
    }

    /// Whether the copy of a structure has the same contents, both ways.
    fn is_equal(&mut self, name: &str, kind: &Kind, stores: Stores) -> Outcome<bool> {
        match kind {
            Kind::FixedMap => {
                let Some(to) = self.target.find_fixed_map(name)? else { return Ok(false) };
                are_equal(self.fixed(name)?.iter(), to.iter(), |a, b| a == b)
            }
            Kind::Store => self.is_store_equal(name, stores),
            Kind::Heap => Ok(self.source.has_same_heap(&self.target)?),
            _ => self.are_bytes_equal(name, kind),
        }
    }

    fn are_bytes_equal(&mut self, name: &str, kind: &Kind) -> Outcome<bool> {
        let from = Bytes::find(&self.source, name, kind)?.ok_or_else(|| Self::gone(name))?;
        let Some(to) = Bytes::find(&self.target, name, kind)? else { return Ok(false) };
        if let (Bytes::Map(from), Bytes::Map(to)) = (&from, &to)
            && !from.is_versioned()
        {
            let same =
                |a: &tembo::Entry<'_>, b: &tembo::Entry<'_>| a.key() == b.key() && a.value() == b.value();
            return Ok(from.counting() == to.counting() && are_equal(from.iter(), to.iter(), same)?);
        }
        let kept = from.kept()?;
        if kept != to.kept()? {
            return Ok(false);
        }
        for snapshot in kept.iter().map(|name| Some(name.as_str())).chain([None]) {
            let (from, to) = (from.view(snapshot)?, to.view(snapshot)?);
            // Both have as many keys, and each key of one is in the other: a key is there once.
            let mut is_equal = from.len() == to.len();
            from.for_each(|key, value| {
                is_equal &= to.has(key, value)?;
                self.progress.advance(1);
                Ok(())
            })?;
            if !is_equal {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_store_equal(&mut self, name: &str, stores: Stores) -> Outcome<bool> {
        let from = self.source.find_store(name)?.ok_or_else(|| Self::gone(name))?;
        let Some(to) = self.target.find_store(name)? else { return Ok(false) };
        match stores {
            Stores::Whole => Ok(from.is_same(&to)?),
            Stores::Collected => self.shows_same(&from, &to),
        }
    }

    /// Whether two stores have the same keyspaces and kept snapshots, and show the same in each of these and
    /// now.
    fn shows_same(&mut self, from: &Store, to: &Store) -> Outcome<bool> {
        let (names, kept) = (from.keyspaces()?, from.kept()?);
        if names != to.keyspaces()? || kept != to.kept()? {
            return Ok(false);
        }
        let current = from.snapshot().number();
        if current != to.snapshot().number() {
            return Ok(false);
        }
        let numbers: BTreeSet<u64> = kept.iter().map(|kept| kept.number).chain([current]).collect();
        for name in names {
            let keyspaces = (from.find_keyspace(&name)?, to.find_keyspace(&name)?);
            let (Some(of_source), Some(of_copy)) = keyspaces else { return Ok(false) };
            if of_source.retention() != of_copy.retention() {
                return Ok(false);
            }
            for number in &numbers {
                let (one, other) = (from.at(*number)?.iter(&of_source)?, to.at(*number)?.iter(&of_copy)?);
                let one = one.inspect(|_| self.progress.advance(1));
                if !are_equal(one, other, |a, b| a == b)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// How much of a store is compared.
#[derive(Debug, Clone, Copy)]
enum Stores {
    /// Every version, and the log.
    Whole,
    /// The current contents and the kept snapshots: versions that nobody needs are gone from the copy.
    Collected,
}

fn has_store(listed: &[Listed]) -> bool {
    listed.iter().any(|listed| matches!(listed.kind, Kind::Store))
}

/// Whether two walks have the same entries.
fn are_equal<T, E>(
    mut one: impl Iterator<Item = Result<T, E>>,
    mut other: impl Iterator<Item = Result<T, E>>,
    same: impl Fn(&T, &T) -> bool,
) -> Outcome<bool>
where
    Failure: From<E>,
{
    loop {
        match (one.next().transpose()?, other.next().transpose()?) {
            (None, None) => return Ok(true),
            (Some(a), Some(b)) if same(&a, &b) => {}
            _ => return Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek};
    use std::os::unix::fs::FileExt;
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use tembo::Durability;
    use tembo::heap::PArr;
    use tembo::store::{Keyspace, Retention};

    tembo::heap::brand!(Altered);

    /// Held while a heap is open: a process can open one heap of a brand at a time.
    static BRAND: Mutex<()> = Mutex::new(());

    fn take_brand() -> MutexGuard<'static, ()> {
        BRAND.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill_heap(pool: &Pool) {
        let _brand = take_brand();
        let heap = pool.open_heap::<Altered, PArr<u64>>().unwrap();
        let made = heap.write(|tx, root| {
            let numbers = tx.alloc_array(10, |i| i as u64)?;
            tx.link_array(*root, numbers)
        });
        made.unwrap();
    }

    /// Fills the pool with a structure of each kind. Those that keep versions have a snapshot `old`.
    fn fill(pool: &Pool) {
        fill_heap(pool);
        pool.open_map("map").unwrap().put(b"key", b"value").unwrap();
        let versioned = pool.open_map_with("versioned", MapOptions::new().versioned(true)).unwrap();
        versioned.put(b"key", b"old").unwrap();
        versioned.snapshot().unwrap().keep("kept").unwrap();
        versioned.put(b"key", b"new").unwrap();
        let table = pool.open_hash_table("table").unwrap();
        table.put(b"key", b"old").unwrap();
        table.snapshot().keep("kept").unwrap();
        table.put(b"key", b"new").unwrap();
        pool.open_fixed_map("fixed").unwrap().put(1, 2).unwrap();
        let store = pool.open_store("store").unwrap();
        let words = store.keyspace("words").unwrap();
        store.keyspace("empty").unwrap();
        store.put(&words, "key", KEPT).unwrap();
        store.put(&words, "gone", "later").unwrap();
        store.keep(store.snapshot().number(), "kept").unwrap();
        store.put(&words, "key", "value").unwrap();
        store.delete(&words, "gone").unwrap();
        // Nobody needs these versions, and the copy gives them up.
        (0..20).for_each(|i| _ = store.put(&words, "often", format!("the value {i} of many")).unwrap());
    }

    /// A value that only the kept snapshot of the store has.
    const KEPT: &str = "a value that the snapshot alone has";

    /// The bytes of a value on media are others.
    fn damage_kept(file: &File) {
        let mut bytes = Vec::new();
        (&*file).rewind().unwrap();
        (&*file).read_to_end(&mut bytes).unwrap();
        let found: Vec<usize> = bytes
            .windows(KEPT.len())
            .enumerate()
            .filter(|(_, bytes)| *bytes == KEPT.as_bytes())
            .map(|at| at.0)
            .collect();
        assert!(!found.is_empty(), "the value is in the file");
        // Where it was before it moved, too.
        found.iter().for_each(|at| _ = file.write_at(b"A", *at as u64).unwrap());
    }

    fn words(pool: &Pool) -> (Store, Keyspace) {
        let store = pool.open_store("store").unwrap();
        let words = store.keyspace("words").unwrap();
        (store, words)
    }

    /// Faults of a store's copy after it was collected.
    const LATE_FAULTS: [fn(&Pool, &File); 9] = [
        |pool, _| {
            let (store, words) = words(pool);
            store.put(&words, "key", "other").unwrap();
        },
        |pool, _| {
            let (store, words) = words(pool);
            store.put(&words, "more", "value").unwrap();
        },
        |pool, _| {
            let (store, words) = words(pool);
            store.delete(&words, "key").unwrap();
        },
        |pool, _| words(pool).0.delete_kept("kept").unwrap(),
        |pool, _| {
            let store = words(pool).0;
            store.keep(store.at_name("kept").unwrap().number(), "more").unwrap();
        },
        |pool, _| {
            let (store, words) = words(pool);
            store.set_retention(&words, Retention::All).unwrap();
        },
        |pool, _| _ = words(pool).0.drop_keyspace("empty").unwrap(),
        |pool, _| _ = words(pool).0.keyspace("more").unwrap(),
        |_, file| damage_kept(file),
    ];

    /// Faults of a copy: the structure that is not the same, and the change that makes it so.
    const FAULTS: [(&str, fn(&Pool)); 10] = [
        ("nothing", |_| {}),
        ("map", |pool| _ = pool.open_map("map").unwrap().put(b"key", b"other").unwrap()),
        ("map", |pool| _ = pool.open_map("map").unwrap().put(b"more", b"value").unwrap()),
        ("versioned", |pool| _ = pool.find_map("versioned").unwrap().unwrap().remove(b"key").unwrap()),
        ("versioned", |pool| {
            let map = pool.find_map("versioned").unwrap().unwrap();
            map.snapshot().unwrap().keep("more").unwrap();
        }),
        ("table", |pool| _ = pool.open_hash_table("table").unwrap().put(b"key", b"other").unwrap()),
        ("table", |pool| pool.open_hash_table("table").unwrap().snapshot().keep("more").unwrap()),
        ("fixed", |pool| _ = pool.open_fixed_map("fixed").unwrap().put(1, 3).unwrap()),
        ("store", |pool| {
            let store = pool.open_store("store").unwrap();
            store.put(&store.keyspace("words").unwrap(), "key", "value").unwrap();
        }),
        ("Altered", |pool| {
            let _brand = take_brand();
            let heap = pool.open_heap::<Altered, PArr<u64>>().unwrap();
            heap.write(|tx, root| tx.put(tx.follow_array(*root)?.at(3), 77)).unwrap();
        }),
    ];

    #[test]
    fn a_copy_that_differs_gets_no_name() {
        let directory = tempfile::tempdir().unwrap();
        let (old, into) = (directory.path().join("old.pool"), directory.path().join("new.pool"));
        let options = Options::new().durability(Durability::PageCache).initial_bytes(0);
        fill(&options.clone().create(true).open(&old).unwrap());
        for (of, alter) in FAULTS {
            let source = Options::new().read_only(true).open(&old).unwrap();
            let listed = source.list().unwrap();
            let unfinished = Unfinished::new(&into).unwrap();
            let target = options.clone().create_in_file(unfinished.file(), &into).unwrap();
            let mut rewriting = Rewriting { source, target, entries: 0, progress: Progress::new("", None) };
            for Listed { name, kind, .. } in &listed {
                rewriting.copy(name, kind).unwrap();
            }
            alter(&rewriting.target);
            let verified = rewriting.verify_and_collect(&listed);
            match verified.and_then(|()| rewriting.verify_and_publish(&listed, unfinished, &into)) {
                Ok(report) => {
                    assert_eq!((of, report.structures), ("nothing", 6));
                    std::fs::remove_file(&into).unwrap();
                }
                Err(Failure::Failed(why)) => {
                    assert!(why.contains("is not the same") && of != "nothing", "{why}")
                }
                Err(e) => panic!("{of}: {e:?}"),
            }
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "{of}");
        }
    }

    #[test]
    fn a_copy_that_differs_after_it_was_collected_gets_no_name() {
        let directory = tempfile::tempdir().unwrap();
        let (old, into) = (directory.path().join("old.pool"), directory.path().join("new.pool"));
        let options = Options::new().durability(Durability::PageCache).initial_bytes(0);
        fill(&options.clone().create(true).open(&old).unwrap());
        let is_none: fn(&Pool, &File) = |_, _| {};
        let of_map: fn(&Pool, &File) = |pool, _| _ = pool.open_map("map").unwrap().put(b"a", b"b").unwrap();
        let faults = [("", is_none), ("map", of_map)];
        for (of, alter) in faults.into_iter().chain(LATE_FAULTS.map(|fault| ("store", fault))) {
            let source = Options::new().read_only(true).open(&old).unwrap();
            let listed = source.list().unwrap();
            let unfinished = Unfinished::new(&into).unwrap();
            let target = options.clone().create_in_file(unfinished.file(), &into).unwrap();
            let mut rewriting = Rewriting { source, target, entries: 0, progress: Progress::new("", None) };
            for Listed { name, kind, .. } in &listed {
                rewriting.copy(name, kind).unwrap();
            }
            rewriting.verify_and_collect(&listed).unwrap();
            alter(&rewriting.target, unfinished.file());
            match rewriting.verify_and_publish(&listed, unfinished, &into) {
                Ok(_) => {
                    assert_eq!(of, "");
                    std::fs::remove_file(&into).unwrap();
                }
                Err(Failure::Failed(why)) => {
                    assert!(why.contains(of) && why.contains("is not the same") && !of.is_empty(), "{why}");
                }
                Err(e) => panic!("{of}: {e:?}"),
            }
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "{of}");
        }
    }
}
