//! Authorities and certificates that are made for a test, servers that use them, and clients that speak
//! TLS.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tembo_server::Config;

use crate::support::{Client, Fixture, PATIENCE};

pub(crate) type TlsStream = StreamOwned<ClientConnection, TcpStream>;
pub(crate) type TlsClient = Client<TlsStream>;

/// An authority, in a folder with the certificates that it gave.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

/// A certificate and its key, in files.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Two of one name would be told apart by their signatures only.
        static NUMBER: AtomicU16 = AtomicU16::new(0);
        let name = format!("authority {}", NUMBER.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.as_ref().pem()).unwrap();
        Authority { issuer, folder }
    }

    /// The file with its own certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    pub(crate) fn issue(&self, name: &str) -> Identity {
        self.issue_with(name, |_| {})
    }

    pub(crate) fn issue_expired(&self, name: &str) -> Identity {
        self.issue_with(name, |params| {
            (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
        })
    }

    fn issue_with(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        change(&mut params);
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let path = |end: &str| self.folder.path().join(format!("{name}.{end}"));
        std::fs::write(path("pem"), cert.pem()).unwrap();
        std::fs::write(path("key"), key.serialize_pem()).unwrap();
        Identity { cert: path("pem"), key: path("key") }
    }

    /// The settings of a client that believes this authority.
    pub(crate) fn client_config(&self, identity: Option<&Identity>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.as_ref().der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        with_identity(builder.unwrap().with_root_certificates(roots), identity)
    }
}

fn with_identity(
    builder: rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>,
    identity: Option<&Identity>,
) -> ClientConfig {
    let Some(Identity { cert, key }) = identity else {
        return builder.with_no_client_auth();
    };
    let chain = vec![CertificateDer::from_pem_file(cert).unwrap()];
    builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap()
}

/// A port that nobody listens on, outside those that the system gives to clients.
pub(crate) fn free_port() -> u16 {
    static PORTS: AtomicU16 = AtomicU16::new(0);
    loop {
        let offset = (std::process::id() as u16 ^ PORTS.fetch_add(1, Ordering::Relaxed)) % 7000;
        if TcpListener::bind(("127.0.0.1", 12_000 + offset)).is_ok() {
            return 12_000 + offset;
        }
    }
}

/// Takes a directive of a test.
pub(crate) fn direct(config: &mut Config, name: &str, value: impl AsRef<Path>) {
    config.take_directive(name, value.as_ref().to_str().unwrap().as_bytes()).unwrap();
}

/// A server with a plain port and one of TLS, and its authority.
pub(crate) struct TlsFixture {
    pub(crate) server: Fixture,
    pub(crate) authority: Authority,
    pub(crate) address: SocketAddr,
    /// The certificate of a client.
    pub(crate) identity: Identity,
}

impl TlsFixture {
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let authority = Authority::new();
        let (own, identity) = (authority.issue("localhost"), authority.issue("client"));
        let port = free_port();
        let server = Fixture::with_config(|config| {
            direct(config, "tls-port", port.to_string());
            direct(config, "tls-cert-file", &own.cert);
            direct(config, "tls-key-file", &own.key);
            direct(config, "tls-ca-cert-file", authority.file());
            change(config);
        });
        TlsFixture { server, authority, address: ([127, 0, 0, 1], port).into(), identity }
    }

    /// A client with a certificate.
    pub(crate) fn client(&self) -> TlsClient {
        self.client_with(self.authority.client_config(Some(&self.identity)))
    }

    pub(crate) fn client_with(&self, config: ClientConfig) -> TlsClient {
        connect(self.address, config)
    }
}

/// A client, whose handshake is part of what it sends and receives.
pub(crate) fn connect(address: SocketAddr, config: ClientConfig) -> TlsClient {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    let session = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    Client::over(StreamOwned::new(session, socket))
}

/// Why a client that asks something gets no answer, if it gets none.
pub(crate) fn refusal(client: &mut TlsClient) -> Option<String> {
    use std::io::{Read, Write};
    let asked = client.stream.write_all(b"PING\r\n").and_then(|()| client.stream.flush());
    let mut answer = [0; 7];
    match asked.and_then(|()| client.stream.read_exact(&mut answer)) {
        Ok(()) => {
            assert_eq!(&answer, b"+PONG\r\n");
            None
        }
        Err(error) => Some(error.to_string()),
    }
}
