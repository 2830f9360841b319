//! Commands done wrong, for the crash simulator to find: each breaks one promise of an encoding.

use tembo_wire::Protocol;

use super::element::remove_some;
use super::ordered::{self, Score};
use super::parts::Construction;
use super::value::{Collection, CollectionBody};
use crate::fault::Answer;
use crate::keyspace::Keyspace;
use crate::keyspace::batch::writer;
use crate::keyspace::entry::Old;
use crate::keyspace::format::{Kind, Meta};
use crate::keyspace::tokens::DIGEST_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// A string's deadline is listed with a later commit.
    DeadlineListedLate,
    /// A packed hash gets two fields with a commit each.
    PackedInHalves,
    /// A large hash counts a new field with a later commit.
    FieldCountedLate,
    /// A large set loses a member, and counts that with a later commit.
    MemberCountedLate,
    /// A score changes, and the order of the members with a later commit.
    OneSideOfSortedSet,
    /// An element is at the end of a list, which counts it with a later commit.
    ListEndNotMoved,
    /// A key gets a new large collection, whose home lists it with a later commit.
    HomeNotRecorded,
    /// Elements are removed, and their key with a later commit.
    FreedBeforeKey,
    /// A key is removed, and its id doomed with a later commit.
    DoomedLate,
    /// The entry of a doomed id is removed before its elements.
    DoomForgotten,
    /// A part of a collection is committed, whose id is listed nowhere.
    ConstructionNotListed,
    /// A key gets a collection that is still listed as under construction.
    ConstructionNotEnded,
    /// An id that moves to another database leaves the list of its home before it is in the list of the other
    /// one.
    MovedInHalves,
    /// A command has run, and its token is remembered with a later commit.
    TokenLate,
    /// A token gets its entry by time with a later commit.
    TokenNotTimed,
    /// A beginning of keys has a name that stands for nothing until a later commit.
    CursorInHalves,
    /// Two databases change places by way of a third, with a commit for each step.
    SwappedInSteps,
}

impl Keyspace<'_> {
    fn id_of(&mut self, key: &[u8]) -> Answer<(u64, Old)> {
        let old = self.find(0, key)?.old;
        Ok((old.id.unwrap_or_default(), old))
    }

    /// Changes entries of the list of collections.
    fn with_list<T>(
        &mut self,
        change: impl FnOnce(&super::registry::Registry, &mut crate::keyspace::batch::Batch<'_>) -> Answer<T>,
    ) -> Answer<T> {
        let Keyspace { pool, batch, collections, dirty, .. } = self;
        *dirty = true;
        change(collections.as_ref().expect("the maps are there"), writer(pool, batch)?)
    }

    fn build(&mut self, key: &[u8], fields: &[String]) -> Answer<Collection> {
        let mut hash = self.replacement(0, key, Kind::Hash)?;
        for field in fields {
            hash.construction = Construction::None;
            self.put_element(&mut hash, field.as_bytes(), b"value")?;
        }
        Ok(hash)
    }
}

impl Broken {
    pub(crate) const ALL: [Broken; 17] = [
        Broken::DeadlineListedLate,
        Broken::PackedInHalves,
        Broken::FieldCountedLate,
        Broken::MemberCountedLate,
        Broken::OneSideOfSortedSet,
        Broken::ListEndNotMoved,
        Broken::HomeNotRecorded,
        Broken::FreedBeforeKey,
        Broken::DoomedLate,
        Broken::DoomForgotten,
        Broken::ConstructionNotListed,
        Broken::ConstructionNotEnded,
        Broken::MovedInHalves,
        Broken::TokenLate,
        Broken::TokenNotTimed,
        Broken::CursorInHalves,
        Broken::SwappedInSteps,
    ];

    /// Does the command, with two commits. `fields` are those of a large hash.
    pub(crate) fn run(self, keys: &mut Keyspace<'_>, fields: &[String]) -> Answer {
        match self {
            Broken::DeadlineListedLate => deadline_listed_late(keys),
            Broken::PackedInHalves => packed_in_halves(keys),
            Broken::FieldCountedLate => counted_late(keys, Kind::Hash, |keys, hash| {
                keys.put_element(hash, b"new", b"value").map(drop)
            }),
            Broken::MemberCountedLate => counted_late(keys, Kind::Set, |keys, set| {
                keys.remove_element(set, fields[3].as_bytes()).map(drop)
            }),
            Broken::ListEndNotMoved => {
                counted_late(keys, Kind::List, |keys, list| keys.push(list, false, [&b"new"[..]]))
            }
            Broken::OneSideOfSortedSet => one_side(keys, fields[3].as_bytes()),
            Broken::HomeNotRecorded => home_not_recorded(keys, fields),
            Broken::FreedBeforeKey => freed_before_key(keys),
            Broken::DoomedLate => doomed_late(keys),
            Broken::DoomForgotten => doom_forgotten(keys),
            Broken::ConstructionNotListed => construction_not_listed(keys, fields),
            Broken::ConstructionNotEnded => construction_not_ended(keys, fields),
            Broken::MovedInHalves => moved_in_halves(keys),
            Broken::TokenLate => token_late(keys),
            Broken::TokenNotTimed => token_not_timed(keys),
            Broken::CursorInHalves => keys.name_in_halves(b"scanned:0", b"scanned:1"),
            Broken::SwappedInSteps => swapped_in_steps(keys),
        }?;
        Ok(keys.commit()?)
    }
}

fn deadline_listed_late(keys: &mut Keyspace<'_>) -> Answer {
    let meta = Meta { deadline: Some(1 << 40), ..Meta::default() };
    let old = Old { listed: meta.deadline, ..Old::default() };
    keys.put(0, b"t0", meta, old, &[b"value"])?;
    keys.commit()?;
    keys.put(0, b"t0", meta, Old::default(), &[b"value"])
}

