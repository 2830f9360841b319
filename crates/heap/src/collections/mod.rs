//! Collections: vectors, texts, maps and boxes, as fields of a program's own types.
//!
//! | type | what | an operation costs |
//! |---|---|---|
//! | [`PVec`] | values one after another | a constant number of words at the end, on average |
//! | [`PBytes`], [`PString`] | bytes, and a text | a line for up to 16 bytes, an allocation for more |
//! | [`PHashMap`] | values by key, in no order | a few lines |
//! | [`PMap`] | values by key, in the keys' order | a line or two for each level of a tree |
//! | [`PBox`] | one value, in an object that nothing else leads to | an allocation |
//!
//! Collections consist of objects. A transaction changes them together with everything else that it changes;
//! they do not log, lock or flush by themselves. Their methods are those of their places, and take the
//! transaction first.

pub(crate) mod hash;
mod keys;
mod ordered;
mod sorted;
mod tally;
mod text;
mod unique;
mod vec;

pub use hash::PHashMap;
pub use hash::entries::Entries;
pub use keys::{MapKey, OrdKey};
pub use ordered::PMap;
pub use ordered::range::Range;
pub use text::{PBytes, PString};
pub use unique::PBox;
pub use vec::{PVec, Places};
