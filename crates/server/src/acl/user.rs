//! A user: its passwords and its selectors.

use std::fmt;

use super::digest::PasswordDigest;
use super::rule::RuleError;
use super::selector::Selector;

/// The name of the user that clients are at first.
pub(crate) const DEFAULT: &[u8] = b"default";

/// A user. A changed one is another value, which takes the place of the old one.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) name: Box<[u8]>,
    pub(crate) is_on: bool,
    /// Any password will do.
    pub(crate) any_password: bool,
    sanitizes: Option<bool>,
    passwords: Vec<PasswordDigest>,
    /// The first one is the user's own.
    pub(super) selectors: Vec<Selector>,
    /// The user may do everything. For such a user the check reads nothing else.
    pub(crate) may_all: bool,
}

/// No secrets: the name.
impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "User({})", self.name.escape_ascii())
    }
}

impl User {
    /// A user that is off and may do nothing, but maybe use all channels.
    pub(crate) fn new(name: &[u8], all_channels: bool) -> Self {
        User {
            name: name.into(),
            is_on: false,
            any_password: false,
            sanitizes: None,
            passwords: Vec::new(),
            selectors: vec![Selector::new(all_channels)],
            may_all: false,
        }
    }

    /// The default user where nothing is said of it: it may do everything, without a password.
    pub(crate) fn default_user() -> Self {
        let mut user = User::new(DEFAULT, true);
        (user.is_on, user.any_password) = (true, true);
        for rule in [&b"+@all"[..], b"~*", b"&*"] {
            // These are rules.
            let _ = user.selectors[0].apply(rule);
        }
        user.note_rights();
        user
    }

    fn note_rights(&mut self) {
        self.may_all = self.selectors.iter().any(Selector::allows_all);
    }

    /// Takes a rule. If it is wrong, the user may have part of it.
    pub(crate) fn apply(&mut self, rule: &[u8], all_channels: bool) -> Result<(), RuleError> {
        let applied = self.apply_one(rule, all_channels);
        self.note_rights();
        applied
    }

    fn apply_one(&mut self, rule: &[u8], all_channels: bool) -> Result<(), RuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"" => {}
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"nopass" => (self.any_password, self.passwords) = (true, Vec::new()),
            b"resetpass" => (self.any_password, self.passwords) = (false, Vec::new()),
            b"sanitize-payload" => self.sanitizes = Some(true),
            b"skip-sanitize-payload" => self.sanitizes = Some(false),
            b"clearselectors" => self.selectors.truncate(1),
            b"reset" => {
                let name = std::mem::take(&mut self.name);
                *self = User { sanitizes: Some(true), ..User::new(&name, all_channels) };
            }
            _ => return self.apply_named(rule, all_channels),
        }
        Ok(())
    }

    fn apply_named(&mut self, rule: &[u8], all_channels: bool) -> Result<(), RuleError> {
        let read = |digits| PasswordDigest::read(digits).ok_or(RuleError::Hash);
        match rule {
            [b'>', password @ ..] => self.add_password(PasswordDigest::of(password)),
            [b'#', digits @ ..] => self.add_password(read(digits)?),
            [b'<', password @ ..] => return self.remove_password(PasswordDigest::of(password)),
            [b'!', digits @ ..] => return self.remove_password(read(digits)?),
            [b'(', rules @ .., b')'] => self.selectors.push(Selector::read(rules, all_channels)?),
            rule => return self.selectors[0].apply(rule),
        }
        Ok(())
    }

    fn add_password(&mut self, digest: PasswordDigest) {
        self.any_password = false;
        if !self.passwords.iter().any(|known| known.is(&digest)) {
            self.passwords.push(digest);
        }
    }

    fn remove_password(&mut self, digest: PasswordDigest) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|known| known.is(&digest)).ok_or(RuleError::NoPassword)?;
        self.passwords.remove(at);
        Ok(())
    }

    /// Whether this is one of its passwords. All are compared, so that the time does not tell which.
    pub(crate) fn has_password(&self, digest: &PasswordDigest) -> bool {
        self.passwords.iter().fold(false, |found, known| found | known.is(digest)) | self.any_password
    }

    /// The words of its flags, in the order of Redis.
    pub(crate) fn flags(&self) -> impl Iterator<Item = &'static str> {
        [
            (self.is_on, "on"),
            (!self.is_on, "off"),
            (self.any_password, "nopass"),
            (self.sanitizes == Some(false), "skip-sanitize-payload"),
            (self.sanitizes == Some(true), "sanitize-payload"),
        ]
        .into_iter()
        .filter_map(|(is_set, flag)| is_set.then_some(flag))
    }

    /// Its passwords' digests in hexadecimal.
    pub(crate) fn digests(&self) -> impl ExactSizeIterator<Item = String> {
        self.passwords.iter().map(PasswordDigest::hex)
    }

    /// The commands, keys and channels of each selector, as rules.
    pub(crate) fn rules(&self) -> impl ExactSizeIterator<Item = [Vec<u8>; 3]> {
        let rules = |its: &Selector| [its.describe_commands(), its.describe_keys(), its.describe_channels()];
        self.selectors.iter().map(rules)
    }

    /// The rules that make such a user.
    pub(crate) fn describe(&self) -> Vec<u8> {
        let mut words: Vec<Vec<u8>> = self.flags().map(|flag| flag.as_bytes().to_vec()).collect();
        words.extend(self.digests().map(|digest| format!("#{digest}").into_bytes()));
        for (at, selector) in self.selectors.iter().enumerate() {
            words.push(match at {
                0 => selector.describe(),
                _ => [b"(", &selector.describe()[..], b")"].concat(),
            });
        }
        words.join(&b' ')
    }
}