fn packed_in_halves(keys: &mut Keyspace<'_>) -> Answer {
    for field in [b"a", b"b"] {
        let mut hash = keys.collection(0, b"h1", Kind::Hash)?;
        keys.put_element(&mut hash, field, b"value")?;
        keys.store(b"h1", hash)?;
        keys.commit()?;
    }
    Ok(())
}

fn key_of(kind: Kind) -> &'static [u8] {
    match kind {
        Kind::Hash => b"h0",
        Kind::Set => b"s0",
        Kind::SortedSet => b"z0",
        _ => b"l0",
    }
}

fn counted_late(
    keys: &mut Keyspace<'_>,
    kind: Kind,
    change: impl FnOnce(&mut Keyspace<'_>, &mut Collection) -> Answer,
) -> Answer {
    let mut collection = keys.collection(0, key_of(kind), kind)?;
    change(keys, &mut collection)?;
    keys.commit()?;
    keys.store(key_of(kind), collection)
}

fn one_side(keys: &mut Keyspace<'_>, member: &[u8]) -> Answer {
    let (id, _) = keys.id_of(b"z0")?;
    let (old, new) = (Score::new(3.0), Score::new(99.0));
    keys.dirty = true;
    keys.elements(0, Kind::Set)?.put(id, member, &new.to_bytes())?;
    keys.commit()?;
    keys.with_list(|maps, batch| {
        ordered::remove(batch, &maps.ordered, maps.secret, (id, old, member))?;
        ordered::put(batch, &maps.ordered, maps.secret, (id, new, member))
    })
}

fn home_not_recorded(keys: &mut Keyspace<'_>, fields: &[String]) -> Answer {
    let hash = keys.build(b"h1", fields)?;
    let CollectionBody::Large { id, .. } = hash.body else { panic!("it is not large") };
    keys.with_list(|maps, batch| maps.release(batch, 0, id))?;
    keys.store(b"h1", hash)?;
    keys.commit()?;
    keys.with_list(|maps, batch| maps.end_construction(batch, 0, id))
}

fn freed_before_key(keys: &mut Keyspace<'_>) -> Answer {
    let (id, old) = keys.id_of(b"h0")?;
    keys.with_list(|maps, batch| remove_some(batch, &maps.elements, id, usize::MAX))?;
    keys.commit()?;
    keys.remove(0, b"h0", old)
}

fn doomed_late(keys: &mut Keyspace<'_>) -> Answer {
    let (id, old) = keys.id_of(b"h0")?;
    keys.remove(0, b"h0", old.kept())?;
    keys.with_list(|maps, batch| maps.release(batch, 0, id))?;
    keys.commit()?;
    keys.doom_id(0, id)
}

fn doom_forgotten(keys: &mut Keyspace<'_>) -> Answer {
    let (id, old) = keys.id_of(b"h0")?;
    keys.remove(0, b"h0", old)?;
    keys.commit()?;
    // The end of a construction takes an id off the same list.
    keys.with_list(|maps, batch| {
        maps.end_construction(batch, 0, id)?;
        maps.release(batch, 0, id)
    })?;
    keys.commit()?;
    keys.with_list(|maps, batch| remove_some(batch, &maps.elements, id, usize::MAX).map(drop))
}

fn construction_not_listed(keys: &mut Keyspace<'_>, fields: &[String]) -> Answer {
    let hash = keys.build(b"h1", fields)?;
    let CollectionBody::Large { id, .. } = hash.body else { panic!("it is not large") };
    keys.with_list(|maps, batch| maps.release(batch, 0, id))?;
    keys.commit()?;
    keys.with_list(|maps, batch| maps.end_construction(batch, 0, id))?;
    keys.store(b"h1", hash)
}

fn construction_not_ended(keys: &mut Keyspace<'_>, fields: &[String]) -> Answer {
    let hash = keys.build(b"h1", fields)?;
    let CollectionBody::Large { id, .. } = hash.body else { panic!("it is not large") };
    keys.with_list(|maps, batch| maps.begin_construction(batch, 0, id))?;
    keys.store(b"h1", hash)?;
    keys.commit()?;
    keys.with_list(|maps, batch| maps.end_construction(batch, 0, id))
}

fn moved_in_halves(keys: &mut Keyspace<'_>) -> Answer {
    let (id, _) = keys.id_of(b"h0")?;
    keys.with_list(|maps, batch| maps.rehome(batch, 0, 1, id))?;
    keys.commit()?;
    keys.with_list(|maps, batch| maps.rehome(batch, 1, 0, id))?;
    keys.change_database(0, 1, b"h0").map(drop)
}

/// The command of the token "7".
fn push_once(keys: &mut Keyspace<'_>) -> Answer {
    let mut list = keys.collection(0, b"l7", Kind::List)?;
    keys.push(&mut list, false, [&b"once7"[..]])?;
    keys.store(b"l7", list)
}

fn token_late(keys: &mut Keyspace<'_>) -> Answer {
    push_once(keys)?;
    keys.commit()?;
    keys.remember(b"7", 1 << 40, &[0; DIGEST_BYTES], (Protocol::Resp2, b":1\r\n"))
}

fn token_not_timed(keys: &mut Keyspace<'_>) -> Answer {
    push_once(keys)?;
    keys.remember_without_time(b"7", 1 << 40)?;
    keys.commit()?;
    keys.remember(b"7", 1 << 40, &[0; DIGEST_BYTES], (Protocol::Resp2, b":1\r\n"))
}

fn swapped_in_steps(keys: &mut Keyspace<'_>) -> Answer {
    keys.swap(1, 3)?;
    keys.commit()?;
    keys.swap(2, 3)?;
    keys.swap(1, 3)
}
