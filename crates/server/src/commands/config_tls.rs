//! The settings of TLS. Each that is set counts, so that the same value again reads the files again.

use std::path::PathBuf;
use std::time::Duration;

use super::parameter::{Parameter, integer, read_yes_or_no, yes_or_no};
use crate::config::Config;
use crate::state::State;
use crate::tls::Tls;
use crate::tls::settings::{AuthClients, TlsSettings};

/// Sessions that may be remembered.
const CACHE_SIZE_MAX: i64 = 1 << 20;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter::at_start(
        "tls-port",
        |state| of(state).port.to_string(),
        |config, value| integer(value, 0, 65535).map(|port| config.tls.port = port as u16),
    ),
    Parameter::settable(
        "tls-cert-file",
        |state| show(&of(state).cert_file),
        |config, value| read(config, value, |tls| &mut tls.cert_file),
    ),
    Parameter::settable(
        "tls-key-file",
        |state| show(&of(state).key_file),
        |config, value| read(config, value, |tls| &mut tls.key_file),
    ),
    Parameter::settable(
        "tls-client-cert-file",
        |state| show(&of(state).client_cert_file),
        |config, value| read(config, value, |tls| &mut tls.client_cert_file),
    ),
    Parameter::settable(
        "tls-client-key-file",
        |state| show(&of(state).client_key_file),
        |config, value| read(config, value, |tls| &mut tls.client_key_file),
    ),
    Parameter::settable(
        "tls-ca-cert-file",
        |state| show(&of(state).ca_cert_file),
        |config, value| read(config, value, |tls| &mut tls.ca_cert_file),
    ),
    Parameter::settable(
        "tls-ca-cert-dir",
        |state| show(&of(state).ca_cert_dir),
        |config, value| read(config, value, |tls| &mut tls.ca_cert_dir),
    ),
    Parameter::settable("tls-auth-clients", show_auth_clients, read_auth_clients),
    Parameter::settable(
        "tls-protocols",
        |state| of(state).protocols.clone(),
        |config, value| text(value).map(|text| changed(config).protocols = text),
    ),
    Parameter::settable(
        "tls-ciphers",
        |state| of(state).ciphers.clone(),
        |config, value| text(value).map(|text| changed(config).ciphers = text),
    ),
    Parameter::settable(
        "tls-ciphersuites",
        |state| of(state).ciphersuites.clone(),
        |config, value| text(value).map(|text| changed(config).ciphersuites = text),
    ),
    Parameter::settable(
        "tls-prefer-server-ciphers",
        |state| yes_or_no(of(state).prefers_own_ciphers),
        |config, value| read_yes_or_no(value).map(|on| changed(config).prefers_own_ciphers = on),
    ),
    Parameter::settable(
        "tls-session-caching",
        |state| yes_or_no(of(state).caches_sessions),
        |config, value| read_yes_or_no(value).map(|on| changed(config).caches_sessions = on),
    ),
    Parameter::settable(
        "tls-session-cache-size",
        |state| of(state).session_cache_size.to_string(),
        |config, value| {
            let size = integer(value, 0, CACHE_SIZE_MAX)?;
            changed(config).session_cache_size = size as u64;
            Ok(())
        },
    ),
    Parameter::settable(
        "tls-replication",
        |state| yes_or_no(of(state).replication),
        |config, value| read_yes_or_no(value).map(|on| changed(config).replication = on),
    ),
    Parameter::settable(
        "tls-handshake-timeout",
        |state| of(state).handshake_max.map_or(0, |max| max.as_secs()).to_string(),
        |config, value| {
            let seconds = integer(value, 0, i32::MAX.into())?;
            config.tls.handshake_max = (seconds > 0).then(|| Duration::from_secs(seconds as u64));
            Ok(())
        },
    ),
];

fn of(state: &State) -> &TlsSettings {
    &state.config.tls
}

/// The settings, of which one is being set.
fn changed(config: &mut Config) -> &mut TlsSettings {
    config.tls.settings_made += 1;
    &mut config.tls
}

fn show(path: &Option<PathBuf>) -> String {
    path.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
}

fn read(
    config: &mut Config,
    value: &[u8],
    which: fn(&mut TlsSettings) -> &mut Option<PathBuf>,
) -> Result<(), String> {
    let path = text(value)?;
    *which(changed(config)) = (!path.is_empty()).then(|| PathBuf::from(path));
    Ok(())
}

fn text(value: &[u8]) -> Result<String, String> {
    str::from_utf8(value).map(str::to_owned).map_err(|_| "argument must be UTF-8".to_owned())
}

fn show_auth_clients(state: &State) -> String {
    match of(state).auth_clients {
        AuthClients::No => "no",
        AuthClients::Yes => "yes",
        AuthClients::Optional => "optional",
    }
    .to_owned()
}

fn read_auth_clients(config: &mut Config, value: &[u8]) -> Result<(), String> {
    let asked = match value.to_ascii_lowercase().as_slice() {
        b"no" => AuthClients::No,
        b"yes" => AuthClients::Yes,
        b"optional" => AuthClients::Optional,
        _ => return Err("argument(s) must be one of the following: no, yes, optional".to_owned()),
    };
    changed(config).auth_clients = asked;
    Ok(())
}

/// The ends of connections by the new settings, if one of TLS was set.
///
/// # Errors
/// The mistake in the settings or in a file.
pub(super) fn made_anew(state: &State, config: &Config) -> Result<Option<Tls>, String> {
    if config.tls.settings_made == state.config.tls.settings_made {
        return Ok(None);
    }
    let made = Tls::of(&config.tls).map_err(|why| format!("Unable to update TLS configuration: {why}"))?;
    Ok(Some(made))
}
