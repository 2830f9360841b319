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

/// Withdraws a change that nobody has taken yet if the thread that left it panics, as a thread does that
/// already has the writer's lock.
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
