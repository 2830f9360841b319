//! Files of a crate import in one direction.
//!
//! A file imports another one if it names something that the other defines, whatever re-exports lie between.
//! Not counted are tests, names that a file only passes on (`pub use`), and what a module takes from those
//! that it lies in: a child sees all of its parent, as the parts of one thing do. A circle is a set of files
//! each of which leads to each other one.

use super::modules::{Arrow, Modules};
use super::tree::RustFile;
use super::{Report, Rule, Tree};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const RULE: Rule = Rule {
    name: "circles",
    why: "of files that import each other none can be read, tested or changed without all the others.",
    check,
};

/// Circles in all crates together, and files of one.
const MAX_CIRCLES: usize = 4;
const MAX_FILES: usize = 6;

/// Crates with more, which count for themselves: how many circles, and how many files these have together.
/// Numbers may only become lower, and rows only go.
pub(super) const LEFT: &[(&str, usize, usize)] = &[];

/// The arrows of a circle that a message has.
const SHOWN_ARROWS: usize = 12;

fn check(tree: &Tree, report: &mut Report<'_>) {
    check_against(tree, LEFT, report);
}

fn check_against(tree: &Tree, left: &[(&str, usize, usize)], report: &mut Report<'_>) {
    let mut crates: BTreeMap<&str, Vec<RustFile<'_>>> = BTreeMap::new();
    for file in tree.rust_files() {
        if let Some(folder) = folder_of(file.path) {
            crates.entry(folder).or_default().push(file);
        }
    }
    let mut kept = Vec::new();
    for (folder, files) in crates {
        let circles = circles_of(&files, &format!("crates/{folder}/src"));
        match left.iter().find(|(row, ..)| *row == folder) {
            Some(row) => check_row(*row, &circles, report),
            None => kept.extend(circles),
        }
    }
    for circle in kept.iter().filter(|circle| circle.files.len() > MAX_FILES) {
        let what =
            format!("a circle of {} files, {MAX_FILES} is the limit: {}", circle.files.len(), circle.text);
        report.add(&circle.files[0], 1, what, FIX);
    }
    if kept.len() > MAX_CIRCLES {
        for circle in &kept {
            let what = format!("one of {} circles, {MAX_CIRCLES} is the limit: {}", kept.len(), circle.text);
            report.add(&circle.files[0], 1, what, FIX);
        }
    }
}

const FIX: &str = "move the type that both sides name to a file below them, or the behaviour to one above";

fn check_row((folder, most, most_files): (&str, usize, usize), circles: &[Circle], report: &mut Report<'_>) {
    let found = (circles.len(), circles.iter().map(|circle| circle.files.len()).sum::<usize>());
    if found == (most, most_files) {
        return;
    }
    let is_worse = found.0 > most || found.1 > most_files;
    let what = format!(
        "`{folder}` has {} circles of {} files together, and a row for {most} of {most_files}",
        found.0, found.1
    );
    let fix =
        if is_worse { FIX } else { "lower the row in LEFT (xtask/src/tidy/circles.rs), or take it out" };
    report.add(&format!("crates/{folder}/src"), 1, what, fix);
}

/// Files that lead to each other.
struct Circle {
    /// Their paths.
    files: Vec<String>,
    /// The arrows between them, for people.
    text: String,
}

