//! Tokens: the replies of commands that are not to run twice (TEMBO.ONCE).
//!
//! A token is remembered in the commit of its command, with the reply. If the command arrives again, the
//! reply is sent again, and nothing runs. A client that lost a connection, or a server, sends the command
//! again until it gets an answer.
//!
//! # Media layout
//!
//! The map "db.once", of all databases:
//!
//! ```text
//!   't' token               -> deadline_be digest protocol reply     8, 16 and 1 bytes, and the reply
//!   'e' deadline_be token   -> (empty)
//! ```
//!
//! The deadline is in milliseconds since the Unix epoch. The digest is that of the command and its database:
//! a token with another command is refused. The reply is as it was sent, in the protocol of RESP's version 2
//! or 3.
//!
//! # Invariants
//!
//! Those of [`format`](super::format): I10.
//!
//! # Commit point
//!
//! The commit of the batch, which has what the command changed, the token and its entry by time.
//!
//! # Recovery
//!
//! None. A token whose time has come is absent at once. It is removed with the keys whose time has come, a
//! bounded number at a time.

use tembo::Pool;
use tembo_wire::Protocol;

use super::Keyspace;
use super::batch::writer;
use super::check_report::CheckError;
use super::format::{Malformed, ONCE};
use crate::fault::{Answer, Fault};

/// The longest token.
pub(crate) const TOKEN_BYTES_MAX: usize = 512;
pub(crate) const DIGEST_BYTES: usize = 16;
const TOKEN: u8 = b't';
const EXPIRY: u8 = b'e';
const HEADER_BYTES: usize = 8 + DIGEST_BYTES + 1;

/// The memory of a token.
struct Remembered<'a> {
    deadline: u64,
    digest: &'a [u8],
    version: u8,
    reply: &'a [u8],
}

impl<'a> Remembered<'a> {
    fn read(value: &'a [u8]) -> Result<Self, Malformed> {
        let (header, reply) = value.split_at_checked(HEADER_BYTES).ok_or(Malformed)?;
        let (deadline, rest) = header.split_first_chunk().ok_or(Malformed)?;
        let (digest, version) = rest.split_at(DIGEST_BYTES);
        let version = version[0];
        Protocol::from_version(version.into()).ok_or(Malformed)?;
        Ok(Remembered { deadline: u64::from_be_bytes(*deadline), digest, version, reply })
    }
}

fn token_key(token: &[u8]) -> Vec<u8> {
    [&[TOKEN], token].concat()
}

fn expiry_key(deadline: u64, token: &[u8]) -> Vec<u8> {
    [&[EXPIRY][..], &deadline.to_be_bytes(), token].concat()
}

impl Keyspace<'_> {
    /// A digest of a command's words in a database.
    pub(crate) fn digest<'a>(
        &self,
        database: usize,
        words: impl Iterator<Item = &'a [u8]>,
    ) -> Answer<[u8; DIGEST_BYTES]> {
        let collections = self.collections.as_ref().ok_or(Fault::MissingDatabase(database))?;
        let mut text = vec![database as u8];
        for word in words {
            text.extend_from_slice(&(word.len() as u64).to_le_bytes());
            text.extend_from_slice(word);
        }
        Ok(collections.secret.digest(&text))
    }

    /// The reply that is remembered for a token, if its command has run.
    ///
    /// # Errors
    /// If it is that of another command, or in the other protocol.
    pub(crate) fn known(
        &mut self,
        token: &[u8],
        digest: &[u8; DIGEST_BYTES],
        protocol: Protocol,
    ) -> Answer<Option<Vec<u8>>> {
        let Keyspace { pool, batch, collections, now_ms, .. } = self;
        let Some(collections) = collections else {
            return Ok(None);
        };
        let value = writer(pool, batch)?.get(&collections.once, &token_key(token))?;
        let remembered = value.map(Remembered::read).transpose()?;
        let Some(remembered) = remembered.filter(|its| its.deadline > *now_ms) else {
            return Ok(None);
        };
        if remembered.digest != digest {
            return Err(Fault::Error("ERR the token is that of another command, or of another database"));
        }
        if i64::from(remembered.version) != protocol.version() {
            return Err(Fault::Error("ERR the reply of this token is in the other protocol (HELLO)"));
        }
        Ok(Some(remembered.reply.to_vec()))
    }

    /// Remembers the reply to a command for a token, in place of one whose time has come.
    pub(crate) fn remember(
        &mut self,
        token: &[u8],
        deadline: u64,
        digest: &[u8; DIGEST_BYTES],
        (protocol, reply): (Protocol, &[u8]),
    ) -> Answer {
        let Keyspace { pool, batch, collections, dirty, .. } = self;
        let Some(collections) = collections else {
            return Err(Fault::Malformed);
        };
        let (batch, key) = (writer(pool, batch)?, token_key(token));
        let before = batch.get(&collections.once, &key)?.map(Remembered::read).transpose()?;
        if let Some(deadline) = before.map(|before| before.deadline) {
            batch.remove(&collections.once, &expiry_key(deadline, token))?;
        }
        let version = [protocol.version() as u8];
        batch.put_parts(&collections.once, &key, &[&deadline.to_be_bytes(), digest, &version, reply])?;
        batch.put(&collections.once, &expiry_key(deadline, token), &[])?;
        *dirty = true;
        Ok(())
    }

    /// Up to `limit` entries of expired tokens. Reads committed entries.
    pub(super) fn due_tokens(&self, limit: usize) -> Answer<Vec<Vec<u8>>> {
        let mut due = Vec::new();
        if let Some(collections) = &self.collections {
            for entry in collections.once.prefix([EXPIRY]).take(limit) {
                let entry = entry?;
                if read_expiry(entry.key())?.0 > self.now_ms {
                    break;
                }
                due.push(entry.key().to_vec());
            }
        }
        Ok(due)
    }

    /// Forgets a token that has this entry.
    pub(super) fn forget_token(&mut self, entry: &[u8]) -> Answer {
        let (_, token) = read_expiry(entry)?;
        let Keyspace { pool, batch, collections, dirty, .. } = self;
        if let Some(collections) = collections {
            let batch = writer(pool, batch)?;
            *dirty = true;
            batch.remove(&collections.once, entry)?;
            batch.remove(&collections.once, &token_key(token))?;
        }
        Ok(())
    }
}

