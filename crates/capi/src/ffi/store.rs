//! Stores: keyspaces, transactions and snapshots.

use super::args::{
    self, assert_shared, bytes, check_buffer, check_length, check_out, creates, give, map_name, put_out,
    required, string, take_back,
};
use super::cancel::call_uncancelled;
use super::map::{RecordSize, copy_out};
use super::pool::PoolHandle;
use crate::status::{Failure, Outcome, Status, call};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};
use tembo::MAX_KEY_BYTES;
use tembo::store::{Entries, Keyspace, Snapshot, Store, Transaction};

/// `tembo_store`
#[derive(Debug)]
pub struct StoreHandle(pub(super) Store);

/// `tembo_keyspace`
#[derive(Debug)]
pub struct KeyspaceHandle(pub(super) Keyspace);

/// `tembo_transaction`. The lock is for callers who break the rule of one thread at a time.
#[derive(Debug)]
pub struct TransactionHandle(Mutex<Transaction>);

/// `tembo_snapshot`
#[derive(Debug)]
pub struct SnapshotHandle(pub(super) Snapshot);

const _: () = assert_shared::<StoreHandle>();
const _: () = assert_shared::<KeyspaceHandle>();
const _: () = assert_shared::<TransactionHandle>();
const _: () = assert_shared::<SnapshotHandle>();

/// A flag of `tembo_transaction_begin`.
const SERIALIZABLE: c_uint = 1;
/// The longest name of a keyspace or a kept snapshot.
const NAME_BYTES: usize = 256;

type Part = (*const c_void, usize);

/// A name of a keyspace or a snapshot.
///
/// # Safety
///
/// As for [`string`].
pub(super) unsafe fn name_of<'a>(pointer: *const c_char) -> Outcome<&'a str> {
    // SAFETY: the caller's promise.
    let name = unsafe { string(pointer, NAME_BYTES, "name") }?;
    name.to_str().map_err(|e| Failure::invalid(&format!("name is not UTF-8: {e}")))
}

/// A key; one that is too long is refused unread.
///
/// # Safety
///
/// As for [`bytes`].
pub(super) unsafe fn key_of<'a>((pointer, length): Part) -> Outcome<&'a [u8]> {
    check_length(length, 1, "key")?;
    if length as u64 > MAX_KEY_BYTES {
        return Err(tembo::Error::KeyTooLong { bytes: length as u64, max_bytes: MAX_KEY_BYTES }.into());
    }
    // SAFETY: the caller's promise.
    unsafe { bytes(pointer, length, "key") }
}

/// A bound of a range. No key is longer than the maximum, so the first bytes of a longer one decide.
///
/// # Safety
///
/// As for [`bytes`].
unsafe fn bound<'a>((pointer, length): Part, what: &str) -> Outcome<&'a [u8]> {
    check_length(length, 1, what)?;
    // SAFETY: the caller's promise.
    unsafe { bytes(pointer, length.min(MAX_KEY_BYTES as usize + 1), what) }
}

/// `tembo_store_open`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_store_open(
    pool: *mut PoolHandle,
    name: *const c_char,
    flags: c_uint,
    store: *mut *mut StoreHandle,
) -> c_int {
    call_uncancelled(|| {
        check_out(store, "store")?;
        // SAFETY: the caller's promise, for both.
        let (pool, name) = unsafe { (&required(pool, "pool")?.pool, map_name(name)?) };
        let opened = if creates(flags)? {
            pool.open_store(name)?
        } else {
            pool.find_store(name)?.ok_or(Failure::STORE_ABSENT)?
        };
        // SAFETY: checked above.
        unsafe { give(store, StoreHandle(opened)) };
        Ok(())
    })
}

/// `tembo_store_close`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_store_close(store: *mut StoreHandle) {
    call_uncancelled(|| {
        // SAFETY: the caller's promise.
        unsafe { take_back(store) };
        Ok(())
    });
}

/// `tembo_store_collect`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_store_collect(
    store: *mut StoreHandle,
    tables: usize,
    is_left: *mut c_int,
) -> c_int {
    call(|| {
        check_out(is_left, "is_left")?;
        // SAFETY: the caller's promise.
        let left = unsafe { required(store, "store") }?.0.collect(tables)?;
        // SAFETY: checked above.
        unsafe { put_out(is_left, c_int::from(left)) };
        Ok(())
    })
}

