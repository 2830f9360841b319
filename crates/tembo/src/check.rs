//! The check of a whole pool.

use crate::kinds::{Kind, Listed};
use crate::{CheckReport, Error, Pool, Result};
use tembo_index::{U64Tree, VersionedHash, VersionedTree, WbTree};
use tembo_store::Store;

impl Pool {
    /// Reads the whole pool and proves that every structure is sound and every allocated block reachable
    /// exactly once. Changes nothing. There must be no writer meanwhile; a pool opened for reading only
    /// guarantees that.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] with the first damage found; [`Error::Unproved`] if there is none, but the pool holds
    /// a structure that this version of the library cannot read, whose blocks cannot be told from lost ones.
    pub fn check(&self) -> Result<CheckReport> {
        let pool = &self.shared.pool;
        let mut marks = pool.marks()?;
        let (mut report, mut has_heap) = (CheckReport::default(), false);
        for Listed { name, kind } in self.list()? {
            // On media, without the open handles: checking takes neither a lane nor the tree.
            let Some(root) = pool.root(&name)? else { continue };
            let (before, called) = (marks.reached(), name.clone());
            match kind {
                Kind::Map => {
                    if let Some(tree) = WbTree::open(pool, &name)? {
                        tree.check(&mut marks)?;
                        report.maps.push((name, tree.len()?));
                    }
                }
                Kind::VersionedMap => {
                    report.versioned_maps.push((name, VersionedTree::check_at(pool, root.off, &mut marks)?));
                }
                Kind::HashTable => {
                    report.hash_tables.push((name, VersionedHash::check_at(pool, root.off, &mut marks)?));
                }
                Kind::FixedMap => {
                    report.fixed_maps.push((name, U64Tree::check_at(pool, root.off, &mut marks)?));
                }
                Kind::Store => {
                    let checked = self.to_read_store(&name)?.check(&mut marks)?;
                    report.stores.push((name, checked));
                }
                Kind::Heap => has_heap = true,
                Kind::Unknown(unknown) => report.unknown.push(unknown),
            }
            report.note_space(called, before, marks.reached());
        }
        report.dropped_maps = tembo_index::check_dropped(pool, &mut marks)?;
        report.dropped_stores = Store::check_dropped(pool, &mut marks)?;
        // Last, since it looks for lost objects among the remaining blocks.
        if has_heap {
            let is_all_known = report.unknown.is_empty();
            let check = if is_all_known { tembo_heap::check } else { tembo_heap::check_beside_unknown };
            let before = marks.reached();
            report.heap = Some(check(pool, &mut marks)?);
            report.note_space("heap".to_owned(), before, marks.reached());
        }
        (report.usage, report.classes) = (marks.usage(), marks.by_class());
        if report.unknown.is_empty() {
            marks.finish()?;
            return Ok(report);
        }
        report.unreached_blocks = marks.unreached().count() as u64;
        Err(Error::Unproved { report: Box::new(report) })
    }
}
