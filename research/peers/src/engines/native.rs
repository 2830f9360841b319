//! The engines with a C interface: the Rust side of `c/engine.h`. This and `heap/native.rs` are the only
//! unsafe code of this program.

#[cfg(peer = "leveldb")]
use super::shared::{Hand, Shared, SharedKind, copy};
use super::ticker::{Ticker, interval};
use super::{Engine, Kind, Result, Setup};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::ptr;

/// `struct peer_setup`.
#[repr(C)]
struct NativeSetup {
    folder: *const c_char,
    key_bytes: usize,
    value_bytes: usize,
    capacity_bytes: usize,
}

/// `struct peer_bytes`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Bytes {
    start: *const u8,
    length: usize,
}

type Visit = unsafe extern "C" fn(context: *mut c_void, key: Bytes, value: Bytes);

/// `struct peer_engine`.
#[repr(C)]
struct Table {
    name: *const c_char,
    version: *const c_char,
    settings: *const c_char,
    open: unsafe extern "C" fn(*const NativeSetup, *mut *mut c_void) -> c_int,
    close: unsafe extern "C" fn(*mut c_void),
    insert: unsafe extern "C" fn(*mut c_void, *const u8, *const u8) -> c_int,
    remove: unsafe extern "C" fn(*mut c_void, *const u8) -> c_int,
    get: unsafe extern "C" fn(*mut c_void, *const u8, *mut Bytes) -> c_int,
    scan: unsafe extern "C" fn(*mut c_void, *const u8, usize, Visit, *mut c_void) -> i64,
    settle: unsafe extern "C" fn(*mut c_void) -> c_int,
    share_snapshot: unsafe extern "C" fn(*mut c_void) -> c_int,
    sync: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
}

// SAFETY: a table is constant after the program is loaded, and holds functions and literals only.
unsafe impl Sync for Table {}

unsafe extern "C" {
    #[cfg(peer = "pmemobj")]
    static peer_pmemobj: Table;
    #[cfg(peer = "bdb")]
    static peer_bdb: Table;
    #[cfg(peer = "bdb")]
    static peer_bdb_large: Table;
    #[cfg(peer = "bdb")]
    static peer_bdb_volatile: Table;
    #[cfg(peer = "lmdb")]
    static peer_lmdb: Table;
    #[cfg(peer = "lmdb")]
    static peer_lmdb_relaxed: Table;
    #[cfg(peer = "leveldb")]
    static peer_leveldb: Table;
    #[cfg(peer = "leveldb")]
    static peer_leveldb_handle: Table;
    #[cfg(peer = "leveldb")]
    fn peer_leveldb_another(engine: *const c_void) -> *mut c_void;
    #[cfg(peer = "lmdb")]
    fn peer_lmdb_held(
        folder: *const c_char,
        keys: u64,
        order: *const u32,
        count: u64,
        bytes: *mut u64,
    ) -> c_int;
    #[cfg(all(peer = "leveldb", peer = "lmdb"))]
    static peer_lmdb_shared: Table;
    #[cfg(all(peer = "leveldb", peer = "lmdb"))]
    fn peer_lmdb_another(engine: *const c_void) -> *mut c_void;
    #[cfg(peer = "rocksdb")]
    static peer_rocksdb: Table;
    #[cfg(peer = "rocksdb")]
    static peer_rocksdb_relaxed: Table;
    #[cfg(all(peer = "leveldb", peer = "rocksdb"))]
    static peer_rocksdb_handle: Table;
    #[cfg(all(peer = "leveldb", peer = "rocksdb"))]
    fn peer_rocksdb_another(engine: *const c_void) -> *mut c_void;
    fn peer_error() -> *const c_char;
}

/// A [`Kind`] whose functions use the table of this name.
macro_rules! kind {
    ($id:literal, $table:ident, $fits:expr) => {
        kind!($id, $table, $fits, Native)
    };
    ($id:literal, $table:ident, $fits:expr, $engine:ident) => {{
        fn table() -> &'static Table {
            // SAFETY: c/ defines the table with this layout, and nothing ever writes to it.
            unsafe { &$table }
        }
        // SAFETY: the table's strings are literals that end in a zero byte.
        let name = unsafe { text(table().name) };
        Kind {
            id: $id,
            name,
            // SAFETY: as for the name.
            version: || unsafe { text(table().version) },
            is_ours: false,
            fits: $fits,
            open: |setup| Ok(Box::new($engine::open(table(), setup)?)),
        }
    }};
}

