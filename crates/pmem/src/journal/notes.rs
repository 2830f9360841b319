//! The lines that a thread flushed and has not fenced yet.
//!
//! A fence makes the write-backs of its own thread durable, so each thread has a list, of which no other one
//! knows.

use super::layout::Runs;
use std::cell::RefCell;
use std::sync::{Arc, Weak};

struct Noted {
    /// The journal's identity. Its address is not used again while this is here.
    of: Weak<()>,
    runs: Runs,
    /// Fences of this thread do not wait.
    puts_off: bool,
}

thread_local! {
    /// A thread rarely uses more than one journal.
    static NOTED: RefCell<Vec<Noted>> = const { RefCell::new(Vec::new()) };
}

fn with_noted<R>(noted: &mut Vec<Noted>, identity: &Arc<()>, f: impl FnOnce(&mut Noted) -> R) -> R {
    let at = noted.iter().position(|noted| noted.of.as_ptr() == Arc::as_ptr(identity));
    let at = at.unwrap_or_else(|| {
        noted.retain(|noted| noted.of.strong_count() > 0);
        noted.push(Noted { of: Arc::downgrade(identity), runs: Runs::new(), puts_off: false });
        noted.len() - 1
    });
    f(&mut noted[at])
}

/// Notes lines; `false` if this thread is ending and has no list any more.
pub(super) fn note(identity: &Arc<()>, first_line: u64, lines: u64) -> bool {
    let noted = NOTED.try_with(|noted| {
        with_noted(&mut noted.borrow_mut(), identity, |noted| match noted.runs.last_mut() {
            Some((first, count)) if *first <= first_line && first_line <= *first + *count => {
                *count = (*count).max(first_line + lines - *first);
            }
            _ => noted.runs.push((first_line, lines)),
        });
    });
    noted.is_ok()
}

/// Takes the notes of this thread, and whether its fences do not wait; `None` if it is ending and has no list
/// any more.
pub(super) fn take(identity: &Arc<()>) -> Option<(Runs, bool)> {
    let taken = NOTED.try_with(|noted| {
        with_noted(&mut noted.borrow_mut(), identity, |noted| {
            (std::mem::take(&mut noted.runs), noted.puts_off)
        })
    });
    taken.ok()
}

/// Sets whether fences of this thread do not wait.
pub(super) fn put_off(identity: &Arc<()>, puts_off: bool) {
    let _ = NOTED.try_with(|noted| {
        with_noted(&mut noted.borrow_mut(), identity, |noted| noted.puts_off = puts_off);
    });
}

/// The id of this thread, also while it is ending.
pub(super) fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Gives the emptied list back, for its memory.
pub(super) fn give_back(identity: &Arc<()>, mut emptied: Runs) {
    const KEPT_MAX: usize = 4096;
    if emptied.capacity() <= KEPT_MAX {
        emptied.clear();
        let _ = NOTED.try_with(|noted| {
            with_noted(&mut noted.borrow_mut(), identity, |noted| noted.runs = emptied);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_those_of_a_thread_and_of_a_journal() {
        let (one, other) = (Arc::new(()), Arc::new(()));
        assert!(note(&one, 5, 1) && note(&one, 6, 2) && note(&other, 9, 1) && note(&one, 3, 1));
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(take(&one), Some((vec![], false))));
        });
        put_off(&one, true);
        assert_eq!(take(&one), Some((vec![(5, 3), (3, 1)], true)));
        assert_eq!((take(&one), take(&other)), (Some((vec![], true)), Some((vec![(9, 1)], false))));
    }

    #[test]
    fn notes_of_journals_that_are_gone_do_not_gather() {
        for _ in 0..100 {
            let gone = Arc::new(());
            note(&gone, 1, 1);
        }
        assert!(NOTED.with_borrow(|noted| noted.len()) <= 2);
    }
}
