//! No path of somebody's machine.

use super::{Report, Rule, Tree};

pub(super) const RULE: Rule = Rule {
    name: "machine-path",
    why: "code, examples and documents work on every machine, and tests that share a fixed path disturb each other.",
    check,
};

/// Beginnings of paths that exist on one machine only; in two parts because this file is checked as well.
const PREFIXES: &[&str] = &[
    concat!("/", "tmp/"),
    concat!("/", "root"),
    concat!("/", "home/"),
    concat!("/", "work/"),
    concat!("/", "Users/"),
];

fn check(tree: &Tree, report: &mut Report<'_>) {
    for file in tree.text_files() {
        for (at, line) in file.text.lines().enumerate() {
            for prefix in PREFIXES.iter().filter(|prefix| names_a_path(line, prefix)) {
                let what = format!("a path of one machine: `{prefix}`...");
                let fix = "use a path relative to the repository, tempfile in tests, std::env::temp_dir(), or $TMPDIR in scripts";
                report.add(&file.path, at + 1, what, fix);
            }
        }
    }
}

/// Whether `prefix` begins a path in `line`, rather than continuing one.
fn names_a_path(line: &str, prefix: &str) -> bool {
    let continues = |c: char| c.is_alphanumeric() || "._-/$}*)".contains(c);
    line.match_indices(prefix).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + prefix.len()..].chars().next();
        let whole = if prefix.ends_with('/') {
            after.is_some_and(|c| c.is_alphanumeric() || "._-$*<{".contains(c))
        } else {
            !after.is_some_and(|c| c.is_alphanumeric() || "_-".contains(c))
        };
        whole && !before.is_some_and(continues)
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::broken;
    use super::*;

    #[test]
    fn machine_paths_are_found_in_every_kind_of_text() {
        for prefix in PREFIXES {
            let path = format!("{}/a.pool", prefix.trim_end_matches('/'));
            for file in ["src/a.rs", "docs/a.md", "a.toml", "a.sh", ".ci/run", "a.yml"] {
                for text in [format!("x \"{path}\""), format!("x={path}"), format!("`{path}`"), path.clone()]
                {
                    assert_eq!(
                        broken(&RULE, &[(file, &format!("ok\n{text}\n"))]),
                        [format!("{file}:2")],
                        "{text}"
                    );
                }
            }
        }
    }

    #[test]
    fn other_paths_and_addresses_are_not() {
        let tmp = PREFIXES[0];
        let texts = [
            "src/root.rs crates/pool/root a/root",
            "the // root of it, /rooted, and/or",
            &format!(
                "https://example.org{tmp}x and ${{TMPDIR:-{}}} and target{tmp}x",
                tmp.trim_end_matches('/')
            ),
            "/dev/shm/a /mnt/pmem/a ./tembo.pool",
        ];
        for text in texts {
            assert_eq!(broken(&RULE, &[("docs/a.md", text)]), [""; 0], "{text}");
        }
    }
}
