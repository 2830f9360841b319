//! Three versions of a program's types, how each is filled and read, and what becomes of them.

use std::collections::BTreeMap;
use tembo_heap::collections::{PHashMap, PString, PVec};
use tembo_heap::{
    Brand, Error, Heap, Migrate, Migrations, Obj, PArr, PRc, PWeak, Persist, Plain, ReadTx, Ref, Tx,
};
use tembo_pool::Pool;

/// The contents of the heap, whatever the version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// By name: when born, the friend's name, the mother's (weak), and the children's.
    pub people: BTreeMap<String, (u64, Option<String>, Option<String>, Vec<String>)>,
    pub visits: Vec<(u32, Option<String>)>,
    pub notes: Vec<u64>,
    pub marks: BTreeMap<u64, (u32, Option<String>)>,
    pub by_name: BTreeMap<String, String>,
    pub home: Option<String>,
    pub dead: bool,
    pub circle: bool,
}

const YEAR: u64 = 2000;

macro_rules! version {
    ($version:ident, { $($person:tt)* }, { $($visit:tt)* }, { $($mark:tt)* }, { $($town:tt)* }, { $($items:item)* }) => {
        pub(crate) mod $version {
            use super::*;

            $($items)*

            #[derive(Default, Persist)]
            #[persist(name = "Person")]
            #[repr(C)]
            pub(crate) struct Person { $($person)* }

            /// An element of arrays and vectors.
            #[derive(Default, Persist)]
            #[persist(name = "Visit")]
            #[repr(C)]
            pub(crate) struct Visit { $($visit)* }

            /// A value of a map.
            #[derive(Default, Persist)]
            #[persist(name = "Mark")]
            #[repr(C)]
            pub(crate) struct Mark { $($mark)* }

            #[derive(Default, Persist)]
            #[persist(name = "Town")]
            #[repr(C)]
            pub(crate) struct Town { $($town)* }

            /// Reads all there is.
            pub(crate) fn read(pool: Pool) -> Result<Seen, String> {
                let seen = Heap::with_pool(pool, |heap: Heap<_, Town>| {
                    heap.read(|tx, town| seen(tx, town))
                });
                seen.map_err(|e| e.to_string())
            }

            fn name_of<'t, B: Brand>(
                tx: &ReadTx<'t, B>,
                person: Option<Obj<'t, B, Person>>,
            ) -> Result<Option<String>, Error> {
                person.map(|person| person.name().get(tx)).transpose()
            }

            fn seen<'t, B: Brand>(tx: &ReadTx<'t, B>, town: Obj<'t, B, Town>) -> Result<Seen, Error> {
                let mut seen = Seen::default();
                for place in town.people().iter(tx)? {
                    let Some(person) = tx.load(place)? else { continue };
                    let friend = name_of(tx, tx.load(person.friend())?)?;
                    let mother = name_of(tx, tx.upgrade(person.mother())?)?;
                    let mut children = Vec::new();
                    if let Some(array) = tx.array(person.children())? {
                        for i in 0..array.len() {
                            children.extend(name_of(tx, tx.load(array.at(i))?)?);
                        }
                    }
                    let known = (born(tx, person)?, friend, mother, children);
                    seen.people.insert(person.name().get(tx)?, known);
                }
                for place in town.visits().iter(tx)? {
                    let (day, who) = (u32::from(tx.get(place.day())?), tx.load(place.who())?);
                    seen.visits.push((day, name_of(tx, who)?));
                }
                if let Some(notes) = tx.array(town.notes())? {
                    for i in 0..notes.len() {
                        seen.notes.push(tx.get(notes.at(i).number())?.into());
                    }
                }
                for entry in town.marks().iter(tx)? {
                    let (key, place) = entry?;
                    let who = name_of(tx, tx.load(place.who())?)?;
                    seen.marks.insert(key, (tx.get(place.points())?.into(), who));
                }
                for entry in town.by_name().iter(tx)? {
                    let (key, place) = entry?;
                    seen.by_name.extend(name_of(tx, tx.load(place)?)?.map(|name| (key, name)));
                }
                seen.home = match town.home().variant(tx)? {
                    HomeRef::None => None,
                    HomeRef::Of { person, .. } => name_of(tx, tx.load(person)?)?,
                };
                seen.dead = tx.upgrade(town.dead())?.is_none();
                seen.circle = tx.get(town.circle())? == 1;
                Ok(seen)
            }
        }
    };
}

