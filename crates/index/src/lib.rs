//! Ordered persistent indexes on a Tembo pool.