/// The engines whose libraries were there when this program was built.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        #[cfg(peer = "pmemobj")]
        kind!("libpmemobj", peer_pmemobj, |key_bytes, _| matches!(key_bytes, 8 | 20)),
        #[cfg(peer = "bdb")]
        kind!("bdb", peer_bdb, super::fits_all),
        #[cfg(peer = "lmdb")]
        kind!("lmdb", peer_lmdb, super::fits_all),
        #[cfg(peer = "leveldb")]
        kind!("leveldb", peer_leveldb, super::fits_all),
        #[cfg(peer = "rocksdb")]
        kind!("rocksdb", peer_rocksdb, super::fits_all),
    ]
}

/// The engines whose writes can do without a sync, so.
pub(super) fn relaxed_kinds() -> Vec<Kind> {
    vec![
        #[cfg(peer = "lmdb")]
        kind!("lmdb", peer_lmdb_relaxed, super::fits_all, RelaxedNative),
        #[cfg(peer = "rocksdb")]
        kind!("rocksdb", peer_rocksdb_relaxed, super::fits_all, RelaxedNative),
    ]
}

/// Berkeley DB in other ways: with larger pages, and so that it keeps nothing after a crash.
pub(super) fn other_kinds() -> Vec<Kind> {
    vec![
        #[cfg(peer = "bdb")]
        kind!("bdb-large", peer_bdb_large, super::fits_all),
        #[cfg(peer = "bdb")]
        kind!("bdb-volatile", peer_bdb_volatile, super::fits_all),
    ]
}

/// An open database.
struct Native {
    table: &'static Table,
    /// The result of the engine's `open`, valid until `close`.
    state: *mut c_void,
    key_bytes: usize,
    value_bytes: usize,
    /// The library may be bound to the thread that opened it.
    _one_thread: PhantomData<*mut c_void>,
}

impl Native {
    fn open(table: &'static Table, setup: &Setup<'_>) -> Result<Native> {
        let folder = CString::new(setup.folder.as_os_str().as_bytes())?;
        let native = NativeSetup {
            folder: folder.as_ptr(),
            key_bytes: setup.key_bytes,
            value_bytes: setup.value_bytes,
            capacity_bytes: usize::try_from(setup.capacity_bytes)?,
        };
        let mut state = ptr::null_mut();
        // SAFETY: both pointers are good for the call, and `folder` ends in a zero byte.
        succeeded(unsafe { (table.open)(&native, &mut state) })?;
        let (key_bytes, value_bytes) = (setup.key_bytes, setup.value_bytes);
        Ok(Native { table, state, key_bytes, value_bytes, _one_thread: PhantomData })
    }

    /// The address of a key, which has the length that the engine was told.
    fn key(&self, key: &[u8]) -> Result<*const u8> {
        if key.len() == self.key_bytes {
            return Ok(key.as_ptr());
        }
        Err(format!("a key of {} bytes where {} were promised", key.len(), self.key_bytes).into())
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: `state` is open, and nothing uses it after this.
        unsafe { (self.table.close)(self.state) };
    }
}

