//! Reading arguments.

use tembo_wire::Request;
use tembo_wire::number::parse_i64;

use crate::fault::{Answer, DB_OUT_OF_RANGE, Fault, NOT_AN_INTEGER, SYNTAX, quotable};
use crate::keyspace::format::DATABASES;

pub(super) fn integer(arg: &[u8]) -> Answer<i64> {
    parse_i64(arg).ok_or(NOT_AN_INTEGER)
}

const NOT_AN_INT: Fault =
    Fault::Error("ERR value is out of range, value must between -2147483648 and 2147483647");

pub(super) fn database(arg: &[u8]) -> Answer<usize> {
    let number = integer(arg)?;
    i32::try_from(number).map_err(|_| NOT_AN_INT)?;
    usize::try_from(number).ok().filter(|&number| number < DATABASES).ok_or(DB_OUT_OF_RANGE)
}

pub(crate) fn is(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// A request's options, which follow its fixed arguments.
pub(super) struct Options<'a> {
    request: &'a Request<'a>,
    next: usize,
}

impl<'a> Options<'a> {
    pub(super) fn after(request: &'a Request<'a>, fixed: usize) -> Self {
        Options { request, next: fixed }
    }

    /// The argument that belongs to the option just read.
    pub(super) fn value(&mut self) -> Answer<&'a [u8]> {
        self.next().ok_or(SYNTAX)
    }

    /// How many are left.
    pub(super) fn left(&self) -> usize {
        self.request.arg_count().saturating_sub(self.next)
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let arg = self.request.get(self.next)?;
        self.next += 1;
        Some(arg)
    }
}

/// Printable without blanks, as names of clients and libraries must be.
pub(super) fn is_plain_name(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// An error that quotes an argument between its texts.
pub(super) fn quoting(before: &str, arg: &[u8], after: &str) -> Fault {
    Fault::Quoting([before.as_bytes(), quotable(arg), after.as_bytes()].concat())
}
