//! Migrations: what old objects become, what is refused, and that a crash at any moment of one loses nothing.

mod crash;
mod full;
mod versions;

use std::path::PathBuf;
use tembo_heap::{
    Brand, Error, ErrorKind, Heap, Migrations, Obj, Options, OtherLayout, PRc, Persist, ReadTx, SameName,
    Summary, check, describe,
};
use tembo_pool::Pool;
use versions::{v1, v2, v3};

struct Place {
    path: PathBuf,
    options: Options,
    _directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::new().create(true).initial_bytes(4 << 20);
        Place { path: directory.path().join("migrate.heap"), options, _directory: directory }
    }

    fn pool(&self) -> Pool {
        Pool::open(&self.path, &self.options).unwrap()
    }

    fn types(&self) -> Vec<(String, String)> {
        describe(&self.pool()).unwrap().unwrap().types
    }

    /// Checks the heap, and every block of its pool.
    fn summary(&self) -> Summary {
        let pool = self.pool();
        let mut marks = pool.marks().unwrap();
        let summary = check(&pool, &mut marks).unwrap();
        marks.finish().unwrap();
        summary
    }

    /// Objects that there are of each type.
    fn prove(&self) -> Vec<(String, u64)> {
        let summary = self.summary();
        assert_eq!((summary.dying, summary.orphans, summary.moved), (0, 0, 0));
        let mut counts: Vec<_> =
            summary.types.into_iter().map(|usage| (usage.name, usage.objects + usage.arrays)).collect();
        counts.sort();
        counts
    }
}

#[test]
fn every_kind_of_object_is_made_anew() {
    let place = Place::new();
    Heap::with(&place.path, &place.options, |heap| v1::fill(&heap, 40)).unwrap();
    let (old, objects) = (v1::read(place.pool()).unwrap(), place.prove());
    assert!(old.circle && old.people.len() == 40);

    let made = versions::to_v2().run(&place.path, &place.options).unwrap();
    assert!(made > 100, "{made} objects");
    let new = v2::read(place.pool()).unwrap();
    assert_eq!(new, old);
    let after_v2 = place.prove();
    // Marks have become too large to lie in their map's buckets.
    let (larger, others): (Vec<_>, Vec<_>) =
        after_v2.iter().cloned().partition(|(name, _)| name == "PHashMap::Entry<u64, Mark>");
    assert_eq!((larger.len(), larger[0].1), (1, 40));
    assert_eq!(others, objects);
    let layouts = place.types();
    assert!(layouts.iter().all(|(_, layout)| !layout.contains("age: u32")), "{layouts:?}");
    assert_eq!(versions::to_v2().run(&place.path, &place.options).unwrap(), 0);

    // The old program is told what has changed, and changes nothing.
    let refused = v1::read(place.pool()).unwrap_err();
    for words in ["`circle` is a u64 there and a u32 here", "144 bytes", "Migrate"] {
        assert!(refused.contains(words), "{refused}");
    }
    assert_eq!(v2::read(place.pool()).unwrap(), old);

    // The numbers of the old types are used again.
    let count = layouts.len();
    versions::to_v3().run(&place.path, &place.options).unwrap();
    assert_eq!(v3::read(place.pool()).unwrap(), old);
    assert_eq!((place.prove(), place.types().len()), (after_v2, count));
}

#[test]
fn a_heap_that_was_migrated_is_used_as_any_other() {
    let place = Place::new();
    Heap::with(&place.path, &place.options, |heap| v1::fill(&heap, 5)).unwrap();
    versions::to_v2().run(&place.path, &place.options).unwrap();
    Heap::with(&place.path, &place.options, |heap| v2::empty(&heap)).unwrap();
    let left = place.prove();
    // The circle that nothing leads to stays.
    let person = left.iter().find(|(name, _)| name == "Person").unwrap();
    assert_eq!(person.1, 2, "{left:?}");
}

