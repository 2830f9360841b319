//! A model of non-volatile memory behind a processor's caches.
//!
//! ```text
//! loads, prefetches, stores ──▶ TLB ──▶ L1 ──▶ L2 ──▶ L3 ──fill──▶ bus ──▶ bank (read: per line)
//! flushes ──────────────────────────────▶ dirty line ─┐
//! evictions ──────────────────────────────────────────┴▶ write queue ──▶ bus ──▶ rank (write: per word)
//! ```
//!
//! A [`Model`] is told every access of one thread in program order. It keeps what the lines contain, so that
//! it knows which words and bits a write-back changes, and a clock, which an access advances by what the core
//! cannot hide. From that follow time, energy and wear. It is approximate in cycles: research/nvm-model.md
//! has what is modelled and what is not.
//!
//! Three ways to feed it: directly; through [`ModelMem`], which is memory for the trees of this crate; and
//! through [`Listener`], which observes a simulated [`Region`](tembo_pmem::Region), hence any code over it.

mod branch;
mod cache;
mod listener;
mod media;
mod mem;
mod model;
mod params;
mod words;

pub use branch::Site;
pub use listener::Listener;
pub use media::WearSummary;
pub use mem::ModelMem;
pub use model::{Cost, Model};
pub use params::{CacheLevel, Controller, Core, Durable, Latency, Medium, Params, ParamsError, Tlb};
