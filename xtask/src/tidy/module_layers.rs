//! Modules inside a crate import downwards only.

use super::paths::{from_root, module_of, paths_from};
use super::tree::RustFile;
use super::{Report, Rule, Tree};
use std::collections::BTreeMap;

pub(super) const RULE: Rule = Rule {
    name: "module-layers",
    why: "a module that imports from above cannot be read, tested or changed without what stands on it.",
    check,
};

/// A crate whose modules form layers.
pub(super) struct LayeredCrate {
    /// The folder of its source.
    pub(super) source: &'static str,
    /// From the ground up: modules import from their own layer and from those before it. The longest path
    /// that fits says where a module belongs.
    layers: &'static [&'static [&'static str]],
}

pub(super) const CRATES: &[LayeredCrate] = &[LayeredCrate {
    source: "crates/pool/src",
    layers: &[
        &["error", "layout", "feature", "ending", "turns"],
        &["file"],
        &["alloc"],
        &["log"],
        &["inner", "pin"],
        &["tx"],
        &["pool", "compaction", "journal", "writers", "alloc::check", "format"],
    ],
}];

fn check(tree: &Tree, report: &mut Report<'_>) {
    for layered in CRATES {
        check_crate(tree, layered, report);
    }
}

fn check_crate(tree: &Tree, layered: &LayeredCrate, report: &mut Report<'_>) {
    let files: Vec<RustFile<'_>> =
        tree.rust_files().filter(|file| module_of(file.path, layered.source).is_some()).collect();
    let exports = files.iter().find(|file| file.name() == "lib.rs").map(root_exports).unwrap_or_default();
    for file in files.iter().filter(|file| !file.is_test() && file.name() != "lib.rs") {
        let module = module_of(file.path, layered.source).unwrap_or_default();
        let Some(own) = layer_of(&module, layered) else {
            let what = format!("module `{}` has no place in the layers of its crate", module.join("::"));
            report.add(file.path, 1, what, "give it one in CRATES (xtask/src/tidy/module_layers.rs)");
            continue;
        };
        for (line, path) in imports(file, &module) {
            let target = exports.get(path[0].as_str()).unwrap_or(&path);
            let above = layer_of(target, layered).filter(|layer| *layer > own);
            if above.is_some() && !file.is_test_line(line) {
                let what =
                    format!("`{}` imports `{}`, which stands above it", module.join("::"), target.join("::"));
                report.add(file.path, line, what, "move what is needed down, or pass it in from above");
            }
        }
    }
}

/// The layer that the longest entry which begins `module` is in.
fn layer_of(module: &[String], layered: &LayeredCrate) -> Option<usize> {
    let fits = |entry: &str| {
        let entry: Vec<&str> = entry.split("::").collect();
        (entry.len() <= module.len() && entry.iter().zip(module).all(|(a, b)| a == b)).then_some(entry.len())
    };
    let layers = layered.layers.iter().enumerate();
    let entries = layers.flat_map(|(layer, entries)| entries.iter().map(move |entry| (layer, *entry)));
    entries.filter_map(|(layer, entry)| Some((fits(entry)?, layer))).max().map(|(_, layer)| layer)
}

/// The names that the crate's root has by its `use` declarations, with their modules.
fn root_exports(root: &RustFile<'_>) -> BTreeMap<String, Vec<String>> {
    let code = root.code();
    let mut exports = BTreeMap::new();
    for at in (0..code.len()).filter(|&at| code[at].is_word("use")) {
        for path in paths_from(&code, at + 1) {
            let local = if path[0] == "crate" { &path[1..] } else { &path[..] };
            if let [modules @ .., name] = local
                && !modules.is_empty()
            {
                exports.insert(name.clone(), local.to_vec());
            }
        }
    }
    exports
}

/// The paths below the crate's root that a file names, in `use` declarations and elsewhere, with their lines.
fn imports(file: &RustFile<'_>, module: &[String]) -> Vec<(usize, Vec<String>)> {
    let code = file.code();
    let mut found = Vec::new();
    for at in 0..code.len() {
        let begins = code[at].is_word("crate") || code[at].is_word("super");
        let continues = at >= 2 && code[at - 1].is_mark(':') && code[at - 2].is_mark(':');
        if !begins || continues || !code.get(at + 1).is_some_and(|next| next.is_mark(':')) {
            continue;
        }
        for path in paths_from(&code, at) {
            let path = from_root(&path, module);
            if !path.is_empty() {
                found.push((code[at].line, path));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::{broken, messages};
    use super::*;

    const ROOT: (&str, &str) =
        ("crates/pool/src/lib.rs", "mod tx;\npub use tx::{Savepoint, Tx};\npub use error::Error;\n");

    fn broken_in(path: &str, source: &str) -> Vec<String> {
        broken(&RULE, &[ROOT, (path, source)])
    }

    #[test]
    fn each_form_of_an_upward_import_is_found_in_its_line() {
        let path = "crates/pool/src/log/lane.rs";
        for import in [
            "use crate::tx::commit;",
            "use crate::{Error, tx};",
            "use crate::{alloc::{Arena, Block}, layout::PmLane, tx::{self}};",
            "use super::super::tx::Tx;",
            "use crate::Tx;",
            "fn f(tx: &mut crate::tx::Tx) {}",
            "pub(crate) use crate::{Savepoint};",
        ] {
            assert_eq!(broken_in(path, &format!("\n{import}\n")), [format!("{path}:2")], "{import}");
        }
    }

    #[test]
    fn imports_downwards_sideways_and_in_tests_are_free() {
        let path = "crates/pool/src/log/lane.rs";
        let source = "use crate::{Error, alloc::Arena, layout};\nuse super::record::Half;\npub(crate) struct A;\n\
                      #[cfg(test)]\nmod tests {\n    use crate::tx::Tx;\n}\n";
        assert_eq!(broken_in(path, source), [""; 0]);
        assert_eq!(broken_in("crates/pool/src/pool.rs", "use crate::tx::Tx;\n"), [""; 0]);
        assert_eq!(broken_in("crates/pool/src/tests/crash.rs", "use crate::tx::Tx;\n"), [""; 0]);
        assert_eq!(broken_in("crates/heap/src/lib.rs", "use crate::tx::Tx;\n"), [""; 0]);
    }

    #[test]
    fn a_module_without_a_layer_is_found() {
        let text = messages(&RULE, &[ROOT, ("crates/pool/src/extras.rs", "")]);
        assert!(text.contains("`extras` has no place"), "{text}");
    }

    #[test]
    fn the_longest_entry_decides() {
        let layered = LayeredCrate { source: "", layers: &[&["file"], &["tx"], &["file::open"]] };
        let layer = |path: &str| layer_of(&path.split("::").map(str::to_owned).collect::<Vec<_>>(), &layered);
        assert_eq!((layer("file::header"), layer("file::open::x"), layer("tx")), (Some(0), Some(2), Some(1)));
        assert_eq!(layer("none"), None);
    }
}
