//! Draws figures that were measured elsewhere, from their CSV.
//!
//! The first line of such a file is `# ` and the title, the lines that begin so after it are notes. The
//! columns are panel, series, category and value; others are not shown.

use crate::fill::cells;
use crate::plot::{self, Kind, Panel, Series};
use std::path::{Path, PathBuf};

/// Draws a file, and writes the drawing beside it. Returns where.
///
/// # Errors
///
/// When a file cannot be read or written, or is no such CSV.
pub fn draw(file: &Path) -> Result<PathBuf, String> {
    let failed = |what: &str, e: &dyn std::fmt::Display| format!("{what} {}: {e}", file.display());
    let csv = std::fs::read_to_string(file).map_err(|e| failed("reading", &e))?;
    let (title, panels, notes) = read(&csv).map_err(|e| failed("drawing", &e))?;
    let svg = plot::svg(&title, &panels, &notes).map_err(|e| failed("drawing", &e))?;
    let drawing = file.with_extension("svg");
    std::fs::write(&drawing, svg).map_err(|e| format!("writing {}: {e}", drawing.display()))?;
    Ok(drawing)
}

fn read(csv: &str) -> Result<(String, Vec<Panel>, Vec<String>), String> {
    let mut head = csv.lines().map_while(|line| line.strip_prefix("# ")).map(str::to_owned);
    let title = head.next().ok_or("the first line is no title")?;
    let mut rows = csv.lines().filter(|line| !line.starts_with('#')).map(cells);
    let names = rows.next().filter(|names| names.len() > 3).ok_or("there are fewer than four columns")?;
    let rows: Vec<Vec<String>> = rows.collect();
    if let Some(short) = rows.iter().find(|row| row.len() < 4) {
        return Err(format!("the row {short:?} has fewer than four cells"));
    }
    let mut panels = Vec::new();
    for panel in distinct(&rows, 0, |_| true) {
        let of_panel = |row: &Vec<String>| row[0] == panel;
        let mut categories = distinct(&rows, 2, of_panel);
        let numbers: Result<Vec<u64>, _> = categories.iter().map(|category| category.parse()).collect();
        // Numbers are in their order, however the rows are.
        if let Ok(mut numbers) = numbers.clone() {
            numbers.sort_unstable();
            categories = numbers.iter().map(u64::to_string).collect();
        }
        let value = |series: &String, category: &String| {
            let row = rows.iter().find(|row| of_panel(row) && row[1] == *series && row[2] == *category)?;
            row[3].parse().ok()
        };
        let series = distinct(&rows, 1, of_panel).into_iter().map(|name| {
            let values = categories.iter().map(|category| value(&name, category)).collect();
            Series { name, values }
        });
        panels.push(Panel {
            series: series.collect(),
            title: panel,
            x_label: names[2].replace('_', " "),
            y_label: names[3].replace('_', " "),
            kind: if numbers.is_ok() { Kind::Lines } else { Kind::Bars },
            categories,
            log: false,
        });
    }
    Ok((title, panels, head.collect()))
}

/// The values of a column, each once, in order of appearance.
fn distinct(rows: &[Vec<String>], column: usize, chosen: impl Fn(&Vec<String>) -> bool) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for row in rows.iter().filter(|row| chosen(row)) {
        if !found.contains(&row[column]) {
            found.push(row[column].clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: &str = "# A title\n# a note\nkind,system,clients,per_s,ratio\n\
                       A,one,10,5,1.00\nA,one,2,3,\nA,\"two, of them\",10,7,\nB,one,set,4,\n";

    #[test]
    fn columns_are_panels_series_and_categories() {
        let (title, panels, notes) = read(CSV).unwrap();
        assert_eq!((title.as_str(), notes), ("A title", vec!["a note".to_owned()]));
        assert_eq!((panels.len(), panels[0].kind, panels[1].kind), (2, Kind::Lines, Kind::Bars));
        assert_eq!(panels[0].categories, ["2", "10"]);
        let series = |name: &str, values: &[Option<f64>]| Series { name: name.into(), values: values.into() };
        assert_eq!(panels[0].series[0], series("one", &[Some(3.0), Some(5.0)]));
        assert_eq!(panels[0].series[1], series("two, of them", &[None, Some(7.0)]));
        assert_eq!((panels[0].x_label.as_str(), panels[0].y_label.as_str()), ("clients", "per s"));
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        for (csv, why) in
            [("a,b,c,d\n", "title"), ("# t\na,b\n", "columns"), ("# t\na,b,c,d\n1,2\n", "cells")]
        {
            assert!(read(csv).unwrap_err().contains(why), "{csv:?}");
        }
    }
}