/// `tembo_keyspace_open`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_keyspace_open(
    store: *mut StoreHandle,
    name: *const c_char,
    flags: c_uint,
    keyspace: *mut *mut KeyspaceHandle,
) -> c_int {
    call_uncancelled(|| {
        check_out(keyspace, "keyspace")?;
        // SAFETY: the caller's promise, for both.
        let (store, name) = unsafe { (&required(store, "store")?.0, name_of(name)?) };
        let opened = if creates(flags)? {
            store.keyspace(name)?
        } else {
            store.find_keyspace(name)?.ok_or(Failure::KEYSPACE_ABSENT)?
        };
        // SAFETY: checked above.
        unsafe { give(keyspace, KeyspaceHandle(opened)) };
        Ok(())
    })
}

/// `tembo_keyspace_close`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_keyspace_close(keyspace: *mut KeyspaceHandle) {
    call_uncancelled(|| {
        // SAFETY: the caller's promise.
        unsafe { take_back(keyspace) };
        Ok(())
    });
}

/// `tembo_keyspace_drop`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_keyspace_drop(store: *mut StoreHandle, name: *const c_char) -> c_int {
    call(|| {
        // SAFETY: the caller's promise, for both.
        let (store, name) = unsafe { (&required(store, "store")?.0, name_of(name)?) };
        if store.drop_keyspace(name)? { Ok(()) } else { Err(Failure::KEYSPACE_ABSENT) }
    })
}

/// `tembo_transaction_begin`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_transaction_begin(
    store: *const StoreHandle,
    snapshot: *const SnapshotHandle,
    flags: c_uint,
    transaction: *mut *mut TransactionHandle,
) -> c_int {
    call_uncancelled(|| {
        check_out(transaction, "transaction")?;
        // SAFETY: the caller's promise, for both.
        let (store, snapshot) = unsafe { (&required(store, "store")?.0, snapshot.as_ref()) };
        let begun = match (flags, snapshot) {
            (0, None) => store.begin(),
            (0, Some(snapshot)) => store.begin_at(&snapshot.0)?,
            (SERIALIZABLE, None) => store.begin_serializable(),
            (SERIALIZABLE, Some(_)) => {
                return Err(Failure::invalid("a serializable transaction begins at the current snapshot"));
            }
            (flags, _) => {
                return Err(Failure::invalid(&format!(
                    "unknown flags {flags:#x}; there is TEMBO_SERIALIZABLE"
                )));
            }
        };
        // SAFETY: checked above.
        unsafe { give(transaction, TransactionHandle(Mutex::new(begun))) };
        Ok(())
    })
}

/// Runs `body` with a transaction and a keyspace.
///
/// # Safety
///
/// As for all functions of the module above.
unsafe fn within(
    transaction: *mut TransactionHandle,
    keyspace: *const KeyspaceHandle,
    body: impl FnOnce(&mut Transaction, &Keyspace) -> Outcome,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise, for both.
        let (transaction, keyspace) =
            unsafe { (required(transaction, "transaction")?, required(keyspace, "keyspace")?) };
        body(&mut transaction.0.lock().unwrap_or_else(PoisonError::into_inner), &keyspace.0)
    })
}

/// `tembo_transaction_get`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_transaction_get(
    transaction: *mut TransactionHandle,
    keyspace: *const KeyspaceHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *mut c_void,
    capacity: usize,
    value_bytes: *mut usize,
) -> c_int {
    let body = |transaction: &mut Transaction, keyspace: &Keyspace| {
        // SAFETY: the caller's promise.
        let key = unsafe { key_of((key, key_bytes)) }?;
        // SAFETY: the caller's promise.
        unsafe { give_value((value, capacity, value_bytes), || Ok(transaction.get(keyspace, key)?)) }
    };
    // SAFETY: the caller's promise.
    unsafe { within(transaction, keyspace, body) }
}

/// Copies a value to the caller.
///
/// # Safety
///
/// As for all functions of the module above.
unsafe fn give_value(
    (value, capacity, value_bytes): (*mut c_void, usize, *mut usize),
    get: impl FnOnce() -> Outcome<Option<Vec<u8>>>,
) -> Outcome {
    check_out(value_bytes, "value_bytes")?;
    check_buffer(value, capacity, "value")?;
    let found = get()?.ok_or(Failure::VALUE_ABSENT)?;
    // SAFETY: checked above.
    unsafe { put_out(value_bytes, found.len()) };
    if found.len() > capacity {
        return Err(Failure::fixed(Status::TooSmall, c"the value is longer than the buffer"));
    }
    // SAFETY: there is room for `capacity` bytes.
    unsafe { copy_out(&found, value.cast()) };
    Ok(())
}

