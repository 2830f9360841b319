//! The number of keys of a pool that no server has open.

use tembo::Pool;

use super::format::DATABASES;
use super::placement::Layout;
use super::replication::hidden_maps;

/// How many keys the databases of a pool have.
///
/// # Errors
/// Errors of the pool.
pub fn count_keys(pool: &Pool) -> Result<u64, tembo::Error> {
    let (hidden, layout) = (hidden_maps(pool)?, Layout::of(pool)?);
    let mut seen = (0..DATABASES).filter(|number| hidden >> number & 1 == 0);
    seen.try_fold(0, |sum, number| match pool.find_map(&layout.map_names(number).0)? {
        Some(map) => Ok(sum + map.len()?),
        None => Ok(sum),
    })
}