impl Engine for Native {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let key = self.key(key)?;
        assert_eq!(value.len(), self.value_bytes, "all values of a run have one length");
        // SAFETY: `state` is open; key and value have the lengths that it was opened with.
        succeeded(unsafe { (self.table.insert)(self.state, key, value.as_ptr()) })
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        let key = self.key(key)?;
        // SAFETY: `state` is open; the key has the length that it was opened with.
        succeeded(unsafe { (self.table.remove)(self.state, key) })
    }

    fn get(&mut self, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let key = self.key(key)?;
        let mut value = Bytes { start: ptr::null(), length: 0 };
        // SAFETY: `state` is open; the key has the length that it was opened with; `value` can be written.
        match unsafe { (self.table.get)(self.state, key, &mut value) } {
            0 => Ok(false),
            1 => {
                // SAFETY: the engine leaves the value in place until its next call, and `look` cannot make
                // one.
                look(unsafe { value.as_slice() });
                Ok(true)
            }
            _ => Err(last_error()),
        }
    }

    fn scan(&mut self, from: &[u8], limit: usize, look: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let from = self.key(from)?;
        let mut look = look;
        let context = ptr::from_mut(&mut look).cast();
        // SAFETY: `state` is open; `from` has the length of keys; `visit` gets the context that it expects.
        let met = unsafe { (self.table.scan)(self.state, from, limit, visit, context) };
        usize::try_from(met).map_err(|_| last_error())
    }

    fn settle(&mut self) -> Result<()> {
        // SAFETY: `state` is open.
        succeeded(unsafe { (self.table.settle)(self.state) })
    }

    fn share_snapshot(&mut self) -> bool {
        // SAFETY: `state` is open.
        unsafe { (self.table.share_snapshot)(self.state) == 1 }
    }

    fn settings(&self) -> String {
        // SAFETY: the table's strings are literals that end in a zero byte.
        unsafe { text(self.table.settings) }.to_owned()
    }
}

/// A database whose writes do not wait for the device: a thread syncs it in intervals.
#[cfg(any(peer = "lmdb", peer = "rocksdb"))]
struct RelaxedNative {
    /// Ends before the database is closed: fields are dropped in their order.
    ticker: Ticker,
    syncs: Syncs,
    native: Native,
}

/// The way of a thread to sync a database, which stays open meanwhile.
#[cfg(any(peer = "lmdb", peer = "rocksdb"))]
#[derive(Clone, Copy)]
struct Syncs {
    sync: unsafe extern "C" fn(*mut c_void) -> c_int,
    state: *mut c_void,
}

// SAFETY: `sync` may run in any thread.
#[cfg(any(peer = "lmdb", peer = "rocksdb"))]
unsafe impl Send for Syncs {}

#[cfg(any(peer = "lmdb", peer = "rocksdb"))]
impl Syncs {
    fn sync(&self) -> Result<()> {
        // SAFETY: the database is open, as its owner ends the thread that calls this before it is closed.
        succeeded(unsafe { (self.sync)(self.state) })
    }
}

#[cfg(any(peer = "lmdb", peer = "rocksdb"))]
impl RelaxedNative {
    fn open(table: &'static Table, setup: &Setup<'_>) -> Result<RelaxedNative> {
        let native = Native::open(table, setup)?;
        let sync = table.sync.ok_or("the engine syncs each write")?;
        let syncs = Syncs { sync, state: native.state };
        let ticker = Ticker::start(interval(setup)?, move || syncs.sync())?;
        Ok(RelaxedNative { ticker, syncs, native })
    }
}

#[cfg(any(peer = "lmdb", peer = "rocksdb"))]
impl Engine for RelaxedNative {
    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.native.insert(key, value)
    }

    fn remove(&mut self, key: &[u8]) -> Result<()> {
        self.native.remove(key)
    }

    fn get(&mut self, key: &[u8], look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.native.get(key, look)
    }

    fn scan(&mut self, from: &[u8], limit: usize, look: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        self.native.scan(from, limit, look)
    }

    fn sync(&mut self) -> Result<()> {
        self.ticker.check()?;
        self.syncs.sync()
    }

    fn settings(&self) -> String {
        self.native.settings()
    }
}

/// A database that several threads use, each with a handle.
#[cfg(peer = "leveldb")]
struct SharedNative {
    /// Makes the others, and is used for nothing else.
    first: Native,
    another: unsafe extern "C" fn(*const c_void) -> *mut c_void,
    /// The table of the others.
    handle: &'static Table,
}

// SAFETY: after it was opened, the first handle is only read, by `another`, which may run beside others;
// these engines may be closed by another thread than the one that opened them.
#[cfg(peer = "leveldb")]
unsafe impl Send for SharedNative {}
// SAFETY: as above.
#[cfg(peer = "leveldb")]
unsafe impl Sync for SharedNative {}

/// A thread's handle.
#[cfg(peer = "leveldb")]
struct NativeHand<'a>(Native, PhantomData<&'a SharedNative>);

// SAFETY: the functions of these engines may be called by any thread, and a handle's own state is used by one
// at a time.
#[cfg(peer = "leveldb")]
unsafe impl Send for NativeHand<'_> {}

