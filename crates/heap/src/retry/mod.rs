//! Running transactions: again when they met others, alone when that goes on for long.

use crate::counts::commit::{DEATHS_MAX, Failed, commit};
use crate::counts::dying::collect;
use crate::error::{Error, Result};
use crate::stm::active_tx::{Backoff, Care, Manner, Session, State};
use crate::stm::orec::Moment;
use crate::stm::running::{self as current, Running};
use crate::stm::shared::Core;
use parking_lot::MutexGuard;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use tembo_pool::BriefPin;

thread_local! {
    /// Transactions that this thread still runs before it trusts in quiet times again.
    static WARY: Cell<u32> = const { Cell::new(0) };
    /// Where the clock stood when this thread looked last. (There may be several heaps: that only makes it less useful.)
    static LAST_SEEN: Cell<u64> = const { Cell::new(0) };
    /// Transactions that this thread still begins before it takes it for quiet again.
    static BUSY: Cell<u32> = const { Cell::new(0) };
    /// Transactions that this thread still begins before it looks whether others still commit, where the clock does not tell. (Of several heaps, too; so below.)
    static UNTIL_LOOK: Cell<u32> = const { Cell::new(0) };
    /// What others had committed when it looked last.
    static OTHERS: Cell<u64> = const { Cell::new(0) };
}

/// So many transactions of a thread in a row have to find the clock where the one before left it, before the next looks whether it is quiet. Where
/// others commit as often as this thread does, some do so by chance; most of those that trust in that are disappointed, and run again.
const BUSY_FOR: u32 = 16;

/// Whether nobody else has committed for a while, by the clock of a transaction that begins.
#[inline(always)]
fn seems_quiet(core: &Core, now: Moment) -> bool {
    if !now.is_alone() {
        match UNTIL_LOOK.get() {
            0 => look_for_others(core),
            left => UNTIL_LOOK.set(left - 1),
        }
        return false;
    }
    let now = now.count();
    if LAST_SEEN.get() != now {
        BUSY.set(BUSY_FOR);
        return false;
    }
    let busy = BUSY.get();
    if busy > 0 {
        BUSY.set(busy - 1);
    }
    busy == 0
}

/// So many transactions a thread begins between two looks whether others still commit. Each costs a miss of the cache for each of the others.
const LOOK_EVERY: u32 = 255;

/// Ends the sharing of the clock if nobody else has committed since this thread looked last.
#[cold]
fn look_for_others(core: &Core) {
    UNTIL_LOOK.set(LOOK_EVERY);
    let others = core.commits_of_others();
    if OTHERS.replace(others) == others {
        core.clock.end_sharing(&core.storing);
    }
}

/// A thread whose trust in quiet times was disappointed runs so many transactions without: what an attempt costs that has to be made again is
/// a small part of what these cost.
const WARY_FOR: u32 = 64;
/// After so many attempts a transaction asks the others to wait.
const ATTEMPTS_MAX: u32 = 12;
/// After so many attempts in a transaction of another heap, that one is made again too: it may own what somebody waits for who owns what this one
/// waits for.
const INSIDE_MAX: u32 = 4;
const _: () = assert!(
    INSIDE_MAX < ATTEMPTS_MAX,
    "nobody asks to be alone, and waits for that, in a transaction of another heap"
);
/// Dying objects that a commit goes on with, at most.
const COLLECT_MAX: usize = 2048;

/// Keeps new transactions of other threads waiting.
struct Alone<'c> {
    core: &'c Core,
    _turn: MutexGuard<'c, ()>,
}

