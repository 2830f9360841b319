//! Crates depend downwards only.

use super::tree::TextFile;
use super::{Report, Rule, Tree};

pub(super) const RULE: Rule = Rule {
    name: "layers",
    why: "dependencies point one way, so that every layer can be read, tested and trusted without the ones above it.",
    check,
};

/// Every crate with the crates of this workspace that it may depend on.
pub(super) const LAYERS: &[(&str, &[&str])] = &[
    ("tembo-sync", &[]),
    ("tembo-pmem", &["tembo-sync"]),
    ("tembo-wire", &[]),
    ("tembo-rdb", &[]),
    ("tembo-heap-derive", &[]),
    ("tembo-crashsim", &["tembo-pmem"]),
    ("tembo-pool", &["tembo-pmem", "tembo-sync"]),
    ("tembo-heap", &["tembo-pmem", "tembo-sync", "tembo-pool", "tembo-heap-derive"]),
    ("tembo-index", &["tembo-pmem", "tembo-sync", "tembo-pool"]),
    ("tembo-store", &["tembo-pmem", "tembo-sync", "tembo-pool", "tembo-index"]),
    ("tembo", &["tembo-pmem", "tembo-pool", "tembo-index", "tembo-store", "tembo-heap", "tembo-heap-derive"]),
    ("tembo-script", &["tembo-wire"]),
    (
        "tembo-server",
        &["tembo-pmem", "tembo-pool", "tembo-index", "tembo", "tembo-wire", "tembo-rdb", "tembo-script"],
    ),
    ("tembo-memcached", &["tembo-pool", "tembo"]),
    ("tembo-cli", &["tembo-pool", "tembo", "tembo-server", "tembo-memcached", "tembo-rdb", "tembo-wire"]),
    ("tembo-capi", &["tembo"]),
    ("tembo-goals", &["tembo-pmem", "tembo-pool", "tembo-index", "tembo-store"]),
    ("tembo-bench", &["tembo-pmem", "tembo-pool", "tembo-index", "tembo-heap", "tembo-goals"]),
    (
        "tembo-bench-peers",
        &[
            "tembo-pmem",
            "tembo-pool",
            "tembo-index",
            "tembo-heap",
            "tembo",
            "tembo-goals",
            "tembo-bench",
            "tembo-store",
        ],
    ),
];

/// Crates that any crate may use in its tests: the crash simulator, and the client's side of the protocol.
pub(super) const TEST_INSTRUMENTS: &[&str] = &["tembo-crashsim", "tembo-wire"];

fn check(tree: &Tree, report: &mut Report<'_>) {
    let manifests = tree.text_files().filter(|file| file.is_package_manifest());
    for manifest in manifests {
        check_manifest(manifest, report);
    }
}

fn check_manifest(manifest: &TextFile, report: &mut Report<'_>) {
    let Ok(table) = manifest.text.parse::<toml::Table>() else {
        report.add(&manifest.path, 1, "the manifest is not valid TOML", "make `cargo metadata` accept it");
        return;
    };
    let name = table.get("package").and_then(|p| p.get("name")).and_then(toml::Value::as_str).unwrap_or("");
    let Some((_, allowed)) = LAYERS.iter().find(|(known, _)| *known == name) else {
        report.add(
            &manifest.path,
            line_of(&manifest.text, "package", "name"),
            format!("crate `{name}` has no place in the layers"),
            "give it a row in LAYERS (xtask/src/tidy/layers.rs), and a sentence in ARCHITECTURE.md",
        );
        return;
    };
    for (section, dependency) in dependencies(&table) {
        let ours = dependency == "tembo" || dependency.starts_with("tembo-");
        let in_tests = section == "dev-dependencies";
        let instrument = in_tests && TEST_INSTRUMENTS.contains(&dependency.as_str());
        if !ours || instrument || allowed.contains(&dependency.as_str()) {
            continue;
        }
        let may = if allowed.is_empty() { "no other crate".to_owned() } else { allowed.join(", ") };
        report.add(
            &manifest.path,
            line_of(&manifest.text, section, &dependency),
            format!("crate `{name}` depends on `{dependency}` ({section}); it may depend on: {may}"),
            "move what is needed down a layer, or pass it in from above",
        );
    }
}