#[test]
fn what_has_no_migration_is_refused_and_nothing_is_changed() {
    let place = Place::new();
    Heap::with(&place.path, &place.options, |heap| v1::fill(&heap, 3)).unwrap();
    let before = std::fs::read(&place.path).unwrap();
    let outcome = Migrations::new().add::<v1::Town, v2::Town>().run(&place.path, &place.options);
    match outcome.unwrap_err().into_kind() {
        ErrorKind::Layout(OtherLayout { name, difference, .. }) => {
            assert_eq!(name, "Person");
            assert!(difference.contains("`age` is only in the heap"), "{difference}");
        }
        other => panic!("{other}"),
    }
    assert!(v1::read(place.pool()).is_ok());
    assert!(before.len() as u64 == place.path.metadata().unwrap().len());
}

#[test]
fn a_migration_that_changes_old_objects_is_refused_and_can_be_mended() {
    let place = Place::new();
    Heap::with(&place.path, &place.options, |heap| v1::fill(&heap, 3)).unwrap();
    let old = v1::read(place.pool()).unwrap();
    let wrong = versions::to_v2_wrongly().run(&place.path, &place.options);
    assert!(matches!(&wrong, Err(e) if matches!(e.kind(), ErrorKind::MigrationChanges)), "{wrong:?}");
    // It has begun, so that nobody opens it before it is over.
    let refused = v2::read(place.pool()).unwrap_err();
    assert!(refused.contains("interrupted"), "{refused}");
    let fewer = Migrations::new().run(&place.path, &place.options);
    assert!(matches!(&fewer, Err(e) if matches!(e.kind(), ErrorKind::Layout(_))), "{fewer:?}");
    versions::to_v2().run(&place.path, &place.options).unwrap();
    assert_eq!(v2::read(place.pool()).unwrap(), old);
}

#[test]
fn where_there_is_no_heap_there_is_nothing_to_do() {
    let place = Place::new();
    assert_eq!(versions::to_v2().run(&place.path, &place.options).unwrap(), 0);
    assert!(!place.path.exists());
    drop(place.pool());
    assert_eq!(versions::to_v2().run(&place.path, &place.options).unwrap(), 0);
    Heap::with(&place.path, &place.options, |heap| v1::fill(&heap, 1)).unwrap();
    let pool = place.pool();
    let mut lane = pool.lane().unwrap();
    let mut tx = lane.begin();
    let off = tx.alloc_zeroed(64).unwrap();
    tx.set_root("other", 7, off).unwrap();
    tx.commit().unwrap();
    drop((lane, pool));
    let outcome = versions::to_v2().run(&place.path, &place.options);
    let refused = outcome.unwrap_err().into_kind();
    assert!(matches!(&refused, ErrorKind::NotAlone { root } if root == "other"), "{refused:?}");
}

mod twins {
    use super::*;

    #[derive(Default, Persist)]
    #[repr(C)]
    pub(super) struct Twin {
        pub(super) number: u64,
    }

    pub(super) mod other {
        use super::*;

        #[derive(Default, Persist)]
        #[repr(C)]
        pub(crate) struct Twin {
            pub(crate) text: [u8; 8],
        }
    }

    #[derive(Default, Persist)]
    #[repr(C)]
    pub(super) struct Both {
        pub(super) one: PRc<Twin>,
        pub(super) two: PRc<other::Twin>,
    }
}

#[test]
fn two_types_of_one_name_are_told_from_a_layout_that_changed() {
    let place = Place::new();
    let outcome = Heap::with(&place.path, &place.options, |_: Heap<_, twins::Both>| Ok(()));
    match outcome.unwrap_err().into_kind() {
        ErrorKind::SameName(SameName { name, one, other }) => {
            assert_eq!(name, "Twin");
            assert!(one.contains("text") != other.contains("text"), "{one} {other}");
        }
        other => panic!("{other}"),
    }
    drop(std::fs::remove_file(&place.path));
    Heap::with(&place.path, &place.options, |_: Heap<_, twins::Twin>| Ok(())).unwrap();
    let outcome = Heap::with(&place.path, &place.options, |_: Heap<_, twins::other::Twin>| Ok(()));
    match outcome.unwrap_err().into_kind() {
        ErrorKind::Layout(OtherLayout { name, difference, .. }) => {
            assert_eq!(name, "Twin");
            assert_eq!(difference, "`number` is only in the heap, `text` is only in the program");
        }
        other => panic!("{other}"),
    }
    let outcome = Heap::with(&place.path, &place.options, |_: Heap<_, twins::Both>| Ok(()));
    assert!(matches!(&outcome, Err(e) if matches!(e.kind(), ErrorKind::OtherRoot(_))), "{outcome:?}");
}

