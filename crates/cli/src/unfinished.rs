//! Files that get their names when they are complete: no program ever sees a part of one, and an interrupted
//! one leaves nothing behind.
//!
//! The file is made without a name. Where the file system cannot do that, it has another name meanwhile,
//! which a signal that ends the process removes; one that a killed process left is taken away by the next
//! that wants the name.
//!
//! # When the power fails
//!
//! The contents of the file are on the device before it gets its name, and the name is before
//! [`publish`](Unfinished::publish) returns. Until then the device has the old file, or none, under that
//! name, or the new one as a whole. Pools that are rewritten, backups and restored pools need no other
//! proof: the tests below try every prefix of these steps with everything early or late.

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, linkat, open};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::{File, Permissions, remove_file};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};

/// A file that is being filled. Dropping it removes the file, unless it got its name.
pub(crate) struct Unfinished {
    file: File,
    temporary: Option<Passing>,
    /// Whether the new file takes the place of an existing one.
    replaces: bool,
}

impl Unfinished {
    /// A new file that is to get the name `path`, which must be free.
    ///
    /// # Errors
    ///
    /// Errors of the system; [`io::ErrorKind::AlreadyExists`].
    pub(crate) fn new(path: &Path) -> io::Result<Unfinished> {
        if path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Unfinished::begin(path)
    }

    /// [`new`](Self::new), with a file that only its owner can read.
    ///
    /// # Errors
    ///
    /// As there.
    pub(crate) fn private(path: &Path) -> io::Result<Unfinished> {
        let unfinished = Unfinished::new(path)?;
        // Nothing is in it yet.
        unfinished.file.set_permissions(Permissions::from_mode(0o600))?;
        Ok(unfinished)
    }

    /// A new file that is to take the place of the one at `path`.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub(crate) fn replacing(path: &Path) -> io::Result<Unfinished> {
        Ok(Unfinished { replaces: true, ..Unfinished::begin(path)? })
    }

    fn begin(path: &Path) -> io::Result<Unfinished> {
        match open(directory_of(path), OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode()) {
            Ok(file) => Ok(Unfinished { file: file.into(), temporary: None, replaces: false }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => Unfinished::named(path),
            Err(e) => Err(e.into()),
        }
    }

    fn named(path: &Path) -> io::Result<Unfinished> {
        let temporary = temporary_name(path);
        let create =
            || open(&temporary, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC, mode());
        let file: File = match create() {
            Err(Errno::EXIST) => {
                // A process that still fills it has its lock.
                flock(File::open(&temporary)?, FlockOperation::NonBlockingLockExclusive)?;
                remove_file(&temporary)?;
                create()?
            }
            outcome => outcome?,
        }
        .into();
        let temporary = Passing::file(temporary);
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Unfinished { file, temporary: Some(temporary), replaces: false })
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name, durably. A file that another program has created there meanwhile stays,
    /// unless this one is to take the place of a file.
    ///
    /// # Errors
    ///
    /// Errors of the system; [`io::ErrorKind::AlreadyExists`].
    pub(crate) fn publish(self, path: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        note(Step::Contents);
        let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        match &self.temporary {
            None if self.replaces => {
                // Only a file with a name can take the place of another one.
                let passing = temporary_name(path);
                if passing.symlink_metadata().is_ok() {
                    remove_file(&passing)?;
                }
                linkat(CWD, unnamed, CWD, &passing, AtFlags::SYMLINK_FOLLOW)?;
                std::fs::rename(&passing, path).inspect_err(|_| remove(&passing))?;
            }
            None => linkat(CWD, unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW)?,
            Some(temporary) if self.replaces => std::fs::rename(&temporary.path, path)?,
            Some(temporary) => std::fs::hard_link(&temporary.path, path)?,
        }
        note(Step::Name);
        File::open(directory_of(path))?.sync_all()?;
        note(Step::Directory);
        Ok(())
    }
}

/// The steps of [`Unfinished::publish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The contents are on the device.
    Contents,
    /// The file has its name, in the page cache.
    Name,
    /// The name is on the device.
    Directory,
}

/// For the test of power failures.
#[cfg(not(test))]
fn note(_: Step) {}
#[cfg(test)]
use tests::note;

fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".unfinished");
    directory_of(path).join(name)
}

fn mode() -> Mode {
    Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file or directory that is removed when this is dropped, or when a signal ends the process.
pub(crate) struct Passing {
    path: PathBuf,
}

static PASSING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

impl Passing {
    fn file(path: PathBuf) -> Passing {
        static CATCHING: Once = Once::new();
        CATCHING.call_once(remove_at_signals);
        PASSING.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
        Passing { path }
    }

    /// A directory with its contents.
    pub(crate) fn directory(path: &Path) -> Passing {
        Passing::file(path.to_owned())
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        PASSING.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| *path != self.path);
        remove(&self.path);
    }
}

/// Removes the file; a file that cannot be removed stays.
fn remove(path: &Path) {
    let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { remove_file(path) };
}

