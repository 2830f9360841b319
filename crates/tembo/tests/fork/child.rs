//! Children of the test's process. Unsafe, since `fork` is.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::FromRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A child is killed after this, as one that waits for a lock for ever would not end.
const SECONDS_MAX: u32 = 60;

/// A child that runs, and whose words are still to be read.
pub(crate) struct Child {
    pid: libc::pid_t,
    said: File,
}

/// Runs `body` in a child, which ends by leaving `exit`, as a program that returns from `main` does, or at
/// once if `at_once`.
pub(crate) fn begin(at_once: bool, body: impl FnOnce() -> String) -> Child {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: both were made just now, and nobody else has them.
    let [said, mut to_say] = ends.map(|end| unsafe { File::from_raw_fd(end) });
    // SAFETY: the child allocates, which the system's allocator is prepared for, and otherwise does what is
    // to be tested.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: this only asks for a signal.
            unsafe { libc::alarm(SECONDS_MAX) };
            let words = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| panic_text(&*panic));
            let _ = to_say.write_all(words.as_bytes());
            drop(to_say);
            // SAFETY: this ends the process.
            unsafe { if at_once { libc::_exit(0) } else { libc::exit(0) } }
        }
        pid => {
            assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
            Child { pid, said }
        }
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

impl Child {
    /// The child's output. Asserts that it ended well.
    pub(crate) fn end(self) -> String {
        let (words, status) = self.end_somehow();
        assert_eq!(status, 0, "the child was killed, or failed, after saying {words:?}");
        words
    }

    /// The child's output, and its status as in `waitpid`.
    pub(crate) fn end_somehow(mut self) -> (String, i32) {
        let mut words = String::new();
        self.said.read_to_string(&mut words).unwrap();
        let mut status = 0;
        // SAFETY: the child is ours, and nobody else waits for it.
        assert_eq!(unsafe { libc::waitpid(self.pid, &raw mut status, 0) }, self.pid);
        (words, status)
    }
}

/// Becomes another program; returns only where that fails.
pub(crate) fn exec_true() -> String {
    let program = c"/bin/true";
    // SAFETY: a string, and a list of strings that ends with null.
    unsafe { libc::execl(program.as_ptr(), program.as_ptr(), std::ptr::null::<libc::c_char>()) };
    format!("exec: {}", std::io::Error::last_os_error())
}
