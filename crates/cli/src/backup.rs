//! `tembo backup`, `tembo verify` and `tembo restore`.

use crate::args::{Backup, Restore, Verify};
use crate::causes::with_causes;
use crate::failure::{Failure, Kind, Outcome};
use crate::progress::Progress;
use crate::report::{print, print_json};
use crate::size::human_bytes;
use crate::texts;
use crate::top::ask_password;
use crate::unfinished::Unfinished;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tembo::{Options, Pool, PoolErrorKind};
use tembo_server::{
    BackupError, BackupKind, BackupSummary, Config, Password, Restoring, Source, SourcePlace, StreamPlace,
    expect_chain, summary_of_end, take,
};

const BUFFER_BYTES: usize = 256 << 10;
/// A pool begins with this.
const POOL_MAGIC: &[u8; 8] = b"TEMBOPM\n";

/// The kind of failure that a fault of a backup is.
fn kind_of(error: &BackupError) -> Kind {
    match error {
        _ if error.is_damage() => Kind::Damaged,
        BackupError::Chain(_) => Kind::Damaged,
        BackupError::NotABackup => Kind::Absent,
        BackupError::NewerVersion(_) => Kind::Unknown,
        _ => Kind::Failed,
    }
}

/// A fault of one of the files.
fn about(file: &Path, error: BackupError) -> Failure {
    match error {
        BackupError::Pool(error) => error.into(),
        error => Failure::Named(kind_of(&error), format!("{}: {}", file.display(), with_causes(&error))),
    }
}

/// Takes the backup that was asked for.
pub(crate) fn backup(arguments: &Backup) -> Outcome {
    let source = source(arguments)?;
    let since = arguments.since.as_deref().map(end_of).transpose()?;
    let place = &source.place;
    let summary = match &arguments.out {
        Some(path) => {
            let unfinished = Unfinished::private(path).map_err(Failure::at_file("writing", path))?;
            let summary = run(&source, since, &mut unfinished.file())?;
            unfinished.publish(path).map_err(Failure::at_file("writing", path))?;
            summary
        }
        None if io::stdout().is_terminal() => {
            let why = "standard output is a terminal; name a file with --out, or a pipe";
            return Err(Failure::Usage(why.to_owned()));
        }
        None => run(&source, since, &mut io::stdout().lock())?,
    };
    let said = match (summary.kind, summary.keys) {
        (BackupKind::Full, keys) => {
            format!("full backup of {place}: {} keys at offset {}", keys.unwrap_or(0), summary.to.offset)
        }
        (BackupKind::Incremental, _) => format!(
            "incremental backup of {place}: from offset {} to {}",
            summary.from.offset, summary.to.offset
        ),
    };
    eprintln!("tembo: {said}, {}", human_bytes(summary.data_bytes));
    Ok(())
}

fn run(source: &Source, since: Option<StreamPlace>, sink: &mut dyn Write) -> Outcome<BackupSummary> {
    let mut progress = Progress::new("bytes of the backup", None);
    take(source, since, sink, &mut |bytes| progress.advance(bytes)).map_err(|error| match error {
        BackupError::Write(error) => Failure::output(error),
        BackupError::Refused { reply, .. } if reply.starts_with("NOAUTH") => Failure::Failed(format!(
            "{} asks for a password; set TEMBO_PASSWORD, or use --password-file or --askpass",
            source.place
        )),
        error => Failure::Failed(format!("{}: {}", source.place, with_causes(&error))),
    })
}

/// The server, and how to reach it.
fn source(arguments: &Backup) -> Outcome<Source> {
    let password = match (&arguments.password_file, arguments.askpass) {
        (Some(file), _) => {
            let text = std::fs::read(file).map_err(Failure::at_file("reading", file))?;
            text.split(|byte| *byte == b'\n').next().map(|line| line.trim_ascii_end().to_vec())
        }
        (None, true) => Some(ask_password().map_err(Failure::during("reading the password"))?.into()),
        (None, false) => std::env::var("TEMBO_PASSWORD").ok().map(String::into_bytes),
    };
    let password = password.and_then(Password::new);
    if arguments.user.is_some() && password.is_none() {
        let why = "--user needs a password: TEMBO_PASSWORD, --password-file or --askpass";
        return Err(Failure::Usage(why.to_owned()));
    }
    let place = arguments.unixsocket.clone().map_or(SourcePlace::Ip(arguments.address), SourcePlace::Unix);
    let tls = arguments.tls_ca_cert_file.as_ref().map(|authority| tls(arguments, authority)).transpose()?;
    let patience = Duration::from_secs(arguments.timeout);
    Ok(Source { place, user: arguments.user.clone(), password, tls, patience })
}

