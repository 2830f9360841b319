//! A server of another protocol over the same pool.

use std::fmt::Debug;

/// A figure of a [`Neighbour`] for Prometheus.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Its name, without `_total`.
    pub name: &'static str,
    /// Its meaning in some words.
    pub help: &'static str,
    /// Whether the figure counts events, since the start or since it was set back.
    pub is_counter: bool,
    /// Its value.
    pub value: u64,
}

/// A server of another protocol over the same pool, in another thread.
pub trait Neighbour: Debug + Send + Sync {
    /// The commands that its clients have had run since its start. While that rises, compaction of the pool
    /// takes no more than the share of time that it has beside clients.
    fn commands(&self) -> u64;

    /// Figures that the endpoint of metrics shows. Asked for at most once a second; it has to return at once.
    fn figures(&self) -> Vec<Figure>;
}
