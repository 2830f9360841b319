//! The scripts of SCRIPT LOAD, which a restart keeps: a program that loads its scripts once keeps working
//! after a crash of the server.
//!
//! # Media layout
//!
//! ```text
//!   map "db.scripts":  digest  -> text             SHA-1 in 40 hexadecimal digits, small letters
//!                      't'     -> bytes_le         the sum of the lengths of all texts, 8 bytes
//! ```
//!
//! # Commit point
//!
//! The batch of the command. Its reply follows the commit.
//!
//! # Bounds
//!
//! Texts that are longer than [`SCRIPT_BYTES_MAX`] together, or find no room in the pool, are not kept: they
//! last until the server ends, as those of EVAL do.

use tembo::Pool;
use tembo_script::{SCRIPT_BYTES_MAX, sha1_hex};

use super::Keyspace;
use super::batch::writer;
use super::check_report::CheckError;
use super::format::{Malformed, SCRIPTS};
use crate::fault::{Answer, Fault};
use crate::script::cache::Sha;

const TOTAL: &[u8] = b"t";

fn read_total(value: Option<&[u8]>) -> Result<u64, Malformed> {
    value.map_or(Ok(0), |bytes| bytes.try_into().map(u64::from_le_bytes).map_err(|_| Malformed))
}

impl Keyspace<'_> {
    /// Keeps a script, if there is room; returns whether there was.
    pub(crate) fn keep_script(&mut self, sha: &Sha, text: &[u8]) -> Answer<bool> {
        let Keyspace { pool, batch, collections, dirty, parts, .. } = self;
        let Some(collections) = collections else {
            // In a transaction the maps cannot be created.
            return if parts.is_in_one_batch() { Ok(false) } else { Err(Fault::MissingDatabase(0)) };
        };
        let Some(map) = &collections.scripts else { return Ok(false) };
        let batch = writer(pool, batch)?;
        if batch.get(map, sha)?.is_some() {
            return Ok(true);
        }
        let total = read_total(batch.get(map, TOTAL)?)? + text.len() as u64;
        if total > SCRIPT_BYTES_MAX as u64 {
            return Ok(false);
        }
        let begin = batch.savepoint();
        let put = batch.put(map, sha, text).and_then(|_| batch.put(map, TOTAL, &total.to_le_bytes()));
        match put {
            Ok(_) => {
                *dirty = true;
                Ok(true)
            }
            Err(tembo::Error::Full { .. }) => {
                batch.rollback_to(begin);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The text of a script that is kept.
    pub(crate) fn kept_script(&mut self, sha: &Sha) -> Answer<Option<Vec<u8>>> {
        let Keyspace { pool, batch, collections, .. } = self;
        let Some(map) = collections.as_ref().and_then(|its| its.scripts.as_ref()) else { return Ok(None) };
        Ok(writer(pool, batch)?.get(map, sha)?.map(<[u8]>::to_vec))
    }

    /// Forgets all scripts. Works in a full pool.
    pub(crate) fn forget_scripts(&mut self) -> Answer {
        let Keyspace { pool, batch, collections, dirty, reclaiming, .. } = self;
        if let Some(map) = collections.as_ref().and_then(|its| its.scripts.as_ref()) {
            writer(pool, batch)?.clear(map)?;
            (*dirty, *reclaiming) = (true, true);
        }
        Ok(())
    }
}

/// Proves I18; returns how many scripts there are.
pub(super) fn check_scripts(pool: &Pool) -> Result<u64, CheckError> {
    let Some(map) = pool.find_map(SCRIPTS)? else { return Ok(0) };
    let wrong = |place: String, what: &str| CheckError::Collection { place, what: what.to_owned() };
    let (mut count, mut bytes) = (0, 0);
    for entry in map.iter() {
        let entry = entry?;
        if entry.key() == TOTAL {
            continue;
        }
        if sha1_hex(entry.value())[..] != *entry.key() {
            let place = format!("the scripts, entry \"{}\"", entry.key().escape_ascii());
            return Err(wrong(place, "the text has another digest"));
        }
        (count, bytes) = (count + 1, bytes + entry.value().len() as u64);
    }
    let total = map.get(TOTAL)?;
    if read_total(total.as_deref()).ok() != Some(bytes) {
        return Err(wrong("the scripts".to_owned(), "the sum of their lengths is another one"));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_kept_as_long_as_there_is_room_and_damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let pool = tembo::Options::new().create(true).open(dir.path().join("a.pool")).unwrap();
        let mut keys = Keyspace::open(&pool).unwrap();
        let text = |number: usize| format!("return {number} --{}", "x".repeat(1 << 20));
        let keep = |keys: &mut Keyspace<'_>, number: usize| {
            let sha = sha1_hex(text(number).as_bytes());
            keys.keep_script(&sha, text(number).as_bytes()).map(|_| sha)
        };
        assert!(keep(&mut keys, 0).is_ok(), "nothing can be created in the middle of a batch");
        keys.set_in_one_batch(false);
        assert!(matches!(keep(&mut keys, 0), Err(Fault::MissingDatabase(0))));
        keys.create(0).unwrap();
        let digests: Vec<_> = (0..10).map(|number| keep(&mut keys, number).ok().unwrap()).collect();
        keys.commit().unwrap();
        let kept = digests.iter().filter(|sha| keys.kept_script(sha).ok().unwrap().is_some()).count();
        assert_eq!(kept, SCRIPT_BYTES_MAX / text(0).len());
        assert_eq!(check_scripts(&pool).unwrap(), kept as u64);
        drop(keys);
        let map = pool.find_map(SCRIPTS).unwrap().unwrap();
        let total = map.get(TOTAL).unwrap().unwrap().to_vec();
        map.put(TOTAL, 1u64.to_le_bytes()).unwrap();
        assert!(check_scripts(&pool).unwrap_err().to_string().contains("the sum of their lengths"));
        map.put(TOTAL, total).unwrap();
        map.put(digests[0], "return 2").unwrap();
        assert!(check_scripts(&pool).unwrap_err().to_string().contains("the text has another digest"));
        let mut keys = Keyspace::open(&pool).unwrap();
        keys.forget_scripts().ok().unwrap();
        keys.commit().unwrap();
        assert_eq!(check_scripts(&pool).unwrap(), 0);
    }
}
