//! Keys of maps.

use super::sorted::{Found, Sorted};
use super::text::{PBytes, PString};
use crate::error::Result;
use crate::objects::brand::Brand;
use crate::objects::place::Ref;
use crate::objects::value_buffer::ValueBuffer;
use crate::tx::bulk_read::{BulkWords, value_in};
use crate::tx::{ReadTx, Tx};
use crate::{Persist, Plain};
use std::cmp::Ordering;
use xxhash_rust::xxh3::xxh3_64;

/// A key of maps: any [`Plain`] type, whose keys are equal if all their bytes are, and [`PString`] and
/// [`PBytes`], which are looked up by `&str` and `&[u8]`.
///
/// The places of entries on media depend on hashes, so hashes are the same in every program and version (XXH3
/// with 64 bits). They do not protect against keys that are chosen to collide.
///
/// A type of a program's own may be a key too. Its methods must always give the same answer for the same key;
/// otherwise keys are not found, but nothing worse happens. Neither these methods nor the `Ord` of a
/// [`Plain`] key may run a transaction that writes to the same heap: the operation of the map would fail with
/// [`ErrorKind::MapChanged`](crate::ErrorKind::MapChanged).
pub trait MapKey: Persist {
    /// The type by which it is looked up.
    type Query: ?Sized;
    /// A copy of it in ordinary memory.
    type Owned;

    /// The hash of a key.
    fn hash(query: &Self::Query) -> u64;

    /// The hash of the key at a place.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict), as in all methods.
    fn hash_at<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, Self>) -> Result<u64>;

    /// Whether the key at a place is this one.
    ///
    /// # Errors
    ///
    /// As for [`hash_at`](Self::hash_at).
    fn is<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, Self>, query: &Self::Query) -> Result<bool>;

    /// Whether the key `off` bytes after the start of some words is this one, if these words alone can tell.
    #[doc(hidden)]
    #[inline(always)]
    fn is_in(_words: BulkWords<'_>, _off: usize, _query: &Self::Query) -> Option<bool> {
        None
    }

    /// The part of the key that has no pointers.
    fn new(query: &Self::Query) -> Self;

    /// Completes the key that [`new`](Self::new) made, at its place.
    ///
    /// # Errors
    ///
    /// As for [`hash_at`](Self::hash_at), and [`Tx::alloc_array`].
    fn complete<'t, B: Brand>(tx: &mut Tx<'t, B>, place: Ref<'t, B, Self>, query: &Self::Query)
    -> Result<()>;

    /// A copy of the key at a place.
    ///
    /// # Errors
    ///
    /// As for [`hash_at`](Self::hash_at).
    fn get<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, Self>) -> Result<Self::Owned>;
}

/// A key that has an order: a [`Plain`] type with [`Ord`], or [`PString`] and [`PBytes`] by their bytes.
///
/// The order must be total, and always the same. Otherwise keys are not found, or an operation ends with
/// [`ErrorKind::KeyOrder`](crate::ErrorKind::KeyOrder); the map stays sound. While other threads write, `Ord`
/// may see a mixture of two values. The result is dropped, but `Ord` must not panic.
pub trait OrdKey: MapKey {
    /// The order of the key at a place relative to this one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict).
    fn compare<'t, B: Brand>(
        tx: &ReadTx<'t, B>,
        place: Ref<'t, B, Self>,
        query: &Self::Query,
    ) -> Result<Ordering>;

    /// Looks for a key in a node of a [`PMap`](super::PMap).
    ///
    /// # Errors
    ///
    /// As for [`compare`](Self::compare).
    #[doc(hidden)]
    fn find<'t, B: Brand>(
        tx: &ReadTx<'t, B>,
        keys: Sorted<'t, B, Self>,
        query: &Self::Query,
    ) -> Result<Found> {
        keys.find_by(tx, |place| Self::compare(tx, place, query))
    }
}

impl<K: Plain> MapKey for K {
    type Query = K;
    type Owned = K;

