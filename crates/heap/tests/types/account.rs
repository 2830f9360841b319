//! A type whose fields are seen from different places.

use tembo_heap::{Brand, Obj, Persist, Result, Tx};

/// Its owner is known to all, its balance changes here only.
#[derive(Default, Persist)]
#[repr(C)]
pub(crate) struct Account {
    pub owner: u64,
    pub(crate) branch: u16,
    pub(super) limit: i64,
    pub(in crate::account) notes: u8,
    balance: i64,
}

pub(crate) fn pay<'t, B: Brand>(tx: &mut Tx<'t, B>, account: Obj<'t, B, Account>, sum: i64) -> Result<i64> {
    *tx.get_mut(account.balance())? -= sum;
    *tx.get_mut(account.notes())? += 1;
    tx.get(account.balance())
}
