//! The loops that run a transaction's body until an attempt succeeds.

use crate::counts::commit::DEATHS_MAX;
use crate::error::{Error, ErrorKind, Result};
use crate::retry::attempts::{AttemptEnd, ReadAttempt, WriteAttempt};
use crate::retry::course::Course;
use crate::retry::quiet::first_mode;
use crate::retry::serial::wait_for_turn;
use crate::stm::hazards::ValidationMode;
use crate::stm::running::{self, Running};
use crate::stm::shared::HeapShared;
use std::sync::atomic::Ordering;

/// Runs a transaction that may write. If one of this heap already runs on this thread, the new one becomes a
/// part of it, and an error or a panic fails both.
///
/// The body is called in one place only, as in [`read`]. Stores that follow a fence wait for it, and the
/// processor stalls when its store buffer is full. Few stores may therefore come between the commit's fence
/// and the first loads of the thread's next transaction, and every function on that path is inlined.
#[inline(always)]
pub(crate) fn write<O, E: From<Error>>(
    shared: &HeapShared,
    body: impl Fn(&Running<'_>) -> Result<O, E>,
) -> Result<O, E> {
    shared.pool.check_process().map_err(Error::from)?;
    let mut course = None;
    if running::is_any() || shared.is_serial.load(Ordering::Acquire) || shared.pool.is_read_only() {
        course = Course::find_to_write(shared)?;
    }
    let mut mode = first_mode(course.is_none());
    let mut deaths = DEATHS_MAX;
    loop {
        let mut own = match &course {
            Some(Course::Nested(_)) => None,
            _ => Some(WriteAttempt::begin(shared, mode)),
        };
        let active = match (&own, &course) {
            (Some(own), _) => &*own.active,
            (None, Some(Course::Nested(nested))) => {
                nested.active.begin_writer();
                &nested.active
            }
            (None, _) => unreachable!("there is an outer one, or its own has begun"),
        };
        let outcome = running::enter(shared, active, &body);
        let Some(attempt) = &mut own else {
            if let (Some(Course::Nested(nested)), Ok(_)) = (&course, &outcome) {
                nested.active.nested_unfinished.update(|count| count - 1);
            }
            return outcome;
        };
        match attempt.end(outcome.is_ok(), deaths) {
            AttemptEnd::Committed => {
                // The attempt has given everything back.
                std::mem::forget(own);
                return outcome;
            }
            AttemptEnd::Aborted => return outcome,
            AttemptEnd::Failed(e) if deaths > 0 && e.is_full() => {
                // Retried without destroying objects: later commits release those that die with this one, and
                // each of them needs less room.
                drop(own);
                drop(outcome);
                deaths = 0;
            }
            AttemptEnd::Failed(e) => return Err(e.into()),
            AttemptEnd::Conflicted { was_optimistic } => {
                drop(own);
                // The outcome may hold resources that the next attempt needs.
                drop(outcome);
                match Course::next_mode(&mut course, shared, was_optimistic) {
                    Some(next) => mode = next,
                    None => return Err(Error::from(ErrorKind::Conflict).into()),
                }
            }
        }
    }
}

/// Runs a transaction that may be left undone, and kills no object itself: `None` if it has met others in a
/// few attempts. No transaction of the heap runs on the thread.
pub(crate) fn write_unless_busy<O>(
    shared: &HeapShared,
    attempts: u32,
    body: &impl Fn(&Running<'_>) -> Result<O, Error>,
) -> Result<Option<O>, Error> {
    shared.pool.check_process().map_err(Error::from)?;
    for _ in 0..attempts {
        wait_for_turn(shared);
        let mut attempt = WriteAttempt::begin(shared, ValidationMode::Validated);
        let outcome = running::enter(shared, &attempt.active, body);
        match attempt.end(outcome.is_ok(), 0) {
            AttemptEnd::Committed => {
                // The attempt has given everything back.
                std::mem::forget(attempt);
                return outcome.map(Some);
            }
            AttemptEnd::Aborted => return outcome.map(Some),
            AttemptEnd::Failed(e) => return Err(e),
            AttemptEnd::Conflicted { .. } => {}
        }
    }
    Ok(None)
}

/// Runs a transaction that only reads. If one of this heap already runs on this thread, the new one becomes a
/// part of it.
///
/// The body is called in one place only, so that the compiler inlines it: a short body takes less time than a
/// call.
#[inline(always)]
pub(crate) fn read<O, E: From<Error>>(
    shared: &HeapShared,
    body: impl Fn(&Running<'_>) -> Result<O, E>,
) -> Result<O, E> {
    shared.pool.check_process().map_err(Error::from)?;
    let mut course = None;
    if running::is_any() || shared.is_serial.load(Ordering::Acquire) {
        course = Course::find(shared)?;
    }
    loop {
        let mut own = match &course {
            Some(Course::Nested(_)) => None,
            Some(Course::Retry(_)) => Some(ReadAttempt::begin(shared, ValidationMode::Eager)),
            None => Some(ReadAttempt::begin(shared, ValidationMode::Optimistic)),
        };
        let active = match (&own, &course) {
            (Some(own), _) => &*own.active,
            (None, Some(Course::Nested(nested))) => &nested.active,
            (None, _) => unreachable!("there is an outer one, or its own has begun"),
        };
        let outcome = running::enter(shared, active, &body);
        if own.as_mut().is_none_or(ReadAttempt::end) {
            return outcome;
        }
        drop(own);
        // The outcome may hold resources that the next attempt needs.
        drop(outcome);
        if !Course::retry(&mut course, shared) {
            return Err(Error::from(ErrorKind::Conflict).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::retry::quiet::PROBE_EVERY;
    use crate::{Heap, PArr, PRc};
    use std::sync::atomic::{AtomicU64, Ordering};
    use tembo_pmem::Region;
    use tembo_pool::{Geometry, Pool};

    fn pool() -> Pool {
        let region = Region::simulated(&[0; 64 << 10], 4 << 20, None).unwrap();
        Pool::create_in(region, &Geometry::tiny()).unwrap()
    }

    /// A writer that another had met is alone again after a while, and stays so.
    #[test]
    fn who_is_alone_again_has_the_clock_alone() {
        let run = Heap::<_, PArr<u64>>::with_pool(pool(), |heap| {
            let made = heap.write(|tx, root| {
                let numbers = tx.alloc_array(8 << 10, |_| 0)?;
                tx.link_array(*root, numbers)
            });
            made.unwrap();
            let shared = &heap.shared;
            // Each object is in a line of its own, and hence nearly each has a record of its own, so that the
            // clock is hardly raised.
            let write = |times: u32| {
                for i in 0..times {
                    let written = heap.write(|tx, root| {
                        let numbers = tx.array(*root)?.expect("made above");
                        tx.set(numbers.at(8 * i as usize), 1)
                    });
                    written.unwrap();
                }
            };
            shared.clock.share();
            write(2 * PROBE_EVERY);
            let ended = shared.clock.now();
            assert!(ended.is_alone(), "{ended:?}");
            write(4 * PROBE_EVERY);
            let later = shared.clock.now();
            assert_eq!(later.count(), ended.count() + u64::from(4 * PROBE_EVERY), "it was not shared again");
            Ok(())
        });
        run.unwrap();
    }

    /// A commit that is given up before it has a number says nothing about storing.
    #[test]
    fn a_commit_that_fails_early_is_not_storing() {
        let run = Heap::<_, PArr<PRc<u64>>>::with_pool(pool(), |heap| {
            let made = heap.write(|tx, root| {
                let pointers = tx.alloc_array(32, |_| PRc::null())?;
                tx.link_array(*root, pointers)
            });
            made.unwrap();
            let link = |at: usize, meanwhile: &(dyn Fn() + std::panic::RefUnwindSafe)| {
                let linked = heap.write(|tx, root| {
                    let pointers = tx.array(*root)?.expect("made above");
                    let new = tx.alloc(1_u64)?;
                    tx.link(pointers.at(at), new)?;
                    meanwhile();
                    Ok(())
                });
                linked.unwrap();
            };
            link(0, &|| ());
            let attempts = AtomicU64::new(0);
            link(0, &|| {
                if attempts.fetch_add(1, Ordering::Relaxed) == 0 {
                    // The first attempt finds that when it has the records of counts, and has no number yet.
                    std::thread::scope(|scope| scope.spawn(|| link(31, &|| ())).join().unwrap());
                }
            });
            assert_eq!(attempts.into_inner(), 2, "the first has met the other");
            assert!(!heap.shared.storing.may_be_anyone(), "nobody is");
            Ok(())
        });
        run.unwrap();
    }
}
