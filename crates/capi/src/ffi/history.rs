//! The past of a store: versions of a key, kept snapshots, and what keyspaces retain.

use super::args::{check_buffer, check_out, put_out, required};
use super::cancel::call_uncancelled;
use super::map::copy_out;
use super::store::{KeyspaceHandle, SnapshotHandle, StoreHandle, key_of, name_of};
use crate::status::{Failure, Outcome, Status, call};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::time::Duration;
use tembo::store::Retention;

/// `TEMBO_DELETED`: the length of the value of a version that has none.
pub const DELETED: u64 = u64::MAX;
/// Room for a name of 256 bytes and a zero behind it.
pub const KEPT_NAME_ROOM: usize = 260;

/// `tembo_version_info`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct VersionInfo {
    /// The number of the commit that wrote it.
    pub number: u64,
    /// The length of its value, or [`DELETED`].
    pub value_bytes: u64,
}

/// `tembo_kept`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct KeptSnapshot {
    /// Its number.
    pub number: u64,
    /// The length of its name; 0 for one that is kept by its number alone.
    pub name_bytes: u32,
    /// The name, with zeros behind it.
    pub name: [u8; KEPT_NAME_ROOM],
}

/// `tembo_key_versions`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_key_versions(
    store: *const StoreHandle,
    keyspace: *const KeyspaceHandle,
    key: *const c_void,
    key_bytes: usize,
    newest: u64,
    limit: usize,
    buffer: *mut c_void,
    capacity: usize,
    versions: *mut VersionInfo,
    count: *mut usize,
) -> c_int {
    call(|| {
        check_out(count, "count")?;
        check_buffer(buffer, capacity, "buffer")?;
        check_buffer(versions, limit, "versions")?;
        // SAFETY: the caller's promise, for all three.
        let (store, keyspace, key) = unsafe {
            (&required(store, "store")?.0, &required(keyspace, "keyspace")?.0, key_of((key, key_bytes))?)
        };
        let found = store.versions(keyspace, key)?;
        let (mut used, mut copied, mut fits) = (0, 0, true);
        for version in found.into_iter().filter(|version| version.number <= newest).take(limit) {
            let value = version.value.as_deref();
            let value_bytes = value.map_or(DELETED, |value| value.len() as u64);
            // SAFETY: there is room for `limit` of them.
            unsafe { put_out(versions.add(copied), VersionInfo { number: version.number, value_bytes }) };
            let value = value.unwrap_or_default();
            fits = value.len() <= capacity - used;
            if !fits {
                break;
            }
            // SAFETY: it fits into what is left of the buffer.
            unsafe { copy_out(value, buffer.cast::<u8>().wrapping_add(used)) };
            used += value.len();
            copied += 1;
        }
        // SAFETY: checked above.
        unsafe { put_out(count, copied) };
        if fits {
            return Ok(());
        }
        Err(Failure::fixed(Status::TooSmall, c"the value of the next version does not fit into the buffer"))
    })
}

/// `tembo_snapshot_list`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_snapshot_list(
    store: *const StoreHandle,
    skip: usize,
    limit: usize,
    kept: *mut KeptSnapshot,
    count: *mut usize,
) -> c_int {
    call(|| {
        check_out(count, "count")?;
        check_buffer(kept, limit, "kept")?;
        // SAFETY: the caller's promise.
        let all = unsafe { required(store, "store") }?.0.kept()?;
        let mut copied = 0;
        for one in all.iter().skip(skip).take(limit) {
            let bytes = one.name.as_deref().unwrap_or_default().as_bytes();
            let mut name = [0; KEPT_NAME_ROOM];
            name[..bytes.len()].copy_from_slice(bytes);
            let listed = KeptSnapshot { number: one.number, name_bytes: bytes.len() as u32, name };
            // SAFETY: there is room for `limit` of them.
            unsafe { put_out(kept.add(copied), listed) };
            copied += 1;
        }
        // SAFETY: checked above.
        unsafe { put_out(count, copied) };
        Ok(())
    })
}

/// `tembo_snapshot_keep`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_snapshot_keep(
    store: *mut StoreHandle,
    snapshot: *const SnapshotHandle,
    name: *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise, for all three.
        let (store, snapshot, name) =
            unsafe { (&required(store, "store")?.0, &required(snapshot, "snapshot")?.0, name_of(name)?) };
        Ok(store.keep(snapshot.number(), name)?)
    })
}

/// `tembo_snapshot_keep_number`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_snapshot_keep_number(store: *mut StoreHandle, number: u64) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let is_new = unsafe { required(store, "store") }?.0.keep_number(number)?;
        let exists = || Failure::fixed(Status::Exists, c"the snapshot is kept by its number already");
        if is_new { Ok(()) } else { Err(exists()) }
    })
}

/// `tembo_snapshot_delete`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_snapshot_delete(store: *mut StoreHandle, name: *const c_char) -> c_int {
    call(|| {
        // SAFETY: the caller's promise, for both.
        let (store, name) = unsafe { (&required(store, "store")?.0, name_of(name)?) };
        Ok(store.delete_kept(name)?)
    })
}

/// `tembo_snapshot_delete_number`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_snapshot_delete_number(store: *mut StoreHandle, number: u64) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let was_there = unsafe { required(store, "store") }?.0.delete_number(number)?;
        let absent = || Failure::fixed(Status::NotFound, c"no snapshot is kept by this number alone");
        if was_there { Ok(()) } else { Err(absent()) }
    })
}

/// A retention, from a `tembo_retention` and its amount.
fn retention_of(kind: c_uint, amount: u64) -> Outcome<Retention> {
    let count = u32::try_from(amount).ok().filter(|count| *count > 0);
    // A keyspace keeps 56 bits of them.
    let is_short = amount < 1 << 56;
    match (kind, count) {
        (0, _) if amount == 0 => Ok(Retention::None),
        (1, Some(count)) => Ok(Retention::Versions(count)),
        (2, _) if is_short => Ok(Retention::For(Duration::from_micros(amount))),
        (3, _) if is_short => Ok(Retention::Within(amount)),
        (4, _) if amount == 0 => Ok(Retention::All),
        _ => Err(Failure::invalid(&format!("no retention is {kind} with an amount of {amount}"))),
    }
}

/// `tembo_keyspace_retain`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_keyspace_retain(
    store: *mut StoreHandle,
    keyspace: *const KeyspaceHandle,
    retention: c_uint,
    amount: u64,
) -> c_int {
    call_uncancelled(|| {
        // SAFETY: the caller's promise, for both.
        let (store, keyspace) = unsafe { (&required(store, "store")?.0, &required(keyspace, "keyspace")?.0) };
        Ok(store.set_retention(keyspace, retention_of(retention, amount)?)?)
    })
}

/// `tembo_keyspace_retention`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tembo_keyspace_retention(
    keyspace: *const KeyspaceHandle,
    retention: *mut c_uint,
    amount: *mut u64,
) -> c_int {
    call(|| {
        check_out(retention, "retention")?;
        check_out(amount, "amount")?;
        // SAFETY: the caller's promise.
        let (kind, number) = match unsafe { required(keyspace, "keyspace") }?.0.retention() {
            Retention::None => (0, 0),
            Retention::Versions(count) => (1, count.into()),
            Retention::For(time) => (2, u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
            Retention::Within(bytes) => (3, bytes),
            Retention::All => (4, 0),
            _ => return Err(Failure::invalid("the keyspace's retention is none that this interface has")),
        };
        // SAFETY: checked above.
        unsafe { put_out(retention, kind) };
        // SAFETY: checked above.
        unsafe { put_out(amount, number) };
        Ok(())
    })
}
