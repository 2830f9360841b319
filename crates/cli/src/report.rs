//! The output of subcommands: lines of `name  value` for people, one JSON object for programs.

use crate::failure::{Failure, Outcome};
use serde::Serialize;
use std::io::Write;

/// Prints `value` as JSON on one line.
pub(crate) fn print_json(value: &impl Serialize) -> Outcome {
    let text = serde_json::to_string(value).map_err(|e| Failure::Failed(format!("writing JSON: {e}")))?;
    print(&format!("{text}\n"))
}

/// Prints text as it is.
pub(crate) fn print(text: &str) -> Outcome {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::output)
}

/// Lines of names and values, the values below each other.
#[derive(Default)]
pub(crate) struct Lines {
    lines: Vec<(&'static str, String)>,
}

impl Lines {
    /// Adds a line.
    pub(crate) fn add(&mut self, name: &'static str, value: impl ToString) -> &mut Lines {
        self.lines.push((name, value.to_string()));
        self
    }

    /// The lines, indented by two.
    pub(crate) fn text(&self) -> String {
        let width = self.lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        self.lines.iter().map(|(name, value)| format!("  {name:width$}  {value}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_below_each_other() {
        let mut lines = Lines::default();
        lines.add("pool", "a.pool").add("durability", 7);
        assert_eq!(lines.text(), "  pool        a.pool\n  durability  7\n");
        assert_eq!(Lines::default().text(), "");
    }
}
