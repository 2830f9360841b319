//! How much was tried.

use std::ops::AddAssign;

/// Counts of a finished simulation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Images that were recovered and judged, all different or judged differently, nested ones included.
    pub images: u64,
    /// The number of those images that come from a crash after another crash.
    pub nested_images: u64,
    /// Crash points.
    pub points: u64,
    /// Crash points of which every possible image was considered.
    pub exhaustive_points: u64,
    /// Recoveries, with the operations after them, in which further crashes were tried.
    pub nested_sessions: u64,
    /// Scenarios run.
    pub rounds: u64,
}

impl AddAssign for Report {
    fn add_assign(&mut self, other: Report) {
        self.images += other.images;
        self.nested_images += other.nested_images;
        self.points += other.points;
        self.exhaustive_points += other.exhaustive_points;
        self.nested_sessions += other.nested_sessions;
        self.rounds += other.rounds;
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} images tested ({} after a second crash), {} crash points ({} exhaustively), {} runs",
            self.images, self.nested_images, self.points, self.exhaustive_points, self.rounds
        )
    }
}
