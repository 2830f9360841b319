//! `store`: reading, changing, backing up and restoring transactional stores.

use crate::support::{Workspace, bytes};
use serde_json::json;
use tembo::{Durability, Options};

const LINES: &str = "{\"keyspace\":\"accounts\",\"key\":\"ann\",\"value\":\"100\"}\n\
                     {\"keyspace\":\"accounts\",\"key\":\"bob\",\"value\":\"20\"}\n\
                     \n\
                     {\"keyspace\":\"pictures\",\"key\":{\"hex\":\"ff00\"},\"value\":{\"base64\":\"AAH/\"}}\n";

fn workspace() -> Workspace {
    let workspace = Workspace::new();
    workspace.run_with("store import a.pool --create", LINES.as_bytes()).ok();
    workspace
}

#[test]
fn keys_are_put_read_and_deleted() {
    let workspace = Workspace::new();
    workspace.run("store put a.pool accounts ann 100").fails_with("there is no pool");
    let put = workspace.run("store put a.pool accounts ann 100 --create --json").ok().json();
    assert!(put["snapshot"].as_u64() > Some(0), "{put}");
    assert_eq!(workspace.run("store get a.pool accounts ann").ok().text(), "100\n");
    workspace.run_with("store put a.pool accounts ff00 --encoding hex --value-file -", b"\x00\xff\n").ok();
    let raw = workspace.run("store get a.pool accounts /wA= --encoding base64 --raw").ok();
    assert_eq!(raw.stdout, b"\x00\xff\n");
    let json = workspace.run("store get a.pool accounts ff00 --encoding hex --json").ok().json();
    assert_eq!(json, json!({"keyspace": "accounts", "key": {"base64": "/wA="}, "value": {"base64": "AP8K"}}));
    workspace
        .run("store get a.pool accounts eve")
        .fails_with("key eve of the keyspace accounts has no value");
    workspace.run("store get a.pool account ann").fails_with("no keyspace \"account\"; there is accounts");
    let number = workspace.run("store del a.pool accounts ann").ok().text();
    assert!(number.trim().parse::<u64>().is_ok(), "{number}");
    workspace.run("store del a.pool accounts ann").fails_with("has no value");
    workspace.run("store get a.pool accounts ann").fails_with("has no value");
    let wrong = workspace.run("store get a.pool accounts 0g --encoding hex");
    assert_eq!(wrong.ends_with(2, "\"0g\" is not hexadecimal").code, Some(2));
    assert_eq!(workspace.run("store put a.pool accounts ann").code, Some(2));
    assert_eq!(workspace.run("store get a.pool").code, Some(2));
    workspace.run("check a.pool").ok();
}

/// Makes a pool whose store had six values of 2 MB, which a reader held when they were deleted.
fn leave_space(workspace: &Workspace) {
    let options = Options::new().create(true).initial_bytes(1 << 20).durability(Durability::PageCache);
    let pool = options.open(workspace.path("a.pool")).unwrap();
    let store = pool.open_store("store").unwrap();
    let k = store.keyspace("k").unwrap();
    (0..6u8).for_each(|i| _ = store.put(&k, [i], vec![i; 2 << 20]).unwrap());
    let reader = store.snapshot();
    (0..6u8).for_each(|i| _ = store.delete(&k, [i]).unwrap());
    drop(reader);
}

fn used_bytes(workspace: &Workspace, name: &str) -> u64 {
    workspace.run(&format!("check {name} --json")).ok().json()["allocated_bytes"].as_u64().unwrap()
}

