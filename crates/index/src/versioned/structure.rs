//! What a structure has to bring along for its versions to be kept; everything else is the same for all structures.

use super::builder::BuildVersion;
use super::bytes::VersionedBytes;
use super::checker::CheckNodes;
use super::deferred_stamps::DeferredStamps;
use super::dropped::Dismantle;
use super::entry::VersionedEntry;
use super::view::View;
use crate::error::Result;

/// Is called with a key that differs between two versions, and its values in them.
pub(crate) type Visit<'v, 'm> =
    dyn FnMut(&[u8], Option<VersionedBytes<'m>>, Option<VersionedBytes<'m>>) -> Result<()> + 'v;

/// How a [`VersionedMap`](crate::VersionedMap) finds its keys: [`TreeStructure`](crate::TreeStructure) or
/// [`HashStructure`](crate::HashStructure). What it is made of is this crate's own.
pub trait VersionedStructure: BuildVersion + CheckNodes + Dismantle {
    /// The walk over all keys of a version.
    type Iter<'r>: Iterator<Item = Result<VersionedEntry<'r>>>;

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
    /// The value of a key.
    #[doc(hidden)]
    fn get<'m>(view: View<'m>, key: &[u8]) -> Result<Option<VersionedBytes<'m>>>;

    /// A walk over all keys.
    #[doc(hidden)]
    fn iter(view: View<'_>) -> Self::Iter<'_>;

    /// Calls `visit` with each key that differs. `owed` is what the earlier version [misses](Shared::deferred_for).
    #[doc(hidden)]
    fn differences<'m>(
        from: View<'m>,
        to: View<'m>,
        deferred: &DeferredStamps,
        visit: &mut Visit<'_, 'm>,
    ) -> Result<()>;
}
