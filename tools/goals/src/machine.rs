//! Which machine a measurement was made on.

use std::fmt;
use std::fs;
use tembo_pmem::FlushInstruction;

/// The properties of a machine that times depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Processors that this process may run on.
    pub core_count: usize,
    /// Data and unified caches of the first processor, as `L1 48K, L2 2048K`.
    pub caches: String,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The instruction that flushes lines, unless another is asked for.
    pub flush: Option<FlushInstruction>,
}

impl Machine {
    /// This machine, as far as it tells.
    pub fn this() -> Machine {
        let name = rustix::system::uname();
        Machine {
            processor: processor_name(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            core_count: std::thread::available_parallelism().map_or(1, usize::from),
            caches: caches(),
            memory_bytes: memory_bytes(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
            kernel: name.release().to_string_lossy().into_owned(),
            flush: FlushInstruction::detect(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} cores, {}, {} GiB, Linux {}, {}",
            self.processor,
            self.core_count,
            self.caches,
            (self.memory_bytes as f64 / (1u64 << 30) as f64).round(),
            self.kernel,
            self.flush.map_or_else(|| "no flush instruction".to_owned(), |i| i.to_string()),
        )
    }
}

/// The first model name in the text of `/proc/cpuinfo`.
fn processor_name(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned());
    name.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The total in the text of `/proc/meminfo`.
fn memory_bytes(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()).and_then(|kib| kib.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn caches() -> String {
    let read = |index: usize, what: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}");
        fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
    };
    let known: Vec<String> = (0..)
        .map_while(|index| Some((read(index, "type")?, read(index, "level")?, read(index, "size")?)))
        .filter(|(kind, _, _)| kind != "Instruction")
        .map(|(_, level, size)| format!("L{level} {size}"))
        .collect();
    if known.is_empty() { "caches unknown".to_owned() } else { known.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_and_the_memory_are_read_from_the_kernels_texts() {
        assert_eq!(processor_name("processor : 0\nmodel name\t: Chip 5\nmodel name : other\n"), "Chip 5");
        assert_eq!(processor_name(""), std::env::consts::ARCH);
        assert_eq!(memory_bytes("MemFree: 1 kB\nMemTotal:    2048 kB\n"), 2 << 20);
        assert_eq!(memory_bytes("nothing"), 0);
    }

    #[test]
    fn this_machine_has_a_core_and_memory() {
        let machine = Machine::this();
        assert!(machine.core_count > 0 && machine.memory_bytes > 0, "{machine}");
        assert!(machine.to_string().contains(" cores, "), "{machine}");
    }
}
