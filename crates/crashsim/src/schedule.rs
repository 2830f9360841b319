//! A baton that a seed hands from thread to thread, so that interleavings can be repeated.

use crate::rng::Rng;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tembo_pmem::ThreadTag;

/// How often threads that wait look whether the holder of the baton is stuck.
const GLANCE: Duration = Duration::from_millis(1);
/// After this long the baton is taken from a holder whose state the system does not tell.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long a handover waits for threads that have just been woken from a lock.
const SETTLE: Duration = Duration::from_millis(5);

/// Decides which of several threads runs between two persistence events.
///
/// Only the holder of the baton runs; at each of its events the seed decides who holds it next. A holder
/// that blocks on a lock of the code under test loses the baton, and competes for it again when it wakes.
/// The same seed gives the same interleaving as long as blocking is the only thing that takes time.
pub struct Schedule {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    rng: Rng,
    threads: Vec<Slot>,
    holder: Option<usize>,
    /// Counts handovers and turns, to tell a holder that works from one that is stuck.
    turns: u64,
}

#[derive(Clone, Default)]
struct Slot {
    tag: Option<ThreadTag>,
    /// Where the system tells whether the thread sleeps.
    stat: Option<PathBuf>,
    activity: Activity,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Activity {
    #[default]
    NotJoined,
    /// Waits for the baton.
    Waiting,
    /// Runs with the baton, or runs without it because it lost the baton while it was blocked.
    Running,
    Left,
}

/// A thread's membership in a [`Schedule`]; leaves when dropped.
pub struct Member<'a> {
    schedule: &'a Schedule,
    thread: usize,
}

impl Schedule {
    /// A schedule for `threads` threads, none of which runs before all have joined.
    pub fn new(threads: usize, seed: u64) -> Arc<Schedule> {
        Arc::new(Schedule {
            state: Mutex::new(State {
                rng: Rng::new(seed),
                threads: vec![Slot::default(); threads],
                holder: None,
                turns: 0,
            }),
            changed: Condvar::new(),
        })
    }

    /// Makes the calling thread number `thread` of the schedule; returns when it is its turn.
    pub fn join(&self, thread: usize) -> Member<'_> {
        let mut state = self.lock();
        let stat = std::fs::read_link("/proc/thread-self").ok();
        state.threads[thread] = Slot {
            tag: Some(ThreadTag::current()),
            stat: stat.map(|task| PathBuf::from("/proc").join(task).join("stat")),
            activity: Activity::Waiting,
        };
        if state.threads.iter().all(|t| t.activity != Activity::NotJoined) {
            state = self.hand_over(state);
        }
        drop(self.wait(state, thread));
        Member { schedule: self, thread }
    }

    /// At an event of the thread with this tag, before the event is recorded: lets another thread run if
    /// the seed says so. Threads that have not joined pass.
    pub(crate) fn turn(&self, tag: ThreadTag) {
        let mut state = self.lock();
        let Some(thread) = state.threads.iter().position(|t| t.tag == Some(tag)) else { return };
        if state.threads[thread].activity == Activity::Left {
            return;
        }
        state.threads[thread].activity = Activity::Waiting;
        if state.holder.is_none_or(|holder| holder == thread) {
            state = self.hand_over(state);
        }
        drop(self.wait(state, thread));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `thread` holds the baton.
    fn wait<'s>(&'s self, mut state: MutexGuard<'s, State>, thread: usize) -> MutexGuard<'s, State> {
        let mut seen = (state.turns, Instant::now());
        while state.holder != Some(thread) {
            let waited = self.changed.wait_timeout(state, GLANCE);
            let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = next;
            if state.turns != seen.0 {
                seen = (state.turns, Instant::now());
            } else if timeout.timed_out() && state.holder_is_stuck(seen.1.elapsed()) {
                state = self.hand_over(state);
            }
        }
        state.turns += 1;
        state.threads[thread].activity = Activity::Running;
        state
    }

    /// Gives the baton to one of the waiting threads, if there is one.
    fn hand_over<'s>(&'s self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        // Threads that lost the baton on a lock may be awake by now; they take part once they wait again,
        // so that the choice does not depend on how fast they are.
        let (turns, holder) = (state.turns, state.holder);
        let start = Instant::now();
        while start.elapsed() < SETTLE && state.someone_is_about_to_wait() {
            drop(state);
            std::thread::sleep(Duration::from_micros(20));
            state = self.lock();
            if (state.turns, state.holder) != (turns, holder) {
                return state;
            }
        }
        let waiting = state.threads.iter().enumerate().filter(|(_, t)| t.activity == Activity::Waiting);
        let waiting: Vec<usize> = waiting.map(|(i, _)| i).collect();
        let picked = state.rng.below(waiting.len());
        state.holder = waiting.get(picked).copied();
        state.turns += 1;
        self.changed.notify_all();
        state
    }
}

impl State {
    /// Whether the holder cannot go on: it sleeps, though it is not waiting for the baton.
    fn holder_is_stuck(&self, since: Duration) -> bool {
        let Some(holder) = self.holder.map(|i| &self.threads[i]) else {
            return self.threads.iter().all(|t| t.activity != Activity::NotJoined);
        };
        holder.activity == Activity::Running && holder.sleeps().unwrap_or(since > PATIENCE)
    }

    /// Whether a thread without the baton is awake.
    fn someone_is_about_to_wait(&self) -> bool {
        self.threads.iter().enumerate().any(|(i, t)| {
            t.activity == Activity::Running && self.holder != Some(i) && t.sleeps() == Some(false)
        })
    }
}

impl Slot {
    /// Whether the system says that the thread sleeps; `None` where it does not say.
    fn sleeps(&self) -> Option<bool> {
        let stat = std::fs::read_to_string(self.stat.as_ref()?).ok()?;
        // The thread's name, in parentheses, may contain anything; the state follows it.
        let (_, state) = stat.rsplit_once(") ")?;
        Some(state.starts_with('S'))
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        let mut state = self.schedule.lock();
        state.threads[self.thread].activity = Activity::Left;
        if state.holder == Some(self.thread) {
            drop(self.schedule.hand_over(state));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three threads that each append their number at their turns, one of them under a lock that all take.
    fn interleaving(seed: u64) -> Vec<usize> {
        let schedule = Schedule::new(3, seed);
        let order = Mutex::new(Vec::new());
        let shared = Mutex::new(());
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (schedule, order, shared) = (&schedule, &order, &shared);
                scope.spawn(move || {
                    let _member = schedule.join(thread);
                    for round in 0..6 {
                        let _held = (round % 2 == 0).then(|| shared.lock().unwrap());
                        for _ in 0..3 {
                            schedule.turn(ThreadTag::current());
                            order.lock().unwrap().push(thread);
                        }
                    }
                });
            }
        });
        order.into_inner().unwrap()
    }

    #[test]
    fn every_thread_finishes_although_the_baton_meets_locks() {
        for seed in 0..4 {
            let order = interleaving(seed);
            assert_eq!(order.len(), 3 * 6 * 3);
        }
    }

    #[test]
    fn different_seeds_interleave_differently() {
        assert_ne!(interleaving(1), interleaving(2));
    }
}
