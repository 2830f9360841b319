//! The limits of a store, as its operations look at them. `limits.rs` has what is done about them.

use crate::active::Active;
use crate::error::{Error, Result};
use crate::space::Accounts;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often within the greatest age of a snapshot the current number is noted.
const SAMPLES_PER_AGE: u32 = 8;

const NONE: u64 = u64::MAX;

/// Limits of an open store ([`Store::set_limits`](crate::Store::set_limits)). None are set at first. They are
/// not kept in the pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes that old versions of all keyspaces may take, those of kept snapshots included. Beyond that, the
    /// oldest history of keyspaces goes, then the oldest open snapshots are revoked; when kept snapshots
    /// alone take as much, commits that do more than delete get [`Error::HistoryFull`].
    pub old_bytes: Option<u64>,
    /// For how long an open snapshot without a name can be read after it has stopped being the current one.
    /// Up to an eighth more. Reading it later gets [`Error::SnapshotGone`], in keyspaces that do not
    /// [retain](crate::Retention) it, and so does the commit of a transaction that reads it.
    pub snapshot_age: Option<Duration>,
    /// Bytes of keys and values that a transaction may write ([`Error::TransactionTooLarge`]).
    pub transaction_bytes: Option<u64>,
    /// For how long a transaction may be used after its first operation ([`Error::TransactionTooOld`]).
    pub transaction_age: Option<Duration>,
}

/// The limits of a store, as its operations look at them.
pub(crate) struct Limiter {
    /// Whether commits have anything to look after.
    is_on: AtomicBool,
    limits: Mutex<Limits>,
    old_bytes: AtomicU64,
    transaction_bytes: AtomicU64,
    transaction_age_ns: AtomicU64,
    /// When which number was the current one.
    samples: Mutex<VecDeque<(Instant, u64)>>,
}

impl Default for Limiter {
    fn default() -> Limiter {
        Limiter {
            is_on: AtomicBool::new(false),
            limits: Mutex::default(),
            old_bytes: NONE.into(),
            transaction_bytes: NONE.into(),
            transaction_age_ns: NONE.into(),
            samples: Mutex::default(),
        }
    }
}

impl Limiter {
    pub(crate) fn set(&self, limits: Limits) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(NONE);
        *self.limits.lock() = limits;
        self.old_bytes.store(limits.old_bytes.unwrap_or(NONE), Ordering::Relaxed);
        self.transaction_bytes.store(limits.transaction_bytes.unwrap_or(NONE), Ordering::Relaxed);
        self.transaction_age_ns.store(limits.transaction_age.map_or(NONE, nanos), Ordering::Relaxed);
        if limits.snapshot_age.is_none() {
            self.samples.lock().clear();
        }
        if limits.old_bytes.is_some() || limits.snapshot_age.is_some() {
            self.watch_over();
        }
    }

    /// The limits as they were set.
    pub(crate) fn get(&self) -> Limits {
        *self.limits.lock()
    }

    /// The bytes that old versions may take; the highest number if there is no such limit.
    pub(crate) fn old_bytes(&self) -> u64 {
        self.old_bytes.load(Ordering::Relaxed)
    }

    /// Has commits look at budgets: there is one.
    pub(crate) fn watch_over(&self) {
        self.is_on.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Refuses a transaction that has written too much.
    #[inline]
    pub(crate) fn check_bytes(&self, bytes: u64) -> Result<()> {
        let max_bytes = self.transaction_bytes.load(Ordering::Relaxed);
        if bytes <= max_bytes { Ok(()) } else { Err(Error::TransactionTooLarge { bytes, max_bytes }) }
    }

    /// The beginning of a transaction, if that matters.
    #[inline]
    pub(crate) fn begin(&self) -> Option<Instant> {
        (self.transaction_age_ns.load(Ordering::Relaxed) != NONE).then(Instant::now)
    }

    /// Refuses a transaction that is too old.
    #[inline]
    pub(crate) fn check_age(&self, begun: Option<Instant>) -> Result<()> {
        let Some(begun) = begun else { return Ok(()) };
        let (age, max_age) = (begun.elapsed(), self.transaction_age_ns.load(Ordering::Relaxed));
        if age.as_nanos() <= u128::from(max_age) {
            return Ok(());
        }
        Err(Error::TransactionTooOld { age, max_age: Duration::from_nanos(max_age) })
    }

    /// Refuses more old versions, once kept snapshots hold the budget.
    #[inline]
    pub(crate) fn check_kept(&self, accounts: &Accounts) -> Result<()> {
        let max_bytes = self.old_bytes.load(Ordering::Relaxed);
        let kept_bytes = accounts.kept_bytes();
        if kept_bytes < max_bytes { Ok(()) } else { Err(Error::HistoryFull { kept_bytes, max_bytes }) }
    }

    /// Revokes the snapshots that are too old.
    pub(crate) fn revoke_aged(&self, active: &Active) {
        let Some(age) = self.limits.lock().snapshot_age else { return };
        let now = Instant::now();
        let mut samples = self.samples.lock();
        if samples.back().is_none_or(|(last, _)| now.duration_since(*last) >= age / SAMPLES_PER_AGE) {
            samples.push_back((now, active.current()));
        }
        let is_past =
            |sample: Option<&(Instant, u64)>| sample.is_some_and(|(at, _)| now.duration_since(*at) >= age);
        while is_past(samples.get(1)) {
            samples.pop_front();
        }
        if is_past(samples.front()) {
            active.raise_floor(samples[0].1);
        }
    }
}
