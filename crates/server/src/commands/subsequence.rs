//! Longest common subsequences: LCS.

use tembo_wire::Request;

use super::args::{Options, integer, is};
use super::context::{Context, Handler, Out};
use crate::fault::{Answer, Fault, SYNTAX};
use crate::keyspace::format::Stored;

pub(super) const HANDLERS: &[(&str, Handler)] = &[("lcs", lcs)];

const TABLE_TOO_LARGE: Fault =
    Fault::Error("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len");
const NO_MEMORY: Fault = Fault::Error("ERR Insufficient memory, failed allocating transient memory for LCS");

const BOTH_FORMS: Fault = Fault::Error("ERR If you want both the length and indexes, please just use IDX.");
const NOT_STRINGS: Fault = Fault::Error("ERR The specified keys must contain string values");

fn lcs(ctx: &mut Context<'_, '_>, request: &Request<'_>) -> Answer {
    for key in request.args().skip(1).take(2) {
        let stored = ctx.keys.find(ctx.session.database, key)?.live;
        stored.map(Stored::string).transpose().map_err(|_| NOT_STRINGS)?;
    }
    let form = ReplyForm::parse(Options::after(request, 3))?;
    let (database, max_bytes) = (ctx.database(), ctx.state.config.limits.max_bulk_bytes);
    let first = ctx.keys.read(database, &request[1])?.map_or(&[][..], |stored| stored.payload);
    // This refuses a string that is too long beside any other one, before it is copied.
    cell_count(first, &[], max_bytes)?;
    let first = first.to_vec();
    let second = ctx.keys.read(database, &request[2])?.map_or(&[][..], |stored| stored.payload);
    let table = Table::new(&first, second, max_bytes)?;
    match form {
        ReplyForm::Text => ctx.out.bulk(&table.subsequence()),
        ReplyForm::Length => {
            ctx.out.write().integer(table.longest().into());
            Ok(())
        }
        ReplyForm::Places { least, with_length } => {
            let places = table.places(least);
            ctx.out.expect_room(places.len() * PLACE_BYTES)?;
            write_places(&mut ctx.out, &places, with_length, table.longest());
            Ok(())
        }
    }
}

/// Bytes of a reply that a place takes, at most: its five numbers.
const PLACE_BYTES: usize = 80;

/// How the reply is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyForm {
    Text,
    Length,
    /// The places that are at least this long.
    Places {
        least: usize,
        with_length: bool,
    },
}

impl ReplyForm {
    fn parse(mut options: Options<'_>) -> Answer<Self> {
        let (mut wants_len, mut wants_places, mut with_length, mut least) = (false, false, false, 0);
        while let Some(word) = options.next() {
            match word {
                _ if is(word, "IDX") => wants_places = true,
                _ if is(word, "LEN") => wants_len = true,
                _ if is(word, "WITHMATCHLEN") => with_length = true,
                _ if is(word, "MINMATCHLEN") && options.left() >= 1 => {
                    least = usize::try_from(integer(options.value()?)?).unwrap_or(0);
                }
                _ => return Err(SYNTAX),
            }
        }
        match (wants_places, wants_len) {
            (true, true) => Err(BOTH_FORMS),
            (true, false) => Ok(ReplyForm::Places { least, with_length }),
            (false, true) => Ok(ReplyForm::Length),
            (false, false) => Ok(ReplyForm::Text),
        }
    }
}

fn write_places(out: &mut Out<'_>, places: &[CommonPart], with_length: bool, longest: u32) {
    let mut reply = out.write();
    reply.map(2);
    reply.bulk("matches");
    reply.array(places.len());
    for place in places {
        reply.array(2 + usize::from(with_length));
        for start in [place.first, place.second] {
            reply.array(2);
            reply.integer(start as i64);
            reply.integer((start + place.length - 1) as i64);
        }
        if with_length {
            reply.integer(place.length as i64);
        }
    }
    reply.bulk("len");
    reply.integer(longest.into());
}

/// Bytes of the subsequence that follow each other in both strings: where they begin, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CommonPart {
    first: usize,
    second: usize,
    length: usize,
}

/// How many cells the table of two strings has, if it may take `max_bytes`.
fn cell_count(first: &[u8], second: &[u8], max_bytes: usize) -> Answer<usize> {
    let count = (first.len() + 1).checked_mul(second.len() + 1);
    count.filter(|&count| count <= max_bytes / size_of::<u32>()).ok_or(TABLE_TOO_LARGE)
}

