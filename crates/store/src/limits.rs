//! Limits: of the bytes that old versions hold, of the age of snapshots, and of transactions.
//!
//! A *budget* is a number of bytes of old versions: of a keyspace ([`Retention::Within`]), or of the store
//! ([`Limits::old_bytes`]). A commit that finds one exceeded first collects what nobody needs, in a bounded
//! number of tables; commits and collections go on with that. When nothing is left to collect and the budget
//! is still exceeded, one of them *tightens* what is needed, in this order:
//!
//! 1. History goes, the oldest first: `PmKeyspace::cut` rises to the number after which three quarters of the
//!    budget became old. The word is durable before anything is collected by it, so that a snapshot before it
//!    is never taken for a whole one.
//! 2. Open snapshots without a name are revoked, the oldest first: the *floor* in `active.rs` rises. Readers
//!    look at the floor after they have read, so what they return is whole.
//! 3. Nothing is left but kept snapshots. Once these alone hold the budget, commits are refused with
//!    [`Error::HistoryFull`](crate::Error::HistoryFull), but for those that only delete.
//!
//! The age of a snapshot is the time since it stopped being current. Nobody reads a clock when a snapshot is
//! opened: commits note, eight times within the greatest age, which number is current.

use crate::commit_queue::Lead;
use crate::error::Result;
use crate::handle::{Store, StoreInner};
use crate::keyspace::Keyspace;
use crate::limiter::Limits;
use crate::retention::Retention;
use std::sync::Arc;

/// Tables that a commit looks at, when a budget is exceeded or a count is under way, before it goes on.
const RELIEF_TABLES: usize = 64;
/// Tables with versions to collect that may wait before commits collect more than they leave.
const BACKLOG_MAX: usize = 4096;
/// A commit trims the log after so many entries.
const TRIMMED_AT: u64 = 32;

impl Lead<'_> {
    /// Looks after the limits, by a bounded amount of work. To be called before commits and by collections;
    /// costs a load while there are no limits and nothing is due.
    pub(crate) fn relieve(&mut self, store: &Arc<StoreInner>) {
        // An error of this does not stop a commit: it will come again, and collections return it.
        if self.trim_log(store, TRIMMED_AT).is_err() || self.relieve_or_fail(store).is_err() {
            self.tx.roll_back();
        }
    }

    /// As [`relieve`](Self::relieve); returns whether there is more to do.
    pub(crate) fn relieve_or_fail(&mut self, store: &Arc<StoreInner>) -> Result<bool> {
        let limiter = &store.history.limits;
        let Lead { tx, left, .. } = self;
        let backlog = left.get().garbage.len();
        if backlog > BACKLOG_MAX {
            // All that came since the last commit, and some more.
            left.get().collect_garbage(tx, store, backlog - BACKLOG_MAX + RELIEF_TABLES)?;
        }
        if !limiter.is_on() {
            return Ok(false);
        }
        limiter.revoke_aged(&store.active);
        if limiter.old_bytes() == u64::MAX && budgets(store).is_empty() {
            return Ok(false);
        }
        store.history.accounts.begin(&store.active);
        let is_counting = store.count_on(RELIEF_TABLES)?;
        if !is_exceeded(store) {
            return Ok(is_counting);
        }
        let Lead { tx, left, .. } = self;
        if left.get().collect_part(tx, store, RELIEF_TABLES)? || is_counting {
            return Ok(true);
        }
        Ok(is_exceeded(store) && self.tighten(store)?)
    }

    /// Makes less of the history needed; returns whether there was anything to give up.
    fn tighten(&mut self, store: &Arc<StoreInner>) -> Result<bool> {
        let accounts = &store.history.accounts;
        let mut has_cut = false;
        for (keyspace, max_bytes) in budgets(store) {
            let id = keyspace.inner.id;
            if accounts.unkept_bytes(id) > max_bytes
                && let Some(cut) = accounts.cut(&[id], max_bytes / 4 * 3)
            {
                has_cut |= self.cut(store, &keyspace, cut)?;
            }
        }
        let max_bytes = store.history.limits.old_bytes();
        if accounts.old_bytes() > max_bytes {
            let mut keyspaces = Vec::new();
            for name in store.keyspace_names()? {
                let keyspace = store.find(&name)?;
                keyspaces.extend(keyspace.filter(|keyspace| keyspace.retention() != Retention::None));
            }
            let ids: Vec<u64> = keyspaces.iter().map(|keyspace| keyspace.inner.id).collect();
            // The others are held by snapshots.
            let others = accounts.old_bytes() - ids.iter().map(|id| accounts.unkept_bytes(*id)).sum::<u64>();
            if let Some(cut) = accounts.cut(&ids, (max_bytes / 4 * 3).saturating_sub(others)) {
                for keyspace in &keyspaces {
                    has_cut |= self.cut(store, keyspace, cut)?;
                }
            }
            if !has_cut && store.active.revoke_oldest() {
                has_cut = true;
            }
        }
        if has_cut {
            self.left.get().walks.begin(store.active.current_alone());
        }
        Ok(has_cut)
    }

    /// Gives up a keyspace's history before a number; returns whether there was any.
    fn cut(&mut self, store: &StoreInner, keyspace: &Keyspace, cut: u64) -> Result<bool> {
        // The current snapshot stays.
        let cut = cut.min(store.active.current_alone());
        if keyspace.inner.cut() >= cut {
            return Ok(false);
        }
        keyspace.inner.set_cut(&mut self.tx, cut)?;
        self.tx.commit_and_begin()?;
        keyspace.inner.note_cut(cut);
        Ok(true)
    }
}

/// The keyspaces that have a budget of their own.
fn budgets(store: &StoreInner) -> Vec<(Keyspace, u64)> {
    let open = store.open_keyspaces().into_iter();
    open.filter_map(|keyspace| match keyspace.retention() {
        Retention::Within(bytes) => Some((keyspace, bytes)),
        _ => None,
    })
    .collect()
}

/// Whether a budget is exceeded.
fn is_exceeded(store: &StoreInner) -> bool {
    let accounts = &store.history.accounts;
    accounts.old_bytes() > store.history.limits.old_bytes()
        || budgets(store).iter().any(|(keyspace, bytes)| accounts.unkept_bytes(keyspace.inner.id) > *bytes)
}

impl Store {
    /// Sets the limits of the store, from now on, in place of those before. With [`Limits::old_bytes`] the
    /// store [counts](Self::space) its space first, in passing.
    pub fn set_limits(&self, limits: Limits) {
        // Under the lock of commits, so that a commit is made under one set of limits.
        let _lead = self.inner.commits.hold();
        self.inner.history.limits.set(limits);
    }

    /// The limits of the store.
    pub fn limits(&self) -> Limits {
        self.inner.history.limits.get()
    }
}
