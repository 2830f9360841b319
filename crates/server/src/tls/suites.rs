//! Versions and ciphers by OpenSSL's names.

use rustls::{SupportedCipherSuite, SupportedProtocolVersion, version};

/// OpenSSL's names of the ciphers of TLS 1.2 that there are, beside those of the standard.
const CIPHERS: [(&str, &str); 6] = [
    ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
];

/// The versions of `tls-protocols`; all, if it is empty.
pub(super) fn versions(protocols: &str) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let mut chosen = Vec::new();
    for word in protocols.split_whitespace() {
        chosen.push(match word.to_ascii_lowercase().as_str() {
            "tlsv1.2" => &version::TLS12,
            "tlsv1.3" => &version::TLS13,
            "tlsv1" | "tlsv1.1" => {
                return Err(format!(
                    "tls-protocols: {word} is broken and not spoken; TLSv1.2 and TLSv1.3 are"
                ));
            }
            _ => return Err("tls-protocols takes TLSv1.2 and TLSv1.3".to_owned()),
        });
    }
    if chosen.is_empty() {
        chosen = vec![&version::TLS13, &version::TLS12];
    }
    Ok(chosen)
}

/// Leaves the suites that the lists name, in their order. An empty list is all of its version; so is a
/// list of TLS 1.2 without the name of a cipher: an expression like `DEFAULT:!MEDIUM`, by which every one
/// of these few is strong enough.
pub(super) fn choose(all: &mut Vec<SupportedCipherSuite>, ciphers: &str, suites: &str) -> Result<(), String> {
    let is_13 = |suite: &SupportedCipherSuite| suite.tls13().is_some();
    let find = |name: &str| all.iter().copied().find(|suite| name_of(suite) == name);
    let mut new = named(suites, |word| find(word).filter(is_13));
    if new.is_empty() && !suites.trim().is_empty() {
        return Err(unknown("tls-ciphersuites", all.iter().filter(|suite| is_13(suite)).map(name_of)));
    }
    let of_openssl = |word: &str| CIPHERS.iter().find(|(name, _)| *name == word).map(|(_, name)| *name);
    let mut old = named(ciphers, |word| find(of_openssl(word)?));
    if old.is_empty() && names_a_cipher(ciphers) {
        return Err(unknown("tls-ciphers", CIPHERS.iter().map(|(name, _)| (*name).to_owned())));
    }
    if new.is_empty() {
        new = all.iter().copied().filter(is_13).collect();
    }
    if old.is_empty() {
        old = all.iter().copied().filter(|suite| !is_13(suite)).collect();
    }
    new.extend(old);
    *all = new;
    Ok(())
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split([':', ',', ' ']).filter(|word| !word.is_empty())
}

fn named(list: &str, find: impl Fn(&str) -> Option<SupportedCipherSuite>) -> Vec<SupportedCipherSuite> {
    words(list).filter_map(find).collect()
}

/// Whether a list has the name of a cipher; classes have no minus.
fn names_a_cipher(list: &str) -> bool {
    words(list).any(|word| word.contains('-') && !word.starts_with(['!', '-', '+', '@']))
}

/// The name by the standard.
fn name_of(suite: &SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replace("TLS13_", "TLS_")
}

fn unknown(directive: &str, known: impl Iterator<Item = String>) -> String {
    let known = known.collect::<Vec<_>>().join(", ");
    format!("{directive} has none of the ciphers that there are: {known}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::ring::default_provider;

    fn chosen(ciphers: &str, suites: &str) -> Result<Vec<String>, String> {
        let mut all = default_provider().cipher_suites;
        choose(&mut all, ciphers, suites).map(|()| all.iter().map(name_of).collect())
    }

    #[test]
    fn ciphers_have_the_names_of_openssl() {
        let all = chosen("", "").unwrap();
        assert_eq!(all.len(), 9);
        for (_, name) in CIPHERS {
            assert!(all.iter().any(|known| known == name), "{name}");
        }
        let few = chosen(
            "ECDHE-RSA-CHACHA20-POLY1305:AES128-SHA:ECDHE-RSA-AES128-GCM-SHA256",
            "TLS_AES_128_GCM_SHA256",
        );
        let expected = [
            "TLS_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        ];
        assert_eq!(few.unwrap(), expected);
        assert_eq!(chosen("DEFAULT:!MEDIUM", "").unwrap(), all);
        assert!(chosen("AES128-SHA", "").unwrap_err().contains("ECDHE-RSA-AES128-GCM-SHA256"));
        assert!(chosen("", "TLS_NONE").unwrap_err().contains("TLS_AES_128_GCM_SHA256"));
    }

    #[test]
    fn old_versions_are_refused() {
        assert_eq!(versions("").unwrap().len(), 2);
        assert_eq!(versions("TLSv1.3").unwrap(), [&version::TLS13]);
        assert_eq!(versions("tlsv1.2 TLSv1.3").unwrap(), [&version::TLS12, &version::TLS13]);
        assert!(versions("TLSv1.1 TLSv1.2").unwrap_err().contains("TLSv1.1 is broken"));
        assert!(versions("SSLv3").is_err());
    }
}