/// The length of the longest common subsequence of each prefix of the first string (a row) and each prefix of
/// the second (a column).
///
/// All forms of the command fill all of it, as in Redis: the limit of its size bounds the time as well.
struct Table<'a> {
    first: &'a [u8],
    second: &'a [u8],
    cells: Vec<u32>,
}

impl<'a> Table<'a> {
    fn new(first: &'a [u8], second: &'a [u8], max_bytes: usize) -> Answer<Self> {
        let mut cells = Vec::new();
        cells.try_reserve_exact(cell_count(first, second, max_bytes)?).map_err(|_| NO_MEMORY)?;
        cells.resize(second.len() + 1, 0);
        for (row, byte) in first.iter().enumerate() {
            let above = row * (second.len() + 1);
            let mut length = 0;
            cells.push(length);
            for (column, other) in second.iter().enumerate() {
                length = if byte == other {
                    cells[above + column] + 1
                } else {
                    length.max(cells[above + column + 1])
                };
                cells.push(length);
            }
        }
        Ok(Table { first, second, cells })
    }

    fn length(&self, row: usize, column: usize) -> u32 {
        self.cells[row * (self.second.len() + 1) + column]
    }

    fn longest(&self) -> u32 {
        self.length(self.first.len(), self.second.len())
    }

    /// Gives the places of the bytes of a longest common subsequence, from its end; of several, the one that
    /// Redis finds from the ends of the strings.
    fn walk(&self, mut visit: impl FnMut(usize, usize)) {
        let (mut row, mut column) = (self.first.len(), self.second.len());
        while row > 0 && column > 0 {
            if self.first[row - 1] == self.second[column - 1] {
                (row, column) = (row - 1, column - 1);
                visit(row, column);
            } else if self.length(row - 1, column) > self.length(row, column - 1) {
                row -= 1;
            } else {
                column -= 1;
            }
        }
    }

    /// The longest common subsequence.
    fn subsequence(&self) -> Vec<u8> {
        let mut common = Vec::with_capacity(self.longest() as usize);
        self.walk(|row, _| common.push(self.first[row]));
        common.reverse();
        common
    }

    /// The places of the parts that are at least `least` long, the last one first.
    fn places(&self, least: usize) -> Vec<CommonPart> {
        let mut places: Vec<CommonPart> = Vec::new();
        self.walk(|row, column| match places.last_mut() {
            Some(place) if (place.first, place.second) == (row + 1, column + 1) => {
                (place.first, place.second, place.length) = (row, column, place.length + 1);
            }
            last => {
                // The part before it is whole.
                if last.is_some_and(|place| place.length < least) {
                    places.pop();
                }
                places.push(CommonPart { first: row, second: column, length: 1 });
            }
        });
        places.pop_if(|place| place.length < least);
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(first: &[u8], second: &[u8]) -> Vec<u8> {
        let table = Table::new(first, second, 1 << 20).ok().unwrap();
        let common = table.subsequence();
        assert_eq!(common.len(), table.longest() as usize);
        common
    }

    #[test]
    fn the_longest_common_subsequence_is_found() {
        for (first, second, expected) in [
            (&b"ohmytext"[..], &b"mynewtext"[..], &b"mytext"[..]),
            (b"", b"", b""),
            (b"abc", b"", b""),
            (b"abc", b"xyz", b""),
            (b"abc", b"abc", b"abc"),
            (b"aaaa", b"aa", b"aa"),
            (b"\0\xff\n", b"\xff\n\0", b"\xff\n"),
        ] {
            assert_eq!(common(first, second), expected);
            assert_eq!(common(second, first), expected);
        }
    }

    #[test]
    fn of_several_longest_ones_the_reply_is_that_of_redis() {
        assert_eq!(common(b"ab", b"ba"), b"b");
        assert_eq!(common(b"ba", b"ab"), b"a");
    }

    #[test]
    fn the_places_are_those_of_the_subsequence_from_its_end() {
        let table = Table::new(b"ohmytext", b"mynewtext", 1 << 20).ok().unwrap();
        let (my, text) =
            (CommonPart { first: 2, second: 0, length: 2 }, CommonPart { first: 4, second: 5, length: 4 });
        assert_eq!(table.places(0), [text, my]);
        assert_eq!(table.places(3), [text]);
        assert_eq!(table.places(5), []);
    }

    #[test]
    fn a_table_takes_four_bytes_for_each_pair_of_prefixes() {
        assert!(Table::new(b"abc", b"de", 48).is_ok());
        assert!(Table::new(b"abc", b"de", 47).is_err());
        assert!(cell_count(&[0; 11], &[], 48).is_ok());
        assert!(cell_count(&[0; 12], &[], 48).is_err());
    }
}
