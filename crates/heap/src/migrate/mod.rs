//! Migrations: from the layouts that types had to those that they have now.
//!
//! # Media layout
//!
//! While a migration runs the heap begins with another number (`TMBHEAM3`), so that nobody takes it for one that is
//! as it should be. It has both layouts of the types that change. An old object of which a new one has been made is *moved*: the
//! first word of its head leads to its successor, and counts as a strong pointer to it.
//!
//! # Order
//!
//! 1. The new types are added, and the number is `TMBHEAM3`: one transaction.
//! 2. Of each old object a new one is made, a transaction each. Its pointers lead where the old ones do. No pointer
//!    leads to it but the first word of the old object's head.
//! 3. All pointers to moved objects are led to their successors, except those in moved objects: nothing dies. Then those are
//!    taken away. A bounded number in each transaction.
//! 4. No pointer leads to moved objects any more: they are freed, a bounded number in each transaction.
//! 5. The old types are removed, and the number is that of heaps again: one transaction.
//!
//! # Invariants
//!
//! Those of the heap, those in moved objects' heads included, after each transaction; `check.rs` walks them.
//!
//! # Commit point
//!
//! Each transaction's.
//!
//! # Recovery
//!
//! An interrupted migration is run again: which objects are done is seen from the objects, and of which types from the list of
//! types, which has both layouts. Steps 2 and 3 find what there is to do by going through the whole heap.
//!
//! # Concurrency
//!
//! Nobody else has the heap open.

use crate::check::{is_migrating, objects};
use crate::collections::MapKey;
use crate::collections::buckets::{Bucket, Entry, convert_bucket, convert_entry, lie_in_buckets};
use crate::counts::dying;
use crate::error::{Error, Result, corrupt};
use crate::heap::open_pool;
use crate::objects::brand::Brand;
use crate::objects::layout::{
    Kind, MAGIC, MAGIC_MIGRATING, OBJECT_HEAD_BYTES, PmHeap, PmType, ROOT_KIND, ROOT_NAME, array_head_bytes,
    block_of, kind_off, value_off,
};
use crate::objects::persist::Persist;
use crate::objects::persist::TargetFn;
use crate::objects::place::{Arr, Ref};
use crate::objects::type_info::{PointerKind, TypeInfo};
use crate::objects::types::{Types, for_each_pointer};
use crate::objects::value_buffer::ValueBuffer;
use crate::retry;
use crate::stm::shared::HeapShared;
use crate::tx::{ReadTx, Tx, writer_of};
use std::path::Path;
use std::sync::Arc;
use tembo_pmem::{OfProcess, offset_of};
use tembo_pool::{Options, Pool};

/// How values of a type become values of its new version. Implemented for the new version, and given to [`Migrations`].
///
/// The old version is a type of the program as well, which has the same name in heaps, given by `#[persist(name = "...")]`.
///
/// ```
/// # use tembo_heap::{Brand, Error, Heap, Migrate, Migrations, Options, PRc, Persist, ReadTx, Ref, Tx};
/// /// A person, as the first version of the program knew it.
/// #[derive(Default, Persist)]
/// #[persist(name = "Person")]
/// #[repr(C)]
/// struct PersonV1 { age: u32, friend: PRc<PersonV1> }
///
/// #[derive(Default, Persist)]
/// #[repr(C)]
/// struct Person { born: u64, friend: PRc<Person>, name: [u8; 16] }
///
/// impl Migrate<PersonV1> for Person {
///     fn migrate<'t, B: Brand>(tx: &ReadTx<'t, B>, old: Ref<'t, B, PersonV1>) -> Result<Person, Error> {
///         let born = 2024 - u64::from(tx.get(old.age())?);
///         Ok(Person { born, friend: PRc::null(), name: [0; 16] })
///     }
///
///     fn link<'t, B: Brand>(
///         tx: &mut Tx<'t, B>,
///         old: Ref<'t, B, PersonV1>,
///         new: Ref<'t, B, Person>,
///     ) -> Result<(), Error> {
///         tx.carry(old.friend(), new.friend())
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("people.heap");
/// # let options = Options::new().create(true);
/// # Heap::with(&path, &options, |heap: Heap<_, PersonV1>| {
/// #     heap.write(|tx, root| tx.set(root.age(), 30))
/// # })?;
/// assert!(Heap::with(&path, &options, |_: Heap<_, Person>| Ok(())).is_err());
/// Migrations::new().add::<PersonV1, Person>().run(&path, &options)?;
/// Heap::with(&path, &options, |heap: Heap<_, Person>| {
///     let born = heap.read(|tx, person| tx.get(person.born()))?;
///     assert_eq!(born, 1994);
///     Ok(())
/// })
/// # }
/// ```
pub trait Migrate<Old: Persist>: Persist {
    /// The new value. As everywhere, its pointers are null.
    ///
    /// What the old value's pointers lead to can be read, and has its old layout.
    ///
    /// # Errors
    ///
    /// Any ends the migration, which goes on when it is run again.
    fn migrate<'t, B: Brand>(tx: &ReadTx<'t, B>, old: Ref<'t, B, Old>) -> Result<Self>;

