//! The product's own goals in speed and cost, measured, and the tools that measure them.
//!
//! `cargo run --release -p tembo-goals` prints a line for each goal: its value, how that compares, and
//! whether the goal is met. Sides that are compared run by turns in one process.
#![forbid(unsafe_code)]

pub mod by_turns;
pub mod clock;
mod comparison;
pub mod crash;
pub mod goals;
pub mod machine;
pub mod progress;
pub mod stats;
mod store;
mod strings;
pub mod table;
mod versions;
mod words;
pub mod workload;

use goals::Measurement;

/// Why a measurement could not be made.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Every goal of the product.
pub const MEASUREMENTS: &[Measurement] = &[
    words::COUNTS,
    words::ONE_MILLION,
    words::TWENTY_MILLION,
    words::THREADS,
    strings::ONE_MILLION,
    strings::TWENTY_MILLION,
    strings::THREADS,
    store::ONE_MILLION,
    store::THREADS,
    store::SPACE,
    versions::COUNTS,
    versions::TUPLES,
    versions::SMALL_TUPLES,
    versions::READERS,
    versions::OPEN,
    versions::OPEN_LARGE,
    versions::ROLLBACK,
];
