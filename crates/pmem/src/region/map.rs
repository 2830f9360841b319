//! Mapping a region: from a file, or from an image for the simulator.

use super::Region;
use super::journaled::Journaled;
use super::line::has_masked_stores;
use super::options::RegionOptions;
use super::persist::Flusher;
use crate::access::Access;
use crate::flush::{self, FlushInstruction};
use crate::huge_pages::gather_into_huge;
use crate::map::{AddressRange, Sharing, round_up};
use crate::observer::Observer;
use crate::paging::Paging;
use crate::{Domain, Durability, PAGE_BYTES, RegionError, WORD_BYTES, domain};
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

/// Names the instruction to flush with: `clwb`, `clflushopt`, `clflush` or `dc-cvap`.
const ENV_FLUSH: &str = "TEMBO_FLUSH";
/// `0` switches non-temporal stores off, `1` on.
const ENV_NON_TEMPORAL: &str = "TEMBO_NON_TEMPORAL";

/// Address space reserved when no maximum is given: 4 TiB (less where the system refuses that).
const DEFAULT_MAX_BYTES: u64 = 4 << 40;

impl Region {
    /// Maps the first `bytes` bytes of `file`, which is at least that long.
    ///
    /// # Errors
    ///
    /// [`RegionError::NotDax`] when DAX was requested and is absent, and failures of the system.
    pub fn map_file(
        file: File,
        bytes: u64,
        options: &RegionOptions,
        access: Access,
    ) -> Result<Region, RegionError> {
        let max_bytes = options.max_bytes.unwrap_or(DEFAULT_MAX_BYTES).max(bytes);
        let mapped_bytes = round_up(bytes, PAGE_BYTES);
        let wanted = if access == Access::ReadWrite { max_bytes } else { mapped_bytes };
        let mut range = AddressRange::reserve(wanted, mapped_bytes)?;
        let file = Arc::new(file);
        range.keep_children_away(&file, &options.path)?;
        let max_bytes = max_bytes.min(range.bytes());
        let (sharing, domain) = map_first(&range, &file, mapped_bytes, options.durability, access)?;
        if access == Access::ReadWrite && domain.outlives_boots() && options.resumes.is_none() {
            // PERSIST: the existing contents may have been written in a weaker domain, and be in the page
            // cache or a processor's cache only; later writes refer to them. A journal that is resumed does
            // this itself.
            rustix::fs::fsync(&*file).map_err(|e| RegionError::io("synchronising the pool file", e))?;
        }
        // Opened before the mapping is first used, because replay changes the file.
        let journal = match (options.journal, domain.has_journal() && access == Access::ReadWrite) {
            (Some(place), true) => Some(Journaled::open(&file, &range, place, options)?),
            (None, true) => return Err(RegionError::NoJournal),
            (_, false) => None,
        };
        let paging = Paging::of(&file, domain);
        paging.advise(&range, (0, mapped_bytes), sharing);
        if options.huge_pages && access == Access::ReadWrite {
            gather_into_huge(&file, &range, mapped_bytes);
        }
        if options.prefault {
            range.populate(0, mapped_bytes, sharing.population());
        }
        let flusher = choose_flusher(domain, access, options)?;
        let asked = env_non_temporal()?.or(options.non_temporal);
        let (non_temporal, streams_single_lines) = match flusher {
            Flusher::Instruction(_) => {
                (asked.unwrap_or(true), asked.unwrap_or_else(flush::streams_single_lines))
            }
            _ => (false, false),
        };
        let mut region = Region::over(range, bytes, max_bytes, sharing, domain, flusher);
        region.file = Some(file);
        region.journal = journal;
        region.paging = paging;
        region.prefaults = options.prefault;
        region.huge_pages = options.huge_pages;
        region.non_temporal = non_temporal;
        region.streams_single_lines = streams_single_lines;
        region.instrumented = options.count || region.journal.is_some();
        region.is_counted = options.count;
        region.stores_masked = !options.count && has_masked_stores();
        region.apply_found()?;
        region.start_journal()?;
        Ok(region)
    }

