//! Listing and dropping maps, and what every subcommand says of what it does not know.

use crate::raw::RawStore;
use crate::serve::Server;
use crate::support::Workspace;
use tembo::{MapOptions, Options};

fn pool(workspace: &Workspace) -> RawStore {
    RawStore::open(workspace.path("a.pool"), &Options::new().create(true).initial_bytes(4 << 20))
}

/// Gives a block a name, as a later version might.
fn name_a_block(pool: &RawStore, name: &str) {
    let mut lane = pool.raw().lane().unwrap();
    let mut tx = lane.begin();
    let block = tx.alloc_zeroed(100).unwrap();
    tx.set_root(name, u32::from_le_bytes(*b"NEW1"), block).unwrap();
    tx.commit().unwrap();
}

#[test]
fn maps_are_listed_and_dropped() {
    let workspace = Workspace::new();
    let made = pool(&workspace);
    for i in 0..500_u64 {
        made.open_map("stock").unwrap().put(i.to_be_bytes(), "value").unwrap();
    }
    made.open_map_with("log", MapOptions::new().versioned(true)).unwrap().put("a", "b").unwrap();
    made.open_fixed_map("ids").unwrap().put(1, 2).unwrap();
    made.open_hash_table("tags").unwrap().put("a", "b").unwrap();
    drop(made);
    let text = workspace.run("maps a.pool").ok().text();
    assert_eq!(text, "ids    fixed map\nlog    map with versions\nstock  map\ntags   hash table\n");
    let json = workspace.run("maps a.pool --json").ok().json();
    assert_eq!(json[2], serde_json::json!({"name": "stock", "kind": "map"}));
    assert_eq!(workspace.run("drop a.pool stock tags").ok().text(), "dropped stock\ndropped tags\n");
    assert_eq!(workspace.run("maps a.pool").ok().text(), "ids  fixed map\nlog  map with versions\n");
    workspace.run("drop a.pool stock").fails_with("there is no map or store \"stock\"; there is ids, log");
    let json = workspace.run("check a.pool --json").ok().json();
    assert_eq!((&json["maps"], json.get("dropped_maps")), (&2.into(), None));
    assert_eq!(workspace.run("drop a.pool").code, Some(2));
    // Gone but not given back, as after a crash.
    let made = Options::new().open(workspace.path("a.pool")).unwrap();
    made.drop_map("log").unwrap();
    drop(made);
    assert!(workspace.run("check a.pool").ok().text().contains("dropped  1 maps"));
    assert!(workspace.run("info a.pool").ok().text().contains("dropped maps"));
    workspace.run("drop a.pool ids").ok();
    assert!(!workspace.run("check a.pool").ok().text().contains("dropped"));
}

#[test]
fn a_pool_can_have_names_for_more_maps() {
    let workspace = Workspace::new();
    let mut dump = "{\"tembo_dump\":1}\n".to_owned();
    (0..200).for_each(|i| dump.push_str(&format!("{{\"map\":\"map {i}\"}}\n")));
    dump.push_str("{\"end\":{\"maps\":200,\"entries\":0}}\n");
    let refused = workspace.run_with("load a.pool", dump.as_bytes());
    refused.fails_with("names for 128 maps").fails_with("root_count");
    workspace.run_with("load a.pool --root-count 200", dump.as_bytes()).ok();
    assert_eq!(workspace.run("maps a.pool").ok().text().lines().count(), 200);
    assert_eq!(workspace.run("load b.pool --root-count 5000").code, Some(2));
}

/// A pool with a root of a later kind was dumped without it, described without it, and called damaged.
#[test]
fn what_is_unknown_is_named_by_every_command() {
    let workspace = Workspace::new();
    let made = pool(&workspace);
    made.open_map("known").unwrap().put("a", "b").unwrap();
    name_a_block(&made, "future");
    drop(made);
    let said = "is of the kind `NEW1`, which this program does not know; use a newer Tembo";
    let line = format!("\"future\" {said}");
    assert!(workspace.run("info a.pool").ok().text().contains(&line));
    assert_eq!(workspace.run("info a.pool --json").ok().json()["unknown"][0]["name"], "future");
    assert!(workspace.run("maps a.pool").ok().text().contains("future  of the kind `NEW1`"));

    let checked = workspace.run("check a.pool");
    assert_eq!(checked.code, Some(6), "{checked:?}");
    let text = checked.text();
    assert!(text.contains("no damage was found") && text.contains(&line), "{text}");
    assert!(!text.contains("damaged") && !text.contains("leak"), "{text}");
    let json = workspace.run("check a.pool --json").json();
    assert_eq!((&json["ok"], &json["kind"], &json["entries"]), (&false.into(), &"unknown".into(), &1.into()));

    let refused = workspace.run("dump a.pool");
    assert!(refused.stdout.is_empty(), "{refused:?}");
    refused.fails_with(&line).fails_with("--skip-unknown");
    workspace.run("dump a.pool --output a.jsonl").fails_with(&line);
    assert!(!workspace.names().contains(&"a.jsonl".to_owned()));
    let dumped = workspace.run("dump a.pool --skip-unknown").ok();
    assert!(dumped.stderr.contains(&line), "{}", dumped.stderr);
    assert!(dumped.text().contains("{\"left_out\":{\"name\":\"future\",\"what\":\"of the kind `NEW1`"));
    let loaded = workspace.run_with("load b.pool", &dumped.stdout).ok();
    assert!(loaded.stderr.contains("the dump lacks \"future\""), "{}", loaded.stderr);
    assert_eq!(workspace.run("maps b.pool").ok().text(), "known  map\n");
    assert!(workspace.run_with("load a.pool --merge", &dumped.stdout).ok().stderr.contains(&line));

    workspace.run("snapshot keep a.pool future monday").fails_with(&line);
    assert!(workspace.run("snapshot list a.pool").ok().stderr.contains(&line));
    workspace.run("drop a.pool future").fails_with(&line);
    let resumed = workspace.run("bench --seeded --resume --pool a.pool --ops 3 --seed 1");
    assert!(resumed.stderr.contains(&line), "{resumed:?}");
    let server = Server::start(&workspace, "--pool a.pool");
    server.ask("PING", "+PONG\r\n");
    assert!(server.stop().contains(&line));
    // A database that cannot be read is not an empty one.
    name_a_block(&RawStore::open(workspace.path("a.pool"), &Options::new()), "db3");
    workspace.run("serve --listen 127.0.0.1:0 --pool a.pool").fails_with(&format!("\"db3\" {said}"));
}
