//! A component that owns media explains itself in the head of its module.

use super::lexer::Kind;
use super::tree::RustFile;
use super::{Report, Rule, Tree};

pub(super) const RULE: Rule = Rule {
    name: "component-head",
    why: "code that must survive a crash is judged against its stated layout, invariants and commit point; unstated ones cannot be checked.",
    check,
};

/// The sections that the head has, each an `# ` heading with text below it.
const SECTIONS: &[(&str, &str)] = &[
    ("Media layout", "what lies where, in bytes"),
    ("Invariants", "I1, I2, ..., each with the function that checks it"),
    ("Commit point", "the one store that makes an operation durable"),
    ("Recovery", "where each crash window leads, and why running it twice is harmless"),
    ("Concurrency", "the writers, the lock order, and what readers may rely on"),
    ("Source", "the paper, its section and algorithm, and deviations D1, D2, ... with reasons"),
];

fn check(tree: &Tree, report: &mut Report<'_>) {
    let files: Vec<RustFile<'_>> = tree.rust_files().collect();
    for layout in files.iter().filter(|f| f.name() == "layout.rs" && f.path.starts_with("crates/")) {
        match head_above(layout.directory(), &files) {
            Some(head) => check_head(head, report),
            None => report.add(
                layout.path,
                1,
                "a folder with media types has no head (mod.rs or lib.rs)",
                "give the component a mod.rs that begins with its description",
            ),
        }
    }
}

/// The head of `directory`, or the one above it that describes its media: rooms may share the root's.
fn head_above<'f, 'a>(directory: &str, files: &'f [RustFile<'a>]) -> Option<&'f RustFile<'a>> {
    let own = files.iter().find(|file| is_head(file, directory))?;
    let describes = |head: &RustFile<'_>| sections(head).iter().any(|section| section.title == SECTIONS[0].0);
    let mut above = Some(directory);
    while let Some(at) = above {
        if let Some(head) = files.iter().find(|file| is_head(file, at) && describes(file)) {
            return Some(head);
        }
        above = at.rsplit_once('/').map(|(above, _)| above);
    }
    Some(own)
}

/// Whether `file` is the module file of `directory`.
pub(super) fn is_head(file: &RustFile<'_>, directory: &str) -> bool {
    file.directory() == directory && ["mod.rs", "lib.rs"].contains(&file.name())
}

fn check_head(head: &RustFile<'_>, report: &mut Report<'_>) {
    let sections = sections(head);
    for (title, contents) in SECTIONS {
        let section = sections.iter().find(|section| section.title == *title);
        let (line, what) = match section {
            None => (1, format!("the head has no section `# {title}`")),
            Some(s) if s.text.trim().is_empty() => (s.line, format!("the section `# {title}` is empty")),
            Some(s) if *title == "Invariants" && !has_label(&s.text, "I1") => {
                (s.line, "the invariants are not numbered I1, I2, ...".to_owned())
            }
            Some(_) => continue,
        };
        report.add(head.path, line, what, format!("write `//! # {title}`: {contents}"));
    }
}

/// A part of a module's description.
struct Section {
    title: String,
    line: usize,
    text: String,
}

fn sections(file: &RustFile<'_>) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for comment in file.tokens.iter().filter(|token| token.kind == Kind::ModuleDoc) {
        let text = comment.text.trim_start_matches("//!").trim();
        if let Some(title) = text.strip_prefix("# ") {
            sections.push(Section { title: title.to_owned(), line: comment.line, text: String::new() });
        } else if let Some(section) = sections.last_mut() {
            section.text.push_str(text);
            section.text.push('\n');
        }
    }
    sections
}

/// Whether `label` stands in `text` as a word of its own.
pub(super) fn has_label(text: &str, label: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == label)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{broken, messages};
    use super::*;

    const HEAD: &str = "//! A list.\n//!\n//! # Media layout\n//! a\n//! # Invariants\n//! - I1: b, `check_b`\n\
                        //! # Commit point\n//! c\n//! # Recovery\n//! d\n//! # Concurrency\n//! e\n//! # Source\n//! f\n";

    fn broken_with(head: &str) -> Vec<String> {
        broken(&RULE, &[("crates/pool/src/list/layout.rs", ""), ("crates/pool/src/list/mod.rs", head)])
    }

    #[test]
    fn a_full_head_is_accepted_in_a_folder_and_in_a_crate_root() {
        assert_eq!(broken_with(HEAD), [""; 0]);
        let root = [("crates/pool/src/layout.rs", ""), ("crates/pool/src/lib.rs", HEAD)];
        assert_eq!(broken(&RULE, &root), [""; 0]);
    }

    #[test]
    fn each_missing_section_is_found() {
        for (title, _) in SECTIONS {
            let without = HEAD.replace(&format!("# {title}"), "Nothing");
            let files =
                [("crates/pool/src/list/layout.rs", ""), ("crates/pool/src/list/mod.rs", without.as_str())];
            let text = messages(&RULE, &files);
            assert!(text.contains(&format!("no section `# {title}`")), "{title}: {text}");
        }
    }

    #[test]
    fn an_empty_section_and_unnumbered_invariants_are_found() {
        let empty = HEAD.replace("//! d\n", "//!\n");
        assert_eq!(broken_with(&empty), ["crates/pool/src/list/mod.rs:9"]);
        let unnumbered = HEAD.replace("I1: ", "");
        assert_eq!(broken_with(&unnumbered), ["crates/pool/src/list/mod.rs:5"]);
    }

    #[test]
    fn a_room_may_share_the_head_above_it() {
        let files = |above: &'static str, room: &'static str| {
            [
                ("crates/heap/src/lib.rs", above),
                ("crates/heap/src/objects/mod.rs", room),
                ("crates/heap/src/objects/layout.rs", ""),
            ]
        };
        assert_eq!(broken(&RULE, &files(HEAD, "//! Objects.\n")), [""; 0]);
        assert_eq!(broken(&RULE, &files("//! A heap.\n", "//! Objects.\n")).len(), SECTIONS.len());
    }

    #[test]
    fn a_head_in_ordinary_comments_does_not_count() {
        assert_eq!(broken_with(&HEAD.replace("//!", "//")).len(), SECTIONS.len());
    }

    #[test]
    fn a_folder_without_a_head_is_found_and_one_without_media_is_free() {
        assert_eq!(
            broken(&RULE, &[("crates/pool/src/list/layout.rs", "")]),
            ["crates/pool/src/list/layout.rs:1"]
        );
        assert_eq!(broken(&RULE, &[("crates/server/src/lib.rs", "//! Serves.\n")]), [""; 0]);
    }
}
