//! Types on media are named `Pm*`, are `repr(C)`, and live in `layout.rs`.

use super::lexer::{Kind, Token};
use super::tree::{RustFile, attribute_at, closing};
use super::{Report, Rule, Tree};

pub(super) const RULE: Rule = Rule {
    name: "media-types",
    why: "what lies on media outlives the program that wrote it, so its layout is fixed, asserted, documented, and found in one kind of file.",
    check,
};

/// The macro that gives a struct `repr(C)` and asserts its layout.
const LAYOUT_MACRO: &str = "media_struct";

fn check(tree: &Tree, report: &mut Report<'_>) {
    for file in tree.rust_files() {
        let code = file.code();
        let asserted = macro_bodies(&code);
        for at in 0..code.len().saturating_sub(1) {
            let declares = ["struct", "union", "enum"].iter().any(|keyword| code[at].is_word(keyword));
            if declares && code[at + 1].kind == Kind::Word && !file.is_test_line(code[at].line) {
                let in_macro = asserted.iter().any(|body| body.contains(&at));
                check_type(&file, &code, at, in_macro, report);
            }
        }
    }
}

/// The token ranges inside the braces of the layout macro's calls.
fn macro_bodies(code: &[Token<'_>]) -> Vec<std::ops::Range<usize>> {
    let calls = (0..code.len().saturating_sub(2)).filter(|&at| {
        code[at].is_word(LAYOUT_MACRO) && code[at + 1].is_mark('!') && code[at + 2].is_mark('{')
    });
    calls.filter_map(|at| closing(code, at + 2).map(|end| at + 2..end)).collect()
}

fn check_type(file: &RustFile<'_>, code: &[Token<'_>], at: usize, in_macro: bool, report: &mut Report<'_>) {
    let (keyword, name, line) = (code[at].text, code[at + 1].text, code[at].line);
    let is_layout = file.name() == "layout.rs";
    let fixed = in_macro || has_fixed_representation(code, at);
    if !is_media_name(name) {
        if is_layout && fixed && keyword != "enum" {
            let what = format!("`{name}` has a fixed layout and lacks the prefix of media types");
            report.add(
                file.path,
                line,
                what,
                format!("call it `Pm{name}`, or move it if it never lies on media"),
            );
        }
        return;
    }
    if !is_layout {
        let what = format!("media type `{name}` is declared outside a layout.rs");
        report.add(
            file.path,
            line,
            what,
            "move it to the layout.rs of its component; `Pm` marks media types only",
        );
    }
    if keyword == "enum" {
        let what = format!("media type `{name}` is an enum, which not every bit pattern makes valid");
        report.add(file.path, line, what, "store a fixed-width integer, and decode it with a check");
    } else if !fixed {
        let what = format!("media type `{name}` is not repr(C)");
        report.add(
            file.path,
            line,
            what,
            "declare it in media_struct!, which also asserts size, offsets and padding",
        );
    }
}

/// `Pm` and then another capital.
fn is_media_name(name: &str) -> bool {
    name.strip_prefix("Pm").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// Whether an attribute between the previous item and the keyword at `at` fixes the representation.
fn has_fixed_representation(code: &[Token<'_>], at: usize) -> bool {
    let ends_item = |token: &Token<'_>| [';', '{', '}'].iter().any(|mark| token.is_mark(*mark));
    let start = code[..at].iter().rposition(ends_item).map_or(0, |end| end + 1);
    (start..at).filter_map(|i| attribute_at(code, i)).any(|attribute| {
        let words: Vec<&str> = code[attribute].iter().map(|token| token.text).collect();
        words.first() == Some(&"repr") && (words.contains(&"C") || words.contains(&"transparent"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::broken;
    use super::*;

    const LAYOUT: &str = "crates/pool/src/layout.rs";

    #[test]
    fn declared_media_types_are_accepted() {
        let source = "media_struct! {\n    /// Doc.\n    pub(crate) struct PmA: 8 { 0 => a: u64 }\n}\n\
                      #[derive(Clone)]\n#[repr(C)]\npub(crate) struct PmB { a: u64 }\n\
                      #[repr(transparent)]\npub struct PmOff(u64);\nstruct Pmem;\nenum Word { A }\n";
        assert_eq!(broken(&RULE, &[(LAYOUT, source)]), [""; 0]);
    }

    #[test]
    fn a_media_type_elsewhere_is_found() {
        let source = "#[repr(C)]\nstruct PmNode { a: u64 }\n";
        let path = "crates/index/src/wbtree/node.rs";
        assert_eq!(broken(&RULE, &[(path, source)]), [format!("{path}:2")]);
    }

    #[test]
    fn a_media_type_without_a_fixed_layout_is_found() {
        let seeded = [
            "struct PmA { a: u64 }\n",
            "#[repr(C)]\nstruct PmX { a: u64 }\nstruct PmA { a: u64 }\n",
            "#[derive(Debug)]\n#[repr(packed)]\npub(crate) struct PmA;\n",
            "#[repr(C)]\nenum PmA { A }\n",
        ];
        for source in seeded {
            assert_eq!(broken(&RULE, &[(LAYOUT, source)]).len(), 1, "{source}");
        }
    }

    #[test]
    fn a_fixed_layout_without_the_prefix_is_found_in_layout_files_only() {
        let source = "#[repr(C)]\nstruct Node { a: u64 }\n";
        assert_eq!(broken(&RULE, &[(LAYOUT, source)]), [format!("{LAYOUT}:2")]);
        assert_eq!(broken(&RULE, &[("crates/pmem/src/map.rs", source)]), [""; 0]);
    }

    #[test]
    fn tests_may_declare_what_they_like() {
        let source = "#[cfg(test)]\nmod tests {\n    struct PmA { a: u64 }\n}\n";
        assert_eq!(broken(&RULE, &[("crates/pmem/src/media.rs", source)]), [""; 0]);
    }
}
