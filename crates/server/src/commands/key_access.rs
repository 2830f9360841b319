//! The access of a command to each of its keys, for users that may not use all keys.
//!
//! A key whose access the table does not tell is taken as read and written.

use tembo_wire::Request;

use super::args::is;
use super::key_arguments::{only_reads, places_of_keys, results_of_radius};
use super::key_places::{Specification, specifications_of};
use super::table::Command;
use super::table::flag::{MOVABLE_KEYS, NOT_KEYS};
use crate::glob;

#[derive(Clone, Copy, Debug)]
struct Access {
    reads: bool,
    writes: bool,
}

const BOTH: Access = Access { reads: true, writes: true };
const READS: Access = Access { reads: true, writes: false };
const WRITES: Access = Access { reads: false, writes: true };

/// How to find the keys of one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    #[default]
    NoKeys,
    /// At one place.
    One(usize),
    /// At fixed places, which cost no memory to find.
    Fixed,
    /// The places depend on arguments.
    Movable,
    /// [`Way::Movable`], and behind each of some words.
    Geo,
    /// The first argument is the beginning of keys.
    Prefix,
}

/// Whether the access depends on the options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Options {
    #[default]
    Never,
    Set,
    Bitfield,
    Sort,
}

/// The access of one command to its keys.
#[derive(Debug, Default)]
pub(crate) struct KeyAccess {
    way: Way,
    options: Options,
    /// The access to all of its keys, where it is the same.
    only: Option<Access>,
    specifications: Vec<(Specification, Access)>,
}

impl KeyAccess {
    pub(crate) fn of(command: &Command) -> Self {
        let way = match command.name {
            "tembo.count" | "tembo.unlink" => Way::Prefix,
            // The keys of the inner command are checked with that command.
            "tembo.once" => Way::NoKeys,
            _ if command.has(NOT_KEYS) => Way::NoKeys,
            _ if command.has(MOVABLE_KEYS) && command.group == "geo" => Way::Geo,
            _ if command.has(MOVABLE_KEYS) => Way::Movable,
            _ if command.keys.first > 0 && command.keys.first == command.keys.last => {
                Way::One(command.keys.first as usize)
            }
            _ if command.keys.first > 0 => Way::Fixed,
            _ => Way::NoKeys,
        };
        let access = |its: &Specification| {
            let has = |wanted: &[&str]| its.flags().any(|flag| wanted.contains(&flag));
            Access { reads: has(&["access"]), writes: has(&["insert", "delete", "update"]) }
        };
        let specifications = specifications_of(command.name).into_iter();
        let specifications: Vec<_> = specifications.map(|its| (its, access(&its))).collect();
        let options = match command.name {
            "set" => Options::Set,
            "bitfield" => Options::Bitfield,
            "sort" => Options::Sort,
            _ => Options::Never,
        };
        let only = match specifications[..] {
            [(_, access)] if matches!(way, Way::One(_) | Way::Fixed) && options == Options::Never => {
                Some(access)
            }
            _ => None,
        };
        KeyAccess { way, options, only, specifications }
    }

    /// The place of the first key that is not allowed. `allows` gets a key, or the prefix of keys, and
    /// whether it is read and whether it is written.
    #[inline]
    pub(crate) fn find_denied(
        &self,
        command: &Command,
        request: &Request<'_>,
        allows: impl Fn(&[u8], bool, bool, bool) -> bool,
    ) -> Option<usize> {
        let is_denied = |place: &usize| {
            let Access { reads, writes } = self.only.unwrap_or_else(|| self.at(request, *place));
            !allows(&request[*place], false, reads, writes)
        };
        match self.way {
            Way::NoKeys => None,
            Way::One(place) => Some(place).filter(is_denied),
            Way::Fixed => command.keys.positions(request.arg_count()).find(is_denied),
            Way::Prefix => {
                let access = if command.name == "tembo.count" { READS } else { BOTH };
                let prefix = glob::as_prefix(&request[1]).unwrap_or_default();
                let is_allowed = allows(&prefix, true, access.reads, access.writes);
                (!is_allowed).then_some(1)
            }
            Way::Movable | Way::Geo => {
                let places = places_of_keys(command, request).unwrap_or_default();
                places.into_iter().find(is_denied).or_else(|| {
                    let is_denied = |place: &usize| !allows(&request[*place], false, false, true);
                    results_of_radius(request).filter(|_| self.way == Way::Geo).find(is_denied)
                })
            }
        }
    }

    #[inline]
    fn at(&self, request: &Request<'_>, place: usize) -> Access {
        match self.options {
            Options::Set if request.arg_count() == 3 => WRITES,
            Options::Set => match request.args().skip(3).any(|word| is(word, "GET")) {
                true => BOTH,
                false => WRITES,
            },
            Options::Bitfield if only_reads(request.args().skip(2)) => READS,
            Options::Sort if place > 1 => WRITES,
            _ => {
                let its = self.specifications.iter().find(|(its, _)| its.has(request, place));
                match its {
                    Some((_, access)) => *access,
                    None if self.way == Way::Geo => WRITES,
                    None => BOTH,
                }
            }
        }
    }
}
