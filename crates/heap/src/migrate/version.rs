//! The trait of a type's new version.

use crate::error::Result;
use crate::objects::brand::Brand;
use crate::objects::persist::Persist;
use crate::objects::place::Ref;
use crate::tx::{ReadTx, Tx};

/// Converts values of a type to its new version. Implemented for the new version, and given to
/// [`Migrations`](crate::Migrations).
///
/// The old version is a type of the program too. It has the same name in heaps by `#[persist(name = "...")]`.
///
/// ```
/// # use tembo_heap::{Brand, Error, Heap, Migrate, Migrations, Options, PRc, Persist, ReadTx, Ref, Tx};
/// /// A person, as the first version of the program knew it.
/// #[derive(Default, Persist)]
/// #[persist(name = "Person")]
/// #[repr(C)]
/// struct PersonV1 { age: u32, friend: PRc<PersonV1> }
///
/// #[derive(Default, Persist)]
/// #[repr(C)]
/// struct Person { born: u64, friend: PRc<Person>, name: [u8; 16] }
///
/// impl Migrate<PersonV1> for Person {
///     fn migrate<'t, B: Brand>(tx: &ReadTx<'t, B>, old: Ref<'t, B, PersonV1>) -> Result<Person, Error> {
///         let born = 2024 - u64::from(tx.get(old.age())?);
///         Ok(Person { born, friend: PRc::null(), name: [0; 16] })
///     }
///
///     fn link<'t, B: Brand>(
///         tx: &mut Tx<'t, B>,
///         old: Ref<'t, B, PersonV1>,
///         new: Ref<'t, B, Person>,
///     ) -> Result<(), Error> {
///         tx.carry(old.friend(), new.friend())
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("people.heap");
/// # let options = Options::new().create(true);
/// # Heap::with(&path, &options, |heap: Heap<_, PersonV1>| {
/// #     heap.write(|tx, root| tx.set(root.age(), 30))
/// # })?;
/// assert!(Heap::with(&path, &options, |_: Heap<_, Person>| Ok(())).is_err());
/// Migrations::new().add::<PersonV1, Person>().run(&path, &options)?;
/// Heap::with(&path, &options, |heap: Heap<_, Person>| {
///     let born = heap.read(|tx, person| tx.get(person.born()))?;
///     assert_eq!(born, 1994);
///     Ok(())
/// })
/// # }
/// ```
pub trait Migrate<Old: Persist>: Persist {
    /// The new value. As everywhere, its pointers are null.
    ///
    /// The old value's pointers can be followed; their targets have their old layouts.
    ///
    /// # Errors
    ///
    /// Any error ends the migration, which continues when it is run again.
    fn migrate<'t, B: Brand>(tx: &ReadTx<'t, B>, old: Ref<'t, B, Old>) -> Result<Self>;

    /// Sets the pointers of the new value at its place: [`Tx::carry`] takes over those that stay. Objects
    /// that it does not take over die, unless other pointers lead to them.
    ///
    /// # Errors
    ///
    /// As for [`migrate`](Self::migrate).
    fn link<'t, B: Brand>(tx: &mut Tx<'t, B>, old: Ref<'t, B, Old>, new: Ref<'t, B, Self>) -> Result<()> {
        let _ = (tx, old, new);
        Ok(())
    }
}

impl<Old: Persist, New: Migrate<Old>, const N: usize> Migrate<[Old; N]> for [New; N] {
    fn migrate<'t, B: Brand>(tx: &ReadTx<'t, B>, old: Ref<'t, B, [Old; N]>) -> Result<[New; N]> {
        let values = (0..N).map(|i| New::migrate(tx, old.at(i))).collect::<Result<Vec<New>>>()?;
        values.try_into().map_err(|_| unreachable!("as many as there were"))
    }

    fn link<'t, B: Brand>(
        tx: &mut Tx<'t, B>,
        old: Ref<'t, B, [Old; N]>,
        new: Ref<'t, B, [New; N]>,
    ) -> Result<()> {
        (0..N).try_for_each(|i| New::link(tx, old.at(i), new.at(i)))
    }
}

/// Refuses two types that are no versions of one.
pub(super) const fn assert_versions<Old: Persist, New: Persist>() {
    assert!(
        Old::NAME_HASH == New::NAME_HASH,
        "both versions of a type have the same name: #[persist(name = \"...\")]"
    );
    assert!(Old::HASH != New::HASH, "both types have the same layout, so that there is nothing to migrate");
}
