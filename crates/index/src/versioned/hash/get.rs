//! Lookups in one version.

use super::super::bytes::VersionedBytes;
use super::super::view::View;
use super::layout::MAX_DEPTH;
use super::node::{TrieEntry, TrieNode, TriePlace, hash_of};
use crate::error::Result;
use tembo_pmem::Region;

/// The value of a key.
#[inline]
pub(super) fn get<'m>(view: View<'m>, key: &[u8]) -> Result<Option<VersionedBytes<'m>>> {
    let hash = hash_of(view.seed, key);
    if view.root.is_empty() {
        return Ok(None);
    }
    find(view.region, view.root.node(), 0, hash, key)?.map(|entry| entry.value(view.region)).transpose()
}

/// The entry of a key below a node.
#[inline]
pub(super) fn find(
    region: &Region,
    mut off: u64,
    depth: usize,
    hash: u64,
    key: &[u8],
) -> Result<Option<TrieEntry>> {
    for depth in depth..MAX_DEPTH {
        match TrieNode::open(region, off, depth)?.at(hash)? {
            TriePlace::Empty => return Ok(None),
            TriePlace::TrieEntry(entry) => {
                return Ok(entry.is_of(region, hash, key)?.then_some(entry));
            }
            TriePlace::Child(child) => off = child,
        }
    }
    let node = TrieNode::open(region, off, MAX_DEPTH)?;
    for place in 0..node.places() {
        if let TriePlace::TrieEntry(entry) = node.place(place)?
            && entry.is_of(region, hash, key)?
        {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}