/// The name of the package that a manifest describes.
pub(super) fn package_name(manifest: &str) -> Option<String> {
    let table = manifest.parse::<toml::Table>().ok()?;
    table.get("package")?.get("name")?.as_str().map(str::to_owned)
}

/// The dependencies of a manifest with the kind of section they stand in, by package name.
fn dependencies(manifest: &toml::Table) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let tables = targets.into_iter().flat_map(|t| t.values()).filter_map(toml::Value::as_table);
    for table in tables.chain([manifest]) {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(entries) = table.get(section).and_then(toml::Value::as_table) else { continue };
            for (key, value) in entries {
                let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(key);
                found.push((section, package.to_owned()));
            }
        }
    }
    found
}

/// The line of `key` in a section whose header ends with `section`, else the line of that header.
pub(super) fn line_of(manifest: &str, section: &str, key: &str) -> usize {
    let (mut inside, mut header) = (false, 1);
    for (at, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').map(|l| l.trim_matches(['[', ']'])) {
            inside = name == section || name.ends_with(&format!(".{section}"));
            if inside {
                header = at + 1;
            }
        } else if inside {
            let found = line.trim_start_matches('"').strip_prefix(key);
            let ends = found.is_some_and(|rest| rest.starts_with(['"', ' ', '=', '.']));
            if ends || line.contains(&format!("\"{key}\"")) {
                return at + 1;
            }
        }
    }
    header
}

#[cfg(test)]
mod tests {
    use super::super::testing::{broken, messages};
    use super::*;

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n{rest}")
    }

    #[test]
    fn an_upward_dependency_is_found_in_its_line() {
        let text = manifest(
            "tembo-pool",
            "[dependencies]\ntembo-pmem.workspace = true\ntembo-index.workspace = true\n",
        );
        assert_eq!(broken(&RULE, &[("crates/pool/Cargo.toml", &text)]), ["crates/pool/Cargo.toml:5"]);
    }

    #[test]
    fn a_standalone_crate_may_not_depend_on_any_other() {
        let text = manifest("tembo-wire", "[dependencies]\ntembo-pmem = { path = \"../pmem\" }\n");
        let message = messages(&RULE, &[("crates/wire/Cargo.toml", &text)]);
        assert!(message.contains("no other crate"), "{message}");
    }

    #[test]
    fn renamed_target_specific_and_build_dependencies_count() {
        let seeded = [
            "[dependencies]\ninner = { package = \"tembo-server\", path = \"x\" }\n",
            "[target.'cfg(unix)'.dependencies]\ntembo-server.workspace = true\n",
            "[build-dependencies]\ntembo-server.workspace = true\n",
            "[dev-dependencies]\ntembo-server.workspace = true\n",
        ];
        for rest in seeded {
            let text = manifest("tembo", rest);
            assert_eq!(
                broken(&RULE, &[("crates/tembo/Cargo.toml", &text)]),
                ["crates/tembo/Cargo.toml:4"],
                "{rest}"
            );
        }
    }

    #[test]
    fn instruments_serve_tests_only() {
        for instrument in TEST_INSTRUMENTS {
            let dev = manifest("tembo-pool", &format!("[dev-dependencies]\n{instrument}.workspace = true\n"));
            assert_eq!(broken(&RULE, &[("crates/pool/Cargo.toml", &dev)]), [""; 0]);
            let product = manifest("tembo-pool", &format!("[dependencies]\n{instrument}.workspace = true\n"));
            assert_eq!(broken(&RULE, &[("crates/pool/Cargo.toml", &product)]).len(), 1);
        }
    }

    #[test]
    fn an_unknown_crate_and_an_unreadable_manifest_are_reported() {
        let unknown = manifest("tembo-extras", "");
        assert_eq!(broken(&RULE, &[("crates/extras/Cargo.toml", &unknown)]), ["crates/extras/Cargo.toml:2"]);
        assert_eq!(broken(&RULE, &[("crates/x/Cargo.toml", "[package")]), ["crates/x/Cargo.toml:1"]);
    }

    #[test]
    fn the_table_itself_has_no_cycle() {
        for (at, (name, allowed)) in LAYERS.iter().enumerate() {
            for below in *allowed {
                let place = LAYERS.iter().position(|(known, _)| known == below);
                assert!(place.is_some_and(|p| p < at), "{name} -> {below} does not point down");
            }
        }
    }
}
