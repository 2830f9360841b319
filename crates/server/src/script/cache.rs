//! The scripts that the server knows. Scripts of EVAL are in memory only, and lost at a restart, as in Redis.
//! Scripts of SCRIPT LOAD are kept ([`crate::keyspace::scripts`]), and loaded when they are used.
//!
//! Scripts of SCRIPT LOAD stay until SCRIPT FLUSH. Of the scripts of EVAL, the least recently used one is
//! evicted if their number or length exceeds a limit: a client that puts values into the text of its scripts
//! would take all memory otherwise.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;
use tembo_script::{Compiled, EVAL_SCRIPTS_MAX, Engine, Header, SCRIPT_BYTES_MAX, sha1_hex};

use crate::fault::{Answer, Fault};

/// The digest of a script, in hexadecimal digits.
pub(crate) type Sha = [u8; 40];

#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    pub(crate) compiled: Compiled,
    pub(crate) header: Header,
    bytes: usize,
    /// When it was used last, in uses of all scripts. None: it stays.
    used: Option<u64>,
    /// Whether the script has walked over the keys of a database.
    pub(crate) walks: bool,
}

/// A script under way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunningScript {
    /// Whether the script has run a command that writes.
    pub(crate) has_written: bool,
    /// SCRIPT KILL.
    pub(crate) is_killed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Scripts {
    /// None: there was no script yet, or one runs.
    pub(crate) engine: Option<Engine>,
    by_sha: HashMap<Sha, Script, FixedState>,
    /// The scripts that may go, by their last use.
    by_use: BTreeMap<u64, Sha>,
    uses: u64,
    text_bytes: usize,
    pub(crate) evicted: u64,
    pub(crate) running: Option<RunningScript>,
}

impl Scripts {
    pub(crate) fn len(&self) -> usize {
        self.by_sha.len()
    }

    /// Bytes of the texts of all scripts.
    pub(crate) fn text_bytes(&self) -> u64 {
        self.text_bytes as u64
    }

    /// Bytes of memory that Lua has.
    pub(crate) fn engine_bytes(&self) -> u64 {
        self.engine.as_ref().map_or(0, Engine::memory_bytes) as u64
    }

    pub(crate) fn has(&self, sha: &[u8]) -> bool {
        read_sha(sha).is_some_and(|sha| self.by_sha.contains_key(&sha))
    }

    /// A script with this digest, in small or capital letters.
    pub(crate) fn find(&mut self, sha: &[u8]) -> Option<(Sha, Script)> {
        let sha = read_sha(sha)?;
        let script = self.by_sha.get_mut(&sha)?;
        if let Some(used) = &mut script.used {
            self.uses += 1;
            self.by_use.remove(used);
            self.by_use.insert(self.uses, sha);
            *used = self.uses;
        }
        Some((sha, *script))
    }

    /// Notes that a script walks over the keys of a database.
    pub(crate) fn note_walk(&mut self, sha: &Sha) {
        if let Some(script) = self.by_sha.get_mut(sha) {
            script.walks = true;
        }
    }

    /// The script with this text, which is compiled if it is new. With `stays`, it stays until it is flushed.
    pub(crate) fn add(&mut self, text: &[u8], stays: bool) -> Answer<(Sha, Script)> {
        let sha = sha1_hex(text);
        if let Some(found) = self.find(&sha) {
            if let Some(used) = found.1.used.filter(|_| stays) {
                self.by_use.remove(&used);
                self.by_sha.entry(sha).and_modify(|script| script.used = None);
            }
            return Ok(found);
        }
        let (header, body) = Header::read(text).map_err(Fault::Quoting)?;
        if stays && self.text_bytes + text.len() > SCRIPT_BYTES_MAX {
            self.evict(SCRIPT_BYTES_MAX.saturating_sub(text.len()), EVAL_SCRIPTS_MAX);
            if self.text_bytes + text.len() > SCRIPT_BYTES_MAX {
                return Err(Fault::Error("OOM the texts of all scripts exceed the maximum"));
            }
        }
        let engine = match &mut self.engine {
            Some(engine) => engine,
            none => none.insert(Engine::new().map_err(|why| Fault::Quoting(format!("OOM {why}").into()))?),
        };
        let compiled = engine.compile(body).map_err(|why| {
            Fault::Quoting([b"ERR Error compiling script (new function): ", &why[..]].concat())
        })?;
        self.uses += 1;
        let used = (!stays).then_some(self.uses);
        let script = Script { compiled, header, bytes: text.len(), used, walks: false };
        self.evict(SCRIPT_BYTES_MAX.saturating_sub(text.len()), EVAL_SCRIPTS_MAX - 1);
        self.by_use.extend(used.map(|used| (used, sha)));
        self.by_sha.insert(sha, script);
        self.text_bytes += text.len();
        Ok((sha, script))
    }

    /// Forgets the scripts that were used longest ago, until there is room.
    fn evict(&mut self, bytes_max: usize, count_max: usize) {
        while (self.text_bytes > bytes_max || self.by_use.len() > count_max)
            && let Some((_, sha)) = self.by_use.pop_first()
        {
            if let (Some(script), Some(engine)) = (self.by_sha.remove(&sha), &mut self.engine) {
                self.text_bytes -= script.bytes;
                engine.forget(script.compiled);
                self.evicted += 1;
            }
        }
    }

    /// Forgets all scripts, and gives the memory of Lua back.
    pub(crate) fn flush(&mut self) {
        *self = Scripts { evicted: self.evicted, ..Scripts::default() };
    }
}

pub(crate) fn read_sha(text: &[u8]) -> Option<Sha> {
    let mut sha: Sha = text.try_into().ok()?;
    sha.make_ascii_lowercase();
    Some(sha)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_eval_are_evicted_and_loaded_ones_stay() {
        let mut scripts = Scripts::default();
        let (loaded, _) = scripts.add(b"return 'loaded'", true).ok().unwrap();
        let (first, _) = scripts.add(b"return 0", false).ok().unwrap();
        let (second, _) = scripts.add(b"return 1", false).ok().unwrap();
        for number in 2..EVAL_SCRIPTS_MAX {
            scripts.add(format!("return {number}").as_bytes(), false).ok().unwrap();
        }
        assert_eq!((scripts.len(), scripts.evicted), (EVAL_SCRIPTS_MAX + 1, 0));
        assert!(scripts.find(&first.to_ascii_uppercase()).is_some());
        scripts.add(b"return -1", false).ok().unwrap();
        assert_eq!((scripts.len(), scripts.evicted), (EVAL_SCRIPTS_MAX + 1, 1));
        assert!(scripts.has(&loaded) && scripts.has(&first) && !scripts.has(&second));
        scripts.flush();
        assert_eq!((scripts.len(), scripts.text_bytes(), scripts.engine_bytes()), (0, 0, 0));
    }

    #[test]
    fn the_texts_of_scripts_are_bounded() {
        let mut scripts = Scripts::default();
        let text = |number: usize| format!("return {number} --{}", "x".repeat(1 << 20)).into_bytes();
        (0..20).for_each(|number| drop(scripts.add(&text(number), false)));
        assert!(scripts.text_bytes() <= SCRIPT_BYTES_MAX as u64);
        let loaded = (0..20).filter(|&number| scripts.add(&text(100 + number), true).is_ok()).count();
        assert_eq!(loaded, 7);
        assert!(scripts.add(b"return 1", false).is_ok());
    }
}