/// The folder below `crates` in whose source a file is.
fn folder_of(path: &str) -> Option<&str> {
    let (folder, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    rest.starts_with("src/").then_some(folder)
}

fn circles_of(files: &[RustFile<'_>], source: &str) -> Vec<Circle> {
    let modules = Modules::of(files, source);
    let arrows: Vec<Vec<Arrow>> = (0..modules.len()).map(|file| modules.arrows(file)).collect();
    let next: Vec<BTreeSet<usize>> =
        arrows.iter().map(|from| from.iter().map(|arrow| arrow.to).collect()).collect();
    let reached: Vec<BTreeSet<usize>> = (0..next.len()).map(|file| reached_from(&next, file)).collect();
    let mut circles = Vec::new();
    let mut seen = BTreeSet::new();
    for file in 0..next.len() {
        let circle: BTreeSet<usize> =
            reached[file].iter().copied().filter(|other| reached[*other].contains(&file)).collect();
        if circle.len() < 2 || !seen.insert(circle.clone()) {
            continue;
        }
        let path = |file: usize| modules.path(file);
        let inside = |from: usize| arrows[from].iter().filter(|arrow| circle.contains(&arrow.to));
        let mut texts = BTreeMap::new();
        for (from, arrow) in circle.iter().flat_map(|from| inside(*from).map(move |arrow| (*from, arrow))) {
            let to = path(arrow.to).trim_start_matches(source).trim_start_matches('/');
            let text = || format!("{}:{} takes `{}` of {to}", path(from), arrow.line, arrow.name);
            texts.entry((from, arrow.to)).or_insert_with(text);
        }
        let mut shown: Vec<String> = texts.values().take(SHOWN_ARROWS).cloned().collect();
        if texts.len() > SHOWN_ARROWS {
            shown.push(format!("and {} more arrows", texts.len() - SHOWN_ARROWS));
        }
        let mut files: Vec<String> = circle.iter().map(|file| path(*file).to_owned()).collect();
        files.sort();
        circles.push(Circle { files, text: shown.join("; ") });
    }
    circles
}

/// The files to which `from` leads.
fn reached_from(next: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(file) = left.pop() {
        left.extend(next[file].iter().copied().filter(|to| reached.insert(*to)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages about a crate `a` of these files, with these rows.
    fn found(files: &[(&str, &str)], left: &[(&str, usize, usize)]) -> Vec<String> {
        let paths: Vec<String> = files.iter().map(|(name, _)| format!("crates/a/src/{name}")).collect();
        let files: Vec<(&str, &str)> =
            paths.iter().zip(files).map(|(path, (_, text))| (&path[..], *text)).collect();
        let (tree, mut violations) = (Tree::of(&files), Vec::new());
        check_against(&tree, left, &mut Report { rule: &RULE, violations: &mut violations });
        violations.iter().map(|violation| violation.what.clone()).collect()
    }

    /// The circles of a crate of these files, as the names of their files.
    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let paths: Vec<String> = files.iter().map(|(name, _)| format!("crates/a/src/{name}")).collect();
        let pairs: Vec<(&str, &str)> =
            paths.iter().zip(files).map(|(path, (_, text))| (&path[..], *text)).collect();
        let tree = Tree::of(&pairs);
        let files: Vec<RustFile<'_>> = tree.rust_files().collect();
        let name = |path: &String| path.trim_start_matches("crates/a/src/").to_owned();
        let circles = circles_of(&files, "crates/a/src");
        circles.iter().map(|circle| circle.files.iter().map(name).collect()).collect()
    }

    const ROOT: (&str, &str) = ("lib.rs", "mod one;\nmod two;\npub use two::Two;\npub use one::One;\n");

    /// Two files, of which the second imports the first.
    fn pair<'a>(first: &'a str, second: &'a str) -> Vec<Vec<String>> {
        circles(&[ROOT, ("one.rs", first), ("two.rs", second)])
    }

    #[test]
    fn a_circle_is_found_in_each_form_of_import() {
        let back = "use crate::one::One;\npub struct Two;\npub fn make() {}\npub const LEAST: u64 = 1;\n";
        for import in [
            "use crate::two::Two;",
            "use super::two::{self, LEAST};",
            "use crate::{two::Two as Other};",
            "use crate::two::*;\nfn f() { make() }",
            "use crate::Two;",
            "use crate::two;\nfn f() { two::make() }",
            "fn f() { crate::two::make() }",
            "fn f() { super::two::make() }",
            "mod inner {\n    use super::super::two::Two;\n}",
            "pub(crate) use crate::two::make;\nfn f() { make() }",
            "fn f() {\n    use crate::two::Two;\n}",
        ] {
            let found = pair(&format!("{import}\npub struct One;\n"), back);
            assert_eq!(found, [["one.rs", "two.rs"]], "{import}");
        }
    }

    #[test]
    fn one_direction_tests_and_what_is_passed_on_are_free() {
        let back = "use crate::one::One;\npub struct Two;\npub fn make() {}\n";
        for import in [
            "",
            "#[cfg(test)]\nuse crate::two::Two;",
            "#[cfg(all(test, not(miri)))]\nmod tests {\n    use crate::two::Two;\n}",
            "pub use crate::two::make;",
            "/// [`Two`](crate::two::Two)",
            "use two::Two;",
            "use std::two::Two;",
        ] {
            assert_eq!(pair(&format!("{import}\npub struct One;\n"), back), [[""; 0]; 0], "{import}");
        }
    }

    #[test]
    fn a_child_may_use_its_parents_and_a_parent_its_child() {
        let files = [
            ("lib.rs", "mod tree;\npub const LEAST: u64 = 1;\n"),
            ("tree/mod.rs", "mod node;\nuse node::Node;\npub struct Tree(Node);\n"),
            ("tree/node.rs", "use super::Tree;\nuse crate::LEAST;\npub struct Node;\nfn f(_: Tree) {}\n"),
        ];
        assert_eq!(circles(&files), [[""; 0]; 0]);
        // Two children that use each other are a circle.
        let (first, second) =
            ("use super::leaf::Leaf;\npub struct Node;\n", "use super::node::Node;\npub struct Leaf;\n");
        let files = [files[0], files[1], ("tree/node.rs", first), ("tree/leaf.rs", second)];
        assert_eq!(circles(&files), [["tree/leaf.rs", "tree/node.rs"]]);
    }

    #[test]
    fn names_that_stand_for_each_other_lead_nowhere() {
        let files = [ROOT, ("one.rs", "use crate::two::Gone;\n"), ("two.rs", "pub use crate::one::Gone;\n")];
        assert_eq!(circles(&files), [[""; 0]; 0]);
        assert_eq!(
            circles(&[("lib.rs", "use gone::gone;\n"), ("one.rs", "use crate::gone;\n")]),
            [[""; 0]; 0]
        );
    }

    /// A circle of so many files, each of which imports the next.
    fn ring(name: &str, files: usize) -> Vec<(String, String)> {
        let of = |at: usize| {
            let next = (at + 1) % files;
            (format!("{name}{at}.rs"), format!("use crate::{name}{next}::T{next};\npub struct T{at};\n"))
        };
        (0..files).map(of).collect()
    }

    fn in_rings(sizes: &[usize], left: &[(&str, usize, usize)]) -> Vec<String> {
        let names = ["a", "b", "c", "d", "e"];
        let files: Vec<_> = names.iter().zip(sizes).flat_map(|(name, size)| ring(name, *size)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (&name[..], &text[..])).collect();
        found(&files, left)
    }

    #[test]
    fn more_files_or_more_circles_than_the_limits_are_found() {
        assert_eq!(in_rings(&[MAX_FILES; MAX_CIRCLES], &[]), [""; 0]);
        let long = in_rings(&[MAX_FILES + 1], &[]);
        assert!(long.len() == 1 && long[0].contains("a circle of 7 files"), "{long:?}");
        assert!(long[0].contains("takes `a1::T1` of a1.rs"), "{long:?}");
        let many = in_rings(&[2; MAX_CIRCLES + 1], &[]);
        assert!(many.len() == 5 && many.iter().all(|what| what.contains("one of 5 circles")), "{many:?}");
    }

    #[test]
    fn the_numbers_of_a_row_are_those_of_its_crate() {
        assert_eq!(in_rings(&[8, 2], &[("a", 2, 10)]), [""; 0]);
        for (sizes, row) in [(&[8, 2][..], ("a", 2, 9)), (&[8, 2], ("a", 1, 10)), (&[8], ("a", 2, 10))] {
            let found = in_rings(sizes, &[row]);
            assert!(found.len() == 1 && found[0].contains("and a row for"), "{found:?}");
        }
    }
}