/// Values of hash maps of which some come to lie in their buckets, or elsewhere, or fewer in a bucket, than
/// before.
mod sizes {
    use super::*;
    use tembo_heap::collections::PHashMap;
    use tembo_heap::{Migrate, Plain, Ref};

    macro_rules! value {
        ($old:ident, $new:ident, $name:literal, $before:literal, $after:literal) => {
            #[derive(Clone, Copy, Persist, Plain)]
            #[persist(name = $name)]
            #[repr(C)]
            pub(super) struct $old {
                pub words: [u64; $before],
            }

            #[derive(Clone, Copy, Persist, Plain)]
            #[persist(name = $name)]
            #[repr(C)]
            pub(super) struct $new {
                pub words: [u64; $after],
                mark: (),
            }

            impl Migrate<$old> for $new {
                fn migrate<'t, B: Brand>(tx: &ReadTx<'t, B>, old: Ref<'t, B, $old>) -> Result<$new, Error> {
                    Ok($new { words: [tx.get(old)?.words[0] + 1; $after], mark: () })
                }
            }
        };
    }
    value!(FewBefore, FewAfter, "Few", 1, 2);
    value!(FartherBefore, FartherAfter, "Farther", 2, 3);
    value!(NearerBefore, NearerAfter, "Nearer", 4, 1);
    value!(ApartBefore, ApartAfter, "Apart", 4, 5);
    value!(ManyBefore, ManyAfter, "Many", 2, 1);

    macro_rules! root {
        ($root:ident, $few:ident, $farther:ident, $nearer:ident, $apart:ident, $many:ident) => {
            #[derive(Default, Persist)]
            #[persist(name = "Sizes")]
            #[repr(C)]
            pub(super) struct $root {
                pub few: PHashMap<u64, $few>,
                pub farther: PHashMap<u64, $farther>,
                pub nearer: PHashMap<u64, $nearer>,
                pub apart: PHashMap<u64, $apart>,
                pub many: PHashMap<u64, $many>,
            }
        };
    }
    root!(Before, FewBefore, FartherBefore, NearerBefore, ApartBefore, ManyBefore);
    root!(After, FewAfter, FartherAfter, NearerAfter, ApartAfter, ManyAfter);

    pub(super) fn migrations() -> Migrations {
        Migrations::new()
            .add_hash_values::<u64, FewBefore, FewAfter>()
            .add_hash_values::<u64, FartherBefore, FartherAfter>()
            .add_hash_values::<u64, NearerBefore, NearerAfter>()
            .add_hash_values::<u64, ApartBefore, ApartAfter>()
            .add_hash_values::<u64, ManyBefore, ManyAfter>()
    }
}

/// The keys of each map of values whose sizes change.
const SIZED_KEYS: u64 = 700;

/// Each value is its old one and 1, as often as its new type has words.
fn compare_sizes<'t, B: Brand>(tx: &ReadTx<'t, B>, root: Obj<'t, B, sizes::After>) -> Result<(), Error> {
    use sizes::*;
    for key in 0..SIZED_KEYS {
        let words = |words: &[u64]| (words.len(), words.iter().all(|word| *word == key + 1));
        assert_eq!(root.few().value(tx, &key)?.map(|value| words(&value.words)), Some((2, true)));
        assert_eq!(root.farther().value(tx, &key)?.map(|value| words(&value.words)), Some((3, true)));
        assert_eq!(root.nearer().value(tx, &key)?.map(|value| words(&value.words)), Some((1, true)));
        assert_eq!(root.apart().value(tx, &key)?.map(|value| words(&value.words)), Some((5, true)));
        assert_eq!(root.many().value(tx, &key)?.map(|value| words(&value.words)), Some((1, true)));
    }
    for len in [root.few().len(tx)?, root.farther().len(tx)?, root.nearer().iter(tx)?.count()] {
        assert_eq!(len, SIZED_KEYS as usize);
    }
    Ok(())
}

