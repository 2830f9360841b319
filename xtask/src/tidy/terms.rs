//! Replaced words stay replaced.

use super::comments::comment_lines;
use super::lexer::Kind;
use super::tree::RustFile;
use super::{Report, Rule, Tree};

pub(super) const RULE: Rule = Rule {
    name: "terms",
    why: "one thing has one name, the field's where it has one; docs/glossary.md has the names.",
    check,
};

/// How a replaced word is recognised.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The name of a type.
    Type,
    /// A word of comments and documents, and a part of names: `settle` in `settle_others`.
    Word,
    /// Words of comments and documents.
    Phrase,
    /// The whole name of a function, field or constant.
    Name,
}

/// A replaced word and its replacement.
struct Replaced {
    old: &'static str,
    form: Form,
    new: &'static str,
}

const fn replaced(form: Form, old: &'static str, new: &'static str) -> Replaced {
    Replaced { old, form, new }
}

const REPLACED: &[Replaced] = &[
    replaced(Form::Word, "settle", "checkpoint (a lane), persist (an answer), free, resolve (counts)"),
    replaced(Form::Word, "settles", "checkpoints"),
    replaced(Form::Word, "settled", "checkpointed"),
    replaced(Form::Word, "settling", "checkpointing"),
    replaced(Form::Word, "settler", "checkpointing thread"),
    replaced(Form::Word, "owed", "deferred"),
    replaced(Form::Phrase, "touch table", "line-owner table"),
    replaced(Form::Phrase, "touched table", "line-owner table"),
    replaced(Form::Type, "TouchTable", "LineOwnerTable"),
    replaced(Form::Type, "Beside", "ConcurrentWriter"),
    replaced(Form::Type, "Seldom", "MostlyEmpty"),
    replaced(Form::Type, "Ahead", "RecordSizeHint"),
    replaced(Form::Type, "Owed", "DeferredStamps"),
    replaced(Form::Type, "OwedByNewest", "DeferredStamps"),
    replaced(Form::Type, "Fate", "Edit"),
    replaced(Form::Type, "Prospects", "MayInsertOrRemove"),
    replaced(Form::Type, "Care", "ReadHazards"),
    replaced(Form::Type, "Manner", "ValidationMode"),
    replaced(Form::Type, "Moment", "ClockReading"),
    replaced(Form::Name, "unlinked_only_now", "defer_frees_to_current_epoch"),
    replaced(Form::Name, "expect_free", "prefetch_for_free"),
    replaced(Form::Name, "expect_store", "prefetch_for_store"),
    replaced(Form::Name, "stored_words", "logged_words"),
    replaced(Form::Name, "stored_word", "stored_lines().word"),
    replaced(Form::Name, "WARY", "validated_left"),
    replaced(Form::Name, "UNTIL_LOOK", "until_probe"),
];

fn check(tree: &Tree, report: &mut Report<'_>) {
    for file in tree.rust_files().filter(|file| file.path.starts_with("crates/")) {
        check_names(&file, report);
        for (line, _, text) in comment_lines(&file) {
            check_text(file.path, line, text, report);
        }
    }
    let pages = tree.text_files().filter(|f| f.path.ends_with(".md"));
    for page in pages.filter(|f| f.path.starts_with("docs/") || f.path == "ARCHITECTURE.md") {
        for (at, line) in page.text.lines().enumerate() {
            check_text(&page.path, at + 1, line, report);
        }
    }
}

fn check_names(file: &RustFile<'_>, report: &mut Report<'_>) {
    // Tests have names of their own.
    let product = |line| !file.is_test_line(line);
    for token in file.tokens.iter().filter(|token| token.kind == Kind::Word && product(token.line)) {
        let found = REPLACED.iter().find(|replaced| match replaced.form {
            Form::Type | Form::Name => token.text == replaced.old,
            Form::Word => parts(token.text).any(|part| part == replaced.old),
            Form::Phrase => false,
        });
        if let Some(found) = found {
            add(file.path, token.line, token.text, found, report);
        }
    }
}

/// The words of a name, in lower case: of `SettleOthers` and `settle_others` "settle" and "others".
fn parts(name: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::new();
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            spaced.push(' ');
        }
        spaced.extend(c.to_lowercase().filter(|c| *c != '_'));
    }
    spaced.split_whitespace().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

fn check_text(path: &str, line: usize, text: &str, report: &mut Report<'_>) {
    for replaced in REPLACED {
        let is_there = match replaced.form {
            Form::Phrase => text.to_lowercase().contains(replaced.old),
            Form::Word => {
                text.split(|c: char| !c.is_alphanumeric()).any(|word| word.eq_ignore_ascii_case(replaced.old))
            }
            // Such a name in prose is a citation: it stands in code marks, as one word.
            Form::Type | Form::Name => text.split('`').skip(1).step_by(2).any(|code| code == replaced.old),
        };
        if is_there {
            add(path, line, replaced.old, replaced, report);
        }
    }
}

fn add(path: &str, line: usize, found: &str, replaced: &Replaced, report: &mut Report<'_>) {
    let what = format!("`{found}`: the word `{}` was replaced", replaced.old);
    report.add(path, line, what, format!("write: {}", replaced.new));
}

#[cfg(test)]
mod tests {
    use super::super::testing::broken;
    use super::*;

    const PATH: &str = "crates/a/src/lib.rs";

    #[test]
    fn each_replaced_word_is_found_in_code_or_in_a_comment() {
        for replaced in REPLACED {
            let source = match replaced.form {
                Form::Type | Form::Name => format!("\nuse a::{};\n", replaced.old),
                Form::Word | Form::Phrase => format!("\n// The {} is here.\n", replaced.old),
            };
            assert_eq!(broken(&RULE, &[(PATH, &source)]), [format!("{PATH}:2")], "{source}");
        }
    }

    #[test]
    fn a_word_is_found_in_names_and_pages() {
        for source in ["fn settle_others() {}\n", "struct MaySettle;\n", "let is_settled = 1;\n"] {
            assert_eq!(broken(&RULE, &[(PATH, source)]), [format!("{PATH}:1")], "{source}");
        }
        let page = "# Locks\nThe touch table, and `Beside`.\n";
        assert_eq!(broken(&RULE, &[("docs/a.md", page)]), ["docs/a.md:2", "docs/a.md:2"]);
    }

    #[test]
    fn similar_words_and_strings_are_free() {
        let source = "// Settlement; beside it; ahead. Fate.\nlet s = \"settle\";\nfn settlement() {}\nstruct Aheads;\n";
        assert_eq!(broken(&RULE, &[(PATH, source)]), [""; 0]);
        assert_eq!(broken(&RULE, &[("CHANGELOG.md", "The touch table.\n")]), [""; 0]);
    }
}
