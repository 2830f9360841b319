//! Names and passwords.

use std::fmt;

/// The most accounts, as memcached has it.
const ACCOUNTS_MAX: usize = 8;

/// The accounts of a file in memcached's form: lines `name:password`. They are not shown by
/// [`Debug`](fmt::Debug), so that no message holds them by accident.
#[derive(Clone)]
pub struct Accounts {
    /// The accounts, each as a client sends it: `name password`.
    tokens: Vec<Vec<u8>>,
}

impl Accounts {
    /// Reads accounts.
    ///
    /// # Errors
    ///
    /// A sentence about the line that is no account, or about the number of accounts.
    pub fn parse(text: &str) -> Result<Accounts, String> {
        let mut tokens = Vec::new();
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        for (number, line) in lines {
            let Some((name, password)) = line.split_once(':').filter(|(name, _)| !name.is_empty()) else {
                return Err(format!("line {} is not name:password", number + 1));
            };
            tokens.push(format!("{name} {password}").into_bytes());
        }
        match tokens.len() {
            0 => Err("there is no account".to_owned()),
            count if count > ACCOUNTS_MAX => {
                Err(format!("there are {count} accounts, at most {ACCOUNTS_MAX}"))
            }
            _ => Ok(Accounts { tokens }),
        }
    }

    /// Whether a client that sends this has an account. How long that takes depends on the length of `given`
    /// and the number of accounts only.
    pub(crate) fn has(&self, given: &[u8]) -> bool {
        self.tokens.iter().fold(false, |found, token| found | is_equal(token, given))
    }
}

fn is_equal(token: &[u8], given: &[u8]) -> bool {
    let own = token.iter().cycle();
    let differs = given.iter().zip(own).fold(0, |differs, (a, b)| std::hint::black_box(differs | (a ^ b)));
    (differs == 0) & (given.len() == token.len())
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Accounts(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_account_is_an_account() {
        let accounts = Accounts::parse("alice:secret\n\nbob:with:colon\n").unwrap();
        assert!(accounts.has(b"alice secret") && accounts.has(b"bob with:colon"));
        for other in ["", "alice", "alice secre", "alice secrets", "bob secret", "alice secretalice secret"] {
            assert!(!accounts.has(other.as_bytes()), "{other}");
        }
        assert_eq!(format!("{accounts:?}"), "Accounts(..)");
    }

    #[test]
    fn a_file_without_accounts_is_refused() {
        assert!(Accounts::parse("a:b\nnonsense\n").unwrap_err().contains("line 2"));
        assert!(Accounts::parse(":b").unwrap_err().contains("line 1"));
        assert!(Accounts::parse("\n").unwrap_err().contains("no account"));
        assert!(Accounts::parse(&"a:b\n".repeat(9)).unwrap_err().contains("at most 8"));
    }
}