impl<'c> Alone<'c> {
    fn begin(core: &'c Core) -> Alone<'c> {
        let turn = core.alone.lock();
        core.wants_alone.store(true, Ordering::Release);
        Alone { core, _turn: turn }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.core.wants_alone.store(false, Ordering::Release);
    }
}

/// Runs a transaction that writes: as a part of the one of this heap that runs on this thread, if there is one, which it takes with it when
/// it fails, by an error or a panic.
///
/// The body is called in one place only, as in [`read`]. Little is stored between the commit's fence and what the next transaction of the thread
/// reads first: stores that follow a fence wait for it, and when there is no room for one more the processor waits with them. So no function is
/// called here that could be without.
#[inline(always)]
pub(crate) fn write<O, E: From<Error>>(
    core: &Core,
    body: impl Fn(&Running<'_>) -> Result<O, E>,
) -> Result<O, E> {
    core.pool.check_process().map_err(Error::from)?;
    let mut special = None;
    if current::is_any() || core.wants_alone.load(Ordering::Acquire) || core.pool.is_read_only() {
        special = Special::find_to_write(core)?;
    }
    let mut manner = if WARY.get() == 0 { Manner::Trusting } else { manner_of_the_wary(special.is_none()) };
    let mut deaths = DEATHS_MAX;
    loop {
        let mut own = match &special {
            Some(Special::Nested(_)) => None,
            _ => Some(Writing::begin(core, manner)),
        };
        let state = match (&own, &special) {
            (Some(own), _) => &*own.state,
            (None, Some(Special::Nested(nested))) => {
                nested.state.begin_writer();
                &nested.state
            }
            (None, _) => unreachable!("there is an outer one, or its own has begun"),
        };
        let outcome = current::enter(core, state, &body);
        let Some(attempt) = &mut own else {
            if let (Some(Special::Nested(nested)), Ok(_)) = (&special, &outcome) {
                nested.state.nested_unfinished.update(|count| count - 1);
            }
            return outcome;
        };
        match attempt.end(outcome.is_ok(), deaths) {
            Ended::Committed => {
                // It has given everything back.
                std::mem::forget(own);
                return outcome;
            }
            Ended::Undone => return outcome,
            Ended::Failed(e) if deaths > 0 && e.is_full() => {
                // What dies with it is left to later ones, each of which needs less room.
                drop(own);
                drop(outcome);
                deaths = 0;
            }
            Ended::Failed(e) => return Err((*e).into()),
            Ended::Missed { trusted } => {
                drop(own);
                // It may hold what the next attempt wants.
                drop(outcome);
                match Special::another_manner(&mut special, core, trusted) {
                    Some(another) => manner = another,
                    None => return Err(Error::Conflict.into()),
                }
            }
        }
    }
}

#[cold]
fn manner_of_the_wary(is_first_attempt: bool) -> Manner {
    if is_first_attempt {
        WARY.set(WARY.get() - 1);
    }
    Manner::Noting
}

/// How an attempt to write ended.
enum Ended {
    /// All that it did is durable, and it holds nothing any more.
    Committed,
    /// The body returned an error.
    Undone,
    /// The commit failed.
    Failed(Box<Error>),
    /// It has to be made again, and what the body says means nothing.
    Missed {
        /// It kept no list of what it read, and may have met nobody who changed that.
        trusted: bool,
    },
}

/// One attempt to write.
struct Writing<'c> {
    core: &'c Core,
    /// Dropped by hand: mostly it has nothing any more.
    state: ManuallyDrop<State>,
    pin: Option<BriefPin<'c>>,
}

impl<'c> Writing<'c> {
    #[inline(always)]
    fn begin(core: &'c Core, manner: Manner) -> Writing<'c> {
        let pin = Some(core.pool.pin_briefly());
        Writing { core, state: ManuallyDrop::new(State::begin(core, true, manner, seems_quiet)), pin }
    }

    /// Commits what it has done, if its body returned no error.
    #[inline(always)]
    fn end(&mut self, is_ok: bool, deaths: usize) -> Ended {
        if self.state.cares(Care::DOOMED) {
            return self.missed();
        }
        if !is_ok {
            return Ended::Undone;
        }
        match commit_attempt(self.core, &self.state, deaths) {
            Ok(()) => {
                if let Some(session) = self.state.session.get_mut().take() {
                    // It has nothing of this transaction left.
                    self.core.put_session(session);
                }
                LAST_SEEN.set(self.state.rv());
                if self.state.may_have_list() {
                    self.state.forget_reads();
                }
                self.pin = None;
                Ended::Committed
            }
            Err(Failed::Conflict) => self.missed(),
            Err(Failed::By(e)) => Ended::Failed(e),
        }
    }

    #[cold]
    fn missed(&self) -> Ended {
        Ended::Missed { trusted: !self.state.cares(Care::NOTES) }
    }

    #[cold]
    #[inline(never)]
    fn give_back(&mut self) {
        LAST_SEEN.set(self.state.rv());
        if let Some(mut session) = self.state.session.take() {
            session.abort(self.core);
            self.core.put_session(session);
        }
        self.state.forget_reads();
    }
}

/// Gives back what it holds, however it ends.
impl Drop for Writing<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Runs a transaction that reads: as a part of the one of this heap that runs on this thread, if there is one.
///
/// The body is called in one place only, so that it is compiled into it: a short one is over sooner than it could be called.
#[inline(always)]
pub(crate) fn read<O, E: From<Error>>(
    core: &Core,
    body: impl Fn(&Running<'_>) -> Result<O, E>,
) -> Result<O, E> {
    core.pool.check_process().map_err(Error::from)?;
    // Nothing special, most of the time.
    let mut special = None;
    if current::is_any() || core.wants_alone.load(Ordering::Acquire) {
        special = Special::find(core)?;
    }
    loop {
        let mut own = match &special {
            Some(Special::Nested(_)) => None,
            Some(Special::Again(_)) => Some(Reading::begin(core, Manner::Again)),
            None => Some(Reading::begin(core, Manner::Trusting)),
        };
        let state = match (&own, &special) {
            (Some(own), _) => &*own.state,
            (None, Some(Special::Nested(nested))) => &nested.state,
            (None, _) => unreachable!("there is an outer one, or its own has begun"),
        };
        let outcome = current::enter(core, state, &body);
        if own.as_mut().is_none_or(Reading::end) {
            return outcome;
        }
        drop(own);
        // It may hold what the next attempt wants.
        drop(outcome);
        if !Special::again(&mut special, core) {
            return Err(Error::Conflict.into());
        }
    }
}

/// What a transaction is, besides the first attempt of one that is part of no other.
enum Special<'c> {
    Nested(Box<Nested<'c>>),
    Again(Again<'c>),
}

impl<'c> Special<'c> {
    #[cold]
    #[inline(never)]
    fn find(core: &'c Core) -> Result<Option<Special<'c>>> {
        if let Some(outer) = current::of(core) {
            outer.check_nested()?;
            return Ok(Some(Special::Nested(Box::new(Nested::begin(outer)))));
        }
        wait_for_turn(core);
        Ok(None)
    }

    #[cold]
    #[inline(never)]
    fn find_to_write(core: &'c Core) -> Result<Option<Special<'c>>> {
        let special = Special::find(core)?;
        match special {
            None if core.pool.is_read_only() => Err(tembo_pool::Error::ReadOnly.into()),
            special => Ok(special),
        }
    }

    /// How the next attempt to write is made, if there is to be one.
    #[cold]
    #[inline(never)]
    fn another_manner(special: &mut Option<Special<'c>>, core: &'c Core, trusted: bool) -> Option<Manner> {
        if trusted {
            // Perhaps nobody has changed what it had read.
            WARY.set(WARY_FOR);
            wait_for_turn(core);
            return Some(Manner::Noting);
        }
        Special::again(special, core).then_some(Manner::Again)
    }

    /// Waits before the next attempt. Whether there is to be one: else the transactions of other heaps that this one runs in are made again.
    #[cold]
    #[inline(never)]
    fn again(special: &mut Option<Special<'c>>, core: &'c Core) -> bool {
        if !matches!(special, Some(Special::Again(_))) {
            *special = Some(Special::Again(Again::new()));
        }
        let Some(Special::Again(again)) = special else { return true };
        if again.backoff.attempts() >= INSIDE_MAX && current::is_any() {
            current::doom_all();
            return false;
        }
        again.prepare(core);
        true
    }
}

/// A transaction that is part of another of its heap, which lends it all that it has.
struct Nested<'c> {
    outer: Running<'c>,
    state: State,
}

impl<'c> Nested<'c> {
    fn begin(outer: Running<'c>) -> Nested<'c> {
        let state = outer.state().lend();
        Nested { outer, state }
    }
}

/// Gives it back, however it ends.
impl Drop for Nested<'_> {
    fn drop(&mut self) {
        self.outer.state().take_back(&self.state);
    }
}

/// One attempt to read.
struct Reading<'c> {
    _pin: BriefPin<'c>,
    /// Dropped by hand: it never has a session, and mostly nothing else.
    state: ManuallyDrop<State>,
}

impl<'c> Reading<'c> {
    #[inline(always)]
    fn begin(core: &'c Core, manner: Manner) -> Reading<'c> {
        let _pin = core.pool.pin_briefly();
        Reading { _pin, state: ManuallyDrop::new(State::begin(core, false, manner, seems_quiet)) }
    }

    /// Whether what it says holds; else it has to be said again.
    #[inline(always)]
    fn end(&mut self) -> bool {
        LAST_SEEN.set(self.state.rv());
        !self.state.cares(Care::DOOMED)
    }
}

impl Drop for Reading<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.state.may_have_list() {
            self.forget_list();
        }
    }
}

impl Reading<'_> {
    #[inline(never)]
    fn forget_list(&self) {
        self.state.forget_reads();
    }
}

/// Attempts after a conflict.
struct Again<'c> {
    backoff: Backoff,
    alone: Option<Alone<'c>>,
}

impl<'c> Again<'c> {
    fn new() -> Again<'c> {
        Again { backoff: Backoff::new(), alone: None }
    }