version!(v1,
    { pub name: PString, pub age: u32, pub friend: PRc<Person>, pub mother: PWeak<Person>, pub children: PArr<PRc<Person>> },
    { pub day: u16, pub who: PRc<Person> },
    { pub points: u16, pub who: PRc<Person> },
    { pub people: PVec<PRc<Person>>, pub visits: PVec<Visit>, pub notes: PArr<Note>, pub marks: PHashMap<u64, Mark>,
      pub by_name: PHashMap<PString, PRc<Person>>, pub home: Home, pub dead: PWeak<Person>, pub circle: u32 },
    {
        #[derive(Clone, Copy, Default, Persist, Plain)]
        #[persist(name = "Note")]
        #[repr(C)]
        pub(crate) struct Note { pub number: u16 }

        #[derive(Default, Persist)]
        #[persist(name = "Home")]
        #[repr(u32)]
        pub(crate) enum Home {
            #[default]
            None = 1,
            Of { since: u32, person: PRc<Person> } = 2,
        }

        fn born<'t, B: Brand>(tx: &ReadTx<'t, B>, person: Obj<'t, B, Person>) -> Result<u64, Error> {
            Ok(YEAR - u64::from(tx.get(person.age())?))
        }

        fn person<'t, B: Brand>(tx: &mut Tx<'t, B>, name: &str, age: u32) -> Result<Obj<'t, B, Person>, Error> {
            let person = tx.alloc(Person { age, ..Person::default() })?;
            person.name().set(tx, name)?;
            Ok(person)
        }

        /// This many people, and one of everything else.
        pub(crate) fn fill<B: Brand>(heap: &Heap<B, Town>, count: u32) -> Result<(), Error> {
            (0..count).try_for_each(|i| heap.write(|tx, town| settle(tx, town, i)))?;
            heap.write(|tx, town| {
                let notes = tx.alloc_array(9, |i| Note { number: 3 * i as u16 })?;
                tx.link_array(town.notes(), notes)?;
                let home = tx.load(town.people().at(tx, 0)?)?;
                tx.put(town.home(), Home::Of { since: 7, person: PRc::null() })?;
                if let HomeRef::Of { person, .. } = town.home().variant(tx)? {
                    tx.link(person, home)?;
                }
                // Only the memory stays of one that dies.
                let dies = person(tx, "nobody", 1)?;
                tx.link_weak(town.dead(), dies)?;
                // Two that nothing leads to, and that keep each other alive.
                let (one, two) = (person(tx, "one", 1)?, person(tx, "two", 2)?);
                tx.link(one.friend(), two)?;
                tx.link(two.friend(), one)?;
                tx.set(town.circle(), 1)
            })
        }

        fn settle<'t, B: Brand>(tx: &mut Tx<'t, B>, town: Obj<'t, B, Town>, i: u32) -> Result<(), Error> {
            let new = person(tx, &format!("person {i}{}", " of a long name".repeat(i as usize % 3)), i)?;
            let friend = match town.people().len(tx)? {
                0 => None,
                len => tx.load(town.people().at(tx, len / 2)?)?,
            };
            tx.link(new.friend(), friend)?;
            // A circle of strong pointers that is not lost: everybody is a friend of the first, who is one's
            // of theirs.
            if let Some(friend) = friend {
                tx.link(friend.friend(), new)?;
                tx.link_weak(new.mother(), friend)?;
            }
            let children = tx.alloc_array(i as usize % 4, |_| PRc::null())?;
            for at in 0..children.len() {
                let child = person(tx, &format!("child {i}.{at}"), at as u32)?;
                tx.link_weak(child.mother(), new)?;
                tx.link(children.at(at), child)?;
            }
            tx.link_array(new.children(), children)?;
            town.people().push_link(tx, new)?;
            let visit = town.visits().push(tx, Visit { day: i as u16, who: PRc::null() })?;
            tx.link(visit.who(), friend)?;
            let mark = town.marks().insert(tx, &u64::from(i), Mark { points: 5 * i as u16, who: PRc::null() })?;
            tx.link(mark.who(), new)?;
            let name = town.by_name().insert(tx, &format!("the {i}th"), PRc::null())?;
            tx.link(name, new)
        }
    }
);

