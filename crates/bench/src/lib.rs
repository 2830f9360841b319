//! The papers' figures and what they need: costs counted as words, lines and fences; a model of non-volatile
//! memory; the trees that the wB+-Tree and the CDDS tree are compared with; the programs of the NV-heaps paper; tables and drawings.
//!
//! `cargo run --release -p tembo-bench -- list` names what can be drawn.
#![forbid(unsafe_code)]

pub mod cdds;
pub mod clock;
pub mod counts;
pub mod figures;
pub mod fill;
pub mod machine;
pub mod mem;
pub mod nvm;
pub mod plot;
pub mod product;
pub mod programs;
pub mod progress;
pub mod runs;
pub mod summary;
pub mod table;
pub mod trees;
pub mod workload;
