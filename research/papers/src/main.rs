//! The `tembo-bench` command: draws the papers' figures.
#![forbid(unsafe_code)]

mod args;

use args::{Draw, Task};
use std::process::ExitCode;
use tembo_bench::figures::{Error, FIGURES, Figure};
use tembo_bench::fill::fill;
use tembo_goals::machine::Machine;

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
        Task::Summary(how) => how.print(tembo_bench::MEASUREMENTS),
        Task::Fill(document) => fill(&document).map_err(Error::from),
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
