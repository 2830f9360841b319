//! Hash tables that lie in a pool beside its maps.

use tembo::{MapOptions, Options};
use tembo_index::CddsHash;

#[test]
fn a_pool_tells_of_its_hash_tables_and_proves_them_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pool");
    let pool = Options::new().create(true).open(&path).unwrap();
    pool.open_map("map").unwrap().put("a", "b").unwrap();
    pool.open_map_with("log", MapOptions::new().versioned(true)).unwrap().put("a", "b").unwrap();
    let table = CddsHash::create(pool.raw(), "table").unwrap();
    (0..500_u32).for_each(|i| _ = table.put(&i.to_be_bytes(), &[7; 30]).unwrap());
    table.keep(&table.snapshot(), "full").unwrap();
    (0..100_u32).for_each(|i| _ = table.remove(&i.to_be_bytes()).unwrap());
    // Beside the handle that is open, and after it.
    for _ in 0..2 {
        let tables = pool.hash_tables().unwrap();
        let [(name, versions)] = &tables[..] else { panic!("{tables:?}") };
        assert_eq!((&name[..], versions.length, versions.version), ("table", 400, 601));
        assert_eq!((&versions.kept[0].name[..], versions.kept[0].length), ("full", 500));
        let report = pool.check().unwrap();
        assert_eq!(report.hash_tables, tables);
        assert_eq!((report.maps.len(), report.versioned_maps.len()), (1, 1));
    }
    assert_eq!(pool.map_names().unwrap().len(), 2);
    assert!(pool.open_map("table").is_err());
    drop((table, pool));
    let pool = Options::new().read_only(true).open(&path).unwrap();
    assert_eq!(pool.check().unwrap().hash_tables.len(), 1);
}
