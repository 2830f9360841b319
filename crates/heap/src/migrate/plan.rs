//! The migrations of a program.

use crate::check::is_migrating;
use crate::collections::MapKey;
use crate::collections::hash::node::{Bucket, Entry, lie_in_buckets};
use crate::compact::guest;
use crate::error::{ErrorKind, Result};
use crate::heap::open_pool;
use crate::layout::{MAGIC_MIGRATING, PmHeap, ROOT_KIND, ROOT_NAME};
use crate::migrate::convert::{Convert, Step, convert, convert_buckets, convert_entries};
use crate::migrate::migration::Migration;
use crate::migrate::version::{Migrate, assert_versions};
use crate::objects::persist::Persist;
use crate::objects::persist::TargetFn;
use crate::objects::type_info::TypeInfo;
use crate::objects::types::Types;
use crate::stm::shared::HeapShared;
use std::path::Path;
use std::sync::Arc;
use tembo_pmem::{OfProcess, offset_of};
use tembo_pool::{Options, Pool};

/// The migrations of the types of a heap.
///
/// [`run`](Self::run) it before the heap is opened. If there is nothing to do it only reads the heap's types,
/// so a program can keep its migrations and run them at every start. Several versions are migrated one after
/// the other, each by its own `Migrations`.
#[derive(Default)]
pub struct Migrations {
    steps: Vec<Step>,
}

impl std::fmt::Debug for Migrations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.steps.iter().map(|step| (step.describe.0)().0.name)).finish()
    }
}

impl Migrations {
    /// No migrations.
    pub fn new() -> Migrations {
        Migrations::default()
    }

    /// Converts objects of the type `Old`, and arrays and vectors of it, to the type `New`, which has the
    /// same name.
    ///
    /// A type that contains an `Old` has another layout too, and needs a migration of its own.
    pub fn add<Old: Persist, New: Migrate<Old>>(mut self) -> Migrations {
        const { assert_versions::<Old, New>() }
        self.push::<Old, New>(convert::<Old, New>);
        self
    }

    /// Converts values of hash maps with keys of the type `K` ([`PHashMap<K,
    /// Old>`](crate::collections::PHashMap)) to `New`.
    pub fn add_hash_values<K: MapKey, Old: Persist, New: Migrate<Old>>(mut self) -> Migrations {
        const { assert_versions::<Old, New>() }
        // Buckets with pointers to entries do not change.
        if Bucket::<K, Old>::HASH != Bucket::<K, New>::HASH {
            self.push::<Bucket<K, Old>, Bucket<K, New>>(convert_buckets::<K, Old, New>);
        }
        if lie_in_buckets::<K, New>() {
            // The entries to which the old buckets led die with them.
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

    /// Runs the migrations on the heap in a file, if there is one. Returns the number of converted objects.
    ///
    /// Each object of an old type is converted in a transaction of its own. After a crash the heap does not
    /// open ([`ErrorKind::Migrating`]) until the migrations are run again; they continue where they stopped.
    /// Each converted object takes room twice until the migration ends. Time and memory grow with the number
    /// of all objects, unless there is nothing to do.
    ///
    /// # Errors
    ///
    /// Everything that can be wrong with the file; [`ErrorKind::Layout`] if a type is left that has another
    /// layout and no migration, with nothing changed; [`ErrorKind::NotAlone`]; and those of [`Migrate`].
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
        // Two rounds, since the first may only finish an interrupted run.
        for _ in 0..2 {
            if let Some(migration) = self.begin(&pool)? {
                converted += migration.finish()?;
            }
        }
        Ok(converted)
    }

    /// Opens the heap, unless there is nothing to do.
    fn begin(&self, pool: &Pool) -> Result<Option<Migration<'_>>> {
        let hold = guest::unless_moved(|| pool.hold(0)).ok_or(ErrorKind::InUse)?;
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
            return Err(ErrorKind::NotAlone { root: other.name.clone() }.into());
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