/// `tembo_transaction_put`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_transaction_put(
    transaction: *mut TransactionHandle,
    keyspace: *const KeyspaceHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    let body = |transaction: &mut Transaction, keyspace: &Keyspace| {
        // SAFETY: the caller's promise, for both.
        let (key, value) = unsafe { (key_of((key, key_bytes))?, args::value_bytes(value, value_bytes)?) };
        Ok(transaction.put(keyspace, key, value)?)
    };
    // SAFETY: the caller's promise.
    unsafe { within(transaction, keyspace, body) }
}

/// `tembo_transaction_delete`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_transaction_delete(
    transaction: *mut TransactionHandle,
    keyspace: *const KeyspaceHandle,
    key: *const c_void,
    key_bytes: usize,
) -> c_int {
    let body = |transaction: &mut Transaction, keyspace: &Keyspace| {
        // SAFETY: the caller's promise.
        let key = unsafe { key_of((key, key_bytes)) }?;
        Ok(transaction.delete(keyspace, key)?)
    };
    // SAFETY: the caller's promise.
    unsafe { within(transaction, keyspace, body) }
}

/// `tembo_transaction_delete_range`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_transaction_delete_range(
    transaction: *mut TransactionHandle,
    keyspace: *const KeyspaceHandle,
    from: *const c_void,
    from_bytes: usize,
    to: *const c_void,
    to_bytes: usize,
    deleted: *mut u64,
) -> c_int {
    let body = |transaction: &mut Transaction, keyspace: &Keyspace| {
        // SAFETY: the caller's promise, for both.
        let range = unsafe {
            (
                Bound::Included(bound((from, from_bytes), "from")?),
                Bound::Excluded(bound((to, to_bytes), "to")?),
            )
        };
        let count = transaction.delete_range::<&[u8]>(keyspace, range)?;
        if !deleted.is_null() {
            // SAFETY: not null, and the caller's promise.
            unsafe { put_out(deleted, count) };
        }
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { within(transaction, keyspace, body) }
}

/// Where the records of a scan go.
struct Page {
    buffer: *mut c_void,
    capacity: usize,
    sizes: *mut RecordSize,
    count: *mut usize,
}

impl Page {
    fn check(&self) -> Outcome {
        check_out(self.count, "count")?;
        check_buffer(self.buffer, self.capacity, "buffer")
    }

    /// Copies up to `limit` records.
    ///
    /// # Safety
    ///
    /// The page was checked, and `sizes` is null or has room for `limit`.
    unsafe fn fill(&self, entries: Entries, limit: usize) -> Outcome {
        let (mut used, mut copied, mut fits) = (0, 0, true);
        for entry in entries.take(limit) {
            let (key, value) = entry?;
            fits = key.len() + value.len() <= self.capacity - used;
            if !fits {
                break;
            }
            // SAFETY: both fit into what is left of the buffer.
            unsafe {
                copy_out(&key, self.buffer.cast::<u8>().wrapping_add(used));
                copy_out(&value, self.buffer.cast::<u8>().wrapping_add(used + key.len()));
            }
            if !self.sizes.is_null() {
                let size = RecordSize { key_bytes: key.len(), value_bytes: value.len() };
                // SAFETY: there is room for `limit` of them.
                unsafe { put_out(self.sizes.add(copied), size) };
            }
            used += key.len() + value.len();
            copied += 1;
        }
        // SAFETY: checked by the caller.
        unsafe { put_out(self.count, copied) };
        if fits {
            return Ok(());
        }
        Err(Failure::fixed(Status::TooSmall, c"the next record does not fit into the buffer"))
    }
}

/// `tembo_transaction_scan`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_transaction_scan(
    transaction: *mut TransactionHandle,
    keyspace: *const KeyspaceHandle,
    from: *const c_void,
    from_bytes: usize,
    limit: usize,
    buffer: *mut c_void,
    capacity: usize,
    sizes: *mut RecordSize,
    count: *mut usize,
) -> c_int {
    let page = Page { buffer, capacity, sizes, count };
    let body = |transaction: &mut Transaction, keyspace: &Keyspace| {
        page.check()?;
        // SAFETY: the caller's promise.
        let from = unsafe { bound((from, from_bytes), "from") }?;
        // SAFETY: checked above.
        unsafe { page.fill(transaction.range(keyspace, from..)?, limit) }
    };
    // SAFETY: the caller's promise.
    unsafe { within(transaction, keyspace, body) }
}

