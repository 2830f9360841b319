//! The check: it reads a whole heap, without changing it and without its program's types, and proves that
//! every pointer is valid, every count exact, and nothing leaked.

mod format;
mod summary;
mod walk;

pub use format::{Description, HeapFormat, describe, format_at};
pub(crate) use format::{find, is_migrating};
pub use summary::{Circle, Summary, TypeUsage};
pub(crate) use walk::objects;
pub use walk::{check, check_beside_unknown};