    /// Gives the new value, where it lies now, what is behind pointers: [`Tx::carry`] takes over what stays as it is. What is not taken over
    /// dies, unless other pointers lead to it.
    ///
    /// # Errors
    ///
    /// As for [`migrate`](Self::migrate).
    fn link<'t, B: Brand>(tx: &mut Tx<'t, B>, old: Ref<'t, B, Old>, new: Ref<'t, B, Self>) -> Result<()> {
        let _ = (tx, old, new);
        Ok(())
    }
}

impl<Old: Persist, New: Migrate<Old>, const N: usize> Migrate<[Old; N]> for [New; N] {
    fn migrate<'t, B: Brand>(tx: &ReadTx<'t, B>, old: Ref<'t, B, [Old; N]>) -> Result<[New; N]> {
        let values = (0..N).map(|i| New::migrate(tx, old.at(i))).collect::<Result<Vec<New>>>()?;
        values.try_into().map_err(|_| unreachable!("as many as there were"))
    }

    fn link<'t, B: Brand>(
        tx: &mut Tx<'t, B>,
        old: Ref<'t, B, [Old; N]>,
        new: Ref<'t, B, [New; N]>,
    ) -> Result<()> {
        (0..N).try_for_each(|i| New::link(tx, old.at(i), new.at(i)))
    }
}

/// What is to become of the types of a heap.
///
/// [`run`](Self::run) it before the heap is opened: where there is nothing to do it only reads the heap's types, so that a program
/// can keep its migrations, and run them at every start. Several versions are migrated one after the other, each by a `Migrations` of
/// its own.
#[derive(Default)]
pub struct Migrations {
    steps: Vec<Step>,
}

impl std::fmt::Debug for Migrations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.steps.iter().map(|step| (step.describe.0)().0.name)).finish()
    }
}

/// Makes a new object of an old one, or a new array of one of so many elements.
type Convert = for<'t> fn(&mut Tx<'t, Moving>, u64, Option<u64>) -> Result<u64>;

struct Step {
    /// Hashes of the layouts.
    old: u64,
    new: u64,
    describe: TargetFn,
    /// None for objects that die when those which lead to them are converted.
    convert: Option<Convert>,
}

/// The brand of heaps that are migrated.
#[derive(Debug)]
enum Moving {}

impl Brand for Moving {}

impl Migrations {
    /// No migrations.
    pub fn new() -> Migrations {
        Migrations::default()
    }

    /// Objects of the type `Old`, and arrays and vectors of it, become those of the type `New`, which has the same name.
    ///
    /// A type that holds an `Old` in itself has another layout too, and needs a migration of its own.
    pub fn add<Old: Persist, New: Migrate<Old>>(mut self) -> Migrations {
        const { assert_versions::<Old, New>() }
        self.push::<Old, New>(convert::<Old, New>);
        self
    }

    /// Values of hash maps with keys of the type `K` ([`PHashMap<K, Old>`](crate::collections::PHashMap)) become `New`.
    pub fn add_hash_values<K: MapKey, Old: Persist, New: Migrate<Old>>(mut self) -> Migrations {
        const { assert_versions::<Old, New>() }
        // Buckets that lead to entries elsewhere are what they were.
        if Bucket::<K, Old>::HASH != Bucket::<K, New>::HASH {
            self.push::<Bucket<K, Old>, Bucket<K, New>>(convert_buckets::<K, Old, New>);
        }
        if lie_in_buckets::<K, New>() {
            // What the buckets had led to dies with them.
            let describe = TargetFn(TypeInfo::of::<Bucket<K, New>>);
            let (old, new) = (Entry::<K, Old>::HASH, Bucket::<K, New>::HASH);
            self.steps.push(Step { old, new, describe, convert: None });
        } else {
            self.push::<Entry<K, Old>, Entry<K, New>>(convert_entries::<K, Old, New>);
        }
        self
    }

    fn push<Old: Persist, New: Persist>(&mut self, convert: Convert) {
        let describe = TargetFn(TypeInfo::of::<New>);
        self.steps.push(Step { old: Old::HASH, new: New::HASH, describe, convert: Some(convert) });
    }