version!(v2,
    { pub name: PString, pub friend: PRc<Person>, pub mother: PWeak<Person>, pub children: PArr<PRc<Person>>, pub born: u64,
      pub more: [u64; 4] },
    { pub who: PRc<Person>, pub day: u32, pub hour: u32 },
    { pub who: PRc<Person>, pub points: u32, pub more: [u64; 3] },
    { pub circle: u64, pub home: Home, pub people: PVec<PRc<Person>>, pub visits: PVec<Visit>, pub notes: PArr<Note>,
      pub marks: PHashMap<u64, Mark>, pub by_name: PHashMap<PString, PRc<Person>>, pub dead: PWeak<Person> },
    {
        #[derive(Clone, Copy, Default, Persist, Plain)]
        #[persist(name = "Note")]
        #[repr(C)]
        pub(crate) struct Note { pub number: u32, pub is_new: bool }

        #[derive(Default, Persist)]
        #[persist(name = "Home")]
        #[repr(u32)]
        pub(crate) enum Home {
            #[default]
            None = 1,
            Of { since: u64, person: PRc<Person> } = 3,
        }

        fn born<'t, B: Brand>(tx: &ReadTx<'t, B>, person: Obj<'t, B, Person>) -> Result<u64, Error> {
            tx.get(person.born())
        }

        /// Takes away all but what no pointer leads to.
        pub(crate) fn empty<B: Brand>(heap: &Heap<B, Town>) -> Result<(), Error> {
            heap.write(|tx, town| {
                for place in town.people().iter(tx)? {
                    if let Some(person) = tx.load(place)? {
                        tx.link(person.friend(), None)?;
                    }
                }
                tx.put(*town, Town::default())
            })?;
            heap.collect()
        }
    }
);

// Smaller again, and what has not changed is the same type.
version!(v3,
    { pub name: PString, pub friend: PRc<Person>, pub mother: PWeak<Person>, pub children: PArr<PRc<Person>>, pub born: u32 },
    { pub who: PRc<Person>, pub day: u32, pub hour: u32 },
    { pub who: PRc<Person>, pub points: u32, pub more: [u64; 3] },
    { pub circle: u64, pub home: Home, pub people: PVec<PRc<Person>>, pub visits: PVec<Visit>, pub notes: PArr<Note>,
      pub marks: PHashMap<u64, Mark>, pub by_name: PHashMap<PString, PRc<Person>>, pub dead: PWeak<Person> },
    {
        pub(crate) use super::v2::Note;
        use super::v2::NoteFields;

        #[derive(Default, Persist)]
        #[persist(name = "Home")]
        #[repr(u32)]
        pub(crate) enum Home {
            #[default]
            None = 1,
            #[allow(dead_code, reason = "values of it are as the second version left them")]
            Of { since: u64, person: PRc<Person> } = 3,
        }

        fn born<'t, B: Brand>(tx: &ReadTx<'t, B>, person: Obj<'t, B, Person>) -> Result<u64, Error> {
            Ok(tx.get(person.born())?.into())
        }
    }
);

use v1::{
    HomeRef, HomeVariant as _, MarkFields as _, NoteFields as _, PersonFields as _, TownFields as _,
    VisitFields as _,
};
use v2::{
    HomeRef as NewHomeRef, HomeVariant as _, MarkFields as _, PersonFields as _, TownFields as _,
    VisitFields as _,
};
use v3::PersonFields as _;

/// Persons of the second version have no line for themselves, and those of the others have.
const _: () =
    assert!(size_of::<v1::Person>() == 64 && size_of::<v2::Person>() != 64 && size_of::<v3::Person>() == 64);

impl Migrate<v1::Person> for v2::Person {
    fn migrate<'t, B: Brand>(tx: &ReadTx<'t, B>, old: Ref<'t, B, v1::Person>) -> Result<v2::Person, Error> {
        let born = YEAR - u64::from(tx.get(old.age())?);
        Ok(v2::Person { born, more: [born; 4], ..v2::Person::default() })
    }

    fn link<'t, B: Brand>(
        tx: &mut Tx<'t, B>,
        old: Ref<'t, B, v1::Person>,
        new: Ref<'t, B, v2::Person>,
    ) -> Result<(), Error> {
        tx.carry(old.name(), new.name())?;
        tx.carry(old.friend(), new.friend())?;
        tx.carry(old.mother(), new.mother())?;
        tx.carry(old.children(), new.children())
    }
}

impl Migrate<v1::Visit> for v2::Visit {
    fn migrate<'t, B: Brand>(tx: &ReadTx<'t, B>, old: Ref<'t, B, v1::Visit>) -> Result<v2::Visit, Error> {
        Ok(v2::Visit { day: tx.get(old.day())?.into(), hour: 12, who: PRc::null() })
    }

    fn link<'t, B: Brand>(
        tx: &mut Tx<'t, B>,
        old: Ref<'t, B, v1::Visit>,
        new: Ref<'t, B, v2::Visit>,
    ) -> Result<(), Error> {
        tx.carry(old.who(), new.who())
    }
}

