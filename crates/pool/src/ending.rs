//! How a pool's last use for writing ended.

/// How a pool's last use for writing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The pool does not say: it is new, or its last user was a version that did not write it down.
    Unknown,
    /// The pool was closed, and everything is on its device.
    Closed,
    /// Its process was killed, or the machine stopped, in a domain that survives this.
    Killed,
    /// The pool was open in the page cache in another boot: pages of different ages may have come together.
    OtherBoot,
    /// This file is a copy that was made while the pool was open, or after its process was killed.
    Copy,
}

impl Ending {
    /// Whether the pool's parts may be of different ages.
    pub fn is_unclean(self) -> bool {
        matches!(self, Ending::OtherBoot | Ending::Copy)
    }

    /// The name used in output.
    pub fn name(self) -> &'static str {
        match self {
            Ending::Unknown => "unknown",
            Ending::Closed => "closed",
            Ending::Killed => "killed",
            Ending::OtherBoot => "other-boot",
            Ending::Copy => "copy",
        }
    }

    /// The ending in words.
    pub fn meaning(self) -> &'static str {
        match self {
            Ending::Unknown => "not said: the last version that wrote to it did not write that down",
            Ending::Closed => "closed",
            Ending::Killed => "not closed, and nothing is lost by that",
            Ending::OtherBoot => {
                "open in the page cache when the machine stopped: its pages may be of different ages"
            }
            Ending::Copy => {
                "open: this is a copy that was made meanwhile, or after its process was killed, and its pages may be of different ages"
            }
        }
    }
}
