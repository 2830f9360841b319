//! Seeded bugs of insertions and removals are caught.

use super::{Edit, Op, Trees, audit, key, put, remove};
use crate::crashes::Script;
use tembo_crashsim::{Mutation, Scenario, Simulation, Target};
use tembo_pmem::{LINE_BYTES, Region};
use tembo_pool::Geometry;

#[test]
fn seeded_bugs_are_caught() {
    let ops = vec![
        Op::Edits(vec![put(50)]),
        Op::Edits(vec![put(13), Edit::Put(key(2), vec![1; 40])]),
        Op::Edits(vec![put(14), put(60)]),
        Op::Edits(vec![remove(5)]),
        // These fill the halves of the lane until the records above are dead.
        Op::Edits(vec![put(15)]),
        Op::Edits(vec![put(61)]),
        Op::Edits(vec![put(62)]),
        Op::Edits(vec![put(63)]),
        Op::Edits(vec![put(64)]),
    ];
    let script = Script::new("seeded bugs", ops, vec![Op::Edits(vec![put(70)])]);
    let scenario = Trees::new((0..27).map(put), Script { bytes: 128 << 10, ..script });
    let simulation = Simulation::new(&scenario).limit(48).depth(0).continue_ops(1).audit(audit(false));
    simulation.run().unwrap_or_else(|failure| panic!("{failure}"));
    let classes: Vec<Mutation> = Mutation::ALWAYS_HARMFUL.into_iter().chain([Mutation::HoistStore]).collect();
    let mutants = simulation.mutants(Target::Operations, &classes);
    let report = mutants.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    report.assert_some_caught(&[Mutation::HoistStore]);
    let region = Region::simulated(&vec![0; 128 << 10], 128 << 10, None).unwrap();
    let header = scenario.setup(region).unwrap().pool.root("tree").unwrap().unwrap().off;
    let length_flush = format!("flush of line {:#x} ", header / LINE_BYTES + 1);
    let geometry = Geometry::tiny();
    let lanes_end = 4096 + 64 * geometry.root_count + geometry.lane_count * geometry.lane_bytes;
    let zone = lanes_end.next_multiple_of(geometry.chunk_bytes);
    let frontier_flush = format!("flush of line {:#x} ", zone / 64);
    report.assert_all_caught_but(&Mutation::ALWAYS_HARMFUL, |survivor| {
        let what = &survivor.what;
        if what.contains(&length_flush) {
            return Some("every insertion stores the map's length, so that the live records have it");
        }
        let before_a_slab = ["operation 1 of 9", "operation 3 of 9"].iter().any(|op| what.contains(op));
        if before_a_slab && what.contains(&frontier_flush) {
            return Some("the second and the third operation make slabs, so that the live records have the frontier");
        }
        // Lines of the header page, the roots and the lanes, records among them, must not be excused.
        if (0..lanes_end / 64).any(|line| what.contains(&format!("flush of line {line:#x} "))) {
            return None;
        }
        if survivor.mutation == Mutation::DelayFlush && what.contains("operation 3 of 9") {
            return Some("the next record's fence still comes before the records of the other half are dead");
        }
        // The records of this one and the next are those that live at the end.
        let into_one_leaf = what.contains("operation 8 of 9");
        (into_one_leaf && what.contains("flush of line"))
            .then_some("every insertion into a leaf stores its state and fingerprints, so that the live records have them")
    });
}
