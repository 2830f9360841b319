//! The CDDS hash table as a structure of versions.

use super::super::builder::BuildVersion;
use super::super::bytes::VersionedBytes;
use super::super::checker::{CheckNodes, VersionChecker};
use super::super::deferred_stamps::DeferredStamps;
use super::super::dropped::{Dismantle, Load, Remains};
use super::super::layout::RootWord;
use super::super::moves::Moves;
use super::super::queue::{Dead, Reclaim};
use super::super::structure::{VersionedStructure, Visit};
use super::super::view::View;
use super::edit::HashDrafts;
use super::hashed::{HashBuilder, HashStructure};
use super::walk::VersionedHashIter;
use super::{clear, diff, get, layout};
use crate::error::Result;
use tembo_pmem::Region;
use tembo_pool::Tx;

impl VersionedStructure for HashStructure {
    type Iter<'r> = VersionedHashIter<'r>;
    const ROOT_KIND: u32 = layout::ROOT_KIND;
    const FORMAT: u64 = layout::FORMAT;
    const HAS_SEED: bool = true;
    const TURN: &'static str = "the turn to write to a hash table";
    const IN_CLOSURE: &'static str = "the hash table, in a closure that its `modify` or `batch` calls";

    #[inline]
    fn get<'m>(view: View<'m>, key: &[u8]) -> Result<Option<VersionedBytes<'m>>> {
        get::get(view, key)
    }

    fn iter(view: View<'_>) -> VersionedHashIter<'_> {
        VersionedHashIter::new(view)
    }

    fn differences<'m>(
        from: View<'m>,
        to: View<'m>,
        _: &DeferredStamps,
        visit: &mut Visit<'_, 'm>,
    ) -> Result<()> {
        diff::differences(from, to, visit)
    }
}

impl BuildVersion for HashStructure {
    type Drafts = HashDrafts;

    fn begin(drafts: &mut HashDrafts, before: View<'_>) -> Result<()> {
        drafts.begin(before)
    }

    fn put(builder: &mut HashBuilder, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        builder.put_hashed(tx, key, value)
    }

    fn remove(builder: &mut HashBuilder, tx: &mut Tx<'_>, key: &[u8]) -> Result<bool> {
        builder.remove_hashed(tx, key)
    }

    fn get_made(builder: &HashBuilder, tx: &Tx<'_>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        builder.value_of_hashed(tx, key)
    }

    fn clear(builder: &mut HashBuilder, tx: &mut Tx<'_>) -> Result<()> {
        builder.clear_hashed(tx)
    }

    fn compact(
        builder: &mut HashBuilder,
        tx: &mut Tx<'_>,
        moves: &mut Moves<'_>,
        from: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let from = from.try_into().map_or(0, u64::from_be_bytes);
        Ok(builder.compact(tx, moves, from)?.map(|hash| hash.to_be_bytes().to_vec()))
    }

    fn write(builder: &mut HashBuilder, tx: &mut Tx<'_>) -> Result<RootWord> {
        builder.write_hashed(tx)
    }
}

impl Reclaim for HashStructure {
    fn last_change(_: &Region, dead: &Dead) -> Result<u64> {
        // Every change below a node replaces the node.
        Ok(dead.birth)
    }

    fn parts(region: &Region, dead: &Dead) -> Result<Vec<Dead>> {
        clear::parts(region, dead)
    }
}

impl Dismantle for HashStructure {
    fn remains(region: &Region, load: &Load<'_>, off: u64, _: u64) -> Result<Remains> {
        clear::remains(region, load, off)
    }
}

impl CheckNodes for HashStructure {
    fn check_version(checker: &mut VersionChecker<'_, '_>, version: View<'_>) -> Result<()> {
        checker.check_table(version)
    }

    fn check_dead_node(checker: &VersionChecker<'_, '_>, dead: &Dead) -> Result<u64> {
        checker.check_dead_table_node(dead)
    }

    fn check_dead_subtree(checker: &mut VersionChecker<'_, '_>, dead: &Dead) -> Result<()> {
        checker.check_dead_table_part(dead)
    }
}
