//! TLS: the settings, and what rustls makes of them.
//!
//! ```text
//!   TlsSettings  --Tls::of-->  server: for the clients of the TLS port
//!    (tls-*)                   client: for the link to a master (tls-replication)
//!   stream: records on one side, plain bytes on the other, the handshake included
//! ```
//!
//! Certificates, keys and authorities are read when the server starts, and again whenever CONFIG SET names
//! one of the settings, with the value that it has or another one. Connections keep the settings with which
//! they began.
//!
//! # Who is verified
//!
//! A client's certificate must be of one of the authorities, and be valid now; `tls-auth-clients` says
//! whether a client needs one. A master's certificate likewise. The name in it is not compared with the
//! host that the replica connects to: as in Redis, every holder of a certificate of the authorities is
//! believed.
//!
//! # What is bounded
//!
//! A handshake has a time (`tls-handshake-timeout`) and a number of bytes
//! ([`HANDSHAKE_BYTES_MAX`](stream::HANDSHAKE_BYTES_MAX)); a turn of the event loop takes few steps of
//! handshakes, because each may sign something. Records without plain text are bounded in a read and in a
//! row (see [`stream`]).

mod files;
pub(crate) mod settings;
pub(crate) mod stream;
mod suites;
mod verify;

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::config::Config;
use crate::error::Error;
use settings::{AuthClients, TlsSettings};
use verify::ChainVerifier;

/// The ends of connections, ready for use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    /// If there is a port for TLS.
    pub(crate) server: Option<Arc<ServerConfig>>,
    /// If a master is reached by TLS.
    pub(crate) client: Option<Arc<ClientConfig>>,
}

impl Config {
    /// Whether a server can begin with these settings of TLS. Reads the certificates.
    ///
    /// # Errors
    /// [`Error::Tls`], as that of [`Server::with_listener`](crate::Server::with_listener).
    pub fn check_tls(&self) -> Result<(), Error> {
        Tls::of(&self.tls).map(drop).map_err(Error::Tls)
    }

    /// Whether anything is encrypted: clients at a port of TLS, or the link to a master.
    pub fn uses_tls(&self) -> bool {
        self.tls.port > 0 || self.tls.replication
    }
}

impl Tls {
    /// Reads the files of the settings.
    ///
    /// # Errors
    /// The mistake in the settings or in a file. It has no secrets.
    pub(crate) fn of(settings: &TlsSettings) -> Result<Tls, String> {
        let server = (settings.port > 0).then(|| server_config(settings)).transpose()?;
        let client = settings.replication.then(|| client_config(settings)).transpose()?;
        Ok(Tls { server: server.map(Arc::new), client: client.map(Arc::new) })
    }
}

/// The algorithms that the settings allow.
fn provider(settings: &TlsSettings) -> Result<Arc<CryptoProvider>, String> {
    let mut provider = ring::default_provider();
    suites::choose(&mut provider.cipher_suites, &settings.ciphers, &settings.ciphersuites)?;
    Ok(Arc::new(provider))
}

fn authorities(settings: &TlsSettings) -> Result<Arc<RootCertStore>, String> {
    let (file, folder) = (settings.ca_cert_file.as_deref(), settings.ca_cert_dir.as_deref());
    if file.is_none() && folder.is_none() {
        let why =
            "tls-ca-cert-file or tls-ca-cert-dir must name the authorities whose certificates are believed";
        return Err(format!("{why}, unless tls-auth-clients is no and tls-replication is off"));
    }
    files::authorities(file, folder).map(Arc::new)
}

fn server_config(settings: &TlsSettings) -> Result<ServerConfig, String> {
    let cert = settings.cert_file.as_deref().ok_or("there is a tls-port, and no tls-cert-file")?;
    let key = settings.key_file.as_deref().ok_or("there is a tls-port, and no tls-key-file")?;
    let provider = provider(settings)?;
    let builder = ServerConfig::builder_with_provider(provider.clone());
    let builder =
        builder.with_protocol_versions(&suites::versions(&settings.protocols)?).map_err(unusable)?;
    let builder = match settings.auth_clients {
        AuthClients::No => builder.with_no_client_auth(),
        asked => {
            let verifier = WebPkiClientVerifier::builder_with_provider(authorities(settings)?, provider);
            let verifier =
                if asked == AuthClients::Optional { verifier.allow_unauthenticated() } else { verifier };
            builder.with_client_cert_verifier(verifier.build().map_err(|error| error.to_string())?)
        }
    };
    let (chain, key) = files::certificate(cert, key)?;
    let mut config = builder.with_single_cert(chain, key).map_err(|error| files::misfit(cert, &error))?;
    config.ignore_client_order = settings.prefers_own_ciphers;
    if settings.caches_sessions {
        config.session_storage = ServerSessionMemoryCache::new(settings.session_cache_size as usize);
    } else {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

fn client_config(settings: &TlsSettings) -> Result<ClientConfig, String> {
    let provider = provider(settings)?;
    let verifier = ChainVerifier::new(authorities(settings)?, &provider);
    let builder = ClientConfig::builder_with_provider(provider);
    let builder =
        builder.with_protocol_versions(&suites::versions(&settings.protocols)?).map_err(unusable)?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let pair = match (&settings.client_cert_file, &settings.client_key_file) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => settings.cert_file.as_ref().zip(settings.key_file.as_ref()),
        _ => return Err("tls-client-cert-file and tls-client-key-file need each other".to_owned()),
    };
    let mut config = match pair {
        Some((cert, key)) => {
            let (chain, key) = files::certificate(cert, key)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| files::misfit(cert, &error))?
        }
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

fn unusable(error: rustls::Error) -> String {
    format!("tls-protocols and the ciphers do not fit together: {error}")
}
