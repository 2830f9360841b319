//! The options of a mapping.

use crate::Durability;
use crate::flush::FlushInstruction;
use crate::journal::{JournalPlace, Records};
use std::path::PathBuf;

/// How a region is mapped.
#[derive(Debug, Clone, Default)]
pub struct RegionOptions {
    /// The name of the file in messages.
    pub path: PathBuf,
    /// The durability asked for.
    pub durability: Durability,
    /// The flush instruction to use, whatever the processor reports: some tools that run the program hide
    /// instructions that they support. The variable `TEMBO_FLUSH` overrides this.
    pub flush_instruction: Option<FlushInstruction>,
    /// Whether copies bypass the caches. By default large ones do, and small ones where that is faster; this
    /// decides for both. The variable `TEMBO_NON_TEMPORAL` overrides this.
    pub non_temporal: Option<bool>,
    /// The length up to which the region may grow, in bytes.
    pub max_bytes: Option<u64>,
    /// Whether to map every page when the region is opened, and when it grows, rather than at the first
    /// access. Costs about 0.3 s per GiB of pages of 4 KiB then, and saves each page's fault later.
    pub prefault: bool,
    /// Whether a file on tmpfs lies in huge pages of 2 MiB, if the system supports that (Linux 6.1 and
    /// later). No effect on other files. The existing contents are moved into huge pages when the file is
    /// opened, which takes about 0.5 s per GiB if they are not in huge pages yet.
    pub huge_pages: bool,
    /// Bytes of private memory beyond which a region with a journal gives pages back that are at home, and
    /// slows its fences: the more, the more it has, up to a quarter above. `None`: a sixth of the region and
    /// at least 768 MiB, but at most a quarter of the memory that the process may use.
    pub private_bytes_max: Option<u64>,
    /// Where the file has a journal, if it has one.
    pub journal: Option<JournalPlace>,
    /// The records of a journal that a killed process of this boot left, or one that closed the file, in a
    /// domain with a journal: the journal is [resumed](crate::journal::Journal::resume).
    pub resumes: Option<Records>,
    /// Whether to count words, lines and fences ([`snapshot`](crate::snapshot)).
    pub count: bool,
}
