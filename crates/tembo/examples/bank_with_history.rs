//! A bank whose past can be read: transfers from several threads, a conflict, and the balances of yesterday.
//!
//! `cargo run --example bank_with_history`, or with the path of a pool after `--`, which is there for the
//! next run.

use std::error::Error;
use std::path::Path;
use tembo::Options;
use tembo::store::{self, Keyspace, Retention, Transaction};

#[allow(dead_code, reason = "a test runs the example too")]
fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = std::env::args_os().nth(1).map_or_else(|| directory.path().join("bank.pool"), Into::into);
    run(&path)
}

pub(crate) fn run(path: &Path) -> Result<(), Box<dyn Error>> {
    let pool = Options::new().create(true).open(path)?;
    let bank = pool.open_store("bank")?;
    let accounts = bank.keyspace_with("accounts", Retention::Versions(10))?;
    let (_, opening) = bank.transact(|tx| {
        for (name, cents) in [("ann", 1000_u64), ("bob", 200), ("eve", 0)] {
            tx.insert(&accounts, name, cents.to_be_bytes())?; // unless an earlier run did
        }
        Ok(())
    })?;
    // The snapshot is kept under a name, also after the program has ended.
    if bank.kept()?.iter().all(|kept| kept.name.as_deref() != Some("yesterday")) {
        bank.keep(opening, "yesterday")?;
    }

    // Threads that get into each other's way run their transactions again. No money is lost.
    std::thread::scope(|scope| {
        for (from, to) in [("ann", "bob"), ("bob", "eve"), ("eve", "ann")] {
            let (bank, accounts) = (&bank, &accounts);
            scope.spawn(move || (0..50).try_for_each(|_| pay(bank, accounts, from, to)));
        }
    });

    // Two transactions read the same balance and write it: the first to commit wins.
    let (mut first, mut second) = (bank.begin(), bank.begin());
    transfer(&mut first, &accounts, "ann", "bob", 1)?;
    transfer(&mut second, &accounts, "ann", "eve", 1)?;
    first.commit()?;
    let conflict = second.commit().expect_err("both wrote the account of ann");
    println!("{}: {conflict}", conflict.is_conflict());

    let (today, yesterday) = (bank.snapshot(), bank.at_name("yesterday")?);
    let mut total = 0;
    for entry in today.iter(&accounts)? {
        let (name, now) = entry?;
        let before = cents(yesterday.get(&accounts, &name)?.as_deref());
        println!("{} has {} and had {before} yesterday", name.escape_ascii(), cents(Some(&now)));
        total += cents(Some(&now));
    }
    assert_eq!(total, 1200);
    println!("the last balances of ann: {}", bank.versions(&accounts, "ann")?.len());
    Ok(())
}

fn pay(bank: &store::Store, accounts: &Keyspace, from: &str, to: &str) -> store::Result<()> {
    bank.transact(|tx| transfer(tx, accounts, from, to, 7)).map(drop)
}

/// Moves money, if there is enough. Both balances change, or neither.
fn transfer(tx: &mut Transaction, accounts: &Keyspace, from: &str, to: &str, sum: u64) -> store::Result<()> {
    let (paying, paid) = (cents(tx.get(accounts, from)?.as_deref()), cents(tx.get(accounts, to)?.as_deref()));
    let Some(left) = paying.checked_sub(sum) else { return Ok(()) };
    tx.put(accounts, from, left.to_be_bytes())?;
    tx.put(accounts, to, (paid + sum).to_be_bytes())
}

fn cents(value: Option<&[u8]>) -> u64 {
    value.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes)
}
