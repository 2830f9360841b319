//! ACL LOG: recent denials.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::check::Reason;

/// A denial that is repeated within this time is counted in the entry of the first.
const SAME_WITHIN: Duration = Duration::from_secs(60);
/// How many of the newest entries are compared with a denial, to find the one that it repeats.
const LOOKED_AT: usize = 10;
/// Bytes of an argument or a name that are kept.
const KEPT_BYTES_MAX: usize = 1024;

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Auth => "auth",
            Reason::Channel => "channel",
        }
    }
}

/// Where a denied command came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    TopLevel,
    Multi,
    Script,
}

impl Origin {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Origin::TopLevel => "toplevel",
            Origin::Multi => "multi",
            Origin::Script => "lua",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) count: u64,
    pub(crate) reason: Reason,
    pub(crate) origin: Origin,
    /// The command, key or channel.
    pub(crate) object: Vec<u8>,
    pub(crate) user: Vec<u8>,
    pub(crate) since: Instant,
    /// The client, as CLIENT INFO describes it.
    pub(crate) client: Vec<u8>,
}

/// The last denials, the latest first.
#[derive(Debug, Default)]
pub(crate) struct AclLog {
    pub(crate) entries: VecDeque<Entry>,
}

impl AclLog {
    /// Notes a denial, with at most this many entries.
    pub(crate) fn note(&mut self, mut entry: Entry, len_max: usize) {
        entry.object.truncate(KEPT_BYTES_MAX);
        entry.user.truncate(KEPT_BYTES_MAX);
        entry.client.truncate(4 * KEPT_BYTES_MAX);
        let is_same = |known: &Entry| {
            (known.reason, known.origin) == (entry.reason, entry.origin)
                && (&known.object, &known.user) == (&entry.object, &entry.user)
                && entry.since.saturating_duration_since(known.since) <= SAME_WITHIN
        };
        let same = self.entries.iter().take(LOOKED_AT).position(is_same);
        if let Some(known) = same.and_then(|at| self.entries.remove(at)) {
            entry.count += known.count;
        }
        self.entries.push_front(entry);
        self.entries.truncate(len_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(object: &str, since: Instant) -> Entry {
        let (reason, origin, object) = (Reason::Key, Origin::TopLevel, object.as_bytes().to_vec());
        Entry { count: 1, reason, origin, object, user: b"u".to_vec(), since, client: Vec::new() }
    }

    #[test]
    fn the_same_denial_counts_and_comes_to_the_front() {
        let (mut log, now) = (AclLog::default(), Instant::now());
        for object in ["a", "b", "a"] {
            log.note(entry(object, now), 8);
        }
        log.note(entry("b", now + SAME_WITHIN * 2), 8);
        let seen: Vec<_> = log.entries.iter().map(|entry| (&entry.object[..], entry.count)).collect();
        assert_eq!(seen, [(&b"b"[..], 1), (b"a", 2), (b"b", 1)]);
        log.note(entry("c", now), 2);
        assert_eq!(log.entries.len(), 2);
        log.note(entry(&"x".repeat(9999), now), 2);
        assert_eq!(log.entries[0].object.len(), KEPT_BYTES_MAX);
    }
}
