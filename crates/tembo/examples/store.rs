//! The store: transactions, conflicts, history, typed keys, bulk loads and backups.
//!
//! `cargo run -p tembo --example store -- data.pool`, and again: `docs/guide/store.md` explains each part.

use std::error::Error;
use std::ops::Bound;
use std::path::Path;
use std::time::{Duration, SystemTime};
use tembo::store::{Retention, Store, TypedKeyspace};
use tembo::{Options, Pool};

#[allow(dead_code, reason = "a test runs the example too")]
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: store PATH")?;
    run(path.as_ref())
}

pub(crate) fn run(path: &Path) -> Result<(), Box<dyn Error>> {
    let pool = Options::new().create(true).open(path)?;
    let shop = pool.open_store("shop")?;
    transactions(&shop)?;
    conflicts(&shop)?;
    history(&shop)?;
    typed(&shop)?;
    copies(&pool, &shop)
}

fn transactions(shop: &Store) -> Result<(), Box<dyn Error>> {
    let stock = shop.keyspace("stock")?;
    let orders = shop.keyspace("orders")?;
    let mut tx = shop.begin();
    tx.put(&stock, "lamp", "2")?;
    tx.put(&orders, "ann", "a lamp")?;
    assert_eq!(tx.get(&stock, "lamp")?.as_deref(), Some(&b"2"[..])); // it sees what it wrote
    assert!(shop.keyspaces()?.contains(&"stock".to_owned()));
    let number = tx.commit()?; // durable, and visible to others, from here on
    assert!(shop.snapshot().number() >= number);

    let (left, _) = shop.transact(|tx| {
        tx.delete_range(&orders, "a".."c")?;
        tx.insert(&stock, "chair", "4")?; // unless there is one
        Ok(tx.range::<&str>(&stock, ..)?.count())
    })?;
    assert!(left >= 2);

    let mut tx = shop.begin();
    tx.put(&orders, "bob", "a chair")?;
    let before = tx.savepoint();
    tx.put(&orders, "bob", "a throne")?;
    tx.rollback_to(before);
    let commit = tx.commit_async(); // shares its fence with others that are asked for
    commit.wait()?;
    Ok(())
}

fn conflicts(shop: &Store) -> Result<(), Box<dyn Error>> {
    let stock = shop.keyspace("stock")?;
    let (mut ann, mut bob) = (shop.begin(), shop.begin());
    ann.put(&stock, "lamp", "1")?;
    bob.put(&stock, "lamp", "0")?;
    ann.commit()?;
    let error = bob.commit().unwrap_err();
    assert!(error.is_conflict());
    println!("{error}");

    let mut tx = shop.begin_serializable();
    let lamps = tx.get(&stock, "lamp")?;
    tx.put(&stock, "lamps sold", lamps.unwrap_or_default())?;
    tx.commit()?; // refused if anybody has written what it read, or a key in a range that it walked over
    Ok(())
}

fn history(shop: &Store) -> Result<(), Box<dyn Error>> {
    let prices = shop.keyspace_with("prices", Retention::For(Duration::from_secs(30 * 86_400)))?;
    let opening = shop.put(&prices, "lamp", "30")?;
    shop.put(&prices, "lamp", "35")?;
    if shop.at_name("opening").is_err() {
        shop.keep(shop.snapshot().number(), "opening")?; // until it is deleted
    }
    let then = shop.at(opening)?; // within 30 days, in this keyspace
    assert_eq!(then.get(&prices, "lamp")?.as_deref(), Some(&b"30"[..]));
    let now = shop.at_time(SystemTime::now())?;
    assert_eq!(now.get(&prices, "lamp")?.as_deref(), Some(&b"35"[..]));
    for version in shop.versions(&prices, "lamp")? {
        println!("{}: {:?}", version.number, version.value);
    }
    let mut late = shop.begin_at(&then)?; // conflicts with all that was written since
    late.put(&prices, "lamp", "31")?;
    assert!(late.commit().is_err_and(|e| e.is_conflict()));
    Ok(())
}

fn typed(shop: &Store) -> Result<(), Box<dyn Error>> {
    let sales = TypedKeyspace::<(String, i64), u32>::new(shop.keyspace("sales")?);
    shop.transact(|tx| {
        sales.put(tx, &("lamp".to_owned(), 20_260_102), &3)?;
        sales.put(tx, &("lamp".to_owned(), 20_260_101), &1)
    })?;
    let snapshot = shop.snapshot();
    let days = sales.prefix(&snapshot, &("lamp",))?; // in the order of the days
    let total = days.map(|sale| sale.map(|(_, count)| count)).sum::<Result<u32, _>>()?;
    assert_eq!(total, 4);

    let numbers = shop.keyspace("numbers")?;
    shop.bulk_load(&numbers, (0..10_000_u32).map(|n| (n.to_be_bytes(), "many keys with each commit")))?;
    let from = (Bound::Excluded(9_997_u32.to_be_bytes()), Bound::Unbounded);
    assert_eq!(shop.snapshot().range(&numbers, from)?.rev().count(), 2);
    Ok(())
}

fn copies(pool: &Pool, shop: &Store) -> Result<(), Box<dyn Error>> {
    let monday = shop.snapshot();
    let mut whole = Vec::new(); // or a file, or a connection
    monday.backup(&mut whole)?;
    shop.put(&shop.keyspace("stock")?, "table", "1")?;
    let mut difference = Vec::new();
    shop.snapshot().backup_since(&monday, &mut difference)?;
    println!("{} bytes, and {} more", whole.len(), difference.len());

    let name = format!("copy {}", monday.number());
    let copy = pool.restore_store(&name, [&whole[..], &difference[..]])?; // whole, or not there
    assert_eq!(copy.get(&copy.keyspace("stock")?, "table")?.as_deref(), Some(&b"1"[..]));
    Ok(())
}
