//! What a structure has to bring along for its versions to be kept; everything else is the same for all structures.

use super::builder::Work;
use super::bytes::CddsBytes;
use super::check::Checker;
use super::create::View;
use super::deferred_stamps::Owed;
use super::dropped::{Load, Remains};
use super::entry::CddsEntry;
use super::layout::RootWord;
use super::queue::Dead;
use crate::error::Result;
use tembo_pmem::Region;
use tembo_pool::{Lane, Tx};

/// Is called with a key that differs between two versions, and its values in them.
pub(crate) type Visit<'v, 'm> =
    dyn FnMut(&[u8], Option<CddsBytes<'m>>, Option<CddsBytes<'m>>) -> Result<()> + 'v;

/// How a [`CddsMap`](crate::CddsMap) finds its keys: [`CddsOrdered`](crate::CddsOrdered) or
/// [`CddsHashed`](crate::CddsHashed). What it is made of is this crate's own.
pub trait CddsStructure: Sized + 'static {
    /// The walk over all keys of a version.
    type Iter<'r>: Iterator<Item = Result<CddsEntry<'r>>>;

    /// What kind of root it has, as noted in the pool's root directory.
    #[doc(hidden)]
    const ROOT_KIND: u32;
    /// The first word of its head: a magic and the format version.
    #[doc(hidden)]
    const FORMAT: u64;
    /// What a thread asks for that wants to write, and what it holds as long as a closure is called; for errors.
    #[doc(hidden)]
    const TURN: &'static str;
    #[doc(hidden)]
    const IN_CLOSURE: &'static str;
    /// Whether its head has a seed.
    #[doc(hidden)]
    const HAS_SEED: bool;
    /// What is in memory of a version in the making.
    #[doc(hidden)]
    type Drafts: Default + Send;

    /// Begins to change a version, with the memory of drafts of another.
    #[doc(hidden)]
    fn begin(drafts: &mut Self::Drafts, before: View<'_>) -> Result<()>;

    /// Looks for the key of the only change that a version will have, in the version before.
    #[doc(hidden)]
    fn seek(drafts: &mut Self::Drafts, before: &View<'_>, lane: &mut Lane, key: &[u8]) -> Result<()> {
        let _ = (drafts, before, lane, key);
        Ok(())
    }

    /// Puts a key of a length that is allowed; returns whether it was there.
    #[doc(hidden)]
    fn put(work: &mut Work<Self>, tx: &mut Tx<'_>, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Removes a key; returns whether it was there. Calls [`Work::change`] before it changes anything.
    #[doc(hidden)]
    fn remove(work: &mut Work<Self>, tx: &mut Tx<'_>, key: &[u8]) -> Result<bool>;

    /// The value of a key in the version that is being made.
    #[doc(hidden)]
    fn get_made(work: &Work<Self>, tx: &Tx<'_>, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Removes everything, in time that does not follow how much that is.
    #[doc(hidden)]
    fn clear(work: &mut Work<Self>, tx: &mut Tx<'_>) -> Result<()>;

    /// Writes and stores all that changed but the head; returns the root.
    #[doc(hidden)]
    fn write(work: &mut Work<Self>, tx: &mut Tx<'_>) -> Result<RootWord>;

    /// The value of a key.
    #[doc(hidden)]
    fn get<'m>(view: View<'m>, key: &[u8]) -> Result<Option<CddsBytes<'m>>>;

    /// A walk over all keys.
    #[doc(hidden)]
    fn iter(view: View<'_>) -> Self::Iter<'_>;

    /// Calls `visit` with each key that differs. `owed` is what the earlier version [misses](Shared::owed_to).
    #[doc(hidden)]
    fn differences<'m>(from: View<'m>, to: View<'m>, owed: &Owed, visit: &mut Visit<'_, 'm>) -> Result<()>;

    /// Proves the nodes of a version, and counts its keys.
    #[doc(hidden)]
    fn check_version(checker: &mut Checker<'_, '_>, version: View<'_>) -> Result<()>;

    /// Proves a node that died, and returns its bytes.
    #[doc(hidden)]
    fn check_dead_node(checker: &Checker<'_, '_>, dead: &Dead) -> Result<u64>;

    /// Proves all nodes that died at once with this one, and reaches them and their records.
    #[doc(hidden)]
    fn check_dead_subtree(checker: &mut Checker<'_, '_>, dead: &Dead) -> Result<()>;

    /// The last version that changed something in a dead subtree.
    #[doc(hidden)]
    fn last_change(region: &Region, dead: &Dead) -> Result<u64>;

    /// What a node still leads to in a version of a map that was dropped.
    #[doc(hidden)]
    fn remains(region: &Region, load: &Load<'_>, off: u64, version: u64) -> Result<Remains>;

    /// What a dead subtree consists of: its uppermost node, and what that leads to in its last version.
    #[doc(hidden)]
    fn parts(region: &Region, dead: &Dead) -> Result<Vec<Dead>>;
}
