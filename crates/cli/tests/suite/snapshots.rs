//! Maps that keep versions: `snapshot`, and what the other tools say of them.

use crate::support::Workspace;

const DUMP: &str = "{\"tembo_dump\":1}\n{\"map\":\"plain\"}\n{\"key\":\"a\",\"value\":\"1\"}\n\
                    {\"versioned_map\":\"stock\"}\n{\"key\":\"apples\",\"value\":\"7\"}\n{\"key\":\"pears\",\"value\":\"12\"}\n\
                    {\"end\":{\"maps\":2,\"entries\":3}}\n";
const MORE: &str = "{\"tembo_dump\":1}\n{\"map\":\"stock\"}\n{\"key\":\"apples\",\"value\":\"5\"}\n{\"key\":\"plums\",\"value\":\"1\"}\n\
                    {\"end\":{\"maps\":1,\"entries\":2}}\n";

fn workspace() -> Workspace {
    let workspace = Workspace::new();
    workspace.run_with("load a.pool", DUMP.as_bytes()).ok();
    workspace
}

#[test]
fn a_map_goes_back_to_a_snapshot_that_was_kept() {
    let workspace = workspace();
    assert!(workspace.run("snapshot list a.pool").ok().text().contains("stock: version 2, no snapshots"));
    workspace.run("snapshot keep a.pool stock monday").ok();
    let before = workspace.run("dump a.pool").ok();
    workspace.run_with("load a.pool --merge", MORE.as_bytes()).ok();
    let changed = workspace.run("dump a.pool").ok().text();
    assert!(changed.contains("plums") && changed.contains("{\"versioned_map\":\"stock\"}"), "{changed}");
    let list = workspace.run("snapshot list a.pool stock").ok().text();
    assert_eq!(list, "stock: version 3\n  monday  2 entries, version 2\n");
    let json = workspace.run("snapshot list a.pool --json").ok().json();
    assert_eq!(
        json,
        serde_json::json!([{"map": "stock", "version": 3, "snapshots": [{"name": "monday", "version": 2, "entries": 2}]}])
    );
    let info = workspace.run("info a.pool").ok().text();
    assert!(
        info.contains("stock  3 entries, version 3")
            && info.contains("snapshot monday: 2 entries, version 2"),
        "{info}"
    );
    assert_eq!(workspace.run("info a.pool --json").ok().json()["maps"][1]["kind"], "versioned");
    let check = workspace.run("check a.pool --json").ok().json();
    assert_eq!((&check["maps"], &check["entries"], &check["snapshots"]), (&2.into(), &4.into(), &1.into()));
    workspace.run("snapshot rollback a.pool stock monday").ok();
    let after = workspace.run("dump a.pool").ok();
    assert_eq!(after.stdout, before.stdout);
    assert!(after.stderr.contains("stock also has a named snapshot"), "{after:?}");
    workspace.run("snapshot drop a.pool stock monday").ok();
    assert_eq!(workspace.run("check a.pool --json").ok().json()["snapshots"], 0);
    assert_eq!(workspace.run("dump a.pool").ok().stderr, "");
}

#[test]
fn what_cannot_be_is_said_so() {
    let workspace = workspace();
    workspace.run("snapshot keep a.pool stock monday").ok();
    workspace.run("snapshot keep a.pool stock monday").fails_with("already");
    workspace.run("snapshot keep a.pool plain monday").fails_with("keeps no versions");
    workspace.run("snapshot keep a.pool fruit monday").fails_with("there is plain, stock");
    for action in ["drop", "rollback"] {
        workspace
            .run(&format!("snapshot {action} a.pool stock tuesday"))
            .fails_with("no snapshot named \"tuesday\"");
    }
    let other = DUMP.replace("\"map\":\"plain\"", "\"versioned_map\":\"plain\"");
    workspace.run_with("load a.pool --merge", other.as_bytes()).fails_with("\"plain\" keeps no versions");
    workspace.run("check a.pool").ok();
}

#[test]
fn a_dump_comes_back_with_its_kinds_of_maps_and_without_snapshots() {
    let workspace = workspace();
    workspace.run("snapshot keep a.pool stock monday").ok();
    let dump = workspace.run("dump a.pool").ok();
    workspace.run_with("load b.pool", &dump.stdout).ok();
    assert_eq!(workspace.run("dump b.pool").ok().stdout, dump.stdout);
    assert_eq!(workspace.run("check b.pool --json").ok().json()["snapshots"], 0);
}

const TABLE: &str = "{\"tembo_dump\":1}\n{\"hash_table\":\"sessions\"}\n{\"key\":\"4711\",\"value\":\"in\"}\n\
                     {\"key\":\"4712\",\"value\":\"out\"}\n{\"end\":{\"maps\":1,\"entries\":2}}\n";

#[test]
fn a_hash_table_is_loaded_dumped_and_goes_back_to_a_snapshot() {
    let workspace = workspace();
    workspace.run_with("load a.pool --merge", TABLE.as_bytes()).ok();
    workspace.run("snapshot keep a.pool sessions noon").ok();
    let dump = workspace.run("dump a.pool").ok();
    assert!(dump.stderr.contains("sessions also has a named snapshot"), "{dump:?}");
    for line in TABLE.lines().skip(1).take(3) {
        assert!(dump.text().contains(line), "{line} in {}", dump.text());
    }
    workspace.run_with("load a.pool --merge", TABLE.replace("4712", "4713").as_bytes()).ok();
    let list = workspace.run("snapshot list a.pool").ok().text();
    assert_eq!(list, "sessions: version 3\n  noon  2 entries, version 2\nstock: version 2, no snapshots\n");
    workspace.run("snapshot rollback a.pool sessions noon").ok();
    assert_eq!(workspace.run("dump a.pool").ok().stdout, dump.stdout);
    workspace.run("snapshot drop a.pool sessions noon").ok();
    workspace.run("snapshot drop a.pool sessions noon").fails_with("no snapshot named \"noon\"");
    workspace.run_with("load b.pool", &dump.stdout).ok();
    let check = workspace.run("check b.pool --json").ok().json();
    assert_eq!((&check["entries"], &check["snapshots"]), (&5.into(), &0.into()));
    let map = TABLE.replace("hash_table", "map");
    workspace.run_with("load a.pool --merge", map.as_bytes()).fails_with("sessions");
}

#[test]
fn a_map_with_versions_is_measured() {
    let workspace = Workspace::new();
    let json = workspace.run("bench --versioned --entries 2000 --rounds 1 --dir . --json").ok().json();
    let plain = workspace.run("bench --entries 2000 --rounds 1 --dir . --json").ok().json();
    let count = |json: &serde_json::Value, of: &str| json["counts"][0][of].as_f64().unwrap();
    let fences = count(&json, "fences");
    assert!((1.0..=2.1).contains(&fences), "{fences} fences per insert");
    let (lines, of_plain) = (count(&json, "lines"), count(&plain, "lines"));
    assert!(lines > 1.1 * of_plain, "{lines} lines per insert, {of_plain} without versions");
    let name = |json: &serde_json::Value| json["subjects"][1].as_str().unwrap().to_owned();
    assert_eq!(name(&json), format!("{}, versioned", name(&plain)));
}
