//! The simulator: what it records, tries and finds, shown by toy structures whose bugs are known, and by
//! regions with a journal or holes.

mod campaign;
mod creation;
mod holes;
mod journal;
mod logs;
mod record;
mod resume;
mod support;
mod threads;