    /// Runs the migrations on the heap in a file, if there is one. Returns how many objects have been made anew.
    ///
    /// Every object of an old type is converted in a transaction of its own; a crash in between leaves a heap that is opened
    /// ([`Error::Migrating`]) after the migrations have been run again, and goes on where they were. What is changed
    /// needs room in the pool twice. Takes time and memory with the number of all objects, unless there is nothing to do.
    ///
    /// # Errors
    ///
    /// Everything that can be wrong with the file; [`Error::Layout`] if a type is left that has another layout and no migration, with
    /// nothing changed; [`Error::NotAlone`]; and those of [`Migrate`].
    pub fn run(&self, path: impl AsRef<Path>, options: impl AsRef<Options>) -> Result<u64> {
        let options = options.as_ref();
        if options.create_new || options.create && !path.as_ref().exists() {
            return Ok(0);
        }
        self.run_in(open_pool(path.as_ref(), &options.clone().create(false))?)
    }

    /// As [`run`](Self::run), in a pool that is open already.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    pub fn run_in(&self, pool: Pool) -> Result<u64> {
        let mut converted = 0;
        // Twice, as the first may have finished what another run began.
        for _ in 0..2 {
            if let Some(migration) = self.begin(&pool)? {
                converted += migration.finish()?;
            }
        }
        Ok(converted)
    }

    /// Opens the heap, unless there is nothing to do.
    fn begin(&self, pool: &Pool) -> Result<Option<Migration<'_>>> {
        let hold = pool.hold(0).ok_or(Error::InUse)?;
        let roots = pool.roots()?;
        let Some(root) = roots.iter().find(|root| root.name == ROOT_NAME && root.kind == ROOT_KIND) else {
            return Ok(None);
        };
        let (region, off) = (pool.region(), root.off);
        let is_begun = is_migrating(region, off)?;
        let mut types = Types::read(region, off, |_, _| Ok(()))?;
        let has = |hash| types.look_up(hash).is_some();
        let wanted = self.steps.iter().filter(|step| has(step.old) && (has(step.new) || !is_begun));
        let steps: Vec<&Step> = wanted.collect();
        if steps.is_empty() && !is_begun {
            return Ok(None);
        }
        let is_left = |hash| steps.iter().any(|step| step.old == hash);
        types.expect_alone(is_left)?;
        if let Some(other) = roots.iter().find(|other| other.off != off) {
            return Err(Error::NotAlone { root: other.name.clone().into() });
        }
        if !is_begun {
            let mut lane = pool.lane()?;
            let mut tx = lane.begin();
            let new = steps.iter().map(|step| step.describe).collect();
            types.add_reachable(&mut tx, off, new, is_left)?;
            tx.store(off + offset_of!(PmHeap, magic) as u64, MAGIC_MIGRATING)?;
            tx.commit()?;
        }
        let shared = HeapShared::open(pool.clone(), off, types, (None, hold))?;
        let shared = Arc::new(OfProcess::new(shared));
        Ok(Some(Migration { shared, steps }))
    }
}

/// Refuses what is no new version of a type.
const fn assert_versions<Old: Persist, New: Persist>() {
    assert!(
        Old::NAME_HASH == New::NAME_HASH,
        "both versions of a type have the same name: #[persist(name = \"...\")]"
    );
    assert!(Old::HASH != New::HASH, "both types have the same layout, so that there is nothing to migrate");
}

fn convert<'t, Old: Persist, New: Migrate<Old>>(
    tx: &mut Tx<'t, Moving>,
    object: u64,
    len: Option<u64>,
) -> Result<u64> {
    let Some(len) = len else {
        let old = tx.object::<Old>(object);
        let value = New::migrate(tx, *old)?;
        let new = tx.alloc(value)?;
        New::link(tx, *old, *new)?;
        return Ok(new.object_off());
    };
    let old = Arr::<Moving, Old>::new(object, len, false);
    let new = tx.alloc_blanks::<New>(old.len())?;
    for i in 0..old.len() {
        match New::migrate(tx, old.at(i)) {
            Ok(value) => {
                tx.put(new.at(i), value)?;
                New::link(tx, old.at(i), new.at(i))?;
            }
            // Vectors have room for more, where there need not be any value.
            Err(Error::Pool(e)) if matches!(*e, tembo_pool::Error::Corrupt { .. }) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(new.off)
}

fn convert_buckets<'t, K: MapKey, Old: Persist, New: Migrate<Old>>(
    tx: &mut Tx<'t, Moving>,
    object: u64,
    len: Option<u64>,
) -> Result<u64> {
    let Some(len) = len else {
        let old = tx.object::<Bucket<K, Old>>(object);
        let new = tx.alloc_image::<Bucket<K, New>>(ValueBuffer::<Bucket<K, New>>::new().zeroed().words())?;
        convert_bucket(tx, *old, *new)?;
        return Ok(new.object_off());
    };
    let old = Arr::<Moving, Bucket<K, Old>>::new(object, len, false);
    let new = tx.alloc_blanks::<Bucket<K, New>>(old.len())?;
    (0..old.len()).try_for_each(|i| convert_bucket(tx, old.at(i), new.at(i)))?;
    Ok(new.off)
}

fn convert_entries<'t, K: MapKey, Old: Persist, New: Migrate<Old>>(
    tx: &mut Tx<'t, Moving>,
    object: u64,
    len: Option<u64>,
) -> Result<u64> {
    if len.is_some() {
        return Err(corrupt("a hash map's entry", object, "an object", "an array"));
    }
    let old = tx.object::<Entry<K, Old>>(object);
    Ok(convert_entry::<Moving, K, Old, New>(tx, *old)?.object_off())
}

