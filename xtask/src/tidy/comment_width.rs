//! Comments and documents are as narrow as the code.

use super::comments::comment_lines;
use super::tree::{RustFile, TextFile};
use super::{Report, Rule, Tree};

pub(super) const RULE: Rule = Rule {
    name: "comment-width",
    why: "a long line is read with effort and compared badly; code has 110 columns, and the formatter leaves comments alone.",
    check,
};

/// Columns of a line, as for code (`rustfmt.toml`).
const MAX_COLUMNS: usize = 110;

fn check(tree: &Tree, report: &mut Report<'_>) {
    for file in tree.rust_files() {
        check_comments(&file, report);
    }
    for file in tree.text_files().filter(|file| is_document(&file.path)) {
        check_document(file, report);
    }
}

/// Pages of `docs` and of the root. The figures' pages of `research` consist of tables and of what they show.
fn is_document(path: &str) -> bool {
    path.ends_with(".md") && (path.starts_with("docs/") || !path.contains('/'))
}

/// Rows of tables, and links, cannot be broken.
fn may_be_wide(text: &str) -> bool {
    text.starts_with('|') || text.contains("](") || text.contains("://")
}

fn check_comments(file: &RustFile<'_>, report: &mut Report<'_>) {
    let lines: Vec<&str> = file.text.lines().collect();
    for (line, _, text) in comment_lines(file) {
        let columns = lines.get(line - 1).map_or(0, |line| line.chars().count());
        if columns > MAX_COLUMNS && !may_be_wide(text) {
            add(report, file.path, line, columns);
        }
    }
}

fn check_document(file: &TextFile, report: &mut Report<'_>) {
    let mut in_code = false;
    for (at, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let is_code = in_code || line.starts_with("    ");
        let columns = line.chars().count();
        if columns > MAX_COLUMNS && !is_code && !may_be_wide(line.trim_start()) {
            add(report, &file.path, at + 1, columns);
        }
    }
}

fn add(report: &mut Report<'_>, path: &str, line: usize, columns: usize) {
    let what = format!("the line has {columns} columns, {MAX_COLUMNS} is the limit");
    report.add(path, line, what, "break the line, and the sentence too if it is long");
}

#[cfg(test)]
mod tests {
    use super::super::testing::broken;
    use super::*;

    const PATH: &str = "crates/a/src/lib.rs";

    fn words(columns: usize) -> String {
        "word ".repeat(columns)[..columns].to_owned()
    }

    #[test]
    fn a_comment_one_column_too_wide_is_found_in_its_line() {
        for marker in ["//! ", "/// ", "    // ", "let a = 1; // "] {
            let fits = format!("fn f() {{}}\n{marker}{}x\n", words(MAX_COLUMNS - marker.len() - 1));
            assert_eq!(broken(&RULE, &[(PATH, &fits)]), [""; 0]);
            let wide = format!("fn f() {{}}\n{marker}{}x\n", words(MAX_COLUMNS - marker.len()));
            assert_eq!(broken(&RULE, &[(PATH, &wide)]), [format!("{PATH}:2")]);
        }
        let block = format!("/* a\n * {} */\n", words(MAX_COLUMNS));
        assert_eq!(broken(&RULE, &[(PATH, &block)]), [format!("{PATH}:2")]);
    }

    #[test]
    fn code_links_and_tables_are_free() {
        let wide = words(MAX_COLUMNS);
        let source =
            format!("const A: &str = \"{wide} wide\";\n//! | {wide} | a |\n/// See https://a.b/{wide}\n");
        assert_eq!(broken(&RULE, &[(PATH, &source)]), [""; 0]);
    }

    #[test]
    fn a_wide_line_of_a_document_is_found() {
        let wide = format!("{}x", words(MAX_COLUMNS));
        for path in ["docs/a.md", "docs/guide/a.md", "README.md"] {
            assert_eq!(broken(&RULE, &[(path, &format!("a\n{wide}\n"))]), [format!("{path}:2")]);
        }
        let free = format!("| {wide} |\n```text\n{wide}\n```\n    {wide}\n[a](b.md) {wide}\n");
        assert_eq!(broken(&RULE, &[("docs/a.md", &free), ("research/a.md", &wide)]), [""; 0]);
    }
}
