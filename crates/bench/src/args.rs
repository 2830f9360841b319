//! What can be asked for on the command line.

use clap::{Parser, Subcommand};

/// Draws the papers' figures and measures what they are about.
#[derive(Debug, Parser)]
#[command(name = "tembo-bench", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Describe this machine as the figures do
    Machine,
}
