//! Reads the format and the types that a heap declares.

use crate::error::{ErrorKind, Result, corrupt};
use crate::layout::{Kind, MAGIC, MAGIC_MIGRATING, PmHeap, ROOT_KIND, ROOT_NAME, kind_off};
use crate::objects::types::Types;
use tembo_pmem::{Region, offset_of};
use tembo_pool::Pool;

/// The self-description of a heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The number of openings for writing.
    pub generation: u64,
    /// The root's type.
    pub root_type: String,
    /// The name of every type, and its fields with their offsets.
    pub types: Vec<(String, String)>,
}

/// Describes the heap of a pool, if there is one. The time grows with the number of types only.
///
/// # Errors
///
/// Corruption.
pub fn describe(pool: &Pool) -> Result<Option<Description>> {
    let Some(heap) = find(pool)? else { return Ok(None) };
    let region = pool.region();
    is_migrating(region, heap)?;
    let types = Types::read(region, heap, |_, _| Ok(()))?;
    let root = region.load_u64(heap + offset_of!(PmHeap, root) as u64)?;
    let root_type = types.get(Kind(region.load_u64(kind_off(root))?).type_number());
    let root_type =
        root_type.ok_or_else(|| corrupt("the root's type", root, "a type of the heap", "none"))?;
    Ok(Some(Description {
        generation: region.load_u64(heap + offset_of!(PmHeap, generation) as u64)?,
        root_type: root_type.name.clone(),
        types: types.iter().map(|info| (info.name.clone(), info.text.clone())).collect(),
    }))
}

/// Whether a migration of the heap at `off` is unfinished. An error if the heap has another format.
pub(crate) fn is_migrating(region: &Region, off: u64) -> Result<bool> {
    match region.load_u64(off + offset_of!(PmHeap, magic) as u64)? {
        MAGIC => Ok(false),
        MAGIC_MIGRATING => Ok(true),
        magic => match format_of(magic, off)? {
            HeapFormat::Other { found, supported } => Err(ErrorKind::Format { found, supported }.into()),
            HeapFormat::Known => Ok(false),
        },
    }
}

/// The format of a heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeapFormat {
    /// The format of this library.
    Known,
    /// The format of another version.
    Other {
        /// The version of the format.
        found: u64,
        /// The version that this library reads.
        supported: u64,
    },
}

/// The format of the heap at `off`, the offset of a root of the kind [`ROOT_KIND`].
///
/// # Errors
///
/// Corruption.
pub fn format_at(pool: &Pool, off: u64) -> Result<HeapFormat> {
    let magic = off.saturating_add(offset_of!(PmHeap, magic) as u64);
    format_of(pool.region().load_u64(magic)?, off)
}

fn format_of(magic: u64, off: u64) -> Result<HeapFormat> {
    const VERSION_AT: usize = 7;
    let digit = |word: u64| u64::from(word.to_le_bytes()[VERSION_AT].wrapping_sub(b'0'));
    let name = |word: u64| word & !(0xFF << (8 * VERSION_AT));
    let (found, supported) = (digit(magic), digit(MAGIC));
    if ![name(MAGIC), name(MAGIC_MIGRATING)].contains(&name(magic)) || !(1..=9).contains(&found) {
        let found = magic.to_le_bytes().escape_ascii().to_string();
        return Err(corrupt("the head of a heap", off, MAGIC.to_le_bytes().escape_ascii(), found));
    }
    Ok(if found == supported { HeapFormat::Known } else { HeapFormat::Other { found, supported } })
}

/// The offset of the heap in a pool.
pub(crate) fn find(pool: &Pool) -> Result<Option<u64>> {
    Ok(pool.root(ROOT_NAME)?.filter(|root| root.kind == ROOT_KIND).map(|root| root.off))
}
