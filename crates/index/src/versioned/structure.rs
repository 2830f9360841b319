//! The trait by which structures differ. Everything else is the same for all versioned maps.

use super::builder::BuildVersion;
use super::bytes::VersionedBytes;
use super::checker::CheckNodes;
use super::deferred_stamps::DeferredStamps;
use super::dropped::Dismantle;
use super::entry::VersionedEntry;
use super::view::View;
use crate::error::Result;

/// A function that gets a key that differs between two versions, and its values in both.
pub(crate) type Visit<'v, 'm> =
    dyn FnMut(&[u8], Option<VersionedBytes<'m>>, Option<VersionedBytes<'m>>) -> Result<()> + 'v;

/// How a [`VersionedMap`](crate::VersionedMap) finds its keys: [`TreeStructure`](crate::TreeStructure) or
/// [`HashStructure`](crate::HashStructure). Its supertraits are private to this crate.
pub trait VersionedStructure: BuildVersion + CheckNodes + Dismantle {
    /// The walk over all keys of a version.
    type Iter<'r>: Iterator<Item = Result<VersionedEntry<'r>>>;

    /// The kind of its root in the pool's root directory.
    #[doc(hidden)]
    const ROOT_KIND: u32;
    /// The first word of its head: a magic and the format version.
    #[doc(hidden)]
    const FORMAT: u64;
    /// For errors: the name of the turn to write, and of the lock held while a closure runs.
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

    /// Calls `visit` with each key that differs. `deferred` has the stamps deferred for the earlier version.
    #[doc(hidden)]
    fn differences<'m>(
        from: View<'m>,
        to: View<'m>,
        deferred: &DeferredStamps,
        visit: &mut Visit<'_, 'm>,
    ) -> Result<()>;
}
