//! The format document, made from the code: `docs/format.md` is checked against this.

use crate::u64tree::layout::{PmU64Child, PmU64Inner, PmU64Leaf, PmU64Line, PmU64Tree};
use crate::versioned::hash::layout::{PmVersionedTrieEntry, PmVersionedTrieNode};
use crate::versioned::layout::{
    PmVersionedChunk, PmVersionedDead, PmVersionedHead, PmVersionedKept, PmVersionedQueue, PmVersionedRecord,
};
use crate::versioned::tree::layout::{PmVersionedEntry, PmVersionedNode, PmVersionedStamps};
use crate::wbtree::layout::{PmEntry, PmInner, PmLeaf, PmLength, PmMap, PmRecord, PmSeparator};
use tembo_pool::format::section;

/// The tables of the index's media structs, in Markdown.
pub fn describe() -> String {
    let mut out = String::new();
    section::<PmMap>(&mut out);
    section::<PmLength>(&mut out);
    section::<PmLeaf>(&mut out);
    section::<PmEntry>(&mut out);
    section::<PmInner>(&mut out);
    section::<PmRecord>(&mut out);
    section::<PmSeparator>(&mut out);
    section::<PmU64Tree>(&mut out);
    section::<PmU64Leaf>(&mut out);
    section::<PmU64Line>(&mut out);
    section::<PmU64Inner>(&mut out);
    section::<PmU64Child>(&mut out);
    section::<PmVersionedHead>(&mut out);
    section::<PmVersionedQueue>(&mut out);
    section::<PmVersionedNode>(&mut out);
    section::<PmVersionedEntry>(&mut out);
    section::<PmVersionedStamps>(&mut out);
    section::<PmVersionedTrieNode>(&mut out);
    section::<PmVersionedTrieEntry>(&mut out);
    section::<PmVersionedRecord>(&mut out);
    section::<PmVersionedKept>(&mut out);
    section::<PmVersionedChunk>(&mut out);
    section::<PmVersionedDead>(&mut out);
    out
}
