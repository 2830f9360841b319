//! The `tembo` command as its users meet it: arguments, output, exit codes, and what is left after kill -9.

mod dump_load;
mod seeded;
mod serve;
mod snapshots;
mod support;
mod tools;
mod usage;
