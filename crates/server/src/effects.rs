//! The stream of effects: the words in which a master tells its replicas what its commands did.
//!
//! A command that changed something is propagated as its client sent it, unless its handler gives another
//! form ([`Effects::tell`]), or the table below does: a replica must arrive at the same data at another time
//! and with other random numbers.
//!
//! | command | is told as |
//! |---|---|
//! | SET with EX, PX, EXAT, PXAT or GET; SETEX, PSETEX, GETSET | SET key value, with PXAT |
//! | GETEX | PEXPIREAT, PERSIST or DEL |
//! | EXPIRE and its kind | PEXPIREAT, or DEL if that time has passed |
//! | GETDEL | DEL |
//! | INCRBYFLOAT, HINCRBYFLOAT | SET key sum KEEPTTL; HSET |
//! | SPOP | SREM |
//! | LMPOP, ZMPOP, and commands that wait | LPOP, RPOP, LMOVE, ZPOPMIN, ZPOPMAX |
//! | RESTORE | RESTORE with ABSTTL |
//! | TEMBO.UNLINK | FLUSHDB, or UNLINK of each key |
//! | TEMBO.ONCE | the effect of its command; replicas do not know the token |
//! | a key whose time has come | DEL, at the latest in front of a command that names it |
//!
//! A *unit* is the effects of one command, or of one EXEC: several of them are within MULTI and EXEC. Units
//! that are whole wait for the commit of their data, whose batch gets them too
//! ([`backlog`](crate::keyspace::backlog)). A SELECT stands in front of effects in another database than the
//! last.

use tembo_wire::write_request;

/// One effect of the unit under way.
#[derive(Clone, Copy, Debug)]
struct Effect {
    database: u8,
    /// Its end in the bytes of the unit.
    end: usize,
}

/// A place in the unit under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    effects: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// This is a master that has, or had, replicas: commands are propagated.
    pub(crate) is_on: bool,
    /// Whole units that are not committed.
    pending: Vec<u8>,
    /// The database that a reader of the stream has selected behind the pending units, if that is known.
    selected: Option<u8>,
    committed: Option<u8>,
    unit: Vec<Effect>,
    bytes: Vec<u8>,
    /// The command under way has told its effects itself.
    is_told: bool,
    /// The unit is that of an EXEC under way.
    pub(crate) is_held: bool,
    /// The batch had changes before the command under way.
    pub(crate) was_dirty: bool,
    /// Bytes of the stream that are committed, for a move of slots.
    pub(crate) tap: Option<Vec<u8>>,
}

impl Effects {
    /// Whole units that are not committed.
    pub(crate) fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// The database that the stream has selected.
    pub(crate) fn selected(&self) -> u8 {
        self.selected.unwrap_or_default()
    }

    /// Puts a SELECT before the next command, since a new reader has no database selected.
    pub(crate) fn forget_selected(&mut self) {
        (self.selected, self.committed) = (None, None);
    }

    /// Tells an effect of the command under way, in place of the command itself.
    pub(crate) fn tell<I>(&mut self, database: usize, words: I)
    where
        I: IntoIterator<Item: AsRef<[u8]>, IntoIter: ExactSizeIterator>,
    {
        if self.is_on {
            self.is_told = true;
            self.add(database, words);
        }
    }

    /// Tells that the command under way tells its effects itself, also if there are none.
    pub(crate) fn tell_only(&mut self) {
        self.is_told = true;
    }

    /// Adds an effect to the unit.
    pub(crate) fn add<I>(&mut self, database: usize, words: I)
    where
        I: IntoIterator<Item: AsRef<[u8]>, IntoIter: ExactSizeIterator>,
    {
        write_request(&mut self.bytes, words);
        self.unit.push(Effect { database: database as u8, end: self.bytes.len() });
    }

    /// Adds the removal of a key to the unit, if it is not there already.
    pub(crate) fn add_removal(&mut self, database: usize, key: &[u8]) {
        let begin = self.bytes.len();
        self.add(database, [&b"DEL"[..], key]);
        let is_known = self.unit.iter().scan(0, |start, effect| {
            Some((effect.database, std::mem::replace(start, effect.end)..effect.end))
        });
        let last = self.unit.len() - 1;
        let mut before = is_known.take(last);
        let is_there = before
            .any(|(other, place)| usize::from(other) == database && self.bytes[place] == self.bytes[begin..]);
        if is_there {
            self.unit.pop();
            self.bytes.truncate(begin);
        }
    }

