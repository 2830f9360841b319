//! A bar on standard error while something long runs, if a person is looking.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// Progress of one long piece of work. Invisible when standard error is not a terminal; gone when dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Work called `what` of `total` steps.
    pub fn new(what: &str, total: u64) -> Progress {
        let bar = ProgressBar::new(total);
        if let Ok(style) = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {eta} {msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { bar }
    }

    /// Says what is being done now.
    pub fn doing(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
    }

    /// Takes the bar away while something is printed.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// One more step is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_add_up() {
        let progress = Progress::new("testing", 2);
        progress.doing("this");
        progress.step();
        assert_eq!(progress.bar.position(), 1);
    }
}
