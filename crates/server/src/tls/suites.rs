//! Versions and ciphers by OpenSSL's names.

use rustls::{SupportedCipherSuite, SupportedProtocolVersion, version};

/// OpenSSL's names of the supported ciphers of TLS 1.2, beside those of the standard.
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
/// list of TLS 1.2 that takes none: an expression like `DEFAULT:!MEDIUM`, by which every one of these few is
/// strong enough. Ciphers and classes that a list of TLS 1.2 excludes are left out.
pub(super) fn choose(all: &mut Vec<SupportedCipherSuite>, ciphers: &str, suites: &str) -> Result<(), String> {
    let is_13 = |suite: &SupportedCipherSuite| suite.tls13().is_some();
    let mut new =
        named(suites, |word| all.iter().copied().find(|suite| is_13(suite) && name_of(suite) == word));
    if new.is_empty() && !suites.trim().is_empty() {
        return Err(unknown("tls-ciphersuites", all.iter().filter(|suite| is_13(suite)).map(name_of)));
    }
    let mut old = named(ciphers, |word| {
        let (_, name) = CIPHERS.iter().find(|(name, _)| *name == word)?;
        all.iter().copied().find(|suite| name_of(suite) == *name)
    });
    if old.is_empty() && names_a_cipher(ciphers) {
        return Err(unknown("tls-ciphers", CIPHERS.iter().map(|(name, _)| (*name).to_owned())));
    }
    if new.is_empty() {
        new = all.iter().copied().filter(is_13).collect();
    }
    if old.is_empty() {
        old = all.iter().copied().filter(|suite| !is_13(suite)).collect();
    }
    old.retain(|suite| !is_excluded(ciphers, suite));
    if old.is_empty() {
        return Err("tls-ciphers excludes all of the ciphers that there are".to_owned());
    }
    new.extend(old);
    *all = new;
    Ok(())
}

/// Whether a list excludes a suite of TLS 1.2, by its name or by a class.
fn is_excluded(ciphers: &str, suite: &SupportedCipherSuite) -> bool {
    let found = CIPHERS.iter().find(|(_, name)| *name == name_of(suite));
    let excluded = words(ciphers).filter_map(|word| word.strip_prefix(['!', '-']));
    found.is_some_and(|(name, _)| excluded.into_iter().any(|word| is_of(name, word)))
}

/// Whether a cipher has this name or is of this class; of several, with a plus between them, it has to be of
/// each.
fn is_of(name: &str, word: &str) -> bool {
    word.split('+').all(|class| {
        let class = match class {
            "ALL" | "DEFAULT" | "HIGH" | "TLSv1.2" => return true,
            "AES" | "AESGCM" => return name.contains("-AES"),
            "EECDH" | "kEECDH" | "kECDHE" => "ECDHE",
            "aECDSA" => "ECDSA",
            // RSA by itself is the exchange of keys, which none of these does by it. Sums are no class of
            // theirs either: each has one in its encryption.
            "aRSA" => "RSA",
            "RSA" | "SHA256" | "SHA384" => return false,
            class => class,
        };
        class == name || name.split('-').any(|part| part == class)
    })
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
        for all_strong in
            ["DEFAULT:!MEDIUM", "HIGH:!aNULL:!MD5:!RC4:!kRSA:!RSA", "@SECLEVEL=2:ALL:-3DES:!SHA256"]
        {
            assert_eq!(chosen(all_strong, "").unwrap(), all, "{all_strong}");
        }
        assert!(chosen("AES128-SHA", "").unwrap_err().contains("ECDHE-RSA-AES128-GCM-SHA256"));
        assert!(chosen("", "TLS_NONE").unwrap_err().contains("TLS_AES_128_GCM_SHA256"));
    }

    #[test]
    fn ciphers_that_are_excluded_are_left_out() {
        let part = |ciphers: &str| {
            let left = chosen(ciphers, "").unwrap().split_off(3);
            let named = |name: &String| CIPHERS.iter().find(|(_, of)| of == name).unwrap().0;
            left.iter().map(named).collect::<Vec<_>>().join(" ")
        };
        let without = |gone: &[&str]| {
            let left = |name: &&str| !gone.iter().any(|gone| name.contains(gone));
            CIPHERS.iter().map(|(name, _)| *name).filter(left).collect::<Vec<_>>().join(" ")
        };
        let name = "ECDHE-RSA-AES128-GCM-SHA256";
        for (list, gone) in [
            (format!("ALL:!{name}"), vec![name]),
            (format!("DEFAULT,-{name}"), vec![name]),
            ("ALL:!AES128".to_owned(), vec!["AES128"]),
            ("HIGH !CHACHA20 !aECDSA".to_owned(), vec!["CHACHA20", "ECDSA"]),
            ("ALL:!aRSA+AESGCM".to_owned(), vec!["RSA-AES"]),
            ("!AES".to_owned(), vec!["AES"]),
        ] {
            assert_eq!(part(&list), without(&gone), "{list}");
        }
        assert_eq!(part(&format!("{name}:ECDHE-RSA-AES256-GCM-SHA384:!AES256")), name);
        for none in ["ALL:!ECDHE", "!ALL", &format!("{name}:!{name}")] {
            assert!(chosen(none, "").unwrap_err().contains("excludes all"), "{none}");
        }
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