    /// Notes that a command has found the entry of a key whose time has come: its readers have it still.
    #[inline(always)]
    pub(crate) fn note_expired(&mut self, database: usize, key: &[u8]) {
        if self.is_on {
            self.add_removal(database, key);
        }
    }

    /// Begins a command.
    pub(crate) fn begin_command(&mut self) -> Mark {
        self.is_told = false;
        self.mark()
    }

    /// The end of the unit.
    pub(crate) fn mark(&self) -> Mark {
        Mark { effects: self.unit.len(), bytes: self.bytes.len() }
    }

    /// Lets the unit be that of an EXEC that begins.
    pub(crate) fn hold(&mut self) -> Mark {
        self.is_held = true;
        self.begin_command()
    }

    /// Whether the command under way has told its effects itself.
    pub(crate) fn is_told(&self) -> bool {
        self.is_told
    }

    /// Takes back the effects since a mark.
    pub(crate) fn take_back(&mut self, mark: Mark) {
        self.unit.truncate(mark.effects);
        self.bytes.truncate(mark.bytes);
        self.is_told = false;
    }

    /// Ends the unit; returns by how many bytes the stream grew.
    pub(crate) fn close(&mut self) -> usize {
        if self.unit.is_empty() {
            return 0;
        }
        let (before, wraps) = (self.pending.len(), self.unit.len() > 1);
        if wraps {
            self.select(self.unit[0].database);
            write_request(&mut self.pending, ["MULTI"]);
        }
        let (mut unit, bytes) = (std::mem::take(&mut self.unit), std::mem::take(&mut self.bytes));
        let mut start = 0;
        for effect in unit.drain(..) {
            self.select(effect.database);
            self.pending.extend_from_slice(&bytes[start..effect.end]);
            start = effect.end;
        }
        if wraps {
            write_request(&mut self.pending, ["EXEC"]);
        }
        (self.unit, self.bytes) = (unit, bytes);
        self.bytes.clear();
        self.bytes.shrink_to(1 << 16);
        self.pending.len() - before
    }

    fn select(&mut self, database: u8) {
        if self.selected.replace(database) != Some(database) {
            write_request(&mut self.pending, [&b"SELECT"[..], database.to_string().as_bytes()]);
        }
    }

    /// Adds words that have no database; returns how many bytes they are.
    pub(crate) fn add_plain(&mut self, words: &[&str]) -> usize {
        let before = self.pending.len();
        write_request(&mut self.pending, words);
        self.pending.len() - before
    }

    /// Takes bytes of a master's stream that are done.
    pub(crate) fn relay(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Notes the end of a commit.
    pub(crate) fn note_end(&mut self, is_committed: bool) {
        if let Some(tap) = self.tap.as_mut().filter(|_| is_committed) {
            tap.extend_from_slice(&self.pending);
        }
        self.pending.clear();
        self.pending.shrink_to(1 << 20);
        match is_committed {
            true => self.committed = self.selected,
            false => self.selected = self.committed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(effects: &Effects) -> String {
        let text = String::from_utf8_lossy(effects.pending()).into_owned();
        let lines = text.lines().filter(|line| !line.starts_with(['*', '$']));
        lines.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn several_effects_are_within_multi_and_one_is_not() {
        let mut effects = Effects { is_on: true, ..Effects::default() };
        effects.tell(0, ["DEL", "a"]);
        effects.close();
        effects.tell(0, ["DEL", "b"]);
        effects.add_removal(3, b"x");
        effects.add_removal(3, b"x");
        effects.add_removal(0, b"x");
        // SELECT and DEL.
        let before = 23 + 20;
        assert_eq!(effects.close(), effects.pending().len() - before);
        assert_eq!(text(&effects), "SELECT 0 DEL a MULTI DEL b SELECT 3 DEL x SELECT 0 DEL x EXEC");
    }

    #[test]
    fn what_is_taken_back_or_not_committed_is_not_told() {
        let mut effects = Effects { is_on: true, ..Effects::default() };
        let mark = effects.begin_command();
        effects.tell(7, ["DEL", "a"]);
        effects.take_back(mark);
        assert_eq!(effects.close(), 0);
        effects.tell(7, ["DEL", "a"]);
        effects.close();
        effects.note_end(false);
        effects.tell(7, ["DEL", "b"]);
        effects.close();
        // The SELECT was not committed either.
        assert_eq!(text(&effects), "SELECT 7 DEL b");
        effects.note_end(true);
        effects.tell(7, ["DEL", "c"]);
        effects.close();
        assert_eq!(text(&effects), "DEL c");
    }
}