#[test]
fn values_of_hash_maps_become_larger_and_smaller() {
    use sizes::*;
    let place = Place::new();
    Heap::with(&place.path, &place.options, |heap: Heap<_, Before>| {
        heap.write(|tx, root| {
            for key in 0..SIZED_KEYS {
                root.few().insert(tx, &key, FewBefore { words: [key] })?;
                root.farther().insert(tx, &key, FartherBefore { words: [key; 2] })?;
                root.nearer().insert(tx, &key, NearerBefore { words: [key; 4] })?;
                root.apart().insert(tx, &key, ApartBefore { words: [key; 4] })?;
                root.many().insert(tx, &key, ManyBefore { words: [key; 2] })?;
            }
            Ok(())
        })
    })
    .unwrap();
    place.prove();
    assert!(migrations().run(&place.path, &place.options).unwrap() > 700);
    // The entries that lay elsewhere are in buckets, and their type is unknown now.
    assert!(place.prove().iter().all(|(name, _)| name != "PHashMap::Entry<u64, Nearer>"));
    assert!(place.types().iter().all(|(name, _)| name != "PHashMap::Entry<u64, Nearer>"));
    assert_eq!(migrations().run(&place.path, &place.options).unwrap(), 0);
    // Once more when others have been inserted and removed: the maps are as any other.
    for most in [SIZED_KEYS, 3 * SIZED_KEYS] {
        Heap::with(&place.path, &place.options, |heap: Heap<_, After>| {
            heap.read(compare_sizes)?;
            heap.write(|tx, root| {
                for key in SIZED_KEYS..most {
                    let few = tx.get(root.few().get(tx, &0)?.expect("above"))?;
                    root.few().insert(tx, &key, few)?;
                }
                (SIZED_KEYS..most).try_for_each(|key| root.few().remove(tx, &key).map(drop))
            })
        })
        .unwrap();
    }
    place.prove();
}

#[allow(dead_code, reason = "only their layouts matter")]
mod fields {
    use super::*;

    #[derive(Default, Persist)]
    #[persist(name = "Fields")]
    #[repr(C)]
    pub(super) struct Before {
        a: u32,
        b: u64,
        c: u32,
        shape: ShapeBefore,
    }

    #[derive(Default, Persist)]
    #[persist(name = "Fields")]
    #[repr(C)]
    pub(super) struct After {
        a: u64,
        b: u64,
        c: u32,
        shape: ShapeBefore,
    }

    #[derive(Default, Persist)]
    #[persist(name = "Shape")]
    #[repr(u32)]
    pub(super) enum ShapeBefore {
        #[default]
        Dot,
        Line(PRc<u64>, u64),
    }

    #[derive(Default, Persist)]
    #[persist(name = "Shape")]
    #[repr(u32)]
    pub(super) enum ShapeAfter {
        #[default]
        Dot,
        Line(PRc<u64>, u32),
        Circle(u64),
    }
}

fn difference<Before: Persist + Default, After: Persist + Default>() -> String {
    let place = Place::new();
    Heap::with(&place.path, &place.options, |_: Heap<_, Before>| Ok(())).unwrap();
    let outcome = Heap::with(&place.path, &place.options, |_: Heap<_, After>| Ok(()));
    match outcome.map_err(Error::into_kind) {
        Err(ErrorKind::Layout(e)) => e.difference,
        other => panic!("{other:?}"),
    }
}

#[test]
fn another_layout_is_told_field_by_field() {
    assert_eq!(difference::<fields::Before, fields::After>(), "`a` is a u32 there and a u64 here");
    assert_eq!(
        difference::<fields::ShapeAfter, fields::ShapeBefore>(),
        "`Line.1` is a u32 there and a u64 here, `Circle = 2` is only in the heap, `Circle.0` is only in the heap"
    );
}
