//! Changes that wait for the writer's lock.

use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::collections::TryReserveError;
use std::sync::Arc;

/// The changes that wait for the writer's lock.
#[derive(Default)]
pub(super) struct Waiting(pub(super) Mutex<Vec<Request>>);

/// A waiting change, and the place for its outcome.
pub(super) struct Request {
    pub(super) change: Change,
    pub(super) outcome: Arc<Mutex<Option<Result<bool>>>>,
}

/// Changes that a thread has taken in order to make them.
pub(super) struct Group(pub(super) Vec<Request>);

impl Drop for Group {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for request in &self.0 {
                request.outcome.lock().get_or_insert(Err(Error::Abandoned));
            }
        }
    }
}

/// Withdraws a change that no writer has taken yet, if the thread that left it panics. It may panic while it
/// makes the changes of other threads.
pub(super) struct TakeBack<'w> {
    pub(super) waiting: &'w Waiting,
    pub(super) outcome: &'w Arc<Mutex<Option<Result<bool>>>>,
}

impl Drop for TakeBack<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.waiting.0.lock().retain(|request| !Arc::ptr_eq(&request.outcome, self.outcome));
        }
    }
}

/// A change of one key, which any thread can make.
pub(super) enum Change<B = Vec<u8>> {
    Put(B, B),
    Insert(B, B),
    Update(B, B),
    Swap { key: B, expected: Option<B>, new: Option<B> },
    Remove(B),
}

impl<B: AsRef<[u8]>> Change<B> {
    pub(super) fn key(&self) -> &[u8] {
        match self {
            Change::Put(key, _) | Change::Insert(key, _) | Change::Update(key, _) => key.as_ref(),
            Change::Swap { key, .. } | Change::Remove(key) => key.as_ref(),
        }
    }

    pub(super) fn to_owned(&self) -> Result<Change, TryReserveError> {
        let own = |bytes: &B| {
            let (bytes, mut copy) = (bytes.as_ref(), Vec::new());
            copy.try_reserve_exact(bytes.len())?;
            copy.extend_from_slice(bytes);
            Ok::<_, TryReserveError>(copy)
        };
        Ok(match self {
            Change::Put(key, value) => Change::Put(own(key)?, own(value)?),
            Change::Insert(key, value) => Change::Insert(own(key)?, own(value)?),
            Change::Update(key, value) => Change::Update(own(key)?, own(value)?),
            Change::Swap { key, expected, new } => Change::Swap {
                key: own(key)?,
                expected: expected.as_ref().map(own).transpose()?,
                new: new.as_ref().map(own).transpose()?,
            },
            Change::Remove(key) => Change::Remove(own(key)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_thread_that_panics_is_not_made_later() {
        let (waiting, outcome) = (Waiting::default(), Arc::new(Mutex::new(None)));
        let request = |key: u8, outcome| Request { change: Change::Remove(vec![key]), outcome };
        waiting.0.lock().push(request(1, outcome.clone()));
        waiting.0.lock().push(request(2, Arc::default()));
        let panics = std::panic::AssertUnwindSafe(|| {
            let _unless_panicking = TakeBack { waiting: &waiting, outcome: &outcome };
            panic!("a change of another thread");
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        let left: Vec<Vec<u8>> = waiting.0.lock().iter().map(|left| left.change.key().to_vec()).collect();
        assert_eq!(left, [[2]]);
    }
}
