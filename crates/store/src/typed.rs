//! Keyspaces whose keys and values are [tuples](crate::tuple).

use crate::entries::Entries;
use crate::error::{Error, Result};
use crate::keyspace::Keyspace;
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;
use crate::tuple::{Decode, Encode, decode, encode};
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

/// A keyspace with keys and values of two types, [encoded](crate::tuple) as bytes; keys are in the order of
/// the type.
///
/// ```
/// # fn main() -> Result<(), tembo_store::Error> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("example.pool");
/// # let mut options = tembo_pool::Options::new();
/// # options.create = true;
/// # let store = tembo_store::Store::open(&tembo_pool::Pool::open(&path, &options)?, "bank")?;
/// use tembo_store::TypedKeyspace;
///
/// let balances = TypedKeyspace::<(String, u32), i64>::new(store.keyspace("balances")?);
/// store.transact(|tx| balances.put(tx, &("ann".to_owned(), 7), &-20))?;
/// for entry in balances.prefix(&store.snapshot(), &("ann",))? {
///     let ((name, account), cents) = entry?;
///     println!("{name}'s account {account} has {cents}");
/// }
/// # Ok(())
/// # }
/// ```
///
/// The types are the program's promise: a key or value that is not of its type is [`Error::NotDecoded`] when
/// it is read.
pub struct TypedKeyspace<K, V> {
    keyspace: Keyspace,
    _types: PhantomData<fn(K) -> V>,
}

impl<K: Encode + Decode, V: Encode + Decode> TypedKeyspace<K, V> {
    /// Gives a keyspace types.
    pub fn new(keyspace: Keyspace) -> TypedKeyspace<K, V> {
        TypedKeyspace { keyspace, _types: PhantomData }
    }

    /// The keyspace of bytes.
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// The value of a key in a snapshot.
    ///
    /// # Errors
    ///
    /// As for [`Snapshot::get`], and [`Error::NotDecoded`].
    pub fn get(&self, snapshot: &Snapshot, key: &K) -> Result<Option<V>> {
        let value = snapshot.get(&self.keyspace, encode(key))?;
        value.map(|value| decoded(&self.keyspace, "value", &value)).transpose()
    }

    /// The value of a key in a transaction's view.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::get`], and [`Error::NotDecoded`].
    pub fn get_in(&self, tx: &mut Transaction, key: &K) -> Result<Option<V>> {
        let value = tx.get(&self.keyspace, encode(key))?;
        value.map(|value| decoded(&self.keyspace, "value", &value)).transpose()
    }

    /// Gives a key a value.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::put`].
    pub fn put(&self, tx: &mut Transaction, key: &K, value: &V) -> Result<()> {
        tx.put(&self.keyspace, encode(key), encode(value))
    }

    /// Takes the value off a key.
    ///
    /// # Errors
    ///
    /// As for [`Transaction::delete`].
    pub fn delete(&self, tx: &mut Transaction, key: &K) -> Result<()> {
        tx.delete(&self.keyspace, encode(key))
    }

    /// The keys in `bounds` that have a value in a snapshot, in their order, from both ends.
    ///
    /// # Errors
    ///
    /// As for [`Snapshot::range`].
    pub fn range(&self, snapshot: &Snapshot, bounds: impl RangeBounds<K>) -> Result<TypedEntries<K, V>> {
        let bound = |bound: Bound<&K>| bound.map(encode);
        let bounds = (bound(bounds.start_bound()), bound(bounds.end_bound()));
        Ok(self.typed(snapshot.range(&self.keyspace, bounds)?))
    }

    /// The keys that begin with some parts, as `("ann",)` begins `("ann", 7)`, in their order, from both
    /// ends.
    ///
    /// # Errors
    ///
    /// As for [`Snapshot::range`].
    pub fn prefix<P: Encode>(&self, snapshot: &Snapshot, parts: &P) -> Result<TypedEntries<K, V>> {
        let first = encode(parts);
        let end = match first.iter().rposition(|byte| *byte != u8::MAX) {
            Some(last) => {
                let mut after = first[..=last].to_vec();
                after[last] += 1;
                Bound::Excluded(after)
            }
            None => Bound::Unbounded,
        };
        Ok(self.typed(snapshot.range(&self.keyspace, (Bound::Included(first), end))?))
    }

    fn typed(&self, entries: Entries) -> TypedEntries<K, V> {
        TypedEntries { entries, keyspace: self.keyspace.clone(), _types: PhantomData }
    }
}

impl<K, V> Clone for TypedKeyspace<K, V> {
    fn clone(&self) -> TypedKeyspace<K, V> {
        TypedKeyspace { keyspace: self.keyspace.clone(), _types: PhantomData }
    }
}

impl<K, V> std::fmt::Debug for TypedKeyspace<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TypedKeyspace").field(&self.keyspace).finish()
    }
}

/// The keys of a typed range with their values, from both ends. Owns its snapshot.
#[derive(Debug)]
pub struct TypedEntries<K, V> {
    entries: Entries,
    keyspace: Keyspace,
    _types: PhantomData<fn(K) -> V>,
}

impl<K: Decode, V: Decode> TypedEntries<K, V> {
    fn typed(&self, (key, value): (Vec<u8>, Vec<u8>)) -> Result<(K, V)> {
        Ok((decoded(&self.keyspace, "key", &key)?, decoded(&self.keyspace, "value", &value)?))
    }
}

impl<K: Decode, V: Decode> Iterator for TypedEntries<K, V> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Result<(K, V)>> {
        let entry = self.entries.next()?;
        Some(entry.and_then(|entry| self.typed(entry)))
    }
}

impl<K: Decode, V: Decode> DoubleEndedIterator for TypedEntries<K, V> {
    fn next_back(&mut self) -> Option<Result<(K, V)>> {
        let entry = self.entries.next_back()?;
        Some(entry.and_then(|entry| self.typed(entry)))
    }
}

fn decoded<T: Decode>(keyspace: &Keyspace, what: &'static str, bytes: &[u8]) -> Result<T> {
    decode(bytes).map_err(|source| Error::NotDecoded { keyspace: keyspace.name().to_owned(), what, source })
}