/// The deadline and the token of an entry by time.
fn read_expiry(entry: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    match entry {
        [EXPIRY, rest @ ..] => {
            let (deadline, token) = rest.split_first_chunk().ok_or(Malformed)?;
            Ok((u64::from_be_bytes(*deadline), token))
        }
        _ => Err(Malformed),
    }
}

#[cfg(test)]
impl Keyspace<'_> {
    /// The tokens whose time has not come, with their deadlines, for tests.
    pub(crate) fn tokens(&self) -> Answer<Vec<(Vec<u8>, u64)>> {
        let mut tokens = Vec::new();
        for entry in self.collections.iter().flat_map(|collections| collections.once.iter()) {
            let entry = entry?;
            if let [TOKEN, token @ ..] = entry.key() {
                tokens.push((token.to_vec(), Remembered::read(entry.value())?.deadline));
            }
        }
        tokens.retain(|(_, deadline)| *deadline > self.now_ms);
        Ok(tokens)
    }

    /// Remembers a token without its entry by time, for the crash simulator to find.
    pub(crate) fn remember_without_time(&mut self, token: &[u8], deadline: u64) -> Answer {
        let Keyspace { pool, batch, collections, dirty, .. } = self;
        let map = &collections.as_ref().ok_or(Fault::Malformed)?.once;
        let value = [&deadline.to_be_bytes()[..], &[0; DIGEST_BYTES], &[2], b":1\r\n"].concat();
        writer(pool, batch)?.put(map, &token_key(token), &value)?;
        *dirty = true;
        Ok(())
    }
}

/// Proves I10; returns how many tokens there are.
pub(crate) fn check_tokens(pool: &Pool) -> Result<u64, CheckError> {
    let Some(map) = pool.find_map(ONCE)? else {
        return Ok(0);
    };
    let (mut tokens, mut entries) = (0, 0);
    for entry in map.iter() {
        let entry = entry?;
        let wrong = |what: &str| CheckError::Collection {
            place: format!("the tokens, entry \"{}\"", entry.key().escape_ascii()),
            what: what.to_owned(),
        };
        match entry.key() {
            [TOKEN, token @ ..] => {
                let remembered = Remembered::read(entry.value()).map_err(|_| wrong("malformed"))?;
                if !map.contains_key(expiry_key(remembered.deadline, token))? {
                    return Err(wrong("it has no entry by time"));
                }
                tokens += 1;
            }
            [EXPIRY, ..] => entries += 1,
            _ => return Err(wrong("malformed")),
        }
    }
    if tokens != entries {
        return Err(CheckError::Collection {
            place: "the tokens".to_owned(),
            what: format!("{tokens} tokens, and {entries} entries by time"),
        });
    }
    Ok(tokens)
}
