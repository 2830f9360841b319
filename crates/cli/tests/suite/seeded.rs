//! The seeded workload and kill -9.

use crate::support::Workspace;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

const KILLS: u64 = 25;

fn acknowledged(line: &str) -> u64 {
    line.strip_prefix("acked ")
        .and_then(|n| n.parse().ok())
        .unwrap_or_else(|| panic!("{line:?} is no acknowledgement"))
}

fn start(workspace: &Workspace, arguments: &str) -> Child {
    workspace.command(arguments).stdout(Stdio::piped()).spawn().expect("the workload starts")
}

#[test]
fn every_operation_is_acknowledged_once_and_in_order() {
    let workspace = Workspace::new();
    let text = workspace.run("bench --seeded --seed 3 --ops 200 --pool a.pool").ok().text();
    assert!(text.lines().map(acknowledged).eq(1..=200));
    workspace.run("bench --seeded --seed 3 --ops 200 --pool a.pool").fails_with("exists already");
    let text = workspace.run("bench --seeded --seed 3 --ops 230 --pool a.pool --resume").ok().text();
    assert!(text.lines().map(acknowledged).eq(201..=230));
    workspace.run("check a.pool --expect-seeded 230 --seed 3").ok();
}

#[test]
fn equal_seeds_give_equal_contents() {
    let workspace = Workspace::new();
    let dumps = ["a", "b"].map(|name| {
        workspace.pool(name, 150);
        workspace.run(&format!("dump {name}")).ok().stdout
    });
    assert!(dumps[0] == dumps[1]);
}

/// Kills the workload again and again after a number of acknowledgements, always in the same pool: what was
/// acknowledged is there, nothing is half there, and the next run goes on from it.
#[test]
fn kill_9_loses_nothing_that_was_acknowledged() {
    for durability in ["page-cache", "emulated", "synced"] {
        let workspace = Workspace::new();
        let mut last = 0;
        for kill in 0..KILLS {
            let workload = format!(
                "bench --seeded --seed 5 --ops 1000000 --pool a.pool --resume --durability {durability}"
            );
            let mut child = start(&workspace, &workload);
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
            // The first kill may meet the creation of the pool.
            let wait = kill * 7 % 40;
            for line in lines.by_ref().take(wait as usize) {
                last = acknowledged(&line);
            }
            child.kill().unwrap();
            child.wait().unwrap();
            // Every line in the pipe was printed, hence acknowledged; the kill may have cut the last one.
            for line in lines.filter(|line| line.starts_with("acked ")) {
                last = acknowledged(&line);
            }
            let checked = workspace.run(&format!("check a.pool --json --expect-seeded {last} --seed 5"));
            assert_eq!(checked.code, Some(0), "{durability}, kill {kill}: {checked:?}");
            last = checked.json()["seeded_operations"].as_u64().unwrap();
        }
        assert!(last > KILLS, "only {last} operations were done");
    }
}
