//! The CDDS B-Tree as a structure of versions.

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
use super::drafts::TreeDrafts;
use super::node::Node;
use super::ordered::{TreeBuilder, TreeStructure};
use super::scan::VersionedRange;
use super::{clear, diff, layout, lookup};
use crate::error::Result;
use tembo_pmem::Region;
use tembo_pool::{Lane, Tx};

impl VersionedStructure for TreeStructure {
    type Iter<'r> = VersionedRange<'r>;
    const ROOT_KIND: u32 = layout::ROOT_KIND;
    const FORMAT: u64 = layout::FORMAT;
    const HAS_SEED: bool = false;
    const TURN: &'static str = "the turn to write to a map that keeps versions";
    const IN_CLOSURE: &'static str = "the map, in a closure that its `modify` calls";

    #[inline]
    fn get<'m>(view: View<'m>, key: &[u8]) -> Result<Option<VersionedBytes<'m>>> {
        lookup::get(view, key)
    }

    fn iter(view: View<'_>) -> VersionedRange<'_> {
        VersionedRange::new::<&[u8]>(view, ..)
    }

    fn differences<'m>(
        from: View<'m>,
        to: View<'m>,
        deferred: &DeferredStamps,
        visit: &mut Visit<'_, 'm>,
    ) -> Result<()> {
        diff::differences(from, to, deferred, visit)
    }
}

impl BuildVersion for TreeStructure {
    type Drafts = TreeDrafts;

    fn begin(drafts: &mut TreeDrafts, before: View<'_>) -> Result<()> {
        drafts.begin(before)
    }

    fn seek(drafts: &mut TreeDrafts, before: &View<'_>, lane: &mut Lane, key: &[u8]) -> Result<()> {
        drafts.seek(before, lane, key)
    }

    fn put(builder: &mut TreeBuilder, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        builder.put_entry(tx, key, value)
    }

    fn remove(builder: &mut TreeBuilder, tx: &mut Tx<'_>, key: &[u8]) -> Result<bool> {
        builder.remove_entry(tx, key)
    }

    fn get_made(builder: &TreeBuilder, tx: &Tx<'_>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(builder.value_of(tx, key)?.map(<[u8]>::to_vec))
    }

    fn clear(builder: &mut TreeBuilder, tx: &mut Tx<'_>) -> Result<()> {
        builder.clear(tx)
    }

    fn compact(
        builder: &mut TreeBuilder,
        tx: &mut Tx<'_>,
        moves: &mut Moves<'_>,
        from: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        builder.compact(tx, moves, from)
    }

    fn write(builder: &mut TreeBuilder, tx: &mut Tx<'_>) -> Result<RootWord> {
        if builder.is_in_place() {
            return Ok(builder.before.root);
        }
        let root = builder.write_new_nodes(tx)?;
        builder.store_changed_nodes(tx)?;
        Ok(root)
    }
}

impl Reclaim for TreeStructure {
    fn last_change(region: &Region, dead: &Dead) -> Result<u64> {
        Node::open_any(region, dead.off)?.last_change()
    }

    fn parts(region: &Region, dead: &Dead) -> Result<Vec<Dead>> {
        clear::parts(&Node::open_any(region, dead.off)?, dead)
    }
}

impl Dismantle for TreeStructure {
    fn remains(region: &Region, load: &Load<'_>, off: u64, version: u64) -> Result<Remains> {
        clear::remains(region, load, off, version)
    }
}

impl CheckNodes for TreeStructure {
    fn check_version(checker: &mut VersionChecker<'_, '_>, version: View<'_>) -> Result<()> {
        checker.check_tree(version)
    }

    fn check_dead_node(checker: &VersionChecker<'_, '_>, dead: &Dead) -> Result<u64> {
        checker.check_dead_tree_node(dead)
    }

    fn check_dead_subtree(checker: &mut VersionChecker<'_, '_>, dead: &Dead) -> Result<()> {
        checker.check_dead_subtree(dead)
    }
}
