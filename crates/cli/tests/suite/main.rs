//! The `tembo` command as its users meet it: arguments, output, exit codes, and what is left after kill -9.

mod client_examples;
mod compact;
mod converting;
mod dump_load;
mod errors;
mod fixtures;
mod hostile;
mod interrupted;
mod kinds;
mod log;
mod master;
mod memcached;
mod raw;
mod redis_file;
mod redis_py;
mod redis_py_pipeline;
mod replica;
mod seeded;
mod serve;
mod served;
mod snapshots;
mod store;
mod support;
mod tools;
mod unclean;
mod usage;
