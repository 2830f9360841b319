//! Tables of a document, made from the figures' CSV files, so that none is written by hand.
//!
//! The text between a mark and the next `<!-- end -->` is replaced. Marks name a file in the document's
//! folder:
//!
//! ```text
//! <!-- table FILE.csv ROW COLUMN VALUE [NAME=TEXT ...] -->    a row for each ROW, a column for each COLUMN
//! <!-- notes FILE.csv -->                                     what the figure's numbers depend on
//! <!-- text FILE -->                                          the file as it is
//! ```
//!
//! `NAME=TEXT` chooses the lines with that text in the column NAME. A COLUMN and a VALUE of `*` stand for all
//! columns but ROW.

use std::fs;
use std::path::Path;

const END: &str = "<!-- end -->";

/// Replaces everything that marks stand for.
///
/// # Errors
///
/// When a file cannot be read or written, or has not what a mark asks for.
pub fn fill(document: &Path) -> Result<(), String> {
    let read = |path: &Path| fs::read_to_string(path).map_err(|e| format!("reading {}: {e}", path.display()));
    let folder = document.parent().unwrap_or(Path::new("."));
    let filled = filled(&read(document)?, |file| read(&folder.join(file)))?;
    fs::write(document, filled).map_err(|e| format!("writing {}: {e}", document.display()))
}

fn filled(text: &str, read: impl Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let Some(words) = mark(line) else { continue };
        let replacement = match words[..] {
            ["table", file, row, column, value, ref only @ ..] => {
                table(&read(file)?, row, column, value, only).map_err(|e| format!("{file}: {e}"))?
            }
            ["notes", file] => notes(&read(file)?),
            ["text", file] => format!("```text\n{}```\n", read(file)?),
            _ => continue,
        };
        out.push_str(&format!("\n{replacement}\n{END}\n"));
        if !lines.any(|line| line == END) {
            return Err(format!("nothing ends {line:?}"));
        }
    }
    Ok(out)
}

/// The words of a mark.
fn mark(line: &str) -> Option<Vec<&str>> {
    Some(line.strip_prefix("<!-- ")?.strip_suffix(" -->")?.split_whitespace().collect())
}

fn notes(csv: &str) -> String {
    let notes = csv.lines().map_while(|line| line.strip_prefix("# ")).skip(1);
    notes.map(|note| format!("- {note}\n")).collect()
}

fn table(csv: &str, row: &str, column: &str, value: &str, only: &[&str]) -> Result<String, String> {
    let mut lines = csv.lines().filter(|line| !line.starts_with('#')).map(cells);
    let names = lines.next().ok_or("no line with names")?;
    if (column, value) == ("*", "*") {
        return all_columns(&names, lines, row);
    }
    let place = |name: &str| {
        names.iter().position(|known| known == name).ok_or(format!("no column {name}; there are {names:?}"))
    };
    let (row, column, value) = (place(row)?, place(column)?, place(value)?);
    let mut chosen: Vec<Vec<String>> = lines.collect();
    for condition in only {
        let (name, text) = condition.split_once('=').ok_or(format!("{condition} is no NAME=TEXT"))?;
        let at = place(name)?;
        chosen.retain(|cells| cells[at] == text);
    }
    let distinct = |at: usize| {
        let mut found: Vec<&String> = Vec::new();
        for cells in &chosen {
            if !found.contains(&&cells[at]) {
                found.push(&cells[at]);
            }
        }
        found
    };
    let (rows, columns) = (distinct(row), distinct(column));
    let mut out = format!("| |{}\n|---|{}\n", heads(&columns), "---:|".repeat(columns.len()));
    for name in rows {
        out.push_str(&format!("| {name} |"));
        for of in &columns {
            let cell = chosen.iter().find(|cells| cells[row] == *name && cells[column] == **of);
            out.push_str(&format!(" {} |", cell.map_or("", |cells| cells[value].as_str())));
        }
        out.push('\n');
    }
    Ok(out)
}

/// A row for each line, with all its cells, the one of column `row` first.
fn all_columns(
    names: &[String],
    lines: impl Iterator<Item = Vec<String>>,
    row: &str,
) -> Result<String, String> {
    let first =
        names.iter().position(|name| name == row).ok_or(format!("no column {row}; there are {names:?}"))?;
    let others: Vec<usize> = (0..names.len()).filter(|at| *at != first).collect();
    let heads = heads(&others.iter().map(|at| &names[*at]).collect::<Vec<_>>());
    let mut out = format!("| |{heads}\n|---|{}\n", "---:|".repeat(others.len()));
    for cells in lines {
        let others: String = others.iter().map(|at| format!(" {} |", cells[*at])).collect();
        out.push_str(&format!("| {} |{others}\n", cells[first]));
    }
    Ok(out)
}

fn heads(columns: &[&String]) -> String {
    columns.iter().map(|column| format!(" {column} |")).collect()
}

/// The cells of a line of CSV.
pub(crate) fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut is_quoted) = (vec![String::new()], false);
    for character in line.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            other => cells.last_mut().expect("one at least").push(other),
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: &str = "# title\n# a note\ntree,bytes,operation,ns\n\"a, b\",8,put,1.5\n\"a, b\",8,get,2\nc,8,put,3\nc,9,put,4\n";

    #[test]
    fn a_table_is_made_of_the_chosen_lines() {
        let made = table(CSV, "tree", "operation", "ns", &["bytes=8"]).unwrap();
        assert_eq!(made, "| | put | get |\n|---|---:|---:|\n| a, b | 1.5 | 2 |\n| c | 3 |  |\n");
        let all = table(CSV, "operation", "*", "*", &[]).unwrap();
        assert!(
            all.starts_with("| | tree | bytes | ns |\n") && all.ends_with("| put | c | 9 | 4 |\n"),
            "{all}"
        );
        assert!(table(CSV, "tree", "what", "ns", &[]).unwrap_err().contains("what"));
    }

    #[test]
    fn only_what_is_marked_is_replaced_and_again_the_same() {
        let text = "one\n<!-- table x.csv tree operation ns bytes=9 -->\nold\n<!-- end -->\n<!-- notes x.csv -->\n<!-- end -->\ntwo\n";
        let read = |_: &str| Ok(CSV.to_owned());
        let once = filled(text, read).unwrap();
        assert!(once.contains("| c | 4 |") && once.contains("- a note") && !once.contains("old"), "{once}");
        assert!(once.starts_with("one\n") && once.ends_with("two\n"));
        assert_eq!(filled(&once, read).unwrap(), once);
        assert!(filled("<!-- notes x.csv -->\n", read).unwrap_err().contains("ends"));
    }
}
