//! The papers' figures and what they need: costs counted as words, lines and fences; a model of non-volatile
//! memory; the trees that the wB+-Tree and the CDDS tree are compared with; the programs of the NV-heaps
//! paper; tables and drawings.
//!
//! `cargo research list` names what can be drawn.
#![forbid(unsafe_code)]

pub mod cdds;
pub mod counts;
pub mod drawn;
pub mod figures;
pub mod fill;
mod goals_of_cdds;
mod goals_of_papers;
mod goals_of_programs;
pub mod mem;
pub mod nvm;
pub mod plot;
pub mod product;
pub mod programs;
pub mod runs;
pub mod tree_server;
pub mod trees;

use tembo_goals::goals::Measurement;

/// The measurements of the papers' structures and programs.
pub const MEASUREMENTS: &[Measurement] = &[
    goals_of_papers::TABLE_3,
    goals_of_papers::MODEL,
    goals_of_papers::PRODUCT,
    goals_of_programs::THREADS,
    goals_of_cdds::COUNTS,
    goals_of_cdds::OVERHEAD,
];
