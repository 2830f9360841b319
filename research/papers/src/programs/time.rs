//! How many operations a second a program does, with threads.

use super::{Fault, Program, Random};
use rand::SeedableRng;
use std::sync::Barrier;
use std::time::Instant;
use tembo_goals::stats::median;

/// How long a program is run.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Operations of each thread in a round.
    pub operations: usize,
    /// Rounds, of which the median counts.
    pub rounds: usize,
    /// Seed of operations.
    pub seed: u64,
}

/// Operations in a second.
pub type Rate = f64;

/// Runs a program with so many threads at once, each of which does the operations of the load in each round;
/// one round more goes before, which does not count. Wall time, from when all have begun until all have
/// ended.
///
/// # Errors
///
/// The program's.
pub fn rate(program: &dyn Program, threads: usize, load: &Load) -> Result<Rate, Fault> {
    let mut randoms: Vec<Random> =
        (0..threads as u64).map(|thread| Random::seed_from_u64(load.seed ^ thread << 32)).collect();
    rate_of(threads, load, |operations| round(program, operations, &mut randoms))
}

/// As [`rate`] with one thread, of what need not be a [`Program`] for several.
///
/// # Errors
///
/// The errors of `run`.
pub fn rate_alone(
    load: &Load,
    mut run: impl FnMut(usize, &mut Random) -> Result<(), Fault>,
) -> Result<Rate, Fault> {
    let mut random = Random::seed_from_u64(load.seed);
    rate_of(1, load, |operations| {
        let start = Instant::now();
        run(operations, &mut random)?;
        Ok(start.elapsed().as_secs_f64())
    })
}

/// The rate of rounds, which take seconds.
fn rate_of(
    threads: usize,
    load: &Load,
    mut round: impl FnMut(usize) -> Result<f64, Fault>,
) -> Result<Rate, Fault> {
    round(load.operations.div_ceil(4))?;
    let seconds = (0..load.rounds).map(|_| round(load.operations)).collect::<Result<Vec<f64>, Fault>>()?;
    Ok((threads * load.operations) as f64 / median(seconds.into_iter()))
}

/// Seconds from when the first thread began until the last has ended.
fn round(program: &dyn Program, operations: usize, randoms: &mut [Random]) -> Result<f64, Fault> {
    let together = Barrier::new(randoms.len());
    let run = |random: &mut Random| -> Result<(Instant, Instant), Fault> {
        together.wait();
        let begun = Instant::now();
        program.run(operations, random)?;
        Ok((begun, Instant::now()))
    };
    let spans = std::thread::scope(|scope| {
        let threads: Vec<_> = randoms.iter_mut().map(|random| scope.spawn(|| run(random))).collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined
            .map(|span| span.unwrap_or_else(|e| std::panic::resume_unwind(e)))
            .collect::<Result<Vec<_>, _>>()
    })?;
    let begun = spans.iter().map(|span| span.0).min();
    let ended = spans.iter().map(|span| span.1).max();
    Ok(begun.zip(ended).map_or(0.0, |(begun, ended)| (ended - begun).as_secs_f64()))
}
