//! Nothing unfinished is committed.

use super::lexer::Token;
use super::tree::{RustFile, attribute_at};
use super::{Report, Rule, Tree};

pub(super) const RULE: Rule = Rule {
    name: "unfinished",
    why: "a reader must be able to trust that what is here works and is tested; plans belong to issues.",
    check,
};

const MACROS: &[&str] = &["todo", "unimplemented", "dbg"];
const WORDS: &[&str] = &["TODO", "FIXME", "XXX", "HACK"];

fn check(tree: &Tree, report: &mut Report<'_>) {
    for file in tree.rust_files() {
        check_code(&file, &file.code(), report);
        check_comments(&file, report);
    }
}

fn check_code(file: &RustFile<'_>, code: &[Token<'_>], report: &mut Report<'_>) {
    for (at, token) in code.iter().enumerate() {
        let called = code.get(at + 1).is_some_and(|next| next.is_mark('!'));
        if called && MACROS.iter().any(|name| token.is_word(name)) {
            report.add(
                file.path,
                token.line,
                format!("`{}!` is left in", token.text),
                "finish it, or take it out",
            );
        }
        let attribute = attribute_at(code, at);
        if attribute.is_some_and(|inside| code[inside].first().is_some_and(|t| t.is_word("ignore"))) {
            let fix = "make the test fit an ordinary run, or make it a command of its own";
            report.add(file.path, token.line, "a test is ignored", fix);
        }
    }
}

fn check_comments(file: &RustFile<'_>, report: &mut Report<'_>) {
    for comment in file.tokens.iter().filter(|token| token.is_comment()) {
        for (below, line) in comment.text.lines().enumerate() {
            let mut words = line.split(|c: char| !c.is_alphanumeric());
            if let Some(word) = words.find(|word| WORDS.contains(word)) {
                let what = format!("a comment says {word}");
                report.add(
                    file.path,
                    comment.line + below,
                    what,
                    "do it now, or write an issue and say here what is",
                );
            }
            if line.contains("```") && line.split(['`', ',', ' ']).any(|word| word == "ignore") {
                let fix = "make the example compile (`no_run` if it must not run), or mark it `text`";
                report.add(file.path, comment.line + below, "an example is not compiled", fix);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::broken;
    use super::*;

    #[test]
    fn each_mark_of_unfinished_work_is_found() {
        let seeded = [
            "todo!()",
            "unimplemented!(\"later\")",
            "dbg!(x)",
            "std::dbg!(x)",
            "// TODO: more",
            "/* one\n FIXME */",
            "/// HACK",
            "// XXX",
            "#[ignore]",
            "#[ignore = \"slow\"]",
            "/// ```ignore",
            "//! ```rust,ignore",
        ];
        for source in seeded {
            assert_eq!(broken(&RULE, &[("crates/a/src/lib.rs", source)]).len(), 1, "{source}");
        }
    }

    #[test]
    fn similar_words_are_not() {
        let source = "// A todo list; TODOS; SET key NX.\nlet ignore = \"TODO\";\n/// ```no_run\nunreachable!();\n\
                      #[cfg_attr(miri, ignore)]\nlet todo = !x;\n";
        assert_eq!(broken(&RULE, &[("crates/a/src/lib.rs", source)]), [""; 0]);
    }
}
