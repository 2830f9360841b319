//! Power failures of collections on a disk with a journal: the same changes of vectors, texts and maps, in
//! two sessions.
//!
//! `CRASHSIM_IMAGES=200000 cargo test --release -p tembo-heap --test suite crash_collections::power` is the
//! long form.

use super::{random, turn};
use tembo_crashsim::{PowerFailures, PowerReport, PowerRound, notice_flaws, power_campaign};

/// Changes before the first image, and among images.
const OPS: [usize; 2] = [16, 48];

fn fails(round: PowerRound) -> Result<PowerReport, String> {
    PowerFailures::new(&random(round.seed, OPS), round).bytes(1 << 20).run()
}

#[test]
fn a_power_failure_leaves_collections_after_a_transaction_and_keeps_what_was_promised() {
    let _turn = turn();
    let report = power_campaign(250, fails);
    println!("{}", report.unwrap_or_else(|failure| panic!("{failure}")));
}

/// Each rule of the journal is needed by collections.
#[test]
fn histories_that_break_a_rule_are_noticed() {
    let _turn = turn();
    notice_flaws(30, fails).unwrap_or_else(|flaws| panic!("not noticed: {flaws:?}"));
}
