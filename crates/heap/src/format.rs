//! The format document, made from the code: `docs/format.md` is checked against this.

use crate::layout::{PmArray, PmCondition, PmDying, PmHeap, PmObject, PmOrphans, PmPointer, PmType};
use tembo_pool::format::section;

/// The tables of the heap's media structs, in Markdown.
pub fn describe() -> String {
    let mut out = String::new();
    section::<PmHeap>(&mut out);
    section::<PmObject>(&mut out);
    section::<PmArray>(&mut out);
    section::<PmType>(&mut out);
    section::<PmPointer>(&mut out);
    section::<PmCondition>(&mut out);
    section::<PmDying>(&mut out);
    section::<PmOrphans>(&mut out);
    out
}
