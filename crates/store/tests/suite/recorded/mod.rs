//! Recorded transactions of eight threads, checked against what snapshot isolation and serializability
//! promise: of mixed size, over several keyspaces, with ranges, deletions and writers at old snapshots, and
//! with gets outside transactions, while snapshots are kept, versions collected and blocks moved, through
//! restarts.
//!
//! `checker.rs` says what is checked, and `mutants.rs` shows that each kind of anomaly is noticed; `lists.rs`
//! gives histories to a published checker.
//!
//! `TEMBO_TRANSACTIONS=1000000 cargo test --release -p tembo-store --test suite recorded::campaign` is
//! the long form; `TEMBO_HISTORY_SEED` chooses other transactions. Their interleaving differs from run to
//! run.

#![forbid(unsafe_code)]

mod campaign;
mod checker;
mod gets;
mod lists;
mod model;
mod mutants;
mod record;
mod threads;

use campaign::{Campaign, THREADS};

/// Transactions of a thread in a round, after which they are checked.
const ROUND: usize = 500;

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn campaign_of_transactions_has_no_anomaly() {
    let wanted = env_number("TEMBO_TRANSACTIONS").unwrap_or(30_000);
    let seed = env_number("TEMBO_HISTORY_SEED").unwrap_or(0xEC40);
    println!("TEMBO_HISTORY_SEED={seed}");
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut campaign = Campaign::new(directory.path(), seed);
    while campaign.checker.counts.transactions < wanted {
        campaign.round(ROUND).unwrap_or_else(|anomaly| panic!("{anomaly}"));
    }
    let counts = campaign.checker.counts;
    let Campaign { restarts, compactions, moved_bytes, .. } = campaign;
    println!("{counts:?}, {restarts} restarts, {THREADS} threads");
    println!("{compactions} compactions moved {moved_bytes} bytes");
    // A quarter of them would be too light a load to mean anything.
    assert!(counts.commits > wanted / 3 && counts.conflicts > wanted / 50, "{counts:?}");
    assert!(counts.old_writers > wanted / 50 && counts.serializable > wanted / 10, "{counts:?}");
    assert!(counts.gets > wanted / 100, "{counts:?}");
    // A commit moves nothing, so that this is what the threads have met.
    assert!(compactions > 0 && moved_bytes > wanted, "{compactions} {moved_bytes}");
}
