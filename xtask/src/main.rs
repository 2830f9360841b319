//! Project chores, run as `cargo xtask <chore>`.
#![forbid(unsafe_code)]

mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask <chore>

Chores:
  tidy          Check the rules of STYLE.md that a program can check
  tidy --list   Name those rules and say why they exist

Exit codes: 0 all well, 1 a rule is broken, 2 wrong usage.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["tidy"] => tidy_workspace(),
        ["tidy", "--list"] => {
            print!("{}", tidy::describe_rules());
            ExitCode::SUCCESS
        }
        ["--help" | "-h" | "help"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn tidy_workspace() -> ExitCode {
    let tree = match tidy::Tree::read(&workspace_root()) {
        Ok(tree) => tree,
        Err(e) => {
            eprintln!("tidy: {e}");
            return ExitCode::FAILURE;
        }
    };
    let violations = tidy::check(&tree);
    for violation in &violations {
        eprintln!("{violation}\n");
    }
    let files = tree.len();
    if violations.is_empty() {
        println!("tidy: {files} files, {} rules, all kept", tidy::rule_count());
        return ExitCode::SUCCESS;
    }
    eprintln!("tidy: {} violations in {files} files", violations.len());
    ExitCode::FAILURE
}

/// The directory above this package's own.
fn workspace_root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}
