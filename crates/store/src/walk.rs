//! Walks over the tables of a store, which find what the queue of garbage does not lead to.
//!
//! A walk has a reason: an earlier process may have left garbage; a kept snapshot was deleted, or a keyspace
//! retains less than before; or time has passed that a keyspace retains versions for. A store without any
//! has no walk, and its commits do nothing for one.
//!
//! An open snapshot that is older than the reason may hold versions past the end of a walk. Nobody would look
//! at them again, so another walk follows when all such snapshots are closed.

use crate::active::Asked;
use crate::error::Result;
use crate::garbage::{Walk, Walks};
use crate::handle::{StoreInner, word};
use crate::keyspace::Keyspace;
use crate::retention::Retention;
use crate::space::Tally;
use crate::table_writer::collect_key;
use crate::versions::Table;
use std::ops::Bound;
use std::sync::Weak;
use std::time::Duration;
use tembo_pool::{KeptSpace, Tx};

/// A walk looks at so many tables for each one that it may collect in.
const LOOKS_PER_TABLE: usize = 4;

impl Walks {
    /// Goes on with the walk, or begins one if there is a reason; looks for tables in which there may be
    /// something to collect, and collects in up to `tables` of them. Returns whether there is more to do.
    pub(crate) fn go_on(&mut self, tx: &mut Tx<'_>, store: &StoreInner, tables: usize) -> Result<bool> {
        let needed = Asked::new(&store.active);
        let Some(at) = self.under_way(&needed) else { return Ok(false) };
        if at.is_at_start() {
            self.note_start(shortest_window(store)?);
        }
        let accounts = &store.history.accounts;
        let tally = accounts.tally();
        let (at, is_at_end) = walk_on(tx, store, at, &needed, tables, &tally)?;
        tx.use_kept_space(KeptSpace::None);
        tx.commit_and_begin()?;
        accounts.enter(&tally);
        self.move_to(at, is_at_end);
        Ok(!is_at_end)
    }
}

/// The shortest time that a keyspace retains.
fn shortest_window(store: &StoreInner) -> Result<Option<Duration>> {
    let mut shortest = None;
    let mut names = store.names.iter();
    while let Some((name, off)) = names.advance()? {
        let name = String::from_utf8_lossy(name);
        let keyspace = Keyspace::open(&store.pool, Weak::new(), &name, word(off)?)?;
        if let Retention::For(time) = keyspace.retention() {
            shortest = Some(shortest.map_or(time, |shortest: Duration| shortest.min(time)));
        }
    }
    Ok(shortest)
}

/// Looks at some tables; returns where it got to, and whether that is the end.
fn walk_on(
    tx: &mut Tx<'_>,
    store: &StoreInner,
    mut at: Walk,
    needed: &Asked<'_>,
    tables: usize,
    tally: &Tally,
) -> Result<(Walk, bool)> {
    let (mut looks, mut left) = (tables.saturating_mul(LOOKS_PER_TABLE), tables);
    let from = at.keyspace.clone().into_bytes();
    let mut names = store.names.range((Bound::Included(from), Bound::Unbounded));
    while let Some((name, off)) = names.advance()? {
        let (name, off) = (String::from_utf8_lossy(name), word(off)?);
        if name != at.keyspace {
            (at.keyspace, at.key) = (name.clone().into_owned(), None);
        }
        let keyspace = Keyspace::open(&store.pool, Weak::new(), &name, off)?;
        if !at.has(&keyspace) {
            continue;
        }
        let (found, is_at_end) = look(&keyspace, &mut at.key, tx, &mut looks, left)?;
        at.is_held |= !found.is_empty() && needed.needed().first_read() < at.since;
        left -= found.len();
        for key in found {
            collect_key(tx, &store.history.accounts, (&keyspace.inner, &key), needed, tally)?;
        }
        if !is_at_end {
            return Ok((at, false));
        }
    }
    Ok((at, true))
}

/// Looks at up to `looks` tables of a keyspace after a key, which moves; returns the keys of up to `most` in
/// which there may be something to collect, and whether the keyspace has no more.
fn look(
    keyspace: &Keyspace,
    after: &mut Option<Vec<u8>>,
    tx: &Tx<'_>,
    looks: &mut usize,
    most: usize,
) -> Result<(Vec<Vec<u8>>, bool)> {
    let from = after.clone().map_or(Bound::Unbounded, Bound::Excluded);
    let mut rest = keyspace.inner.index.range((from, Bound::Unbounded));
    let mut found = Vec::new();
    loop {
        if *looks == 0 || found.len() == most {
            return Ok((found, false));
        }
        let Some((key, place)) = rest.advance_place()? else { return Ok((found, true)) };
        *looks -= 1;
        // A key that has but one value is what most are.
        if !Table::at(place)?.has_one_value(tx)? {
            found.push(key.to_vec());
        }
        if *looks == 0 || found.len() == most {
            *after = Some(key.to_vec());
        }
    }
}
