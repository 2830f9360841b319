//! `tembo bench`: what operations cost on this machine, and the workload that crash tests use.

mod engine;
mod measure;
pub(crate) mod seeded;
mod table;
mod workload;

use crate::args::Bench;
use crate::failure::{Failure, Outcome};
use crate::report::{print, print_json};

/// Runs the kind of benchmark that was asked for.
pub(crate) fn run(arguments: &Bench) -> Outcome {
    match (&arguments.pool, arguments.seeded) {
        (Some(pool), true) => seeded::run(arguments, pool, &arguments.choices.options()),
        (None, false) => {
            let results = measure::run(arguments)?;
            if arguments.json { print_json(&results) } else { print(&table::text(&results)) }
        }
        _ => Err(Failure::Usage("--seeded and --pool belong together".to_owned())),
    }
}