fn remove_at_signals() {
    // Without this thread, signals end the process as usual, and leave its temporary files behind.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return };
    let wait = move || {
        for signal in signals.forever() {
            let passing = PASSING.lock().unwrap_or_else(PoisonError::into_inner);
            passing.iter().for_each(|path| remove(path));
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    let _ = std::thread::Builder::new().name("signals".to_owned()).spawn(wait);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::io::Write as _;

    thread_local! {
        /// The steps of this thread.
        static STEPS: RefCell<Vec<Step>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn note(step: Step) {
        STEPS.with_borrow_mut(|steps| steps.push(step));
    }

    /// The device's contents under a name.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Found {
        Before,
        Whole,
        /// A part of the new file, or nothing of it.
        Part,
    }

    /// The contents that a power failure may leave after these steps: changes that no step makes durable may
    /// or may not have arrived.
    fn found_after(steps: &[Step]) -> Vec<Found> {
        let has = |step| steps.contains(&step);
        let named = if has(Step::Name) { Found::Whole } else { Found::Before };
        let mut found = vec![named];
        if has(Step::Name) && !has(Step::Contents) {
            found.push(Found::Part);
        }
        // A directory that was synchronised before the file got its name says nothing.
        let name_at = steps.iter().position(|step| *step == Step::Name);
        let is_durable = name_at.is_some_and(|at| steps[at..].contains(&Step::Directory));
        if has(Step::Name) && !is_durable {
            found.push(Found::Before);
        }
        found
    }

    /// Whether each prefix of the steps leaves the old file or the whole new one, and all steps leave the new
    /// one.
    fn survive_power_failures(steps: &[Step]) -> bool {
        (0..=steps.len()).all(|count| !found_after(&steps[..count]).contains(&Found::Part))
            && found_after(steps) == [Found::Whole]
    }

    #[test]
    fn a_power_failure_leaves_what_was_there_or_the_whole_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let replacing = |path: &Path| Ok(Unfinished { replaces: true, ..Unfinished::named(path)? });
        for make in [Unfinished::new, Unfinished::named, Unfinished::replacing, replacing] {
            STEPS.take();
            let unfinished = make(&path).unwrap();
            unfinished.file().write_all(b"whole").unwrap();
            let replaces = unfinished.replaces;
            unfinished.publish(&path).unwrap();
            assert!(survive_power_failures(&STEPS.take()));
            if !replaces {
                remove_file(&path).unwrap();
            }
        }
        // Other orders, and steps that are left out, are found.
        use Step::{Contents, Directory, Name};
        let mutants: [&[Step]; 5] = [
            &[Name, Contents, Directory],
            &[Contents, Directory, Name],
            &[Name, Directory],
            &[Contents, Name],
            &[Contents, Directory],
        ];
        assert!(mutants.iter().all(|steps| !survive_power_failures(steps)));
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// `tembo load` left a file of full size when it was interrupted.
    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        for make in [Unfinished::new, Unfinished::named] {
            let unfinished = make(&path).unwrap();
            unfinished.file().write_all(b"half").unwrap();
            drop(unfinished);
            assert_eq!(names(directory.path()), [""; 0]);
            let unfinished = make(&path).unwrap();
            unfinished.file().write_all(b"whole").unwrap();
            unfinished.publish(&path).unwrap();
            assert_eq!(
                (names(directory.path()), std::fs::read(&path).unwrap()),
                (vec!["a".to_owned()], b"whole".to_vec())
            );
            remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_file_takes_the_place_of_another_one_when_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let named = |path: &Path| Ok(Unfinished { replaces: true, ..Unfinished::named(path)? });
        for make in [Unfinished::replacing, named] {
            std::fs::write(&path, b"old").unwrap();
            let unfinished = make(&path).unwrap();
            unfinished.file().write_all(b"half").unwrap();
            drop(unfinished);
            assert_eq!(std::fs::read(&path).unwrap(), b"old");
            let unfinished = make(&path).unwrap();
            unfinished.file().write_all(b"whole").unwrap();
            unfinished.publish(&path).unwrap();
            assert_eq!(
                (names(directory.path()), std::fs::read(&path).unwrap()),
                (vec!["a".to_owned()], b"whole".to_vec())
            );
        }
    }

    #[test]
    fn what_somebody_else_made_meanwhile_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        for make in [Unfinished::new, Unfinished::named] {
            let unfinished = make(&path).unwrap();
            std::fs::write(&path, b"theirs").unwrap();
            assert_eq!(unfinished.publish(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(
                (names(directory.path()), std::fs::read(&path).unwrap()),
                (vec!["a".to_owned()], b"theirs".to_vec())
            );
            remove_file(&path).unwrap();
        }
        std::fs::write(&path, b"theirs").unwrap();
        assert_eq!(Unfinished::new(&path).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn what_a_killed_process_left_is_taken_away_and_what_is_being_filled_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(directory.path().join("a.unfinished"), b"left").unwrap();
        let unfinished = Unfinished::named(&path).unwrap();
        assert_eq!(unfinished.file().metadata().unwrap().len(), 0);
        assert!(Unfinished::named(&path).is_err());
        unfinished.publish(&path).unwrap();
        assert_eq!(names(directory.path()), ["a"]);
    }
}
