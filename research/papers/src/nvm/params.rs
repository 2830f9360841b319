//! The parameters of a modelled machine, read from TOML.

use serde::Deserialize;
use std::collections::BTreeMap;
use tembo_pmem::LINE_BYTES;

/// A processor with its caches and a memory controller, and the memories that may be behind it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// Short name, for file names and headers.
    pub name: String,
    /// Where the numbers are from.
    pub source: String,
    /// The core.
    pub core: Core,
    /// Caches, nearest first. Inclusive: a line in one is in all farther ones.
    pub cache: Vec<CacheLevel>,
    /// The table of translations for data.
    pub tlb: Tlb,
    /// The memory controller.
    pub controller: Controller,
    /// Memories by name.
    pub media: BTreeMap<String, Medium>,
    /// The volatile memory beside them, behind a controller of its own of the same kind.
    pub dram: Medium,
}

/// The costs of the core itself.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Core {
    /// Cycles of a nanosecond.
    pub clock_ghz: f64,
    /// Per word loaded, where its latency is hidden.
    pub pipelined_load_cycles: u64,
    /// From a branch that went the other way than foreseen to the next instruction.
    pub mispredict_cycles: u64,
    /// Per word stored.
    pub store_cycles: u64,
    /// Per line asked for ahead.
    pub prefetch_cycles: u64,
    /// Per line flushed.
    pub flush_cycles: u64,
    /// Per fence, besides what it waits for.
    pub fence_cycles: u64,
    /// The rate of other instructions.
    pub instructions_per_cycle: f64,
    /// Fills of lines that may be under way at a time.
    pub outstanding_fills: usize,
}

/// A set-associative cache with least-recently-used replacement.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheLevel {
    /// Its size.
    pub bytes: u64,
    /// Lines of a set.
    pub ways: usize,
    /// From the core, when the line is here and in no nearer cache.
    pub latency_cycles: u64,
}

/// A fully associative table of translations.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tlb {
    /// Pages it knows.
    pub entries: usize,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Cost of a page that it does not know.
    pub walk_cycles: u64,
}

/// The path between the last cache and the memory.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// Write-backs that may be under way; one more stops the core.
    pub write_queue_entries: usize,
    /// Ranks; consecutive lines are in consecutive ranks. A rank writes one line at a time.
    pub ranks: u64,
    /// Banks of a rank; a bank does one thing at a time.
    pub banks_per_rank: u64,
    /// For how long a line keeps the bus.
    pub transfer_cycles: u64,
    /// Whether a flush takes the line out of the caches (clflush) or not (clwb).
    pub flush_evicts: bool,
    /// The point that a fence waits for.
    pub fence_waits_for: Durable,
}

/// When a write-back counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durable {
    /// When the memory has finished it.
    Media,
    /// When the controller has it, because its queue survives a power failure (ADR).
    Queue,
}

/// A memory.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Medium {
    /// Time to read a line.
    pub read: Latency,
    /// Time to write a line in which anything differs, whatever it is.
    pub write_line: Latency,
    /// Time for each word of it that differs.
    pub write_word: Latency,
    /// Energy of a bit read, picojoules.
    pub read_pj_per_bit: Option<f64>,
    /// Energy of a bit changed, picojoules.
    pub write_pj_per_bit: Option<f64>,
    /// Writes that a cell endures.
    pub endurance_writes: Option<f64>,
}

/// A time, in either unit.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Latency {
    /// Cycles of the core's clock.
    Cycles(u64),
    /// Nanoseconds.
    Ns(f64),
}

impl Latency {
    /// The time in whole cycles of a clock.
    pub fn cycles(self, clock_ghz: f64) -> u64 {
        match self {
            Latency::Cycles(cycles) => cycles,
            Latency::Ns(ns) => (ns * clock_ghz).round() as u64,
        }
    }
}

/// Why parameters cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParamsError {
    /// The text is not TOML of this form.
    #[error("the parameters cannot be read: {0}")]
    Form(#[from] toml::de::Error),
    /// A value makes no sense.
    #[error("parameters {name}: {what}")]
    Value {
        /// Name of the parameters.
        name: String,
        /// The wrong value, and the reason.
        what: String,
    },
    /// No memory of that name.
    #[error("parameters {name} have no memory called {medium}; they have {known}")]
    Medium {
        /// Name of the parameters.
        name: String,
        /// The memory asked for.
        medium: String,
        /// The memories that there are.
        known: String,
    },
}

impl Params {
    /// Reads parameters.
    ///
    /// # Errors
    ///
    /// [`ParamsError`] when a value is missing, unknown or makes no sense.
    pub fn parse(text: &str) -> Result<Params, ParamsError> {
        let params: Params = toml::from_str(text)?;
        match params.fault() {
            None => Ok(params),
            Some(what) => Err(ParamsError::Value { name: params.name, what }),
        }
    }

    /// The machine simulated in the wB+-Tree paper (its Table 4), with its phase-change memory.
    ///
    /// # Panics
    ///
    /// Never: the parameters are part of the program, and a test reads them.
    pub fn wbtree() -> Params {
        Params::parse(include_str!("../../params/wbtree.toml")).expect("shipped parameters are valid")
    }

