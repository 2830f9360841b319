//! The arguments of the command line.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use std::path::{Path, PathBuf};
use tembo_bench::figures::{FIGURES, Figure, Setup};
use tembo_bench::nvm::Params;
use tembo_goals::goals::Arguments;

const EXAMPLES: &str = "\
Examples:
  tembo-bench list
  tembo-bench all --quick --out figures
  tembo-bench figure-4
  tembo-bench figure-4 --params machine.toml --medium pcm
  tembo-bench cdds --out research/figures
  tembo-bench plot research/figures/figure-15.csv
  tembo-bench tree-server --solution wbtree --port 11211
  tembo-bench summary
  tembo-bench summary --only cdds
  tembo-bench summary --json --only table-3

Each figure is written as CSV and as SVG, with the machine, the parameters and the seed. The summary has a line
for each figure that is promised: its value, how that compares, the goal, and whether it is met; a missed goal
is no failure.
Exit codes: 0 done, 1 failed, 2 wrong usage.";

/// The subcommand.
#[derive(Debug)]
pub(crate) enum Task {
    /// Name the figures.
    List,
    /// Describe this machine.
    Machine,
    /// Draw figures.
    Draw(Vec<&'static Figure>, Draw),
    /// Measure what is promised.
    Summary(Arguments),
    /// Make the tables of a document.
    Fill(PathBuf),
    /// Draw a figure that was measured elsewhere.
    Plot(PathBuf),
    /// Serve a tree to memcached's clients: its name, the port, and the keys that it has.
    TreeServer(String, u16, u64),
    /// Name the trees that can be served.
    Trees,
}

/// How figures are drawn.
#[derive(Debug, Args)]
pub(crate) struct Draw {
    /// Draw small, to find out whether everything works
    #[arg(long)]
    quick: bool,
    /// Where the files are written
    #[arg(long, value_name = "DIR", default_value = "figures")]
    pub(crate) out: PathBuf,
    /// Seed of keys and of their order
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
    /// The modelled machine: `wbtree`, `nv-heaps`, or a TOML file like those
    #[arg(long, value_name = "NAME|FILE", default_value = "wbtree")]
    params: String,
    /// The modelled machine's memory
    #[arg(long, value_name = "NAME", default_value = "pcm")]
    medium: String,
}

impl Draw {
    /// The setup that the figures are measured with.
    ///
    /// # Errors
    ///
    /// When the parameters cannot be read, or have no such memory.
    pub(crate) fn setup(&self) -> Result<Setup, String> {
        let params = match self.params.as_str() {
            "wbtree" => Params::wbtree(),
            "nv-heaps" => Params::nv_heaps(),
            file => read_params(Path::new(file))?,
        };
        params.medium(&self.medium).map_err(|e| e.to_string())?;
        Ok(Setup { quick: self.quick, seed: self.seed, params, medium: self.medium.clone() })
    }
}

fn read_params(file: &Path) -> Result<Params, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| format!("reading {}: {e}; expected wbtree, nv-heaps or a TOML file", file.display()))?;
    Params::parse(&text).map_err(|e| format!("{}: {e}", file.display()))
}

