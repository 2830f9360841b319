//! The entry of a key, as commands find it.

use super::format::Stored;

/// The entry of a key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found<'a> {
    /// The value, unless it has expired.
    pub(crate) live: Option<Stored<'a>>,
    /// A caller that writes or removes the key hands this back, which saves a second look-up.
    pub(crate) old: Old,
    /// There is an entry, expired or not.
    pub(crate) present: bool,
}

/// The other data that are removed with the value of a key, expired or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Old {
    /// The deadline under which the key is listed in "dbN.expires".
    pub(crate) listed: Option<u64>,
    /// The id of a large collection.
    pub(in crate::keyspace) id: Option<u64>,
}

impl Old {
    pub(crate) fn of(stored: &Stored<'_>) -> Self {
        Old { listed: stored.meta.deadline, id: stored.large().map(|(id, _)| id) }
    }

    /// The same for a value that another key, or this one, has from now on: its elements stay.
    pub(crate) fn kept(self) -> Self {
        Old { id: None, ..self }
    }
}

pub(in crate::keyspace) fn is_live(deadline: Option<u64>, now_ms: u64) -> bool {
    deadline.is_none_or(|deadline| deadline > now_ms)
}
