//! Berkeley DB: the Rust side of `c/programs.h`.

use crate::engines::Result;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// `struct bdb_program`.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn bdb_program_open(
        folder: *const c_char,
        kind: c_int,
        threads: c_int,
        program: *mut *mut Opaque,
    ) -> c_int;
    fn bdb_program_close(program: *mut Opaque);
    fn bdb_program_load(program: *mut Opaque, items: *const u64, count: usize) -> c_int;
    fn bdb_program_settle(program: *mut Opaque) -> c_int;
    fn bdb_program_swap(program: *mut Opaque, a: u32, b: u32) -> c_int;
    fn bdb_program_toggle(program: *mut Opaque, key: *const u8) -> c_int;
    fn bdb_program_get(program: *mut Opaque, item: u64, value: *mut u64) -> c_int;
    fn bdb_program_error() -> *const c_char;
}

/// The structure that holds a program's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Array = 0,
    BTree = 1,
    Hash = 2,
}

/// An open database.
pub(super) struct Database {
    /// The result of `bdb_program_open`, valid until it is closed.
    program: *mut Opaque,
}

// SAFETY: the environment and the database are not bound to a thread.
unsafe impl Send for Database {}
// SAFETY: opened with `DB_THREAD` for as many threads as use it (`open`); each call has a transaction of its
// own.
unsafe impl Sync for Database {}

impl Database {
    /// Makes a database in an empty folder, for so many threads.
    ///
    /// Used by more than it is made for it would be unsound, so that only [`super`] does that.
    pub(super) fn open(folder: &Path, access: Access, threads: usize) -> Result<Database> {
        let folder = CString::new(folder.as_os_str().as_bytes())?;
        let mut program = ptr::null_mut();
        // SAFETY: the path ends in a zero byte, and `program` can be written.
        succeeded(unsafe {
            bdb_program_open(folder.as_ptr(), access as c_int, c_int::try_from(threads)?, &mut program)
        })?;
        Ok(Database { program })
    }

    /// Loads entries of an array in their order, or keys.
    pub(super) fn load(&self, items: &[u64]) -> Result<()> {
        // SAFETY: `program` is open, and there are as many items.
        succeeded(unsafe { bdb_program_load(self.program, items.as_ptr(), items.len()) })
    }

    /// Makes a checkpoint.
    pub(super) fn settle(&self) -> Result<()> {
        // SAFETY: `program` is open.
        succeeded(unsafe { bdb_program_settle(self.program) })
    }

    /// Exchanges two entries.
    pub(super) fn swap(&self, [a, b]: [usize; 2]) -> Result<()> {
        // SAFETY: `program` is open.
        succeeded(unsafe { bdb_program_swap(self.program, u32::try_from(a)?, u32::try_from(b)?) })
    }

    /// Inserts a key if it is not there, and removes it otherwise.
    pub(super) fn toggle(&self, key: u64) -> Result<()> {
        // SAFETY: `program` is open, and the key has 8 bytes.
        succeeded(unsafe { bdb_program_toggle(self.program, key.to_be_bytes().as_ptr()) })
    }

    /// The entry of an array; or anything, if the key is there.
    pub(super) fn get(&self, item: u64) -> Result<Option<u64>> {
        let mut value = 0;
        // SAFETY: `program` is open, and `value` can be written.
        let found = unsafe { bdb_program_get(self.program, item, &mut value) };
        succeeded(found.min(0))?;
        Ok((found == 1).then_some(value))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: `program` is open, and nothing uses it after this.
        unsafe { bdb_program_close(self.program) };
    }
}

fn succeeded(code: c_int) -> Result<()> {
    if code >= 0 {
        return Ok(());
    }
    // SAFETY: a string of this thread that ends in a zero byte.
    let text = unsafe { CStr::from_ptr(bdb_program_error()) };
    Err(text.to_string_lossy().into_owned().into())
}
