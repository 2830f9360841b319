//! The tables of the rules name crates and files that exist.

use super::{
    Report, Rule, Tree, circles, comment_opening, layers, lengths, module_layers, persist_comments,
    unsafe_code,
};
use std::collections::BTreeSet;

pub(super) const RULE: Rule = Rule {
    name: "rule-tables",
    why: "a rule for a crate that does not exist keeps nothing, and hides that it was renamed.",
    check,
};

/// A name in a table of a rule.
#[derive(Clone, Copy)]
enum Named {
    /// The name of a package.
    Package(&'static str),
    /// A folder or a file of the repository.
    Path(&'static str),
    /// The folder of a crate below `crates`.
    Crate(&'static str),
}

/// The tables: the rule's file, and the names that it has.
fn tables() -> Vec<(&'static str, Vec<Named>)> {
    let packages =
        layers::LAYERS.iter().map(|(name, _)| *name).chain(layers::TEST_INSTRUMENTS.iter().copied());
    let trusted = [unsafe_code::FORBIDDING, unsafe_code::TRUSTED, unsafe_code::PARTLY_TRUSTED].concat();
    let unsafe_names = trusted.into_iter().map(Named::Crate);
    let boundaries = unsafe_code::BOUNDARIES.iter().copied().map(Named::Path);
    vec![
        ("layers", packages.map(Named::Package).collect()),
        ("unsafe_code", unsafe_names.chain(boundaries).collect()),
        ("persist_comments", persist_comments::CRATES.iter().copied().map(Named::Crate).collect()),
        ("circles", circles::LEFT.iter().map(|(folder, ..)| Named::Crate(folder)).collect()),
        ("comment_opening", comment_opening::LEFT.iter().map(|(folder, _)| Named::Path(folder)).collect()),
        ("lengths", lengths::LEFT.iter().map(|(file, _)| Named::Path(file)).collect()),
        ("module_layers", module_layers::CRATES.iter().map(|layered| Named::Path(layered.source)).collect()),
    ]
}

fn check(tree: &Tree, report: &mut Report<'_>) {
    check_tables(tree, &tables(), report);
}

fn check_tables(tree: &Tree, tables: &[(&str, Vec<Named>)], report: &mut Report<'_>) {
    let packages: BTreeSet<String> = tree
        .text_files()
        .filter(|f| f.is_package_manifest())
        .filter_map(|f| layers::package_name(&f.text))
        .collect();
    for (rule, names) in tables {
        for name in names {
            let (text, is_there) = match *name {
                Named::Package(package) => (package, packages.contains(package)),
                Named::Path(path) => (path, tree.exists(path)),
                Named::Crate(folder) => (folder, tree.exists(&format!("crates/{folder}/Cargo.toml"))),
            };
            if !is_there {
                let what = format!("the table of this rule names `{text}`, which does not exist");
                report.add(&format!("xtask/src/tidy/{rule}.rs"), 1, what, "correct the name, or take it out");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken_tables(names: &[Named], files: &[(&str, &str)]) -> Vec<String> {
        let (tree, mut violations) = (Tree::of(files), Vec::new());
        let tables = [("layers", names.to_vec())];
        check_tables(&tree, &tables, &mut Report { rule: &RULE, violations: &mut violations });
        violations.iter().map(|v| v.what.clone()).collect()
    }

    #[test]
    fn a_name_that_does_not_exist_is_found() {
        let files = [
            ("crates/pool/Cargo.toml", "[package]\nname = \"tembo-pool\"\n"),
            ("crates/pool/src/lib.rs", ""),
        ];
        let there = [Named::Package("tembo-pool"), Named::Crate("pool"), Named::Path("crates/pool/src")];
        assert_eq!(broken_tables(&there, &files), [""; 0]);
        for gone in [Named::Package("tembo-kv"), Named::Crate("kv"), Named::Path("crates/pool/src/kv.rs")] {
            let found = broken_tables(&[gone], &files);
            assert!(found.len() == 1 && found[0].contains("kv"), "{found:?}");
        }
    }

    #[test]
    fn every_table_has_names() {
        let named = tables().into_iter().filter(|(_, names)| !names.is_empty()).count();
        assert!(named >= 4);
    }
}
