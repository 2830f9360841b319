//! The options of `serve` for watching it.

use crate::address::listen_address;
use clap::Args;
use std::net::SocketAddr;
use tembo_server::{Config, LogFormat};

/// Where a running server can be watched.
#[derive(Debug, Args)]
pub(crate) struct ObservationChoices {
    /// Answer Prometheus (/metrics) and probes (/health/live, /health/ready) over HTTP at this address; port
    /// 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Let other machines read the metrics: their address may be another than loopback
    #[arg(long)]
    pub(crate) metrics_public: bool,
    /// The form of the log's lines: text, or a JSON object each [default: text]
    #[arg(long, value_name = "text|json", value_parser = log_format)]
    pub(crate) log_format: Option<LogFormat>,
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    LogFormat::from_name(text).map_err(str::to_owned)
}

impl ObservationChoices {
    /// Puts these choices in the place of the configuration's.
    pub(crate) fn apply(&self, config: &mut Config) {
        config.metrics = self.metrics.or(config.metrics);
        config.metrics_public |= self.metrics_public;
        config.log_format = self.log_format.unwrap_or(config.log_format);
    }
}
