//! Tests of the crate as its users see it.
//!
//! | module | proves |
//! |---|---|
//! | `fixtures` | what older and other programs wrote is read: files put together by hand, byte by byte |
//! | `redis` | what redis-server writes is read, and what is written is what redis-server would write |
//! | `mutations` | damaged files are refused, with a place, and never cost more memory than they have bytes |
//! | `properties` | the same for any bytes; it is also what the fuzzing target runs |
//! | `round_trip` | any contents are read as they were written |

mod fixtures;
mod model;
mod mutations;
mod peer;
mod properties;
mod redis;
mod round_trip;
