//! The format document, made from the code: `docs/format.md` is checked against this.

use crate::u64tree::layout::{PmFixedChild, PmFixedInner, PmFixedLeaf, PmFixedLine, PmFixedTree};
use crate::versioned::hash::layout::{PmCddsTrieEntry, PmCddsTrieNode};
use crate::versioned::layout::{PmCddsChunk, PmCddsDead, PmCddsHead, PmCddsKept, PmCddsQueue, PmCddsRecord};
use crate::versioned::tree::layout::{PmCddsEntry, PmCddsNode, PmCddsStamps};
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
    section::<PmFixedTree>(&mut out);
    section::<PmFixedLeaf>(&mut out);
    section::<PmFixedLine>(&mut out);
    section::<PmFixedInner>(&mut out);
    section::<PmFixedChild>(&mut out);
    section::<PmCddsHead>(&mut out);
    section::<PmCddsQueue>(&mut out);
    section::<PmCddsNode>(&mut out);
    section::<PmCddsEntry>(&mut out);
    section::<PmCddsStamps>(&mut out);
    section::<PmCddsTrieNode>(&mut out);
    section::<PmCddsTrieEntry>(&mut out);
    section::<PmCddsRecord>(&mut out);
    section::<PmCddsKept>(&mut out);
    section::<PmCddsChunk>(&mut out);
    section::<PmCddsDead>(&mut out);
    out
}
