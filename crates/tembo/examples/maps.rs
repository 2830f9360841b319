//! Maps, batches and snapshots in one pool.
//!
//! `cargo run -p tembo --example maps -- data.pool`, and again. `docs/guide/maps.md` explains it step by
//! step.

use std::error::Error;
use tembo::{Durability, Map, MapOptions, Options, Pool};

#[allow(dead_code, reason = "a test runs the example too")]
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: maps PATH")?;
    Ok(run(path.as_ref())?)
}

pub(crate) fn run(path: &std::path::Path) -> Result<(), tembo::Error> {
    let pool = Options::new().create(true).durability(Durability::Auto).open(path)?;
    println!("an acknowledged write survives: {}", pool.survives());

    let planets = pool.open_map("planets")?;
    read_and_write(&planets)?;
    walk(&planets)?;
    change_together(&pool, &planets)?;
    look_back(&pool)
}

fn read_and_write(planets: &Map) -> Result<(), tembo::Error> {
    planets.put("mars", "red")?; // durable from here on
    planets.insert("earth", "blue")?; // only if the key is absent
    planets.compare_and_swap("mars", Some(b"red"), Some(b"rusty"))?;
    planets.modify("mars", |old| old.map(|value| value.to_ascii_uppercase()))?;
    assert_eq!(planets.get("mars")?.as_deref(), Some(b"RUSTY".as_slice()));
    planets.remove("mars")?;
    Ok(())
}

fn walk(planets: &Map) -> Result<(), tembo::Error> {
    for entry in planets.range("e".."n") {
        let entry = entry?;
        println!("{}: {}", entry.key().escape_ascii(), entry.value().escape_ascii());
    }
    let mut cursor = planets.cursor();
    cursor.seek("f")?;
    cursor.prev()?;
    assert_eq!(cursor.key(), Some(&b"earth"[..]));
    Ok(())
}

fn change_together(pool: &Pool, planets: &Map) -> Result<(), tembo::Error> {
    let moons = pool.open_map("moons")?;
    let mut batch = pool.batch()?;
    batch.put(planets, b"neptune", b"blue")?;
    batch.put(&moons, b"triton", b"pink")?;
    let before = batch.savepoint();
    batch.remove(planets, b"earth")?;
    batch.rollback_to(before);
    batch.commit()?; // one fence for all of it
    Ok(())
}

fn look_back(pool: &Pool) -> Result<(), tembo::Error> {
    let log = pool.open_map_with("log", MapOptions::new().versioned(true))?;
    log.put("1", "launched")?;
    let before = log.snapshot()?;
    before.keep("monday")?; // by name, also after the program has ended
    log.put("2", "lost")?;
    for change in before.diff(&log.snapshot()?)? {
        println!("{change:?}");
    }
    log.rollback_to(&before)?; // a new version that equals the old one
    log.drop_snapshot("monday")?;
    Ok(())
}
