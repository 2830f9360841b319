//! The `tembo-bench` command: draws the papers' figures.
#![forbid(unsafe_code)]

mod args;

use args::{Arguments, Command};
use clap::Parser;
use tembo_bench::machine::Machine;

fn main() {
    match Arguments::parse().command {
        Command::Machine => println!("{}", Machine::this()),
    }
}
