//! Power failures of a heap on a disk with a journal: the same operations on the graph, with nodes and arrays
//! that several places share, weak pointers, aborted transactions, and deaths in parts.
//!
//! `CRASHSIM_IMAGES=200000 cargo test --release -p tembo-heap --test suite crash::power` is the long form.

use super::{Tested, random, turn};
use tembo_crashsim::{PowerFailures, PowerReport, PowerRound, notice_flaws, power_campaign};
use tembo_heap::NamedBrand;

/// Operations before the first image, and among images.
const OPS: [usize; 2] = [12, 48];

fn fails<B: NamedBrand>(round: PowerRound) -> Result<PowerReport, String> {
    PowerFailures::new(&random::<B>(round.seed, OPS), round).bytes(1 << 20).run()
}

#[test]
fn a_power_failure_leaves_the_heap_after_a_transaction_and_keeps_what_was_promised() {
    let _turn = turn();
    let report = power_campaign(400, fails::<Tested>);
    println!("{}", report.unwrap_or_else(|failure| panic!("{failure}")));
}

/// Each rule of the journal is needed by a heap.
#[test]
fn histories_that_break_a_rule_are_noticed() {
    let _turn = turn();
    notice_flaws(30, fails::<Tested>).unwrap_or_else(|flaws| panic!("not noticed: {flaws:?}"));
}
