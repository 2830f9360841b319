//! The format document, made from the code: `docs/format.md` is checked against this.

use crate::wbtree::layout::{PmEntry, PmInner, PmLeaf, PmMap, PmRecord, PmSeparator};
use tembo_pool::format::section;

/// The tables of the index's media structs, in Markdown.
pub fn describe() -> String {
    let mut out = String::new();
    section::<PmMap>(&mut out);
    section::<PmLeaf>(&mut out);
    section::<PmEntry>(&mut out);
    section::<PmInner>(&mut out);
    section::<PmRecord>(&mut out);
    section::<PmSeparator>(&mut out);
    out
}
