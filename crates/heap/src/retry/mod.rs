//! Runs transactions: again after a conflict, serially after many conflicts.

mod attempts;
mod backoff;
mod course;
mod quiet;
mod run;
mod serial;

pub(crate) use run::{read, write, write_unless_busy};
