//! The papers' figures, each measured anew and written as CSV and SVG.
//!
//! A figure is a row of [`FIGURES`]: its name, and the function that measures it into a [`Drawing`].

pub(crate) mod cdds;
mod figure4;
mod nv_heaps;
mod solutions;
mod table3;

use crate::nvm::Params;
use crate::plot::{self, Panel};
use std::path::{Path, PathBuf};
use tembo_goals::machine::Machine;
use tembo_goals::progress::Progress;
use tembo_goals::table::Table;

pub use tembo_goals::Error;

/// The setup that figures are measured with.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Small, for finding out whether everything works; the numbers then mean little.
    pub quick: bool,
    /// Seed of keys and of their order.
    pub seed: u64,
    /// The modelled machine.
    pub params: Params,
    /// The modelled machine's memory.
    pub medium: String,
}

/// The measured values.
#[derive(Debug)]
pub struct Drawing {
    /// The numbers.
    pub table: Table,
    /// How they are shown.
    pub panels: Vec<Panel>,
    /// Other conditions that they depend on, such as sizes.
    pub notes: Vec<String>,
}

/// A figure of a paper.
#[derive(Debug)]
pub struct Figure {
    /// Its name on the command line and in file names.
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The number of steps on the progress bar.
    steps: fn(&Setup) -> u64,
    measure: fn(&Setup, &Progress) -> Result<Drawing, Error>,
}

/// All figures.
pub const FIGURES: &[Figure] = &[
    figure4::FIGURE,
    solutions::FIGURE_11,
    solutions::FIGURE_12,
    solutions::FIGURE_13,
    solutions::FIGURE_14,
    table3::FIGURE,
    nv_heaps::table1::FIGURE,
    nv_heaps::figure4::FIGURE,
    nv_heaps::figure5::FIGURE,
    nv_heaps::figure6::FIGURE,
    cdds::figure5::FIGURE,
    cdds::costs::FIGURE,
    cdds::overhead::FIGURE,
    cdds::wear::FIGURE,
];

impl Figure {
    /// A figure that is measured elsewhere, with so many steps.
    pub const fn new(
        name: &'static str,
        title: &'static str,
        steps: fn(&Setup) -> u64,
        measure: fn(&Setup, &Progress) -> Result<Drawing, Error>,
    ) -> Figure {
        Figure { name, title, steps, measure }
    }

    /// Measures the figure and writes `NAME.csv` and `NAME.svg` into `out`, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// When measuring needs something that is not there, or the files cannot be written.
    pub fn draw(&self, setup: &Setup, out: &Path) -> Result<[PathBuf; 2], Error> {
        let progress = Progress::new(self.name, (self.steps)(setup));
        let drawing = (self.measure)(setup, &progress)?;
        let notes = self.notes(setup, &drawing);
        std::fs::create_dir_all(out).map_err(|e| format!("making {}: {e}", out.display()))?;
        let write = |extension: &str, text: String| -> Result<PathBuf, Error> {
            let path = out.join(format!("{}.{extension}", self.name));
            std::fs::write(&path, text).map_err(|e| format!("writing {}: {e}", path.display()))?;
            Ok(path)
        };
        let mut header = vec![self.title.to_owned()];
        header.extend(notes.iter().cloned());
        let csv = write("csv", drawing.table.csv(&header))?;
        let svg = write("svg", plot::svg(self.title, &drawing.panels, &notes)?)?;
        Ok([csv, svg])
    }

    /// Everything that the numbers depend on.
    fn notes(&self, setup: &Setup, drawing: &Drawing) -> Vec<String> {
        let quick = if setup.quick { " --quick" } else { "" };
        let mut notes = drawing.notes.clone();
        notes.push(format!("machine: {}", Machine::this()));
        notes.push(format!(
            "seed: {}; command: tembo-bench {}{quick} --seed {}",
            setup.seed, self.name, setup.seed
        ));
        if setup.quick {
            notes.push("drawn with --quick: too small to be compared with anything".to_owned());
        }
        notes
    }
}

impl Setup {
    /// One line about the modelled machine.
    pub fn model_note(&self) -> String {
        format!("model: {} of {}; not a measurement of this machine", self.medium, self.params.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_figures_are_unique() {
        let mut names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FIGURES.len());
    }
}