impl Migrate<v1::Mark> for v2::Mark {
    fn migrate<'t, B: Brand>(tx: &ReadTx<'t, B>, old: Ref<'t, B, v1::Mark>) -> Result<v2::Mark, Error> {
        Ok(v2::Mark { points: tx.get(old.points())?.into(), ..v2::Mark::default() })
    }

    fn link<'t, B: Brand>(
        tx: &mut Tx<'t, B>,
        old: Ref<'t, B, v1::Mark>,
        new: Ref<'t, B, v2::Mark>,
    ) -> Result<(), Error> {
        tx.carry(old.who(), new.who())
    }
}

impl Migrate<v1::Note> for v2::Note {
    fn migrate<'t, B: Brand>(tx: &ReadTx<'t, B>, old: Ref<'t, B, v1::Note>) -> Result<v2::Note, Error> {
        Ok(v2::Note { number: tx.get(old.number())?.into(), is_new: false })
    }
}

impl Migrate<v1::Town> for v2::Town {
    fn migrate<'t, B: Brand>(tx: &ReadTx<'t, B>, old: Ref<'t, B, v1::Town>) -> Result<v2::Town, Error> {
        let home = match old.home().variant(tx)? {
            HomeRef::None => v2::Home::None,
            HomeRef::Of { since, .. } => v2::Home::Of { since: tx.get(since)?.into(), person: PRc::null() },
        };
        Ok(v2::Town { circle: tx.get(old.circle())?.into(), home, ..v2::Town::default() })
    }

    fn link<'t, B: Brand>(
        tx: &mut Tx<'t, B>,
        old: Ref<'t, B, v1::Town>,
        new: Ref<'t, B, v2::Town>,
    ) -> Result<(), Error> {
        if let HomeRef::Of { person: old, .. } = old.home().variant(tx)?
            && let NewHomeRef::Of { person: new, .. } = new.home().variant(tx)?
        {
            tx.carry(old, new)?;
        }
        tx.carry(old.people(), new.people())?;
        tx.carry(old.visits(), new.visits())?;
        tx.carry(old.notes(), new.notes())?;
        tx.carry(old.marks(), new.marks())?;
        tx.carry(old.by_name(), new.by_name())?;
        tx.carry(old.dead(), new.dead())
    }
}

impl Migrate<v2::Person> for v3::Person {
    fn migrate<'t, B: Brand>(tx: &ReadTx<'t, B>, old: Ref<'t, B, v2::Person>) -> Result<v3::Person, Error> {
        Ok(v3::Person { born: tx.get(old.born())? as u32, ..v3::Person::default() })
    }

    fn link<'t, B: Brand>(
        tx: &mut Tx<'t, B>,
        old: Ref<'t, B, v2::Person>,
        new: Ref<'t, B, v3::Person>,
    ) -> Result<(), Error> {
        tx.carry(old.name(), new.name())?;
        tx.carry(old.friend(), new.friend())?;
        tx.carry(old.mother(), new.mother())?;
        tx.carry(old.children(), new.children())
    }
}

pub(crate) fn to_v2() -> Migrations {
    Migrations::new()
        .add::<v1::Person, v2::Person>()
        .add::<v1::Visit, v2::Visit>()
        .add::<v1::Note, v2::Note>()
        .add::<v1::Town, v2::Town>()
        .add_hash_values::<u64, v1::Mark, v2::Mark>()
}

pub(crate) fn to_v3() -> Migrations {
    Migrations::new().add::<v2::Person, v3::Person>()
}

/// A mark that takes something away from what it finds.
#[derive(Default, Persist)]
#[persist(name = "Mark")]
#[repr(C)]
pub(crate) struct WrongMark {
    who: PRc<v2::Person>,
    points: u32,
    more: [u64; 3],
}

impl Migrate<v1::Mark> for WrongMark {
    fn migrate<'t, B: Brand>(_: &ReadTx<'t, B>, _: Ref<'t, B, v1::Mark>) -> Result<WrongMark, Error> {
        Ok(WrongMark::default())
    }

    fn link<'t, B: Brand>(
        tx: &mut Tx<'t, B>,
        old: Ref<'t, B, v1::Mark>,
        new: Ref<'t, B, WrongMark>,
    ) -> Result<(), Error> {
        tx.carry(old.who(), new.who())?;
        tx.link(old.who(), None)
    }
}

pub(crate) fn to_v2_wrongly() -> Migrations {
    Migrations::new()
        .add::<v1::Person, v2::Person>()
        .add::<v1::Visit, v2::Visit>()
        .add::<v1::Note, v2::Note>()
        .add::<v1::Town, v2::Town>()
        .add_hash_values::<u64, v1::Mark, WrongMark>()
}
