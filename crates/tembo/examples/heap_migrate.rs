//! A program whose type has changed since its first version: the first run begins with the old one.
//!
//! `cargo run --example heap_migrate -- [file]`
//!
//! `docs/guide/heap.md` explains it.

use std::path::Path;
use tembo::Options;
use tembo::heap::collections::PString;
use tembo::heap::{Brand, Error, Heap, Migrate, Migrations, PRc, Persist, ReadTx, Ref, Tx, brand};

/// The type as the first version of the program had it.
#[derive(Default, Persist)]
#[persist(name = "Person")]
#[repr(C)]
struct PersonV1 {
    age: u32,
    friend: PRc<PersonV1>,
}

#[derive(Default, Persist)]
#[repr(C)]
struct Person {
    born: u64,
    friend: PRc<Person>,
    name: PString,
}

brand!(People);

impl Migrate<PersonV1> for Person {
    fn migrate<'t, B: Brand>(tx: &ReadTx<'t, B>, old: Ref<'t, B, PersonV1>) -> Result<Person, Error> {
        Ok(Person { born: 2024 - u64::from(tx.get(old.age())?), ..Person::default() })
    }

    fn link<'t, B: Brand>(
        tx: &mut Tx<'t, B>,
        old: Ref<'t, B, PersonV1>,
        new: Ref<'t, B, Person>,
    ) -> Result<(), Error> {
        tx.carry(old.friend(), new.friend())
    }
}

/// Runs the first version of the program, which leaves a person of 30 years with a friend of 40.
fn first_version(path: &Path, options: &Options) -> Result<(), Error> {
    let heap = Heap::<People, PersonV1>::open(path, options)?;
    heap.write(|tx, person| {
        tx.set(person.age(), 30)?;
        let friend = tx.alloc(PersonV1 { age: 40, ..PersonV1::default() })?;
        tx.link(person.friend(), friend)
    })
}

/// Runs the example on a file.
pub(crate) fn run(path: &Path) -> Result<(), Error> {
    let options = Options::new().create(true);
    if !path.exists() {
        first_version(path, &options)?;
    }
    Migrations::new().add::<PersonV1, Person>().run(path, &options)?;
    let heap = Heap::<People, Person>::open(path, &options)?;
    let born = heap.read(|tx, person| {
        let friend = tx.load(person.friend())?;
        let friend = friend.map(|friend| tx.get(friend.born())).transpose()?;
        Ok((tx.get(person.born())?, friend))
    })?;
    println!("born in {}, a friend in {:?}", born.0, born.1);
    assert_eq!(born, (1994, Some(1984)));
    Ok(())
}

#[allow(dead_code, reason = "a test runs the example too")]
fn main() -> Result<(), Error> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "people.heap".to_owned());
    run(Path::new(&path))
}