fn command() -> Command {
    let draw = |name, about: String| Draw::augment_args(Command::new(name).about(about));
    Command::new("tembo-bench")
        .about("Draws the papers' figures and measures what they are about")
        .version(env!("CARGO_PKG_VERSION"))
        .max_term_width(100)
        .after_help(EXAMPLES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(Command::new("list").about("Name the figures"))
        .subcommand(Command::new("machine").about("Describe this machine as the figures do"))
        .subcommand(Arguments::augment_args(
            Command::new("summary").about("Measure what is promised: a line for each figure, with its goal"),
        ))
        .subcommand(
            Command::new("fill")
                .about("Make the marked tables of a document from the CSV files beside it")
                .arg(Arg::new("document").required(true).value_parser(value_parser!(PathBuf))),
        )
        .subcommand(
            Command::new("plot")
                .about("Draw the figure of a CSV: its columns are panel, series, category and value")
                .arg(Arg::new("csv").required(true).value_parser(value_parser!(PathBuf))),
        )
        .subcommand(
            Command::new("tree-server")
                .about("Serve memcached's clients with one of the trees as the index")
                .arg(Arg::new("list").long("list").action(ArgAction::SetTrue).help("Name the trees"))
                .arg(Arg::new("solution").long("solution").value_name("NAME").default_value("wbtree"))
                .arg(Arg::new("port").long("port").default_value("11211").value_parser(value_parser!(u16)))
                .arg(Arg::new("keys").long("keys").default_value("1000000").value_parser(value_parser!(u64))),
        )
        .subcommand(draw("all", "Draw all figures".to_owned()))
        .subcommand(draw("cdds", "Draw the figures of the CDDS paper".to_owned()))
        .subcommands(FIGURES.iter().map(|figure| draw(figure.name, format!("Draw {}", figure.title))))
}

/// Reads the command line. Wrong usage ends the program here, with exit code 2 and the usage on standard
/// error.
pub(crate) fn task() -> Task {
    understood(&command().get_matches()).unwrap_or_else(|e| e.exit())
}

/// The part of a figure's name that says which paper it is of.
fn group(figure: &Figure) -> &'static str {
    figure.name.split_once('-').map_or("", |(paper, _)| paper)
}

fn understood(matches: &ArgMatches) -> Result<Task, clap::Error> {
    let Some((name, matches)) = matches.subcommand() else { return Ok(Task::List) };
    Ok(match name {
        "list" => Task::List,
        "machine" => Task::Machine,
        "summary" => Task::Summary(Arguments::from_arg_matches(matches)?),
        "fill" => Task::Fill(matches.get_one::<PathBuf>("document").cloned().unwrap_or_default()),
        "plot" => Task::Plot(matches.get_one::<PathBuf>("csv").cloned().unwrap_or_default()),
        "tree-server" if matches.get_flag("list") => Task::Trees,
        "tree-server" => Task::TreeServer(
            matches.get_one::<String>("solution").cloned().unwrap_or_default(),
            matches.get_one("port").copied().unwrap_or_default(),
            matches.get_one("keys").copied().unwrap_or_default(),
        ),
        _ => {
            let chosen = |figure: &&Figure| name == "all" || figure.name == name || group(figure) == name;
            let figures = FIGURES.iter().filter(chosen).collect();
            Task::Draw(figures, Draw::from_arg_matches(matches)?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Task, clap::Error> {
        understood(&command().try_get_matches_from(line.split_whitespace())?)
    }

    #[test]
    fn the_definitions_are_consistent() {
        command().debug_assert();
    }

    #[test]
    fn all_is_every_figure_and_a_name_is_one() {
        let Ok(Task::Draw(figures, draw)) = parse("tembo-bench all --quick --seed 7") else {
            panic!("not all")
        };
        assert_eq!(figures.len(), FIGURES.len());
        let setup = draw.setup().unwrap();
        assert!(setup.quick && setup.seed == 7 && setup.params.name == "wbtree");
        let Ok(Task::Draw(figures, _)) = parse("tembo-bench figure-4") else { panic!("not a figure") };
        assert_eq!(figures.iter().map(|figure| figure.name).collect::<Vec<_>>(), ["figure-4"]);
        let Ok(Task::Draw(figures, _)) = parse("tembo-bench cdds") else { panic!("not a paper's") };
        assert!(figures.len() > 3 && figures.iter().all(|figure| figure.name.starts_with("cdds-")));
    }

    #[test]
    fn wrong_arguments_are_refused_with_what_is_expected() {
        for (line, expected) in
            [("tembo-bench figure-99", "figure-99"), ("tembo-bench list --quick", "--quick")]
        {
            let error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains(expected), "{line}: {error}");
        }
        for (line, expected) in [
            ("tembo-bench all --params none.toml", "none.toml"),
            ("tembo-bench all --medium dram", "they have pcm"),
        ] {
            let Ok(Task::Draw(_, draw)) = parse(line) else { panic!("{line}") };
            let error = draw.setup().expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn the_examples_in_the_help_are_accepted() {
        let examples: Vec<&str> = EXAMPLES.lines().filter_map(|line| line.strip_prefix("  ")).collect();
        assert!(examples.len() > 3);
        for line in examples {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
        }
    }
}
