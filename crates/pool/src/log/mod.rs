//! The redo log.

pub(crate) mod lane;
pub(crate) mod line_owners;
pub(crate) mod lines;
pub(crate) mod record;
pub(crate) mod recover;
