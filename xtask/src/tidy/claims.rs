//! The page of the papers' claims has no empty cell, and its commands are there.

use super::tree::TextFile;
use super::{Report, Rule, Tree};
use std::collections::BTreeSet;

pub(super) const RULE: Rule = Rule {
    name: "claims",
    why: "a claim without a figure, a cause or a command that shows it proves nothing.",
    check,
};

const PAGE: &str = "docs/claims.md";
/// The column that says whether a claim is reached, and its values.
const REACHED: &str = "reached";
const VERDICTS: &[&str] = &["yes", "no", "in part", "not measured"];
const COMMAND: &str = "command";

fn check(tree: &Tree, report: &mut Report<'_>) {
    let Some(page) = tree.text(PAGE) else { return };
    let names = names(tree);
    let mut columns: Vec<&str> = Vec::new();
    for (line, text) in (1..).zip(page.text.lines()) {
        let Some(row) = text.strip_prefix('|') else {
            columns.clear();
            continue;
        };
        let cells: Vec<&str> = row.trim_end().trim_end_matches('|').split('|').map(str::trim).collect();
        let mut complain = |what: String, fix: &str| report.add(PAGE, line, what, fix);
        if cells.iter().any(|cell| cell.is_empty()) {
            complain("a cell is empty".to_owned(), "write the figure, or why there is none");
            continue;
        }
        let is_rule = cells.iter().all(|cell| cell.bytes().all(|byte| b"-:".contains(&byte)));
        if columns.is_empty() {
            columns = cells;
            continue;
        }
        if is_rule {
            continue;
        }
        if cells.len() != columns.len() {
            complain(
                format!("{} cells, and the table has {} columns", cells.len(), columns.len()),
                "mend the row",
            );
        }
        for (column, cell) in columns.iter().zip(&cells) {
            if *column == REACHED && !VERDICTS.contains(cell) {
                complain(format!("`{cell}` is no verdict"), &format!("write one of {VERDICTS:?}"));
            }
            if *column == COMMAND {
                commands(cell).filter_map(|command| missing(tree, &names, command)).for_each(|what| {
                    complain(what, "name a command that shows the figure");
                });
            }
        }
    }
}

/// The code in a cell. A cell without any is a command of no kind.
fn commands(cell: &str) -> impl Iterator<Item = &str> {
    let has_code = cell.contains('`');
    let code = cell.split('`').skip(1).step_by(2);
    code.chain((!has_code).then_some(cell))
}

/// The part of a command that does not exist.
fn missing(tree: &Tree, names: &BTreeSet<&str>, command: &str) -> Option<String> {
    let is_variable = |word: &&str| word.split('=').next().is_some_and(|name| name.to_uppercase() == name);
    let words: Vec<&str> = command.split_whitespace().skip_while(is_variable).collect();
    let after = |option: &str| words.iter().position(|word| *word == option).and_then(|at| words.get(at + 1));
    let is_name = |wanted: &str| {
        let group = format!("{wanted}-");
        names.iter().any(|name| *name == wanted || name.starts_with(&group))
    };
    let figure = match words[..] {
        ["cargo", "goals", ..] | ["cargo", "research", "summary", ..] => after("--only").copied(),
        ["cargo", "research", name, ..] => Some(name),
        ["cargo", "test" | "bench", ..] => return missing_test(tree, &words),
        ["find", ..] => None,
        [script, ..] if script.contains('/') => None,
        _ => return Some(format!("`{command}` is no command of this project")),
    };
    if let Some(name) = figure.filter(|name| !is_name(name)) {
        return Some(format!("there is no figure or goal `{name}`"));
    }
    let is_path = |word: &&&str| word.contains('/') && !word.starts_with('/');
    let out = after("--out").or(after("--folder"));
    let gone = words.iter().filter(is_path).find(|path| Some(*path) != out && !tree.exists(path))?;
    Some(format!("there is no `{gone}`"))
}

fn missing_test(tree: &Tree, words: &[&str]) -> Option<String> {
    for (option, folder) in [("--test", "tests"), ("--bench", "benches")] {
        let name = words.iter().position(|word| *word == option).and_then(|at| words.get(at + 1));
        let Some(name) = name else { continue };
        let (file, module) = (format!("/{folder}/{name}.rs"), format!("/{folder}/{name}/main.rs"));
        if !tree.rust_files().any(|source| source.path.ends_with(&file) || source.path.ends_with(&module)) {
            return Some(format!("there is no `{file}`"));
        }
    }
    None
}

/// The names of figures and goals: `name: "..."` in their sources.
fn names(tree: &Tree) -> BTreeSet<&str> {
    let sources = |file: &&TextFile| {
        let of_them = file.path.starts_with("research/") || file.path.starts_with("tools/goals/");
        of_them && file.path.ends_with(".rs")
    };
    let parts = tree.text_files().filter(sources).flat_map(|file| file.text.split("name: \"").skip(1));
    parts.filter_map(|part| part.split('"').next()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::broken;
    use super::*;

    fn broken_in(row: &str) -> Vec<String> {
        let page = format!("# Claims\n\n| claim | ours | reached | command |\n|---|---|---|---|\n{row}\n");
        let files = [
            (PAGE, page.as_str()),
            ("research/papers/src/a.rs", "Figure { name: \"figure-4\" } Row { name: \"cdds-open\" }"),
            ("scripts/compare", ""),
            ("crates/store/tests/kill.rs", ""),
            ("crates/heap/tests/kill/main.rs", ""),
            ("crates/pool/benches/alloc.rs", ""),
        ];
        broken(&RULE, &files)
    }

    #[test]
    fn rows_with_a_verdict_and_a_command_are_accepted() {
        for command in [
            "`cargo research figure-4 --out anywhere/figures`",
            "`cargo research summary --only cdds`",
            "`cargo goals --only cdds-open`",
            "`KILLS=200 cargo test --release -p tembo-store --test kill -- --nocapture`",
            "`cargo bench -p tembo-pool --bench alloc -- emulated /dev/shm`",
            "`scripts/compare one` and `find crates/store/tests -name '*.rs'`",
        ] {
            assert_eq!(broken_in(&format!("| c | 1 | in part | {command} |")), [""; 0], "{command}");
        }
    }

    #[test]
    fn rows_that_prove_nothing_are_found() {
        for row in [
            "| c | | yes | `scripts/compare` |",
            "| c | 1 | yes | |",
            "| c | 1 | perhaps | `scripts/compare` |",
            "| c | 1 | yes | by hand |",
            "| c | 1 | yes | `ls` |",
            "| c | 1 | yes | `scripts/gone` |",
            "| c | 1 | yes | `cargo research figure-5` |",
            "| c | 1 | yes | `cargo goals --only cd` |",
            "| c | 1 | yes | `cargo test -p tembo-store --test gone` |",
            "| c | 1 | yes | `find crates/gone -name '*.rs'` |",
            "| c | 1 | yes | `scripts/compare` | more |",
        ] {
            assert_eq!(broken_in(row), ["docs/claims.md:5"], "{row}");
        }
    }
}
