//! Which arguments of a request are keys, and what else the words of a request say of its keys.

use tembo_wire::Request;
use tembo_wire::number::parse_i64;

use super::args::is;
use super::table::Command;
use super::table::flag::{BLOCKING, MOVABLE_KEYS, NOT_KEYS};

/// Where the command begins that TEMBO.ONCE runs.
pub(crate) const ONCE_COMMAND: usize = 3;

/// The places behind all words of a GEORADIUS that name a result. The last of each word counts when it runs.
pub(crate) fn results_of_radius(request: &Request<'_>) -> impl Iterator<Item = usize> {
    let words = 2..request.arg_count().saturating_sub(1);
    words.filter(|at| is(&request[*at], "STORE") || is(&request[*at], "STOREDIST")).map(|at| at + 1)
}

/// Where the keys of a command are in a request for it, which has as many arguments as it takes; `None` if
/// the request does not tell. Those of a command that another one runs are not among them.
pub(crate) fn places_of_keys(command: &Command, request: &Request<'_>) -> Option<Vec<usize>> {
    if command.has(NOT_KEYS) {
        return None;
    }
    let count = request.arg_count();
    let fixed = command.keys.positions(count);
    Some(match command.name {
        _ if command.runs_script() => {
            // The number of keys is behind the script, and may be 0.
            let number = parse_i64(&request[2]).and_then(|number| usize::try_from(number).ok());
            let number = number.filter(|&number| number <= count - 3)?;
            (3..3 + number).collect()
        }
        _ if command.has(MOVABLE_KEYS) && command.group == "geo" => {
            // The key of a result is behind a keyword among the options.
            let options = command.arity.unsigned_abs() as usize..count - 1;
            let key_behind = |word| options.clone().find(|&at| is(&request[at], word)).map(|at| at + 1);
            fixed.chain(["STORE", "STOREDIST"].into_iter().filter_map(key_behind)).collect()
        }
        "sort" => {
            // The last STORE counts. The arguments of other options are no options, whatever they are called.
            let (mut at, mut store) = (2, None);
            while at + 1 < count {
                let word = &request[at];
                if is(word, "STORE") {
                    store = Some(at + 1);
                }
                at += match word {
                    _ if is(word, "LIMIT") => 3,
                    _ if is(word, "STORE") || is(word, "BY") || is(word, "GET") => 2,
                    _ => 1,
                };
            }
            fixed.chain(store).collect()
        }
        "sort_ro" => fixed.collect(),
        _ if command.has(MOVABLE_KEYS) => {
            // The number of keys stands before the keys, behind the key of the result or a timeout, if there
            // is one.
            let at = command.keys.positions(count).count() + 1 + usize::from(command.has(BLOCKING));
            let number = parse_i64(&request[at]).and_then(|number| usize::try_from(number).ok());
            let number = number.filter(|number| (1..count - at).contains(number))?;
            fixed.chain(at + 1..at + 1 + number).collect()
        }
        _ => fixed.collect(),
    })
}

/// How many arguments follow the name of a subcommand of BITFIELD, OVERFLOW included.
pub(super) fn argument_count(word: &[u8]) -> Option<usize> {
    match word {
        _ if is(word, "GET") => Some(2),
        _ if is(word, "SET") || is(word, "INCRBY") => Some(3),
        _ if is(word, "OVERFLOW") => Some(1),
        _ => None,
    }
}

/// Whether subcommands of BITFIELD, of which these are the arguments, only read.
pub(super) fn only_reads<'a>(args: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut args = args.fuse();
    while let Some(word) = args.next() {
        let count = argument_count(word).filter(|&count| count < 3);
        if count.is_none_or(|count| args.by_ref().take(count).count() < count) {
            return false;
        }
    }
    true
}
