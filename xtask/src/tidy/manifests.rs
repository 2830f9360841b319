//! Every package takes its metadata, lints and versions from the workspace.

use super::layers::line_of;
use super::{Report, Rule, Tree};

pub(super) const RULE: Rule = Rule {
    name: "manifests",
    why: "one place decides versions and lints, so that no crate quietly opts out of them or builds a second copy of a library.",
    check,
};

const INHERITED: &[&str] = &["version", "edition", "rust-version", "license", "repository"];

fn check(tree: &Tree, report: &mut Report<'_>) {
    let packages = tree.text_files();
    for file in packages.filter(|file| file.path == "xtask/Cargo.toml" || file.is_package_manifest()) {
        let Ok(manifest) = file.text.parse::<toml::Table>() else { continue };
        for key in INHERITED {
            if !inherits(manifest.get("package").and_then(|p| p.get(key))) {
                let line = line_of(&file.text, "package", key);
                let what = format!("the package does not take its `{key}` from the workspace");
                report.add(&file.path, line, what, format!("write `{key}.workspace = true` under [package]"));
            }
        }
        if !inherits(manifest.get("lints")) {
            let line = line_of(&file.text, "lints", "workspace");
            let what = "the package does not take its lints from the workspace";
            report.add(&file.path, line, what, "write `workspace = true` under [lints]");
        }
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let entries = manifest.get(section).and_then(toml::Value::as_table);
            for (name, _) in entries.into_iter().flatten().filter(|(_, value)| !inherits(Some(value))) {
                let line = line_of(&file.text, section, name);
                let what = format!("dependency `{name}` does not take its version from the workspace");
                let fix = "declare it under [workspace.dependencies] of the root, and write `.workspace = true` here";
                report.add(&file.path, line, what, fix);
            }
        }
    }
}

fn inherits(value: Option<&toml::Value>) -> bool {
    value.and_then(|v| v.get("workspace")).and_then(toml::Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::super::testing::broken;
    use super::*;

    const GOOD: &str = "[package]\nname = \"tembo-wire\"\nversion.workspace = true\nedition.workspace = true\n\
                        rust-version.workspace = true\nlicense.workspace = true\nrepository.workspace = true\n\
                        [lints]\nworkspace = true\n[dependencies]\nmemchr.workspace = true\n";

    #[test]
    fn an_inheriting_manifest_is_accepted() {
        assert_eq!(broken(&RULE, &[("crates/wire/Cargo.toml", GOOD)]), [""; 0]);
    }

    #[test]
    fn own_metadata_own_lints_and_own_versions_are_found() {
        let seeded = [
            ("edition.workspace = true", "edition = \"2021\"", 4),
            ("license.workspace = true\n", "", 1),
            ("workspace = true\n[dep", "[dep", 8),
            ("memchr.workspace = true", "memchr = \"2\"", 11),
        ];
        for (good, bad, line) in seeded {
            let text = GOOD.replacen(good, bad, 1);
            assert_ne!(text, GOOD);
            let expected = format!("crates/wire/Cargo.toml:{line}");
            assert_eq!(broken(&RULE, &[("crates/wire/Cargo.toml", &text)]), [expected], "{bad}");
        }
    }
}
