//! Lua's patterns, matched with bounds on depth and time.
//!
//! The matcher backtracks, as that of Lua does: a pattern can take a time that is exponential in its length.
//! So it counts its steps, and asks now and then whether the script may go on. Its recursion has a limit too,
//! which Lua 5.1 lacks: there a long pattern overflows the stack of the machine.

use mlua::Result;

/// Captures that a pattern may have.
pub(crate) const CAPTURES_MAX: usize = 32;
/// Matches within matches.
const DEPTH_MAX: usize = 1000;
/// Steps after which the script's time is looked at.
const STEPS_PER_LOOK: u32 = 1 << 14;

/// Why a match is given up.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The pattern is wrong.
    Pattern(&'static str),
    /// The script may not go on.
    Stop(mlua::Error),
}

type Found<T> = std::result::Result<T, Trouble>;

/// A captured part, or a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Open,
    Place,
    Bytes(usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Capture {
    pub(crate) start: usize,
    pub(crate) length: Length,
}

/// A match under way of a pattern in a subject.
pub(crate) struct Matcher<'a> {
    pub(crate) subject: &'a [u8],
    pub(crate) pattern: &'a [u8],
    pub(crate) captures: Vec<Capture>,
    depth: usize,
    steps: u32,
    look: &'a dyn Fn() -> Result<()>,
}

impl<'a> Matcher<'a> {
    pub(crate) fn new(subject: &'a [u8], pattern: &'a [u8], look: &'a dyn Fn() -> Result<()>) -> Self {
        Matcher { subject, pattern, captures: Vec::new(), depth: 0, steps: 0, look }
    }

    /// The end of the match of the pattern from `from` on that begins at `start`, if there is one.
    pub(crate) fn run(&mut self, start: usize, from: usize) -> Found<Option<usize>> {
        self.captures.clear();
        self.depth = 0;
        self.match_here(start, from)
    }