    /// Waits before another attempt, which asks the others to wait if there were many.
    fn prepare(&mut self, core: &'c Core) {
        self.backoff.wait();
        if self.backoff.attempts() == ATTEMPTS_MAX {
            self.alone = Some(Alone::begin(core));
        }
        if self.alone.is_none() {
            wait_for_turn(core);
        }
    }
}

/// Waits as long as another transaction wants to run alone; but not in one of another heap: that may be alone in its own, and who is alone
/// in this one may wait for it.
#[inline(always)]
fn wait_for_turn(core: &Core) {
    if core.wants_alone.load(Ordering::Acquire) {
        wait_for_who_is_alone(core);
    }
}

#[cold]
fn wait_for_who_is_alone(core: &Core) {
    if !current::is_any() {
        drop(core.alone.lock());
    }
}

/// Commits what an attempt has done.
#[inline(always)]
fn commit_attempt(core: &Core, state: &State, deaths: usize) -> std::result::Result<(), Failed> {
    if state.nested_unfinished.get() > 0 {
        return Err(Error::NestedFailed.into());
    }
    let mut held = state.session.borrow_mut();
    let Some(session) = held.as_mut() else { return Ok(()) };
    if let Some(e) = session.lost.take() {
        session.abort(core);
        return Err(e.into());
    }
    commit(core, state, session, deaths)?;
    if session.dying_first != 0 || core.handles.is_busy() {
        go_on_collecting(core, state, session);
    }
    Ok(())
}

