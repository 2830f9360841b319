//! Tables of measurements as CSV, headed by what they depend on.

use std::fmt::Write;

/// Named columns and rows of text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: &[&'static str]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    ///
    /// When it has not one cell for each column.
    pub fn add(&mut self, row: Vec<String>) {
        assert_eq!(row.len(), self.columns.len(), "a row has a cell for each column");
        self.rows.push(row);
    }

    /// The rows.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// The table as CSV; `header` goes before it, line by line, as comments.
    pub fn csv(&self, header: &[String]) -> String {
        let mut text = String::new();
        for line in header.iter().flat_map(|part| part.lines()) {
            let _ = writeln!(text, "# {line}");
        }
        let _ = writeln!(text, "{}", self.columns.join(","));
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(|cell| quoted(cell)).collect();
            let _ = writeln!(text, "{}", cells.join(","));
        }
        text
    }
}

/// A number with as many digits as it deserves.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        size if size < 0.1 => 4,
        size if size < 10.0 => 2,
        size if size < 1000.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_its_header_as_comments_and_quotes_what_it_must() {
        let mut table = Table::new(&["tree", "ns"]);
        table.add(vec!["a, \"b\"".to_owned(), number(12.345)]);
        let text = table.csv(&["seed: 1".to_owned(), "two\nlines".to_owned()]);
        assert_eq!(text, "# seed: 1\n# two\n# lines\ntree,ns\n\"a, \"\"b\"\"\",12.3\n");
    }

    #[test]
    fn numbers_keep_their_leading_digits() {
        let shown: Vec<String> = [0.0, 0.0123, 1.234, 123.45, 12345.6, -2.5].map(number).to_vec();
        assert_eq!(shown, ["0", "0.0123", "1.23", "123.5", "12346", "-2.50"]);
    }
}