/// Commands that write go on with what is to be collected, and `compact` collects all of it.
#[test]
fn space_that_an_earlier_process_left_comes_back_with_commands() {
    let commands = [
        "store put a.pool k key value --durability page-cache",
        "store import a.pool --durability page-cache",
        "compact a.pool --durability page-cache",
        "compact a.pool --into b.pool --durability page-cache",
    ];
    for command in commands {
        let workspace = Workspace::new();
        leave_space(&workspace);
        assert!(used_bytes(&workspace, "a.pool") > 12 << 20);
        workspace.run_with(command, LINES.as_bytes()).ok();
        let name = if command.contains("b.pool") { "b.pool" } else { "a.pool" };
        let used = used_bytes(&workspace, name);
        assert!(used < 2 << 20, "{command}: {used}");
        if command.starts_with("compact") {
            let bytes = workspace.path(name).metadata().unwrap().len();
            assert!(bytes < 8 << 20, "{command}: {bytes}");
        }
    }
    // Values that commands put and delete.
    let workspace = Workspace::new();
    let value = vec![7; 2 << 20];
    (0..6).for_each(|i| {
        let put = format!("store put a.pool k key{i} --value-file - --create --durability page-cache");
        _ = workspace.run_with(&put, &value).ok();
    });
    (0..6)
        .for_each(|i| _ = workspace.run(&format!("store del a.pool k key{i} --durability page-cache")).ok());
    let used = used_bytes(&workspace, "a.pool");
    assert!(used < 2 << 20, "{used}");
}

#[test]
fn lines_are_imported_and_a_scan_gives_them_back() {
    let workspace = workspace();
    assert_eq!(workspace.run("store scan a.pool accounts").ok().text(), "ann\t100\nbob\t20\n");
    assert_eq!(workspace.run("store scan a.pool pictures").ok().text(), "\\xff\\x00\t\\x00\\x01\\xff\n");
    let parts = [
        ("--prefix b", "bob\t20\n"),
        ("--from b", "bob\t20\n"),
        ("--to b", "ann\t100\n"),
        ("--reverse --limit 1", "bob\t20\n"),
        ("--limit 0", ""),
    ];
    for (options, expected) in parts {
        let scan = workspace.run(&format!("store scan a.pool accounts {options}"));
        assert_eq!(scan.ok().text(), expected, "{options}");
    }
    let mut lines = workspace.run("store scan a.pool accounts --json").ok().text();
    lines.push_str(&workspace.run("store scan a.pool pictures --json").ok().text());
    let imported = workspace.run_with("store import b.pool --create --json", lines.as_bytes()).ok().json();
    assert_eq!(imported, json!({"put": 3, "deleted": 0, "commits": 1}));
    assert_eq!(
        workspace.run("store scan b.pool pictures --json").ok().text(),
        lines.lines().last().unwrap().to_owned() + "\n"
    );
    let gone = "{\"keyspace\":\"accounts\",\"key\":\"ann\",\"value\":null}\n";
    workspace.run_with("store import b.pool", gone.as_bytes()).ok();
    assert_eq!(workspace.run("store scan b.pool accounts").ok().text(), "bob\t20\n");
}

#[test]
fn an_import_says_which_line_is_wrong_and_keeps_what_was_committed() {
    let workspace = Workspace::new();
    let cases = [
        ("nonsense\n", "line 1: not a key in JSON"),
        ("{\"keyspace\":\"a\",\"key\":\"b\"}\n", "missing field `value`"),
        ("{\"keyspace\":\"a\",\"key\":\"b\",\"value\":\"c\",\"more\":1}\n", "unknown field `more`"),
        ("{\"keyspace\":\"a\",\"key\":7,\"value\":\"c\"}\n", "expected a string, {\"base64\""),
        ("{\"keyspace\":\"a\",\"key\":{\"hex\":\"0\"},\"value\":\"c\"}\n", "\"0\" is not hexadecimal"),
        ("{\"keyspace\":\"\",\"key\":\"b\",\"value\":\"c\"}\n", "the name of a keyspace has 1 to 256 bytes"),
    ];
    for (line, expected) in cases {
        let run = workspace.run_with("store import a.pool --create", line.as_bytes());
        run.fails_with(expected).fails_with("nothing was imported");
        assert!(workspace.names().is_empty(), "a pool that is made appears when it is whole");
    }
    let mut lines: String =
        (0..600).map(|i| format!("{{\"keyspace\":\"k\",\"key\":\"{i:04}\",\"value\":\"v\"}}\n")).collect();
    workspace.run("store put a.pool k before v --create").ok();
    lines.push_str("{}\n");
    let run = workspace.run_with("store import a.pool --durability page-cache", lines.as_bytes());
    run.fails_with("line 601: ").fails_with("the commits before it stay");
    assert_eq!(workspace.run("store scan a.pool k").ok().text().lines().count(), 513);
}

