//! The settings of TLS.

use std::path::PathBuf;
use std::time::Duration;

/// How long a client may take to finish its handshake, if nothing else is said.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Which clients need a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthClients {
    No,
    Yes,
    /// No client needs a certificate; if a client has one, it is verified.
    Optional,
}

/// The settings of the directives `tls-*`.
#[derive(Clone, Debug)]
pub(crate) struct TlsSettings {
    /// 0 for none.
    pub(crate) port: u16,
    pub(crate) cert_file: Option<PathBuf>,
    pub(crate) key_file: Option<PathBuf>,
    /// The certificate and key for the link to a master, if it has its own.
    pub(crate) client_cert_file: Option<PathBuf>,
    pub(crate) client_key_file: Option<PathBuf>,
    pub(crate) ca_cert_file: Option<PathBuf>,
    pub(crate) ca_cert_dir: Option<PathBuf>,
    pub(crate) auth_clients: AuthClients,
    pub(crate) protocols: String,
    pub(crate) ciphers: String,
    pub(crate) ciphersuites: String,
    pub(crate) prefers_own_ciphers: bool,
    pub(crate) caches_sessions: bool,
    pub(crate) session_cache_size: u64,
    /// The link to a master is encrypted.
    pub(crate) replication: bool,
    /// `None` for no limit.
    pub(crate) handshake_max: Option<Duration>,
    /// How often one of these settings was set. When one is set to the value that it has, this change of the
    /// number makes the server read the files again.
    pub(crate) settings_made: u64,
}

impl Default for TlsSettings {
    fn default() -> Self {
        TlsSettings {
            port: 0,
            cert_file: None,
            key_file: None,
            client_cert_file: None,
            client_key_file: None,
            ca_cert_file: None,
            ca_cert_dir: None,
            auth_clients: AuthClients::Yes,
            protocols: String::new(),
            ciphers: String::new(),
            ciphersuites: String::new(),
            prefers_own_ciphers: false,
            caches_sessions: true,
            session_cache_size: 20 << 10,
            replication: false,
            handshake_max: Some(HANDSHAKE_MAX),
            settings_made: 0,
        }
    }
}
