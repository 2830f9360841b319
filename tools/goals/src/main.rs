//! The `tembo-goals` command: measures the product's goals.
#![forbid(unsafe_code)]

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use tembo_goals::goals::Arguments;
use tembo_goals::{MEASUREMENTS, crash};

const EXAMPLES: &str = "\
Examples:
  tembo-goals
  tembo-goals --only words-1M
  tembo-goals --json --only string-lookup-1M
  tembo-goals --quick

Each line has a value, its ratio to another side of the same run, the goal, and whether the goal is met. A missed goal
is no failure.
Exit codes: 0 done, 1 failed, 2 wrong usage.";

/// Measures the product's goals in speed and cost: a line each
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES, max_term_width = 100, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    arguments: Arguments,
    #[command(subcommand)]
    child: Option<Child>,
}

#[derive(Debug, Subcommand)]
enum Child {
    /// Fills a versioned tree and updates it until this process is killed
    #[command(name = crash::CHILD, hide = true)]
    Crash(Fill),
}

#[derive(Debug, Args)]
struct Fill {
    path: PathBuf,
    bytes: u64,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.child {
        Some(Child::Crash(fill)) => crash::child(&fill.path, fill.bytes),
        None => cli.arguments.print(MEASUREMENTS),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("tembo-goals: {e}");
            ExitCode::FAILURE
        }
    }
}