/// `tembo_transaction_commit`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_transaction_commit(
    transaction: *mut TransactionHandle,
    number: *mut u64,
) -> c_int {
    call_uncancelled(|| {
        // SAFETY: the caller's promise.
        unsafe { required(transaction, "transaction") }?;
        // SAFETY: it came from `give`, and the caller does not use it again.
        let transaction = unsafe { Box::from_raw(transaction) };
        let committed = transaction.0.into_inner().unwrap_or_else(PoisonError::into_inner).commit()?;
        if !number.is_null() {
            // SAFETY: not null, and the caller's promise.
            unsafe { put_out(number, committed) };
        }
        Ok(())
    })
}

/// `tembo_transaction_abort`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_transaction_abort(transaction: *mut TransactionHandle) {
    call_uncancelled(|| {
        // SAFETY: the caller's promise.
        unsafe { take_back(transaction) };
        Ok(())
    });
}

/// `tembo_snapshot_open`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_snapshot_open(
    store: *const StoreHandle,
    number: u64,
    snapshot: *mut *mut SnapshotHandle,
) -> c_int {
    call_uncancelled(|| {
        check_out(snapshot, "snapshot")?;
        // SAFETY: the caller's promise.
        let store = &unsafe { required(store, "store") }?.0;
        let opened = if number == u64::MAX { store.snapshot() } else { store.at(number)? };
        // SAFETY: checked above.
        unsafe { give(snapshot, SnapshotHandle(opened)) };
        Ok(())
    })
}

/// `tembo_snapshot_open_named`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_snapshot_open_named(
    store: *const StoreHandle,
    name: *const c_char,
    snapshot: *mut *mut SnapshotHandle,
) -> c_int {
    call_uncancelled(|| {
        check_out(snapshot, "snapshot")?;
        // SAFETY: the caller's promise, for both.
        let (store, name) = unsafe { (&required(store, "store")?.0, name_of(name)?) };
        // SAFETY: checked above.
        unsafe { give(snapshot, SnapshotHandle(store.at_name(name)?)) };
        Ok(())
    })
}

/// `tembo_snapshot_close`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_snapshot_close(snapshot: *mut SnapshotHandle) {
    call_uncancelled(|| {
        // SAFETY: the caller's promise.
        unsafe { take_back(snapshot) };
        Ok(())
    });
}

/// `tembo_snapshot_number`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_snapshot_number(snapshot: *const SnapshotHandle, number: *mut u64) -> c_int {
    call(|| {
        check_out(number, "number")?;
        // SAFETY: the caller's promise.
        let snapshot = unsafe { required(snapshot, "snapshot") }?;
        // SAFETY: checked above.
        unsafe { put_out(number, snapshot.0.number()) };
        Ok(())
    })
}

/// `tembo_snapshot_get`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_snapshot_get(
    snapshot: *const SnapshotHandle,
    keyspace: *const KeyspaceHandle,
    key: *const c_void,
    key_bytes: usize,
    value: *mut c_void,
    capacity: usize,
    value_bytes: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise, for all three.
        let (snapshot, keyspace, key) = unsafe {
            (
                &required(snapshot, "snapshot")?.0,
                &required(keyspace, "keyspace")?.0,
                key_of((key, key_bytes))?,
            )
        };
        // SAFETY: the caller's promise.
        unsafe { give_value((value, capacity, value_bytes), || Ok(snapshot.get(keyspace, key)?)) }
    })
}

/// `tembo_snapshot_scan`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_snapshot_scan(
    snapshot: *const SnapshotHandle,
    keyspace: *const KeyspaceHandle,
    from: *const c_void,
    from_bytes: usize,
    limit: usize,
    buffer: *mut c_void,
    capacity: usize,
    sizes: *mut RecordSize,
    count: *mut usize,
) -> c_int {
    let page = Page { buffer, capacity, sizes, count };
    call(|| {
        page.check()?;
        // SAFETY: the caller's promise, for all three.
        let (snapshot, keyspace, from) = unsafe {
            (
                &required(snapshot, "snapshot")?.0,
                &required(keyspace, "keyspace")?.0,
                bound((from, from_bytes), "from")?,
            )
        };
        // SAFETY: checked above.
        unsafe { page.fill(snapshot.range(keyspace, from..)?, limit) }
    })
}
