//! Arguments and exit codes.

use crate::support::Workspace;

#[test]
fn help_and_version_are_answers_and_not_failures() {
    let workspace = Workspace::new();
    let calls = [
        "--help",
        "help serve",
        "serve --help",
        "info --help",
        "check --help",
        "dump --help",
        "load --help",
        "import --help",
        "export --help",
        "snapshot --help",
        "bench --help",
    ];
    for call in calls {
        let text = workspace.run(call).ok().text();
        assert!(text.contains("Usage: tembo") && text.contains("Examples:"), "{call}: {text}");
    }
    let version = workspace.run("--version").ok().text();
    assert_eq!(version, format!("tembo {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_is_exit_code_2_and_changes_nothing() {
    let workspace = Workspace::new();
    let calls = [
        "",
        "dance",
        "serve --durability none",
        "serve --listen nowhere",
        "check",
        "bench --seeded",
        "info a b",
        "snapshot keep a.pool m",
    ];
    for call in calls {
        let run = workspace.run(call);
        assert_eq!(run.code, Some(2), "{call}: {run:?}");
        assert!(run.stdout.is_empty() && run.stderr.contains("help"), "{call}: {run:?}");
    }
    assert_eq!(workspace.names(), [""; 0]);
}

#[test]
fn an_absent_pool_is_a_failure_and_is_not_created() {
    let workspace = Workspace::new();
    for call in ["info no.pool", "dump no.pool", "snapshot list no.pool", "snapshot keep no.pool m s"] {
        workspace.run(call).fails_with("no.pool");
    }
    workspace.run("check no.pool").ends_with(3, "no.pool");
    assert_eq!(workspace.names(), [""; 0]);
}
