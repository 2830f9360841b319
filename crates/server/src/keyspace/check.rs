//! Proving a pool's databases sound, without changing them.

use tembo::{Map, Pool};

use super::backlog_reader::check_backlog;
use super::check_report::{CheckError, CheckReport, DatabaseReport};
use super::cluster::check_cluster;
use super::collection::check::{Collections, check_collections};
use super::collection::ordered::Score;
use super::collection::packed::Packed;
use super::collection::registry::ORDER;
use super::cursor::check_cursors;
use super::format::{COLLECTIONS, Kind, Order, Stored, decode_expiry, encode_expiry};
use super::kept_states::stored_kept;
use super::order::read_order;
use super::placement::Layout;
use super::point::check_old_records;
use super::replication::{arriving_maps, check_replication, hidden_maps};
use super::scripts::check_scripts;
use super::tokens::check_tokens;

/// Reads all databases of a pool and proves the invariants of their format: every value is well formed, the
/// lists of expiry times name exactly the keys that have one, and every element of a large collection belongs
/// to one that counts it, or to one that is about to be freed. Changes nothing; there must be no writer
/// meanwhile. It does not check the maps themselves: use [`Pool::check`] for that.
///
/// Takes time proportional to the number of keys and elements, and memory proportional to the number of large
/// collections.
///
/// # Errors
/// The first damage found.
pub fn check(pool: &Pool) -> Result<CheckReport, CheckError> {
    let (mut report, mut collections) = (CheckReport::default(), Collections::default());
    let (layout, hidden) = (Layout::of(pool)?, hidden_maps(pool)?);
    let states = stored_kept(pool)?;
    let kept = states.bits();
    if kept & arriving_maps(pool)? != 0 {
        return Err(CheckError::Collection {
            place: "the states that are kept".to_owned(),
            what: "a new state arrives in their maps".to_owned(),
        });
    }
    report.kept.0 = states.0.len() as u64;
    for (number, maps) in committed_order(pool)?.iter() {
        let (data, expires) = layout.map_names(maps);
        if let Some(data) = pool.find_map(&data)? {
            let expires = pool.find_map(&expires)?;
            if layout == Layout::Slots {
                check_places((number, hidden >> maps & 1 == 1), &data)?;
            }
            let found = check_database((number, maps), (&data, expires.as_ref(), layout), &mut collections)?;
            match kept >> maps & 1 {
                1 => report.kept.1 += found.keys,
                _ => report.databases.push(found),
            }
        }
    }
    report.collections = check_collections(pool, collections)?;
    (report.scan_prefixes, report.tokens) = (check_cursors(pool)?, check_tokens(pool)?);
    report.is_replica = check_replication(pool)?;
    let backlog = check_backlog(pool)?;
    (report.backlog_bytes, report.missing_backlog_bytes) = (backlog.bytes, backlog.missing_bytes);
    report.cluster = check_cluster(pool)?;
    check_old_records(pool)?;
    report.scripts = check_scripts(pool)?;
    Ok(report)
}

/// Which maps each database has.
fn committed_order(pool: &Pool) -> Result<Order, CheckError> {
    let Some(list) = pool.find_map(COLLECTIONS)? else {
        return Ok(Order::default());
    };
    read_order(list.get(ORDER)?.as_deref()).map_err(|_| CheckError::Collection {
        place: "the list of collections".to_owned(),
        what: "the order of the databases is malformed".to_owned(),
    })
}

/// Proves I13. A state that is arriving may be in the maps of any database.
fn check_places((number, is_arriving): (usize, bool), data: &Map) -> Result<(), CheckError> {
    for entry in data.iter() {
        let entry = entry?;
        if !Layout::Slots.is_sound(entry.key()) || number > 0 && !is_arriving {
            let entry = entry.key().escape_ascii().to_string();
            return Err(CheckError::Misplaced { database: number, entry });
        }
    }
    Ok(())
}

fn check_database(
    (number, maps): (usize, usize),
    (data, expires, layout): (&Map, Option<&Map>, Layout),
    collections: &mut Collections,
) -> Result<DatabaseReport, CheckError> {
    let mut report = DatabaseReport { number, keys: 0, expires: 0 };
    let mut listing = Vec::new();
    for entry in data.iter() {
        let entry = entry?;
        let key = || layout.key(entry.key()).escape_ascii().to_string();
        let stored = Stored::decode(entry.value())
            .map_err(|_| CheckError::Malformed { database: number, key: key() })?;
        match stored.large() {
            Some(large) => collections.note((number, maps), stored.meta.kind, large, key)?,
            None if !is_sound_when_packed(&stored) => {
                return Err(CheckError::Malformed { database: number, key: key() });
            }
            None => {}
        }
        report.keys += 1;
        if let Some(deadline) = stored.meta.deadline {
            encode_expiry(&mut listing, deadline, entry.key());
            if !expires.map_or(Ok(false), |expires| expires.contains_key(&listing))? {
                return Err(CheckError::Unlisted { database: number, key: key() });
            }
            report.expires += 1;
        }
    }
    match expires {
        Some(expires) if expires.len()? != report.expires => Err(find_stale(number, data, expires)?),
        _ => Ok(report),
    }
}

