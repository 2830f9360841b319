//! Compaction moves records and nodes out of sparse slabs.

use super::{Edit, Op, Trees, audit, key, put, remove, then};
use crate::crashes::{Script, survived};
use tembo_crashsim::{Mutation, Scenario, Simulation, Target};
use tembo_index::Counting;
use tembo_pmem::Region;

/// A tree in which little is left of what was put: whole slabs of records and of leaves.
fn thinned(records: u32) -> Vec<Edit> {
    let mixed = |i: u32| Edit::Put(key(i), vec![i as u8; [10, 40, 90, 300][i as usize / 8 % 4]]);
    let few = |i: &u32| !i.is_multiple_of(9);
    then((0..records).map(mixed).collect(), (0..records).filter(few).map(remove))
}

fn compacted(records: u32, counting: Counting) -> Trees {
    let name = format!("{records} records, of which a ninth is left, are compacted; counts: {counting:?}");
    let ops = vec![Op::Edits(vec![put(3)]), Op::Compact, Op::Edits(vec![put(9), remove(18)])];
    let continuation = vec![Op::Compact, Op::Edits(vec![put(101)])];
    let script = Script { bytes: 1 << 20, ..Script::new(name, ops, continuation) };
    Trees { counting, ..Trees::new(thinned(records), script) }
}

#[test]
fn compaction_survives_crashes() {
    for (records, counting) in
        [(1200, Counting::Nothing), (1500, Counting::Weights), (1300, Counting::Records)]
    {
        let scenario = compacted(records, counting);
        let dry = scenario.setup(Region::simulated(&vec![0; 1 << 20], 1 << 24, None).unwrap()).unwrap();
        let (before, model) = (dry.pool.stats().unused_bytes, scenario.observe(&dry).unwrap());
        assert!(dry.compact().unwrap() > 0);
        let gained = dry.pool.stats().unused_bytes - before;
        assert!(gained >= 16 << 10, "{records}: {gained}");
        assert_eq!(scenario.observe(&dry).unwrap(), model);
        // The next ones move the little that was in slabs from which a lane still allocated. They have an
        // end.
        let is_done = (0..4).any(|_| dry.compact().unwrap() == 0);
        assert!(is_done, "{records}");
        let simulation = Simulation::new(&scenario).limit(6).nested_limit(2).depth(1);
        survived(simulation.audit(audit(true)).run());
    }
}

/// Long separators, and what separators share, lie in blocks of their own, which move with their nodes.
#[test]
fn long_separators_move() {
    let key =
        |i: u32| [&[(i % 5) as u8; 40][..], &(i % 3).to_be_bytes(), &[7; 30], &i.to_be_bytes()].concat();
    let long = |i: u32| Edit::Put(key(i), vec![i as u8; 20]);
    let gone = |i: &u32| !i.is_multiple_of(5) && !i.is_multiple_of(7);
    let start = then((0..4000).map(long).collect(), (0..4000).filter(gone).map(|i| Edit::Remove(key(i))));
    let again = start.iter().filter_map(|edit| match edit {
        Edit::Put(key, _) if key[0] == 2 => Some(Edit::Remove(key.clone())),
        _ => None,
    });
    let start: Vec<Edit> = start.iter().cloned().chain(again).collect();
    let script =
        Script::new("long separators", vec![Op::Compact], vec![Op::Edits(vec![long(9)]), Op::Compact]);
    let scenario = Trees::new(start, Script { bytes: 2 << 20, ..script });
    let dry = scenario.setup(Region::simulated(&vec![0; 2 << 20], 1 << 24, None).unwrap()).unwrap();
    let model = scenario.observe(&dry).unwrap();
    assert!(dry.compact().unwrap() > 0);
    while dry.compact().unwrap() > 0 {}
    // Blocks that the last compaction freed may wait for the next commit, which changes nothing here.
    dry.perform(&Op::Edits(vec![long(5)])).unwrap();
    while dry.compact().unwrap() > 0 {}
    assert!(dry.pool.compaction().unwrap().unwrap().is_empty(), "blocks stay in sparse slabs");
    assert_eq!(scenario.observe(&dry).unwrap(), model);
    survived(Simulation::new(&scenario).limit(4).depth(0).audit(audit(true)).run());
}

/// Mutants of a compaction are caught that lose a copy, or the word that leads to it.
#[test]
fn seeded_bugs_of_compaction_are_caught() {
    let long = |i: u32| Edit::Put(key(i), vec![i as u8; 300]);
    let few = |i: &u32| !i.is_multiple_of(9);
    let start = then((0..200).map(long).collect(), (0..200).filter(few).map(remove));
    let script = Script::new("seeded bugs of compaction", vec![Op::Compact], vec![Op::Edits(vec![put(70)])]);
    let scenario = Trees::new(start, Script { bytes: 256 << 10, ..script });
    let simulation = Simulation::new(&scenario).limit(24).depth(0).continue_ops(1).audit(audit(true));
    simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    let mutants = simulation.mutants(Target::Operations, &Mutation::ALWAYS_HARMFUL);
    let report = mutants.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    report.assert_some_caught(&Mutation::ALWAYS_HARMFUL);
}
