//! Readers beside a writer: everything that they saw is durable.

use super::{Edit, Op, State, Trees, audit, key, put};
use crate::crashes::{Script, survived, text};
use tembo_crashsim::{SharedScenario, Simulation};

/// A writer puts numbered values; a reader beside it says which of them it saw, and those must be durable.
impl SharedScenario for Trees {
    fn thread_of(&self, op: &Op) -> usize {
        usize::from(matches!(op, Op::Get(_)))
    }

    fn apply_shared(&self, state: &State, op: &Op) -> Result<Vec<usize>, String> {
        let Op::Get(key) = op else {
            return state.perform(op).map(|()| Vec::new());
        };
        let pin = state.pool.pin();
        let seen = state.tree.get(&pin, key).map_err(text)?;
        let walked = state.tree.range::<&[u8]>(key.as_slice()..).next().transpose().map_err(text)?;
        let found = seen.or(walked.as_ref().filter(|e| e.key() == key).map(|e| e.value()));
        // The value is the number of the operation, from 1; the start has 0.
        Ok(found.and_then(|value| usize::from(value[0]).checked_sub(1)).into_iter().collect())
    }
}

#[test]
fn what_a_reader_saw_survives_crashes() {
    let numbered = |i: u32, number: usize| Edit::Put(key(i), vec![number as u8]);
    for seed in 0..12 {
        // The tree has one full leaf, so that the third operation divides it.
        let mut ops = Vec::new();
        for i in [3, 5, 28, 3, 60] {
            ops.push(Op::Edits(vec![numbered(i, ops.len() + 1)]));
            ops.push(Op::Get(key(i)));
            ops.push(Op::Get(key(i)));
        }
        let name = format!("a writer and a reader, seed {seed}");
        let script = Script::new(name, ops, vec![Op::Edits(vec![put(70)])]);
        let start = (0..28).map(|i| numbered(i, 0));
        let scenario = Trees::new(start, Script { bytes: 128 << 10, ..script });
        survived(Simulation::new(&scenario).limit(32).depth(1).audit(audit(true)).seed(seed).run_shared());
    }
}