/// Whether the payload of a packed value is well formed, and has no field twice.
fn is_sound_when_packed(stored: &Stored<'_>) -> bool {
    if stored.meta.kind == Kind::String {
        return true;
    }
    let Ok(packed) = Packed::decode(stored.meta.kind, stored.payload) else {
        return false;
    };
    if stored.meta.kind == Kind::List {
        return true;
    }
    let place = |(member, score): (&[u8], &[u8])| Some((Score::read(score).ok()?, member.to_vec()));
    if stored.meta.kind == Kind::SortedSet
        && !packed.iter().map(place).collect::<Option<Vec<_>>>().is_some_and(|places| places.is_sorted())
    {
        return false;
    }
    let mut fields: Vec<_> = packed.iter().map(|(field, _)| field).collect();
    fields.sort_unstable();
    fields.windows(2).all(|pair| pair[0] != pair[1])
}

/// The entry of a list of deadlines that belongs to no key.
fn find_stale(number: usize, data: &Map, expires: &Map) -> Result<CheckError, CheckError> {
    for entry in expires.iter() {
        let entry = entry?;
        if !is_due_to_a_key(data, entry.key())? {
            let entry = entry.key().escape_ascii().to_string();
            return Ok(CheckError::Stale { database: number, entry });
        }
    }
    Ok(CheckError::Stale { database: number, entry: "(the list's length is wrong)".to_owned() })
}

fn is_due_to_a_key(data: &Map, listing: &[u8]) -> Result<bool, tembo::Error> {
    let Ok((deadline, key)) = decode_expiry(listing) else {
        return Ok(false);
    };
    let value = data.get(key)?;
    let stored = value.as_deref().and_then(|value| Stored::decode(value).ok());
    Ok(stored.is_some_and(|stored| stored.meta.deadline == Some(deadline)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::Keyspace;
    use crate::keyspace::entry::Old;
    use crate::keyspace::format::Meta;

    struct Sample {
        pool: Pool,
        _dir: tempfile::TempDir,
    }

    /// Two databases with keys that expire and keys that do not.
    fn sample() -> Sample {
        let dir = tempfile::tempdir().unwrap();
        let pool = tembo::Options::new().create(true).open(dir.path().join("sample.pool")).unwrap();
        let mut keys = Keyspace::open(&pool).unwrap();
        for database in [0, 9] {
            keys.create(database).unwrap();
            for (key, deadline) in [(b"plain", None), (b"soon!", Some(7)), (b"later", Some(1 << 40))] {
                keys.put(database, key, Meta { deadline, ..Meta::default() }, Old::default(), &[b"value"])
                    .unwrap();
            }
            keys.commit().unwrap();
        }
        drop(keys);
        Sample { pool, _dir: dir }
    }

    #[test]
    fn sound_databases_are_counted() {
        let report = check(&sample().pool).unwrap();
        let expected = |number| DatabaseReport { number, keys: 3, expires: 2 };
        assert_eq!(report.databases, [expected(0), expected(9)]);
    }

    #[test]
    fn each_kind_of_damage_is_named() {
        let damage = |map: &str, key: &[u8], value: Option<&[u8]>| {
            let sample = sample();
            let map = sample.pool.open_map(map).unwrap();
            match value {
                Some(value) => map.put(key, value).map(drop).unwrap(),
                None => assert!(map.remove(key).unwrap()),
            }
            check(&sample.pool).unwrap_err().to_string()
        };
        let listing = b"\0\0\0\0\0\0\0\x07soon!";
        assert!(damage("db0", b"plain", Some(b"")).contains("key \"plain\" is malformed"));
        assert!(damage("db0", b"plain", Some(b"\x05x")).contains("key \"plain\" is malformed"));
        assert!(
            damage("db9.expires", listing, None).contains("database 9: key \"soon!\" expires, and is not")
        );
        assert!(damage("db0.expires", b"short", Some(b"")).contains("entry \"short\" for no key"));
        assert!(damage("db0", b"soon!", None).contains("\\x07soon!\" for no key"));
    }

    #[test]
    fn damage_of_a_node_of_a_cluster_is_named() {
        let damage = |map: &str, key: &[u8], value: &[u8]| {
            let dir = tempfile::tempdir().unwrap();
            let pool = tembo::Options::new().create(true).open(dir.path().join("node.pool")).unwrap();
            crate::keyspace::cluster::prepare(&pool, true).unwrap();
            let mut keys = Keyspace::open(&pool).unwrap();
            keys.create(0).unwrap();
            keys.create(3).unwrap();
            keys.put(0, b"foo", Meta { deadline: Some(7), ..Meta::default() }, Old::default(), &[b"v"])
                .unwrap();
            keys.commit().unwrap();
            drop(keys);
            let report = check(&pool).unwrap();
            assert_eq!((report.databases[0].keys, report.cluster), (1, Some(None)));
            pool.open_map(map).unwrap().put(key, value).unwrap();
            check(&pool).unwrap_err().to_string()
        };
        // "foo" has slot 12182, which is 0x2f96.
        for (map, key) in [("slots0", &b"\x2f\x97foo"[..]), ("slots0", b"f"), ("slots3", b"\x2f\x96foo")] {
            let error = damage(map, key, b"\0v");
            assert!(error.contains("is not a key behind its slot, in database 0"), "{error}");
        }
        assert!(damage("slots0", b"\x2f\x96foo", b"").contains("key \"foo\" is malformed"));
        for (key, value) in [(&b"i"[..], &b"short"[..]), (b"t", b"\x01\0\0\0\0\0\0\0no node"), (b"x", b"")] {
            assert!(damage("db.cluster", key, value).contains("the cluster, entry"), "{key:?}");
        }
        assert!(damage("db3", b"a", b"\0v").contains("in the pool of a cluster's node"));
    }
}
