//! `tembo import` and `tembo export`: the server's databases from a file of Redis, and as one.
//!
//! A file is read twice, so that whatever is wrong with it, or has no place here, is known before anything is
//! written. A new pool is filled without a name, as one of `tembo load` is.

use crate::args::{Export, Import};
use crate::causes::with_causes;
use crate::failure::{Failure, Kind, Outcome};
use crate::maps::note_unknown;
use crate::progress::Progress;
use crate::unclean;
use crate::unfinished::Unfinished;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use tembo::{Options, Pool};
use tembo_rdb::Reader;
use tembo_server::{ExportError, ImportError, Imported, LeftOut, Reason, Survey};

/// A failure to import.
fn failed(file: &Path, error: ImportError) -> Failure {
    match error {
        ImportError::Pool(error) => error.into(),
        ImportError::File(error) => unreadable(file, &error),
        error => Failure::Failed(format!("{}: {}", file.display(), with_causes(&error))),
    }
}

fn unreadable(file: &Path, error: &tembo_rdb::Error) -> Failure {
    Failure::Failed(format!("{}: {}", file.display(), with_causes(error)))
}

/// A reader of the file, and a bar of its bytes.
fn open(file: &Path, doing: &'static str) -> Outcome<(Reader<File>, Progress)> {
    let opened = File::open(file).map_err(Failure::at_file("opening", file))?;
    let bytes = opened.metadata().map_err(Failure::at_file("reading", file))?;
    if !bytes.is_file() {
        let shown = file.display();
        return Err(Failure::Failed(format!("{shown} is not a regular file, and an import reads it twice")));
    }
    let reader = Reader::new(opened).map_err(|error| unreadable(file, &error))?;
    Ok((reader, Progress::new(doing, Some(bytes.len()))))
}

/// Tells a bar how many bytes were read.
fn follower(progress: &mut Progress) -> impl FnMut(u64) {
    let mut before = 0;
    move |offset| {
        progress.advance(offset - before);
        before = offset;
    }
}

/// Everything that is left out, on one line.
fn shown(left_out: &BTreeMap<Reason, LeftOut>) -> String {
    let one = |(reason, found): (&Reason, &LeftOut)| {
        let keys = found.keys.iter().map(|(database, key)| format!("{} in {database}", key.escape_ascii()));
        let mut keys: Vec<String> = keys.collect();
        if !keys.is_empty() && found.count > keys.len() as u64 {
            keys.push(format!("{} more", found.count - keys.len() as u64));
        }
        let keys = if keys.is_empty() { String::new() } else { format!(" ({})", keys.join(", ")) };
        format!("{} of the kind \"{reason}\"{keys}", found.count)
    };
    left_out.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Imports the file that was asked for.
pub(crate) fn import(arguments: &Import) -> Outcome {
    let file = &arguments.file;
    let survey = survey(arguments)?;
    let mut options =
        Options::new().durability(arguments.durability).accept_unclean(arguments.accept_unclean);
    if let Some(count) = arguments.root_count {
        options = options.root_count(count);
    }
    let path = &arguments.pool;
    let imported = if path.symlink_metadata().is_ok() {
        let pool = unclean::open(&options, path)?;
        note_unknown(&pool)?;
        expect_empty(&pool, arguments)?;
        fill(&pool, file)?
    } else {
        let unfinished = Unfinished::new(path).map_err(Failure::at_file("creating", path))?;
        // As short as a pool can be: it grows with its contents.
        let pool = options.initial_bytes(0).create_in_file(unfinished.file(), path)?;
        let imported = fill(&pool, file)?;
        drop(pool);
        unfinished.publish(path).map_err(Failure::at_file("giving the new pool its name", path))?;
        imported
    };
    report(&survey, &imported, path);
    Ok(())
}

/// Reads the whole file, and refuses data that a pool cannot have, unless they may be left out.
fn survey(arguments: &Import) -> Outcome<Survey> {
    let file = &arguments.file;
    let (mut reader, mut progress) = open(file, "reading")?;
    let survey = tembo_server::survey(&mut reader, &mut follower(&mut progress))
        .map_err(|error| unreadable(file, &error))?;
    if !survey.left_out.is_empty() && !arguments.skip_unsupported {
        let (file, found) = (file.display(), shown(&survey.left_out));
        return Err(Failure::Failed(format!(
            "{file} holds what the server lacks: {found}. Nothing was imported; --skip-unsupported imports the other {} keys",
            survey.keys.total()
        )));
    }
    Ok(survey)
}

fn expect_empty(pool: &Pool, arguments: &Import) -> Outcome {
    let keys = tembo_server::count_keys(pool)?;
    if keys == 0 || arguments.merge {
        return Ok(());
    }
    Err(Failure::Named(
        Kind::Failed,
        format!(
            "the databases of {} have {keys} keys; add --merge to import beside them, where keys of the file replace \
             others of the same names, or choose another pool",
            arguments.pool.display()
        ),
    ))
}

fn fill(pool: &Pool, file: &Path) -> Outcome<Imported> {
    let (mut reader, mut progress) = open(file, "importing")?;
    tembo_server::import(pool, &mut reader, &mut follower(&mut progress)).map_err(|error| failed(file, error))
}

fn report(survey: &Survey, imported: &Imported, pool: &Path) {
    if !survey.is_checked {
        eprintln!("note: the file has no checksum, so that nothing proves it whole");
    }
    if !imported.left_out.is_empty() {
        eprintln!("note: left out: {}", shown(&imported.left_out));
    }
    for (count, what) in [(imported.expired, "had expired"), (imported.empty, "had no elements")] {
        if count > 0 {
            eprintln!("note: {count} keys {what}, and were left out");
        }
    }
    let keys = imported.keys;
    eprintln!("tembo: {} keys imported into {}: {keys}", keys.total(), pool.display());
}

/// Exports to the file that was asked for.
pub(crate) fn export(arguments: &Export) -> Outcome {
    let path = &arguments.file;
    let options = Options::new().read_only(true).accept_unclean(arguments.accept_unclean);
    let pool = unclean::open(&options, &arguments.pool)?;
    note_unknown(&pool)?;
    let writing = Failure::at_file("writing", path);
    let unfinished = Unfinished::new(path).map_err(&writing)?;
    let mut progress = Progress::new("exporting", Some(tembo_server::count_keys(&pool)?));
    let exported = tembo_server::export(&pool, unfinished.file(), &mut || progress.advance(1));
    let (_, exported) = exported.map_err(|error| match error {
        ExportError::File(error) => writing(error),
        ExportError::Pool(error) => error.into(),
        error => Failure::Store(Kind::Damaged, with_causes(&error)),
    })?;
    drop(progress);
    unfinished.publish(path).map_err(&writing)?;
    if exported.expired > 0 {
        eprintln!("note: {} keys had expired, and were left out", exported.expired);
    }
    let keys = exported.keys;
    eprintln!("tembo: {} keys exported to {}: {keys}", keys.total(), path.display());
    Ok(())
}
