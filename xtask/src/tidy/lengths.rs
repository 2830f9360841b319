//! Files and functions stay short enough to be read in one go.

use super::lexer::Kind;
use super::tree::{RustFile, item_end};
use super::{Report, Rule, Tree};

pub(super) const RULE: Rule = Rule {
    name: "length",
    why: "a file is read from top to bottom and a function is held in the head at once.",
    check,
};

/// Lines of a file, its tests included.
const MAX_FILE_LINES: usize = 700;
/// Lines of a function, its signature and braces included, in tests and benches too. The usual is a tenth of
/// that.
const MAX_FUNCTION_LINES: usize = 60;

/// Functions that are longer still, by file and name. Rows may only go: a function that keeps to the limit
/// has none.
pub(super) const LEFT: &[(&str, &str)] = &[];

fn check(tree: &Tree, report: &mut Report<'_>) {
    check_against(tree, LEFT, report);
}

fn check_against(tree: &Tree, left: &[(&str, &str)], report: &mut Report<'_>) {
    for file in tree.rust_files() {
        let lines = file.text.lines().count();
        if lines > MAX_FILE_LINES {
            let what = format!("the file has {lines} lines, {MAX_FILE_LINES} is the limit");
            let fix = if file.is_test() {
                "split it by theme: `tests/x.rs` becomes `tests/x/main.rs` with modules, the same executable"
            } else {
                "split it where its subject splits: a file per operation, and its tests in a file of their own"
            };
            report.add(file.path, 1, what, fix);
        }
        check_functions(&file, left, report);
    }
}

fn check_functions(file: &RustFile<'_>, left: &[(&str, &str)], report: &mut Report<'_>) {
    let code = file.code();
    let mut rows: Vec<&str> = left.iter().filter(|row| row.0 == file.path).map(|row| row.1).collect();
    for at in 0..code.len().saturating_sub(1) {
        let is_function = code[at].is_word("fn") && code[at + 1].kind == Kind::Word;
        if !is_function {
            continue;
        }
        let first = code[at].line;
        let lines = item_end(&code, at).map_or(1, |last| last + 1 - first);
        let name = code[at + 1].text;
        if lines > MAX_FUNCTION_LINES && rows.contains(&name) {
            rows.retain(|row| *row != name);
        } else if lines > MAX_FUNCTION_LINES {
            let what = format!("function `{name}` has {lines} lines, {MAX_FUNCTION_LINES} is the limit");
            let fix = if file.is_test_line(first) {
                "split it into tests of one promise each, or name its scene and its steps and make them functions"
            } else {
                "name its steps and make them functions, or turn a long match into a table"
            };
            report.add(file.path, first, what, fix);
        }
    }
    for name in rows {
        let what = format!(
            "function `{name}` keeps to {MAX_FUNCTION_LINES} lines, and has a row among those that do not"
        );
        report.add(file.path, 1, what, "take its row out of LEFT (xtask/src/tidy/lengths.rs)");
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::broken;
    use super::*;

    const PATH: &str = "crates/a/src/lib.rs";

    #[test]
    fn a_file_one_line_too_long_is_found() {
        let full = "use a::b;\n".repeat(MAX_FILE_LINES);
        assert_eq!(broken(&RULE, &[(PATH, &full)]), [""; 0]);
        assert_eq!(broken(&RULE, &[(PATH, &format!("{full}use c;\n"))]), [format!("{PATH}:1")]);
    }

    #[test]
    fn tests_count_for_a_file() {
        let tests = |lines: usize| format!("#[cfg(test)]\nmod tests {{{}}}\n", "\n".repeat(lines - 2));
        assert_eq!(broken(&RULE, &[(PATH, &tests(MAX_FILE_LINES))]), [""; 0]);
        assert_eq!(broken(&RULE, &[(PATH, &tests(MAX_FILE_LINES + 1))]), [format!("{PATH}:1")]);
    }

    #[test]
    fn a_test_file_one_line_too_long_is_found() {
        let full = "use a::b;\n".repeat(MAX_FILE_LINES);
        for path in
            ["crates/a/tests/t.rs", "crates/a/benches/b.rs", "crates/a/src/b/tests.rs", "fuzz/src/f.rs"]
        {
            assert_eq!(broken(&RULE, &[(path, &full)]), [""; 0]);
            assert_eq!(broken(&RULE, &[(path, &format!("{full}use c;\n"))]), [format!("{path}:1")]);
        }
    }

    #[test]
    fn a_function_one_line_too_long_is_found() {
        let function = |lines: usize| {
            format!("trait T {{ fn short(&self) -> [u8; 2]; }}\nfn long(\n) {{{}}}\n", "\n".repeat(lines - 2))
        };
        assert_eq!(broken(&RULE, &[(PATH, &function(MAX_FUNCTION_LINES))]), [""; 0]);
        assert_eq!(broken(&RULE, &[(PATH, &function(MAX_FUNCTION_LINES + 1))]), [format!("{PATH}:2")]);
    }

    #[test]
    fn a_long_function_of_a_test_or_bench_is_found() {
        let long = format!("fn t() {{{}}}\n", "\n".repeat(MAX_FUNCTION_LINES));
        let inside = format!("#[cfg(test)]\nmod tests {{\n    #[test]\n{long}}}\n");
        assert_eq!(broken(&RULE, &[(PATH, &inside)]), [format!("{PATH}:4")]);
        for path in ["crates/a/tests/t.rs", "crates/a/benches/b.rs", "crates/a/src/b/tests.rs"] {
            assert_eq!(broken(&RULE, &[(path, &long)]), [format!("{path}:1")]);
        }
    }

    #[test]
    fn a_row_excuses_one_function_and_may_only_go() {
        let long = format!("fn a() {{{0}}}\nfn b() {{{0}}}\n", "\n".repeat(MAX_FUNCTION_LINES));
        let broken_with = |source: &str| -> Vec<String> {
            let (tree, mut violations) = (Tree::of(&[(PATH, source)]), Vec::new());
            let mut report = Report { rule: &RULE, violations: &mut violations };
            check_against(&tree, &[(PATH, "a")], &mut report);
            violations.iter().map(|v| format!("{}:{}", v.path, v.line)).collect()
        };
        assert_eq!(broken_with(&long), [format!("{PATH}:{}", MAX_FUNCTION_LINES + 2)]);
        assert_eq!(broken_with("fn a() {}\n"), [format!("{PATH}:1")]);
    }

    #[test]
    fn function_pointer_types_are_no_functions() {
        let source = format!("struct S {{ f: fn(u8) -> u8,{}}}\n", "\n".repeat(2 * MAX_FUNCTION_LINES));
        assert_eq!(broken(&RULE, &[(PATH, &source)]), [""; 0]);
    }
}
