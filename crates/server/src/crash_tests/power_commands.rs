//! Power failures of the server's keyspace on a disk with a journal: the scenes of the simulator of lines,
//! for commands of every type, EXECs, scripts, deadlines, and all that a replica, a master and a node of a
//! cluster keep.
//!
//! `CRASHSIM_IMAGES=100000 cargo test --release -p tembo-server --lib power_commands` is the long form.

use tembo_crashsim::{PowerFailures, PowerReport, PowerRound, Scenario, notice_flaws, power_campaign};

use super::commands::Command;
use super::faults::Fault;
use super::{
    Op, Script, cluster, kept, large, master, moves, random_operations, replica, run,
    tokens_cursors_and_places,
};
use crate::keyspace::collection::broken::Broken;
use crate::random::Random;

/// Operations before the first image, and among images.
const OPS: [usize; 2] = [16, 40];
const BYTES: u64 = 1 << 20;

fn random_fails(round: PowerRound) -> Result<PowerReport, String> {
    let script = random_operations(round.seed, Random::seeded(round.seed), OPS);
    PowerFailures::new(&script, round).bytes(BYTES).run()
}

fn survived(outcome: Result<PowerReport, String>) {
    println!("{}", outcome.unwrap_or_else(|failure| panic!("{failure}")));
}

#[test]
fn a_power_failure_leaves_the_keyspace_after_a_command_and_keeps_what_was_promised() {
    survived(power_campaign(400, random_fails));
}

/// Each rule of the journal is needed by the keyspace.
#[test]
fn histories_that_break_a_rule_are_noticed() {
    notice_flaws(30, random_fails).unwrap_or_else(|flaws| panic!("not noticed: {flaws:?}"));
}

fn scene_survives(scene: impl Scenario) {
    survived(power_campaign(60, |round| PowerFailures::new(&scene, round).bytes(BYTES).run()));
}

#[test]
fn a_power_failure_leaves_every_scene_after_an_operation() {
    scene_survives(large());
    scene_survives(tokens_cursors_and_places());
    scene_survives(replica::scene());
    scene_survives(master::scene());
    scene_survives(cluster::scene());
    scene_survives(moves::scene());
    scene_survives(kept::scene());
}

/// A command that is done in two commits is found between them.
#[test]
fn each_broken_promise_is_noticed() {
    let round = PowerRound { seed: 1, images: 150, interval: None, flaw: None };
    for fault in Broken::ALL.map(Fault) {
        let continuation = vec![run(Command::Set("t0".to_owned(), "after".to_owned())), Op::ReclaimAll];
        let script = |op| Script::new(format!("{fault:?}"), [fault.start(), vec![op], continuation.clone()]);
        let sound = script(match fault.commands()[..] {
            [Command::Scan(count)] => Op::Scan(count),
            _ => Op::Run(fault.commands()),
        });
        survived(PowerFailures::new(&sound, round).bytes(BYTES).run());
        let broken = script(Op::Broken(fault));
        let noticed = PowerFailures::new(&broken, round).bytes(BYTES).run();
        println!("{}", noticed.expect_err("a broken promise is not noticed"));
    }
}
