//! How much is tried, and where that is set.

use crate::audit::Audit;

/// The seed of samples and schedules.
const ENV_SEED: &str = "CRASHSIM_SEED";
/// The number of images per crash point up to which all are tried.
const ENV_LIMIT: &str = "CRASHSIM_LIMIT";
/// The part of the images that is tried where nothing else is set: 3 stands for a third.
const ENV_SHARE: &str = "CRASHSIM_SHARE";
/// The number of images that a campaign has to reach.
const ENV_IMAGES: &str = "CRASHSIM_IMAGES";
/// The number of threads that try images.
const ENV_WORKERS: &str = "CRASHSIM_WORKERS";
/// How many places of each class of mutants are tried.
const ENV_MUTANTS: &str = "CRASHSIM_MUTANTS";

const DEFAULT_SEED: u64 = 0x7e3b0;

#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) seed: u64,
    /// Images per crash point.
    pub(crate) limit: usize,
    /// Images per crash point of a nested session.
    pub(crate) nested_limit: usize,
    /// How many crashes may follow on the first.
    pub(crate) depth: usize,
    /// Nested images per image of the level above, in percent.
    pub(crate) nested_percent: u64,
    pub(crate) continue_ops: usize,
    pub(crate) crash_setup: bool,
    pub(crate) workers: usize,
    pub(crate) max_bytes: u64,
    /// Places per class of mutants.
    pub(crate) mutant_limit: usize,
    pub(crate) audit: Audit,
    /// The name of the test that runs, where the test harness gives one.
    pub(crate) test: Option<String>,
}

impl Config {
    /// The defaults, with the environment's settings.
    pub(crate) fn new() -> Config {
        Config {
            seed: env_number(ENV_SEED).unwrap_or(DEFAULT_SEED),
            limit: env_number(ENV_LIMIT).unwrap_or(512) as usize,
            nested_limit: 8,
            depth: 2,
            nested_percent: 50,
            continue_ops: 2,
            crash_setup: false,
            workers: env_number(ENV_WORKERS).unwrap_or(1).max(1) as usize,
            max_bytes: 64 << 20,
            mutant_limit: env_number(ENV_MUTANTS).unwrap_or(64) as usize,
            audit: Audit::strict(),
            test: std::thread::current().name().filter(|n| *n != "main").map(str::to_owned),
        }
    }

    /// Sets the limit, unless the environment does.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = env_number(ENV_LIMIT).map_or(limit, |n| n as usize);
    }

    /// The settings with the share of images per crash point that the environment asks for, unless it sets
    /// the limit. Mutants are looked for with all of them.
    pub(crate) fn of_share(&self) -> Config {
        let limit = if env_number(ENV_LIMIT).is_some() { self.limit } else { self.limit.div_ceil(share()) };
        Config { limit, ..self.clone() }
    }

    /// Sets the number of mutants, unless the environment does.
    pub(crate) fn set_mutant_limit(&mut self, places: usize) {
        self.mutant_limit = env_number(ENV_MUTANTS).map_or(places, |n| n as usize);
    }

    /// Sets the number of workers, unless the environment does.
    pub(crate) fn set_workers(&mut self, workers: usize) {
        self.workers = env_number(ENV_WORKERS).map_or(workers, |n| n as usize).max(1);
    }

    /// The command that runs the current test with the same samples.
    pub(crate) fn reproduce(&self) -> String {
        let mut command = format!("{ENV_SEED}={} {ENV_LIMIT}={} cargo test", self.seed, self.limit);
        if let Ok(package) = std::env::var("CARGO_PKG_NAME") {
            command.push_str(&format!(" -p {package}"));
        }
        match &self.test {
            Some(test) => command + " -- --exact " + test,
            None => command,
        }
    }
}

/// The value of `CRASHSIM_IMAGES`, else the share of `default` that `CRASHSIM_SHARE` asks for.
///
/// # Panics
///
/// If one of them is not a number.
pub fn wanted_images(default: u64) -> u64 {
    set_images().unwrap_or_else(|| default.div_ceil(share() as u64))
}

/// The value of `CRASHSIM_IMAGES`, if it is set.
pub(crate) fn set_images() -> Option<u64> {
    env_number(ENV_IMAGES)
}

fn share() -> usize {
    env_number(ENV_SHARE).unwrap_or(1).max(1) as usize
}

/// The seed of a campaign's first round: the value of `CRASHSIM_SEED`, else a usual one.
///
/// # Panics
///
/// If it is not a number.
pub fn first_seed() -> u64 {
    env_number(ENV_SEED).unwrap_or(DEFAULT_SEED)
}

fn env_number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("environment variable {name}={text:?} is not a number"),
    }
}
