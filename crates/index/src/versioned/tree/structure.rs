//! What the CDDS B-Tree brings along for its versions to be kept.

use super::super::builder::BuildVersion;
use super::super::bytes::CddsBytes;
use super::super::checker::{CheckNodes, Checker};
use super::super::deferred_stamps::Owed;
use super::super::dropped::{Dismantle, Load, Remains};
use super::super::layout::RootWord;
use super::super::queue::{Dead, Reclaim};
use super::super::structure::{CddsStructure, Visit};
use super::super::view::View;
use super::drafts::TreeDrafts;
use super::node::Node;
use super::ordered::{CddsOrdered, TreeBuilder};
use super::scan::CddsRange;
use super::{clear, diff, layout, lookup};
use crate::error::Result;
use tembo_pmem::Region;
use tembo_pool::{Lane, Tx};

impl CddsStructure for CddsOrdered {
    type Iter<'r> = CddsRange<'r>;
    const ROOT_KIND: u32 = layout::ROOT_KIND;
    const FORMAT: u64 = layout::FORMAT;
    const HAS_SEED: bool = false;
    const TURN: &'static str = "the turn to write to a map that keeps versions";
    const IN_CLOSURE: &'static str = "the map, in a closure that its `modify` calls";

    #[inline]
    fn get<'m>(view: View<'m>, key: &[u8]) -> Result<Option<CddsBytes<'m>>> {
        lookup::get(view, key)
    }

    fn iter(view: View<'_>) -> CddsRange<'_> {
        CddsRange::new::<&[u8]>(view, ..)
    }

    fn differences<'m>(from: View<'m>, to: View<'m>, owed: &Owed, visit: &mut Visit<'_, 'm>) -> Result<()> {
        diff::differences(from, to, owed, visit)
    }
}

impl BuildVersion for CddsOrdered {
    type Drafts = TreeDrafts;

    fn begin(drafts: &mut TreeDrafts, before: View<'_>) -> Result<()> {
        drafts.begin(before)
    }

    fn seek(drafts: &mut TreeDrafts, before: &View<'_>, lane: &mut Lane, key: &[u8]) -> Result<()> {
        drafts.seek(before, lane, key)
    }

    fn put(work: &mut TreeBuilder, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool> {
        work.put_entry(tx, key, value)
    }

    fn remove(work: &mut TreeBuilder, tx: &mut Tx<'_>, key: &[u8]) -> Result<bool> {
        work.remove_entry(tx, key)
    }

    fn get_made(work: &TreeBuilder, tx: &Tx<'_>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(work.value_of(tx, key)?.map(<[u8]>::to_vec))
    }

    fn clear(work: &mut TreeBuilder, tx: &mut Tx<'_>) -> Result<()> {
        work.clear(tx)
    }

    fn write(work: &mut TreeBuilder, tx: &mut Tx<'_>) -> Result<RootWord> {
        if work.is_in_place() {
            return Ok(work.before.root);
        }
        let root = work.write_new_nodes(tx)?;
        work.store_changed_nodes(tx)?;
        Ok(root)
    }
}

impl Reclaim for CddsOrdered {
    fn last_change(region: &Region, dead: &Dead) -> Result<u64> {
        Node::open_any(region, dead.off)?.last_change()
    }

    fn parts(region: &Region, dead: &Dead) -> Result<Vec<Dead>> {
        clear::parts(&Node::open_any(region, dead.off)?, dead)
    }
}

impl Dismantle for CddsOrdered {
    fn remains(region: &Region, load: &Load<'_>, off: u64, version: u64) -> Result<Remains> {
        clear::remains(region, load, off, version)
    }
}

impl CheckNodes for CddsOrdered {
    fn check_version(checker: &mut Checker<'_, '_>, version: View<'_>) -> Result<()> {
        checker.check_tree(version)
    }

    fn check_dead_node(checker: &Checker<'_, '_>, dead: &Dead) -> Result<u64> {
        checker.check_dead_tree_node(dead)
    }

    fn check_dead_subtree(checker: &mut Checker<'_, '_>, dead: &Dead) -> Result<()> {
        checker.check_dead_subtree(dead)
    }
}
