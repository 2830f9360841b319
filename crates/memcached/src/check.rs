//! A check of the items.

use crate::item::{Item, STATE_KEY};
use crate::items::stored_state;
use crate::request::KEY_BYTES_MAX;
use crate::{Error, MAP_NAME};
use tembo::Pool;

/// Reads all items of a pool and proves that each is one (I1 of the format) and has a key that clients can
/// name. Returns their number, or `None` if the pool has no map of this server. Changes nothing; there must
/// be no writer meanwhile. It does not check the map itself: use [`Pool::check`] for that. O(n).
///
/// # Errors
///
/// [`Error::Damaged`] for the first item that is damaged, and [`Error::Pool`].
pub fn check(pool: &Pool) -> Result<Option<u64>, Error> {
    let Some(map) = pool.find_map(MAP_NAME)? else { return Ok(None) };
    match stored_state(&map) {
        // Somebody's own map of that name.
        Err(Error::Foreign { .. }) => return Ok(None),
        outcome => outcome?,
    };
    let mut count = 0;
    for entry in map.iter() {
        let entry = entry?;
        if entry.key() == STATE_KEY {
            continue;
        }
        if Item::decode(entry.value()).is_none() || entry.key().len() > KEY_BYTES_MAX {
            let (key, bytes) = (entry.key().escape_ascii().to_string(), entry.value().len());
            return Err(Error::Damaged { key, bytes });
        }
        count += 1;
    }
    Ok(Some(count))
}
