//! Histories of transactions, and whether each of them, those that were aborted included, saw one state of
//! the registers, in an order that agrees with the time of day.
//!
//! Every write makes a version of its own, and whoever writes has read what it replaces. So the versions of a
//! register are a chain, and transactions are nodes of a graph: from the writer of a version to its readers
//! and to the writer of the next, from a reader to the writer of the next, and from who ended to who began
//! later. An order exists if the graph has no circle. One that was aborted has only its reads in it.

use std::collections::HashMap;

/// A version: unique among all writes, 0 before the first.
pub(crate) type Version = u64;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// Times at which it began and ended, of a clock that all threads share.
    pub begin: u64,
    pub end: u64,
    pub is_committed: bool,
    /// Registers and the versions that were seen there; not what it had written itself.
    pub reads: Vec<(usize, Version)>,
    pub writes: Vec<(usize, Version)>,
}

/// Says why no order explains the history.
pub(crate) fn judge(history: &[Attempt]) -> Result<(), String> {
    let mut writer: HashMap<(usize, Version), usize> = HashMap::new();
    let mut next: HashMap<(usize, Version), usize> = HashMap::new();
    for (number, attempt) in history.iter().enumerate().filter(|(_, attempt)| attempt.is_committed) {
        for (register, version) in &attempt.writes {
            if writer.insert((*register, *version), number).is_some() {
                return Err(format!("version {version} of register {register} was written twice"));
            }
            let read = attempt.reads.iter().find(|(read, _)| read == register);
            let Some((_, old)) = read else { return Err(format!("attempt {number} wrote blindly")) };
            if let Some(other) = next.insert((*register, *old), number) {
                return Err(format!(
                    "a lost update: attempts {other} and {number} both replaced version {old} of register {register}"
                ));
            }
        }
    }
    // Attempts, then points of time: the first is before whatever began at it or later.
    let mut times: Vec<u64> = history.iter().flat_map(|attempt| [attempt.begin, attempt.end]).collect();
    times.sort_unstable();
    times.dedup();
    let point = |time: u64| history.len() + times.binary_search(&time).expect("a time of the history");
    let mut edges: Vec<Vec<usize>> = vec![Vec::new(); history.len() + times.len()];
    for at in history.len()..edges.len() - 1 {
        edges[at].push(at + 1);
    }
    for (number, attempt) in history.iter().enumerate() {
        edges[point(attempt.begin)].push(number);
        if attempt.end > attempt.begin {
            edges[number].push(point(attempt.end));
        }
        for (register, version) in &attempt.reads {
            let key = (*register, *version);
            match writer.get(&key) {
                Some(writer) if *writer != number => edges[*writer].push(number),
                Some(_) => {}
                None if *version == 0 => {}
                None => {
                    return Err(format!(
                        "a dirty read: attempt {number} saw version {version} of register {register}, which nobody committed"
                    ));
                }
            }
            if let Some(next) = next.get(&key)
                && *next != number
            {
                edges[number].push(*next);
            }
        }
    }
    match circle(&edges) {
        None => Ok(()),
        Some(circle) => {
            let attempts = circle.iter().filter(|at| **at < history.len());
            let shown: Vec<String> = attempts.map(|at| format!("{at}: {:?}", history[*at])).collect();
            Err(format!("no order explains these:\n{}", shown.join("\n")))
        }
    }
}

/// A circle of the graph.
fn circle(edges: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut counts = vec![0_usize; edges.len()];
    edges.iter().flatten().for_each(|to| counts[*to] += 1);
    let mut free: Vec<usize> = (0..edges.len()).filter(|at| counts[*at] == 0).collect();
    while let Some(at) = free.pop() {
        for to in &edges[at] {
            counts[*to] -= 1;
            if counts[*to] == 0 {
                free.push(*to);
            }
        }
    }
    // Each transaction left has a predecessor that is left.
    let start = (0..edges.len()).find(|at| counts[*at] > 0)?;
    let mut before = vec![usize::MAX; edges.len()];
    for (at, targets) in edges.iter().enumerate().filter(|(at, _)| counts[*at] > 0) {
        targets.iter().filter(|to| counts[**to] > 0).for_each(|to| before[*to] = at);
    }
    let mut seen = vec![false; edges.len()];
    let mut at = start;
    while !std::mem::replace(&mut seen[at], true) {
        at = before[at];
    }
    let mut circle = vec![at];
    let mut back = before[at];
    while back != at {
        circle.push(back);
        back = before[back];
    }
    circle.reverse();
    Some(circle)
}