#[test]
fn snapshots_are_kept_compared_and_deleted() {
    let workspace = workspace();
    assert_eq!(workspace.run("store snapshot list a.pool").ok().text(), "no kept snapshots\n");
    let kept = workspace.run("store snapshot keep a.pool yesterday --json").ok().json();
    workspace.run("store put a.pool accounts ann 70").ok();
    workspace.run("store put a.pool accounts eve 30").ok();
    workspace.run("store del a.pool accounts bob").ok();
    assert_eq!(workspace.run("store get a.pool accounts ann --at yesterday").ok().text(), "100\n");
    let by_number = format!("store get a.pool accounts ann --at {}", kept["number"]);
    assert_eq!(workspace.run(&by_number).ok().text(), "100\n");
    let diff = workspace.run("store diff a.pool yesterday").ok().text();
    assert_eq!(diff, "~ accounts\tann\t100\t70\n- accounts\tbob\t20\n+ accounts\teve\t30\n");
    let json = workspace.run("store diff a.pool yesterday --keyspace accounts --json").ok().text();
    let last: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    assert_eq!(last, json!({"keyspace": "accounts", "key": "eve", "before": null, "after": "30"}));
    let history = workspace.run("store history a.pool accounts ann").ok().text();
    let fields: Vec<Vec<&str>> = history.lines().map(|line| line.split("  ").collect()).collect();
    assert_eq!((fields[0][2], fields[1][2]), ("70", "100"));
    assert!(
        fields[0][0].starts_with("20") && fields[0][0].ends_with('Z') && fields[0] > fields[1],
        "{history}"
    );
    assert!(workspace.run("store history a.pool accounts bob").ok().text().contains("(deleted)"));
    let json = workspace.run("store snapshot list a.pool --json").ok().json();
    assert_eq!((&json[0]["name"], &json[0]["number"]), (&"yesterday".into(), &kept["number"]));
    workspace.run("store snapshot keep a.pool again --at yesterday").ok();
    workspace.run("store snapshot keep a.pool again").fails_with("kept under the name \"again\" already");
    workspace.run("store snapshot keep a.pool old --at 7").fails_with("snapshot 7 is not there");
    workspace.run("store snapshot keep a.pool old --at 5m-ago").ends_with(2, "only the current snapshot");
    let none = workspace.run("store get a.pool accounts ann --at monday");
    none.fails_with("no snapshot is kept under the name \"monday\"; `tembo store snapshot list`");
    workspace.run("store get a.pool accounts ann --at 1d-ago").fails_with("does not retain");
    workspace.run("store snapshot delete a.pool yesterday").ok();
    workspace.run("store snapshot delete a.pool yesterday").fails_with("\"yesterday\"");
    workspace.run("check a.pool").ok();
}

#[test]
fn a_backup_and_its_differences_are_restored_whole_or_not_at_all() {
    let workspace = workspace();
    workspace.run("store snapshot keep a.pool monday").ok();
    let whole = workspace.run("store backup a.pool 1.backup --json").ok().json();
    assert_eq!((&whole["changes"], &whole["keyspaces"]), (&3.into(), &2.into()));
    workspace.run("store put a.pool accounts ann 70").ok();
    let difference = workspace.run("store backup a.pool 2.backup --since monday --json").ok().json();
    assert_eq!((&difference["changes"], &difference["since"]), (&1.into(), &whole["snapshot"]));
    workspace.run("store backup a.pool 2.backup").fails_with("2.backup exists already");
    workspace.run("store restore b.pool 1.backup 2.backup --create").ok();
    assert_eq!(workspace.run("store get b.pool accounts ann").ok().text(), "70\n");
    workspace.run("store restore b.pool 1.backup").ends_with(2, "--store");
    workspace.run("store restore b.pool 1.backup --store old").ok();
    assert_eq!(workspace.run("store get b.pool accounts ann --store old").ok().text(), "100\n");
    workspace.run("store get b.pool accounts ann").ends_with(2, "has the stores old, store");
    workspace.run("store restore b.pool 1.backup --store old").fails_with("there is \"old\" already");
    workspace.run("store restore b.pool 2.backup --store c").fails_with("does not follow");
    let cut = bytes(&workspace.path("1.backup"));
    std::fs::write(workspace.path("cut.backup"), &cut[..cut.len() - 1]).unwrap();
    let run = workspace.run("store restore b.pool cut.backup --store c");
    run.fails_with("cut.backup: the backup is damaged or cut off").fails_with("nothing was restored");
    workspace.run("store restore c.pool cut.backup --create").fails_with("cut off");
    assert!(!workspace.path("c.pool").exists());
    workspace.run("store restore c.pool no.backup --create").fails_with("there is no file no.backup");
    let names: Vec<String> = {
        let pool = Options::new().read_only(true).open(workspace.path("b.pool")).unwrap();
        pool.store_names().unwrap()
    };
    assert_eq!(names, ["old", "store"]);
    workspace.run("check b.pool").ok();
}