/// A bounded part of what is left of dying objects. What fails here is left for later, and kept for who asks ([`Heap::left_behind`](crate::Heap::left_behind)): the
/// transaction itself is committed.
#[cold]
fn go_on_collecting(core: &Core, state: &State, session: &mut Session) {
    if let Err(e) = collect(core, session, COLLECT_MAX) {
        *core.left.lock() = Some(e);
    }
    // These commits are the thread's own, so that it is as quiet as before. (If there are others' among them, it may be wrong once.)
    state.set_rv(core.clock.now().count());
}

pub(crate) fn collect_all(core: &Core) -> Result<()> {
    core.pool.check_process()?;
    if current::of(core).is_some() {
        // What it owns would be waited for.
        return Err(Error::InsideTransaction { what: "`collect`" });
    }
    let mut session = core.take_session()?;
    let outcome = collect_list(core, &mut session).and_then(|()| collect_leftovers(core, &mut session));
    core.put_session(session);
    outcome?;
    // The lists of sessions that are in use are for those who use them.
    while let Some(mut session) = core.take_session_with_dying() {
        let outcome = collect_list(core, &mut session);
        core.put_session(session);
        outcome?;
    }
    Ok(())
}

fn collect_list(core: &Core, session: &mut Session) -> Result<()> {
    let mut stuck = 0;
    while !collect(core, session, COLLECT_MAX)? {
        stuck += 1;
        if stuck > 1000 {
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// Lists that threads of an earlier process left, and that no session of this one has taken over.
fn collect_leftovers(core: &Core, session: &mut Session) -> Result<()> {
    loop {
        let mut leftovers = core.leftovers.lock();
        let Some(slot) = leftovers.last().copied() else { return Ok(()) };
        let left_off = core.dying_off(slot)?;
        let left = (left_off, core.region().load_u64(left_off)?);
        let own = (session.dying_off, session.dying_first);
        (session.dying_off, session.dying_first) = left;
        let outcome = collect(core, session, COLLECT_MAX);
        let is_empty = session.dying_first == 0;
        (session.dying_off, session.dying_first) = own;
        if is_empty {
            leftovers.pop();
        }
        outcome?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Heap, PArr, PRc};
    use std::sync::atomic::AtomicU64;
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
            let core = &heap.core;
            // Each in a line of its own, and hence with its own record, or nearly, so that the clock is hardly raised.
            let write = |times: u32| {
                for i in 0..times {
                    let written = heap.write(|tx, root| {
                        let numbers = tx.array(*root)?.expect("made above");
                        tx.set(numbers.at(8 * i as usize), 1)
                    });
                    written.unwrap();
                }
            };
            core.clock.share();
            write(2 * LOOK_EVERY);
            let ended = core.clock.now();
            assert!(ended.is_alone(), "{ended:?}");
            write(4 * LOOK_EVERY);
            let later = core.clock.now();
            assert_eq!(later.count(), ended.count() + u64::from(4 * LOOK_EVERY), "it was not shared again");
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
            assert!(!heap.core.storing.may_be_anyone(), "nobody is");
            Ok(())
        });
        run.unwrap();
    }
}