    /// The memories of the NV-heaps paper (its section 4.1) behind the same processor.
    ///
    /// # Panics
    ///
    /// Never: the parameters are part of the program, and a test reads them.
    pub fn nv_heaps() -> Params {
        Params::parse(include_str!("../../params/nv-heaps.toml")).expect("shipped parameters are valid")
    }

    /// The memory of that name.
    ///
    /// # Errors
    ///
    /// [`ParamsError::Medium`] when there is none.
    pub fn medium(&self, name: &str) -> Result<&Medium, ParamsError> {
        self.media.get(name).ok_or_else(|| ParamsError::Medium {
            name: self.name.clone(),
            medium: name.to_owned(),
            known: self.media.keys().cloned().collect::<Vec<_>>().join(", "),
        })
    }

    fn fault(&self) -> Option<String> {
        let at_least_one = [
            ("core.outstanding_fills", self.core.outstanding_fills as u64),
            ("tlb.entries", self.tlb.entries as u64),
            ("tlb.page_bytes", self.tlb.page_bytes),
            ("controller.write_queue_entries", self.controller.write_queue_entries as u64),
            ("controller.ranks", self.controller.ranks),
            ("controller.banks_per_rank", self.controller.banks_per_rank),
            ("number of caches", self.cache.len() as u64),
            ("number of memories", self.media.len() as u64),
        ];
        if let Some((what, _)) = at_least_one.iter().find(|(_, value)| *value == 0) {
            return Some(format!("{what} is 0, expected at least 1"));
        }
        let positive = [
            ("core.clock_ghz", self.core.clock_ghz),
            ("core.instructions_per_cycle", self.core.instructions_per_cycle),
        ];
        if let Some((what, value)) = positive.iter().find(|(_, value)| value.is_nan() || *value <= 0.0) {
            return Some(format!("{what} is {value}, expected more than 0"));
        }
        for (at, level) in self.cache.iter().enumerate() {
            let set_bytes = level.ways as u64 * LINE_BYTES;
            if level.ways == 0 || level.bytes == 0 || !level.bytes.is_multiple_of(set_bytes) {
                return Some(format!(
                    "cache {at} has {} bytes, expected whole sets of {set_bytes}",
                    level.bytes
                ));
            }
        }
        let nearer = self.cache.iter().zip(self.cache.iter().skip(1));
        let smaller = nearer.clone().all(|(near, far)| near.bytes <= far.bytes);
        (!smaller).then(|| "a cache is smaller than a nearer one, and cannot include it".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_parameters_are_those_of_the_papers() {
        let wbtree = Params::wbtree();
        let caches: Vec<_> = wbtree.cache.iter().map(|c| (c.bytes >> 10, c.ways, c.latency_cycles)).collect();
        assert_eq!(caches, [(32, 8, 4), (256, 8, 11), (8192, 16, 39)]);
        assert_eq!((wbtree.tlb.entries, wbtree.controller.write_queue_entries), (64, 32));
        let pcm = wbtree.medium("pcm").unwrap();
        assert_eq!((pcm.read, pcm.write_word), (Latency::Cycles(230), Latency::Cycles(450)));
        assert_eq!((pcm.read_pj_per_bit, pcm.write_pj_per_bit), (Some(2.0), Some(16.0)));
        assert_eq!(&wbtree.dram, Params::nv_heaps().medium("dram").unwrap());

        let nv_heaps = Params::nv_heaps();
        for (name, read_ns, write_ns) in
            [("dram", 25.0, 35.0), ("stt-mram", 29.0, 95.0), ("pcm", 67.0, 215.0)]
        {
            let medium = nv_heaps.medium(name).unwrap();
            assert_eq!(
                (medium.read, medium.write_line),
                (Latency::Ns(read_ns), Latency::Ns(write_ns)),
                "{name}"
            );
        }
    }

    #[test]
    fn times_in_nanoseconds_become_cycles_of_the_clock() {
        assert_eq!(Latency::Ns(67.0).cycles(3.0), 201);
        assert_eq!(Latency::Ns(0.5).cycles(3.0), 2);
        assert_eq!(Latency::Cycles(450).cycles(3.0), 450);
    }

    #[test]
    fn senseless_parameters_are_refused_with_the_value() {
        let shipped = include_str!("../../params/wbtree.toml");
        for (from, to, expected) in [
            ("ranks = 4", "ranks = 0", "controller.ranks"),
            ("clock_ghz = 3.0", "clock_ghz = -1", "clock_ghz"),
            ("ways = 16", "ways = 7", "whole sets"),
            ("bytes = 8388608", "bytes = 131072", "smaller than a nearer one"),
            ("ranks = 4", "ranks = 4\nlanes = 2", "lanes"),
            ("read = { cycles = 230 }", "", "read"),
        ] {
            let error = Params::parse(&shipped.replace(from, to)).expect_err(to).to_string();
            assert!(error.contains(expected), "{to}: {error}");
        }
        let error = Params::wbtree().medium("dram").unwrap_err().to_string();
        assert!(error.contains("they have pcm"), "{error}");
    }
}
