//! A bar on standard error while something long runs, if a person is looking.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// Progress of one long piece of work. Invisible when standard error is not a terminal; erased when dropped.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Steps not yet shown: redrawing for every one of millions would cost more than the work.
    pending: u64,
}

/// Steps between two updates of the bar.
const STRIDE: u64 = 1024;

impl Progress {
    /// Work called `what` of `total` steps, or of an unknown number.
    pub(crate) fn new(what: &'static str, total: Option<u64>) -> Progress {
        let (bar, template) = match total {
            Some(total) => (ProgressBar::new(total), "{msg} {wide_bar} {human_pos}/{human_len} {eta}"),
            None => (ProgressBar::new_spinner(), "{spinner} {msg} {human_pos} {elapsed}"),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { bar, pending: 0 }
    }

    /// `steps` more are done.
    #[inline]
    pub(crate) fn advance(&mut self, steps: u64) {
        self.pending += steps;
        if self.pending >= STRIDE {
            self.bar.inc(self.pending);
            self.pending = 0;
        }
    }

    /// Counts one more step, and shows it at once: for steps that take long.
    pub(crate) fn show(&mut self) {
        self.bar.inc(self.pending + 1);
        self.pending = 0;
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
    fn the_bar_follows_in_strides() {
        let mut progress = Progress::new("testing", Some(10 * STRIDE));
        progress.advance(STRIDE - 1);
        assert_eq!(progress.bar.position(), 0);
        progress.advance(2);
        assert_eq!(progress.bar.position(), STRIDE + 1);
    }
}
