//! Parts of the heap that can be left out, to measure what they cost: the layers of NV-heaps' Figure 6.
//!
//! Not for programs: what is left out is what keeps their objects sound.

/// Which parts run.
#[cfg_attr(not(feature = "layers"), expect(dead_code, unreachable_pub, reason = "chosen by benchmarks only"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Objects are freed by hand (`Tx::delete_by_hand`); no counts, no log, no isolation. One thread.
    Base,
    /// Pointers are counted, and objects die by themselves. One thread.
    Safe,
    /// Transactions are logged: they are there in full or not at all after a crash. One thread.
    SequentialTx,
    /// Everything: the heap as it is for programs.
    ConcurrentTx,
    /// Everything but the log: isolated transactions that do not survive a crash.
    NoDur,
}

/// What that means in the code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts {
    /// Whether pointers are counted.
    pub counts: bool,
    /// Whether commits write records, flush and fence.
    pub logs: bool,
    /// Whether places are owned and reads validated.
    pub isolates: bool,
}

impl Layer {
    pub(crate) fn parts(self) -> Parts {
        let (counts, logs, isolates) = match self {
            Layer::Base => (false, false, false),
            Layer::Safe => (true, false, false),
            Layer::SequentialTx => (true, true, false),
            Layer::ConcurrentTx => (true, true, true),
            Layer::NoDur => (true, false, true),
        };
        Parts { counts, logs, isolates }
    }
}
