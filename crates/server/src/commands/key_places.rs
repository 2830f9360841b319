//! Where the keys of commands are, and the access to them, as COMMAND INFO and COMMAND GETKEYSANDFLAGS tell.
//! The table and its notation are in `keys.txt`.

use tembo_wire::number::parse_i64;
use tembo_wire::{ReplyWriter, Request};

const TABLE: &str = include_str!("keys.txt");

/// How to find some of the keys of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Specification {
    flags: &'static str,
    begin: Begin,
    find: Find,
}

#[derive(Clone, Copy, Debug)]
enum Begin {
    Index(i64),
    Keyword(&'static str, i64),
    Unknown,
}

#[derive(Clone, Copy, Debug)]
enum Find {
    Range { last: i64, step: i64, limit: i64 },
    Number { at: i64, first: i64, step: i64 },
    Unknown,
}

/// The specifications of a command; none if it has no keys.
pub(super) fn specifications_of(command: &str) -> Vec<Specification> {
    let row = TABLE.lines().find_map(|line| line.strip_prefix(command)?.strip_prefix(' '));
    row.unwrap_or_default().split_whitespace().filter_map(read).collect()
}

fn read(text: &'static str) -> Option<Specification> {
    let (flags, place) = text.split_once('@')?;
    let (begin, numbers) = match place.find([':', '#']) {
        Some(at) => (&place[..at], &place[at + 1..]),
        None => return Some(Specification { flags, begin: Begin::Unknown, find: Find::Unknown }),
    };
    let mut number = numbers.split(',').map(|number| number.parse().ok());
    let mut next = || number.next().flatten();
    let (a, b, c) = (next()?, next()?, next()?);
    let find = match place.contains('#') {
        true => Find::Number { at: a, first: b, step: c },
        false => Find::Range { last: a, step: b, limit: c },
    };
    let begin = match begin.split_once('/') {
        Some((keyword, start)) => Begin::Keyword(keyword, start.parse().ok()?),
        None => Begin::Index(begin.parse().ok()?),
    };
    Some(Specification { flags, begin, find })
}

impl Specification {
    pub(super) fn flags(self) -> impl Iterator<Item = &'static str> {
        self.flags.split(',').map(|flag| match flag {
            "rw" => "RW",
            "ro" => "RO",
            "ow" => "OW",
            "rm" => "RM",
            flag => flag,
        })
    }

    /// Whether the argument at a place is one of these keys.
    pub(super) fn has(self, request: &Request<'_>, place: usize) -> bool {
        let count = request.arg_count() as i64;
        let begin = match self.begin {
            Begin::Index(index) => Some(index),
            Begin::Keyword(keyword, start) => {
                let is_it = |at: &i64| request[*at as usize].eq_ignore_ascii_case(keyword.as_bytes());
                (start.max(1)..count).find(is_it).map(|at| at + 1)
            }
            Begin::Unknown => None,
        };
        let Some(begin) = begin else { return false };
        let (first, last, step) = match self.find {
            Find::Range { last, step, .. } if last >= 0 => (begin, begin + last, step),
            Find::Range { last, step, .. } => (begin, count + last, step),
            Find::Number { at, first, step } => {
                let number = request.get((begin + at) as usize).and_then(parse_i64).unwrap_or(0);
                (
                    begin + first,
                    (begin + first).saturating_add(number.saturating_sub(1).saturating_mul(step)),
                    step,
                )
            }
            Find::Unknown => return false,
        };
        let place = place as i64;
        (first..=last).contains(&place) && (place - first) % step.max(1) == 0
    }

    fn write(self, reply: &mut ReplyWriter<'_>) {
        reply.map(3);
        reply.bulk("flags");
        write_set(reply, self.flags(), "");
        let (kind, numbers) = match self.begin {
            Begin::Index(index) => ("index", vec![("index", index)]),
            Begin::Keyword(_, start) => ("keyword", vec![("startfrom", start)]),
            Begin::Unknown => ("unknown", Vec::new()),
        };
        let keyword = match self.begin {
            Begin::Keyword(keyword, _) => Some(keyword),
            _ => None,
        };
        write_part(reply, "begin_search", kind, keyword, &numbers);
        let (kind, numbers) = match self.find {
            Find::Range { last, step, limit } => {
                ("range", vec![("lastkey", last), ("keystep", step), ("limit", limit)])
            }
            Find::Number { at, first, step } => {
                ("keynum", vec![("keynumidx", at), ("firstkey", first), ("keystep", step)])
            }
            Find::Unknown => ("unknown", Vec::new()),
        };
        write_part(reply, "find_keys", kind, None, &numbers);
    }
}

fn write_part(
    reply: &mut ReplyWriter<'_>,
    name: &str,
    kind: &str,
    keyword: Option<&str>,
    numbers: &[(&str, i64)],
) {
    reply.bulk(name);
    reply.map(2);
    reply.bulk("type");
    reply.bulk(kind);
    reply.bulk("spec");
    reply.map(numbers.len() + usize::from(keyword.is_some()));
    if let Some(keyword) = keyword {
        reply.bulk("keyword");
        reply.bulk(keyword);
    }
    for (name, number) in numbers {
        reply.bulk(name);
        reply.integer(*number);
    }
}

pub(super) fn write_set(
    reply: &mut ReplyWriter<'_>,
    names: impl Iterator<Item = &'static str>,
    prefix: &str,
) {
    let names: Vec<_> = names.collect();
    reply.set(names.len());
    names.iter().for_each(|name| reply.simple(format!("{prefix}{name}")));
}

/// Writes the specifications of a command.
pub(super) fn write(reply: &mut ReplyWriter<'_>, command: &str) {
    let specifications = specifications_of(command);
    reply.set(specifications.len());
    specifications.iter().for_each(|its| its.write(reply));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::registry::Registry;
    use crate::commands::table::flag::MOVABLE_KEYS;

    #[test]
    fn a_command_has_a_row_if_it_has_keys() {
        let registry = Registry::new();
        let all = registry.all().iter().copied();
        for command in all.flat_map(|command| std::iter::once(command).chain(command.subcommands)) {
            let has_keys = command.keys.first != 0 || command.has(MOVABLE_KEYS);
            let its = specifications_of(command.name);
            assert_eq!(!its.is_empty(), has_keys && command.name != "tembo.once", "{}", command.name);
        }
        for row in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let (name, specifications) = row.split_once(' ').unwrap();
            assert_eq!(specifications.split(' ').count(), specifications_of(name).len(), "{name}");
        }
    }
}
