//! Telling subscribers of changes of keys.
//!
//! A command that changes a key calls [`Keyspace::notify`] with the class and the name of the event. If
//! `notify-keyspace-events` asks for that class, up to two messages are published: the event to the key's
//! channel `__keyspace@0__:key` (K), and the key to the event's channel `__keyevent@0__:event` (E). They
//! leave after the commit of the change, as all messages do.

use crate::pubsub::PubSub;
use crate::subscriptions::SubscriptionKind;

/// Classes of events, as bits.
pub(crate) mod class {
    /// Publish to the channels of keys.
    pub(crate) const KEYSPACE: u32 = 1;
    /// Publish to the channels of events.
    pub(crate) const KEYEVENT: u32 = 1 << 1;
    /// Commands for keys of any type.
    pub(crate) const GENERIC: u32 = 1 << 2;
    /// Commands for strings.
    pub(crate) const STRING: u32 = 1 << 3;
    /// Commands for lists.
    pub(crate) const LIST: u32 = 1 << 4;
    /// Commands for sets.
    pub(crate) const SET: u32 = 1 << 5;
    /// Commands for hashes.
    pub(crate) const HASH: u32 = 1 << 6;
    /// Commands for sorted sets.
    pub(crate) const SORTED_SET: u32 = 1 << 7;
    /// Keys whose time has come.
    pub(crate) const EXPIRED: u32 = 1 << 8;
    /// Keys that went because there was no memory for them.
    pub(crate) const EVICTED: u32 = 1 << 9;
    /// Reads of absent keys.
    pub(crate) const MISS: u32 = 1 << 11;
    /// New keys.
    pub(crate) const NEW: u32 = 1 << 14;
}

/// The letters of the classes that `A` stands for, and `n`, in the order in which Redis shows them. Those of
/// types that are not here and of modules never occur.
const LETTERS: &[(u8, u32)] = &[
    (b'g', class::GENERIC),
    (b'$', class::STRING),
    (b'l', class::LIST),
    (b's', class::SET),
    (b'h', class::HASH),
    (b'z', class::SORTED_SET),
    (b'x', class::EXPIRED),
    (b'e', class::EVICTED),
    (b't', 1 << 10),
    (b'd', 1 << 13),
    (b'n', class::NEW),
];
const OTHERS: &[(u8, u32)] = &[(b'K', class::KEYSPACE), (b'E', class::KEYEVENT), (b'm', class::MISS)];

/// The classes that `A` stands for.
fn all() -> u32 {
    LETTERS.iter().filter(|(letter, _)| *letter != b'n').fold(0, |all, (_, class)| all | class)
}

/// Reads letters of classes.
pub(crate) fn read_classes(letters: &[u8]) -> Option<u32> {
    letters.iter().try_fold(0, |classes, letter| {
        let known = LETTERS.iter().chain(OTHERS).find(|(known, _)| known == letter);
        let class = if *letter == b'A' { all() } else { known?.1 };
        Some(classes | class)
    })
}

/// Shows classes by their letters, as Redis does: with all of them, `n` is not shown.
pub(crate) fn show_classes(classes: u32) -> String {
    let is_in = |(_, class): &&(u8, u32)| classes & class != 0;
    let own: Vec<u8> = match classes & all() == all() {
        true => vec![b'A'],
        false => LETTERS.iter().filter(is_in).map(|(letter, _)| *letter).collect(),
    };
    let others = OTHERS.iter().filter(is_in).map(|(letter, _)| *letter);
    own.into_iter().chain(others).map(char::from).collect()
}

/// [`Keyspace::notify`], for those who have taken the keyspace apart.
#[inline(always)]
pub(super) fn notify(
    pubsub: &mut PubSub,
    depends: bool,
    class: u32,
    event: &str,
    database: usize,
    key: &[u8],
) {
    if pubsub.notified & class != 0 {
        publish(pubsub, depends, event, database, key);
    }
}

#[cold]
fn publish(pubsub: &mut PubSub, depends: bool, event: &str, database: usize, key: &[u8]) {
    if pubsub.notified & class::KEYSPACE != 0 {
        let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
        pubsub.publish(SubscriptionKind::Channel, &channel, event.as_bytes(), depends);
    }
    if pubsub.notified & class::KEYEVENT != 0 {
        let channel = format!("__keyevent@{database}__:{event}");
        pubsub.publish(SubscriptionKind::Channel, channel.as_bytes(), key, depends);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_shown_as_redis_shows_them() {
        for (letters, shown) in [
            ("", ""),
            ("KEA", "AKE"),
            ("KEAn", "AKE"),
            ("KEn", "nKE"),
            ("mAEK", "AKEm"),
            ("KEg", "gKE"),
            ("g$lshzxetd", "A"),
            ("x", "x"),
        ] {
            assert_eq!(show_classes(read_classes(letters.as_bytes()).unwrap()), shown, "{letters}");
        }
        assert_eq!(read_classes(b"KEq"), None);
    }
}