#[test]
fn other_commands_say_what_they_find_of_stores() {
    let workspace = workspace();
    workspace.run("store snapshot keep a.pool monday").ok();
    let info = workspace.run("info a.pool").ok().text();
    assert!(info.contains("store   store: 2 keyspaces, 1 kept snapshot, last commit 20"), "{info}");
    assert!(info.contains("    keyspace accounts, retains what snapshots need\n"), "{info}");
    let json = workspace.run("info a.pool --json").ok().json();
    assert_eq!(json["stores"][0]["keyspaces"][1]["name"], "pictures");
    let ls = workspace.run("store ls a.pool").ok().text();
    assert!(ls.starts_with("store: 2 keyspaces") && ls.contains("snapshot monday"), "{ls}");
    let json = workspace.run("store ls a.pool --json").ok().json();
    assert_eq!(json[0]["kept"][0]["name"], "monday");
    let check = workspace.run("check a.pool --json").ok().json();
    assert_eq!(check["stores"], json!({"stores": 1, "keyspaces": 2, "keys": 3, "versions": 3}));
    assert_eq!(workspace.run("maps a.pool").ok().text(), "store  store\n");
    assert!(
        workspace.run("dump a.pool").ok().stderr.contains("store is a store, which a dump does not hold")
    );
    workspace.run("store ls a.pool --store other").fails_with("no store \"other\"; there is store");
    Options::new().create(true).open(workspace.path("empty.pool")).unwrap();
    assert_eq!(workspace.run("store ls empty.pool").ok().text(), "no stores\n");
    workspace.run("store get empty.pool a b").fails_with("there is none");
}

#[test]
fn a_store_is_dropped_with_its_space() {
    let workspace = workspace();
    workspace.run("store put a.pool prices lamp 30 --store shop").ok();
    assert_eq!(workspace.run("maps a.pool").ok().text(), "shop   store\nstore  store\n");
    assert_eq!(workspace.run("drop a.pool store").ok().text(), "dropped store\n");
    assert_eq!(workspace.run("maps a.pool").ok().text(), "shop  store\n");
    assert!(!workspace.run("check a.pool").ok().text().contains("dropped"));
    workspace.run("drop a.pool store").fails_with("no map or store \"store\"; there is shop");
    // Gone but not given back, as after a crash.
    let pool = Options::new().open(workspace.path("a.pool")).unwrap();
    assert!(pool.drop_store("shop").unwrap());
    drop(pool);
    assert_eq!(workspace.run("maps a.pool").ok().text(), "");
    assert_eq!(workspace.run("store ls a.pool").ok().text(), "no stores\n");
    assert!(workspace.run("check a.pool").ok().text().contains("dropped  1 stores"));
    assert_eq!(workspace.run("check a.pool --json").ok().json()["dropped_stores"], 1);
    assert!(workspace.run("info a.pool").ok().text().contains("dropped stores"));
    assert_eq!(workspace.run("info a.pool --json").ok().json()["has_dropped_stores"], true);
    assert!(workspace.run("dump a.pool").ok().text().contains("\"maps\":0"));
    // The next drop goes on with it.
    let pool = Options::new().open(workspace.path("a.pool")).unwrap();
    pool.open_map("stock").unwrap();
    drop(pool);
    workspace.run("drop a.pool stock").ok();
    assert!(!workspace.run("check a.pool").ok().text().contains("dropped"));
    assert!(!workspace.run("info a.pool").ok().text().contains("dropped"));
}