    fn step(&mut self) -> Found<()> {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_PER_LOOK) {
            (self.look)().map_err(Trouble::Stop)?;
        }
        Ok(())
    }

    fn match_here(&mut self, at: usize, from: usize) -> Found<Option<usize>> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Trouble::Pattern("pattern too complex"));
        }
        let found = self.match_items(at, from);
        self.depth -= 1;
        found
    }

    fn match_items(&mut self, mut at: usize, mut from: usize) -> Found<Option<usize>> {
        loop {
            self.step()?;
            let Some(&item) = self.pattern.get(from) else {
                return Ok(Some(at));
            };
            match (item, self.pattern.get(from + 1)) {
                (b'(', Some(b')')) => return self.open(at, from + 2, Length::Place),
                (b'(', _) => return self.open(at, from + 1, Length::Open),
                (b')', _) => return self.close(at, from + 1),
                (b'$', None) => return Ok((at == self.subject.len()).then_some(at)),
                (b'%', Some(b'b')) => match self.balanced(at, from + 2)? {
                    Some(end) => (at, from) = (end, from + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => {
                    let class = from + 2;
                    if self.pattern.get(class) != Some(&b'[') {
                        return Err(Trouble::Pattern("missing '[' after '%f' in pattern"));
                    }
                    let end = self.class_end(class)?;
                    let before = at.checked_sub(1).map_or(0, |before| self.subject[before]);
                    let next = self.subject.get(at).copied().unwrap_or(0);
                    if self.is_in_set(before, class, end - 1) || !self.is_in_set(next, class, end - 1) {
                        return Ok(None);
                    }
                    from = end;
                }
                (b'%', Some(digit)) if digit.is_ascii_digit() => match self.back(at, *digit)? {
                    Some(end) => (at, from) = (end, from + 2),
                    None => return Ok(None),
                },
                _ => match self.match_single(at, from)? {
                    Next::Go(next_at, next_from) => (at, from) = (next_at, next_from),
                    Next::Done(found) => return Ok(found),
                },
            }
        }
    }

    /// Matches one character class with the repetition behind it.
    fn match_single(&mut self, at: usize, from: usize) -> Found<Next> {
        let end = self.class_end(from)?;
        let is_one = at < self.subject.len() && self.is_single(self.subject[at], from, end);
        Ok(match self.pattern.get(end) {
            Some(b'?') => {
                if is_one && let Some(found) = self.match_here(at + 1, end + 1)? {
                    return Ok(Next::Done(Some(found)));
                }
                Next::Go(at, end + 1)
            }
            Some(b'*') => Next::Done(self.expand(at, from, end)?),
            Some(b'+') if is_one => Next::Done(self.expand(at + 1, from, end)?),
            Some(b'-') => Next::Done(self.expand_least(at, from, end)?),
            Some(b'+') => Next::Done(None),
            _ if is_one => Next::Go(at + 1, end),
            _ => Next::Done(None),
        })
    }

    fn expand(&mut self, at: usize, from: usize, end: usize) -> Found<Option<usize>> {
        let mut count = 0;
        while at + count < self.subject.len() && self.is_single(self.subject[at + count], from, end) {
            self.step()?;
            count += 1;
        }
        loop {
            let found = self.match_here(at + count, end + 1)?;
            if found.is_some() || count == 0 {
                return Ok(found);
            }
            count -= 1;
        }
    }

    fn expand_least(&mut self, mut at: usize, from: usize, end: usize) -> Found<Option<usize>> {
        loop {
            let found = self.match_here(at, end + 1)?;
            if found.is_some() {
                return Ok(found);
            }
            if at >= self.subject.len() || !self.is_single(self.subject[at], from, end) {
                return Ok(None);
            }
            at += 1;
        }
    }

    fn open(&mut self, at: usize, from: usize, length: Length) -> Found<Option<usize>> {
        if self.captures.len() >= CAPTURES_MAX {
            return Err(Trouble::Pattern("too many captures"));
        }
        let level = self.captures.len();
        self.captures.push(Capture { start: at, length });
        let found = self.match_here(at, from)?;
        if found.is_none() {
            self.captures.truncate(level);
        }
        Ok(found)
    }

    fn close(&mut self, at: usize, from: usize) -> Found<Option<usize>> {
        let open = self.captures.iter().rposition(|capture| capture.length == Length::Open);
        let level = open.ok_or(Trouble::Pattern("invalid pattern capture"))?;
        self.captures[level].length = Length::Bytes(at - self.captures[level].start);
        let found = self.match_here(at, from)?;
        if found.is_none()
            && let Some(capture) = self.captures.get_mut(level)
        {
            capture.length = Length::Open;
        }
        Ok(found)
    }

    /// The end of a part that is balanced between the two characters at `from`.
    fn balanced(&mut self, at: usize, from: usize) -> Found<Option<usize>> {
        let (Some(&begin), Some(&end)) = (self.pattern.get(from), self.pattern.get(from + 1)) else {
            return Err(Trouble::Pattern("unbalanced pattern"));
        };
        if self.subject.get(at) != Some(&begin) {
            return Ok(None);
        }
        let mut depth = 1;
        for next in at + 1..self.subject.len() {
            self.step()?;
            let byte = self.subject[next];
            if byte == end {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(next + 1));
                }
            } else if byte == begin {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// The end of what an earlier capture has, if it is here again.
    fn back(&mut self, at: usize, digit: u8) -> Found<Option<usize>> {
        let level = usize::from(digit - b'0').checked_sub(1);
        let capture = level.and_then(|level| self.captures.get(level).copied());
        let capture = capture.filter(|capture| capture.length != Length::Open);
        let capture = capture.ok_or(Trouble::Pattern("invalid capture index"))?;
        let Length::Bytes(bytes) = capture.length else {
            return Ok(None);
        };
        let part = &self.subject[capture.start..capture.start + bytes];
        Ok(self.subject[at..].starts_with(part).then_some(at + bytes))
    }

    /// Where the class that begins at `from` ends.
    fn class_end(&self, from: usize) -> Found<usize> {
        const ENDS: Trouble = Trouble::Pattern("malformed pattern (ends with '%')");
        const OPEN: Trouble = Trouble::Pattern("malformed pattern (missing ']')");
        match self.pattern[from] {
            b'%' => self.pattern.get(from + 1).map(|_| from + 2).ok_or(ENDS),
            b'[' => {
                let mut at = from + 1 + usize::from(self.pattern.get(from + 1) == Some(&b'^'));
                loop {
                    let byte = *self.pattern.get(at).ok_or(OPEN)?;
                    at += 1 + usize::from(byte == b'%' && at + 1 < self.pattern.len());
                    if self.pattern.get(at) == Some(&b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(from + 1),
        }
    }

    fn is_single(&self, byte: u8, from: usize, end: usize) -> bool {
        match self.pattern[from] {
            b'.' => true,
            b'%' => is_in_class(byte, self.pattern[from + 1]),
            b'[' => self.is_in_set(byte, from, end - 1),
            literal => literal == byte,
        }
    }

    /// Whether a set, from its `[` at `from` to its `]` at `end`, has the byte.
    fn is_in_set(&self, byte: u8, from: usize, end: usize) -> bool {
        let is_negated = self.pattern.get(from + 1) == Some(&b'^');
        let mut at = from + usize::from(is_negated) + 1;
        while at < end {
            let item = self.pattern[at];
            if item == b'%' {
                at += 1;
                if is_in_class(byte, self.pattern[at]) {
                    return !is_negated;
                }
                at += 1;
            } else if self.pattern.get(at + 1) == Some(&b'-') && at + 2 < end {
                if (item..=self.pattern[at + 2]).contains(&byte) {
                    return !is_negated;
                }
                at += 3;
            } else {
                if item == byte {
                    return !is_negated;
                }
                at += 1;
            }
        }
        is_negated
    }
}

/// How a match goes on behind an item.
enum Next {
    Go(usize, usize),
    Done(Option<usize>),
}

/// Whether a class such as `%a` has the byte; in capitals it has all others.
fn is_in_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_in != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_is_nested_deeply_is_refused() {
        let (subject, pattern) = (vec![b'a'; 5000], b"a?".repeat(5000));
        let mut matcher = Matcher::new(&subject, &pattern, &|| Ok(()));
        assert!(matches!(matcher.run(0, 0), Err(Trouble::Pattern("pattern too complex"))));
    }

    #[test]
    fn a_match_that_takes_for_ever_is_asked_to_stop() {
        let (subject, pattern) = (vec![b'a'; 200], b".-".repeat(20));
        let pattern = [&pattern[..], b"b"].concat();
        let stop = || Err(crate::raise::Raise::Abort.into());
        let mut matcher = Matcher::new(&subject, &pattern, &stop);
        assert!(matches!(matcher.run(0, 0), Err(Trouble::Stop(_))));
    }
}
