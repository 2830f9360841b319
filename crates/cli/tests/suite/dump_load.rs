//! Dumps and what is made of them.

use crate::support::{Workspace, bytes};

const DUMP: &[u8] = b"{\"tembo_dump\":1}\n{\"map\":\"m\"}\n{\"key\":\"a\",\"value\":\"1\"}\n\
                      {\"key\":{\"base64\":\"AP8=\"},\"value\":\"2\"}\n{\"end\":{\"maps\":1,\"entries\":2}}\n";

#[test]
fn a_dump_loaded_into_a_new_pool_dumps_the_same() {
    let workspace = Workspace::new();
    workspace.pool("a.pool", 400);
    let dump = workspace.run("dump a.pool").ok();
    workspace.run_with("load b.pool", &dump.stdout).ok();
    workspace.run("check b.pool --expect-seeded 400 --seed 7").ok();
    assert_eq!(workspace.run("dump b.pool").ok().stdout, dump.stdout);
}

#[test]
fn files_can_be_named_instead_of_standard_input_and_output() {
    let workspace = Workspace::new();
    workspace.pool("a.pool", 20);
    workspace.run("dump a.pool --output a.jsonl").ok();
    assert_eq!(bytes(&workspace.path("a.jsonl")), workspace.run("dump a.pool").ok().stdout);
    workspace.run("load b.pool --input a.jsonl").ok();
    workspace.run("check b.pool --expect-seeded 20 --seed 7").ok();
    workspace.run("dump b.pool --output a.jsonl").fails_with("a.jsonl");
    assert_eq!(bytes(&workspace.path("a.jsonl")), workspace.run("dump a.pool").ok().stdout);
}

#[test]
fn a_bad_dump_leaves_no_pool_behind() {
    let workspace = Workspace::new();
    let damaged = DUMP.iter().map(|b| if *b == b'}' { b')' } else { *b }).collect::<Vec<u8>>();
    for (dump, message) in [(&DUMP[..DUMP.len() / 2], "dump"), (&damaged, "not a dump"), (b"", "not a dump")]
    {
        workspace.run_with("load a.pool", dump).fails_with(message);
        assert_eq!(workspace.names(), [""; 0]);
    }
}

#[test]
fn an_existing_pool_is_only_changed_when_merging_is_asked_for() {
    let workspace = Workspace::new();
    workspace.run_with("load a.pool", DUMP).ok();
    let before = bytes(&workspace.path("a.pool"));
    workspace.run_with("load a.pool", DUMP).fails_with("--merge");
    assert_eq!(bytes(&workspace.path("a.pool")), before);

    let more = "{\"tembo_dump\":1}\n{\"map\":\"m\"}\n{\"key\":\"a\",\"value\":\"new\"}\n{\"map\":\"n\"}\n\
                {\"key\":\"b\",\"value\":\"\"}\n{\"end\":{\"maps\":2,\"entries\":2}}\n";
    workspace.run_with("load a.pool --merge", more.as_bytes()).ok();
    let dump = workspace.run("dump a.pool").ok().text();
    let lines: Vec<&str> = dump.lines().collect();
    assert_eq!(
        lines[1..6],
        [
            "{\"map\":\"m\"}",
            "{\"key\":{\"base64\":\"AP8=\"},\"value\":\"2\"}",
            "{\"key\":\"a\",\"value\":\"new\"}",
            "{\"map\":\"n\"}",
            "{\"key\":\"b\",\"value\":\"\"}",
        ]
    );
    workspace.run("check a.pool").ok();
}

#[test]
fn large_and_empty_values_survive_the_way_through_text() {
    let workspace = Workspace::new();
    let large = "x".repeat(3 << 20);
    let dump = format!(
        "{{\"tembo_dump\":1}}\n{{\"map\":\"m\"}}\n{{\"key\":\"\",\"value\":\"{large}\"}}\n{{\"key\":\"b\",\"value\":\"\"}}\n\
         {{\"end\":{{\"maps\":1,\"entries\":2}}}}\n"
    );
    workspace.run_with("load a.pool", dump.as_bytes()).ok();
    let lines = workspace.run("dump a.pool").ok().text();
    assert!(lines.lines().eq(dump.lines().take(4).chain(lines.lines().last())));
}

#[test]
fn maps_of_8_byte_keys_come_back_and_are_told_apart() {
    let workspace = Workspace::new();
    let dump = "{\"tembo_dump\":1}\n{\"fixed_map\":\"ids\"}\n{\"key\":\"0\",\"value\":\"18446744073709551615\"}\n\
                {\"key\":\"12\",\"value\":\"0\"}\n{\"key\":\"18446744073709551615\",\"value\":\"7\"}\n\
                {\"map\":\"strings\"}\n{\"key\":\"12\",\"value\":\"0\"}\n{\"end\":{\"maps\":2,\"entries\":4}}\n";
    workspace.run_with("load a.pool", dump.as_bytes()).ok();
    let again = workspace.run("dump a.pool").ok();
    assert!(again.text().lines().take(7).eq(dump.lines().take(7)), "{again:?}");
    workspace.run_with("load b.pool", &again.stdout).ok();
    assert_eq!(workspace.run("dump b.pool").ok().stdout, again.stdout);

    let seen = workspace.run("check b.pool --json").ok().json();
    assert_eq!((&seen["maps"], &seen["entries"]), (&2.into(), &4.into()));
    let maps = workspace.run("info b.pool --json").ok().json()["maps"].clone();
    assert_eq!(maps[0], serde_json::json!({"name": "ids", "kind": "fixed"}));
    assert_eq!(maps[1], serde_json::json!({"name": "strings", "kind": "bytes", "entries": 1}));
    assert!(workspace.run("info b.pool").ok().text().contains("ids      8-byte keys and values"));

    let other_kind = dump.replace("\"map\"", "\"fixed_map\"");
    workspace.run_with("load b.pool --merge", other_kind.as_bytes()).fails_with("strings");
    workspace.run_with("load b.pool --merge", dump.as_bytes()).ok();
    workspace.run("check b.pool").ok();
}
