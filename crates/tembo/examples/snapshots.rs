//! A stock whose every evening is kept: what changed since, a stocktaking that is taken back, and an export
//! beside sales.
//!
//! `cargo run -p tembo --example snapshots -- stock.pool`, and again: the evenings are still there.

use std::error::Error;
use tembo::{Map, MapOptions, Options, Snapshot};

/// Evenings that are kept.
const EVENINGS: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: snapshots PATH")?;
    run(path.as_ref())
}

pub(crate) fn run(path: &std::path::Path) -> Result<(), Box<dyn Error>> {
    let pool = Options::new().create(true).open(path)?;
    let stock = pool.open_map_with("stock", MapOptions::new().versioned(true))?;
    let till = pool.open_map("till")?;
    if stock.is_empty()? {
        for (item, count) in [("apples", 20_u64), ("pears", 12), ("plums", 30)] {
            stock.put(item, count.to_le_bytes())?;
        }
    }

    // A sale changes two maps, of which only one keeps versions: all or nothing, one fence.
    let mut batch = pool.batch()?;
    batch.modify(&stock, b"apples", |left| Some(number(left).saturating_sub(1).to_le_bytes()))?;
    batch.modify(&till, b"sales", |sales| Some((number(sales) + 1).to_le_bytes()))?;
    batch.commit()?;

    // The evening gets a name, by which it is there tomorrow. Old ones go.
    let evening = stock.snapshot()?;
    evening.keep(&format!("sale {}", number(till.get("sales")?.as_deref())))?;
    let kept = stock.snapshots()?;
    for old in &kept[..kept.len().saturating_sub(EVENINGS)] {
        stock.drop_snapshot(&old.name)?;
    }
    while stock.collect(1000)? {}

    // A stocktaking that goes wrong is rolled back, while a reader still holds the evening.
    stock.clear()?;
    stock.put("apples", 1_u64.to_le_bytes())?;
    print_changes(&evening, &stock)?;
    stock.rollback_to(&evening)?;
    assert!(evening.diff(&stock.snapshot()?)?.is_empty());

    for kept in stock.snapshots()? {
        let snapshot = stock.open_snapshot(&kept.name)?;
        let apples = number(snapshot.get("apples")?.as_deref());
        println!("{}: {apples} apples, {} kinds of fruit", kept.name, snapshot.len());
    }
    Ok(())
}

fn print_changes(from: &Snapshot, stock: &Map) -> Result<(), tembo::Error> {
    for change in from.diff(&stock.snapshot()?)? {
        let count = |value: &Option<Vec<u8>>| value.as_deref().map(|bytes| number(Some(bytes)));
        println!(
            "{}: {:?}, {:?} now",
            change.key.escape_ascii(),
            count(&change.before),
            count(&change.after)
        );
    }
    Ok(())
}

fn number(bytes: Option<&[u8]>) -> u64 {
    bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}
