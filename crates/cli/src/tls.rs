//! The options of `tembo serve` for TLS: Redis's directives under their names.

use crate::failure::{Failure, Outcome};
use clap::Args;
use std::path::PathBuf;
use tembo_server::Config;

/// The options of `serve` for TLS. Those that are seldom used are directives of the configuration file only.
#[derive(Debug, Args)]
pub(crate) struct TlsChoices {
    /// Speak TLS at this port, too, of all addresses; `port 0` in the configuration file turns the plain one
    /// off
    #[arg(long, value_name = "PORT")]
    tls_port: Option<u16>,
    /// The server's certificate and those between it and its authority, in PEM
    #[arg(long, value_name = "FILE")]
    tls_cert_file: Option<PathBuf>,
    /// The key of that certificate, without a passphrase
    #[arg(long, value_name = "FILE")]
    tls_key_file: Option<PathBuf>,
    /// The authorities whose certificates clients and masters may have
    #[arg(long, value_name = "FILE")]
    tls_ca_cert_file: Option<PathBuf>,
    /// A folder of them, with names as `openssl rehash` gives them
    #[arg(long, value_name = "DIR")]
    tls_ca_cert_dir: Option<PathBuf>,
    /// Whether a client of the TLS port needs a certificate [default: yes]
    #[arg(long, value_name = "yes|no|optional", value_parser = ["yes", "no", "optional"])]
    tls_auth_clients: Option<String>,
    /// Reach a master by TLS [default: no]
    #[arg(long, value_name = "yes|no", value_parser = ["yes", "no"])]
    tls_replication: Option<String>,
}

impl TlsChoices {
    /// Takes the options over into the configuration, and proves that a server can start with them.
    pub(crate) fn apply(&self, config: &mut Config) -> Outcome {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        for (name, value) in [
            ("tls-port", self.tls_port.map(|port| port.to_string())),
            ("tls-cert-file", path(&self.tls_cert_file)),
            ("tls-key-file", path(&self.tls_key_file)),
            ("tls-ca-cert-file", path(&self.tls_ca_cert_file)),
            ("tls-ca-cert-dir", path(&self.tls_ca_cert_dir)),
            ("tls-auth-clients", self.tls_auth_clients.clone()),
            ("tls-replication", self.tls_replication.clone()),
        ] {
            if let Some(value) = value {
                config.take_directive(name, value.as_bytes()).map_err(Failure::Usage)?;
            }
        }
        // Whoever names a certificate expects encryption, and the plain port does not say that there is none.
        if (self.tls_cert_file.is_some() || self.tls_key_file.is_some()) && !config.uses_tls() {
            let why = "--tls-cert-file and --tls-key-file encrypt nothing without --tls-port (or, for the \
                link to a master, --tls-replication yes)";
            return Err(Failure::Usage(why.to_owned()));
        }
        config.check_tls().map_err(|error| Failure::Usage(error.to_string()))
    }
}