/// Pointers that one transaction changes, at most, and objects that it frees.
const BATCH: usize = 128;

/// A heap that is being migrated.
struct Migration<'m> {
    shared: Arc<OfProcess<HeapShared>>,
    /// Those of which there are old types in the heap.
    steps: Vec<&'m Step>,
}

/// A pointer that is to lead somewhere else.
#[derive(Debug, Clone, Copy)]
struct Lead {
    slot: u64,
    kind: PointerKind,
    from: u64,
    to: u64,
}

impl Migration<'_> {
    /// Does what is left to do.
    fn finish(&self) -> Result<u64> {
        dying::collect_all(&self.shared)?;
        let mut converted = 0;
        for object in objects(&self.shared.pool)? {
            converted += u64::from(self.convert(object)?);
        }
        let objects = objects(&self.shared.pool)?;
        self.lead(&objects)?;
        let mut moved = Vec::new();
        for object in &objects {
            moved.extend(self.kind(*object)?.successor().map(|successor| (*object, successor)));
        }
        self.empty(&moved)?;
        self.free(&moved)?;
        dying::collect_all(&self.shared)?;
        self.write(|tx| {
            self.remove_types(tx)?;
            store(tx, self.shared.off + offset_of!(PmHeap, magic) as u64, MAGIC)
        })?;
        Ok(converted)
    }

    fn write<T>(&self, body: impl for<'t> Fn(&mut Tx<'t, Moving>) -> Result<T>) -> Result<T> {
        retry::write(&self.shared, |running| body(&mut Tx::new(&self.shared, running.active())))
    }

    fn kind(&self, object: u64) -> Result<Kind> {
        Ok(Kind(self.shared.region().load_u64(kind_off(object))?))
    }

    /// Makes a new object of an old one. Says whether there was anything to do.
    fn convert(&self, object: u64) -> Result<bool> {
        let kind = self.kind(object)?;
        let info = self.shared.types.get(kind.type_number());
        let step = self.steps.iter().find(|step| info.is_some_and(|info| info.hash == step.old));
        let Some(step) = step.filter(|_| kind.successor().is_none()) else { return Ok(false) };
        let Some(convert) = step.convert else { return Ok(false) };
        if kind.is_shell() {
            let number = self.shared.types.look_up(step.new);
            let number = number.ok_or_else(|| corrupt("a type", object, "added before", "none"))?;
            self.write(|tx| store(tx, kind_off(object), kind.with_type(number).0))?;
            return Ok(false);
        }
        let len = match kind.is_array() {
            true => Some(self.shared.region().load_u64(object + OBJECT_HEAD_BYTES)? & 0xFFFF_FFFF),
            false => None,
        };
        self.write(|tx| {
            let new = convert(tx, object, len)?;
            // What is there must stay as it is, and alive: it may be converted later, and this may be done again.
            if writer_of(tx.shared, tx.active)?.wants_any() {
                return Err(Error::MigrationChanges);
            }
            tx.count(new, PointerKind::Strong, 1)?;
            store(tx, kind_off(object), kind.moved(new).0)
        })?;
        Ok(true)
    }

    /// Leads the pointers to moved objects to their successors, but for those in moved objects.
    fn lead(&self, objects: &[u64]) -> Result<()> {
        let mut leads = Vec::new();
        let root = self.shared.off + offset_of!(PmHeap, root) as u64;
        leads.extend(self.to_successor(root, PointerKind::Strong)?);
        for object in objects {
            if self.kind(*object)?.successor().is_none() {
                self.for_each_pointer(*object, &mut leads, |slot, kind| self.to_successor(slot, kind))?;
            }
        }
        self.lead_some(&mut leads)
    }

    fn to_successor(&self, slot: u64, kind: PointerKind) -> Result<Option<Lead>> {
        let from = self.shared.region().load_u64(slot)?;
        let to = if from == 0 { None } else { self.kind(from)?.successor() };
        Ok(to.map(|to| Lead { slot, kind, from, to }))
    }

    /// Takes away the pointers in moved objects.
    fn empty(&self, moved: &[(u64, u64)]) -> Result<()> {
        let mut leads = Vec::new();
        for (object, _) in moved {
            self.for_each_pointer(*object, &mut leads, |slot, kind| {
                let from = self.shared.region().load_u64(slot)?;
                Ok((from != 0).then_some(Lead { slot, kind, from, to: 0 }))
            })?;
        }
        self.lead_some(&mut leads)
    }

    /// Goes through the pointers of an object, and changes as many as `lead` wants as soon as there are enough.
    fn for_each_pointer(
        &self,
        object: u64,
        leads: &mut Vec<Lead>,
        lead: impl Fn(u64, PointerKind) -> Result<Option<Lead>>,
    ) -> Result<()> {
        let kind = self.kind(object)?;
        let Some(info) = self.shared.types.get(kind.type_number()) else { return Ok(()) };
        if info.pointers.is_empty() || kind.is_shell() {
            return Ok(());
        }
        let (first, count) = match kind.is_array() {
            false => (value_off(object), 1),
            true => {
                let len = self.shared.region().load_u64(object + OBJECT_HEAD_BYTES)?;
                (object + array_head_bytes(info.bytes), len & 0xFFFF_FFFF)
            }
        };
        for value in (0..count).map(|i| first + i * info.bytes) {
            let word = |off| Ok(self.shared.region().load_u64(value + off)?);
            for_each_pointer(info, &word, |off, pointer| {
                leads.extend(lead(value + off, pointer.kind)?);
                Ok(())
            })?;
            if leads.len() >= BATCH {
                self.lead_some(leads)?;
            }
        }
        Ok(())
    }

    fn lead_some(&self, leads: &mut Vec<Lead>) -> Result<()> {
        self.write_parts(leads, &|tx, Lead { slot, kind, from, to }| {
            tx.count(from, kind, -1)?;
            tx.count(to, kind, 1)?;
            store(tx, slot, to)
        })?;
        leads.clear();
        Ok(())
    }

    /// Makes changes in one transaction; or, where there is no room for its record, in several.
    fn write_parts<T: Copy>(
        &self,
        changes: &[T],
        change: &impl for<'t> Fn(&mut Tx<'t, Moving>, T) -> Result<()>,
    ) -> Result<()> {
        match self.write(|tx| changes.iter().try_for_each(|one| change(tx, *one))) {
            Err(e) if e.is_full() && changes.len() > 1 => {
                let (first, rest) = changes.split_at(changes.len() / 2);
                self.write_parts(first, change)?;
                self.write_parts(rest, change)
            }
            outcome => outcome,
        }
    }

    /// Frees moved objects, to which no pointer leads any more.
    fn free(&self, moved: &[(u64, u64)]) -> Result<()> {
        for some in moved.chunks(BATCH) {
            self.write_parts(some, &|tx, (object, successor)| {
                tx.count(successor, PointerKind::Strong, -1)?;
                Ok(writer_of(tx.shared, tx.active)?.ptx.free(block_of(object))?)
            })?;
        }
        Ok(())
    }

    /// Takes the records of the old types out of the list.
    fn remove_types(&self, tx: &mut Tx<'_, Moving>) -> Result<()> {
        let region = self.shared.region();
        let mut slot = self.shared.off + offset_of!(PmHeap, types) as u64;
        let mut record = region.load_u64(slot)?;
        while record != 0 {
            let next = region.load_u64(record + offset_of!(PmType, next) as u64)?;
            let hash = region.load_u64(record + offset_of!(PmType, hash) as u64)?;
            if self.steps.iter().any(|step| step.old == hash) {
                store(tx, slot, next)?;
                writer_of(tx.shared, tx.active)?.ptx.free(record)?;
            } else {
                slot = record + offset_of!(PmType, next) as u64;
            }
            record = next;
        }
        Ok(())
    }
}

/// Stores a word, which nobody else looks at.
fn store(tx: &mut Tx<'_, Moving>, off: u64, word: u64) -> Result<()> {
    tx.own(off, off)?;
    tx.write_words(off, off, &[word])
}
