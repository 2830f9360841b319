//! Running transactions: again when they met others, alone when that goes on for long.

use crate::commit::{collect, commit};
use crate::core::Core;
use crate::current::{self, Running};
use crate::error::{Error, Result};
use crate::session::{Backoff, Care, Manner, Session, State};
use parking_lot::MutexGuard;
use std::cell::Cell;
use std::sync::atomic::Ordering;

thread_local! {
    /// Transactions that this thread still runs before it trusts in quiet times again.
    static WARY: Cell<u32> = const { Cell::new(0) };
    /// Where the clock stood when this thread looked last. (There may be several heaps: that only makes it less useful.)
    static LAST_SEEN: Cell<u64> = const { Cell::new(0) };
    /// Transactions that this thread still begins before it takes it for quiet again.
    static BUSY: Cell<u32> = const { Cell::new(0) };
}

/// So many transactions of a thread in a row have to find the clock where the one before left it, before the next looks whether it is quiet. Where
/// others commit as often as this thread does, some do so by chance; most of those that trust in that are disappointed, and run again.
const BUSY_FOR: u32 = 16;

/// Whether nobody else has committed for a while, by the clock of a transaction that begins.
#[inline(always)]
fn seems_quiet(now: u64) -> bool {
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

/// A thread whose trust in quiet times was disappointed runs so many transactions without: what an attempt costs that has to be made again is
/// a small part of what these cost.
const WARY_FOR: u32 = 64;
/// After so many attempts a transaction asks the others to wait.
const ATTEMPTS_MAX: u32 = 12;
/// Dying objects that a commit goes on with, at most.
const COLLECT_MAX: usize = 2048;

/// Gives back what a transaction holds, however it ends.
struct Ending<'c> {
    core: &'c Core,
    state: State,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if let Some(mut session) = self.state.session.take() {
            session.abort(self.core);
            self.core.put_session(session);
        }
        LAST_SEEN.set(self.state.rv.get());
        self.state.forget_reads();
    }
}

impl Ending<'_> {
    /// Ends a transaction that was committed, so that it holds nothing any more.
    #[inline(always)]
    fn end(&mut self) {
        if let Some(session) = self.state.session.get_mut().take() {
            // It has nothing of this transaction left.
            self.core.put_session(session);
        }
        LAST_SEEN.set(self.state.rv.get());
        if self.state.has_list() {
            self.state.forget_reads();
        }
    }
}

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

