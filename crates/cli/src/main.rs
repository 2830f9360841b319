//! The `tembo` command: a server and the tools for its pools.
//!
//! `args` has the arguments; each subcommand is a module with a `run` that returns an `Outcome`, from
//! which `exit_code` makes the exit code.
#![forbid(unsafe_code)]

mod address;
mod args;
mod backup;
mod bench;
mod causes;
mod check;
mod compact;
mod dump;
mod exit_code;
mod failure;
mod info;
mod load;
mod log;
mod maps;
mod memcached;
mod observation;
mod progress;
mod redis_file;
mod report;
mod rewrite;
mod serve;
mod served;
mod size;
mod snapshot;
mod space;
mod store;
mod texts;
mod tls;
mod top;
mod unclean;
mod unfinished;

use args::{Arguments, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    tembo::report_bus_errors();
    // Wrong usage ends the program here, with exit code 2 and the usage on standard error.
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => texts::bounded(error).exit(),
    };
    let outcome = match &arguments.command {
        Command::Serve(serve) => serve::run(serve),
        Command::Info(info) => info::run(info),
        Command::Check(check) => check::run(check),
        Command::Dump(dump) => dump::run(dump),
        Command::Load(load) => load::run(load),
        Command::Import(import) => redis_file::import(import),
        Command::Export(export) => redis_file::export(export),
        Command::Backup(arguments) => backup::backup(arguments),
        Command::Verify(arguments) => backup::verify(arguments),
        Command::Restore(arguments) => backup::restore(arguments),
        Command::Compact(compact) => compact::run(compact),
        Command::Maps(maps) => maps::run(maps),
        Command::Drop(drop) => maps::drop_maps(drop),
        Command::Snapshot(snapshot) => snapshot::run(snapshot),
        Command::Store(store) => store::run(store),
        Command::Bench(bench) => bench::run(bench),
        Command::Top(top) => top::run(top),
    };
    exit_code::exit_code(outcome, arguments.command.pool(), arguments.command.wants_json())
}
