//! Parts of the heap that research leaves out, to measure what each costs: the layers of NV-heaps' Figure 6.
//!
//! Not for programs: without any of these parts their objects are not sound.

/// The parts that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Programs free objects by hand (`Tx::delete_by_hand`); no counts, no log, no isolation. One thread.
    Base,
    /// Transactions count pointers, and objects die by themselves. One thread.
    Safe,
    /// Transactions are logged: after a crash each is complete or absent. One thread.
    SequentialTx,
    /// The heap as programs have it.
    ConcurrentTx,
    /// Everything but the log: isolated transactions that do not survive a crash.
    NoDur,
}

/// The parts of a layer, as flags.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts {
    /// Whether pointers are counted.
    pub counts: bool,
    /// Whether commits write records, flush and fence.
    pub logs: bool,
    /// Whether transactions own what they write, and validate what they read.
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
