//! Files and functions stay short enough to be read in one go.

use super::lexer::Kind;
use super::tree::{RustFile, item_end};
use super::{Report, Rule, Tree};

pub(super) const RULE: Rule = Rule {
    name: "length",
    why: "a file is read from top to bottom and a function is held in the head at once.",
    check,
};

/// Lines of a file that are not test code.
const MAX_FILE_LINES: usize = 700;
/// Lines of a function, its signature and braces included. The usual is a tenth of that.
const MAX_FUNCTION_LINES: usize = 60;

fn check(tree: &Tree, report: &mut Report<'_>) {
    for file in tree.rust_files() {
        let lines = file.product_lines();
        if lines > MAX_FILE_LINES {
            let what = format!("the file has {lines} lines without its tests, {MAX_FILE_LINES} is the limit");
            report.add(file.path, 1, what, "split it where its subject splits: a file per operation");
        }
        check_functions(&file, report);
    }
}

fn check_functions(file: &RustFile<'_>, report: &mut Report<'_>) {
    let code = file.code();
    for at in 0..code.len().saturating_sub(1) {
        let is_function = code[at].is_word("fn") && code[at + 1].kind == Kind::Word;
        if !is_function || file.is_test_line(code[at].line) {
            continue;
        }
        let first = code[at].line;
        let lines = item_end(&code, at).map_or(1, |last| last + 1 - first);
        if lines > MAX_FUNCTION_LINES {
            let name = code[at + 1].text;
            let what = format!("function `{name}` has {lines} lines, {MAX_FUNCTION_LINES} is the limit");
            report.add(
                file.path,
                first,
                what,
                "name its steps and make them functions, or turn a long match into a table",
            );
        }
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
    fn tests_do_not_count() {
        let tests = format!(
            "#[cfg(test)]\nmod tests {{\n    fn t() {{{}    }}\n}}\n",
            "\n".repeat(2 * MAX_FILE_LINES)
        );
        assert_eq!(broken(&RULE, &[(PATH, &tests)]), [""; 0]);
        assert_eq!(broken(&RULE, &[("crates/a/tests/t.rs", &"\n".repeat(2 * MAX_FILE_LINES))]), [""; 0]);
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
    fn function_pointer_types_are_no_functions() {
        let source = format!("struct S {{ f: fn(u8) -> u8,{}}}\n", "\n".repeat(2 * MAX_FUNCTION_LINES));
        assert_eq!(broken(&RULE, &[(PATH, &source)]), [""; 0]);
    }
}