    /// Anonymous memory with the contents of `image`, whose stores, flushes and fences are counted and
    /// reported to `observer`.
    ///
    /// # Errors
    ///
    /// Failures of the system to provide memory.
    pub fn simulated(
        image: &[u8],
        max_bytes: u64,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Region, RegionError> {
        let bytes = image.len() as u64;
        let max_bytes = max_bytes.max(bytes);
        let mapped_bytes = round_up(bytes, PAGE_BYTES);
        let range = AddressRange::reserve_dirty(max_bytes, mapped_bytes)?;
        // SAFETY: the destination is mapped writable for `mapped_bytes`, at least `image.len()`, no other
        // code has it, and it cannot overlap the caller's slice.
        unsafe {
            core::ptr::copy_nonoverlapping(image.as_ptr(), range.base(), image.len());
            core::ptr::write_bytes(range.base().add(image.len()), 0, mapped_bytes as usize - image.len());
        }
        let reports_loads = observer.as_ref().is_some_and(|observer| observer.wants_loads());
        let mut region =
            Region::over(range, bytes, max_bytes, Sharing::Private, Domain::Simulated, Flusher::Record);
        (region.instrumented, region.is_counted) = (true, true);
        region.reports_loads = reports_loads;
        if reports_loads {
            region.loadable_words = AtomicU64::new(0);
        }
        region.observer = observer;
        Ok(region)
    }

    /// A region over mapped memory, without a file, options or an observer.
    pub(super) fn over(
        range: AddressRange,
        bytes: u64,
        max_bytes: u64,
        sharing: Sharing,
        domain: Domain,
        flusher: Flusher,
    ) -> Region {
        Region {
            range,
            len: AtomicU64::new(bytes),
            loadable_words: AtomicU64::new(bytes / WORD_BYTES),
            file: None,
            journal: None,
            paging: Paging::of_memory(),
            prefaults: false,
            huge_pages: false,
            sharing,
            domain,
            flusher,
            non_temporal: false,
            streams_single_lines: false,
            max_bytes,
            instrumented: false,
            is_counted: false,
            stores_masked: false,
            reports_loads: false,
            observer: None,
            disorder: AtomicU64::new(0),
            dirty: Mutex::default(),
            syncing: Mutex::default(),
            sync_failed: AtomicBool::new(false),
            keeps_lock: AtomicBool::new(false),
            growing: Mutex::default(),
            marked_at: Mutex::default(),
        }
    }
}

/// Maps the file for the first time, which shows whether it is on a DAX file system.
fn map_first(
    range: &AddressRange,
    file: &File,
    bytes: u64,
    durability: Durability,
    access: Access,
) -> Result<(Sharing, Domain), RegionError> {
    let plain = match access {
        // No page reaches the file by itself.
        Access::ReadWrite if durability.needs_journal() => Sharing::Private,
        Access::ReadWrite => Sharing::Shared,
        Access::ReadOnly => Sharing::SharedReadOnly,
        Access::Private => Sharing::Private,
    };
    let may_be_dax = access == Access::ReadWrite && matches!(durability, Durability::Auto | Durability::Dax);
    if may_be_dax && AddressRange::maps_sync(file) {
        range.map_file(file, 0, bytes, Sharing::SharedSync)?;
        let domain = if domain::has_persistent_cpu_cache(file) { Domain::DaxCpuCache } else { Domain::Dax };
        return Ok((Sharing::SharedSync, domain));
    }
    if durability == Durability::Dax && access == Access::ReadWrite {
        return Err(RegionError::NotDax);
    }
    range.map_file(file, 0, bytes, plain)?;
    let domain = match durability {
        Durability::Synced => Domain::Synced,
        Durability::Journaled => Domain::Journaled,
        Durability::Relaxed { .. } => Domain::Relaxed,
        Durability::Emulated => Domain::Emulated,
        Durability::Auto | Durability::Dax | Durability::PageCache => Domain::PageCache,
    };
    Ok((plain, domain))
}

fn choose_flusher(domain: Domain, access: Access, options: &RegionOptions) -> Result<Flusher, RegionError> {
    let forced = env_flush_instruction()?.or(options.flush_instruction);
    if access != Access::ReadWrite {
        return Ok(Flusher::Nothing);
    }
    match domain {
        Domain::Dax | Domain::Emulated => forced
            .or_else(FlushInstruction::detect)
            .map(Flusher::Instruction)
            .ok_or(RegionError::NoFlushInstruction),
        Domain::DaxCpuCache | Domain::PageCache => Ok(Flusher::Nothing),
        Domain::Synced => Ok(Flusher::Pages),
        Domain::Journaled | Domain::Relaxed => Ok(Flusher::Journal),
        Domain::Simulated => Ok(Flusher::Record),
    }
}

fn env_flush_instruction() -> Result<Option<FlushInstruction>, RegionError> {
    let Ok(value) = std::env::var(ENV_FLUSH) else { return Ok(None) };
    value.parse().map(Some).map_err(|_| RegionError::Environment {
        name: ENV_FLUSH,
        value,
        expected: "clwb, clflushopt or clflush on x86-64, dc-cvap on AArch64",
    })
}

fn env_non_temporal() -> Result<Option<bool>, RegionError> {
    match std::env::var(ENV_NON_TEMPORAL) {
        Err(_) => Ok(None),
        Ok(v) if v == "0" => Ok(Some(false)),
        Ok(v) if v == "1" => Ok(Some(true)),
        Ok(value) => Err(RegionError::Environment { name: ENV_NON_TEMPORAL, value, expected: "0 or 1" }),
    }
}
