//! The `tembo-bench` command: draws the papers' figures.
#![forbid(unsafe_code)]

mod args;

use args::{Draw, Task};
use std::process::ExitCode;
use tembo_bench::drawn::draw as draw_measured;
use tembo_bench::figures::{Error, FIGURES, Figure};
use tembo_bench::fill::fill;
use tembo_bench::tree_server;
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
        Task::Plot(csv) => {
            draw_measured(&csv).map_err(Error::from).map(|file| println!("{}", file.display()))
        }
        Task::Trees => {
            tree_server::names().for_each(|name| println!("{name}"));
            Ok(())
        }
        Task::TreeServer(name, port, keys) => tree_server::serve(&name, port, keys),
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