fn tls(arguments: &Backup, authority: &Path) -> Outcome<Config> {
    let mut config = Config::default();
    let files = [("tls-cert-file", &arguments.tls_cert_file), ("tls-key-file", &arguments.tls_key_file)];
    let files = files.into_iter().filter_map(|(name, file)| Some((name, file.as_deref()?)));
    for (name, file) in files.chain([("tls-ca-cert-file", authority)]) {
        let value = file.as_os_str().as_encoded_bytes();
        config.take_directive(name, value).map_err(Failure::Usage)?;
    }
    config.take_directive("tls-replication", b"yes").map_err(Failure::Usage)?;
    config.check_tls().map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(config)
}

/// Where an earlier backup ends.
fn end_of(file: &Path) -> Outcome<StreamPlace> {
    let opened = File::open(file).map_err(Failure::at_file("opening", file))?;
    Ok(summary_of_end(opened).map_err(|error| about(file, error))?.to)
}

/// A backup as JSON has it.
#[derive(Serialize)]
struct Shown {
    file: String,
    kind: &'static str,
    replication_id: String,
    from_offset: u64,
    offset: u64,
    taken_ms: u64,
    server: String,
    cluster_node: bool,
    data_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<u64>,
}

impl Shown {
    fn of(file: &Path, summary: &BackupSummary) -> Shown {
        Shown {
            file: file.display().to_string(),
            kind: match summary.kind {
                BackupKind::Full => "full",
                BackupKind::Incremental => "incremental",
            },
            replication_id: summary.to.id().to_owned(),
            from_offset: summary.from.offset,
            offset: summary.to.offset,
            taken_ms: summary.time_ms,
            server: summary.server.clone(),
            cluster_node: summary.is_node,
            data_bytes: summary.data_bytes,
            keys: summary.keys,
        }
    }

    fn line(&self) -> String {
        let Shown { file, kind, from_offset, offset, server, .. } = self;
        let bytes = human_bytes(self.data_bytes);
        let what = match self.keys {
            Some(keys) => format!("{keys} keys at offset {offset}"),
            None => format!("from offset {from_offset} to {offset}"),
        };
        format!("{file}: {kind} backup of {server}, whole: {what}, {bytes}\n")
    }
}

/// A backup to be read: a file, or standard input, with the bytes that are to be read if they are known.
fn open(file: &Path) -> Outcome<(Box<dyn Read>, Option<u64>)> {
    if file == Path::new("-") {
        return Ok((Box::new(io::stdin().lock()), None));
    }
    let opened = File::open(file).map_err(|error| {
        let text = texts::of_file("opening", file, &error);
        let kind = if error.kind() == io::ErrorKind::NotFound { Kind::Absent } else { Kind::Failed };
        Failure::Named(kind, text)
    })?;
    let facts = opened.metadata().map_err(Failure::at_file("reading", file))?;
    let length = facts.is_file().then_some(facts.len());
    Ok((Box::new(BufReader::with_capacity(BUFFER_BYTES, opened)), length))
}

/// Verifies the backups that were named.
pub(crate) fn verify(arguments: &Verify) -> Outcome {
    verify_all(arguments).map_err(|failure| match failure {
        Failure::Named(kind, text) => {
            eprintln!("tembo: {text}");
            Failure::Answered(kind.check_code())
        }
        failure => failure,
    })
}

fn verify_all(arguments: &Verify) -> Outcome {
    let (mut before, mut shown): (Option<BackupSummary>, Vec<Shown>) = (None, Vec::new());
    for file in &arguments.files {
        let (source, length) = open(file)?;
        let mut progress = Progress::new("verifying", length);
        let mut last = 0;
        let summary = tembo_server::verify(source, &mut |at| {
            progress.advance(at.saturating_sub(last));
            last = at;
        });
        drop(progress);
        let summary = summary.map_err(|error| about(file, error))?;
        let is_first_of_several = before.is_none() && arguments.files.len() > 1;
        if is_first_of_several && summary.kind == BackupKind::Incremental {
            let why = "it is an incremental backup, and a chain begins with a full one".to_owned();
            return Err(about(file, BackupError::Chain(why)));
        }
        if let Some(before) = &before {
            expect_chain(before, &summary).map_err(|error| about(file, error))?;
        }
        let line = Shown::of(file, &summary);
        match arguments.json {
            true => shown.push(line),
            false => print(&line.line())?,
        }
        before = Some(summary);
    }
    if arguments.json { print_json(&shown) } else { Ok(()) }
}

