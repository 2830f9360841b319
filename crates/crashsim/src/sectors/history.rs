//! The events of a disk, and histories in which a rule is broken.

use super::{Sector, WHOLE};
use std::collections::BTreeMap;
use std::ops::Range;

/// A step of a disk's history.
#[derive(Debug, Clone)]
pub enum DiskEvent {
    /// Bytes were written.
    Write {
        /// Where.
        off: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The file has this length from now on, with zeros in its new part.
    Extended(u64),
    /// The file ends here from now on.
    Cut(u64),
    /// The space of this range was given back.
    Punched(Range<u64>),
    /// Everything that was written to this range before is on the device; if the range has no end
    /// (`u64::MAX`), also the length and the holes.
    Synchronised(Range<u64>),
    /// A synchronisation failed. The map holds these sectors as the device has them; they count as written.
    /// The flag says whether the page cache dropped them.
    Failed(BTreeMap<usize, Sector>, bool),
    /// A remark of the test.
    Mark(u64),
}

/// The calls that a disk got.
#[derive(Debug, Clone)]
pub struct History {
    /// The contents before the first event.
    pub before: Vec<u8>,
    /// The events, in their order.
    pub events: Vec<DiskEvent>,
}

impl History {
    fn with_events(&self, events: Vec<DiskEvent>) -> History {
        History { before: self.before.clone(), events }
    }

    /// The history without the synchronisations before which a byte in this range was written last: those
    /// for the sake of that range.
    pub fn without_synchronisations_of(&self, range: Range<u64>) -> History {
        let mut last_write = None;
        let mut events = self.events.clone();
        events.retain(|event| match event {
            DiskEvent::Write { off, .. } => {
                last_write = Some(*off);
                true
            }
            DiskEvent::Synchronised(of) => {
                let of_that = *of != WHOLE && range.contains(&of.start);
                !of_that && !last_write.is_some_and(|off| range.contains(&off))
            }
            _ => true,
        });
        self.with_events(events)
    }

    /// The history without the synchronisation that follows each extension: the one that makes the length
    /// durable.
    pub fn without_durable_lengths(&self) -> History {
        let mut is_new = false;
        let mut events = self.events.clone();
        events.retain(|event| match event {
            DiskEvent::Extended(_) => {
                is_new = true;
                true
            }
            DiskEvent::Synchronised(of) if *of == WHOLE => !std::mem::take(&mut is_new),
            _ => true,
        });
        self.with_events(events)
    }

    /// The history with every remark one synchronisation earlier: before it, and not after.
    pub fn with_early_marks(&self) -> History {
        self.with_earlier(1, |event| matches!(event, DiskEvent::Mark(_)))
    }

    /// The history with every hole three synchronisations earlier: those are of the write-back that comes
    /// before a hole.
    pub fn with_early_holes(&self) -> History {
        self.with_earlier(3, |event| matches!(event, DiskEvent::Punched(_)))
    }

    /// The history with every cut of the file's end three synchronisations earlier.
    pub fn with_early_cuts(&self) -> History {
        self.with_earlier(3, |event| matches!(event, DiskEvent::Cut(_)))
    }

    /// The history with these events moved before the given number of synchronisations that preceded them.
    fn with_earlier(&self, synchronisations: usize, is_earlier: impl Fn(&DiskEvent) -> bool) -> History {
        let mut events: Vec<DiskEvent> = Vec::new();
        for event in &self.events {
            let is_synchronised = |event: &DiskEvent| matches!(event, DiskEvent::Synchronised(_));
            let before = events.iter().enumerate().rev().filter(|(_, event)| is_synchronised(event));
            let at = before.map(|(at, _)| at).nth(synchronisations - 1).filter(|_| is_earlier(event));
            events.insert(at.unwrap_or(events.len()), event.clone());
        }
        self.with_events(events)
    }
}