pub(crate) fn write<O, E: From<Error>>(
    core: &Core,
    body: impl Fn(&Running<'_>) -> Result<O, E>,
) -> Result<O, E> {
    if core.pool.is_read_only() {
        return Err(Error::Pool(tembo_pool::Error::ReadOnly).into());
    }
    wait_for_turn(core);
    let wary = WARY.get();
    let manner = if wary == 0 { Manner::Trusting } else { Manner::Noting };
    if wary > 0 {
        WARY.set(wary - 1);
    }
    let mut missed = None;
    let outcome = attempt(core, manner, &body, &mut missed);
    match missed {
        None => outcome,
        Some(missed) => {
            // It may hold what the next attempt wants.
            drop(outcome);
            write_again(core, missed, &body)
        }
    }
}

#[cold]
fn write_again<O, E: From<Error>>(
    core: &Core,
    missed: Missed,
    body: &impl Fn(&Running<'_>) -> Result<O, E>,
) -> Result<O, E> {
    if missed.trusted {
        // Perhaps nobody has changed what it had read.
        WARY.set(WARY_FOR);
        wait_for_turn(core);
        if let Some(outcome) = another_attempt(core, Manner::Noting, body) {
            return outcome;
        }
    }
    run_again(core, |_| another_attempt(core, Manner::Again, body))
}

/// An attempt that has to be made again.
struct Missed {
    /// It kept no list of what it read, and may have met nobody who changed that.
    trusted: bool,
}

impl Missed {
    #[cold]
    fn by(state: &State) -> Missed {
        Missed { trusted: !state.cares(Care::NOTES) }
    }
}

/// [`attempt`], compiled once for all attempts but the first.
#[inline(never)]
fn another_attempt<O, E: From<Error>>(
    core: &Core,
    manner: Manner,
    body: &impl Fn(&Running<'_>) -> Result<O, E>,
) -> Option<Result<O, E>> {
    let mut missed = None;
    let outcome = attempt(core, manner, body, &mut missed);
    missed.is_none().then_some(outcome)
}

#[inline(always)]
pub(crate) fn read<O, E: From<Error>>(
    core: &Core,
    body: impl Fn(&Running<'_>) -> Result<O, E>,
) -> Result<O, E> {
    wait_for_turn(core);
    let mut is_doomed = false;
    let outcome = attempt_read(core, Manner::Trusting, &body, &mut is_doomed);
    if !is_doomed {
        return outcome;
    }
    // It may hold what the next attempt wants.
    drop(outcome);
    run_again(core, |_| {
        let mut is_doomed = false;
        let outcome = attempt_read(core, Manner::Again, &body, &mut is_doomed);
        (!is_doomed).then_some(outcome)
    })
}

/// Waits as long as another transaction wants to run alone.
#[inline(always)]
fn wait_for_turn(core: &Core) {
    if core.wants_alone.load(Ordering::Acquire) {
        wait_for_who_is_alone(core);
    }
}

#[cold]
fn wait_for_who_is_alone(core: &Core) {
    drop(core.alone.lock());
}

#[cold]
fn run_again<T>(core: &Core, attempt: impl Fn(u32) -> Option<T>) -> T {
    let mut backoff = Backoff::new();
    let mut alone = None;
    loop {
        backoff.wait();
        if backoff.attempts() == ATTEMPTS_MAX {
            alone = Some(Alone::begin(core));
        }
        if alone.is_none() {
            wait_for_turn(core);
        }
        if let Some(outcome) = attempt(backoff.attempts()) {
            return outcome;
        }
    }
}

/// One attempt to read, which has nothing to give back. What it says when it is doomed means nothing.
#[inline(always)]
fn attempt_read<O, E: From<Error>>(
    core: &Core,
    manner: Manner,
    body: &impl Fn(&Running<'_>) -> Result<O, E>,
    is_doomed: &mut bool,
) -> Result<O, E> {
    let _pin = core.pool.pin_briefly();
    let state = State::begin(core, false, manner, seems_quiet);
    let outcome = current::enter(core, &state, body);
    LAST_SEEN.set(state.rv.get());
    if manner != Manner::Trusting {
        state.forget_reads();
    }
    *is_doomed = state.cares(Care::DOOMED);
    outcome
}

/// One attempt to write. What it says when it has `missed` means nothing.
///
/// Little is stored between the commit's fence and what the next transaction of the thread reads first: stores that follow a fence wait for it, and
/// when there is no room for one more the processor waits with them. So no function is called here that could be without, and a value is
/// returned by itself, not with all bytes that an error would have.
#[inline(always)]
fn attempt<O, E: From<Error>>(
    core: &Core,
    manner: Manner,
    body: &impl Fn(&Running<'_>) -> Result<O, E>,
    missed: &mut Option<Missed>,
) -> Result<O, E> {
    let _pin = core.pool.pin_briefly();
    let mut ending = Ending { core, state: State::begin(core, true, manner, seems_quiet) };
    match current::enter(core, &ending.state, body) {
        outcome if ending.state.cares(Care::DOOMED) => {
            *missed = Some(Missed::by(&ending.state));
            outcome
        }
        Err(e) => Err(e),
        Ok(value) => match commit_attempt(core, &ending.state) {
            Ok(()) => {
                ending.end();
                std::mem::forget(ending);
                Ok(value)
            }
            Err(e) => {
                if matches!(e, Error::Conflict) {
                    *missed = Some(Missed::by(&ending.state));
                }
                Err(e.into())
            }
        },
    }
}

/// Commits what an attempt has done.
#[inline(always)]
fn commit_attempt(core: &Core, state: &State) -> Result<()> {
    if state.nested_failed.get() {
        return Err(Error::NestedFailed);
    }
    let mut held = state.session.borrow_mut();
    let Some(session) = held.as_mut() else { return Ok(()) };
    commit(core, state, session)?;
    if session.dying_first != 0 || core.handles.is_busy() {
        go_on_collecting(core, state, session);
    }
    Ok(())
}

/// A bounded part of what is left of dying objects. What fails here is left for later: the transaction itself is committed.
#[cold]
fn go_on_collecting(core: &Core, state: &State, session: &mut Session) {
    let _ = collect(core, session, COLLECT_MAX);
    // These commits are the thread's own, so that it is as quiet as before. (If there are others' among them, it may be wrong once.)
    state.rv.set(core.clock.now());
}

pub(crate) fn collect_all(core: &Core) -> Result<()> {
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