/// Restores the backups that were named.
pub(crate) fn restore(arguments: &Restore) -> Outcome {
    if arguments.files.iter().filter(|file| file.as_path() == Path::new("-")).count() > 1 {
        return Err(Failure::Usage("standard input is one backup only: `-` is named twice".to_owned()));
    }
    // Held until the end, so that no process opens the pool before it is replaced.
    let replaced = Replaced::of(arguments)?;
    let path = replaced.as_ref().map_or(&arguments.pool, |replaced| &replaced.path);
    let sources = arguments.files.iter().map(|file| Ok(open(file)?.0)).collect::<Outcome<Vec<_>>>()?;
    let unfinished = match &replaced {
        Some(_) => Unfinished::replacing(path),
        None => Unfinished::new(path),
    };
    let unfinished = unfinished.map_err(Failure::at_file("creating", path))?;
    if let Some(replaced) = &replaced {
        replaced.give_mode(unfinished.file()).map_err(Failure::at_file("creating", path))?;
    }
    let mut options = Options::new().durability(arguments.durability);
    if let Some(count) = arguments.root_count {
        options = options.root_count(count);
    }
    // As short as a pool can be: it grows with its contents.
    let pool = options.initial_bytes(0).create_in_file(unfinished.file(), path)?;
    let mut restoring = Restoring::default();
    (restoring.replica_of, restoring.to_offset) = (arguments.replica_of.clone(), arguments.to_offset);
    let progress = RefCell::new(Progress::new("restoring", None));
    let mut last = (0, 0);
    let restored = tembo_server::restore(&pool, sources, &restoring, &mut |file, at| {
        let before = if last.0 == file { last.1 } else { 0 };
        progress.borrow_mut().advance(at.saturating_sub(before));
        last = (file, at);
    });
    drop(progress);
    let restored = restored.map_err(|(number, error)| about(&arguments.files[number], error))?;
    check(&pool)?;
    drop(pool);
    unfinished.publish(path).map_err(Failure::at_file("giving the new pool its name", path))?;
    let (keys, offset) = (restored.keys, restored.offset);
    let after = match restored.backups.len() {
        1 => String::new(),
        count => format!(" and {} of {} later backups", human_bytes(restored.applied_bytes), count - 1),
    };
    let role = match &arguments.replica_of {
        Some(master) => format!("a replica of {}:{}", master.host, master.port),
        None => format!("its replication id is {}", restored.id),
    };
    eprintln!("tembo: {} is restored from {keys} keys{after}, at offset {offset}; {role}", path.display());
    Ok(())
}

/// Proves the restored pool, before it gets its name.
fn check(pool: &Pool) -> Outcome {
    pool.check()?;
    tembo_server::check(pool).map_err(|error| {
        Failure::Store(Kind::Damaged, format!("the restored pool is not sound: {}", with_causes(&error)))
    })?;
    Ok(())
}

/// A pool to be replaced, which no process opens before it is.
struct Replaced {
    /// The file's own path, with symbolic links resolved.
    path: PathBuf,
    /// Has the lock of a pool that is open, and so a server that is started meanwhile fails.
    file: File,
}

impl Replaced {
    /// The file that has the name of the pool, if there is one and it may be replaced: a pool, whole or not,
    /// that no process has open.
    fn of(arguments: &Restore) -> Outcome<Option<Replaced>> {
        let named = &arguments.pool;
        if named.symlink_metadata().is_err() {
            return Ok(None);
        }
        let refuse = |why: &str| Failure::Named(Kind::Failed, format!("{}{why}", named.display()));
        if !arguments.replace {
            return Err(refuse(" exists; --replace lets the restored pool take its place"));
        }
        let path = named.canonicalize().map_err(Failure::at_file("replacing", named))?;
        // Only an ordinary file is opened: opening a pipe would wait.
        let facts = path.metadata().map_err(Failure::at_file("replacing", named))?;
        if !facts.is_file() {
            return Err(refuse(" is no file; --replace takes the place of a pool only"));
        }
        let mut file = File::open(&path).map_err(Failure::at_file("replacing", named))?;
        let mut magic = [0; POOL_MAGIC.len()];
        match file.read_exact(&mut magic) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                return Err(Failure::at_file("replacing", named)(error));
            }
            Ok(()) if magic == *POOL_MAGIC => {}
            _ => return Err(refuse(" is no pool; --replace takes the place of a pool only")),
        }
        let facts = file.metadata().map_err(Failure::at_file("replacing", named))?;
        let is_it = |other: &Path| {
            other.metadata().is_ok_and(|other| (other.dev(), other.ino()) == (facts.dev(), facts.ino()))
        };
        if arguments.files.iter().any(|other| is_it(other)) {
            return Err(refuse(" is one of the files that are to be restored"));
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Replaced { path, file })),
            Err(Errno::WOULDBLOCK) => Err(match Options::new().read_only(true).open(&path) {
                // The error names the process that has the pool.
                Err(tembo::Error::Pool(error)) if matches!(error.kind(), PoolErrorKind::Locked { .. }) => {
                    tembo::Error::Pool(error).into()
                }
                _ => Failure::Named(Kind::InUse, format!("{} is in use", named.display())),
            }),
            Err(error) => Err(Failure::at_file("locking", named)(error.into())),
        }
    }

    /// Gives the file's successor the same permissions.
    fn give_mode(&self, file: &File) -> io::Result<()> {
        file.set_permissions(self.file.metadata()?.permissions())
    }
}
