//! Databases that several threads use at once, each by a hand of its own.

use super::{Engine, Result, Setup, fjall, native, redb};

/// A way of one thread into a store that several may share.
pub(crate) trait Hand {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
    /// Copies the value into the buffer; returns whether there is one.
    fn get(&mut self, key: &[u8], buffer: &mut Vec<u8>) -> Result<bool>;
}

/// An open database.
pub(crate) trait Shared: Send + Sync {
    fn hand(&self) -> Result<Box<dyn Hand + Send + '_>>;
}

/// An engine by name.
pub(crate) struct SharedKind {
    pub(crate) name: &'static str,
    pub(crate) open: fn(&Setup<'_>) -> Result<Box<dyn Shared>>,
}

/// The engines that several threads may use.
pub(crate) fn shared_kinds() -> Vec<SharedKind> {
    let mut kinds = native::shared_kinds();
    kinds.extend([redb::SHARED_KIND, fjall::SHARED_KIND]);
    kinds
}

/// An engine in one thread.
pub(super) struct EngineHand<E>(pub(super) E);

impl<E: Engine> Hand for EngineHand<E> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.insert(key, value)
    }

    fn get(&mut self, key: &[u8], buffer: &mut Vec<u8>) -> Result<bool> {
        self.0.get(key, &mut |value| copy(value, buffer))
    }
}

/// Replaces what the buffer has.
pub(crate) fn copy(value: &[u8], buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.extend_from_slice(value);
}
