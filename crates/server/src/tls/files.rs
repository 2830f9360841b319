//! Certificates, keys and authorities in their files, which are PEM.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Most bytes of a file. The authorities of a whole system have a quarter of it.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A chain of certificates, its owner's first, and the key of that.
///
/// # Errors
/// The mistake in a file, with its name.
pub(super) fn certificate(
    cert: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let chain = certificates(cert)?;
    let text = read(key)?;
    if is_encrypted(&text) {
        return Err(format!(
            "{}: the key is encrypted, and passphrases are not taken here; `openssl pkey -in OLD -out NEW` writes \
             it without one, into a file that only the server may read",
            key.display()
        ));
    }
    let key_of = PrivateKeyDer::from_pem_slice(&text).map_err(|error| wrong(key, "private key", &error))?;
    Ok((chain, key_of))
}

/// The authorities of a file, and those of a folder.
///
/// # Errors
/// The mistake in a file, with its name; and that there are none.
pub(super) fn authorities(file: Option<&Path>, folder: Option<&Path>) -> Result<RootCertStore, String> {
    let mut paths: Vec<PathBuf> = file.map(Path::to_owned).into_iter().collect();
    if let Some(folder) = folder {
        paths.extend(hashed(folder)?);
    }
    let mut roots = RootCertStore::empty();
    for path in paths {
        for authority in certificates(&path)? {
            roots.add(authority).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    if roots.is_empty() {
        return Err(
            "tls-ca-cert-dir has no authority; `openssl rehash` gives their files the names".to_owned()
        );
    }
    Ok(roots)
}

/// The files of a folder that have names as `openssl rehash` makes them: others are not believed by
/// OpenSSL.
fn hashed(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let cannot = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_hashed = name.split_once('.').is_some_and(|(hash, number)| {
            let digits = |text: &str, all: fn(&u8) -> bool| !text.is_empty() && text.bytes().all(|b| all(&b));
            hash.len() == 8 && digits(hash, u8::is_ascii_hexdigit) && digits(number, u8::is_ascii_digit)
        });
        if is_hashed {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match all {
        Ok(all) if all.is_empty() => Err(wrong(path, "certificate", &PemError::NoItemsFound)),
        Ok(all) => Ok(all),
        Err(error) => Err(wrong(path, "certificate", &error)),
    }
}

/// Reads a file. Whoever may change the settings may name any file, and the event loop reads it. So a file
/// that would make the reader wait, or that has no end, is refused.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| format!("{}: {error}", path.display());
    // With this flag, opening a pipe without a writer returns at once.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(cannot)?;
    if !file.metadata().map_err(cannot)?.is_file() {
        return Err(format!("{} is no regular file", path.display()));
    }
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(cannot)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("{} has more than {FILE_BYTES_MAX} bytes", path.display()));
    }
    Ok(text)
}

/// The message has nothing of the file: it may be a key.
fn wrong(path: &Path, what: &str, error: &PemError) -> String {
    match error {
        PemError::NoItemsFound => format!("{} has no {what} in PEM", path.display()),
        _ => format!("{}: the {what} in it is no PEM", path.display()),
    }
}

/// Why a certificate and its key cannot be used.
pub(super) fn misfit(cert: &Path, error: &rustls::Error) -> String {
    let cert = cert.display();
    match error {
        rustls::Error::InconsistentKeys(_) => format!("the key is not that of the certificate {cert}"),
        rustls::Error::InvalidCertificate(_) => {
            format!(
                "{cert}: {error} (certificates of version 3 are taken, as `openssl req -x509` makes them)"
            )
        }
        error => format!("{cert}, or its key: {error}"),
    }
}

fn is_encrypted(text: &[u8]) -> bool {
    let has = |mark: &[u8]| text.windows(mark.len()).any(|part| part == mark);
    has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_gives_the_files_that_openssl_would_take() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["0123abcd.0", "0123ABCD.17", "ca.pem", "0123abcd.r0", "123abcd.0", "0123abcg.0", "0123abcd."]
        {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let found = hashed(folder.path()).unwrap();
        let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["0123ABCD.17", "0123abcd.0"]);
    }

    /// The event loop would wait for the writer of a pipe, and for the end of a device.
    #[test]
    fn files_that_are_none_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), rustix::fs::Mode::RWXU).unwrap();
        std::fs::write(path("large"), vec![b'\n'; FILE_BYTES_MAX as usize + 1]).unwrap();
        std::fs::write(path("full"), vec![b'\n'; FILE_BYTES_MAX as usize]).unwrap();
        for (path, why) in [
            (path("pipe"), "is no regular file"),
            (PathBuf::from("/dev/zero"), "is no regular file"),
            (folder.path().to_owned(), "is no regular file"),
            (path("large"), "has more than 1048576 bytes"),
            (path("full"), "has no certificate in PEM"),
        ] {
            let found = certificates(&path).unwrap_err();
            assert!(found.contains(why), "{found}");
        }
    }

    #[test]
    fn an_encrypted_key_is_refused_with_the_command_that_helps() {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (cert, key) = (folder.path().join("c"), folder.path().join("k"));
        std::fs::write(&cert, made.cert.pem()).unwrap();
        for text in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n\
             -----END RSA PRIVATE KEY-----\n",
        ] {
            std::fs::write(&key, text).unwrap();
            let why = certificate(&cert, &key).unwrap_err();
            assert!(why.contains("openssl pkey -in"), "{why}");
        }
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        certificate(&cert, &key).unwrap();
        for text in ["", "secret", "-----BEGIN PRIVATE KEY-----\nsecret!\n-----END PRIVATE KEY-----\n"] {
            std::fs::write(&key, text).unwrap();
            let why = certificate(&cert, &key).unwrap_err();
            assert!(why.contains("private key") && !why.contains("secret"), "{why}");
        }
    }
}
