//! Where the units of a stream end: a unit is a command, or all from MULTI to EXEC.
//!
//! The stream is read as it arrives, in constant memory: no command is ever held whole.

/// The longest name that matters, with its line end.
const NAME_BYTES_MAX: usize = 16;
/// The longest line that announces a number.
const LINE_BYTES_MAX: usize = 32;

/// The place of a scan in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A command begins.
    Between,
    /// The line with the number of words.
    Count,
    /// The line with the length of a word.
    Length,
    /// The bytes that are left of a word, with its line end.
    Word(u64),
}

/// A scan of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Units {
    state: State,
    line: Vec<u8>,
    /// Words of the command that are still to come, the one at hand included.
    words_left: u64,
    /// The first word of the command, as far as it is kept.
    name: Vec<u8>,
    is_first: bool,
    in_multi: bool,
    /// Bytes that were read.
    offset: u64,
}

impl Units {
    /// Begins where a unit begins.
    pub(crate) fn new() -> Units {
        Units {
            state: State::Between,
            line: Vec::new(),
            words_left: 0,
            name: Vec::new(),
            is_first: false,
            in_multi: false,
            offset: 0,
        }
    }

    /// Bytes that were read.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether a unit ends here.
    pub(crate) fn is_between(&self) -> bool {
        self.state == State::Between && !self.in_multi
    }

    /// Reads bytes up to the first end of a unit that is not before `target`; returns how many it took.
    ///
    /// # Errors
    /// The bytes are no stream: where, and why.
    pub(crate) fn take(&mut self, bytes: &[u8], target: u64) -> Result<usize, (u64, &'static str)> {
        let mut at = 0;
        while at < bytes.len() && !(self.is_between() && self.offset >= target) {
            let taken = match self.state {
                State::Word(left) => left.min((bytes.len() - at) as u64) as usize,
                _ => 1,
            };
            self.step(&bytes[at..at + taken]).map_err(|what| (self.offset, what))?;
            at += taken;
            self.offset += taken as u64;
        }
        Ok(at)
    }

    /// Reads a byte, or several of a word.
    fn step(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        match self.state {
            State::Between => match bytes[0] {
                b'*' => self.state = State::Count,
                // Signs of life.
                b'\r' | b'\n' => {}
                _ => return Err("no command begins here"),
            },
            State::Count => {
                if let Some(words) = self.number(bytes[0])? {
                    if words == 0 {
                        return Err("a command without words");
                    }
                    (self.words_left, self.is_first, self.state) = (words, true, State::Length);
                    self.name.clear();
                }
            }
            State::Length => {
                if self.line.is_empty() && bytes[0] != b'$' {
                    return Err("a word without a length");
                }
                if let Some(length) = self.number(bytes[0])? {
                    self.state = State::Word(length + 2);
                }
            }
            State::Word(left) => {
                if self.is_first && self.name.len() < NAME_BYTES_MAX {
                    let kept = bytes.len().min(NAME_BYTES_MAX - self.name.len());
                    self.name.extend_from_slice(&bytes[..kept]);
                }
                let left = left - bytes.len() as u64;
                self.state = State::Word(left);
                if left == 0 {
                    self.end_word();
                }
            }
        }
        Ok(())
    }

    fn end_word(&mut self) {
        self.words_left -= 1;
        self.state = if self.words_left > 0 { State::Length } else { State::Between };
        if std::mem::take(&mut self.is_first) {
            let name = self.name.trim_ascii_end();
            self.in_multi |= name.eq_ignore_ascii_case(b"multi");
            // The unit ends with this command.
            if name.eq_ignore_ascii_case(b"exec") || name.eq_ignore_ascii_case(b"discard") {
                self.in_multi = false;
            }
        }
    }

    /// Reads a byte of a line that ends with a number; returns it at the end.
    fn number(&mut self, byte: u8) -> Result<Option<u64>, &'static str> {
        self.line.push(byte);
        if byte != b'\n' {
            return if self.line.len() > LINE_BYTES_MAX { Err("a number is too long") } else { Ok(None) };
        }
        let digits = self.line.strip_suffix(b"\r\n").ok_or("a line has no end")?;
        let digits = digits.strip_prefix(b"$").unwrap_or(digits);
        let number = tembo_wire::number::parse_u64(digits).filter(|number| *number < 1 << 40);
        self.line.clear();
        number.map(Some).ok_or("a number is none")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tembo_wire::write_request;

    fn stream(lines: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        lines.iter().for_each(|line| write_request(&mut out, line.split(' ').collect::<Vec<_>>()));
        out
    }

    #[test]
    fn a_unit_ends_with_a_command_or_with_exec() {
        let bytes = stream(&["SELECT 3", "MULTI", "SET a 1", "SET multi exec", "EXEC", "DEL a"]);
        let end = |lines: &[&str]| stream(lines).len() as u64;
        let ends = [end(&["SELECT 3"]), bytes.len() as u64 - end(&["DEL a"]), bytes.len() as u64];
        for piece in [1, 2, 7, 1000] {
            for target in 1..=bytes.len() as u64 {
                let (mut units, mut at) = (Units::new(), 0);
                while at < bytes.len() {
                    let taken = units.take(&bytes[at..bytes.len().min(at + piece)], target).unwrap();
                    if taken == 0 {
                        break;
                    }
                    at += taken;
                }
                let expected = ends.iter().find(|end| **end >= target).unwrap();
                assert_eq!((units.offset(), units.is_between()), (*expected, true), "{piece} {target}");
            }
        }
    }

    #[test]
    fn other_bytes_are_no_stream() {
        for bytes in [
            &b"SET a 1\r\n"[..],
            b"*0\r\n",
            b"*1\r\n:1\r\n",
            b"*1\n",
            b"*x\r\n",
            b"*1\r\n$99999999999999999\r\n",
        ] {
            assert!(Units::new().take(bytes, u64::MAX).is_err(), "{:?}", bytes.escape_ascii().to_string());
        }
        let mut units = Units::new();
        assert_eq!(units.take(b"\r\n*1\r\n$4\r\nPI", u64::MAX), Ok(12));
        assert!(!units.is_between());
    }
}