#[cfg(peer = "leveldb")]
impl Shared for SharedNative {
    fn hand(&self) -> Result<Box<dyn Hand + Send + '_>> {
        let Native { key_bytes, value_bytes, .. } = self.first;
        // SAFETY: the database is open, and stays so as long as the handle lives, which borrows it.
        let state = unsafe { (self.another)(self.first.state) };
        if state.is_null() {
            return Err(last_error());
        }
        let native = Native { table: self.handle, state, key_bytes, value_bytes, _one_thread: PhantomData };
        Ok(Box::new(NativeHand(native, PhantomData)))
    }
}

#[cfg(peer = "leveldb")]
impl Hand for NativeHand<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.insert(key, value)
    }

    fn get(&mut self, key: &[u8], buffer: &mut Vec<u8>) -> Result<bool> {
        self.0.get(key, &mut |value| copy(value, buffer))
    }
}

/// A [`SharedKind`] of a database that the first table opens, and of its handles.
#[cfg(peer = "leveldb")]
macro_rules! shared_kind {
    ($table:ident, $another:ident, $handle:ident) => {
        SharedKind {
            // SAFETY: c/ defines the table with this layout, and nothing ever writes to it; its strings are
            // literals that end in a zero byte.
            name: unsafe { text($table.name) },
            open: |setup| {
                // SAFETY: as above.
                let (table, handle) = unsafe { (&$table, &$handle) };
                Ok(Box::new(SharedNative { first: Native::open(table, setup)?, another: $another, handle }))
            },
        }
    };
}

/// The engines that several threads may use, as far as their libraries were there.
#[cfg(peer = "leveldb")]
pub(super) fn shared_kinds() -> Vec<SharedKind> {
    vec![
        shared_kind!(peer_leveldb, peer_leveldb_another, peer_leveldb_handle),
        #[cfg(peer = "rocksdb")]
        shared_kind!(peer_rocksdb, peer_rocksdb_another, peer_rocksdb_handle),
        #[cfg(peer = "lmdb")]
        shared_kind!(peer_lmdb_shared, peer_lmdb_another, peer_lmdb_shared),
    ]
}

/// Bytes of an LMDB database with `keys` records of 8 + 8 bytes: at first, and after each of the four steps
/// of `held`, which overwrite the records of `order`.
#[cfg(peer = "lmdb")]
pub(crate) fn lmdb_held(folder: &std::path::Path, keys: u64, order: &[u32]) -> Result<[u64; 5]> {
    let folder = CString::new(folder.as_os_str().as_bytes())?;
    let mut bytes = [0; 5];
    // SAFETY: `folder` ends in a zero byte, there are `count` numbers at `order`, and room for five in
    // `bytes`.
    succeeded(unsafe {
        peer_lmdb_held(folder.as_ptr(), keys, order.as_ptr(), order.len() as u64, bytes.as_mut_ptr())
    })?;
    Ok(bytes)
}

impl Bytes {
    /// # Safety
    ///
    /// There are `length` bytes at `start` that nothing changes during `'a`.
    unsafe fn as_slice<'a>(self) -> &'a [u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

/// Hands a record of a scan to the closure.
///
/// # Safety
///
/// `context` is the address of a `&mut dyn FnMut(&[u8], &[u8])` that nothing else uses; key and value are
/// good for the call.
unsafe extern "C" fn visit(context: *mut c_void, key: Bytes, value: Bytes) {
    // SAFETY: the caller's promise.
    let look = unsafe { &mut *context.cast::<&mut dyn FnMut(&[u8], &[u8])>() };
    // SAFETY: the caller's promise.
    unsafe { look(key.as_slice(), value.as_slice()) }
}

fn succeeded(code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Box<dyn std::error::Error + Send + Sync> {
    // SAFETY: the message is a string, and stays as it is until the next error of this thread's engine.
    unsafe { text(peer_error()) }.to_owned().into()
}

/// # Safety
///
/// `string` ends in a zero byte and stays as it is for the rest of the program, or until the result is
/// dropped.
unsafe fn text(string: *const c_char) -> &'static str {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(string) }.to_str().unwrap_or("(not UTF-8)")
}