    #[inline]
    fn hash(query: &K) -> u64 {
        xxh3_64(ValueBuffer::new().of(query).value_bytes())
    }

    #[inline]
    fn hash_at<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, K>) -> Result<u64> {
        Ok(K::hash(&tx.get(place)?))
    }

    #[inline]
    fn is<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, K>, query: &K) -> Result<bool> {
        Ok(ValueBuffer::new().of(&tx.get(place)?).words() == ValueBuffer::new().of(query).words())
    }

    #[inline(always)]
    fn is_in(words: BulkWords<'_>, off: usize, query: &K) -> Option<bool> {
        let key = value_in::<K>(words.0, off)?;
        Some(ValueBuffer::new().of(&key).words() == ValueBuffer::new().of(query).words())
    }

    #[inline]
    fn new(query: &K) -> K {
        *query
    }

    #[inline]
    fn complete<'t, B: Brand>(_: &mut Tx<'t, B>, _: Ref<'t, B, K>, _: &K) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn get<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, K>) -> Result<K> {
        tx.get(place)
    }
}

impl<K: Plain + Ord> OrdKey for K {
    #[inline]
    fn compare<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, K>, query: &K) -> Result<Ordering> {
        Ok(tx.get(place)?.cmp(query))
    }

    #[inline(always)]
    fn find<'t, B: Brand>(tx: &ReadTx<'t, B>, keys: Sorted<'t, B, K>, query: &K) -> Result<Found> {
        keys.find_plain(tx, query)
    }
}

impl MapKey for PBytes {
    type Query = [u8];
    type Owned = Vec<u8>;

    fn hash(query: &[u8]) -> u64 {
        xxh3_64(query)
    }

    fn hash_at<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, PBytes>) -> Result<u64> {
        Ok(xxh3_64(&place.get(tx)?))
    }

    fn is<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, PBytes>, query: &[u8]) -> Result<bool> {
        place.is(tx, query)
    }

    fn new(query: &[u8]) -> PBytes {
        PBytes::short(query).unwrap_or_default()
    }

    fn complete<'t, B: Brand>(tx: &mut Tx<'t, B>, place: Ref<'t, B, PBytes>, query: &[u8]) -> Result<()> {
        if PBytes::is_short(query) { Ok(()) } else { place.set(tx, query) }
    }

    fn get<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, PBytes>) -> Result<Vec<u8>> {
        place.get(tx)
    }
}

impl OrdKey for PBytes {
    fn compare<'t, B: Brand>(
        tx: &ReadTx<'t, B>,
        place: Ref<'t, B, PBytes>,
        query: &[u8],
    ) -> Result<Ordering> {
        Ok(place.get(tx)?.as_slice().cmp(query))
    }
}

impl MapKey for PString {
    type Query = str;
    type Owned = String;

    fn hash(query: &str) -> u64 {
        xxh3_64(query.as_bytes())
    }

    fn hash_at<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, PString>) -> Result<u64> {
        PBytes::hash_at(tx, place.as_bytes())
    }

    fn is<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, PString>, query: &str) -> Result<bool> {
        place.is(tx, query)
    }

    fn new(query: &str) -> PString {
        PString::short(query).unwrap_or_default()
    }

    fn complete<'t, B: Brand>(tx: &mut Tx<'t, B>, place: Ref<'t, B, PString>, query: &str) -> Result<()> {
        PBytes::complete(tx, place.as_bytes(), query.as_bytes())
    }

    fn get<'t, B: Brand>(tx: &ReadTx<'t, B>, place: Ref<'t, B, PString>) -> Result<String> {
        place.get(tx)
    }
}

impl OrdKey for PString {
    fn compare<'t, B: Brand>(
        tx: &ReadTx<'t, B>,
        place: Ref<'t, B, PString>,
        query: &str,
    ) -> Result<Ordering> {
        PBytes::compare(tx, place.as_bytes(), query.as_bytes())
    }
}
