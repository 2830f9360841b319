//! The choice of the fastest search that the processor supports.
//!
//! The features of the processor are detected when a tree is opened. Each operation is compiled as a whole
//! for each kind of search, so a search is never a call.

#[cfg(all(test, target_arch = "x86_64"))]
use super::reporting;
#[cfg(target_arch = "x86_64")]
use super::{
    avx2::{self, Avx2},
    avx512::{self, Avx512},
};
use tembo_pmem::Region;

pub(in crate::u64tree) use super::portable::Portable;
pub(in crate::u64tree) use super::search::{GROUPS, NIBBLE_WORDS, Operation, Search, WORDS};

/// The fastest search that this processor supports.
#[derive(Debug, Clone, Copy)]
pub(in crate::u64tree) enum Best {
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    Portable,
    #[cfg(all(test, target_arch = "x86_64"))]
    Avx512Reporting(Avx512),
    #[cfg(all(test, target_arch = "x86_64"))]
    Avx2Reporting(Avx2),
}

impl Best {
    /// The search for a tree in this region.
    #[cfg(all(not(test), target_arch = "x86_64"))]
    pub(in crate::u64tree) fn find(region: &Region) -> Best {
        if region.reports_loads() {
            return Best::Portable;
        }
        let narrow = || Avx2::detect().map_or(Best::Portable, Best::Avx2);
        Avx512::detect().map_or_else(narrow, Best::Avx512)
    }

    /// In tests the trees of a thread use all supported searches in turn.
    #[cfg(all(test, target_arch = "x86_64"))]
    pub(in crate::u64tree) fn find(region: &Region) -> Best {
        thread_local!(static TURN: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });
        let turn = TURN.replace(TURN.get() + 1);
        let way = match (turn % 3, region.reports_loads()) {
            (0, false) => Avx512::detect().map(Best::Avx512),
            (0, true) => Avx512::detect().map(Best::Avx512Reporting),
            (1, false) => Avx2::detect().map(Best::Avx2),
            (1, true) => Avx2::detect().map(Best::Avx2Reporting),
            _ => None,
        };
        way.unwrap_or(Best::Portable)
    }

    /// The best search of this processor: there is only the portable one.
    #[cfg(not(target_arch = "x86_64"))]
    pub(in crate::u64tree) fn find(_: &Region) -> Best {
        Best::Portable
    }

    #[inline(always)]
    pub(in crate::u64tree) fn run<O: Operation>(self, operation: O) -> O::Outcome {
        match self {
            // SAFETY: `avx512` proves that the processor has the instructions.
            #[cfg(target_arch = "x86_64")]
            Best::Avx512(avx512) => unsafe { avx512::run(avx512, operation) },
            // SAFETY: as above, `avx2`.
            #[cfg(target_arch = "x86_64")]
            Best::Avx2(avx2) => unsafe { avx2::run(avx2, operation) },
            Best::Portable => run_portable(operation),
            #[cfg(all(test, target_arch = "x86_64"))]
            Best::Avx512Reporting(avx512) => operation.run_by(reporting::Reporting(avx512)),
            #[cfg(all(test, target_arch = "x86_64"))]
            Best::Avx2Reporting(avx2) => operation.run_by(reporting::Reporting(avx2)),
        }
    }
}

#[cfg_attr(target_arch = "x86_64", cold)]
fn run_portable<O: Operation>(operation: O) -> O::Outcome {
    operation.run_by(Portable)
}
