//! A crash simulator for code that writes to persistent memory.
//!
//! The simulator records every store, flush and fence that a component performs on a
//! [`Region`](tembo_pmem::Region) in the `Simulated` domain. It then goes through the recording and, just
//! before each flush and each fence and wherever durability was promised, builds the images that a crash
//! may leave there. Each image is recovered, checked, compared with a model, and written to again; and the
//! recovery and the writing after it are recorded and crashed in turn.
//!
//! # Failure model
//!
//! Per line, the stores that are not durable form a queue in the order in which they became visible:
//!
//! ```text
//!   line 5   durable | s3  s7  s8 | s12        flush by thread 0 after s8, none since
//!   line 9   durable | s4              fence by thread 0: line 5 durable up to s8, line 9 not
//! ```
//!
//! * a **store** enters the queue of its line; at most 8 bytes in one aligned word, and those are atomic;
//! * a **flush** of a line by a thread marks the current end of the queue for that thread;
//! * a **fence** by a thread makes durable the stores before that thread's marks, and no others;
//! * a **crash** shows of each line, independently of the others, any prefix of its queue.
//!
//! Between two fences the set of possible images only grows, so the images just before a fence include
//! those of every place since the last one. Where their number is within a limit all are tried; otherwise
//! the extremes (nothing, everything, one line at each of its prefixes with all others at nothing or at
//! everything) and samples from a printed seed.
//!
//! # Oracle
//!
//! Inside an operation a crash may leave the contents before or after it; once the operation has returned,
//! only after. What recovery shows counts as promised too: another crash must not take it back. Beyond
//! that, an [`Audit`] judges the trace of each operation without any crash.
//!
//! # Use
//!
//! Describe the component in a [`Scenario`] and call [`Simulation::run`]; [`campaign`] repeats that with
//! new seeds until enough images have been tried. [`Simulation::mutants`] seeds bugs into the recording and
//! tells which of them would have been noticed. [`SharedScenario`] is for threads that run at once.
//!
//! A pool on a disk has another failure model, of sectors: [`SectorDisk`] and [`PowerCuts`]. Any scenario
//! runs in it: [`PowerFailures`], [`power_campaign`].
//!
//! # Environment
//!
//! * `CRASHSIM_SEED`: the seed of samples and schedules, as a failure prints it;
//! * `CRASHSIM_LIMIT`: the number of images per crash point up to which all are tried;
//! * `CRASHSIM_IMAGES`: how many images a campaign has to try;
//! * `CRASHSIM_SHARE`: without these two, a third of the images is tried for 3, and so on;
//! * `CRASHSIM_MUTANTS`: how many places of each class of mutants are tried;
//! * `CRASHSIM_WORKERS`: how many threads try images.
//!
//! # Reading order
//!
//! `trace.rs` (what is recorded), `replay.rs` (the failure model), `choices.rs` (which images),
//! `session.rs` and `record.rs` (what a crash may leave at which place), `trial.rs` (one image),
//! `exploration.rs` (all of them), `shrink.rs` and `story.rs` (failures), `audit.rs`, `mutation.rs` and
//! `mutants.rs`, `schedule.rs` (interleavings), `simulation.rs` (the entry points); `sectors` by itself, and
//! then `power.rs`.

#![forbid(unsafe_code)]

mod audit;
mod choices;
mod config;
mod exploration;
mod mutants;
mod mutation;
mod power;
mod record;
mod replay;
mod report;
mod rng;
mod scenario;
mod schedule;
mod sectors;
mod session;
mod shrink;
mod simulation;
mod story;
mod trace;
mod trial;

pub use audit::Audit;
pub use config::{first_seed, wanted_images};
pub use mutants::{MutantOutcome, MutantReport};
pub use mutation::{Mutation, Target};
pub use power::{Flaw, PowerFailures, PowerReport, PowerRound, notice_flaws, power_campaign};
pub use report::Report;
pub use scenario::{Scenario, SharedScenario};
pub use schedule::{Member, Schedule};
pub use sectors::{DiskEvent, History, PowerCuts, SECTOR_BYTES, Sector, SectorDisk};
pub use simulation::{Simulation, campaign};
pub use story::{Failure, FailureKind};
pub use trace::{Event, Mark, Recorder};
