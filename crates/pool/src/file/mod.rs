//! The pool file as a whole: how it is created, locked, opened, and what its header and root directory say.
//!
//! Nothing here knows of an open pool: these files work on a file or on a region.

pub(crate) mod create;
pub(crate) mod features;
pub(crate) mod file_lock;
pub(crate) mod header;
pub(crate) mod journal;
pub(crate) mod opening;
pub(crate) mod options;
pub(crate) mod roots;
