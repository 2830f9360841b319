//! `info` and `check`.

use crate::support::{Workspace, bytes};

#[test]
fn info_describes_a_pool_for_people_and_programs() {
    let workspace = Workspace::new();
    workspace.pool("a.pool", 50);
    let text = workspace.run("info a.pool").ok().text();
    assert!(text.contains("2.00 MiB") && text.contains("seeded.data"), "{text}");
    let json = workspace.run("info a.pool --json").ok().json();
    assert_eq!(json["pool_bytes"], 2 << 20);
    assert_eq!(json["maps"][1]["name"], "seeded.position");
    assert_eq!(json["maps"][1]["entries"], 2);
    assert_eq!(json["uuid"].as_str().map(str::len), Some(36));
}

#[test]
fn tools_that_read_leave_every_byte_alone() {
    let workspace = Workspace::new();
    workspace.pool("a.pool", 100);
    let path = workspace.path("a.pool");
    let (before, modified) = (bytes(&path), path.metadata().unwrap().modified().unwrap());
    for call in ["info a.pool", "check a.pool --expect-seeded 100 --seed 7", "dump a.pool"] {
        workspace.run(call).ok();
    }
    assert!(bytes(&path) == before && path.metadata().unwrap().modified().unwrap() == modified);
    assert_eq!(workspace.names(), ["a.pool"]);
}

#[test]
fn check_says_what_it_saw() {
    let workspace = Workspace::new();
    workspace.pool("a.pool", 100);
    assert!(workspace.run("check a.pool").ok().text().starts_with("a.pool: undamaged\n"));
    let json = workspace.run("check a.pool --json --expect-seeded 99 --seed 7").ok().json();
    assert_eq!(
        (&json["ok"], &json["maps"], &json["seeded_operations"]),
        (&true.into(), &2.into(), &100.into())
    );
}

#[test]
fn check_finds_damage_and_leaves_it_as_it_is() {
    let workspace = Workspace::new();
    workspace.pool("a.pool", 300);
    let sound = bytes(&workspace.path("a.pool"));
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, i32, Damage); 4] = [
        ("empty", 3, |image| image.clear()),
        ("cut", 1, |image| image.truncate(image.len() / 2)),
        ("magic", 3, |image| image[0] ^= 1),
        ("header", 1, |image| image[50] ^= 0x40),
    ];
    for (name, code, damage) in damages {
        let mut image = sound.clone();
        damage(&mut image);
        std::fs::write(workspace.path(name), &image).unwrap();
        let run = workspace.run(&format!("check {name} --json"));
        assert_eq!(run.code, Some(code), "{name}: {run:?}");
        assert!(run.json()["error"].as_str().is_some_and(|e| e.len() > 20), "{name}: {run:?}");
        assert_eq!(bytes(&workspace.path(name)), image, "{name}");
    }
}

#[test]
fn check_refuses_what_was_never_acknowledged_and_misses_what_was() {
    let workspace = Workspace::new();
    workspace.pool("a.pool", 100);
    workspace.run("check a.pool --expect-seeded 101 --seed 7").fails_with("lost acknowledged operations");
    workspace.run("check a.pool --expect-seeded 98 --seed 7").fails_with("nobody asked for");
    workspace.run("check a.pool --expect-seeded 100 --seed 8").fails_with("seed 7");
    workspace.run("check none.pool --expect-seeded 0").ok();
    workspace.run("check none.pool --expect-seeded 1").ends_with(3, "none.pool");
}

#[test]
fn the_map_is_measured_beside_the_standard_one() {
    let workspace = Workspace::new();
    let json = workspace.run("bench --entries 2000 --rounds 1 --dir . --json").ok().json();
    assert_eq!(json["subjects"], serde_json::json!(["BTreeMap", "page-cache", "emulated"]));
    assert_eq!(json["phases"].as_array().map(Vec::len), Some(6));
    assert!(json["phases"][0]["ratio"][1].as_f64().is_some_and(|ratio| ratio > 0.0));
    let fences = json["counts"][0]["fences"].as_f64().unwrap();
    assert!((1.0..=2.1).contains(&fences), "{fences} fences per insert");
    assert_eq!(workspace.names(), [""; 0]);
}
