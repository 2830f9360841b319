//! The `tembo-bench` command: draws the papers' figures.
#![forbid(unsafe_code)]

mod args;

use args::{Draw, Summary, Task};
use std::process::ExitCode;
use tembo_bench::cdds::crash;
use tembo_bench::figures::{Error, FIGURES, Figure};
use tembo_bench::fill::fill;
use tembo_bench::machine::Machine;
use tembo_bench::summary::{self, Line};

fn main() -> ExitCode {
    let outcome = match args::task() {
        Task::List => {
            FIGURES.iter().for_each(|figure| println!("{:<12} {}", figure.name, figure.title));
            Ok(())
        }
        Task::Machine => {
            println!("{}", Machine::this());
            Ok(())
        }
        Task::Draw(figures, how) => draw(&figures, &how),
        Task::Summary(how) => summarise(&how),
        Task::Fill(document) => fill(&document).map_err(Error::from),
        Task::CddsChild(path, bytes) => crash::child(&path, bytes),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("tembo-bench: {e}");
            ExitCode::FAILURE
        }
    }
}

fn draw(figures: &[&Figure], how: &Draw) -> Result<(), Error> {
    let setup = how.setup()?;
    for figure in figures {
        let files = figure.draw(&setup, &how.out).map_err(|e| format!("{}: {e}", figure.name))?;
        println!("{:<12} {} and {}", figure.name, files[0].display(), files[1].display());
    }
    Ok(())
}

fn summarise(how: &Summary) -> Result<(), Error> {
    if !how.json {
        println!("{}", Machine::this());
    }
    summary::run(how.scale(), how.only.as_deref(), |line| {
        let json = |line: &Line| serde_json::to_string(line).unwrap_or_default();
        println!("{}", if how.json { json(line) } else { line.text() });
    })
}
