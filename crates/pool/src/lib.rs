//! The Tembo pool file: header, roots, lanes and the allocator.
